//! Thousands of claims, and a simulated Cinder driver that deletes their volumes. kube-controller-manager binds and releases them.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::openstack::OpenStack;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::{Api, DeleteParams, PostParams};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Requests at the same time: few enough for two cores.
const CONCURRENCY: usize = 16;
/// Volumes that are deleted in one step.
const BATCH: usize = 500;
/// Between two steps.
const POLL: Duration = Duration::from_millis(100);
/// Longer than kube-controller-manager needs for all claims.
const TIMEOUT: Duration = Duration::from_secs(300);
/// The driver's name on its objects.
const DRIVER: &str = "cinder.csi.openstack.org";

/// The driver. It ends when it is dropped.
pub(crate) struct Provisioner {
    client: Client,
    namespace: String,
    volumes: Store<PersistentVolume>,
    works: watch::Sender<bool>,
    last: Arc<Mutex<Option<Instant>>>,
    _tasks: JoinSet<()>,
}

impl Provisioner {
    /// Watches the volumes, but deletes none yet.
    pub(crate) fn start(client: &Client, namespace: &str, openstack: &OpenStack) -> Self {
        let (volumes, writer) = reflector::store();
        let (works, working) = watch::channel(false);
        let last = Arc::new(Mutex::new(None));
        let mut tasks = JoinSet::new();
        let all = Api::<PersistentVolume>::all(client.clone());
        let follow = reflector::reflector(writer, watcher(all, watcher::Config::default()).default_backoff());
        tasks.spawn(async move { follow.for_each(|_| async {}).await });
        let mut driver = Driver {
            client: client.clone(),
            volumes: volumes.clone(),
            openstack: openstack.clone(),
            deleted: HashSet::new(),
        };
        let deleted = Arc::clone(&last);
        tasks.spawn(async move {
            loop {
                // After an error, the next step tries the same volumes.
                if *working.borrow()
                    && let Ok(true) = driver.step().await
                {
                    *deleted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                }
                tokio::time::sleep(POLL).await;
            }
        });
        Self { client: client.clone(), namespace: namespace.to_owned(), volumes, works, last, _tasks: tasks }
    }

    /// From now on, the driver deletes volumes that are released.
    pub(crate) fn work(&self) {
        self.works.send_replace(true);
    }

    /// When it last deleted volumes.
    pub(crate) fn last(&self) -> Option<Instant> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a claim with a PersistentVolume for each volume, and waits until all are bound.
    pub(crate) async fn fill(&self, volumes: &[String]) -> Result<()> {
        let create = async |(index, id): (usize, &String)| self.claim(index, id).await;
        let create = stream::iter(volumes.iter().enumerate()).map(create).buffer_unordered(CONCURRENCY);
        create.try_collect::<()>().await?;
        self.until("Bound", volumes.len()).await
    }

    /// Waits until this number of PersistentVolumes is in a phase.
    pub(crate) async fn until(&self, phase: &str, number: usize) -> Result<()> {
        let started = Instant::now();
        loop {
            let now = self.volumes.state().iter().filter(|volume| is(volume, phase)).count();
            if now == number {
                return Ok(());
            }
            ensure!(started.elapsed() < TIMEOUT, "{now} of {number} are {phase}");
            tokio::time::sleep(POLL).await;
        }
    }

    async fn claim(&self, index: usize, id: &str) -> Result<()> {
        let size = json!({ "storage": "1Gi" });
        let (name, volume) = (format!("data-postgres-{index}"), format!("pvc-{id}"));
        let claim = json!({
            "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "postgres" }, "annotations": {
                "volume.kubernetes.io/storage-provisioner": DRIVER } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "cinder", "volumeName": volume,
                "resources": { "requests": size } },
        });
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        let claim = claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        let volume = json!({
            "metadata": { "name": volume, "annotations": { "pv.kubernetes.io/provisioned-by": DRIVER } },
            "spec": {
                "capacity": size, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "cinder",
                "csi": { "driver": DRIVER, "volumeHandle": id, "fsType": "ext4", "volumeAttributes": {
                    "storage.kubernetes.io/csiProvisionerIdentity": "1795350163-8081-cinder.csi.openstack.org" } },
                "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": self.namespace,
                    "name": name, "uid": claim.uid() },
            },
        });
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        Ok(())
    }
}

struct Driver {
    client: Client,
    volumes: Store<PersistentVolume>,
    openstack: OpenStack,
    /// Names of the PersistentVolumes that were deleted, because the store is updated later.
    deleted: HashSet<String>,
}

impl Driver {
    /// Deletes released volumes in Cinder, then their PersistentVolumes. False: there were none.
    async fn step(&mut self) -> Result<bool> {
        let released = self.volumes.state().into_iter().filter(|volume| is(volume, "Released"));
        let batch = released.filter_map(|volume| {
            let csi = volume.spec.as_ref()?.csi.as_ref()?;
            Some((csi.volume_handle.clone(), volume.name_any()))
        });
        let batch = batch.filter(|(_, name)| !self.deleted.contains(name)).take(BATCH);
        let (ids, names): (Vec<_>, Vec<_>) = batch.unzip();
        if ids.is_empty() {
            return Ok(false);
        }
        let openstack = self.openstack.clone();
        tokio::task::spawn_blocking(move || openstack.forget_volumes(&ids)).await??;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let delete = async |name: String| volumes.delete(&name, &DeleteParams::default()).await.map(drop);
        let delete = stream::iter(names.clone()).map(delete).buffer_unordered(CONCURRENCY);
        delete.try_collect::<()>().await?;
        self.deleted.extend(names);
        Ok(true)
    }
}

fn is(volume: &PersistentVolume, phase: &str) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}
