//! Policies of one router whose pod networks overlap: none of them acts.

use std::collections::BTreeMap;

use common::api::routegc::RouteGC;
use common::routes::Policy;
use kube::ResourceExt as _;

use crate::source::PolicySource;

/// The router's ID in lower case, because a policy may contain it in upper case. None before the router of a name is known.
#[must_use]
pub fn router(object: &RouteGC) -> Option<String> {
    let recorded = || object.status.as_ref()?.router_id.as_ref();
    object.spec.router_id.as_ref().or_else(recorded).map(|id| id.to_ascii_lowercase())
}

/// The policies that overlap with another one of the same router, each with a message that names the others. One that is being
/// deleted overlaps with none.
#[must_use]
pub fn conflicts<'a>(objects: impl IntoIterator<Item = &'a RouteGC>) -> BTreeMap<PolicySource, String> {
    let live = objects.into_iter().filter(|object| object.metadata.deletion_timestamp.is_none());
    let read: Vec<(String, String, Policy)> = live
        .filter_map(|object| Some((object.name_any(), router(object)?, Policy::of(&object.spec).ok()?)))
        .collect();
    let mut conflicts = BTreeMap::new();
    for (name, router, policy) in &read {
        let others = read.iter().filter(|(other, same, _)| other != name && same == router);
        let mut overlaps: Vec<String> = others
            .filter_map(|(other, _, theirs)| {
                Some(format!("RouteGC {other} covers {} too", policy.overlap(theirs)?))
            })
            .collect();
        overlaps.sort_unstable();
        if !overlaps.is_empty() {
            let message = format!(
                "{}: two policies must not cover the same routes of one router, so neither acts; change podCIDRs of one or delete it",
                overlaps.join(", ")
            );
            conflicts.insert(PolicySource::Object(name.clone()), message);
        }
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(name: &str, by: Value, recorded: Option<&str>, net: &str) -> RouteGC {
        let mut spec = json!({ "identityRef": { "name": "cloud-config" }, "podCIDRs": [net] });
        spec.as_object_mut().unwrap().extend(by.as_object().unwrap().clone());
        let object = json!({ "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC",
            "metadata": { "name": name }, "spec": spec, "status": { "routerID": recorded } });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn policies_of_one_router_conflict_however_they_name_it() {
        let (id, name) = (|id: &str| json!({ "routerID": id }), json!({ "routerName": "nodes" }));
        let cluster = json!({ "openStackClusterRef": { "name": "prod" } });
        let net = "10.244.0.0/16";
        let first = policy("first", id("r-1"), None, net);
        for (second, expected) in [
            (policy("second", id("R-1"), None, "10.244.0.0/20"), true),
            (policy("second", id("r-1"), None, "10.99.0.0/16"), false),
            (policy("second", id("r-2"), None, net), false),
            (policy("second", name.clone(), Some("r-1"), net), true),
            (policy("second", cluster, Some("r-1"), net), true),
            (policy("second", name.clone(), Some("r-2"), net), false),
            (policy("second", name, None, net), false),
        ] {
            let found = conflicts([&first, &second]);
            assert_eq!(found.len(), if expected { 2 } else { 0 }, "{second:?}");
        }
        let mut deleting = policy("second", id("r-1"), None, net);
        deleting.metadata.deletion_timestamp =
            Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        assert!(conflicts([&first, &deleting]).is_empty());
    }
}
