//! Further resources of a project: floating IPs, servers, volumes, snapshots, load balancers.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Project;
use crate::openstack::Service;
use crate::openstack::api::text;

impl Project {
    /// A floating IP with this description: its ID.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn floating_ip(&self, description: &str) -> Result<String> {
        let body = json!({ "floating_network_id": self.public_network, "description": description });
        text(&self.api.create(Service::Network, "/floatingips", "floatingip", body).await?, "id")
    }

    /// A server in the network, booted: ID and address.
    ///
    /// # Errors
    /// Nova refuses, or the boot fails.
    pub async fn server(&self, name: &str) -> Result<(String, String)> {
        let image = self.image.as_deref().context("there is no Nova: ask for Parts::All")?;
        let server = json!({
            "name": name, "imageRef": image, "flavorRef": "42", "networks": [{ "uuid": self.network }] });
        let server = self.api.create(Service::Compute, "/servers", "server", server).await?;
        let id = text(&server, "id")?;
        let server =
            self.settle(Service::Compute, &format!("/servers/{id}"), "server", "status", "ACTIVE").await?;
        let address = server.pointer("/addresses/nodes/0").context("a server without an address")?;
        Ok((id, text(address, "addr")?))
    }

    /// Deletes a server, and waits until it is gone.
    ///
    /// # Errors
    /// Nova refuses.
    pub async fn delete_server(&self, id: &str) -> Result<()> {
        let path = format!("/servers/{id}");
        self.api.delete(Service::Compute, &path).await?;
        self.gone(Service::Compute, &path).await
    }

    /// A volume of 1 GiB with these metadata, available: its ID.
    ///
    /// # Errors
    /// Cinder refuses.
    pub async fn volume(&self, name: &str, metadata: Value) -> Result<String> {
        let volume = json!({ "name": name, "size": 1, "metadata": metadata });
        let volume = self.api.create(Service::BlockStorage, "/volumes", "volume", volume).await?;
        let id = text(&volume, "id")?;
        self.settle(Service::BlockStorage, &format!("/volumes/{id}"), "volume", "status", "available")
            .await?;
        Ok(id)
    }

    /// A snapshot of a volume, available: its ID.
    ///
    /// # Errors
    /// Cinder refuses.
    pub async fn snapshot(&self, volume: &str, name: &str, metadata: Value) -> Result<String> {
        let snapshot = json!({ "name": name, "volume_id": volume, "metadata": metadata });
        let snapshot = self.api.create(Service::BlockStorage, "/snapshots", "snapshot", snapshot).await?;
        let id = text(&snapshot, "id")?;
        self.settle(Service::BlockStorage, &format!("/snapshots/{id}"), "snapshot", "status", "available")
            .await?;
        Ok(id)
    }

    /// A load balancer with its virtual address in the subnet, active: its ID.
    ///
    /// # Errors
    /// Octavia refuses.
    pub async fn load_balancer(&self, name: &str, description: &str) -> Result<String> {
        let body = json!({ "name": name, "description": description, "vip_subnet_id": self.subnet });
        let made = self.api.create(Service::LoadBalancer, "/loadbalancers", "loadbalancer", body).await?;
        let id = text(&made, "id")?;
        let path = format!("/loadbalancers/{id}");
        self.settle(Service::LoadBalancer, &path, "loadbalancer", "provisioning_status", "ACTIVE").await?;
        Ok(id)
    }
}
