//! Least rights: through everything that the triggers and a run do, the API server refuses nothing but what a test withholds on purpose,
//! and each right of `manifests/deorbiter/rbac.yaml` is used.

use std::collections::BTreeSet;

use e2e::rights::{Grant, Rights};
use kube::api::{Api, DeleteParams};
use nix::sys::signal::Signal;
use serde_json::json;

use super::binding::binding;
use super::env::{TestEnv, wait};

/// Rights that are not used here, resource and verb: lists are read in pages where the API server does not stream them; the hook lists; a repeated Event is patched.
const ELSEWHERE: [(&str, &str); 3] = [("deorbits", "list"), ("deorbitbindings", "list"), ("events", "patch")];

#[tokio::test]
async fn the_granted_rights_are_sufficient_and_each_is_used() {
    let env = TestEnv::start().await;
    let mut spec = binding();
    spec["targetRef"]["namespaceSelector"] = json!({});
    env.bind("klusters", spec).await;
    env.kubeconfig_secret("prod-kubeconfig").await;
    for name in ["prod", "protected"] {
        env.kluster(name, "Running").await;
    }
    let deorbiter = env.deorbiter().start().unwrap();
    for name in ["prod", "protected"] {
        wait("the finalizer", || async {
            env.finalizers(name).await.unwrap().contains(&"deorbiter".to_owned())
        })
        .await;
        env.delete_kluster(name).await;
        env.patch_kluster(name, json!({ "status": { "phase": "Terminating" } })).await;
    }
    wait("its release", || async { env.finalizers("prod").await.unwrap() == ["groundctl"] }).await;
    // The other one has no kubeconfig; its run is aborted by protection.
    wait("a run", || async { env.deorbits().await.len() == 2 }).await;
    let protect = |value: serde_json::Value| json!({ "metadata": { "annotations": { "deorbiter.perimeter.dev/protect": value } } });
    env.patch_kluster("protected", protect(json!("true"))).await;
    wait("it is aborted", || async { env.deorbits().await.len() == 1 }).await;
    let bindings = Api::<common::api::deorbit_binding::DeorbitBinding>::all(env.client.clone());
    env.patch_kluster("protected", json!({ "metadata": { "finalizers": ["groundctl"] } })).await;
    bindings.delete("klusters", &DeleteParams::default()).await.unwrap();
    wait("the binding is gone", || async { env.binding("klusters").await.is_none() }).await;
    deorbiter.signal(Signal::SIGTERM).unwrap();
    assert_eq!(deorbiter.wait_exit().await.unwrap().code(), Some(0));

    let grants = Rights::of("deorbiter").unwrap().grants().unwrap();
    let mut used: BTreeSet<&Grant> = BTreeSet::new();
    let mut wrong = Vec::new();
    for request in env.api_proxy.requests() {
        let Some(mut asked) = request.kube() else { continue };
        asked.namespace = asked.namespace.map(|it| if it == env.own { "deorbiter".to_owned() } else { it });
        used.extend(grants.iter().filter(|grant| grant.covers(&asked)));
        if request.upstream_status == Some(403) {
            wrong.push(format!("{} {}", request.method, request.path));
        }
    }
    assert!(wrong.is_empty(), "refused: {wrong:#?}");
    let elsewhere = |grant: &Grant| ELSEWHERE.contains(&(grant.resource.as_str(), grant.verb.as_str()));
    let unused: Vec<&Grant> =
        grants.iter().filter(|grant| !used.contains(grant) && !elsewhere(grant)).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:#?}");
    println!("{} of {} rights are used", used.len(), grants.len());
}
