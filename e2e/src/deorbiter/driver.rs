//! Cinder's CSI driver and the cloud controller manager, as far as they delete things in the real services: the volume before its
//! PersistentVolume, the load balancer before the finalizer of its Service.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{PersistentVolume, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::Changes;
use crate::openstack::{self, Project};

/// Between two lists of the real drivers' stand-ins.
const INTERVAL: Duration = Duration::from_secs(1);

/// A controller that runs until it is dropped.
#[derive(Debug)]
pub struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Driver {
    /// Cinder's CSI driver: deletes volumes of released PersistentVolumes with the policy Delete.
    #[must_use]
    pub fn cinder(client: Client, project: &Project) -> Driver {
        let project = project.clone();
        Driver(tokio::spawn(async move {
            loop {
                let _ = volumes(&client, &project).await;
                tokio::time::sleep(INTERVAL).await;
            }
        }))
    }

    /// The cloud controller manager: deletes load balancers of Services that are being deleted.
    #[must_use]
    pub fn octavia(client: Client, project: &Project) -> Driver {
        let project = project.clone();
        Driver(tokio::spawn(async move {
            loop {
                let _ = services(&client, &project).await;
                tokio::time::sleep(INTERVAL).await;
            }
        }))
    }
}

async fn volumes(client: &Client, project: &Project) -> Result<()> {
    let api = Api::<PersistentVolume>::all(client.clone());
    for volume in api.list(&ListParams::default()).await?.items {
        let spec = volume.spec.clone().unwrap_or_default();
        let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
        let ours = spec.csi.filter(|csi| csi.driver == "cinder.csi.openstack.org");
        let Some(csi) = ours.filter(|_| spec.persistent_volume_reclaim_policy.as_deref() == Some("Delete"))
        else {
            continue;
        };
        if released {
            let path = format!("/volumes/{}", csi.volume_handle);
            project.api().delete(openstack::Service::BlockStorage, &path).await?;
            api.delete(&volume.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

async fn services(client: &Client, project: &Project) -> Result<()> {
    for service in Api::<Service>::all(client.clone()).list(&ListParams::default()).await?.items {
        let id = service.annotations().get("loadbalancer.openstack.org/load-balancer-id");
        let (Some(id), Some(_)) = (id, &service.metadata.deletion_timestamp) else { continue };
        let path = format!("/loadbalancers/{id}");
        let found = project.api().find(openstack::Service::LoadBalancer, &path).await?;
        let status = found.as_ref().and_then(|each| each.pointer("/loadbalancer/provisioning_status"));
        match status.and_then(Value::as_str) {
            None | Some("DELETED") => {
                let api =
                    Api::<Service>::namespaced(client.clone(), &service.namespace().unwrap_or_default());
                let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
                api.patch(&service.name_any(), &PatchParams::default(), &free).await?;
            }
            Some("ACTIVE" | "ERROR") => {
                let path = format!("{path}?cascade=true");
                project.api().delete(openstack::Service::LoadBalancer, &path).await?;
            }
            Some(_) => {}
        }
    }
    Ok(())
}

impl Driver {
    /// Both, without an OpenStack: objects are released as if their resources had been deleted.
    #[must_use]
    pub fn pretended(client: Client) -> Driver {
        Driver(tokio::spawn(async move {
            let volumes = Changes::of(Api::<PersistentVolume>::all(client.clone()));
            let mut changes = volumes.and(Changes::of(Api::<Service>::all(client.clone())));
            loop {
                changes.next().await;
                let _ = pretend(&client).await;
                // Changes at the same time need one check only.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }))
    }
}

async fn pretend(client: &Client) -> Result<()> {
    let volumes = Api::<PersistentVolume>::all(client.clone());
    for volume in volumes.list(&ListParams::default()).await?.items {
        let released = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Released");
        let policy = volume.spec.as_ref().and_then(|spec| spec.persistent_volume_reclaim_policy.as_deref());
        if released && policy == Some("Delete") {
            volumes.delete(&volume.name_any(), &DeleteParams::default()).await?;
        }
    }
    for service in Api::<Service>::all(client.clone()).list(&ListParams::default()).await?.items {
        if service.metadata.deletion_timestamp.is_some() {
            let api = Api::<Service>::namespaced(client.clone(), &service.namespace().unwrap_or_default());
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            api.patch(&service.name_any(), &PatchParams::default(), &free).await?;
        }
    }
    Ok(())
}
