//! Field paths, as `kubectl get -o jsonpath` writes them, and nothing else of that language: `.status.phase`,
//! `.metadata.annotations['example.org/state']`. No wildcards, indexes, filters or recursion: a path names one field, so that
//! a template is unambiguous.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;

/// The path of one field of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath {
    text: String,
    keys: Vec<String>,
}

impl FieldPath {
    /// The text at the end of the path; numbers and truth values as JSON writes them.
    ///
    /// # Errors
    /// There is no such field, or it holds something else: `it has no .spec.name`.
    pub fn text(&self, object: &Value) -> Result<String, String> {
        let missing = || format!("it has no {self}");
        let mut value = object;
        for key in &self.keys {
            value = value.get(key).ok_or_else(missing)?;
        }
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(truth) => Ok(truth.to_string()),
            Value::Null => Err(missing()),
            Value::Array(_) => Err(format!("its {self} is a list, not a text")),
            Value::Object(_) => Err(format!("its {self} is an object, not a text")),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FieldPath {
    /// One sentence: the text, and why it is not a field path.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| {
            format!(
                "{text:?} is no field path: {why}; write for example .metadata.name or .metadata.annotations['example.org/key']"
            )
        };
        let mut keys = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (key, after) = if let Some(after) = rest.strip_prefix("['") {
                let (key, after) = after.split_once("']").ok_or_else(|| refuse("[' has no ']"))?;
                if keys.is_empty() {
                    return Err(refuse("it must begin with a dot"));
                }
                if key.contains('\'') {
                    return Err(refuse("a key in brackets cannot hold a quote"));
                }
                (key, after)
            } else if let Some(after) = rest.strip_prefix('.') {
                let end = after.find(['.', '[']).unwrap_or(after.len());
                let (key, after) = after.split_at(end);
                if !key.chars().all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-')) {
                    return Err(refuse("a field is letters, digits, - and _; put other keys into ['…']"));
                }
                (key, after)
            } else if keys.is_empty() {
                return Err(refuse("it must begin with a dot"));
            } else {
                return Err(refuse("after a field comes a dot or ['key']"));
            };
            if key.is_empty() {
                return Err(refuse("a field has no name"));
            }
            keys.push(key.to_owned());
            rest = after;
        }
        if keys.is_empty() {
            return Err(refuse("it is empty"));
        }
        Ok(FieldPath { text: text.to_owned(), keys })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_names_one_field() {
        let object = json!({ "metadata": { "name": "a", "annotations": { "example.org/state": "on" } },
            "spec": { "count": 3, "on": true, "list": ["x"], "null": null } });
        let text = |path: &str| path.parse::<FieldPath>().unwrap().text(&object);
        assert_eq!(text(".metadata.name").unwrap(), "a");
        assert_eq!(text(".metadata.annotations['example.org/state']").unwrap(), "on");
        assert_eq!(text(".spec.count").unwrap(), "3");
        assert_eq!(text(".spec.on").unwrap(), "true");
        assert_eq!(text(".spec.nothing").unwrap_err(), "it has no .spec.nothing");
        assert_eq!(text(".metadata.name.more").unwrap_err(), "it has no .metadata.name.more");
        assert_eq!(text(".spec.null").unwrap_err(), "it has no .spec.null");
        assert_eq!(text(".spec.list").unwrap_err(), "its .spec.list is a list, not a text");
        assert_eq!(text(".spec").unwrap_err(), "its .spec is an object, not a text");
    }

    #[test]
    fn anything_but_a_plain_field_path_is_refused() {
        for text in [
            "",
            ".",
            "..",
            "name",
            "$.name",
            ".a.",
            ".a..b",
            "..name",
            ".a[0]",
            ".a[*]",
            ".a.*",
            ".a[?(@.b=='c')]",
            ".a['b'",
            ".a['']",
            "['a']",
            ".a['b']c",
            ".a b",
            ".a['it's']",
            "{.a}",
            ".a\"b\"",
        ] {
            assert!(text.parse::<FieldPath>().is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn the_parser_accepts_any_text_without_a_panic(text in "[.\\[\\]'a-z*?{} ]{0,12}") {
            if let Ok(path) = text.parse::<FieldPath>() {
                proptest::prop_assert_eq!(path.to_string(), text);
            }
        }
    }
}
