//! The journal of an attachment. ADD writes it before its first step and completes it after its last one. DEL removes it after its last step.
//! So an interrupted call leaves all that the next ADD, DEL or GC needs to clean up.

use std::path::Path;

use common::netlink::link::Link;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::{Folder, Owner};
use crate::plan::Desired;
use crate::plan::undo::Undo;

/// `<run directory>/attachments/<container>@<interface>.json`. CHECK reads the [`Made`] part. The others ignore it, so that DEL also works
/// with a file of a later version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attachment<M = IgnoredAny> {
    /// The attachment.
    #[serde(flatten)]
    pub owner: Owner,
    /// For DEL.
    pub undo: Undo,
    /// None until ADD has completed.
    pub made: Option<M>,
}

/// The attachment as ADD has made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// With the actual master, hardware address and MTU; values that only ADD needs are empty.
    pub desired: Desired,
    /// The fingerprint of its tables ([`mod@crate::nftables::fingerprint`]).
    pub firewall: String,
}

impl<M> AsRef<Owner> for Attachment<M> {
    fn as_ref(&self) -> &Owner {
        &self.owner
    }
}

/// The folder of all records of the node.
#[must_use]
pub fn folder(run_directory: &Path) -> Folder {
    Folder::new(run_directory, "attachments", false)
}

impl Attachment<Made> {
    /// The desired state and the fingerprint, if ADD has completed.
    #[must_use]
    pub fn made(self) -> Option<Made> {
        let Made { desired, firewall } = self.made?;
        let desired = Desired { interface: self.owner.interface, ..desired };
        Some(Made { desired, firewall })
    }
}

impl Made {
    /// After the last step, with the created `link`.
    #[must_use]
    pub fn new(desired: &Desired, link: &Link, firewall: String) -> Self {
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
        Self { desired, firewall }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;
    use crate::config::destinations::{Destinations, Protocol, Redirect};
    use crate::config::interface::{IpvlanMode, Kind, MacvlanMode};
    use crate::config::ip::Gateways;
    use crate::plan::simulated::link;
    use crate::record::PodNetns;

    #[test]
    fn a_stored_attachment_is_read_unchanged() {
        for kind in [Kind::Macvlan(MacvlanMode::Passthru), Kind::Ipvlan(IpvlanMode::L3s)] {
            let desired = Desired {
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
            let owner = Owner {
                container_id: "c".into(),
                ifname: "eth0".into(),
                network: "n".into(),
                interface: desired.interface.clone(),
                netns: PodNetns { path: "/run/netns/x".into(), identity: (1, 2) },
            };
            let link = Link { mac: desired.mac, mtu: 1400, ..link(9, "egress0", "macvlan") };
            let mut record =
                Attachment { owner, undo: Undo { slot: 1, order: 1, ..Undo::default() }, made: None };
            let written = |record: &Attachment<Made>| serde_json::to_value(record).unwrap();
            assert_eq!(serde_json::from_value::<Attachment<Made>>(written(&record)).unwrap(), record);
            assert_eq!(record.clone().made(), None, "ADD has not completed");
            record.made = Some(Made::new(&desired, &link, "1ab".into()));
            let read: Attachment<Made> = serde_json::from_value(written(&record)).unwrap();
            let made = read.made().unwrap();
            assert_eq!((made.desired, made.firewall.as_str()), (desired.clone(), "1ab"));
            let stacked = Made::new(&desired, &Link { parent: Some(3), ..link }, String::new());
            assert_eq!(stacked.desired.master, 3);
            // A later version has further fields and modes.
            let mut later = written(&record);
            later["later"] = 1.into();
            later["undo"]["later"] = 1.into();
            later["netns"]["later"] = 1.into();
            later["made"]["desired"]["mode"] = "later".into();
            let read: Attachment = serde_json::from_value(later).unwrap();
            assert_eq!((&read.owner, &read.undo), (&record.owner, &record.undo));
            assert!(read.made.is_some());
        }
    }
}
