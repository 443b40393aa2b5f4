//! Neutron: routers and their routes, ports, floating IPs, security groups.
//!
//! Lists of what can belong to other projects name our own, so that a credential with a broad role sees no more of them than
//! one with a narrow role.

mod floating_ip;
mod network;
mod port;
mod router;
mod security_group;
mod subnet;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::Cloud;
use super::error::Error;
use super::request::ApiRequest;
use super::rights::Call;
pub use floating_ip::FloatingIp;
pub use network::Network;
pub use port::{AddressPair, FixedIp, Port};
pub use router::{Gateway, Route, Router};
pub use security_group::SecurityGroup;
pub use subnet::Subnet;

/// What is asked for a page; a server may cap it lower. 500 ports are about 300 KB.
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
    /// Those of every read: no answer, a refusal, a list that is not whole.
    pub async fn extensions(&self) -> Result<BTreeSet<String>, Error> {
        let extensions: Vec<Extension> =
            self.list(ApiRequest::all(Call::Extensions, &[]), "extensions").await?;
        Ok(extensions.into_iter().map(|extension| extension.alias).collect())
    }

    /// `GET /v2.0/quotas/{project}` (role `reader`): how many routes a router may have, -1 for no limit. None where Neutron
    /// has no such quota (before 2026.2), and its `max_routes` counts, which is nowhere to be read.
    ///
    /// # Errors
    /// Those of every read.
    pub async fn quota_router_route(&self) -> Result<Option<i64>, Error> {
        let project = self.project_id().await?;
        let mut quota: BTreeMap<String, Value> =
            self.read(&ApiRequest::one(Call::Quota, &project), "quota").await?;
        Ok(quota.remove("router_route").and_then(|limit| limit.as_i64()))
    }
}
