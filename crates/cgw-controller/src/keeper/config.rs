//! The configuration of one virtual router, checked before anything is touched.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use common::args::duration;
use common::config::Error;
use common::validation::is_dns_subdomain;
use serde::{Deserialize, Deserializer, de};

use crate::agent::vxlan::plan::DEVICE;
use crate::api::address::{Vip, VipRange};

/// The most VIPs of a virtual router. keepalived sends gratuitous ARP for each of them several times at a promotion.
pub const MOST_VIPS: usize = 4096;

/// VRRPv3 has 12 bits of centiseconds (RFC 9568, 5.2.7).
const LONGEST_ADVERT: Duration = Duration::from_millis(40_950);

/// Below this, a busy node loses adverts by late scheduling alone.
const SHORTEST_ADVERT: Duration = Duration::from_millis(20);

/// The most peers: each of them gets each advert.
const MOST_PEERS: usize = 64;

/// The YAML file. The same one serves all nodes of the virtual router.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct File {
    /// Virtual router ID, 1 to 255, the same on all nodes and unique in their network.
    pub vrid: u8,
    /// Interface of the node's main address, for adverts.
    pub interface: String,
    /// VIPs of the virtual router.
    pub vips: Vec<VipRange>,
    /// Interface that carries the VIPs; `interface` by default.
    pub vip_interface: Option<String>,
    /// Tunnel interface: `cgw0` (driver vxlan) or `tun0` (driver ovs).
    #[serde(default = "tunnel_interface")]
    pub tunnel_interface: String,
    /// Main addresses of the gateway nodes. The node's own one has no effect.
    pub peers: Vec<IpAddr>,
    /// VRRP priority, 1 to 254; by default derived from the order of the addresses.
    pub priority: Option<u8>,
    /// Interval of adverts: a whole number of centiseconds.
    #[serde(default = "advert_interval", deserialize_with = "duration_text")]
    pub advert_interval: Duration,
    /// Interval of keepalived's check script: whole seconds.
    #[serde(default = "check_interval", deserialize_with = "duration_text")]
    pub check_interval: Duration,
    /// Port of the status server; 63000 + vrid by default.
    pub status_port: Option<u16>,
    /// Whether a node with a higher priority takes over from a MASTER that works.
    #[serde(default)]
    pub preempt: bool,
}

fn tunnel_interface() -> String {
    DEVICE.to_owned()
}

fn advert_interval() -> Duration {
    Duration::from_millis(200)
}

fn check_interval() -> Duration {
    Duration::from_secs(1)
}

fn duration_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    duration::parse(&text).map_err(de::Error::custom)
}

/// A virtual router on this node: every value is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Router {
    /// Virtual router ID.
    pub vrid: u8,
    /// Name of the Node.
    pub node: String,
    /// Main address of the node.
    pub node_ip: IpAddr,
    /// Interface of adverts.
    pub interface: String,
    /// VIPs, as configured.
    pub vips: Vec<VipRange>,
    /// Interface of the VIPs.
    pub vip_interface: String,
    /// Tunnel interface.
    pub tunnel_interface: String,
    /// Addresses of the other gateway nodes, sorted.
    pub peers: Vec<IpAddr>,
    /// VRRP priority.
    pub priority: u8,
    /// Interval of adverts.
    pub advert_interval: Duration,
    /// Interval of the check script.
    pub check_interval: Duration,
    /// Port of the status server.
    pub status_port: u16,
    /// Whether a higher priority takes over.
    pub preempt: bool,
}

impl Router {
    /// Reads and checks the file for this node.
    ///
    /// # Errors
    /// One line that names the file, the field, and what is allowed.
    pub fn load(path: &Path, node: &str, node_ip: IpAddr) -> Result<Router, Error> {
        let file: File = common::config::load(path)?;
        file.router(node, node_ip).map_err(|message| Error::invalid(path, message))
    }

    /// Whether the address is a VIP of this virtual router.
    #[must_use]
    pub fn serves(&self, address: IpAddr) -> bool {
        Vip::new(address).is_ok_and(|vip| self.vips.iter().any(|range| range.contains(vip)))
    }

    /// The constant address that adverts contain. VIPs come and go, and a peer refuses adverts with other addresses than its own.
    #[must_use]
    pub fn anchor(&self) -> IpAddr {
        if self.node_ip.is_ipv4() {
            Ipv4Addr::new(169, 254, self.vrid, 1).into()
        } else {
            // keepalived takes only a link-local address as the first one of IPv6.
            Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x63, 0x6777, self.vrid.into()).into()
        }
    }

    /// Whether the process can change to this configuration without a restart.
    ///
    /// # Errors
    /// The field that needs a restart.
    pub fn can_become(&self, next: &Router) -> Result<(), String> {
        let restart = |field: &str| Err(format!("a changed {field} needs a restart of the keeper"));
        match self {
            _ if self.vrid != next.vrid => restart("vrid"),
            _ if self.status_port != next.status_port => restart("statusPort"),
            _ if self.interface != next.interface => restart("interface"),
            _ if self.vip_interface != next.vip_interface => restart("vipInterface"),
            _ => Ok(()),
        }
    }
}

