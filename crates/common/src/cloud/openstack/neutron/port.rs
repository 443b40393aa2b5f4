//! Ports: who has which address.

use serde::{Deserialize, Deserializer, Serialize};

use super::LIMIT;
use crate::cloud::openstack::Cloud;
use crate::cloud::openstack::error::Error;
use crate::cloud::openstack::request::ApiRequest;
use crate::cloud::openstack::rights::Call;
use crate::cloud::or_empty;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its ID.
    pub id: String,
    /// Its name; may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// The network it is on.
    pub network_id: String,
    /// ID of the project that owns it.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
    /// The same under its name of before 2016; some clouds have only this field.
    #[serde(default, deserialize_with = "or_empty", skip_serializing)]
    pub tenant_id: String,
    /// The server, router, … that has it; empty if none.
    #[serde(default, deserialize_with = "or_empty")]
    pub device_id: String,
    /// Type of that device: `compute:<zone>`, `network:router_interface`, …; empty if none.
    #[serde(default, deserialize_with = "or_empty")]
    pub device_owner: String,
    /// Its addresses.
    pub fixed_ips: Vec<FixedIp>,
    /// Addresses beyond its own that it may send from.
    #[serde(default, deserialize_with = "or_empty")]
    pub allowed_address_pairs: Vec<AddressPair>,
    /// Whether it may send from these addresses only; false: from any. A Neutron without the field restricts every port.
    #[serde(default = "secured", deserialize_with = "or_secured")]
    pub port_security_enabled: bool,
}

/// An address of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedIp {
    /// The subnet it is of.
    pub subnet_id: String,
    /// The address.
    pub ip_address: String,
}

/// An address that a port may use beside its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressPair {
    /// An address or a CIDR.
    pub ip_address: String,
}

/// The fields that are read. A whole port is five times as long.
const FIELDS: [(&str, &str); 10] = [
    ("fields", "id"),
    ("fields", "name"),
    ("fields", "network_id"),
    ("fields", "project_id"),
    ("fields", "tenant_id"),
    ("fields", "device_id"),
    ("fields", "device_owner"),
    ("fields", "fixed_ips"),
    ("fields", "allowed_address_pairs"),
    ("fields", "port_security_enabled"),
];

/// Without the extension port-security, Neutron filters what every port sends.
fn secured() -> bool {
    true
}

/// Null counts as an absent field.
fn or_secured<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_else(secured))
}

impl Port {
    /// The project that it belongs to; empty if the service does not say.
    #[must_use]
    pub fn owner(&self) -> &str {
        if self.project_id.is_empty() { &self.tenant_id } else { &self.project_id }
    }
}

impl Cloud {
    /// `GET /v2.0/ports?device_id=` (role `reader`): the ports of a server or router, of all of its networks.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn ports_of_device(&self, device: &str) -> Result<Vec<Port>, Error> {
        self.ports(&[("device_id", device)]).await
    }

    /// `GET /v2.0/ports?network_id=` (role `reader`): the ports on a network: ours, and those of other projects too if the
    /// network is ours.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn ports_of_network(&self, network: &str) -> Result<Vec<Port>, Error> {
        self.ports(&[("network_id", network)]).await
    }

    async fn ports(&self, filter: &[(&str, &str)]) -> Result<Vec<Port>, Error> {
        // An empty filter is none: it would bring all ports of the project.
        if let Some((field, _)) = filter.iter().find(|(_, value)| value.is_empty()) {
            return Err(Error::setup("network GET /ports", format!("{field} is empty")));
        }
        let query = [filter, &FIELDS, &[LIMIT]].concat();
        self.list(ApiRequest::all(Call::Ports, &query), "ports").await
    }
}
