//! Least privilege: no request of controller, keeper, agent and `cgw ctl` is refused, and each permission of the manifests is used. The
//! controller's own permissions (non-resource URLs) are compared with the reviews that it requests.

use std::collections::{BTreeMap, BTreeSet};

use e2e::fault_proxy::{KubeRequest, Recorded};
use e2e::rights::Grant;
use serde_json::Value;

use super::env::{OPERATOR, OWN};
use super::story;

/// A part of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Permitted {
    Resource(Grant),
    Path { path: String, verb: String },
}

/// A part of a rule, for one account that is bound to its ClusterRole.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    role: String,
    account: String,
    permitted: Permitted,
}

/// A request, in the words of RBAC.
#[derive(Clone, Debug)]
enum Asked {
    Resource(KubeRequest),
    Path { path: String, verb: String },
}

impl Permitted {
    fn covers(&self, asked: &Asked) -> bool {
        match (self, asked) {
            (Permitted::Resource(grant), Asked::Resource(request)) => grant.covers(request),
            (Permitted::Path { path, verb }, Asked::Path { path: of, verb: with }) => {
                let fits = path.strip_suffix('*').map_or(path == of, |prefix| of.starts_with(prefix));
                fits && verb == with
            }
            _ => false,
        }
    }
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn words(rule: &Value, field: &str) -> Vec<String> {
    serde_json::from_value(rule.get(field).cloned().unwrap_or_default()).unwrap_or_default()
}

fn permitted(rule: &Value, namespace: Option<&str>) -> Vec<Permitted> {
    let mut all = Vec::new();
    let names = words(rule, "resourceNames");
    let names: Vec<_> = if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
    for verb in words(rule, "verbs") {
        assert_ne!(verb, "*", "{rule}");
        for path in words(rule, "nonResourceURLs") {
            all.push(Permitted::Path { path, verb: verb.clone() });
        }
        for group in words(rule, "apiGroups") {
            for resource in words(rule, "resources") {
                assert!(!group.contains('*') && !resource.contains('*'), "{rule}");
                all.extend(names.iter().map(|name| {
                    let (group, resource, verb) = (group.clone(), resource.clone(), verb.clone());
                    let namespace = namespace.map(str::to_owned);
                    Permitted::Resource(Grant { namespace, group, resource, name: name.clone(), verb })
                }));
            }
        }
    }
    all
}

/// Every permission of the manifests. The ClusterRole that users bind themselves is the operator's.
fn permissions(manifests: &[Value]) -> BTreeSet<Permission> {
    let of_kind =
        |suffix: &'static str| manifests.iter().filter(move |object| text(object, "/kind").ends_with(suffix));
    let mut bindings: Vec<(&str, Option<&str>, String)> = vec![("cgw-ctl", Some(OWN), OPERATOR.to_owned())];
    for binding in of_kind("RoleBinding") {
        let namespace = binding.pointer("/metadata/namespace").and_then(Value::as_str);
        for subject in binding["subjects"].as_array().unwrap() {
            assert_eq!((text(subject, "/kind"), text(subject, "/namespace")), ("ServiceAccount", OWN));
            bindings.push((text(binding, "/roleRef/name"), namespace, text(subject, "/name").to_owned()));
        }
    }
    let mut all = BTreeSet::new();
    for role in of_kind("Role") {
        let name = text(role, "/metadata/name");
        let of_role: Vec<_> = bindings.iter().filter(|(bound, ..)| *bound == name).collect();
        assert!(!of_role.is_empty(), "{name} is not bound");
        for (_, namespace, account) in of_role {
            for rule in role["rules"].as_array().unwrap() {
                all.extend(permitted(rule, *namespace).into_iter().map(|permitted| Permission {
                    role: name.to_owned(),
                    account: account.clone(),
                    permitted,
                }));
            }
        }
    }
    all
}

/// The requests of all accounts, and those that the controller asked a review for.
fn asked(requests: &BTreeMap<&'static str, Vec<Recorded>>) -> Vec<(String, Asked)> {
    let mut all = Vec::new();
    for (account, requests) in requests {
        for request in requests {
            let kube = request.kube().unwrap_or_else(|| panic!("{account}: {} is no resource", request.path));
            all.push(((*account).to_owned(), Asked::Resource(kube)));
            if request.path.ends_with("/subjectaccessreviews") {
                let review = request.json().unwrap();
                let user = text(&review, "/spec/user");
                let account = user.strip_prefix(&format!("system:serviceaccount:{OWN}:")).unwrap_or(user);
                let of = |field| text(&review, &format!("/spec/nonResourceAttributes/{field}")).to_owned();
                all.push((account.to_owned(), Asked::Path { path: of("path"), verb: of("verb") }));
            }
        }
    }
    all
}

/// The permissions that no request has used. One of a path is used if any of its accounts has used it; each account uses one.
pub fn unused(manifests: &[Value], requests: &BTreeMap<&'static str, Vec<Recorded>>) -> BTreeSet<Permission> {
    let (all, asked) = (permissions(manifests), asked(requests));
    let is_used = |permission: &Permission| {
        asked.iter().any(|(account, one)| *account == permission.account && permission.permitted.covers(one))
    };
    let used: BTreeSet<&Permission> = all.iter().filter(|permission| is_used(permission)).collect();
    let by_another = |permission: &Permission| {
        let is_path = matches!(permission.permitted, Permitted::Path { .. });
        let same = |one: &&Permission| one.role == permission.role && one.permitted == permission.permitted;
        let own = |one: &&Permission| one.role == permission.role && one.account == permission.account;
        is_path && used.iter().copied().any(|one| same(&one)) && used.iter().copied().any(|one| own(&one))
    };
    let left = all.iter().filter(|permission| !used.contains(permission) && !by_another(permission));
    left.cloned().collect()
}

/// The requests of the operator that need other permissions than `cgw-ctl`: those that docs/cgw-controller.md names for `trace`.
fn is_of_trace(account: &str, asked: &Asked) -> bool {
    let Asked::Resource(KubeRequest { verb, resource, subresource: None, group, .. }) = asked else {
        return false;
    };
    let known = [("get", "pods"), ("list", "services"), ("list", "nodes")];
    account == OPERATOR && group.is_empty() && known.contains(&(verb.as_str(), resource.as_str()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_permission_is_used_and_none_is_missing() {
    let recording = story::recording().await;
    for (account, requests) in &recording.requests {
        for request in requests {
            let refused = [request.status, request.upstream_status].contains(&Some(403));
            assert!(!refused, "refused to {account}: {} {}", request.method, request.path);
        }
    }
    let all = permissions(&recording.manifests);
    let asked = asked(&recording.requests);
    for (account, one) in asked.iter().filter(|(account, one)| !is_of_trace(account, one)) {
        let is_granted =
            all.iter().any(|permission| permission.account == *account && permission.permitted.covers(one));
        assert!(is_granted, "granted by no ClusterRole to {account}: {one:?}");
    }
    let unused = unused(&recording.manifests, &recording.requests);
    assert!(unused.is_empty(), "granted but unused: {unused:#?}");
    println!("{} permissions, {} requests", all.len(), asked.len());
}
