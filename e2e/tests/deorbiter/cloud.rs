//! With real Cinder, Octavia and Neutron: what is verified, what is left, what is deleted by its ID.

use std::ops::Deref;

use common::api::deorbit::Phase;
use common::conditions::Status;
use e2e::deorbiter::{Driver, TestEnv};
use e2e::openstack::{OpenStack, Part, Parts, Project, Release, Service};
use k8s_openapi::api::core::v1 as core;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tests that need all workers of the cloud hold it to read, those that stop one hold it to write.
static WORKERS: RwLock<()> = RwLock::const_new(());

/// The cloud of all tests here, with a lock on its workers.
pub(super) struct Cloud<Held> {
    openstack: OpenStack,
    _workers: Held,
}

impl<Held> Deref for Cloud<Held> {
    type Target = OpenStack;

    fn deref(&self) -> &OpenStack {
        &self.openstack
    }
}

pub(super) async fn start() -> (TestEnv, Cloud<RwLockReadGuard<'static, ()>>, Project) {
    start_with(WORKERS.read().await).await
}

async fn start_alone() -> (TestEnv, Cloud<RwLockWriteGuard<'static, ()>>, Project) {
    start_with(WORKERS.write().await).await
}

async fn start_with<Held>(workers: Held) -> (TestEnv, Cloud<Held>, Project) {
    // The cloud first: it takes long, and others can use the clusters meanwhile.
    let openstack = OpenStack::shared(Parts::All, Release::Main).await.unwrap();
    let env = TestEnv::start().await.unwrap();
    let project = openstack.project("deorbit").await.unwrap();
    env.cloud(&project).await.unwrap();
    (env, Cloud { openstack, _workers: workers }, project)
}

