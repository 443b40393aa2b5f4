//! An object whose deletion is refused, or that is gone already; a Deorbit whose cluster or records are gone; a wrong cluster.

use std::time::Duration;

use common::api::deorbit::Phase;
use e2e::deorbiter::{Driver, TestEnv, kubeconfig};
use e2e::fault_proxy::{Fault, FaultProxy, Matcher, Reply, Upstream};
use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

/// The cluster behind a proxy.
async fn behind_a_proxy(env: &TestEnv) -> FaultProxy {
    let (certificate, key) = env.control_plane.admin_identity_pem().unwrap();
    let upstream = Upstream::kubernetes(env.control_plane.url())
        .ca_pem(env.control_plane.ca_pem().unwrap())
        .client_certificate(certificate, key);
    let proxy = FaultProxy::start(upstream).await.unwrap();
    env.secret("target", "value", &kubeconfig(&proxy.url(), None, &[]).unwrap()).await.unwrap();
    proxy
}

fn id(number: usize) -> String {
    format!("0d5c9f3e-0000-4000-8000-00000000ab{number:02}")
}

async fn events(env: &TestEnv) -> Vec<(String, String)> {
    let api = Api::<Event>::namespaced(env.client.clone(), &env.namespace);
    let all = api.list(&ListParams::default()).await.unwrap().items;
    all.into_iter().map(|event| (event.type_.unwrap_or_default(), event.note.unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn d10_the_refused_object_is_reported_and_the_others_are_deleted() {
    let env = TestEnv::start().await.unwrap();
    for (number, name) in ["one", "two", "three"].into_iter().enumerate() {
        env.claim(name, &id(number), "Delete").await.unwrap();
    }
    let proxy = behind_a_proxy(&env).await;
    let two = Matcher::any().method(Method::DELETE).path("/api/v1/namespaces/*/persistentvolumeclaims/two");
    proxy.rule(two, Fault::Reject(Reply::status(StatusCode::FORBIDDEN)));
    let _drivers = Driver::pretended(env.client.clone());
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"timeouts": {"total": "1h"}})).await.unwrap();
    let claims = Api::<PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    env.wait("the other two claims to be gone", async || {
        let left = claims.list(&ListParams::default()).await?.items;
        Ok(left.iter().all(|claim| claim.metadata.name.as_deref() == Some("two")))
    })
    .await
    .unwrap();
    // Their PersistentVolumes follow them.
    env.wait("only one to remain", async || Ok(env.status("run").await?.remaining == 1)).await.unwrap();
    env.set_timeouts("run", json!({"total": "1s"})).await.unwrap();
    let status = env.wait_for_debris("run").await.unwrap();
    let left: Vec<_> = status.debris.iter().map(|one| (one.name.as_str(), one.id.clone())).collect();
    assert_eq!(left, [("two", Some(id(1)))], "{status:#?}");
    let count = |events: &[(String, String)], kind: &str, name: &str| {
        let what = format!("delete PersistentVolumeClaim {}/{name} ", env.namespace);
        events.iter().filter(|(type_, note)| type_ == kind && note.contains(&what)).count()
    };
    // Events are written in the background.
    env.wait("the Events of all three", async || {
        let events = events(&env).await;
        let all = [("Normal", "one"), ("Warning", "two"), ("Normal", "three")];
        Ok(all.iter().all(|(kind, name)| count(&events, kind, name) >= 1))
    })
    .await
    .unwrap();
    let events = events(&env).await;
    let of = |kind: &str, name: &str| count(&events, kind, name);
    assert_eq!([of("Normal", "one"), of("Normal", "two"), of("Normal", "three")], [1, 0, 1], "{events:#?}");
    assert_eq!([of("Warning", "one"), of("Warning", "three")], [0, 0], "{events:#?}");
    drop(deorbiter);
}

