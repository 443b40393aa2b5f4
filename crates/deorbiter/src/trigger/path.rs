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

/// Why a text is not a field path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no field path: {why}; write for example .metadata.name or .metadata.annotations['example.org/key']"
)]
pub struct NoPath {
    text: String,
    why: &'static str,
}

/// Why an object has no text at a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoText {
    /// The field, or one of its parents, does not exist.
    #[error("it has no {0}")]
    Missing(FieldPath),
    /// The field is no text, number or truth value.
    #[error("its {0} is {1}, not a text")]
    NotText(FieldPath, &'static str),
}

impl FieldPath {
    /// The text at the end of the path; numbers and truth values as JSON writes them.
    ///
    /// # Errors
    /// There is no such field, or it holds something else.
    pub fn text(&self, object: &Value) -> Result<String, NoText> {
        let mut value = object;
        for key in &self.keys {
            value = value.get(key).ok_or_else(|| NoText::Missing(self.clone()))?;
        }
        match value {
            Value::String(text) => Ok(text.clone()),
            Value::Number(number) => Ok(number.to_string()),
            Value::Bool(truth) => Ok(truth.to_string()),
            Value::Null => Err(NoText::Missing(self.clone())),
            Value::Array(_) => Err(NoText::NotText(self.clone(), "a list")),
            Value::Object(_) => Err(NoText::NotText(self.clone(), "an object")),
        }
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for FieldPath {
    type Err = NoPath;

    fn from_str(text: &str) -> Result<Self, NoPath> {
        let refuse = |why| NoPath { text: text.to_owned(), why };
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
        assert_eq!(text(".spec.nothing").unwrap_err().to_string(), "it has no .spec.nothing");
        assert_eq!(text(".metadata.name.more").unwrap_err().to_string(), "it has no .metadata.name.more");
        assert!(matches!(text(".spec.null"), Err(NoText::Missing(_))));
        assert_eq!(text(".spec.list").unwrap_err().to_string(), "its .spec.list is a list, not a text");
        assert_eq!(text(".spec").unwrap_err().to_string(), "its .spec is an object, not a text");
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
