//! The node selector: a `metav1.LabelSelector` as a user writes it, checked strictly.
//!
//! A misspelt field of a selector that is silently ignored selects every Node, so this is read more strictly than the API
//! types would.

use std::collections::BTreeMap;

use common::validation::{is_dns_subdomain, is_label_value};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
pub use kube::core::Selector;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Reads the selector of the settings. Both of its parts must match; an empty one matches every Node.
///
/// # Errors
/// A field, key, value or operator that cannot be meant.
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Selector, D::Error> {
    let selector = NodeSelector::deserialize(deserializer)?;
    selector.check().map_err(|problem| D::Error::custom(format!("nodeSelector: {problem}")))
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct NodeSelector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Requirement {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl NodeSelector {
    /// Checks keys, values and operators. The error says what was found and what is allowed.
    fn check(self) -> Result<Selector, String> {
        for (key, value) in &self.match_labels {
            check_key(key)?;
            check_value(value)?;
        }
        for Requirement { key, operator, values } in &self.match_expressions {
            check_key(key)?;
            let needs_values = matches!(operator, Operator::In | Operator::NotIn);
            if needs_values == values.is_empty() {
                let what = if needs_values { "needs values" } else { "takes no values" };
                return Err(format!("operator {operator:?} of key {key:?} {what}"));
            }
            values.iter().try_for_each(|value| check_value(value))?;
        }
        let expressions = self.match_expressions.into_iter().map(|requirement| LabelSelectorRequirement {
            key: requirement.key,
            operator: format!("{:?}", requirement.operator),
            values: Some(requirement.values),
        });
        let selector = LabelSelector {
            match_labels: Some(self.match_labels),
            match_expressions: Some(expressions.collect()),
        };
        Selector::try_from(selector).map_err(|error| error.to_string())
    }
}

fn check_key(key: &str) -> Result<(), String> {
    if is_label_key(key) { Ok(()) } else { Err(format!("{key:?} is no valid label key")) }
}

fn check_value(value: &str) -> Result<(), String> {
    if is_label_value(value) { Ok(()) } else { Err(format!("{value:?} is no valid label value")) }
}

/// Kubernetes' rule for label and annotation keys: an optional DNS prefix of up to 253 characters and a slash, then a name
/// of up to 63 (apimachinery, `IsQualifiedName`).
#[must_use]
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.rsplit_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_name = !name.is_empty() && is_label_value(name);
    is_name && prefix.is_none_or(is_dns_subdomain)
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt as _;

    use super::*;

    fn matches(yaml: &str, labels: &[(&str, &str)]) -> bool {
        let selector: NodeSelector = serde_yaml::from_str(yaml).unwrap();
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        selector.check().unwrap().matches(&labels)
    }

    #[test]
    fn selects_as_kubernetes_does() {
        assert!(matches("{}", &[]));
        assert!(matches("matchLabels: {a: b}", &[("a", "b")]));
        assert!(!matches("matchLabels: {a: b}", &[("a", "c")]));
        let not_in = "matchExpressions: [{key: a, operator: NotIn, values: [b]}]";
        assert!(matches(not_in, &[]) && matches(not_in, &[("a", "c")]) && !matches(not_in, &[("a", "b")]));
        let both = "matchLabels: {a: b}\nmatchExpressions: [{key: c, operator: Exists}]";
        assert!(!matches(both, &[("a", "b")]) && matches(both, &[("a", "b"), ("c", "")]));
    }

    #[test]
    fn refuses_what_cannot_be_meant() {
        for yaml in ["matchLabel: {a: b}", "matchExpressions: [{key: a, operator: in, values: [b]}]"] {
            assert!(serde_yaml::from_str::<NodeSelector>(yaml).is_err(), "{yaml}");
        }
        for yaml in [
            "matchLabels: {'a b': c}",
            "matchLabels: {a: 'b c'}",
            "matchExpressions: [{key: a, operator: In}]",
            "matchExpressions: [{key: a, operator: Exists, values: [b]}]",
        ] {
            assert!(serde_yaml::from_str::<NodeSelector>(yaml).unwrap().check().is_err(), "{yaml}");
        }
    }
}
