//! Executes operations by netlink.

use std::net::{IpAddr, Ipv4Addr};

use common::netlink::Error;
use common::netlink::address;
use common::netlink::link::Link;
use common::netlink::message::{FLAG_ACK, Message};
use common::netlink::neighbour::{ForwardingEntry, Neighbour};
use common::netlink::route::Route;
use common::netlink::socket::Socket;
use common::netlink::vxlan::{NewVxlan, Vxlan};
use ipnet::IpNet;

use super::difference::Operation;
use super::observe::{Observed, route_of, rule_of};
use super::plan::{ADDRESS, Device};

/// RT_SCOPE_LINK.
const LINK_SCOPE: u8 = 253;
/// The most routes of one send: their replies fit the socket's receive buffer.
const BATCH: usize = 100;

/// Executes `operations` in order.
///
/// # Errors
/// The first failure: the operation, its object and the kernel's message. Operations before it took effect.
pub fn apply(socket: &mut Socket, observed: &Observed, operations: &[Operation]) -> Result<(), Error> {
    let mut apply = Apply { socket, observed, index: observed.device.as_ref().map(|device| device.index) };
    let mut rest = operations;
    while let Some(first) = rest.first() {
        let routes = rest.iter().take(BATCH).take_while(|operation| apply.route(operation).is_some()).count();
        let (some, tail) = rest.split_at_checked(routes.max(1)).unwrap_or((rest, &[]));
        if routes > 1 {
            apply.routes(some)?;
        } else {
            apply.one(first).map_err(|error| error.during(first))?;
        }
        rest = tail;
    }
    Ok(())
}

/// Adds or replaces routes; `device` is the index of the device.
///
/// # Errors
/// As [`apply`].
pub fn set_routes(socket: &mut Socket, device: u32, routes: &[Operation]) -> Result<(), Error> {
    let mut apply = Apply { socket, observed: &Observed::default(), index: Some(device) };
    routes.chunks(BATCH).try_for_each(|some| apply.routes(some))
}

struct Apply<'a> {
    socket: &'a mut Socket,
    observed: &'a Observed,
    /// Index of the device; none before it is created.
    index: Option<u32>,
}

impl Apply<'_> {
    fn index(&self) -> u32 {
        // Index 0 is no link: the kernel refuses it.
        self.index.unwrap_or_default()
    }

    /// The request of an operation on a route.
    fn route(&self, operation: &Operation) -> Option<Message> {
        match operation {
            Operation::SetRoute(key, next) => Some(route_of(*key, *next, self.index()).set(None)),
            Operation::DeleteRoute(key) => {
                self.observed.routes.get(key).map(|(route, _)| deletable(route).delete(None))
            }
            _ => None,
        }
    }

    /// Executes operations on routes in one send.
    fn routes(&mut self, operations: &[Operation]) -> Result<(), Error> {
        let messages = operations.iter().filter_map(|operation| self.route(operation));
        let messages: Vec<_> = messages.map(|message| message.with_flags(FLAG_ACK)).collect();
        let replies = self.socket.transaction(&messages)?;
        for (operation, reply) in operations.iter().zip(replies) {
            let Some(refusal) = reply.map(Error::Refused) else { continue };
            // Deleted by another program, or with its device.
            let gone = matches!(operation, Operation::DeleteRoute(_)) && refusal.is(&[libc::ESRCH]);
            if !gone {
                return Err(refusal.during(operation));
            }
        }
        Ok(())
    }

    fn one(&mut self, operation: &Operation) -> Result<(), Error> {
        let index = self.index();
        match operation {
            Operation::DeleteDevice(index) => {
                self.socket.delete_link(*index)?;
                self.index = None;
            }
            Operation::CreateDevice(Device { name, vni, port, local, mac, mtu }) => {
                let vxlan = Vxlan::new(*vni, *local, *port);
                let new = NewVxlan { name: name.clone(), mac: *mac, mtu: *mtu, vxlan };
                self.index = Some(self.socket.create_vxlan(&new)?.index);
            }
            Operation::SetMtu(mtu) => self.socket.set_link_mtu(index, *mtu)?,
            Operation::SetSetting(name, value) => {
                // By netlink: /proc/sys is read-only in a container without privileges.
                let number = setting(name);
                self.socket.request(&Link::ipv4_setting(index, number, *value))?;
            }
            Operation::AddAddress => {
                let net = IpNet::from(IpAddr::V4(ADDRESS));
                self.socket.request(&address::add(index, net, LINK_SCOPE))?;
            }
            Operation::SetUp => self.socket.set_link_up(index, true)?,
            Operation::SetNeighbour(address, mac) => {
                self.socket.replace_neighbour(&Neighbour::permanent(index, *address, *mac))?;
            }
            Operation::DeleteNeighbour(address) => {
                self.socket.delete_neighbour(&Neighbour::permanent(index, *address, [0; 6]))?;
            }
            Operation::SetForwarding(mac, node) => {
                self.socket.replace_forwarding_entry(&ForwardingEntry::permanent(index, *mac, *node))?;
            }
            Operation::DeleteForwarding(mac, node) => {
                let remote = node.unwrap_or(Ipv4Addr::UNSPECIFIED);
                let entry = ForwardingEntry::permanent(index, *mac, remote);
                self.socket.delete_forwarding_entry(&ForwardingEntry { remote: *node, ..entry })?;
            }
            Operation::AddRule(lookup) => {
                self.socket.add_rule(&rule_of(*lookup))?;
            }
            Operation::DeleteRule(rule) => {
                self.socket.delete_rule(rule)?;
            }
            Operation::SetRoute(key, next) => self.socket.replace_route(&route_of(*key, *next, index))?,
            Operation::DeleteRoute(key) => {
                if let Some((route, _)) = self.observed.routes.get(key) {
                    self.socket.delete_route(&deletable(route))?;
                }
            }
        }
        Ok(())
    }
}

/// IPV4_DEVCONF_* of a setting (linux/ip.h).
fn setting(name: &str) -> u16 {
    match name {
        "rp_filter" => 8,
        "accept_local" => 23,
        // The kernel refuses it.
        _ => 0,
    }
}

/// The kernel compares a route's scope, type, gateway and device if a request has them. Without them the key is enough.
fn deletable(route: &Route) -> Route {
    Route { gateway: None, device: None, rest: Vec::new(), flags: 0, ..route.clone() }
}