pub(super) fn spec(more: Value) -> Value {
    let mut spec = json!({"openstack": {"identityRef": {"name": "cloud"}}, "clusterName": "prod"});
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

pub(super) async fn exists(project: &Project, service: Service, path: &str) -> bool {
    let found = project.api().find(service, path).await.unwrap();
    let status = found.as_ref().and_then(|each| each.pointer("/loadbalancer/provisioning_status"));
    found.is_some() && status.is_none_or(|status| status != "DELETED")
}

/// Deletes a PersistentVolume as soon as its claim is gone, and nothing in Cinder.
async fn release_volume(env: &TestEnv, name: &str) {
    let claims = Api::<core::PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    env.wait("the claim to be deleted", async || Ok(claims.get_opt(name).await?.is_none())).await.unwrap();
    let volumes = Api::<core::PersistentVolume>::all(env.client.clone());
    volumes.delete(&format!("{}-{name}", env.namespace), &Default::default()).await.unwrap();
}

/// Removes the finalizer of a Service that is being deleted.
async fn release_service(env: &TestEnv, name: &str) {
    let services = Api::<core::Service>::namespaced(env.client.clone(), &env.namespace);
    let deleted = async || Ok(services.get(name).await?.metadata.deletion_timestamp.is_some());
    env.wait("the Service to be deleted", deleted).await.unwrap();
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    services.patch(name, &PatchParams::default(), &patch).await.unwrap();
}

/// Octavia has tags since 2.5; the API takes them on PUT.
async fn balancer(env: &TestEnv, project: &Project, name: &str) -> (String, String) {
    let tag = format!("kube_service_prod_{}_{name}", env.namespace);
    let text = format!("Kubernetes external service {}/{name} from cluster prod", env.namespace);
    let id = project.load_balancer(&tag, &text).await.unwrap();
    tags(project, &id, &[&tag]).await;
    (id, tag)
}

async fn tags(project: &Project, id: &str, tags: &[&str]) {
    let path = format!("/loadbalancers/{id}");
    project.api().put(Service::LoadBalancer, &path, json!({"loadbalancer": {"tags": tags}})).await.unwrap();
    project
        .settle(Service::LoadBalancer, &path, "loadbalancer", "provisioning_status", "ACTIVE")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_and_load_balancers_are_deleted_and_each_is_verified_by_its_id() {
    let (env, _cloud, project) = start().await;
    let volume = project.volume("pvc-1", json!({})).await.unwrap();
    let (lb, _) = balancer(&env, &project, "web").await;
    env.claim("data", &volume, "Delete").await.unwrap();
    env.service("web", &lb).await.unwrap();
    let _cinder = Driver::cinder(env.client.clone(), &project);
    let _octavia = Driver::octavia(env.client.clone(), &project);
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", spec(json!({}))).await.unwrap();
    let status = env.wait_for_complete("run").await.unwrap();
    let verified = status.conditions.iter().find(|one| one.kind == "Verified").unwrap();
    assert_eq!(verified.status, Status::True, "{status:#?}");
    assert!(!exists(&project, Service::BlockStorage, &format!("/volumes/{volume}")).await);
    assert!(!exists(&project, Service::LoadBalancer, &format!("/loadbalancers/{lb}")).await);
    let records = env.records("run").await.unwrap();
    let is_recorded = |kind: &str, id: &str| records.iter().any(|one| one["kind"] == kind && one["id"] == id);
    assert!(is_recorded("Volume", &volume) && is_recorded("LoadBalancer", &lb), "{records:#?}");
    assert!(env.is_blocked().await.unwrap(), "as long as the Deorbit exists");
    env.delete("run").await.unwrap();
    let metrics = deorbiter.metrics().await.unwrap();
    // D16: two things are read by their IDs, no list of a project is read.
    assert!(metrics.sum("cloud_api_requests_total", &[]).unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn leftovers_are_deleted_by_their_ids_and_nothing_else_is() {
    let (env, cloud, project) = start().await;
    let volume = project.volume("pvc-1", json!({})).await.unwrap();
    let snapshot = project.snapshot(&volume, "by-hand", json!({})).await.unwrap();
    let other = project.volume("foreign", json!({})).await.unwrap();
    let plain = project.volume("pvc-2", json!({})).await.unwrap();
    let marked =
        project.volume("pvc-3", json!({"janitor.capi.azimuth-cloud.com/keep": "true"})).await.unwrap();
    let (lb, _) = balancer(&env, &project, "web").await;
    cloud.reset_load_balancer(&lb, "ERROR").unwrap();
    for (name, id) in [("snapped", &volume), ("plain", &plain), ("marked", &marked)] {
        env.claim(name, id, "Delete").await.unwrap();
    }
    env.service("web", &lb).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", spec(json!({"orphanPolicy": "Delete", "timeouts": {"total": "1h"}}))).await.unwrap();
    // The controllers release the objects in the cluster, and delete nothing in OpenStack.
    for name in ["snapped", "plain"] {
        release_volume(&env, name).await;
    }
    release_service(&env, "web").await;
    env.wait("all but one to be deleted", async || Ok(env.status("run").await?.remaining == 1))
        .await
        .unwrap();
    env.set_timeouts("run", json!({"total": "1s"})).await.unwrap();
    let status = env.wait_for_debris("run").await.unwrap();
    assert!(!exists(&project, Service::BlockStorage, &format!("/volumes/{plain}")).await);
    assert!(
        !exists(&project, Service::LoadBalancer, &format!("/loadbalancers/{lb}")).await,
        "even one in ERROR"
    );
    for stays in [
        format!("/volumes/{volume}"),
        format!("/snapshots/{snapshot}"),
        format!("/volumes/{other}"),
        format!("/volumes/{marked}"),
    ] {
        assert!(exists(&project, Service::BlockStorage, &stays).await, "{stays}");
    }
    // A snapshot without a record keeps its volume: the debris has Cinder's message.
    assert_eq!(status.debris_count, 1, "{status:#?}");
    assert_eq!(status.debris[0].id.as_deref(), Some(volume.as_str()));
    assert!(status.debris[0].reason.contains("snapshot"), "{status:#?}");
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn a_volume_is_debris_while_cinder_has_it_although_its_persistent_volume_is_gone() {
    let (env, cloud, project) = start_alone().await;
    for state in ["error_deleting", "deleting", "creating"] {
        let volume = project.volume("pvc-1", json!({})).await.unwrap();
        let name = state.replace('_', "-");
        env.claim(&name, &volume, "Delete").await.unwrap();
        let path = format!("/volumes/{volume}");
        let hung = if state == "deleting" {
            // A worker that hangs: Cinder accepts the request, and nothing happens.
            let hung = cloud.pause(Part::CinderVolume).unwrap();
            project.api().delete(Service::BlockStorage, &path).await.unwrap();
            Some(hung)
        } else {
            cloud.reset_volume(&volume, state).await.unwrap();
            None
        };
        let deorbiter = env.deorbiter().unwrap();
        env.deorbit(&name, spec(json!({"clusterSurvives": true, "timeouts": {"total": "1h"}})))
            .await
            .unwrap();
        release_volume(&env, &name).await;
        env.set_timeouts(&name, json!({"total": "1s"})).await.unwrap();
        let status = env.wait_for_debris(&name).await.unwrap();
        assert_eq!(status.debris[0].id.as_deref(), Some(volume.as_str()));
        assert!(status.debris[0].reason.contains(state), "{status:#?}");
        if hung.is_none() {
            cloud.reset_volume(&volume, "available").await.unwrap();
            project.api().delete(Service::BlockStorage, &path).await.unwrap();
        }
        drop(hung);
        project.gone(Service::BlockStorage, &path).await.unwrap();
        env.delete(&name).await.unwrap();
        drop(deorbiter);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn d12_a_load_balancer_that_outlives_its_service_is_debris_and_a_shared_one_loses_only_our_tag() {
    let (env, _cloud, project) = start().await;
    let (left, _) = balancer(&env, &project, "left").await;
    let (shared, tag) = balancer(&env, &project, "shared").await;
    let neighbour = "kube_service_other_b_api";
    tags(&project, &shared, &[&tag, neighbour]).await;
    env.service("left", &left).await.unwrap();
    env.service("shared", &shared).await.unwrap();
    let foreign = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "metal"},
        "spec": {"type": "LoadBalancer", "loadBalancerClass": "metallb.io/metallb", "ports": [{"port": 80}]}});
    env.create_in::<core::Service>(foreign).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", spec(json!({"timeouts": {"total": "1h"}}))).await.unwrap();
    env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    let services = Api::<core::Service>::namespaced(env.client.clone(), &env.namespace);
    tags(&project, &shared, &[neighbour]).await;
    for name in ["left", "shared"] {
        release_service(&env, name).await;
    }
    // Both Services are gone; the run waits for the load balancer that is left, and no longer for the shared one.
    env.wait_for_phase("run", Phase::Verifying).await.unwrap();
    env.wait("one that remains", async || Ok(env.status("run").await?.remaining == 1)).await.unwrap();
    env.set_timeouts("run", json!({"total": "1s"})).await.unwrap();
    let status = env.wait_for_debris("run").await.unwrap();
    let debris: Vec<_> = status.debris.iter().map(|one| one.id.as_deref().unwrap()).collect();
    assert_eq!(debris, [left.as_str()], "{status:#?}");
    assert_eq!(services.get("metal").await.unwrap().metadata.deletion_timestamp, None);
    assert!(exists(&project, Service::LoadBalancer, &format!("/loadbalancers/{shared}")).await);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule, the test of another project has the services"]
async fn d13_d8_a_wrong_region_and_revoked_credentials_are_reported_and_never_release_the_cluster() {
    let (env, _cloud, project) = start().await;
    let volume = project.volume("pvc-1", json!({})).await.unwrap();
    env.claim("data", &volume, "Delete").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    let elsewhere = json!({"identityRef": {"name": "cloud", "region": "Elsewhere"}});
    let timeouts = json!({"apiUnavailable": "1s", "total": "1s"});
    env.deorbit("region", spec(json!({"openstack": elsewhere, "timeouts": timeouts}))).await.unwrap();
    env.wait_for_refusal("region", "CloudReachable", "Elsewhere").await.unwrap();
    let (id, secret) = project.new_credential("revoked", json!({})).await.unwrap();
    let keystone = project.api().endpoints().base(Service::Identity).unwrap();
    env.secret("cloud", "clouds.yaml", &project.clouds_yaml_of(&keystone, &id, &secret)).await.unwrap();
    let path = format!("/users/{}/application_credentials/{id}", project.user);
    project.api().delete(Service::Identity, &path).await.unwrap();
    env.deorbit("revoked", spec(json!({"timeouts": timeouts}))).await.unwrap();
    env.wait_for_refusal("revoked", "CloudReachable", "").await.unwrap();
    env.wait_for_reconciliations(&deorbiter, 4).await.unwrap();
    for name in ["region", "revoked"] {
        let status = env.status(name).await.unwrap();
        assert!(!status.phase.is_final(), "a refusal never releases: {status:#?}");
    }
    assert!(
        exists(&project, Service::BlockStorage, &format!("/volumes/{volume}")).await,
        "nothing was deleted"
    );
    let claims = Api::<core::PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    assert_eq!(claims.get("data").await.unwrap().metadata.deletion_timestamp, None);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule, the test of a cluster that is gone has the services"]
async fn resources_are_found_by_the_cluster_s_name_behind_the_proof_of_a_node_s_server_and_none_of_other_clusters()
 {
    let (env, _cloud, project) = start().await;
    let (server, address) = project.server("node-1").await.unwrap();
    env.node("node-1", &server, &address).await.unwrap();
    let key = "cinder.csi.openstack.org/cluster";
    let lost = project.volume("pvc-lost", json!({ key: "prod" })).await.unwrap();
    let neighbour = project.volume("pvc-other", json!({ key: "prod_7" })).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    let asked = json!({"discoverByClusterName": true, "orphanPolicy": "Delete", "retainedVolumes": "Delete"});
    env.deorbit("run", spec(asked)).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    assert!(!exists(&project, Service::BlockStorage, &format!("/volumes/{lost}")).await);
    assert!(exists(&project, Service::BlockStorage, &format!("/volumes/{neighbour}")).await);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_routes_are_removed_at_the_end_and_others_stay() {
    // Without Nova, which would report that the server does not exist.
    let cloud = OpenStack::shared(Parts::KeystoneNeutron, Release::Main).await.unwrap();
    let env = TestEnv::start().await.unwrap();
    let project = cloud.project("routes").await.unwrap();
    env.cloud(&project).await.unwrap();
    let port = project.port(Some("10.7.1.1"), Some("0d5c9f3e-0000-4000-8000-0000000000c1")).await.unwrap();
    let live = ("10.244.1.0/24", "10.7.1.1");
    let foreign = ("192.0.2.0/24", "10.7.1.9");
    project.add_routes(&[live, ("10.244.2.0/24", "10.7.1.2"), foreign]).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    let routes = json!({"routes": {"routerID": project.router, "podCIDRs": ["10.244.0.0/16"]}});
    let spec = spec(json!({"resources": routes}));
    env.deorbit("run", spec.clone()).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    let left = async |expected: &[(&str, &str)]| {
        let mut left: Vec<_> =
            expected.iter().map(|(to, via)| ((*to).to_owned(), (*via).to_owned())).collect();
        left.sort();
        assert_eq!(project.routes().await.unwrap(), left);
    };
    left(&[live, foreign]).await;
    // A route whose next hop may exist is kept, and becomes debris.
    let pair = json!({ "port": { "allowed_address_pairs": [{ "ip_address": "10.7.2.0/24" }] } });
    project.api().put(Service::Network, &format!("/ports/{port}"), pair).await.unwrap();
    let doubtful = ("10.244.3.0/24", "10.7.2.3");
    project.add_routes(&[doubtful, ("10.244.2.0/24", "10.7.1.2")]).await.unwrap();
    env.deorbit("again", spec).await.unwrap();
    let status = env.wait_for_debris("again").await.unwrap();
    left(&[live, foreign, doubtful]).await;
    let [debris] = status.debris.as_slice() else { panic!("{status:#?}") };
    assert_eq!((debris.kind.as_str(), debris.name.as_str()), ("Route", "10.244.3.0/24 via 10.7.2.3"));
    assert!(debris.reason.contains(&port) && debris.reason.contains("10.7.2.0/24"), "{debris:?}");
    drop(deorbiter);
}

/// S2: the Node names a server that this project does not have.
#[tokio::test(flavor = "multi_thread")]
async fn a_login_for_another_project_is_not_proven_and_holds_the_run_before_the_first_delete() {
    let (env, cloud, project) = start().await;
    let (server, address) = project.server("node-1").await.unwrap();
    env.node("node-1", &server, &address).await.unwrap();
    let volume = project.volume("pvc-1", json!({})).await.unwrap();
    env.claim("data", &volume, "Delete").await.unwrap();
    let other = cloud.project("other").await.unwrap();
    env.cloud(&other).await.unwrap();
    let _cinder = Driver::cinder(env.client.clone(), &project);
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", spec(json!({"timeouts": {"total": "1s"}}))).await.unwrap();
    env.wait_for_refusal("run", "CloudReachable", "has none of the servers of 1 Nodes").await.unwrap();
    env.wait_for_reconciliations(&deorbiter, 2).await.unwrap();
    assert_eq!(env.status("run").await.unwrap().phase, Phase::Pending);
    let claims = Api::<core::PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    assert_eq!(claims.get("data").await.unwrap().metadata.deletion_timestamp, None);
    // Before the run starts: its second may be over before the next request here.
    env.set_timeouts("run", json!({"total": "1h"})).await.unwrap();
    env.cloud(&project).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    drop(deorbiter);
}

/// S10
#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule, the test of stale routes has Neutron"]
async fn routes_to_the_nodes_are_removed_at_the_end_although_the_nodes_live() {
    let (env, _cloud, project) = start().await;
    let (server, address) = project.server("node-1").await.unwrap();
    env.node("node-1", &server, &address).await.unwrap();
    let foreign = ("192.0.2.0/24", "10.7.1.9");
    project.add_routes(&[("10.244.1.0/24", &address), foreign]).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    let routes = json!({"routes": {"routerID": project.router, "podCIDRs": ["10.244.0.0/16"]}});
    env.deorbit("run", spec(json!({"resources": routes}))).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    assert_eq!(project.routes().await.unwrap(), [(foreign.0.to_owned(), foreign.1.to_owned())]);
    drop(deorbiter);
}

/// The target's kubeconfig is never read: there is none.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_cluster_without_an_api_server_left_is_listed_and_then_deleted() {
    let (env, cloud, project) = start().await;
    let key = "cinder.csi.openstack.org/cluster";
    let lost = project.volume("pvc-lost", json!({ key: "prod" })).await.unwrap();
    let neighbour = project.volume("pvc-other", json!({ key: "prod_7" })).await.unwrap();
    let other = cloud.project("other").await.unwrap();
    env.cloud(&other).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    let gone = json!({"kubeconfig": null, "clusterGone": {"projectID": project.id}, "discoverByClusterName": true,
        "orphanPolicy": "Delete", "retainedVolumes": "Delete", "dryRun": true});
    env.deorbit("run", spec(gone)).await.unwrap();
    env.wait_for_refusal("run", "CloudReachable", "spec.clusterGone.projectID is").await.unwrap();
    env.cloud(&project).await.unwrap();
    env.wait_for_phase("run", Phase::Planned).await.unwrap();
    let ids = |records: Vec<Value>| records.iter().map(|one| one["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(env.records("run").await.unwrap()), [json!(lost)]);
    let change = Patch::Merge(json!({"spec": {"dryRun": false}}));
    env.deorbits().patch("run", &PatchParams::default(), &change).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    assert!(!exists(&project, Service::BlockStorage, &format!("/volumes/{lost}")).await);
    assert!(exists(&project, Service::BlockStorage, &format!("/volumes/{neighbour}")).await);
    drop(deorbiter);
}
