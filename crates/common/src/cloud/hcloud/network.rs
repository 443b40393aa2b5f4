//! Networks and their routes.

use std::fmt;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};

use crate::cloud::or_empty;

/// A private network, as much of it as is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// ID.
    pub id: u64,
    /// Unique in its project.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// All addresses that it can ever have.
    pub ip_range: Ipv4Net,
    /// Subnets, each inside `ip_range`. Those of IPv6 are skipped.
    #[serde(default, deserialize_with = "super::readable")]
    pub subnets: Vec<Subnet>,
    /// Routes; their destinations do not overlap. Those of IPv6 are skipped.
    #[serde(default, deserialize_with = "super::readable")]
    pub routes: Vec<Route>,
    /// IDs of the attached servers.
    #[serde(default, deserialize_with = "or_empty")]
    pub servers: Vec<u64>,
}

impl Network {
    /// The network's own router: the first address of its range. It is the next hop of every server, and cannot be the gateway
    /// of a [`Route`].
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.ip_range.network().to_bits().saturating_add(1))
    }

    /// The route for everything that no other route or subnet takes, if there is one.
    #[must_use]
    pub fn default_route(&self) -> Option<&Route> {
        self.routes.iter().find(|route| route.destination.prefix_len() == 0)
    }
}

/// A subnet of a network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// `cloud`, `server`, `vswitch`, or a newer type. An address in a `vswitch` subnet cannot be the gateway of a route.
    #[serde(default, rename = "type", deserialize_with = "or_empty")]
    pub kind: String,
    /// None while the API has not chosen it.
    #[serde(default)]
    pub ip_range: Option<Ipv4Net>,
}

/// Traffic to `destination` goes to the server that has `gateway`. It cannot be changed, only deleted and added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Route {
    /// A private range, or 0.0.0.0/0.
    pub destination: Ipv4Net,
    /// A server's address in the same network.
    pub gateway: Ipv4Addr,
}

impl Route {
    /// 0.0.0.0/0 through `gateway`.
    #[must_use]
    pub fn default_via(gateway: Ipv4Addr) -> Route {
        Route { destination: Ipv4Net::default(), gateway }
    }
}

/// `0.0.0.0/0 via 10.0.0.2`
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {}", self.destination, self.gateway)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_read_is_needed() {
        let network: Network = serde_json::from_str(
            r#"{"id": 4711, "ip_range": "10.1.0.0/16", "unheard": {"of": 1},
                "subnets": [{"type": "quantum", "ip_range": null}, {"type": "cloud", "ip_range": "10.1.1.0/24"}],
                "routes": [{"destination": "10.100.1.0/24", "gateway": "10.1.1.1"}, {"destination": "0.0.0.0/0", "gateway": "10.1.1.2"}]}"#,
        )
        .unwrap();
        assert_eq!(network.gateway(), Ipv4Addr::new(10, 1, 0, 1));
        assert_eq!(network.default_route(), Some(&Route::default_via(Ipv4Addr::new(10, 1, 1, 2))));
        assert_eq!(network.subnets[0].kind, "quantum");
    }

    #[test]
    fn nulls_and_what_is_not_ipv4_spoil_nothing() {
        let network: Network = serde_json::from_str(
            r#"{"id": 4711, "name": null, "ip_range": "10.1.0.0/16", "servers": null,
                "subnets": [{"type": "cloud", "ip_range": "fd00::/64"}, {"type": null, "ip_range": "10.1.1.0/24"}],
                "routes": [{"destination": "::/0", "gateway": "fd00::2"}, {"destination": "0.0.0.0/0", "gateway": "10.1.1.2"}]}"#,
        )
        .unwrap();
        assert_eq!((network.subnets.len(), network.routes.len(), network.servers.len()), (1, 1, 0));
        assert_eq!(network.default_route(), Some(&Route::default_via(Ipv4Addr::new(10, 1, 1, 2))));
        let bare = r#"{"id": 4711, "ip_range": "10.1.0.0/16", "subnets": null, "routes": null}"#;
        assert_eq!(serde_json::from_str::<Network>(bare).unwrap().default_route(), None);
    }

    #[test]
    fn the_gateway_is_of_the_network_not_of_the_address_as_written() {
        let network: Network = serde_json::from_str(r#"{"id": 1, "ip_range": "10.1.7.9/16"}"#).unwrap();
        assert_eq!(network.gateway(), Ipv4Addr::new(10, 1, 0, 1));
    }
}
