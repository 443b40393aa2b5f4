//! Nodes of the cluster as a Snapshot has them.

use std::collections::{BTreeMap, BTreeSet};

use common::k8s;
use kube::core::{Expression, SelectorExt as _};

use super::snapshot::{Node, Server};
use crate::config::Config;
use crate::names;

/// Removes the labels and annotations that [`read`] does not use: they are most of a Node's memory, and other programs change
/// them all the time.
pub fn trim(config: &Config) -> impl Fn(&mut k8s::Node) + Send + 'static {
    let selected_by = config.node_selector.clone().into_iter().map(key);
    let own = [&config.floating_ip_label, &config.role_label].map(Clone::clone);
    let labels: BTreeSet<String> = selected_by.chain(own).collect();
    let setup = config.setup_annotation.clone();
    move |node| {
        keep(&mut node.metadata.labels, |key| labels.contains(key));
        keep(&mut node.metadata.annotations, |key| key == setup || names::NODE_ANNOTATIONS.contains(&key));
    }
}

fn keep(map: &mut Option<BTreeMap<String, String>>, is_read: impl Fn(&str) -> bool) {
    if let Some(entries) = map {
        entries.retain(|key, _| is_read(key));
    }
    map.take_if(|entries| entries.is_empty());
}

/// The label of one part of a selector.
fn key(expression: Expression) -> String {
    match expression {
        Expression::In(key, _)
        | Expression::NotIn(key, _)
        | Expression::Equal(key, _)
        | Expression::NotEqual(key, _)
        | Expression::Exists(key)
        | Expression::DoesNotExist(key) => key,
    }
}

/// Reduces a Node to what a decision needs. `server_of` finds its server by its name and provider ID. None for an object without
/// name or UID, which no API server serves.
#[must_use]
pub fn read(config: &Config, node: &k8s::Node, server_of: impl FnOnce(&str, &str) -> Server) -> Option<Node> {
    let metadata = &node.metadata;
    let name = metadata.name.clone()?;
    let annotation = |key: &str| node.annotation(key).map(str::to_owned);
    let none = BTreeMap::new();
    let labels = metadata.labels.as_ref().unwrap_or(&none);
    Some(Node {
        uid: metadata.uid.clone()?,
        resource_version: metadata.resource_version.clone()?,
        created: metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or_default(),
        terminating: metadata.deletion_timestamp.is_some(),
        selected: config.node_selector.matches(labels),
        ready: node.ready(),
        cordoned: node.spec.unschedulable,
        boot_id: node.status.node_info.boot_id.clone(),
        label: node.label(&config.floating_ip_label).map(str::to_owned),
        setup: annotation(&config.setup_annotation),
        client: annotation(names::CLIENT_ANNOTATION),
        setup_boot_id: annotation(names::BOOT_ID_ANNOTATION),
        // An address that a person has mangled is not compared.
        setup_private_ip: annotation(names::PRIVATE_IP_ANNOTATION).and_then(|text| text.parse().ok()),
        setup_hash: annotation(names::SETUP_HASH_ANNOTATION),
        pending: annotation(names::PENDING_ANNOTATION),
        // A number or time that a person has mangled only makes the next try come sooner.
        failures: annotation(names::FAILURES_ANNOTATION).and_then(|text| text.parse().ok()).unwrap_or(0),
        retry_after: annotation(names::RETRY_AFTER_ANNOTATION).and_then(|text| text.parse().ok()),
        forget: node.annotation(names::FORGET_ANNOTATION) == Some("true"),
        role: node.label(&config.role_label).is_some(),
        server: server_of(&name, &node.spec.provider_id),
        name,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_trimmed_makes_no_difference() {
        let settings = "network: lan\nroleLabel: example.org/gateway\nsetupAnnotation: example.org/nat\n\
                        nodeSelector: {matchLabels: {pool: a}, matchExpressions: [{key: b, operator: DoesNotExist}]}";
        let config = Config::new(serde_yaml::from_str(settings).unwrap()).unwrap();
        let labels = ["pool", "b", "c", "example.org/gateway", &config.floating_ip_label];
        let annotations = [names::NODE_ANNOTATIONS.as_slice(), &["example.org/nat", "other"]].concat();
        let map = |keys: &[&str]| keys.iter().map(|key| (String::from(*key), "a".to_owned())).collect();
        let mut node = k8s::Node::default();
        node.metadata.labels = Some(map(&labels));
        node.metadata.annotations = Some(map(&annotations));
        let trim = trim(&config);
        trim(&mut node);
        let keys = |map: &Option<BTreeMap<_, _>>| map.as_ref().unwrap().len();
        assert_eq!(
            (keys(&node.metadata.labels), keys(&node.metadata.annotations)),
            (4, annotations.len() - 1)
        );
        assert!(!config.node_selector.matches(node.metadata.labels.as_ref().unwrap()), "b is there");
        node.metadata.annotations = Some(map(&["other"]));
        trim(&mut node);
        assert_eq!(node.metadata.annotations, None);
    }
}
