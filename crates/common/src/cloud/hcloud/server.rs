//! Servers and where they are in private networks.

use std::net::Ipv4Addr;

use serde::{Deserialize, Deserializer, Serialize};

use crate::cloud::or_empty;

/// A cloud server, as much of it as is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// ID.
    pub id: u64,
    /// Unique in its project.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// One entry for each network that it is attached to, in no order. An entry without an IPv4 address is left out: the
    /// server cannot be reached there.
    #[serde(default, deserialize_with = "addressed")]
    pub private_net: Vec<PrivateNet>,
}

/// A server's place in one network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateNet {
    /// The network's ID.
    pub network: u64,
    /// The address.
    pub ip: Ipv4Addr,
    /// Further addresses.
    #[serde(default)]
    pub alias_ips: Vec<Ipv4Addr>,
}

impl Server {
    /// The address in the network with this ID.
    #[must_use]
    pub fn private_ip(&self, network: u64) -> Option<Ipv4Addr> {
        self.private_net.iter().find(|net| net.network == network).map(|net| net.ip)
    }
}

fn addressed<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PrivateNet>, D::Error> {
    #[derive(Deserialize)]
    struct Entry {
        network: u64,
        #[serde(default)]
        ip: Option<String>,
        #[serde(default, deserialize_with = "or_empty")]
        alias_ips: Vec<String>,
    }
    let entries: Vec<Entry> = or_empty(from)?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| {
            Some(PrivateNet {
                network: entry.network,
                ip: entry.ip?.parse().ok()?,
                alias_ips: entry.alias_ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
            })
        })
        .collect())
}

/// `spec.providerID` of a Node, in the forms that Hetzner's cloud controller manager writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderId {
    /// `hcloud://4711`: a cloud server, by its ID.
    Cloud(u64),
    /// `hrobot://321`, formerly `hcloud://bm-321`: a dedicated server, by its number. It cannot be the gateway of a route.
    Robot(u64),
    /// Empty, another cloud's, or not readable.
    Foreign,
}

impl ProviderId {
    /// Reads a provider ID. Any text that is not Hetzner's is foreign.
    #[must_use]
    pub fn parse(id: &str) -> ProviderId {
        // The old form of a dedicated server has the prefix of a cloud server, so it is tried first.
        let robot = id.strip_prefix("hcloud://bm-").or_else(|| id.strip_prefix("hrobot://"));
        let found = match robot {
            Some(number) => parse(number).map(ProviderId::Robot),
            None => id.strip_prefix("hcloud://").and_then(parse).map(ProviderId::Cloud),
        };
        found.unwrap_or(ProviderId::Foreign)
    }
}

/// Digits only: `u64::from_str` would take a plus sign too.
fn parse(number: &str) -> Option<u64> {
    number.bytes().all(|byte| byte.is_ascii_digit()).then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_chosen_by_network_never_by_position() {
        let server: Server = serde_json::from_str(
            r#"{"id": 42, "name": "node-1", "status": "hibernating", "private_net": [
                {"network": 1, "ip": "10.9.0.3", "alias_ips": [], "mac_address": "86:00:ff:2a:7d:e1"},
                {"network": 4711, "ip": "10.0.0.2", "alias_ips": ["10.0.0.9"]}]}"#,
        )
        .unwrap();
        assert_eq!(server.private_ip(4711), Some(Ipv4Addr::new(10, 0, 0, 2)));
        assert_eq!(server.private_ip(1), Some(Ipv4Addr::new(10, 9, 0, 3)));
        assert_eq!(server.private_ip(2), None);
    }

    #[test]
    fn an_entry_without_an_address_does_not_spoil_the_list() {
        let server: Server = serde_json::from_str(
            r#"{"id": 42, "private_net": [{"network": 1, "ip": null}, {"network": 2, "ip": ""}, {"network": 3},
                {"network": 4, "ip": "10.0.0.2", "alias_ips": null}]}"#,
        )
        .unwrap();
        let nowhere = r#"{"id": 43, "name": null, "status": null, "private_net": null}"#;
        assert_eq!(serde_json::from_str::<Server>(nowhere).unwrap().private_ip(4), None);
        assert_eq!(server.private_net.len(), 1);
        assert_eq!(server.private_ip(1), None);
        assert_eq!(server.private_ip(4), Some(Ipv4Addr::new(10, 0, 0, 2)));
    }

    #[test]
    fn the_three_forms_and_the_rest() {
        for (id, is) in [
            ("hcloud://4711", ProviderId::Cloud(4711)),
            ("hrobot://321", ProviderId::Robot(321)),
            ("hcloud://bm-321", ProviderId::Robot(321)),
            ("", ProviderId::Foreign),
            ("hcloud://", ProviderId::Foreign),
            ("hcloud://bm-", ProviderId::Foreign),
            ("hcloud://+1", ProviderId::Foreign),
            ("hcloud://4711/", ProviderId::Foreign),
            ("hcloud://99999999999999999999", ProviderId::Foreign),
            ("aws:///eu-central-1a/i-0123", ProviderId::Foreign),
            ("kind://docker/kind/kind-control-plane", ProviderId::Foreign),
        ] {
            assert_eq!(ProviderId::parse(id), is, "{id}");
        }
    }
}
