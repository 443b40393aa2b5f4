//! apinet objects whose source object does not exist.

use apinetlet::api::{apinet, source};
use e2e::wait::until;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::environment::{TestEnv, create_with, labels, of_each_flavor, patch, wait, wait_gone};

of_each_flavor!(
    an_object_with_our_mark_and_without_a_source_object_is_deleted,
    a_source_object_that_ends_without_its_finalizer_takes_its_counterpart_along,
    a_namespace_of_another_source_cluster_is_refused,
    a_deleted_source_object_does_not_wait_for_an_object_that_does_not_name_it,
);

fn origin(env: &TestEnv, mark: Option<&str>) -> Value {
    let domain = env.flavor.names().origin;
    let mut labels = json!({
        format!("{domain}/network-uid"): "some-uid", format!("{domain}/network-namespace"): env.source,
        format!("{domain}/network-name"): "should-not-exist",
    });
    if let Some(mark) = mark {
        labels[env.flavor.source_cluster_label()] = mark.into();
    }
    json!({ "labels": labels })
}

async fn dangling(env: &TestEnv, name: &str, mark: Option<&str>) {
    create_with(&env.apinet::<apinet::Network>(), name, origin(env, mark), json!({})).await;
}

async fn an_object_with_our_mark_and_without_a_source_object_is_deleted(env: TestEnv) {
    let networks = env.apinet::<apinet::Network>();
    dangling(&env, "before-the-start", Some("ours")).await;
    dangling(&env, "unmarked", None).await;
    create_with(&networks, "independent", json!({ "labels": { "app": "other" } }), json!({})).await;
    let apinetlet = env.start(&["--source-cluster-id=ours"]).await;
    wait_gone(&networks, "before-the-start").await;
    dangling(&env, "while-it-runs", Some("ours")).await;
    wait_gone(&networks, "while-it-runs").await;
    assert!(networks.get_opt("unmarked").await.unwrap().is_some(), "the Go program's");
    drop(apinetlet);
    let _apinetlet = env.start(&["--source-cluster-id=ours", "--adopt-unmarked"]).await;
    wait_gone(&networks, "unmarked").await;
    assert!(networks.get_opt("independent").await.unwrap().is_some(), "nothing of ours");
}

async fn a_source_object_that_ends_without_its_finalizer_takes_its_counterpart_along(env: TestEnv) {
    let apinetlet = env.start(&[]).await;
    let uid = env.network("net").await.uid().unwrap();
    let sources = env.source::<source::Network>();
    wait(&sources, "net", "Available", |one| one.status.state == "Available").await;
    let mark = labels(&env.apinet::<apinet::Network>().get(&uid).await.unwrap());
    assert!(!mark[&env.flavor.source_cluster_label()].is_empty());
    drop(apinetlet);
    super::environment::delete(&sources, "net").await;
    // More than once: while ironcore removes its own finalizer, it writes back the others that it has read.
    until("the end of net", async || {
        let without = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        let patched = sources.patch("net", &PatchParams::default(), &without).await;
        Ok(matches!(patched, Err(kube::Error::Api(status)) if status.code == 404).then_some(()))
    })
    .await
    .unwrap();
    // A new one of the same name.
    let new = env.network("net").await.uid().unwrap();
    let _apinetlet = env.start(&[]).await;
    wait_gone(&env.apinet::<apinet::Network>(), &uid).await;
    wait(&sources, "net", "Available", |one| one.status.state == "Available").await;
    assert!(env.apinet::<apinet::Network>().get_opt(&new).await.unwrap().is_some());
}

async fn a_deleted_source_object_does_not_wait_for_an_object_that_does_not_name_it(env: TestEnv) {
    let apinetlet = env.start(&[]).await;
    let uid = env.network("net").await.uid().unwrap();
    let (sources, networks) = (env.source::<source::Network>(), env.apinet::<apinet::Network>());
    wait(&sources, "net", "Available", |one| one.status.state == "Available").await;
    drop(apinetlet);
    patch(&networks, &uid, json!({ "metadata": { "labels": null } })).await;
    super::environment::delete(&sources, "net").await;
    let _apinetlet = env.start(&[]).await;
    wait_gone(&sources, "net").await;
    assert!(networks.get_opt(&uid).await.unwrap().is_some(), "it is not this program's any more");
}

async fn a_namespace_of_another_source_cluster_is_refused(env: TestEnv) {
    dangling(&env, "of-another", Some("another")).await;
    let program = env.launch(&["--source-cluster-id=ours"]).start().unwrap();
    assert_eq!(program.wait_exit().await.unwrap().code(), Some(1));
    let lines =
        program.output().matching(|line| line.contains("Network of-another") && line.contains("another"));
    assert!(!lines.is_empty(), "{:?}", program.output().lines());
    let patch = PatchParams::default();
    let networks = env.apinet::<apinet::Network>();
    // A harmless write shows that it is still there.
    networks.patch("of-another", &patch, &Patch::Merge(json!({}))).await.unwrap();
}