impl File {
    /// Checks the values, and derives those that depend on the node.
    ///
    /// # Errors
    /// One line that names the field and what is allowed.
    pub fn router(self, node: &str, node_ip: IpAddr) -> Result<Router, String> {
        let own = node_address(node_ip)?;
        if !is_dns_subdomain(node) {
            return Err(format!("--node-name: {node:?} is no name of a Node"));
        }
        if self.vrid == 0 {
            return Err("vrid: 0 is not allowed, 1 to 255 is".to_owned());
        }
        let vip_interface = self.vip_interface.unwrap_or_else(|| self.interface.clone());
        for (field, name) in [
            ("interface", &self.interface),
            ("vipInterface", &vip_interface),
            ("tunnelInterface", &self.tunnel_interface),
        ] {
            interface_name(field, name)?;
        }
        let mut gateways: BTreeSet<IpAddr> = BTreeSet::new();
        for peer in self.peers {
            let peer = node_address(peer).map_err(|_| format!("peers: {peer} is no address of a node"))?;
            if peer.is_ipv4() != own.is_ipv4() {
                return Err(format!("peers: {peer} is of another family than the node's address {own}"));
            }
            if !gateways.insert(peer) {
                return Err(format!("peers: {peer} is listed twice"));
            }
        }
        if gateways.len() > MOST_PEERS {
            return Err(format!("peers: {} addresses, at most {MOST_PEERS} are allowed", gateways.len()));
        }
        gateways.insert(own);
        vips(&self.vips, &gateways)?;
        let priority = match self.priority {
            Some(0 | 255) => return Err("priority: 1 to 254 is allowed".to_owned()),
            Some(priority) => priority,
            None => derived_priority(&gateways, own),
        };
        let (least, most) = (SHORTEST_ADVERT, LONGEST_ADVERT);
        let advert = self.advert_interval;
        if !(least..=most).contains(&advert) || !advert.as_micros().is_multiple_of(10_000) {
            return Err(format!(
                "advertInterval: {advert:?} is not allowed, multiples of 10ms from {least:?} to {most:?} are"
            ));
        }
        let check = self.check_interval;
        if !(1..=60).contains(&check.as_secs()) || check.subsec_nanos() != 0 {
            return Err(format!("checkInterval: {check:?} is not allowed, whole seconds from 1s to 60s are"));
        }
        if self.status_port == Some(0) {
            return Err("statusPort: 0 is not allowed, 1 to 65535 is".to_owned());
        }
        gateways.remove(&own);
        Ok(Router {
            vrid: self.vrid,
            node: node.to_owned(),
            node_ip: own,
            interface: self.interface,
            vips: self.vips,
            vip_interface,
            tunnel_interface: self.tunnel_interface,
            peers: gateways.into_iter().collect(),
            priority,
            advert_interval: advert,
            check_interval: check,
            status_port: self.status_port.unwrap_or(63_000 + u16::from(self.vrid)),
            preempt: self.preempt,
        })
    }
}

/// An address that a node can have in its network. The rules are those of a VIP.
fn node_address(address: IpAddr) -> Result<IpAddr, String> {
    Vip::new(address).map(Vip::address).map_err(|_| format!("--node-ip: {address} is no address of a node"))
}

/// The names that both the kernel and keepalived's configuration take.
fn interface_name(field: &str, name: &str) -> Result<(), String> {
    let usable = (1..=15).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
        && name.bytes().any(|byte| byte.is_ascii_alphanumeric());
    usable.then_some(()).ok_or_else(|| {
        format!("{field}: {name:?} is not allowed, 1 to 15 letters, digits, '.', '_' and '-' are")
    })
}

/// Each VIP once, and none that is a node's address.
fn vips(ranges: &[VipRange], gateways: &BTreeSet<IpAddr>) -> Result<(), String> {
    if ranges.is_empty() {
        return Err("vips: at least one VIP is needed".to_owned());
    }
    let mut all = BTreeSet::new();
    for vip in ranges.iter().flat_map(|range| range.iter()) {
        if gateways.contains(&vip.address()) {
            return Err(format!("vips: {vip} is the address of a gateway node"));
        }
        if !all.insert(vip) {
            return Err(format!("vips: {vip} is listed twice"));
        }
        if all.len() > MOST_VIPS {
            return Err(format!("vips: more than {MOST_VIPS} VIPs; use several virtual routers"));
        }
    }
    Ok(())
}

