//! The objects of an environment's cluster that hold resources in OpenStack: volumes with their claims, and Services.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Service};
use kube::Resource;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::TestEnv;

impl TestEnv {
    /// A volume of Cinder's with its claim, bound: the claim's name is `name`, the PersistentVolume's `NAMESPACE-NAME`.
    ///
    /// # Errors
    /// The API server refuses, or they are not bound in time.
    pub async fn claim(&self, name: &str, id: &str, policy: &str) -> Result<()> {
        self.claim_of(name, "cinder.csi.openstack.org", id, policy).await?;
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &self.namespace);
        self.wait(&format!("{name} to be bound"), async || {
            let claim = claims.get(name).await?;
            Ok(claim.status.and_then(|status| status.phase).as_deref() == Some("Bound"))
        })
        .await
    }

    /// As [`TestEnv::claim`], with a volume of any driver's; not waited for.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn claim_of(&self, name: &str, driver: &str, id: &str, policy: &str) -> Result<()> {
        let volume = format!("{}-{name}", self.namespace);
        let size = json!({"storage": "1Gi"});
        self.create::<PersistentVolume>(json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": volume, "annotations": {"pv.kubernetes.io/provisioned-by": driver}},
            "spec": {"capacity": size, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
                "storageClassName": "cinder", "csi": {"driver": driver, "volumeHandle": id},
                "claimRef": {"namespace": self.namespace, "name": name}},
        }))
        .await?;
        self.pending(name, Some(&volume)).await
    }

    /// A claim of class `cinder`, for the named PersistentVolume or none.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn pending(&self, name: &str, volume: Option<&str>) -> Result<()> {
        self.create_in::<PersistentVolumeClaim>(json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "cinder", "volumeName": volume,
                "resources": {"requests": {"storage": "1Gi"}}},
        }))
        .await
        .map(drop)
    }

    /// A Node that is a server of OpenStack.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn node(&self, name: &str, server: &str, address: &str) -> Result<()> {
        let nodes = Api::<Node>::all(self.client.clone());
        let node =
            json!({"metadata": {"name": name}, "spec": {"providerID": format!("openstack:///{server}")}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let status = json!({"status": {"addresses": [{"type": "InternalIP", "address": address}]}});
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// A Service of type LoadBalancer as the cloud controller manager leaves it, with a load balancer's ID.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn service(&self, name: &str, id: &str) -> Result<()> {
        self.create_in::<Service>(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "annotations": {"loadbalancer.openstack.org/load-balancer-id": id},
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }))
        .await
        .map(drop)
    }

    /// Creates something without a namespace.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api = Api::<K>::all(self.client.clone());
        Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    /// Creates something in this environment's namespace.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn create_in<K>(&self, object: Value) -> Result<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + DeserializeOwned
            + Serialize,
    {
        let api = Api::<K>::namespaced(self.client.clone(), &self.namespace);
        Ok(api.create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }
}