/// Each delete takes longer than the interval at which the run checks its Deorbit: claims that are not deleted yet stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_is_protected_while_it_deletes_stops() {
    const CLAIMS: usize = 8;
    let env = TestEnv::start().await.unwrap();
    for number in 0..CLAIMS {
        env.claim(&format!("data-{number}"), &id(10 + number), "Delete").await.unwrap();
    }
    let proxy = behind_a_proxy(&env).await;
    let deletes = Matcher::any().method(Method::DELETE).path("/api/v1/namespaces/*/persistentvolumeclaims/*");
    let slow = proxy.rule(deletes, Fault::DelayResponse(Duration::from_secs(6)));
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    env.wait("the first delete", async || Ok(proxy.applied(slow) > 0)).await.unwrap();
    let protect = json!({"metadata": {"annotations": {"deorbiter.perimeter.dev/protect": "true"}}});
    env.deorbits().patch("run", &PatchParams::default(), &Patch::Merge(protect)).await.unwrap();
    env.wait("protection", async || {
        Ok(env.status("run").await?.conditions.iter().any(|one| one.kind == "Protected"))
    })
    .await
    .unwrap();
    let claims = Api::<PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    let all = claims.list(&ListParams::default()).await.unwrap().items;
    let kept = all.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()).count();
    assert!(kept >= CLAIMS / 2, "{kept} of {CLAIMS} are kept");
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn d14_deleting_an_object_that_is_gone_is_no_failure() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", &id(4), "Delete").await.unwrap();
    let proxy = behind_a_proxy(&env).await;
    // As if another client had deleted it, at each of the first two tries.
    let gone = Matcher::any()
        .method(Method::DELETE)
        .path("/api/v1/namespaces/*/persistentvolumeclaims/data")
        .times(2);
    let rule = proxy.rule(gone, Fault::Reject(Reply::status(StatusCode::NOT_FOUND)));
    let _drivers = Driver::pretended(env.client.clone());
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    let status = env.wait_for_complete("run").await.unwrap();
    assert_eq!((proxy.applied(rule), status.debris_count), (2, 0));
    let failed = deorbiter.metrics().await.unwrap().sum("deorbiter_operation_failures_total", &[]);
    assert_eq!(failed.unwrap_or_default(), 0.0);
    assert!(events(&env).await.iter().all(|(type_, note)| type_ == "Normal" || !note.contains("delete")));
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn a_finished_deorbit_can_be_deleted_when_its_cluster_is_gone() {
    let env = TestEnv::start().await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    // As Cluster API does when the Cluster is deleted.
    let secrets = Api::<Secret>::namespaced(env.client.clone(), &env.namespace);
    secrets.delete("target", &DeleteParams::default()).await.unwrap();
    env.deorbits().delete("run", &DeleteParams::default()).await.unwrap();
    env.wait("its end", async || Ok(env.deorbits().get_opt("run").await?.is_none())).await.unwrap();
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn a_deorbit_with_a_block_in_an_unreachable_cluster_is_deleted_after_the_outage_timeout() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", &id(5), "Delete").await.unwrap();
    let proxy = behind_a_proxy(&env).await;
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"timeouts": {"apiUnavailable": "1h"}})).await.unwrap();
    env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    proxy.refuse_all(true);
    env.deorbits().delete("run", &DeleteParams::default()).await.unwrap();
    env.set_timeouts("run", json!({"apiUnavailable": "5s"})).await.unwrap();
    env.wait("its end", async || Ok(env.deorbits().get_opt("run").await?.is_none())).await.unwrap();
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_under_the_same_name_is_not_touched() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", &id(6), "Delete").await.unwrap();
    let proxy = behind_a_proxy(&env).await;
    let identity = Matcher::any().method(Method::GET).path("/api/v1/namespaces/kube-system");
    let other = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system", "uid": "another", "resourceVersion": "1" } });
    let deorbiter = env.deorbiter().unwrap();
    // Nothing is deleted before the block, and this prevents the block.
    let block = Matcher::any().method(Method::POST).path("/apis/admissionregistration.k8s.io/v1/*");
    let blocked = proxy.rule(block, Fault::Reject(Reply::unavailable()));
    env.deorbit("run", json!({"timeouts": {"apiUnavailable": "1h"}})).await.unwrap();
    env.wait_for_phase("run", Phase::Inventory).await.unwrap();
    let other = Reply::status(StatusCode::OK).body(other.to_string());
    proxy.rule(identity, Fault::Reject(other));
    proxy.remove(blocked);
    env.wait_for_refusal("run", "TargetReachable", "another cluster responds").await.unwrap();
    env.wait_for_reconciliations(&deorbiter, 2).await.unwrap();
    assert_eq!(env.status("run").await.unwrap().phase, Phase::Inventory, "a refusal never releases");
    let claims = Api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>::namespaced(
        env.client.clone(),
        &env.namespace,
    );
    assert_eq!(claims.get("data").await.unwrap().metadata.deletion_timestamp, None);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_records_are_reported_and_nothing_is_done_without_them() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", &id(7), "Delete").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    let maps = Api::<ConfigMap>::namespaced(env.client.clone(), &env.namespace);
    let map = env.status("run").await.unwrap().records;
    maps.delete(&map, &DeleteParams::default()).await.unwrap();
    env.wait("a Warning", async || {
        let events = events(&env).await;
        Ok(events.iter().any(|(type_, note)| {
            type_ == "Warning" && note.contains(&format!("{map} cannot be read; restore it"))
        }))
    })
    .await
    .unwrap();
    // S9: the limits apply to a run without records.
    env.set_timeouts("run", json!({"total": "1s"})).await.unwrap();
    let status = env.wait_for_debris("run").await.unwrap();
    assert_eq!(status.debris[0].kind, "Records", "{status:#?}");
    env.deorbits().delete("run", &DeleteParams::default()).await.unwrap();
    env.wait("its end", async || Ok(env.deorbits().get_opt("run").await?.is_none())).await.unwrap();
    assert!(!env.is_blocked().await.unwrap());
    drop(deorbiter);
}