/// Different for each gateway node, so that two candidates do not become MASTER at the same moment: the time until a candidate
/// becomes MASTER depends on the priority. The node with the lowest address has the highest one.
fn derived_priority(gateways: &BTreeSet<IpAddr>, own: IpAddr) -> u8 {
    let rank = gateways.iter().take_while(|gateway| **gateway < own).count();
    let step = (240 / gateways.len().max(1)).clamp(1, 50);
    u8::try_from(250_usize.saturating_sub(rank * step)).unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "vrid: 51\ninterface: eth0\nvips: [192.168.50.201, 192.168.50.210-192.168.50.212]\npeers: [192.168.50.21, 192.168.50.22]\n";

    fn router(text: &str) -> Result<Router, String> {
        let file: File = common::config::parse(Path::new("router.yaml"), text).map_err(|e| e.to_string())?;
        file.router("g1", "192.168.50.21".parse().unwrap())
    }

    impl Router {
        /// That of node g1, with these VIPs, for tests of other modules.
        pub(in crate::keeper) fn sample(vips: &str) -> Router {
            router(&format!("vrid: 51\ninterface: eth0\nvips: [{vips}]\npeers: []\n")).unwrap()
        }
    }

    #[test]
    fn defaults_depend_on_the_node() {
        let router = router(MINIMAL).unwrap();
        assert_eq!(router.peers, ["192.168.50.22".parse::<IpAddr>().unwrap()]);
        assert_eq!((router.status_port, router.priority, router.preempt), (63_051, 250, false));
        assert_eq!((router.vip_interface.as_str(), router.tunnel_interface.as_str()), ("eth0", "cgw0"));
        assert_eq!(router.advert_interval, Duration::from_millis(200));
        assert_eq!(router.anchor().to_string(), "169.254.51.1");
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(router.serves(address("192.168.50.211")) && !router.serves(address("192.168.50.213")));
        let file: File = common::config::parse(Path::new("router.yaml"), MINIMAL).unwrap();
        assert_eq!(file.router("g2", address("192.168.50.22")).unwrap().priority, 200);
    }

    #[test]
    fn derived_priorities_differ_and_are_valid() {
        for count in 1..=u8::try_from(MOST_PEERS).unwrap() {
            let gateways: BTreeSet<IpAddr> = (1..=count).map(|last| IpAddr::from([10, 0, 0, last])).collect();
            let priorities: BTreeSet<u8> =
                gateways.iter().map(|own| derived_priority(&gateways, *own)).collect();
            assert_eq!(priorities.len(), gateways.len());
            assert!(priorities.iter().all(|priority| (1..=254).contains(priority)));
        }
    }

    #[test]
    fn mistakes_name_the_field() {
        for (line, start) in [
            ("vrid: 0", "vrid: "),
            ("interface: 'a b'", "interface: "),
            ("interface: ..", "interface: "),
            ("interface: ''", "interface: "),
            ("interface: eth0eth0eth0eth0", "interface: "),
            ("vips: []", "vips: "),
            ("vips: [10.0.0.1, 10.0.0.1-10.0.0.2]", "vips: 10.0.0.1 is listed twice"),
            ("vips: [192.168.50.22]", "vips: 192.168.50.22 is the address of a gateway node"),
            ("vips: [192.168.50.21]", "vips: 192.168.50.21 is the address of a gateway node"),
            ("vips: [10.0.0.0-10.0.255.255]", "vips: more than 4096"),
            ("vips: [127.0.0.1]", "router.yaml:"),
            ("peers: [192.168.50.22, 192.168.50.22]", "peers: "),
            ("peers: ['fd00::1']", "peers: fd00::1 is of another family"),
            ("peers: [0.0.0.0]", "peers: "),
            ("priority: 0", "priority: "),
            ("priority: 255", "priority: "),
            ("advertInterval: 0", "advertInterval: "),
            ("advertInterval: soon", "router.yaml:"),
            ("advertInterval: 10ms", "advertInterval: "),
            ("advertInterval: 205ms", "advertInterval: "),
            ("advertInterval: 41s", "advertInterval: "),
            ("checkInterval: 500ms", "checkInterval: "),
            ("checkInterval: 90s", "checkInterval: "),
            ("statusPort: 0", "statusPort: "),
            ("tunnelInterface: '$X'", "tunnelInterface: "),
            ("virtualRouter: 1", "router.yaml:"),
        ] {
            let field = line.split(':').next().unwrap();
            let others = MINIMAL.lines().filter(|other| !other.starts_with(&format!("{field}:")));
            let text: String = others.chain([line]).map(|line| format!("{line}\n")).collect();
            let message = router(&text).unwrap_err();
            assert!(message.starts_with(start), "{line}: {message}");
        }
    }

    #[test]
    fn the_name_of_the_node_is_a_dns_subdomain() {
        for name in ["..", "-", "G1", ""] {
            let file: File = common::config::parse(Path::new("router.yaml"), MINIMAL).unwrap();
            let message = file.router(name, "192.168.50.21".parse().unwrap()).unwrap_err();
            assert!(message.starts_with("--node-name: "), "{message}");
        }
    }

    #[test]
    fn a_restart_is_needed_for_identity_only() {
        let old = router(MINIMAL).unwrap();
        let more = Router { vips: vec!["10.0.0.1".parse().unwrap()], peers: vec![], ..old.clone() };
        assert_eq!(old.can_become(&more), Ok(()));
        assert!(old.can_become(&Router { vrid: 52, ..old.clone() }).is_err());
        assert!(old.can_become(&Router { status_port: 1, ..old.clone() }).is_err());
    }
}
