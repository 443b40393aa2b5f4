//! Another cloud than OpenStack: a CSI driver, a snapshotter and a cloud controller manager that hold their objects by the finalizers that
//! the real ones have, and take a while to delete each resource.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::{PersistentVolume, Service};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::TestEnv;

/// The CSI driver.
pub const OTHER_DRIVER: &str = "disk.example.com";
/// The load balancer class.
pub const OTHER_CLASS: &str = "balancer.example.com/internal";
/// Finalizer of external-provisioner.
const PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// Finalizer of a cloud controller manager.
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";
/// Finalizer of the snapshot controller.
const BOUND: &str = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// Its controllers run until it is dropped.
#[derive(Debug)]
pub struct OtherCloud {
    resources: Arc<Mutex<BTreeSet<String>>>,
    controllers: JoinHandle<()>,
}

impl Drop for OtherCloud {
    fn drop(&mut self) {
        self.controllers.abort();
    }
}

impl OtherCloud {
    /// Starts the controllers, which take `delay` for each resource.
    ///
    /// # Errors
    /// The CSIDriver cannot be created.
    pub async fn start(client: Client, delay: Duration) -> Result<OtherCloud> {
        let driver = json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": OTHER_DRIVER},
            "spec": {"attachRequired": false}});
        let drivers = Api::<CSIDriver>::all(client.clone());
        drivers.patch(OTHER_DRIVER, &PatchParams::apply("e2e").force(), &Patch::Apply(driver)).await?;
        let resources = Arc::new(Mutex::new(BTreeSet::new()));
        let mut controllers =
            Controllers { client, delay, resources: Arc::clone(&resources), begun: BTreeMap::new() };
        let controllers = tokio::spawn(async move {
            loop {
                let _ = controllers.run().await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        Ok(OtherCloud { resources, controllers })
    }

    /// Adds a resource.
    pub fn create(&self, id: &str) {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
    }

    /// IDs of all that exists.
    #[must_use]
    pub fn resources(&self) -> Vec<String> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

struct Controllers {
    client: Client,
    delay: Duration,
    resources: Arc<Mutex<BTreeSet<String>>>,
    /// When the deletion of a resource began.
    begun: BTreeMap<String, Instant>,
}

impl Controllers {
    async fn run(&mut self) -> Result<()> {
        self.snapshots().await?;
        self.volumes().await?;
        self.services().await
    }

    /// Deletes a resource, after the delay. Whether it is gone.
    fn is_deleted(&mut self, id: &str) -> bool {
        let begun = *self.begun.entry(id.to_owned()).or_insert_with(Instant::now);
        let is_due = begun.elapsed() >= self.delay;
        if is_due {
            self.resources.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        }
        is_due
    }

    /// A VolumeSnapshot that is being deleted goes after its content, and the content after the snapshot.
    async fn snapshots(&mut self) -> Result<()> {
        let contents =
            Api::<DynamicObject>::all_with(self.client.clone(), &snapshot_kind("VolumeSnapshotContent"));
        let found = match contents.list(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            other => other?.items,
        };
        for content in found {
            let text =
                |pointer: &str| content.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let ours = text("/spec/driver") == OTHER_DRIVER && text("/spec/deletionPolicy") == "Delete";
            let namespace = text("/spec/volumeSnapshotRef/namespace");
            let snapshots: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), namespace, &snapshot_kind("VolumeSnapshot"));
            let Some(snapshot) = snapshots.get_opt(text("/spec/volumeSnapshotRef/name")).await? else {
                continue;
            };
            let id = text("/status/snapshotHandle");
            if snapshot.metadata.deletion_timestamp.is_some() && ours && self.is_deleted(id) {
                contents.delete(&content.name_any(), &DeleteParams::default()).await?;
                without_finalizer(&contents, &content, BOUND).await?;
                without_finalizer(&snapshots, &snapshot, BOUND).await?;
            }
        }
        Ok(())
    }

    /// external-provisioner. kube-controller-manager removes kubernetes.io/pv-protection.
    async fn volumes(&mut self) -> Result<()> {
        let api = Api::<PersistentVolume>::all(self.client.clone());
        for volume in api.list(&ListParams::default()).await?.items {
            let spec = volume.spec.clone().unwrap_or_default();
            let is_released =
                volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
            let is_deleted = spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete");
            let Some(csi) = spec.csi.filter(|csi| csi.driver == OTHER_DRIVER) else { continue };
            if is_released && is_deleted && self.is_deleted(&csi.volume_handle) {
                api.delete(&volume.name_any(), &DeleteParams::default()).await?;
                without_finalizer(&api, &volume, PROVISIONER).await?;
            }
        }
        Ok(())
    }

    async fn services(&mut self) -> Result<()> {
        for service in Api::<Service>::all(self.client.clone()).list(&ListParams::default()).await?.items {
            let class = service.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
            let is_ours = class == Some(OTHER_CLASS) && service.metadata.deletion_timestamp.is_some();
            if is_ours && self.is_deleted(&service.name_any()) {
                let namespace = service.namespace().unwrap_or_default();
                let api = Api::<Service>::namespaced(self.client.clone(), &namespace);
                without_finalizer(&api, &service, CLEANUP).await?;
            }
        }
        Ok(())
    }
}