/// Like a kubeconfig of the wrong context.
#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_of_the_management_cluster_is_refused_and_nothing_is_deleted() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", &id(8), "Delete").await.unwrap();
    env.service("web", &id(9)).await.unwrap();
    let launch = env.launch().unwrap().env("KUBECONFIG", env.control_plane.kubeconfig());
    let deorbiter = launch.start().unwrap();
    env.deorbit("run", json!({"timeouts": {"apiUnavailable": "1s", "total": "1s"}})).await.unwrap();
    let why = "the cluster that deorbiter runs in";
    env.wait_for_refusal("run", "TargetReachable", why).await.unwrap();
    env.wait_for_reconciliations(&deorbiter, 2).await.unwrap();
    let deorbit = env.deorbits().get("run").await.unwrap();
    assert_eq!(deorbit.metadata.finalizers, None, "it is not started");
    assert_eq!(deorbit.status.unwrap().phase, Phase::Pending);
    let claims = Api::<PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    assert_eq!(claims.get("data").await.unwrap().metadata.deletion_timestamp, None);
    let services = Api::<k8s_openapi::api::core::v1::Service>::namespaced(env.client.clone(), &env.namespace);
    assert_eq!(services.get("web").await.unwrap().metadata.deletion_timestamp, None);
    let warned = |(type_, note): &(String, String)| type_ == "Warning" && note.contains(why);
    env.wait("the Event", async || Ok(events(&env).await.iter().any(warned))).await.unwrap();
    // With inCluster it is allowed.
    env.deorbits().delete("run", &DeleteParams::default()).await.unwrap();
    let _drivers = Driver::pretended(env.client.clone());
    let own = json!({"kubeconfig": null, "inCluster": true, "timeouts": {"loadBalancerGrace": "1s"}});
    env.deorbit("own", own).await.unwrap();
    env.wait_for_complete("own").await.unwrap();
    assert!(claims.get_opt("data").await.unwrap().is_none());
    drop(deorbiter);
}

/// The identity of the management cluster cannot be read: it could be the target.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn a_run_does_not_start_while_the_identity_of_the_management_cluster_is_forbidden() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", &id(20), "Delete").await.unwrap();
    env.management.clear();
    let identity = Matcher::any().method(Method::GET).path("/api/v1/namespaces/kube-system");
    let rule = env.management.rule(identity, Fault::Reject(Reply::status(StatusCode::FORBIDDEN)));
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    env.wait_for_refusal("run", "TargetReachable", "the management cluster is unknown").await.unwrap();
    assert!(env.management.applied(rule) > 0);
    assert_eq!(env.deorbits().get("run").await.unwrap().metadata.finalizers, None);
    drop(deorbiter);
}
