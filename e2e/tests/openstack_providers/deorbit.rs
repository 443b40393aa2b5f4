//! deorbiter with the real providers, while they run and when they stop during a run.

use common::api::deorbit::{Deorbit, DeorbitStatus, Kind, Phase};
use deorbiter::record::Recorded;
use e2e::openstack::{Part, Service};
use e2e::program::Program;
use e2e::providers::{DELETE, Provider, RETAIN};
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt};
use serde_json::{Value, json};

use super::{TestEnv, until, workers, workers_alone};

/// Stores one key in a Secret.
async fn secret(env: &TestEnv, name: &str, key: &str, text: &str) {
    let secret = json!({ "metadata": { "name": name }, "stringData": { key: text } });
    let secrets: Api<Secret> = Api::namespaced(env.control_plane.client(), "default");
    secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
}

/// deorbiter, with the Secrets for a Deorbit of this cluster.
pub async fn deorbiter(env: &TestEnv) -> Program {
    let client = env.control_plane.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &Deorbit::crd()).await.unwrap();
    secret(env, "cloud", "clouds.yaml", &env.project.clouds_yaml().unwrap()).await;
    let program = Program::binary("deorbiter").unwrap().env("KUBECONFIG", env.control_plane.kubeconfig());
    let arguments = ["--admin-address", "127.0.0.1:0", "--log-format", "json", "--leader-elect=false"];
    program.args(arguments).start().unwrap()
}

/// A Deorbit of this cluster, which has the name of its project, with limits for one object and for the run.
pub async fn deorbit(env: &TestEnv, name: &str, policy: &str, (object, total): (&str, &str)) {
    let timeouts = json!({ "perObject": object, "total": total });
    deorbit_as(env, name, json!({ "orphanPolicy": policy, "timeouts": timeouts })).await;
}

/// The same, with this in its spec.
pub async fn deorbit_as(env: &TestEnv, name: &str, mut spec: Value) {
    spec["inCluster"] = true.into();
    // The cluster is used again after the run.
    spec["clusterSurvives"] = true.into();
    spec["openstack"] = json!({ "identityRef": { "name": "cloud" } });
    spec["clusterName"] = env.name.as_str().into();
    let run = json!({
        "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit", "metadata": { "name": name },
        "spec": spec,
    });
    let deorbits: Api<Deorbit> = Api::namespaced(env.control_plane.client(), "default");
    let run: Deorbit = serde_json::from_value(run).unwrap();
    until("a Deorbit", async || deorbits.create(&PostParams::default(), &run).await.is_ok()).await;
}

async fn status(env: &TestEnv, name: &str) -> DeorbitStatus {
    let deorbits: Api<Deorbit> = Api::namespaced(env.control_plane.client(), "default");
    deorbits.get(name).await.unwrap().status.unwrap_or_default()
}

/// The end of a Deorbit.
pub async fn end(env: &TestEnv, name: &str) -> DeorbitStatus {
    until("the end of the Deorbit", async || status(env, name).await.phase.is_final()).await;
    status(env, name).await
}

/// The records of a Deorbit.
pub async fn records(env: &TestEnv, status: &DeorbitStatus) -> Vec<Recorded> {
    let maps: Api<ConfigMap> = Api::namespaced(env.control_plane.client(), "default");
    let data = maps.get(&status.records).await.unwrap().data.unwrap();
    serde_json::from_str(&data["records.json"]).unwrap()
}

