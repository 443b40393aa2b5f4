//! deorbiter, with the real providers alive, and dying while it works.

use common::api::deorbit::{Deorbit, DeorbitStatus, Kind, Phase};
use e2e::openstack::{Part, Service};
use e2e::program::Program;
use e2e::providers::{DELETE, Provider, RETAIN};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Secret};
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

/// deorbiter, with what a Deorbit of this very cluster names.
pub async fn deorbiter(world: &World) -> Program {
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
    program.args(arguments).start().unwrap()
}

/// A Deorbit of this very cluster, which has the name of its project.
pub async fn deorbit(world: &World, name: &str, leftovers: &str, patience: &str) {
    deorbit_as(world, name, json!({ "leftovers": leftovers, "timeouts": { "perObject": patience } })).await;
}

/// The same, with this in its spec.
pub async fn deorbit_as(world: &World, name: &str, mut spec: Value) {
    spec["kubeconfig"] = json!({ "secretRef": { "name": "target" } });
    spec["openstack"] = json!({ "identityRef": { "name": "cloud" } });
    spec["clusterName"] = world.name.as_str().into();
    let run = json!({
        "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": name },
        "spec": spec,
    });
    let deorbits: Api<Deorbit> = Api::namespaced(world.control_plane.client(), "default");
    let run: Deorbit = serde_json::from_value(run).unwrap();
    until("a Deorbit", async || deorbits.create(&PostParams::default(), &run).await.is_ok()).await;
}

async fn status(world: &World, name: &str) -> DeorbitStatus {
    let deorbits: Api<Deorbit> = Api::namespaced(world.control_plane.client(), "default");
    deorbits.get(name).await.unwrap().status.unwrap_or_default()
}

/// The end of a Deorbit.
pub async fn end(world: &World, name: &str) -> DeorbitStatus {
    until("the end of the Deorbit", async || status(world, name).await.phase.is_final()).await;
    status(world, name).await
}

/// What the project has of a kind.
pub async fn left(world: &World, service: Service, path: &str, many: &str) -> Vec<Value> {
    let list = world.project.api().get(service, path).await.unwrap();
    list[many].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn with_living_drivers_nothing_is_left() {
    let _guard = workers().await;
    let world = World::start("alive", &Provider::USUAL).await;
    world.initialised("node-1").await;
    world.providers.claim("default", "data", DELETE).await.unwrap();
    world.providers.claim("default", "more", DELETE).await.unwrap();
    world.providers.claim("default", "keep", RETAIN).await.unwrap();
    world.providers.balancer("default", "web").await.unwrap();
    let keep = world.providers.bound("default", "keep").await.unwrap();
    let data = world.providers.bound("default", "data").await.unwrap();
    world.providers.bound("default", "more").await.unwrap();
    world.providers.snapshot("default", "snap", "data", DELETE).await.unwrap();
    world.providers.address("default", "web").await.unwrap();

    let _deorbiter = deorbiter(&world).await;
    deorbit(&world, "run", "Delete", "20s").await;
    let status = end(&world, "run").await;
    assert_eq!(status.debris_count, 0, "{status:#?}");
    assert!(
        status.inventory.records.iter().any(|record| {
            record.kind == Kind::Volume && record.id.as_deref() == Some(data.handle.as_str())
        })
    );
    // The one to retain stays, with its claim, and the record says why.
    let volumes = left(&world, Service::BlockStorage, "/volumes", "volumes").await;
    assert_eq!(volumes.iter().map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(), [&keep.handle]);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(world.control_plane.client(), "default");
    assert_eq!(claims.get("keep").await.unwrap().metadata.deletion_timestamp, None);
    let record = status.inventory.records.iter().find(|one| one.id.as_ref() == Some(&keep.handle)).unwrap();
    assert_eq!(record.kept.as_deref(), Some("its reclaim policy is Retain"));
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
    let volumes = async || left(&world, Service::BlockStorage, "/volumes/detail", "volumes").await;
    // The driver calls a volume done that Cinder has only begun to make, and such a one cannot be deleted.
    until("three available volumes", async || {
        volumes().await.iter().filter(|volume| volume["status"] == "available").count() == 3
    })
    .await;
    // Cinder takes what it is told and does nothing; then those die who told it.
    let hung = world.cloud.pause(Part::CinderVolume).unwrap();
    let _deorbiter = deorbiter(&world).await;
    deorbit(&world, "run", "Delete", "20s").await;
    until("a volume on its way", async || {
        volumes().await.iter().any(|volume| volume["status"] == "deleting")
    })
    .await;
    world.providers.kill_all().unwrap();
    assert!(!status(&world, "run").await.phase.is_final(), "three volumes are there");
    drop(hung);
    let status = end(&world, "run").await;
    for volume in volumes().await {
        let named = status.debris.iter().any(|debris| debris.id.as_deref() == volume["id"].as_str());
        assert!(named, "{volume} is left and not in {status:#?}");
    }

    // Drivers that are dead from the start: what is asked for goes nowhere in the cluster. By its ID it goes all the same, and
    // where nothing may be deleted in the cloud, each is named with its state.
    let volume = world.project.volume("pvc-by-hand", json!({})).await.unwrap();
    by_hand(&world, "by-hand", &volume).await;
    deorbit(&world, "dead", "Delete", "5s").await;
    let dead = end(&world, "dead").await;
    assert_eq!((dead.phase, dead.debris_count), (Phase::Complete, 0), "{dead:#?}");
    world.project.gone(Service::BlockStorage, &format!("/volumes/{volume}")).await.unwrap();

    let volume = world.project.volume("pvc-stuck", json!({})).await.unwrap();
    by_hand(&world, "stuck", &volume).await;
    world.cloud.reset_volume(&volume, "error_deleting").await.unwrap();
    deorbit(&world, "stuck", "Report", "30m").await;
    let stuck = end(&world, "stuck").await;
    let named: Vec<_> = stuck.debris.iter().map(|one| (one.id.as_deref(), one.reason.as_str())).collect();
    assert_eq!(named.len(), 1, "{stuck:#?}");
    assert_eq!(named[0].0, Some(volume.as_str()));
    assert!(named[0].1.contains("the volume is error_deleting in OpenStack"), "{named:?}");
}

/// A claim that is bound to this volume, without a provisioner.
async fn by_hand(world: &World, name: &str, volume: &str) {
    let client = world.control_plane.client();
    let (size, modes) = (json!({ "storage": "1Gi" }), json!(["ReadWriteOnce"]));
    let claim = json!({ "namespace": "default", "name": name });
    let held = json!({ "metadata": { "name": name }, "spec": {
        "capacity": size, "accessModes": modes, "persistentVolumeReclaimPolicy": "Delete", "storageClassName": "by-hand",
        "csi": { "driver": "cinder.csi.openstack.org", "volumeHandle": volume }, "claimRef": claim } });
    let asked = json!({ "metadata": { "name": name }, "spec": {
        "accessModes": modes, "storageClassName": "by-hand", "volumeName": name, "resources": { "requests": size } } });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    volumes.create(&PostParams::default(), &serde_json::from_value(held).unwrap()).await.unwrap();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client, "default");
    // The end of the last freeze takes the API server a moment.
    let asked: PersistentVolumeClaim = serde_json::from_value(asked).unwrap();
    until("a claim", async || claims.create(&PostParams::default(), &asked).await.is_ok()).await;
    let phase = async || claims.get(name).await.unwrap().status.unwrap_or_default().phase;
    until("a bound claim", async || phase().await.as_deref() == Some("Bound")).await;
}