/// A kind of external-snapshotter.
fn snapshot_kind(kind: &str) -> ApiResource {
    let plural = format!("{}s", kind.to_lowercase());
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind), &plural)
}

/// Removes one finalizer, and no other.
async fn without_finalizer<K>(api: &Api<K>, object: &K, finalizer: &str) -> Result<()>
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let name = object.name_any();
    let Some(current) = api.get_metadata_opt(&name).await? else { return Ok(()) };
    let finalizers: Vec<&String> = current.finalizers().iter().filter(|one| *one != finalizer).collect();
    let patch =
        json!({"metadata": {"resourceVersion": current.resource_version(), "finalizers": finalizers}});
    match api.patch(&name, &PatchParams::default(), &Patch::<Value>::Merge(patch)).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).map_err(Into::into),
    }
}

impl TestEnv {
    /// A volume of the other cloud with its claim, bound, and with the finalizers of its driver.
    ///
    /// # Errors
    /// The API server refuses, or they are not bound in time.
    pub async fn disk(&self, cloud: &OtherCloud, name: &str, policy: &str) -> Result<()> {
        let id = format!("vol-{name}");
        cloud.create(&id);
        self.claim_of(name, OTHER_DRIVER, &id, policy).await?;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let volume = format!("{}-{name}", self.namespace);
        let add =
            Patch::Merge(json!({"metadata": {"finalizers": ["kubernetes.io/pv-protection", PROVISIONER]}}));
        volumes.patch(&volume, &PatchParams::default(), &add).await?;
        self.wait(&format!("{volume} to be bound"), async || {
            let phase = volumes.get(&volume).await?.status.and_then(|status| status.phase);
            Ok(phase.as_deref() == Some("Bound"))
        })
        .await
    }

    /// A snapshot of a claim in the other cloud, with the finalizers of the snapshot controller.
    ///
    /// # Errors
    /// The API server refuses, or does not serve the kinds in time.
    pub async fn copy(&self, cloud: &OtherCloud, name: &str, claim: &str) -> Result<()> {
        let id = format!("snap-{name}");
        cloud.create(&id);
        let content = format!("content-{name}");
        let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
            "metadata": {"name": name, "finalizers": [BOUND]}, "spec": {"source": {"persistentVolumeClaimName": claim}},
            "status": {"boundVolumeSnapshotContentName": content}});
        let kind = snapshot_kind("VolumeSnapshot");
        let snapshots: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &kind);
        let snapshot = self.create_when_served(&snapshots, snapshot).await?;
        let content = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": content, "finalizers": [BOUND]},
            "spec": {"driver": OTHER_DRIVER, "deletionPolicy": "Delete", "source": {},
                "volumeSnapshotRef": {"name": name, "namespace": self.namespace, "uid": snapshot.uid()}},
            "status": {"snapshotHandle": id}});
        let contents: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &snapshot_kind("VolumeSnapshotContent"));
        self.create_when_served(&contents, content).await.map(drop)
    }

    async fn create_when_served(&self, api: &Api<DynamicObject>, object: Value) -> Result<DynamicObject> {
        let object: DynamicObject = serde_json::from_value(object)?;
        self.wait("a kind to be served", async || {
            Ok(api.create(&PostParams::default(), &object).await.is_ok())
        })
        .await?;
        Ok(api.get(&object.name_any()).await?)
    }

    /// A Service with a load balancer of the other cloud.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn balanced(&self, cloud: &OtherCloud, name: &str) -> Result<()> {
        cloud.create(name);
        self.create_in::<Service>(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "finalizers": [CLEANUP]},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": OTHER_CLASS, "ports": [{"port": 80}]},
        }))
        .await
        .map(drop)
    }
}
