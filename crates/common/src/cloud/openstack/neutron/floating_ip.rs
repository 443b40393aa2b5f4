//! Floating IPs.

use serde::{Deserialize, Serialize};

use super::LIMIT;
use crate::cloud::field::or_empty;
use crate::cloud::openstack::Cloud;
use crate::cloud::openstack::error::Error;
use crate::cloud::openstack::request::ApiRequest;
use crate::cloud::openstack::rights::Call;

/// Alias of the extension that brings routers and floating IPs.
const L3: &str = "router";

/// A floating IP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatingIp {
    /// Its ID.
    pub id: String,
    /// The address.
    pub floating_ip_address: String,
    /// What its maker wrote there; may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// The port it leads to; None if to none.
    #[serde(default)]
    pub port_id: Option<String>,
    /// Whose it is.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
    /// Its tags.
    #[serde(default, deserialize_with = "or_empty")]
    pub tags: Vec<String>,
}

impl Cloud {
    /// `GET /v2.0/floatingips` (role `reader`): all of the project's. None where Neutron has no L3 plugin, which its
    /// `GET /v2.0/extensions` (any role) tells.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn floating_ips(&self) -> Result<Vec<FloatingIp>, Error> {
        let project = self.project_id().await?;
        let query = [("project_id", project.as_str()), LIMIT];
        let found: Result<Vec<FloatingIp>, Error> =
            self.list(ApiRequest::all(Call::FloatingIps, &query), "floatingips").await;
        // Without the plugin Neutron does not know the path; a proxy that has lost its way answers the same.
        if found.as_ref().is_err_and(Error::is_unknown_path) && !self.extensions().await?.contains(L3) {
            return Ok(Vec::new());
        }
        found
    }

    /// `GET /v2.0/floatingips/{id}` (role `reader`); None if Neutron says that there is none.
    ///
    /// # Errors
    /// Those of every read.
    pub async fn floating_ip(&self, id: &str) -> Result<Option<FloatingIp>, Error> {
        self.find(&ApiRequest::one(Call::FloatingIp, id), "floatingip").await
    }

    /// `DELETE /v2.0/floatingips/{id}` (role `member`): gives the address back. Gone already is Ok.
    ///
    /// # Errors
    /// Those of every write.
    pub async fn delete_floating_ip(&self, id: &str) -> Result<(), Error> {
        self.delete(&ApiRequest::one(Call::DeleteFloatingIp, id)).await
    }
}
