//! Neutron: routers and their routes, ports, floating IPs, security groups.
//!
//! Lists of what can belong to other projects name our own, so that a credential with a broad role sees no more of them than
//! one with a narrow role.

mod port;
mod router;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Cloud;
use super::error::Error;
use super::request::ApiRequest;
use super::rights::Call;
use crate::cloud::or_empty;
pub use port::{AddressPair, FixedIp, Port};
pub use router::{Gateway, Route, Router};

/// The page size; a server may have a lower limit. 500 ports are about 300 KB.
pub(super) const LIMIT: (&str, &str) = ("limit", "500");

#[derive(Deserialize)]
struct Extension {
    alias: String,
}

impl Cloud {
    /// `GET /v2.0/extensions` (any role): the aliases of what this Neutron can do, such as `extraroute-atomic`,
    /// `revision-if-match` and `standard-attr-revisions`.
    ///
    /// # Errors
    /// Those of every read: no response, a refusal, an incomplete list.
    pub async fn extensions(&self) -> Result<BTreeSet<String>, Error> {
        let extensions: Vec<Extension> =
            self.list(ApiRequest::all(Call::Extensions, &[]), "extensions").await?;
        Ok(extensions.into_iter().map(|extension| extension.alias).collect())
    }

    /// `GET /v2.0/quotas/{project}` (role `reader`): how many routes a router may have, -1 for no limit. None where Neutron
    /// has no such quota (before 2026.2): its `max_routes` applies, which no API shows.
    ///
    /// # Errors
    /// Those of every read.
    pub async fn quota_router_route(&self) -> Result<Option<i64>, Error> {
        let project = self.project_id().await?;
        let mut quota: BTreeMap<String, Value> =
            self.object(&ApiRequest::one(Call::Quota, &project), "quota").await?;
        Ok(quota.remove("router_route").and_then(|limit| limit.as_i64()))
    }
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its ID.
    pub id: String,
    /// Its name; not unique, may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its project.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
    /// Its project as it was called before 2016; some clouds have only this field.
    #[serde(default, deserialize_with = "or_empty", skip_serializing)]
    pub tenant_id: String,
}

impl Network {
    /// The project that it belongs to: only the owner of a network sees the ports of other projects on it. Empty if the
    /// service does not say.
    #[must_use]
    pub fn owner(&self) -> &str {
        if self.project_id.is_empty() { &self.tenant_id } else { &self.project_id }
    }
}

impl Cloud {
    /// `GET /v2.0/networks/{id}` (role `reader`).
    ///
    /// # Errors
    /// [`Error::is_not_found`] if no such network is visible; those of every read.
    pub async fn network(&self, id: &str) -> Result<Network, Error> {
        self.object(&ApiRequest::one(Call::Network, id), "network").await
    }
}

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// Its ID.
    pub id: String,
    /// The network that it is part of.
    pub network_id: String,
    /// Its range.
    pub cidr: String,
}

impl Cloud {
    /// `GET /v2.0/subnets?network_id=` (role `reader`): the subnets of a network that is ours or shared with us.
    ///
    /// # Errors
    /// When `network` is empty; those of every list.
    pub async fn subnets_of_network(&self, network: &str) -> Result<Vec<Subnet>, Error> {
        // An empty filter is none: it would bring all subnets of the project.
        if network.is_empty() {
            return Err(Error::setup("network GET /subnets", "network_id is empty"));
        }
        let query =
            [("network_id", network), ("fields", "id"), ("fields", "network_id"), ("fields", "cidr"), LIMIT];
        self.list(ApiRequest::all(Call::Subnets, &query), "subnets").await
    }
}

/// Alias of the extension that brings routers and floating IPs.
const L3: &str = "router";

/// A floating IP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatingIp {
    /// Its ID.
    pub id: String,
    /// The address.
    pub floating_ip_address: String,
    /// Its description; may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// The port that it is associated with, if any.
    #[serde(default)]
    pub port_id: Option<String>,
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
        // Without the plugin Neutron does not know the path; a misconfigured proxy returns the same status.
        if found.as_ref().is_err_and(Error::is_unknown_path) && !self.extensions().await?.contains(L3) {
            return Ok(Vec::new());
        }
        found
    }

    /// `DELETE /v2.0/floatingips/{id}` (role `member`): releases the address. Gone already is Ok.
    ///
    /// # Errors
    /// Those of every write.
    pub async fn delete_floating_ip(&self, id: &str) -> Result<(), Error> {
        self.delete(&ApiRequest::one(Call::DeleteFloatingIp, id)).await
    }
}

/// A security group, without its rules.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Its ID.
    pub id: String,
    /// Its name; not unique.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Its description; may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub description: String,
    /// Its project.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
}

/// Without its rules, which are not read and can be hundreds.
const SECURITY_GROUP_FIELDS: [(&str, &str); 4] =
    [("fields", "id"), ("fields", "name"), ("fields", "description"), ("fields", "project_id")];

impl Cloud {
    /// `GET /v2.0/security-groups` (role `reader`): all of the project's.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn security_groups(&self) -> Result<Vec<SecurityGroup>, Error> {
        let project = self.project_id().await?;
        let query = [&[("project_id", project.as_str())][..], &SECURITY_GROUP_FIELDS, &[LIMIT]].concat();
        self.list(ApiRequest::all(Call::SecurityGroups, &query), "security_groups").await
    }

    /// `DELETE /v2.0/security-groups/{id}` (role `member`). Gone already is Ok.
    ///
    /// # Errors
    /// [`Error::is_conflict`] of kind `SecurityGroupInUse` while a port has it. Those of every write.
    pub async fn delete_security_group(&self, id: &str) -> Result<(), Error> {
        self.delete(&ApiRequest::one(Call::DeleteSecurityGroup, id)).await
    }
}
