//! The router of a project, and its routes.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Project;
use crate::openstack::Service;
use crate::openstack::api::text;

impl Project {
    /// The router as it is: `routes`, `revision_number` and so on.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn router(&self) -> Result<Value> {
        let response = self.api.get(Service::Network, &format!("/routers/{}", self.router)).await?;
        response.get("router").cloned().context("no router")
    }

    /// Its routes, in order: destination and next hop.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn routes(&self) -> Result<Vec<(String, String)>> {
        let router = self.router().await?;
        let routes = router.get("routes").and_then(Value::as_array).context("no routes")?;
        let routes =
            routes.iter().map(|each| anyhow::Ok((text(each, "destination")?, text(each, "nexthop")?)));
        let mut routes = routes.collect::<Result<Vec<_>>>()?;
        routes.sort();
        Ok(routes)
    }

    /// Adds routes to the router by the atomic call.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn add_routes(&self, routes: &[(&str, &str)]) -> Result<()> {
        self.extra_routes("add", routes).await
    }

    /// Removes routes from the router by the atomic call.
    ///
    /// # Errors
    /// Neutron refuses.
    pub async fn remove_routes(&self, routes: &[(&str, &str)]) -> Result<()> {
        self.extra_routes("remove", routes).await
    }

    async fn extra_routes(&self, verb: &str, routes: &[(&str, &str)]) -> Result<()> {
        let routes: Vec<_> =
            routes.iter().map(|(to, via)| json!({ "destination": to, "nexthop": via })).collect();
        let path = format!("/routers/{}/{verb}_extraroutes", self.router);
        self.api.put(Service::Network, &path, json!({ "router": { "routes": routes } })).await.map(drop)
    }
}
