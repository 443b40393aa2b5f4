//! The record of an attachment: its desired state, for CHECK, and a copy of its table's record, in case the table is flushed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use common::netlink::link::Link;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::{Folder, Owned, PodNetns};
use crate::config::destinations::{Destinations, Protocol, Redirect};
use crate::config::interface::{kind_named, mode_name};
use crate::config::ip::Gateways;
use crate::plan::{Desired, Identity};

/// `<run directory>/attachments/<container>@<interface>.json`. It exists once ADD has completed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment {
    container_id: String,
    interface: String,
    ifname: String,
    network: String,
    /// The pod's namespace.
    pub netns: PodNetns,
    /// The record in the table ([`crate::plan::table_record`]).
    pub table_record: Vec<String>,
    /// The fingerprint of its table ([`mod@crate::nftables::fingerprint`]).
    #[serde(default)]
    pub firewall: Option<String>,
    mode: String,
    master: u32,
    mtu: Option<u32>,
    mac: Option<[u8; 6]>,
    addresses: Vec<IpNet>,
    gateway_v4: Option<Ipv4Addr>,
    gateway_v6: Option<Ipv6Addr>,
    allowed: Option<Vec<IpNet>>,
    redirects: Vec<(u16, u8, IpAddr, Option<u16>)>,
    fallback_v4: Option<Ipv4Addr>,
    fallback_v6: Option<Ipv6Addr>,
}

impl Owned for Attachment {
    fn container_id(&self) -> &str {
        &self.container_id
    }

    fn interface(&self) -> &str {
        &self.interface
    }
}

/// The folder of all records of the node.
#[must_use]
pub fn folder(run_directory: &Path) -> Folder {
    Folder::new(run_directory, "attachments", false)
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

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
        let Destinations { allowed, redirects, fallback_v4, fallback_v6 } = desired.destinations.clone();
        Self {
            container_id: desired.identity.container_id.clone(),
            interface: desired.interface.clone(),
            ifname: desired.identity.ifname.clone(),
            network: desired.identity.network.clone(),
            netns,
            table_record,
            firewall,
            mode: mode_name(desired.kind).to_owned(),
            // A link that is created on a macvlan gets that one's master (macvlan_common_newlink in linux/drivers/net/macvlan.c).
            master: link.parent.unwrap_or(desired.master),
            mtu: Some(link.mtu),
            mac: link.mac,
            addresses: desired.addresses.clone(),
            gateway_v4: desired.gateways.v4,
            gateway_v6: desired.gateways.v6,
            allowed,
            redirects: redirects
                .iter()
                .map(|redirect| (redirect.port, redirect.protocol.number(), redirect.to, redirect.to_port))
                .collect(),
            fallback_v4,
            fallback_v6,
        }
    }

    /// Its identity.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            container_id: self.container_id.clone(),
            ifname: self.ifname.clone(),
            network: self.network.clone(),
        }
    }

    /// The desired state, with the actual hardware address and MTU; values that only ADD needs are empty. None if another version of the
    /// program has written an unknown format.
    #[must_use]
    pub fn desired(&self) -> Option<Desired> {
        let kind = kind_named(&self.mode)?;
        let redirects = self.redirects.iter().map(|(port, number, to, to_port)| {
            let protocol = PROTOCOLS.into_iter().find(|protocol| protocol.number() == *number)?;
            Some(Redirect { port: *port, protocol, to: *to, to_port: *to_port })
        });
        Some(Desired {
            identity: self.identity(),
            interface: self.interface.clone(),
            kind,
            master: self.master,
            node_addresses: Vec::new(),
            mtu: self.mtu,
            mac: self.mac,
            addresses: self.addresses.clone(),
            gateways: Gateways { v4: self.gateway_v4, v6: self.gateway_v6 },
            destinations: Destinations {
                allowed: self.allowed.clone(),
                redirects: redirects.collect::<Option<_>>()?,
                fallback_v4: self.fallback_v4,
                fallback_v6: self.fallback_v6,
            },
            cluster_networks: Vec::new(),
            previous: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::interface::{IpvlanMode, Kind, MacvlanMode};
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
                    redirects: PROTOCOLS
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
            assert_eq!(read.desired(), Some(desired.clone()));
            let stacked =
                Attachment::new(&desired, &Link { parent: Some(3), ..link }, record.netns, vec![], None);
            assert_eq!(stacked.desired().map(|desired| desired.master), Some(3));
        }
    }
}
