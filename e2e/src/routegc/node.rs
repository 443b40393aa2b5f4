//! Nodes of a test environment: the port of a server, the route to its pods and, if routegc reads Nodes, the Node object.

use anyhow::Result;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::TestEnv;
use crate::openstack::Service;
use crate::rights::Rights;

impl TestEnv {
    /// Nodes 1 to `nodes`, and after them as many orphaned routes, with two calls of Neutron.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn populate(&self, nodes: u8, orphaned: u8) -> Result<()> {
        let port = |number| self.project.new_port(Some(&hop(number)), Some(&server(number)));
        if nodes > 0 {
            let ports = (1..=nodes).map(port).collect::<Vec<_>>().into();
            self.project.api().create(Service::Network, "/ports", "ports", ports).await?;
        }
        if let Some(nova) = &self.nova {
            (1..=nodes).for_each(|number| nova.add(&server(number), &hop(number)));
        }
        let routes: Vec<_> = (1..=nodes + orphaned).map(|number| (pods(number), hop(number))).collect();
        let routes: Vec<_> = routes.iter().map(|(pods, hop)| (pods.as_str(), hop.as_str())).collect();
        self.project.add_routes(&routes).await
    }

    /// A node: a server's port with address 10.7.1.`number`, and the route to its pods, 10.244.`number`.0/24. Returns the port's ID.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn node(&self, number: u8) -> Result<String> {
        let server = server(number);
        let port = self.project.port(Some(&hop(number)), Some(&server)).await?;
        if let Some(nova) = &self.nova {
            nova.add(&server, &hop(number));
        }
        self.project.add_routes(&[(&pods(number), &hop(number))]).await?;
        Ok(port)
    }

    /// The route of node `number` without a port for its next hop.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn orphaned_route(&self, number: u8) -> Result<()> {
        self.project.add_routes(&[(&pods(number), &hop(number))]).await
    }

    /// Gives routegc the permissions of a component: `routegc-nodes`.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn grant(&self, component: &str) -> Result<()> {
        let rights = Rights::of("routegc")?.and(component)?;
        rights.give(&self.client, &self.namespace).await.map(drop)
    }

    /// Creates a Node object. All environments of a test program share the cluster, so its name begins with that of the namespace, and its
    /// address must not be used by another test.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn cluster_node(&self, number: u8, address: &str, server: &str) -> Result<String> {
        let name = format!("{}-{number}", self.namespace);
        let node: Node = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": {
                "podCIDR": pods(number), "podCIDRs": [pods(number)], "providerID": format!("openstack:///{server}"),
            },
        }))?;
        let nodes = Api::<Node>::all(self.client.clone());
        nodes.create(&PostParams::default(), &node).await?;
        let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } });
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(name)
    }

    /// Deletes such a Node.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn delete_cluster_node(&self, name: &str) -> Result<()> {
        Api::<Node>::all(self.client.clone()).delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Destinations of the router's routes, in order.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn destinations(&self) -> Result<Vec<String>> {
        Ok(self.project.routes().await?.into_iter().map(|(destination, _)| destination).collect())
    }
}

/// ID of the server of the node of this number.
fn server(number: u8) -> String {
    format!("00000000-0000-4000-8000-0000000000{number:02x}")
}

/// Address of the node of this number.
#[must_use]
pub fn hop(number: u8) -> String {
    format!("10.7.1.{number}")
}

/// Pod network of the node of this number.
#[must_use]
pub fn pods(number: u8) -> String {
    format!("10.244.{number}.0/24")
}
