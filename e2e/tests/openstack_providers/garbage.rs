//! routegc with the cloud controller: the routes that it leaves when it stops, and those that it keeps while it runs.

use common::api::routegc::{RouteGC, RouteGCStatus};
use e2e::natgw::run;
use e2e::openstack::CLOUD;
use e2e::program::Program;
use e2e::providers::{POD_CIDR, Provider};
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, CustomResourceExt};
use serde_json::{Value, json};

use super::{TestEnv, until, workers};

fn policies(env: &TestEnv) -> Api<RouteGC> {
    Api::namespaced(env.control_plane.client(), "default")
}

/// The policy `prod` of the environment's router, which confirms in two reconciliations without a wait.
async fn policy(env: &TestEnv, mode: &str) {
    let client = env.control_plane.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &RouteGC::crd()).await.unwrap();
    let login = json!({
        "metadata": { "name": "cloud-config" },
        "stringData": { "clouds.yaml": env.project.clouds_yaml().unwrap() },
    });
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(login).unwrap()).await.unwrap();
    let policy: RouteGC = serde_json::from_value(json!({
        "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC", "metadata": { "name": "prod" },
        "spec": {
            "identityRef": { "name": "cloud-config", "cloudName": CLOUD }, "routerID": env.project.router,
            "podCIDRs": [POD_CIDR], "mode": mode, "safety": { "minAge": "0s", "allNextHopsArePorts": true },
        },
    }))
    .unwrap();
    until("a RouteGC", async || policies(env).create(&PostParams::default(), &policy).await.is_ok()).await;
}

async fn change(env: &TestEnv, spec: Value) {
    let patch = Patch::Merge(json!({ "spec": spec }));
    policies(env).patch("prod", &PatchParams::default(), &patch).await.unwrap();
}

async fn reconcile(env: &TestEnv, count: usize) -> RouteGCStatus {
    for _ in 0..count {
        let routegc = Program::binary("routegc").unwrap().env("KUBECONFIG", env.control_plane.kubeconfig());
        let (code, output) =
            run(&routegc.args(["--once", "--leader-elect=false", "--admin-address", "127.0.0.1:0"]))
                .await
                .unwrap();
        assert_eq!(code, 0, "{output}");
    }
    policies(env).get("prod").await.unwrap().status.unwrap()
}

/// The route of a Node, once the cloud controller has written it: destination and next hop.
async fn route(env: &TestEnv, name: &str, address: &str) -> (String, String) {
    let nodes: Api<Node> = Api::all(env.control_plane.client());
    let there = async || env.project.routes().await.unwrap().iter().any(|(_, via)| via == address);
    until("the Node's route", there).await;
    let range = nodes.get(name).await.unwrap().spec.unwrap().pod_cidr.unwrap();
    let route = (range, address.to_owned());
    assert!(env.project.routes().await.unwrap().contains(&route));
    route
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn exactly_the_routes_that_a_stopped_cloud_controller_left_are_removed() {
    let _guard = workers().await;
    let env = TestEnv::start("garbage", &[Provider::CloudController]).await;
    let (_, stays) = env.node("stays").await;
    let mut left = Vec::new();
    for name in ["goes", "goes-too"] {
        let (server, address) = env.node(name).await;
        left.push((name, server, route(&env, name, &address).await));
    }
    let kept = [route(&env, "stays", &stays).await, ("10.99.0.0/24".to_owned(), "10.7.1.1".to_owned())];
    env.providers.kill(Provider::CloudController).unwrap();
    env.project.add_routes(&[("10.99.0.0/24", "10.7.1.1")]).await.unwrap();
    let nodes: Api<Node> = Api::all(env.control_plane.client());
    for (name, server, _) in &left {
        nodes.delete(name, &Default::default()).await.unwrap();
        env.project.delete_server(server).await.unwrap();
    }

    policy(&env, "Audit").await;
    let status = reconcile(&env, 2).await;
    let found: Vec<_> =
        status.candidates.iter().map(|one| (one.destination.clone(), one.nexthop.clone())).collect();
    let mut orphans: Vec<_> = left.into_iter().map(|(_, _, route)| route).collect();
    orphans.sort();
    assert_eq!(found, orphans);
    let counts = status.counts.unwrap();
    assert_eq!((counts.valid, counts.orphan, counts.foreign), (1, 2, 1));
    assert_eq!(env.project.routes().await.unwrap().len(), 4, "Audit removes nothing");

    change(&env, json!({ "mode": "Enforce" })).await;
    reconcile(&env, 1).await;
    let mut kept = kept.to_vec();
    kept.sort();
    assert_eq!(env.project.routes().await.unwrap(), kept);
    // The restarted cloud controller finds its own routes unchanged.
    env.providers.run(Provider::CloudController).await.unwrap();
    let (_, address) = env.node("comes").await;
    route(&env, "comes", &address).await;
    let status = reconcile(&env, 1).await;
    assert_eq!((status.counts.unwrap().valid, status.candidates.len()), (2, 0));
}

/// A server is gone, its port and its Node are left: the cloud controller keeps the route.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn a_route_that_the_cloud_controller_adds_again_is_reported_and_not_removed_again() {
    let _guard = workers().await;
    let env = TestEnv::start("recreated", &[Provider::CloudController]).await;
    let (_, lives) = env.node("lives").await;
    route(&env, "lives", &lives).await;
    let (server, address) = env.node("haunts").await;
    let theirs = route(&env, "haunts", &address).await;
    env.project.delete_server(&server).await.unwrap();
    env.project.port(Some(&address), Some(&server)).await.unwrap();

    policy(&env, "Enforce").await;
    let status = reconcile(&env, 2).await;
    assert_eq!(status.last_removed.len(), 1, "{status:#?}");
    let there = async || env.project.routes().await.unwrap().contains(&theirs);
    until("the route to be back", &there).await;
    let status = reconcile(&env, 3).await;
    let recreated = &status.recreated[0];
    assert_eq!((recreated.destination.clone(), recreated.nexthop.clone()), theirs);
    assert_eq!((recreated.server.as_deref(), recreated.times), (Some(server.as_str()), 1));
    assert!(recreated.back_since >= recreated.removed_at);
    assert_eq!(status.last_removed[0].times, 1, "removed once, not again and again");
    let condition = status.conditions.iter().find(|one| one.kind == "Recreated").unwrap();
    assert!(condition.message.contains(&server), "{}", condition.message);
    assert!(there().await);

    // With the Nodes as a source routegc removes nothing: the Node exists.
    change(&env, json!({ "nodesFrom": { "inCluster": true } })).await;
    let status = reconcile(&env, 1).await;
    assert_eq!((status.counts.unwrap().valid, status.recreated.len()), (2, 0));
}
