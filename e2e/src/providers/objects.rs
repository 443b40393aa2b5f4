//! The objects that users of a cluster create for the providers.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use kube::{Api, Resource};
use serde_json::{Value, json};

use super::classes::create;
use super::{Providers, snapshot_resource};
use crate::wait::until;

/// A volume, as Kubernetes and as Cinder call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bound {
    /// The name of the PersistentVolume.
    pub volume: String,
    /// The ID of Cinder's volume.
    pub handle: String,
}

impl Providers {
    /// Creates a claim of 1 GiB of a class.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn claim(&self, namespace: &str, name: &str, class: &str) -> Result<()> {
        let claim = json!({
            "metadata": { "name": name },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        self.claims(namespace).create(&PostParams::default(), &serde_json::from_value(claim)?).await?;
        Ok(())
    }

    /// Waits until a claim is bound.
    ///
    /// # Errors
    /// It is not, within [`crate::wait::TIMEOUT`].
    pub async fn bound(&self, namespace: &str, name: &str) -> Result<Bound> {
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        until(&format!("volume for the claim {namespace}/{name}"), async || {
            let claim = self.claims(namespace).get(name).await?;
            let phase = claim.status.and_then(|status| status.phase);
            let Some(volume) =
                claim.spec.and_then(|spec| spec.volume_name).filter(|_| phase.as_deref() == Some("Bound"))
            else {
                return Ok(None);
            };
            let source = volumes.get(&volume).await?.spec.and_then(|spec| spec.csi);
            let handle = source.with_context(|| format!("{volume} has no CSI volume"))?.volume_handle;
            Ok(Some(Bound { volume, handle }))
        })
        .await
    }

    /// Creates a snapshot of a claim, and waits until it can be used: the ID of Cinder's snapshot.
    ///
    /// # Errors
    /// The API server refuses, or it takes longer than [`crate::wait::TIMEOUT`].
    pub async fn snapshot(&self, namespace: &str, name: &str, claim: &str, class: &str) -> Result<String> {
        let resource = snapshot_resource("VolumeSnapshot");
        let mut snapshot = DynamicObject::new(name, &resource);
        snapshot.data = json!({ "spec": {
            "volumeSnapshotClassName": class, "source": { "persistentVolumeClaimName": claim } } });
        let snapshots: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        snapshots.create(&PostParams::default(), &snapshot).await?;
        let contents: Api<DynamicObject> =
            Api::all_with(self.client.clone(), &snapshot_resource("VolumeSnapshotContent"));
        until(&format!("snapshot {namespace}/{name}"), async || {
            let snapshot = snapshots.get(name).await?;
            let ready = snapshot.data.pointer("/status/readyToUse") == Some(&Value::Bool(true));
            let content =
                snapshot.data.pointer("/status/boundVolumeSnapshotContentName").and_then(Value::as_str);
            let Some(content) = content.filter(|_| ready) else { return Ok(None) };
            let content = contents.get(content).await?;
            Ok(content.data.pointer("/status/snapshotHandle").and_then(Value::as_str).map(str::to_owned))
        })
        .await
    }

    /// Creates a Service of type LoadBalancer with one port.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn balancer(&self, namespace: &str, name: &str) -> Result<()> {
        self.annotated_balancer(namespace, name, json!({})).await
    }

    /// The same with annotations, by which the cloud controller is told more.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn annotated_balancer(&self, namespace: &str, name: &str, annotations: Value) -> Result<()> {
        let service = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "type": "LoadBalancer", "selector": { "app": name }, "ports": [{ "port": 80 }] },
        });
        self.services(namespace).create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        Ok(())
    }

    /// Waits until a Service has an address outside: the address.
    ///
    /// # Errors
    /// It has none within [`crate::wait::TIMEOUT`].
    pub async fn address(&self, namespace: &str, name: &str) -> Result<String> {
        self.outside::<Service>(namespace, name).await
    }

    /// Creates an Ingress of octavia-ingress-controller's class with more annotations, and the Service that it leads to.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn ingress(&self, namespace: &str, name: &str, annotations: &[(&str, &str)]) -> Result<()> {
        let service = json!({
            "metadata": { "name": name },
            "spec": { "type": "NodePort", "selector": { "app": name }, "ports": [{ "port": 80 }] },
        });
        // It is there first, for the controller looks once; and already, where the Ingress was refused by a block before.
        create(&self.services(namespace), &serde_json::from_value(service)?).await?;
        let class = ("kubernetes.io/ingress.class", "openstack");
        let annotations: BTreeMap<_, _> = annotations.iter().copied().chain([class]).collect();
        let backend = json!({ "service": { "name": name, "port": { "number": 80 } } });
        let paths = json!([{ "path": "/", "pathType": "Prefix", "backend": backend }]);
        let ingress = json!({
            "metadata": { "name": name, "annotations": annotations },
            "spec": { "rules": [{ "host": format!("{name}.example.org"), "http": { "paths": paths } }] },
        });
        self.ingresses(namespace).create(&PostParams::default(), &serde_json::from_value(ingress)?).await?;
        Ok(())
    }

    /// Waits until an Ingress has an address outside: the address.
    ///
    /// # Errors
    /// It has none within [`crate::wait::TIMEOUT`].
    pub async fn ingress_address(&self, namespace: &str, name: &str) -> Result<String> {
        self.outside::<Ingress>(namespace, name).await
    }

    /// The address in the status of a Service or an Ingress, which has the same shape.
    async fn outside<K: Resource<DynamicType = ()>>(&self, namespace: &str, name: &str) -> Result<String> {
        let resource = ApiResource::erase::<K>(&());
        let objects: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, &resource);
        until(&format!("address of the {} {namespace}/{name}", resource.kind), async || {
            let object = objects.get(name).await?;
            let ingress = object.data.pointer("/status/loadBalancer/ingress").and_then(Value::as_array);
            let ip = ingress.into_iter().flatten().find_map(|each| each.get("ip")?.as_str());
            Ok(ip.map(str::to_owned))
        })
        .await
    }

    fn ingresses(&self, namespace: &str) -> Api<Ingress> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn claims(&self, namespace: &str) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), namespace)
    }

    fn services(&self, namespace: &str) -> Api<Service> {
        Api::namespaced(self.client.clone(), namespace)
    }
}
