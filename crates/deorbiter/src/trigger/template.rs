//! The template of a Deorbit: texts with field paths in braces, filled from one object.
//!
//! Strict: an invalid template is refused before any object is bound, and a field that an object does not have is an error, never an
//! empty text.

use std::collections::BTreeMap;

use common::api::deorbit_binding::DeorbitTemplate;
use serde_json::{Map, Value, json};

use super::path::FieldPath;
use super::snapshot::ObjectId;
use crate::names;

/// A template whose texts can all be parsed.
#[derive(Clone, Debug, PartialEq)]
pub struct Template(DeorbitTemplate);

/// A text with field paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Plain(String),
    Field(FieldPath),
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// The first text of it that cannot be read.
    pub fn new(template: &DeorbitTemplate) -> Result<Template, String> {
        with_texts(template, |text| text.parse::<Text>().map(|_| text.to_owned())).map(Template)
    }

    /// Fills it from an object.
    ///
    /// # Errors
    /// The first field that the object does not have, or that is not a text.
    pub fn fill(&self, object: &Value) -> Result<DeorbitTemplate, String> {
        with_texts(&self.0, |text| text.parse::<Text>()?.fill(object))
    }

    /// Whether it names a namespace.
    #[must_use]
    pub fn names_namespace(&self) -> bool {
        self.0.namespace.is_some()
    }
}

/// The Deorbit of an object, from its filled template. `trigger`: the value of the label. It has no owner reference: a foreground deletion
/// would remove it at once, and its list of debris has to outlive the object.
#[must_use]
pub fn manifest(
    filled: DeorbitTemplate,
    target: &ObjectId,
    trigger: &str,
    namespace: &str,
    name: &str,
) -> Value {
    let DeorbitTemplate { mut labels, mut annotations, spec, .. } = filled;
    labels.insert(names::TARGET_UID_LABEL.to_owned(), target.uid.clone());
    labels.insert(names::TRIGGER_LABEL.to_owned(), trigger.to_owned());
    annotations.insert(names::TARGET_ANNOTATION.to_owned(), format!("{} {target}", target.api_version));
    json!({
        "apiVersion": names::API_VERSION,
        "kind": "Deorbit",
        "metadata": { "namespace": namespace, "name": name, "labels": labels, "annotations": annotations },
        "spec": spec,
    })
}

/// A copy of the template with each text in it replaced. The error names the field of the text: `template.spec.clusterName: …`.
fn with_texts(
    template: &DeorbitTemplate,
    replace: impl Fn(&str) -> Result<String, String>,
) -> Result<DeorbitTemplate, String> {
    let replace = |at: &str, text: &str| replace(text).map_err(|why| format!("template.{at}: {why}"));
    let namespace = template.namespace.as_deref();
    Ok(DeorbitTemplate {
        namespace: namespace.map(|text| replace("namespace", text)).transpose()?,
        labels: entries_with(&template.labels, "labels", &replace)?,
        annotations: entries_with(&template.annotations, "annotations", &replace)?,
        spec: object_with(&template.spec, "spec", &replace)?,
    })
}

fn entries_with(
    entries: &BTreeMap<String, String>,
    at: &str,
    replace: &impl Fn(&str, &str) -> Result<String, String>,
) -> Result<BTreeMap<String, String>, String> {
    let replaced =
        |(key, text): (&String, &String)| Ok((key.clone(), replace(&format!("{at}['{key}']"), text)?));
    entries.iter().map(replaced).collect()
}

fn object_with(
    object: &Map<String, Value>,
    at: &str,
    replace: &impl Fn(&str, &str) -> Result<String, String>,
) -> Result<Map<String, Value>, String> {
    object
        .iter()
        .map(|(key, value)| Ok((key.clone(), value_with(value, &format!("{at}.{key}"), replace)?)))
        .collect()
}

fn value_with(
    value: &Value,
    at: &str,
    replace: &impl Fn(&str, &str) -> Result<String, String>,
) -> Result<Value, String> {
    Ok(match value {
        Value::String(text) => Value::String(replace(at, text)?),
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let items = items.map(|(index, item)| value_with(item, &format!("{at}[{index}]"), replace));
            Value::Array(items.collect::<Result<_, String>>()?)
        }
        Value::Object(object) => Value::Object(object_with(object, at, replace)?),
        other => other.clone(),
    })
}

impl Text {
    /// # Errors
    /// The first field that the object does not have.
    fn fill(&self, object: &Value) -> Result<String, String> {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Plain(plain) => text.push_str(plain),
                Piece::Field(path) => text.push_str(&path.text(object)?),
            }
        }
        Ok(text)
    }
}

impl std::str::FromStr for Text {
    /// One sentence: the text, and why it cannot be read.
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let brace = || format!("{text:?} has a brace without its other: braces are for field paths only");
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            let (plain, from) = rest.split_at(at);
            let (path, after) =
                from.strip_prefix('{').and_then(|from| from.split_once('}')).ok_or_else(brace)?;
            pieces.push(Piece::Plain(plain.to_owned()));
            pieces.push(Piece::Field(path.parse()?));
            rest = after;
        }
        pieces.push(Piece::Plain(rest.to_owned()));
        Ok(Text(pieces))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(value: Value) -> Result<Template, String> {
        Template::new(&serde_json::from_value(value).unwrap())
    }

    #[test]
    fn texts_are_filled_at_any_depth() {
        let template = template(json!({
            "namespace": "{.metadata.namespace}-x",
            "labels": { "a": "{.metadata.name}" },
            "spec": {
                "kubeconfig": { "secretRef": { "name": "{.metadata.name}-kubeconfig", "key": "value" } },
                "list": ["{.metadata.name}", 3, true, null],
                "clusterName": "{.metadata.namespace}-{.metadata.name}",
            },
        }))
        .unwrap();
        let filled = template.fill(&json!({ "metadata": { "name": "prod", "namespace": "team" } })).unwrap();
        assert_eq!(filled.namespace.as_deref(), Some("team-x"));
        assert_eq!(filled.labels["a"], "prod");
        assert_eq!(filled.spec["kubeconfig"]["secretRef"]["name"], "prod-kubeconfig");
        assert_eq!(filled.spec["list"], json!(["prod", 3, true, null]));
        assert_eq!(filled.spec["clusterName"], "team-prod");
    }

    #[test]
    fn an_error_names_the_field() {
        let mistake = |value| template(value).unwrap_err();
        assert!(
            mistake(json!({ "spec": { "a": [{ "b": "{.x[0]}" }] } }))
                .starts_with("template.spec.a[0].b: \".x[0]\" is no field path"),
        );
        assert!(
            mistake(json!({ "spec": {}, "namespace": "{.a" }))
                .starts_with("template.namespace: \"{.a\" has a brace")
        );
        assert!(mistake(json!({ "spec": {}, "labels": { "k": "a}" } })).starts_with("template.labels['k']"));
        assert!(mistake(json!({ "spec": { "a": "{}" } })).contains("it is empty"));
    }

    #[test]
    fn a_missing_field_is_an_error() {
        let template = template(json!({ "spec": { "a": { "b": "x{.spec.y}" } } })).unwrap();
        assert_eq!(template.fill(&json!({})).unwrap_err(), "template.spec.a.b: it has no .spec.y");
    }

    proptest::proptest! {
        #[test]
        fn a_text_without_braces_does_not_change(text in "[^{}]*") {
            let template = template(json!({ "spec": { "a": text } })).unwrap();
            let filled = template.fill(&json!({})).unwrap();
            proptest::prop_assert_eq!(filled.spec["a"].as_str(), Some(text.as_str()));
        }
    }
}
