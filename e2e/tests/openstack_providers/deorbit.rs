//! deorbiter, with the real providers alive, and dying while it works.

use common::api::deorbit::{Deorbit, DeorbitStatus, Kind};
use e2e::openstack::{Part, Service};
use e2e::program::Program;
use e2e::providers::{DELETE, Provider};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt};
use serde_json::{Value, json};

use super::{World, until, workers, workers_alone};

/// Stores one key in a Secret.
async fn secret(world: &World, name: &str, key: &str, text: &str) {
    let secret = json!({ "metadata": { "name": name }, "stringData": { key: text } });
    let secrets: Api<Secret> = Api::namespaced(world.control_plane.client(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

/// deorbiter with a Deorbit `run` of this very cluster, whose leftovers it deletes by their IDs.
async fn deorbit(world: &World, cluster: &str) -> Program {
    let client = world.control_plane.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Deorbit::crd()).await.unwrap();
    let ca = ByteString(world.control_plane.ca_pem().unwrap().into_bytes());
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "e2e" } }],
        "clusters": [{ "name": "e2e", "cluster": {
            "server": world.control_plane.url(), "certificate-authority-data": ca } }],
        "users": [{ "name": "e2e", "user": { "token": world.control_plane.user("admin").unwrap() } }],
    });
    secret(world, "target", "value", &kubeconfig.to_string()).await;
    secret(world, "cloud", "clouds.yaml", &world.project.clouds_yaml().unwrap()).await;
    let program = Program::binary("deorbiter").unwrap().env("KUBECONFIG", world.control_plane.kubeconfig());
    let arguments = ["--admin-address", "127.0.0.1:0", "--log-format", "json", "--leader-elect=false"];
    let program = program.args(arguments).start().unwrap();
    let run = json!({
        "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": "run" },
        "spec": {
            "kubeconfig": { "secretRef": { "name": "target" } },
            "openstack": { "identityRef": { "name": "cloud" } },
            "clusterName": cluster, "leftovers": "Delete", "timeouts": { "perObject": "20s" },
        },
    });
    let deorbits: Api<Deorbit> = Api::namespaced(client, "default");
    let run: Deorbit = serde_json::from_value(run).unwrap();
    until("a Deorbit", async || deorbits.create(&PostParams::default(), &run).await.is_ok()).await;
    program
}

async fn status(world: &World) -> DeorbitStatus {
    let deorbits: Api<Deorbit> = Api::namespaced(world.control_plane.client(), "default");
    deorbits.get("run").await.unwrap().status.unwrap_or_default()
}

/// The end of the Deorbit.
async fn end(world: &World) -> DeorbitStatus {
    until("the end of the Deorbit", async || status(world).await.phase.is_final()).await;
    status(world).await
}

/// What the project has of a kind.
async fn left(world: &World, service: Service, path: &str, many: &str) -> Vec<Value> {
    let list = world.project.api().get(service, path).await.unwrap();
    list[many].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_living_drivers_nothing_is_left() {
    let _guard = workers().await;
    let world = World::start("alive", &Provider::ALL).await;
    world.node("node-1").await;
    until("an initialised Node", async || world.project.routes().await.unwrap().len() == 1).await;
    world.providers.claim("default", "data", DELETE).await.unwrap();
    world.providers.claim("default", "more", DELETE).await.unwrap();
    world.providers.balancer("default", "web").await.unwrap();
    let data = world.providers.bound("default", "data").await.unwrap();
    world.providers.bound("default", "more").await.unwrap();
    world.providers.snapshot("default", "snap", "data", DELETE).await.unwrap();
    world.providers.address("default", "web").await.unwrap();

    let _deorbiter = deorbit(&world, "alive").await;
    let status = end(&world).await;
    assert_eq!(status.debris_count, 0, "{status:#?}");
    assert!(
        status.inventory.records.iter().any(|record| {
            record.kind == Kind::Volume && record.id.as_deref() == Some(data.handle.as_str())
        })
    );
    assert_eq!(left(&world, Service::BlockStorage, "/volumes", "volumes").await, [] as [Value; 0]);
    assert_eq!(left(&world, Service::BlockStorage, "/snapshots", "snapshots").await, [] as [Value; 0]);
    assert_eq!(left(&world, Service::Network, "/floatingips", "floatingips").await, [] as [Value; 0]);
    let balancers = left(&world, Service::LoadBalancer, "/loadbalancers", "loadbalancers").await;
    assert!(balancers.iter().all(|each| each["provisioning_status"] == "DELETED"), "{balancers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_drivers_leave_that_die_half_way_is_gone_or_named() {
    let _guard = workers_alone().await;
    let storage =
        [Provider::CinderCsi, Provider::Provisioner, Provider::Snapshotter, Provider::SnapshotController];
    let world = World::start("dying", &storage).await;
    for name in ["one", "two", "three"] {
        world.providers.claim("default", name, DELETE).await.unwrap();
    }
    for name in ["one", "two", "three"] {
        world.providers.bound("default", name).await.unwrap();
    }
    // Cinder takes what it is told and does nothing; then those die who told it.
    world.cloud.pause(Part::CinderVolume).unwrap();
    let _deorbiter = deorbit(&world, "dying").await;
    let volumes = async || left(&world, Service::BlockStorage, "/volumes/detail", "volumes").await;
    until("a volume on its way", async || {
        volumes().await.iter().any(|volume| volume["status"] == "deleting")
    })
    .await;
    world.providers.kill_all().unwrap();
    assert!(!status(&world).await.phase.is_final(), "three volumes are there");
    world.cloud.resume(Part::CinderVolume).unwrap();
    let status = end(&world).await;
    for volume in volumes().await {
        let named = status.debris.iter().any(|debris| debris.id.as_deref() == volume["id"].as_str());
        assert!(named, "{volume} is left and not in {status:#?}");
    }
}
