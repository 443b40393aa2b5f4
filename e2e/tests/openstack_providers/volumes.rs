//! Volumes and snapshots: the driver's names and metadata, and when they are gone for Kubernetes.

use e2e::openstack::{Part, Service};
use e2e::providers::{DELETE, Provider, RETAIN};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::DynamicObject;

use super::{TestEnv, until, workers, workers_alone};

const STORAGE: [Provider; 4] =
    [Provider::CinderCsi, Provider::Provisioner, Provider::Snapshotter, Provider::SnapshotController];

async fn status(env: &TestEnv, volume: &str) -> Option<String> {
    let path = format!("/volumes/{volume}");
    let found = env.project.api().find(Service::BlockStorage, &path).await.unwrap()?;
    Some(found["volume"]["status"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn a_volume_waits_for_its_snapshot_and_a_retained_one_stays() {
    let _guard = workers().await;
    let env = TestEnv::start("volumes", &STORAGE).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(env.control_plane.client(), "default");
    let volumes: Api<PersistentVolume> = Api::all(env.control_plane.client());
    env.providers.claim("default", "data", DELETE).await.unwrap();
    env.providers.claim("default", "keep", RETAIN).await.unwrap();
    let data = env.providers.bound("default", "data").await.unwrap();
    let keep = env.providers.bound("default", "keep").await.unwrap();
    let path = format!("/volumes/{}", data.handle);
    let volume = env.project.api().get(Service::BlockStorage, &path).await.unwrap();
    assert_eq!(volume["volume"]["metadata"]["cinder.csi.openstack.org/cluster"], "volumes");

    let snapshot = env.providers.snapshot("default", "snap", "data", DELETE).await.unwrap();
    claims.delete("data", &Default::default()).await.unwrap();
    let phase = async || volumes.get(&data.volume).await.unwrap().status.unwrap().phase.unwrap();
    until("a released volume", async || phase().await == "Released").await;
    let refused = async || {
        let events: Api<k8s_openapi::api::core::v1::Event> = Api::all(env.control_plane.client());
        let events = events.list(&Default::default()).await.unwrap();
        events.into_iter().any(|event| event.reason.as_deref() == Some("VolumeFailedDelete"))
    };
    until("a refusal", refused).await;
    assert_eq!(phase().await, "Released", "a volume whose deletion failed is not called Failed");
    let snapshots = e2e::providers::snapshot_resource("VolumeSnapshot");
    let snapshots: Api<DynamicObject> =
        Api::namespaced_with(env.control_plane.client(), "default", &snapshots);
    snapshots.delete("snap", &Default::default()).await.unwrap();
    env.project.gone(Service::BlockStorage, &format!("/snapshots/{snapshot}")).await.unwrap();
    env.project.gone(Service::BlockStorage, &path).await.unwrap();
    until("the volume's end", async || volumes.get_opt(&data.volume).await.unwrap().is_none()).await;

    claims.delete("keep", &Default::default()).await.unwrap();
    until("the claim's end", async || claims.get_opt("keep").await.unwrap().is_none()).await;
    volumes.delete(&keep.volume, &Default::default()).await.unwrap();
    until("the volume's end", async || volumes.get_opt(&keep.volume).await.unwrap().is_none()).await;
    assert_eq!(status(&env, &keep.handle).await.as_deref(), Some("available"));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the real drivers of OpenStack"]
async fn a_volume_is_gone_for_kubernetes_while_cinder_still_deletes_it() {
    let _guard = workers_alone().await;
    let env = TestEnv::start("deleting", &STORAGE).await;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(env.control_plane.client(), "default");
    let volumes: Api<PersistentVolume> = Api::all(env.control_plane.client());
    // A claim waits for a driver that has stopped.
    env.providers.kill(Provider::Provisioner).unwrap();
    env.providers.claim("default", "data", DELETE).await.unwrap();
    env.providers.run(Provider::Provisioner).await.unwrap();
    let data = env.providers.bound("default", "data").await.unwrap();
    until("an available volume", async || status(&env, &data.handle).await.as_deref() == Some("available"))
        .await;

    let hung = env.cloud.pause(Part::CinderVolume).unwrap();
    claims.delete("data", &Default::default()).await.unwrap();
    until("the volume's end", async || volumes.get_opt(&data.volume).await.unwrap().is_none()).await;
    assert_eq!(status(&env, &data.handle).await.as_deref(), Some("deleting"));
    drop(hung);
    env.project.gone(Service::BlockStorage, &format!("/volumes/{}", data.handle)).await.unwrap();
}
