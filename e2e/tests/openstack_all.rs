//! Nova, Cinder and Octavia, with their workers: deletions that succeed, hang and are refused.

use e2e::openstack::{OpenStack, Part, Parts, Project, Release, Service};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Read-locked by tests that need all workers, and write-locked by those that stop one.
static WORKERS: RwLock<()> = RwLock::const_new(());

async fn cloud() -> (OpenStack, RwLockReadGuard<'static, ()>) {
    let guard = WORKERS.read().await;
    (OpenStack::shared(Parts::All, Release::Main).await.unwrap(), guard)
}

async fn cloud_alone() -> (OpenStack, RwLockWriteGuard<'static, ()>) {
    let guard = WORKERS.write().await;
    (OpenStack::shared(Parts::All, Release::Main).await.unwrap(), guard)
}

async fn delete(project: &Project, service: Service, path: &str) -> StatusCode {
    let response = project.credential_api().send(Method::DELETE, service, path, &[], None).await.unwrap();
    response.status
}

async fn status(project: &Project, id: &str) -> String {
    let volume = project.api().get(Service::BlockStorage, &format!("/volumes/{id}")).await.unwrap();
    volume["volume"]["status"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn the_port_of_a_server_has_its_id() {
    let (cloud, _guard) = cloud().await;
    let project = cloud.project("server").await.unwrap();
    let (server, address) = project.server("node-1").await.unwrap();
    let ports = project.api().get(Service::Network, &format!("/ports?device_id={server}")).await.unwrap();
    assert_eq!(ports["ports"][0]["fixed_ips"][0]["ip_address"], Value::from(address.clone()));
    assert_eq!(ports["ports"][0]["device_owner"], "compute:nova");
    let version = [("openstack-api-version", "compute 2.69")];
    let path = format!("/servers/{server}");
    let shown = project.api().send(Method::GET, Service::Compute, &path, &version, None).await.unwrap();
    assert_eq!(shown.ok().unwrap()["server"]["addresses"]["nodes"][0]["addr"], Value::from(address));
    project.delete_server(&server).await.unwrap();
    let ports = project.api().get(Service::Network, &format!("/ports?device_id={server}")).await.unwrap();
    assert_eq!(ports["ports"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn the_deletion_of_a_volume_in_use_is_refused_with_400() {
    let (cloud, _guard) = cloud().await;
    let project = cloud.project("volume").await.unwrap();
    let volume = project.volume("pvc-1", json!({ "cinder.csi.openstack.org/cluster": "a" })).await.unwrap();
    let path = format!("/volumes/{volume}");
    let snapshot = project.snapshot(&volume, "snapshot-1", json!({})).await.unwrap();
    assert_eq!(delete(&project, Service::BlockStorage, &path).await, StatusCode::BAD_REQUEST);
    let path_of_snapshot = format!("/snapshots/{snapshot}");
    assert_eq!(delete(&project, Service::BlockStorage, &path_of_snapshot).await, StatusCode::ACCEPTED);
    project.gone(Service::BlockStorage, &path_of_snapshot).await.unwrap();
    for stuck in ["error_deleting", "creating"] {
        cloud.reset_volume(&volume, stuck).await.unwrap();
        assert_eq!(delete(&project, Service::BlockStorage, &path).await, StatusCode::BAD_REQUEST, "{stuck}");
        assert_eq!(status(&project, &volume).await, stuck);
    }
    cloud.reset_volume(&volume, "error").await.unwrap();
    assert_eq!(delete(&project, Service::BlockStorage, &path).await, StatusCode::ACCEPTED);
    project.gone(Service::BlockStorage, &path).await.unwrap();
    assert_eq!(delete(&project, Service::BlockStorage, &path).await, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn a_volume_stays_while_the_worker_hangs_or_is_stopped() {
    let (cloud, _guard) = cloud_alone().await;
    let project = cloud.project("hung-volume").await.unwrap();
    let (one, other) =
        (project.volume("one", json!({})).await.unwrap(), project.volume("other", json!({})).await.unwrap());
    let hung = cloud.pause(Part::CinderVolume).unwrap();
    let path = format!("/volumes/{one}");
    assert_eq!(delete(&project, Service::BlockStorage, &path).await, StatusCode::ACCEPTED);
    assert_eq!(status(&project, &one).await, "deleting");
    drop(hung);
    project.gone(Service::BlockStorage, &path).await.unwrap();

    cloud.kill(Part::CinderVolume).unwrap();
    let path = format!("/volumes/{other}");
    assert_eq!(delete(&project, Service::BlockStorage, &path).await, StatusCode::ACCEPTED);
    assert_eq!(status(&project, &other).await, "deleting");
    cloud.restart(Part::CinderVolume).await.unwrap();
    project.gone(Service::BlockStorage, &path).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn a_load_balancer_is_gone_after_the_worker_deleted_it() {
    let (cloud, _guard) = cloud_alone().await;
    let project = cloud.project("balancer").await.unwrap();
    let id = project.load_balancer("kube_service_a_default_web", "from cluster a").await.unwrap();
    let path = format!("/loadbalancers/{id}");
    let shown = project.api().get(Service::LoadBalancer, &path).await.unwrap();
    let vip = shown["loadbalancer"]["vip_port_id"].as_str().unwrap().to_owned();
    let hung = cloud.pause(Part::OctaviaWorker).unwrap();
    let cascade = format!("{path}?cascade=true");
    assert_eq!(delete(&project, Service::LoadBalancer, &cascade).await, StatusCode::NO_CONTENT);
    let shown = project.api().get(Service::LoadBalancer, &path).await.unwrap();
    assert_eq!(shown["loadbalancer"]["provisioning_status"], "PENDING_DELETE");
    // An object in a pending state cannot be changed.
    assert_eq!(delete(&project, Service::LoadBalancer, &cascade).await, StatusCode::CONFLICT);
    drop(hung);
    project.gone(Service::LoadBalancer, &path).await.unwrap();
    project.gone(Service::Network, &format!("/ports/{vip}")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: facts about the services of OpenStack"]
async fn a_load_balancer_in_error_can_be_deleted() {
    let (cloud, _guard) = cloud().await;
    let project = cloud.project("broken-balancer").await.unwrap();
    let id = project.load_balancer("kube_service_a_default_web", "from cluster a").await.unwrap();
    cloud.reset_load_balancer(&id, "ERROR").unwrap();
    let path = format!("/loadbalancers/{id}");
    assert_eq!(
        delete(&project, Service::LoadBalancer, &format!("{path}?cascade=true")).await,
        StatusCode::NO_CONTENT
    );
    project.gone(Service::LoadBalancer, &path).await.unwrap();
}
