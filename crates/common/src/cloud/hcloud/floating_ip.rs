//! Floating IPs.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// A floating IP, as much of it as is read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FloatingIp {
    /// ID.
    pub id: u64,
    /// An IPv4 address, or an IPv6 range of /64.
    pub ip: String,
    /// The server that it is assigned to.
    #[serde(default)]
    pub server: Option<u64>,
}

impl FloatingIp {
    /// The address, if it is one that a NAT gateway can use.
    #[must_use]
    pub fn ipv4(&self) -> Option<Ipv4Addr> {
        self.ip.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_and_six() {
        let four: FloatingIp = serde_json::from_str(
            r#"{"id": 1, "name": "egress", "ip": "198.51.100.7", "type": "ipv4", "server": 42, "labels": {"pool": "a"}}"#,
        )
        .unwrap();
        assert_eq!((four.ipv4(), four.server), (Some(Ipv4Addr::new(198, 51, 100, 7)), Some(42)));
        let six: FloatingIp =
            serde_json::from_str(r#"{"id": 2, "ip": "2001:db8::/64", "type": "ipv6", "server": null, "name": null, "labels": null}"#)
                .unwrap();
        assert_eq!((six.ipv4(), six.server), (None, None));
    }
}
