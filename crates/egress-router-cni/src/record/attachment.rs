//! The record of an attachment: its desired state, for CHECK, and a copy of its table's record, in case the table is flushed.

use std::path::Path;

use common::netlink::link::Link;
use serde::{Deserialize, Serialize};

use super::{Folder, Owned, PodNetns};
use crate::plan::Desired;

/// `<run directory>/attachments/<container>@<interface>.json`. It exists once ADD has completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    /// With the actual master, hardware address and MTU; values that only ADD needs are empty.
    #[serde(flatten)]
    pub desired: Desired,
    /// The pod's namespace.
    pub netns: PodNetns,
    /// The record in the table ([`crate::plan::table_record`]).
    pub table_record: Vec<String>,
    /// The fingerprint of its table ([`mod@crate::nftables::fingerprint`]).
    #[serde(default)]
    pub firewall: Option<String>,
}

impl Owned for Attachment {
    fn container_id(&self) -> &str {
        &self.desired.identity.container_id
    }

    fn interface(&self) -> &str {
        &self.desired.interface
    }
}

/// The folder of all records of the node.
#[must_use]
pub fn folder(run_directory: &Path) -> Folder {
    Folder::new(run_directory, "attachments", false)
}

impl Attachment {
    /// The record after ADD, with the created `link`.
    #[must_use]
    pub fn new(
        desired: &Desired,
        link: &Link,
        netns: PodNetns,
        table_record: Vec<String>,
        firewall: Option<String>,
    ) -> Self {
        let desired = Desired {
            // A link that is created on a macvlan gets that one's master (macvlan_common_newlink in linux/drivers/net/macvlan.c).
            master: link.parent.unwrap_or(desired.master),
            mtu: Some(link.mtu),
            mac: link.mac,
            node_addresses: Vec::new(),
            cluster_networks: Vec::new(),
            previous: None,
            ..desired.clone()
        };
        Self { desired, netns, table_record, firewall }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::config::destinations::{Destinations, Protocol, Redirect};
    use crate::config::interface::{IpvlanMode, Kind, MacvlanMode};
    use crate::config::ip::Gateways;
    use crate::plan::Identity;
    use crate::plan::simulated::link;

    #[test]
    fn a_stored_attachment_is_read_unchanged() {
        for kind in [Kind::Macvlan(MacvlanMode::Passthru), Kind::Ipvlan(IpvlanMode::L3s)] {
            let desired = Desired {
                identity: Identity { container_id: "c".into(), ifname: "eth0".into(), network: "n".into() },
                interface: "egress0".into(),
                kind,
                master: 4,
                node_addresses: Vec::new(),
                mtu: Some(1400),
                mac: Some([2, 0, 0, 0, 0, 1]),
                addresses: vec!["10.0.0.9/24".parse().unwrap(), "fd00::9/64".parse().unwrap()],
                gateways: Gateways { v4: Some(Ipv4Addr::new(10, 0, 0, 1)), v6: Some(Ipv6Addr::LOCALHOST) },
                destinations: Destinations {
                    allowed: Some(Vec::new()),
                    redirects: [Protocol::Tcp, Protocol::Udp, Protocol::Sctp]
                        .map(|protocol| Redirect {
                            port: 80,
                            protocol,
                            to: "10.1.1.1".parse().unwrap(),
                            to_port: Some(8080),
                        })
                        .to_vec(),
                    fallback_v4: Some(Ipv4Addr::new(10, 1, 1, 2)),
                    fallback_v6: None,
                },
                cluster_networks: Vec::new(),
                previous: None,
            };
            let netns = PodNetns { path: "/run/netns/x".into(), identity: (1, 2) };
            let link = Link { mac: desired.mac, mtu: 1400, ..link(9, "egress0", "macvlan") };
            let record =
                Attachment::new(&desired, &link, netns, vec!["slot 1 order 1".into()], Some("1ab".into()));
            let text = serde_json::to_vec(&record).unwrap();
            let read: Attachment = serde_json::from_slice(&text).unwrap();
            assert_eq!(read, record);
            assert_eq!(read.desired, desired);
            let stacked =
                Attachment::new(&desired, &Link { parent: Some(3), ..link }, record.netns, vec![], None);
            assert_eq!(stacked.desired.master, 3);
        }
    }
}