/// The project's resources of a kind.
pub async fn left(env: &TestEnv, service: Service, path: &str, many: &str) -> Vec<Value> {
    let list = env.project.api().get(service, path).await.unwrap();
    list[many].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn with_running_drivers_nothing_is_left() {
    let _guard = workers().await;
    let env = TestEnv::start("alive", &Provider::USUAL).await;
    env.initialised("node-1").await;
    env.providers.claim("default", "data", DELETE).await.unwrap();
    env.providers.claim("default", "more", DELETE).await.unwrap();
    env.providers.claim("default", "keep", RETAIN).await.unwrap();
    env.providers.balancer("default", "web").await.unwrap();
    let keep = env.providers.bound("default", "keep").await.unwrap();
    let data = env.providers.bound("default", "data").await.unwrap();
    env.providers.bound("default", "more").await.unwrap();
    env.providers.snapshot("default", "snap", "data", DELETE).await.unwrap();
    env.providers.address("default", "web").await.unwrap();

    let _deorbiter = deorbiter(&env).await;
    deorbit(&env, "run", "Delete", ("10m", "30m")).await;
    let status = end(&env, "run").await;
    assert_eq!(status.debris_count, 0, "{status:#?}");
    assert!(
        records(&env, &status).await.iter().any(|record| {
            record.kind == Kind::Volume && record.id.as_deref() == Some(data.handle.as_str())
        })
    );
    // The retained one stays, with its claim, and the record has the reason.
    let volumes = left(&env, Service::BlockStorage, "/volumes", "volumes").await;
    assert_eq!(volumes.iter().map(|one| one["id"].as_str().unwrap()).collect::<Vec<_>>(), [&keep.handle]);
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(env.control_plane.client(), "default");
    assert_eq!(claims.get("keep").await.unwrap().metadata.deletion_timestamp, None);
    let records = records(&env, &status).await;
    let record = records.iter().find(|one| one.id.as_ref() == Some(&keep.handle)).unwrap();
    assert_eq!(record.kept.as_deref(), Some("its reclaim policy is Retain"));
    assert_eq!(left(&env, Service::BlockStorage, "/snapshots", "snapshots").await, [] as [Value; 0]);
    assert_eq!(left(&env, Service::Network, "/floatingips", "floatingips").await, [] as [Value; 0]);
    let balancers = left(&env, Service::LoadBalancer, "/loadbalancers", "loadbalancers").await;
    assert!(balancers.iter().all(|each| each["provisioning_status"] == "DELETED"), "{balancers:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn what_drivers_leave_that_stop_during_a_run_is_deleted_or_debris() {
    let _guard = workers_alone().await;
    let storage =
        [Provider::CinderCsi, Provider::Provisioner, Provider::Snapshotter, Provider::SnapshotController];
    let env = TestEnv::start("dying", &storage).await;
    for name in ["one", "two", "three"] {
        env.providers.claim("default", name, DELETE).await.unwrap();
    }
    for name in ["one", "two", "three"] {
        env.providers.bound("default", name).await.unwrap();
    }
    let volumes = async || left(&env, Service::BlockStorage, "/volumes/detail", "volumes").await;
    // The driver reports a volume as created while Cinder still creates it, and such a volume cannot be deleted.
    until("three available volumes", async || {
        volumes().await.iter().filter(|volume| volume["status"] == "available").count() == 3
    })
    .await;
    // Cinder accepts requests and does nothing; then the drivers stop.
    let hung = env.cloud.pause(Part::CinderVolume).unwrap();
    let _deorbiter = deorbiter(&env).await;
    deorbit(&env, "run", "Delete", ("60s", "10m")).await;
    until("a volume that is being deleted", async || {
        volumes().await.iter().any(|volume| volume["status"] == "deleting")
    })
    .await;
    env.providers.kill_all().unwrap();
    assert!(!status(&env, "run").await.phase.is_final(), "three volumes exist");
    drop(hung);
    let status = end(&env, "run").await;
    for volume in volumes().await {
        let named = status.debris.iter().any(|debris| debris.id.as_deref() == volume["id"].as_str());
        assert!(named, "{volume} is left and not in {status:#?}");
    }

    // Drivers that never ran: nothing is deleted by the cluster. With `orphanPolicy: Delete` the volume is deleted by its ID, and otherwise it is
    // debris with its state.
    let volume = env.project.volume("pvc-by-hand", json!({})).await.unwrap();
    by_hand(&env, "by-hand", &volume).await;
    deorbit(&env, "stopped", "Delete", ("60s", "10m")).await;
    let stopped = end(&env, "stopped").await;
    assert_eq!((stopped.phase, stopped.debris_count), (Phase::Succeeded, 0), "{stopped:#?}");
    env.project.gone(Service::BlockStorage, &format!("/volumes/{volume}")).await.unwrap();

    let volume = env.project.volume("pvc-stuck", json!({})).await.unwrap();
    by_hand(&env, "stuck", &volume).await;
    env.cloud.reset_volume(&volume, "error_deleting").await.unwrap();
    deorbit(&env, "stuck", "Report", ("30m", "30s")).await;
    let stuck = end(&env, "stuck").await;
    let named: Vec<_> = stuck.debris.iter().map(|one| (one.id.as_deref(), one.reason.as_str())).collect();
    assert_eq!(named.len(), 1, "{stuck:#?}");
    assert_eq!(named[0].0, Some(volume.as_str()));
    assert!(named[0].1.contains("the volume is error_deleting in OpenStack"), "{named:?}");
}

/// A claim that is bound to this volume, without a provisioner.
async fn by_hand(env: &TestEnv, name: &str, volume: &str) {
    let client = env.control_plane.client();
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
    // The API server notices the end of the last block after a moment.
    let asked: PersistentVolumeClaim = serde_json::from_value(asked).unwrap();
    until("a claim", async || claims.create(&PostParams::default(), &asked).await.is_ok()).await;
    let phase = async || claims.get(name).await.unwrap().status.unwrap_or_default().phase;
    until("a bound claim", async || phase().await.as_deref() == Some("Bound")).await;
}
