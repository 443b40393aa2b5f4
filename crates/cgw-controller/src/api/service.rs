//! The annotations of a tenant's Service, which the controller writes and the agents read.

use std::{collections::BTreeMap, net::IpAddr};

use super::address::{Epoch, ParseError, TunId, TunMac, Vip};
use crate::names::{EPOCH, NODE_IP, TUN_ID, TUN_MAC, VIP};

/// The gateway that carries a VIP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gateway {
    /// Main address of its node.
    pub node_ip: IpAddr,
    /// MAC address of its tunnel interface.
    pub tun_mac: TunMac,
}

/// The annotations of a bound Service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The VIP.
    pub vip: Vip,
    /// The binding's number.
    pub tun_id: TunId,
    /// None: no gateway is known. Bound pods must not leave the cluster then.
    pub gateway: Option<Gateway>,
    /// When the gateway became MASTER.
    pub epoch: Epoch,
}

impl Carried {
    /// Reads the annotations of a Service. None: the Service carries no VIP.
    ///
    /// # Errors
    /// An annotation is not in its format. The Service must be treated as bound without a gateway if [`Carried::vip_of`] reads
    /// its VIP.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Option<Carried>, ParseError> {
        let Some(vip) = Carried::vip_of(annotations)? else { return Ok(None) };
        let text = |key: &str| annotations.get(key).map_or("", String::as_str);
        let gateway = match (text(NODE_IP), text(TUN_MAC)) {
            ("", "") => None,
            (node_ip, tun_mac) => Some(Gateway {
                node_ip: node_ip.parse().map_err(|_| ParseError::new(node_ip, "IP address of a node"))?,
                tun_mac: tun_mac.parse()?,
            }),
        };
        let epoch = match text(EPOCH) {
            "" => Epoch::default(),
            text => text.parse()?,
        };
        Ok(Some(Carried { vip, tun_id: text(TUN_ID).parse()?, gateway, epoch }))
    }

    /// Only the VIP.
    ///
    /// # Errors
    /// The annotation is no VIP.
    pub fn vip_of(annotations: &BTreeMap<String, String>) -> Result<Option<Vip>, ParseError> {
        annotations.get(VIP).map(|text| text.parse()).transpose()
    }

    /// The annotations as a bound Service has them.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<&'static str, String> {
        let (node_ip, tun_mac) = self
            .gateway
            .map(|gateway| (gateway.node_ip.to_string(), gateway.tun_mac.to_string()))
            .unwrap_or_default();
        BTreeMap::from([
            (VIP, self.vip.to_string()),
            (NODE_IP, node_ip),
            (TUN_MAC, tun_mac),
            (TUN_ID, self.tun_id.to_string()),
            (EPOCH, self.epoch.to_string()),
        ])
    }

    /// Values of a merge patch that unbinds the Service: None removes the key. Gateway and MAC address become empty, as the seed
    /// says, and the epoch stays.
    #[must_use]
    pub fn unbound() -> BTreeMap<&'static str, Option<String>> {
        BTreeMap::from([
            (VIP, None),
            (TUN_ID, None),
            (NODE_IP, Some(String::new())),
            (TUN_MAC, Some(String::new())),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_back() {
        let gateway = Gateway {
            node_ip: "192.168.50.21".parse().unwrap(),
            tun_mac: "3a:a8:33:5f:e8:d9".parse().unwrap(),
        };
        for gateway in [None, Some(gateway)] {
            let carried = Carried {
                vip: "192.168.50.201".parse().unwrap(),
                tun_id: TunId::new(0xaabb).unwrap(),
                gateway,
                epoch: Epoch(7),
            };
            let annotations: BTreeMap<String, String> =
                carried.annotations().into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
            assert_eq!(Carried::read(&annotations), Ok(Some(carried)));
        }
        assert_eq!(Carried::read(&BTreeMap::from([(NODE_IP.to_owned(), String::new())])), Ok(None));
    }

    #[test]
    fn incomplete_gateways_and_other_texts_are_refused() {
        let base = [(VIP, "192.168.50.201"), (TUN_ID, "0x1"), (NODE_IP, ""), (TUN_MAC, "")];
        for (key, value) in [
            (VIP, "x"),
            (TUN_ID, ""),
            (NODE_IP, "192.168.50.21"),
            (TUN_MAC, "3a:a8:33:5f:e8:d9"),
            (EPOCH, "-"),
        ] {
            let mut annotations: BTreeMap<String, String> =
                base.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
            annotations.insert(key.to_owned(), value.to_owned());
            assert!(Carried::read(&annotations).is_err(), "{key}={value}");
        }
    }
}
