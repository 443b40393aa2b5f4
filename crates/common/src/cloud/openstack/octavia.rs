//! Octavia: load balancers.

use serde::{Deserialize, Serialize};

use super::Cloud;
use super::error::Error;
use super::request::ApiRequest;
use super::rights::Call;
use crate::cloud::or_empty;

/// A page; Octavia's cap is 1000.
const LIMIT: (&str, &str) = ("limit", "500");

/// The provisioning status of a deleted load balancer whose row is not purged yet: some responses still show it.
const GONE: &str = "DELETED";

/// A load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancer {
    /// Its ID.
    pub id: String,
    /// Its name; not unique.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its description; may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// `ACTIVE`, `ERROR`, or `PENDING_…` while Octavia works at it and refuses every change.
    pub provisioning_status: String,
    /// Its address.
    #[serde(default)]
    pub vip_address: Option<String>,
    /// The Neutron port that has its address; floating IPs lead to it.
    #[serde(default)]
    pub vip_port_id: Option<String>,
    /// Its project.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
    /// Its tags.
    #[serde(default, deserialize_with = "or_empty")]
    pub tags: Vec<String>,
}

impl LoadBalancer {
    fn stands(&self) -> bool {
        self.provisioning_status != GONE
    }
}

impl Cloud {
    /// `GET /v2/lbaas/loadbalancers/{id}` (role `load-balancer_observer`); None if Octavia reports that it does not exist or is
    /// `DELETED`.
    ///
    /// # Errors
    /// Those of every read.
    pub async fn load_balancer(&self, id: &str) -> Result<Option<LoadBalancer>, Error> {
        let found = self.find(&ApiRequest::one(Call::LoadBalancer, id), "loadbalancer").await?;
        Ok(found.filter(LoadBalancer::stands))
    }

    /// `GET /v2/lbaas/loadbalancers` (role `load-balancer_observer`): all of the project's that are not `DELETED`.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn load_balancers(&self) -> Result<Vec<LoadBalancer>, Error> {
        let project = self.project_id().await?;
        let query = [("project_id", project.as_str()), LIMIT];
        let mut found = self.list(ApiRequest::all(Call::LoadBalancers, &query), "loadbalancers").await?;
        found.retain(LoadBalancer::stands);
        Ok(found)
    }

    /// `DELETE /v2/lbaas/loadbalancers/{id}` (role `load-balancer_member`): begins to delete it, with its listeners, pools and
    /// members if `cascade`. It is gone when [`Cloud::load_balancer`] says so. Gone already is Ok.
    ///
    /// # Errors
    /// [`Error::is_conflict`] while it is `PENDING_…`; [`Error::is_bad_request`] if it has listeners or pools and `cascade` is
    /// not set. Those of every write.
    pub async fn delete_load_balancer(&self, id: &str, cascade: bool) -> Result<(), Error> {
        let request = ApiRequest::one(Call::DeleteLoadBalancer, id);
        let request = if cascade { request.query(&[("cascade", "true")]) } else { request };
        self.delete(&request).await
    }
}
