//! Claims by the thousand, and who deletes their volumes: Cinder's driver, played. What kube-controller-manager does with
//! claims and PersistentVolumes is its own.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
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

/// Requests at the same time: the API server has two cores at most.
const AT_ONCE: usize = 16;
/// Volumes that are deleted in one go.
const BATCH: usize = 500;
/// Between two goes.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The driver, as its objects name it.
const DRIVER: &str = "cinder.csi.openstack.org";

/// The driver; it ends when it is dropped.
pub(crate) struct Provisioner {
    client: Client,
    namespace: String,
    volumes: Store<PersistentVolume>,
    works: watch::Sender<bool>,
    last: Arc<Mutex<Option<Instant>>>,
    _tasks: JoinSet<()>,
}

impl Provisioner {
    /// Begins to watch; it deletes nothing yet.
    pub(crate) fn start(client: &Client, namespace: &str, openstack: &OpenStack) -> Self {
        let (volumes, writer) = reflector::store();
        let (works, working) = watch::channel(false);
        let last = Arc::new(Mutex::new(None));
        let mut tasks = JoinSet::new();
        let all = Api::<PersistentVolume>::all(client.clone());
        let follow = reflector::reflector(writer, watcher(all, watcher::Config::default()).default_backoff());
        tasks.spawn(async move { follow.for_each(|_| async {}).await });
        let work = Work { client: client.clone(), volumes: volumes.clone(), openstack: openstack.clone() };
        let noted = Arc::clone(&last);
        tasks.spawn(async move {
            let mut done = HashSet::new();
            loop {
                // A refusal is tried again.
                if *working.borrow()
                    && let Ok(true) = work.delete(&mut done).await
                {
                    *noted.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        });
        Self { client: client.clone(), namespace: namespace.to_owned(), volumes, works, last, _tasks: tasks }
    }

    /// From now on it deletes what is released.
    pub(crate) fn work(&self) {
        self.works.send_replace(true);
    }

    /// When it last deleted a volume.
    pub(crate) fn last(&self) -> Option<Instant> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a claim with a PersistentVolume for each volume, and waits until all are bound.
    ///
    /// # Errors
    /// The API server refuses, or nobody binds them.
    pub(crate) async fn fill(&self, volumes: &[String]) -> Result<()> {
        let create = async |(index, id): (usize, &String)| self.claim(index, id).await;
        stream::iter(volumes.iter().enumerate())
            .map(create)
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.until("Bound", volumes.len()).await
    }

    /// Waits until so many PersistentVolumes are in a phase.
    ///
    /// # Errors
    /// They are not, within five minutes.
    pub(crate) async fn until(&self, phase: &str, count: usize) -> Result<()> {
        let started = Instant::now();
        loop {
            let now = self.volumes.state().iter().filter(|volume| is(volume, phase)).count();
            if now == count {
                return Ok(());
            }
            ensure!(started.elapsed() < Duration::from_secs(300), "{now} of {count} are {phase}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn claim(&self, index: usize, id: &str) -> Result<()> {
        let size = json!({ "storage": "1Gi" });
        let name = format!("data-postgres-{index}");
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        let volume = format!("pvc-{id}");
        let claim = json!({
            "metadata": { "name": name, "labels": { "app.kubernetes.io/name": "postgres" }, "annotations": {
                "volume.kubernetes.io/storage-provisioner": DRIVER } },
            "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "cinder", "volumeName": volume,
                "resources": { "requests": size } },
        });
        let made = claims.create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        let volume = json!({
            "metadata": { "name": volume, "annotations": { "pv.kubernetes.io/provisioned-by": DRIVER } },
            "spec": {
                "capacity": size, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
                "storageClassName": "cinder",
                "csi": { "driver": DRIVER, "volumeHandle": id, "fsType": "ext4", "volumeAttributes": {
                    "storage.kubernetes.io/csiProvisionerIdentity": "1795350163-8081-cinder.csi.openstack.org" } },
                "claimRef": { "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": self.namespace,
                    "name": name, "uid": made.uid() },
            },
        });
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        volumes.create(&PostParams::default(), &serde_json::from_value(volume)?).await?;
        Ok(())
    }
}

struct Work {
    client: Client,
    volumes: Store<PersistentVolume>,
    openstack: OpenStack,
}

impl Work {
    /// The volume before its PersistentVolume, as the driver does. False: there was nothing to do.
    async fn delete(&self, done: &mut HashSet<String>) -> Result<bool> {
        let released = self.volumes.state();
        let released =
            released.iter().filter(|volume| is(volume, "Released") && !done.contains(&volume.name_any()));
        let batch: Vec<_> = released.take(BATCH).cloned().collect();
        if batch.is_empty() {
            return Ok(false);
        }
        let handle = |volume: &PersistentVolume| {
            let csi = volume.spec.as_ref().and_then(|spec| spec.csi.as_ref());
            csi.map(|csi| csi.volume_handle.clone()).context("it is of no driver")
        };
        let ids = batch.iter().map(|volume| handle(volume)).collect::<Result<Vec<_>>>()?;
        let openstack = self.openstack.clone();
        tokio::task::spawn_blocking(move || openstack.forget_volumes(&ids)).await??;
        let volumes = Api::<PersistentVolume>::all(self.client.clone());
        let delete = async |name: String| volumes.delete(&name, &DeleteParams::default()).await.map(drop);
        let names: Vec<String> = batch.iter().map(|volume| volume.name_any()).collect();
        stream::iter(names.clone()).map(delete).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
        done.extend(names);
        Ok(true)
    }
}

fn is(volume: &PersistentVolume, phase: &str) -> bool {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}
