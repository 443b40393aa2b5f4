//! The Nodes that kubelets would register.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::storage::v1::CSINode;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{DRIVER, Providers};

impl Providers {
    /// Registers a Node of a server as a kubelet with an external provider does, ready, with Cinder's driver on it. The
    /// cloud controller then initialises it; the control plane gives it a range of addresses.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn node(&self, name: &str, server: &str, address: &str) -> Result<()> {
        let node = json!({
            "metadata": {
                "name": name,
                "labels": { "kubernetes.io/hostname": name },
                "annotations": {
                    "volumes.kubernetes.io/controller-managed-attach-detach": "true",
                    "alpha.kubernetes.io/provided-node-ip": address,
                },
            },
            "spec": {
                "providerID": format!("openstack:///{server}"),
                "taints": [{
                    "key": "node.cloudprovider.kubernetes.io/uninitialized",
                    "value": "true", "effect": "NoSchedule" }],
            },
        });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let driver = json!({
            "metadata": { "name": name },
            "spec": { "drivers": [{ "name": DRIVER, "nodeID": server, "topologyKeys": [] }] },
        });
        let drivers: Api<CSINode> = Api::all(self.client.clone());
        drivers.create(&PostParams::default(), &serde_json::from_value(driver)?).await?;
        self.say(name, "True").await
    }

    /// Says whether a Node is ready, as its kubelet would, or as the control plane would after a silence: `True`, `False`
    /// or `Unknown`.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn say(&self, name: &str, ready: &str) -> Result<()> {
        let now = jiff::Timestamp::now().to_string();
        let status: Value = json!({ "status": { "conditions": [{
            "type": "Ready", "status": ready, "reason": "Test",
            "lastHeartbeatTime": now, "lastTransitionTime": now }] } });
        let nodes: Api<Node> = Api::all(self.client.clone());
        nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }
}
