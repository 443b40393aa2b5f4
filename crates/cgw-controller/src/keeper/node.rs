//! The addresses and interfaces of the node, by netlink.

use std::collections::BTreeSet;
use std::net::IpAddr;

use common::netlink::Error;
use common::netlink::address::Address;
use common::netlink::link::Link;
use common::netlink::socket::{Protocol, Socket};

use super::config::Router;
use super::run_dir::Record;
use crate::api::address::{TunMac, Vip, VipRange};

/// The state of the node that the controller has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Configured VIPs on the interface of the VIPs.
    pub vips: BTreeSet<Vip>,
    /// All configured VIPs.
    pub configured: Vec<VipRange>,
    /// Main address of the node: the configured one while an interface has it, else the first one of the interface.
    pub node_ip: IpAddr,
    /// MAC address of the tunnel interface. None: it does not exist, or has none.
    pub tun_mac: Option<TunMac>,
}

/// Reads and changes the node's addresses.
#[derive(Debug)]
pub struct Node {
    socket: Socket,
}

/// RT_SCOPE_UNIVERSE.
const UNIVERSE: u8 = 0;

impl Node {
    /// The node of the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel has no netlink, or no descriptors are left.
    pub fn open() -> Result<Node, Error> {
        Ok(Node { socket: Socket::open(Protocol::Route)? })
    }

    /// Reads the state.
    ///
    /// # Errors
    /// The kernel's.
    pub fn observe(&mut self, router: &Router) -> Result<Observed, Error> {
        let addresses = self.socket.addresses().map_err(|error| error.during("listing the addresses"))?;
        let vip_link = self.link(&router.vip_interface)?.map(|link| link.index);
        let link = match router.vip_interface == router.interface {
            true => vip_link,
            false => self.link(&router.interface)?.map(|link| link.index),
        };
        let tunnel = self.link(&router.tunnel_interface)?;
        let vips = addresses.iter().filter(|address| Some(address.link) == vip_link && is_single(address));
        let vips = vips.map(|address| address.net.addr()).filter(|address| router.serves(*address));
        Ok(Observed {
            vips: vips.filter_map(|address| Vip::new(address).ok()).collect(),
            configured: router.vips.clone(),
            node_ip: main_address(router, &addresses, link),
            tun_mac: tunnel.and_then(|link| link.mac).and_then(|mac| TunMac::new(mac).ok()),
        })
    }

    /// Removes all addresses that keepalived may have added, from all interfaces. Returns them. After a failure, the others are removed
    /// nevertheless.
    ///
    /// # Errors
    /// The first of the kernel's.
    pub fn strip(&mut self, record: &Record) -> Result<Vec<IpAddr>, Error> {
        let addresses = self.socket.addresses().map_err(|error| error.during("listing the addresses"))?;
        let (mut removed, mut first) = (Vec::new(), None);
        for address in addresses {
            if !is_single(&address) || !record.covers(address.net.addr()) {
                continue;
            }
            match self.socket.delete_address(address.link, address.net) {
                Ok(true) => removed.push(address.net.addr()),
                Ok(false) => {}
                Err(error) => first = first.or(Some(error)),
            }
        }
        first.map_or(Ok(removed), Err)
    }

    /// Whether the interface exists and is up; and its MAC address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn link_state(&mut self, name: &str) -> Result<Option<(bool, Option<TunMac>)>, Error> {
        let link = self.link(name)?;
        Ok(link.map(|link| (link.up, link.mac.and_then(|mac| TunMac::new(mac).ok()))))
    }

    fn link(&mut self, name: &str) -> Result<Option<Link>, Error> {
        self.socket
            .link_by_name(name)
            .map_err(|error| error.during(format_args!("reading the interface {name}")))
    }
}

/// VIPs are added with the longest prefix length; an address of a subnet is configured by another program.
fn is_single(address: &Address) -> bool {
    address.net.prefix_len() == address.net.max_prefix_len()
}

fn main_address(router: &Router, addresses: &[Address], link: Option<u32>) -> IpAddr {
    let own = router.node_ip;
    if addresses.iter().any(|address| address.net.addr() == own) {
        return own;
    }
    let usable = |address: &&Address| {
        let ip = address.net.addr();
        Some(address.link) == link
            && address.scope == UNIVERSE
            && ip.is_ipv4() == own.is_ipv4()
            && !router.serves(ip)
            && Vip::new(ip).is_ok()
    };
    addresses.iter().find(usable).map_or(own, |address| address.net.addr())
}
