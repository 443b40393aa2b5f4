//! JSON patches that add and remove finalizer and annotation of an object. They test what they change: a concurrent write is not lost, and a
//! patch for an outdated state changes nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

/// An annotation and its value, or none.
pub type Mark<'a> = Option<(&'a str, &'a str)>;

/// Adds a finalizer and an annotation. Empty where both exist.
#[must_use]
pub fn on(metadata: &ObjectMeta, finalizer: &str, mark: Mark<'_>) -> Vec<Value> {
    let mut steps = Vec::new();
    let finalizers = metadata.finalizers.as_deref().unwrap_or_default();
    if !finalizers.iter().any(|one| one == finalizer) {
        if finalizers.is_empty() {
            steps.push(version(metadata));
            steps.push(json!({ "op": "add", "path": "/metadata/finalizers", "value": [finalizer] }));
        } else {
            steps.push(json!({ "op": "test", "path": "/metadata/finalizers", "value": finalizers }));
            steps.push(json!({ "op": "add", "path": "/metadata/finalizers/-", "value": finalizer }));
        }
    }
    if let Some((key, value)) = mark {
        steps.extend(with_annotation(metadata, key, value));
    }
    of_object(metadata, steps)
}

fn with_annotation(metadata: &ObjectMeta, key: &str, value: &str) -> Vec<Value> {
    match metadata.annotations.as_ref().filter(|all| !all.is_empty()) {
        Some(all) if all.get(key).is_some_and(|old| old == value) => Vec::new(),
        Some(_) => vec![json!({ "op": "add", "path": annotation(key), "value": value })],
        None => vec![
            version(metadata),
            json!({ "op": "add", "path": "/metadata/annotations", "value": { key: value } }),
        ],
    }
}

/// Sets one annotation. Empty where it has the value.
#[must_use]
pub fn annotate(metadata: &ObjectMeta, key: &str, value: &str) -> Vec<Value> {
    of_object(metadata, with_annotation(metadata, key, value))
}

/// Removes a finalizer and annotations with these values. Empty where none of them exists.
#[must_use]
pub fn off(metadata: &ObjectMeta, finalizer: &str, marks: &[(&str, &str)]) -> Vec<Value> {
    let mut steps = Vec::new();
    let mut finalizers = metadata.finalizers.iter().flatten();
    if let Some(index) = finalizers.position(|one| one == finalizer) {
        let path = format!("/metadata/finalizers/{index}");
        steps.push(json!({ "op": "test", "path": path, "value": finalizer }));
        steps.push(json!({ "op": "remove", "path": path }));
    }
    for (key, value) in marks {
        steps.extend(without_annotation(metadata, key, value));
    }
    of_object(metadata, steps)
}

fn without_annotation(metadata: &ObjectMeta, key: &str, value: &str) -> Vec<Value> {
    let found = metadata.annotations.as_ref().and_then(|all| all.get(key));
    if found.is_none_or(|old| old != value) {
        return Vec::new();
    }
    vec![
        json!({ "op": "test", "path": annotation(key), "value": value }),
        json!({ "op": "remove", "path": annotation(key) }),
    ]
}

/// Removes one annotation with this value. Empty where it does not exist.
#[must_use]
pub fn remove_annotation(metadata: &ObjectMeta, key: &str, value: &str) -> Vec<Value> {
    of_object(metadata, without_annotation(metadata, key, value))
}

/// The object may have been recreated under the same name.
fn of_object(metadata: &ObjectMeta, mut steps: Vec<Value>) -> Vec<Value> {
    if !steps.is_empty() {
        steps.insert(0, json!({ "op": "test", "path": "/metadata/uid", "value": metadata.uid }));
    }
    steps
}

/// A missing list or map cannot be tested, so the resourceVersion of the whole object is.
fn version(metadata: &ObjectMeta) -> Value {
    json!({ "op": "test", "path": "/metadata/resourceVersion", "value": metadata.resource_version })
}

/// RFC 6901: `~` and `/` of a key are written `~0` and `~1`.
fn annotation(key: &str) -> String {
    format!("/metadata/annotations/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(finalizers: &[&str], annotations: &[(&str, &str)]) -> ObjectMeta {
        serde_json::from_value(json!({
            "uid": "u", "resourceVersion": "7", "finalizers": finalizers,
            "annotations": annotations.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect::<std::collections::BTreeMap<_, _>>(),
        }))
        .unwrap()
    }

    #[test]
    fn a_finalizer_is_added_behind_those_of_others() {
        let patch = on(&metadata(&["a"], &[("x", "y")]), "f", Some(("d/b", "me")));
        assert_eq!(
            Value::from(patch),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u" },
                { "op": "test", "path": "/metadata/finalizers", "value": ["a"] },
                { "op": "add", "path": "/metadata/finalizers/-", "value": "f" },
                { "op": "add", "path": "/metadata/annotations/d~1b", "value": "me" },
            ])
        );
        let patch = Value::from(on(&metadata(&[], &[]), "f", Some(("d/b", "me"))));
        assert_eq!(patch[1], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" }));
        assert!(on(&metadata(&["f"], &[("d/b", "me")]), "f", Some(("d/b", "me"))).is_empty());
    }

    #[test]
    fn only_our_own_finalizer_and_annotation_are_removed() {
        let patch = off(&metadata(&["a", "f", "b"], &[("d/b", "me")]), "f", &[("d/b", "me")]);
        assert_eq!(
            Value::from(patch),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u" },
                { "op": "test", "path": "/metadata/finalizers/1", "value": "f" },
                { "op": "remove", "path": "/metadata/finalizers/1" },
                { "op": "test", "path": "/metadata/annotations/d~1b", "value": "me" },
                { "op": "remove", "path": "/metadata/annotations/d~1b" },
            ])
        );
        let other = metadata(&["a"], &[("d/b", "other")]);
        assert!(off(&other, "f", &[("d/b", "me")]).is_empty());
        assert!(remove_annotation(&other, "d/b", "me").is_empty());
        assert_eq!(
            Value::from(remove_annotation(&other, "d/b", "other")),
            json!([
                { "op": "test", "path": "/metadata/uid", "value": "u" },
                { "op": "test", "path": "/metadata/annotations/d~1b", "value": "other" },
                { "op": "remove", "path": "/metadata/annotations/d~1b" },
            ])
        );
    }
}
