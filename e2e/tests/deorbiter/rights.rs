//! deorbiter's rights in a cluster that it cleans up: in a run with every kind of object, the API server refuses nothing, and each right in
//! docs/deorbiter.md is used. Once with each form of the block.

use std::collections::BTreeSet;

use e2e::deorbiter::{Driver, TestEnv, kubeconfig};
use e2e::fault_proxy::{FaultProxy, Upstream};
use e2e::kustomize::manifests;
use e2e::rights::{Grant, Rights};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

const GROUP: &str = "snapshot.storage.k8s.io";
const VERSION: &str = "v1";
const PROGRAM: &str = "deorbiter-target";
const KINDS: [(&str, &str); 2] = [("VolumeSnapshot", "Namespaced"), ("VolumeSnapshotContent", "Cluster")];

fn name_of(kind: &str) -> String {
    format!("{}s.{GROUP}", kind.to_lowercase())
}

/// The kinds of external-snapshotter, with the fields that are read.
pub(super) async fn define(env: &TestEnv) {
    let api = Api::<CustomResourceDefinition>::all(env.client.clone());
    for (kind, scope) in KINDS {
        let plural = format!("{}s", kind.to_lowercase());
        let crd = json!({
            "metadata": { "name": name_of(kind), "annotations": { "api-approved.kubernetes.io": "unapproved, for a test" } },
            "spec": {
                "group": GROUP, "scope": scope,
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase() },
                "versions": [{ "name": VERSION, "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true } } }],
            },
        });
        api.create(&PostParams::default(), &serde_json::from_value(crd).unwrap()).await.unwrap();
    }
}

pub(super) async fn undefine(env: &TestEnv) {
    let api = Api::<CustomResourceDefinition>::all(env.client.clone());
    for (kind, _) in KINDS {
        let _ = api.delete(&name_of(kind), &DeleteParams::default()).await;
        env.wait("the end of a kind", async || Ok(api.get_opt(&name_of(kind)).await?.is_none()))
            .await
            .unwrap();
    }
}

fn snapshots(env: &TestEnv, kind: &str) -> Api<DynamicObject> {
    let plural = format!("{}s", kind.to_lowercase());
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, kind), &plural);
    match kind {
        "VolumeSnapshot" => Api::namespaced_with(env.client.clone(), &env.namespace, &resource),
        _ => Api::all_with(env.client.clone(), &resource),
    }
}

/// A retained snapshot of a claim, as the snapshot controller leaves it.
async fn snapshot(env: &TestEnv, claim: &str) {
    let make = async |kind: &str, object: Value| {
        let api = snapshots(env, kind);
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        env.wait("a snapshot", async || Ok(api.create(&PostParams::default(), &object).await.is_ok()))
            .await
            .unwrap();
        api.get(object.metadata.name.as_deref().unwrap()).await.unwrap()
    };
    let snapshot = json!({ "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "VolumeSnapshot",
        "metadata": { "name": "daily" }, "spec": { "source": { "persistentVolumeClaimName": claim } },
        "status": { "boundVolumeSnapshotContentName": "content-daily" } });
    let made = make("VolumeSnapshot", snapshot).await;
    let content = json!({ "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "VolumeSnapshotContent",
        "metadata": { "name": "content-daily" },
        "spec": { "driver": "cinder.csi.openstack.org", "deletionPolicy": "Retain", "source": {},
            "volumeSnapshotRef": { "name": "daily", "namespace": env.namespace, "uid": made.metadata.uid } },
        "status": { "snapshotHandle": "0d5c9f3e-0000-4000-8000-0000000005aa" } });
    make("VolumeSnapshotContent", content).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_sufficient_and_each_is_used() {
    let env = TestEnv::start().await.unwrap();
    undefine(&env).await;
    let file = manifests().join("examples/deorbiter/target-rights.yaml");
    let rights = Rights::read(PROGRAM, &file).unwrap();
    let user = rights.give(&env.client, &env.namespace).await.unwrap();
    let (certificate, key) = env.control_plane.admin_identity_pem().unwrap();
    let upstream = Upstream::kubernetes(env.control_plane.url())
        .ca_pem(env.control_plane.ca_pem().unwrap())
        .client_certificate(certificate, key)
        .impersonate(&user.name, user.groups.clone());
    let proxy = FaultProxy::start(upstream).await.unwrap();
    env.secret("target", "value", &kubeconfig(&proxy.url(), None, &[]).unwrap()).await.unwrap();
    let _drivers = Driver::pretended(env.client.clone());
    let deorbiter = env.deorbiter().unwrap();
    for (run, form) in [("first", "Policy"), ("second", "Webhook")] {
        define(&env).await;
        env.claim("data", "0d5c9f3e-0000-4000-8000-0000000005bb", "Retain").await.unwrap();
        snapshot(&env, "data").await;
        env.service("web", "0d5c9f3e-0000-4000-8000-0000000005cc").await.unwrap();
        let ingress = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": { "name": "shop" },
            "spec": { "ingressClassName": "openstack",
                "defaultBackend": { "service": { "name": "web", "port": { "number": 80 } } } } });
        env.create_in::<Ingress>(ingress).await.unwrap();
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "db-0" }, "spec": {
            "containers": [{ "name": "c", "image": "i" }], "schedulerName": "none",
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] } });
        env.create_in::<Pod>(pod).await.unwrap();
        // One that was never bound.
        let spare = json!({ "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": format!("{}-spare", env.namespace) },
            "spec": { "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "spare",
                "persistentVolumeReclaimPolicy": "Retain",
                "csi": { "driver": "cinder.csi.openstack.org", "volumeHandle": "0d5c9f3e-0000-4000-8000-0000000005dd" } } });
        env.create::<PersistentVolume>(spare).await.unwrap();
        let name = format!("run-{run}");
        let spec = json!({ "retainedVolumes": "Delete", "creationBlock": form, "clusterSurvives": true, "clusterName": "prod",
            "resources": { "ingresses": "Delete" }, "timeouts": { "loadBalancerGrace": "1s" } });
        env.deorbit(&name, spec).await.unwrap();
        env.wait_for_complete(&name).await.unwrap();
        let records = env.records(&name).await.unwrap();
        assert!(records.iter().any(|one| one["kind"] == "Snapshot"), "{records:#?}");
        let claims = Api::<PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
        assert!(claims.get_opt("data").await.unwrap().is_none());
        env.unblocked().await.unwrap();
        undefine(&env).await;
    }
    // The only one that reads the names of the CSI drivers.
    env.deorbit(
        "any",
        json!({ "provider": "Any", "clusterSurvives": true, "timeouts": { "loadBalancerGrace": "1s" } }),
    )
    .await
    .unwrap();
    env.wait_for_complete("any").await.unwrap();
    drop(deorbiter);

    let grants = rights.grants().unwrap();
    let mut used: BTreeSet<&Grant> = BTreeSet::new();
    let mut wrong = Vec::new();
    for request in proxy.requests() {
        if let Some(asked) = request.kube() {
            used.extend(grants.iter().filter(|grant| grant.covers(&asked)));
        }
        if request.upstream_status == Some(403) {
            wrong.push(format!("{} {}", request.method, request.path));
        }
    }
    assert!(wrong.is_empty(), "refused: {wrong:#?}");
    let unused: Vec<&Grant> = grants.iter().filter(|grant| !used.contains(grant)).collect();
    assert!(unused.is_empty(), "granted and not used: {unused:#?}");
    println!("{} rights, all used", grants.len());
}
