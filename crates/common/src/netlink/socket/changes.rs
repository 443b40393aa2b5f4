//! Changes objects by kind. An error has the operation and the object.

use std::fmt;

use ipnet::IpNet;

use super::Socket;
use crate::netlink::Error;
use crate::netlink::address;
use crate::netlink::link::Link;
use crate::netlink::message::Message;
use crate::netlink::neighbour::{ForwardingEntry, Neighbour};
use crate::netlink::route::Route;
use crate::netlink::rule::Rule;
use crate::netlink::vxlan::NewVxlan;

/// The errors of a request to delete an object that does not exist.
const MISSING: [i32; 4] = [libc::ENOENT, libc::ESRCH, libc::ENODEV, libc::EADDRNOTAVAIL];

impl Socket {
    /// Sends one request, `operation`, and waits for its acknowledgement.
    fn change(&mut self, operation: fmt::Arguments<'_>, message: &Message) -> Result<(), Error> {
        self.request(message).map_err(|error| error.during(operation))
    }

    /// Sends a request to delete an object. Returns whether it existed.
    fn remove(&mut self, operation: fmt::Arguments<'_>, message: &Message) -> Result<bool, Error> {
        match self.request(message) {
            Ok(()) => Ok(true),
            Err(error @ Error::Refused(_)) if error.is(&MISSING) => Ok(false),
            Err(error) => Err(error.during(operation)),
        }
    }

    /// Creates a VXLAN link, down, and returns it.
    ///
    /// # Errors
    /// The kernel's. EEXIST: there is a link with this name, or a VXLAN link with this VNI and port.
    pub fn create_vxlan(&mut self, new: &NewVxlan) -> Result<Link, Error> {
        self.change(format_args!("creating the VXLAN link {}", new.name), &new.create())?;
        let created = self.link_by_name(&new.name).and_then(|link| link.ok_or(Error::NoReply));
        created.map_err(|error| error.during(format_args!("reading the VXLAN link {}", new.name)))
    }

    /// Sets the link with index `link` up or down.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set_link_up(&mut self, link: u32, up: bool) -> Result<(), Error> {
        let state = if up { "up" } else { "down" };
        self.change(format_args!("setting link {link} {state}"), &Link::set_up(link, up))
    }

    /// Sets the MTU of the link with index `link`.
    ///
    /// # Errors
    /// The kernel's. EINVAL: more than the link can have.
    pub fn set_link_mtu(&mut self, link: u32, mtu: u32) -> Result<(), Error> {
        self.change(format_args!("setting the MTU of link {link} to {mtu}"), &Link::set_mtu(link, mtu))
    }

    /// Deletes the link with index `link`. Returns whether it existed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_link(&mut self, link: u32) -> Result<bool, Error> {
        self.remove(format_args!("deleting link {link}"), &Link::delete(link))
    }

    /// Deletes the address `net` (with its prefix length) from the link with index `link`. Returns whether it existed. With a primary
    /// address, the kernel deletes the secondary ones of its network too, unless `net.ipv4.conf.*.promote_secondaries` is set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_address(&mut self, link: u32, net: IpNet) -> Result<bool, Error> {
        let operation = format_args!("deleting the address {net} from link {link}");
        self.remove(operation, &address::delete(link, net))
    }

    /// Adds a permanent neighbour, or replaces the one with its address.
    ///
    /// # Errors
    /// The kernel's.
    pub fn replace_neighbour(&mut self, neighbour: &Neighbour) -> Result<(), Error> {
        self.change(format_args!("replacing the neighbour {neighbour}"), &neighbour.replace())
    }

    /// Deletes the neighbour with this address. Returns whether it existed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_neighbour(&mut self, neighbour: &Neighbour) -> Result<bool, Error> {
        self.remove(format_args!("deleting the neighbour {neighbour}"), &neighbour.delete())
    }

    /// Adds a permanent forwarding entry, or replaces the remote of the one with its hardware address.
    ///
    /// # Errors
    /// The kernel's. EOPNOTSUPP: the entry cannot be replaced (see [`ForwardingEntry::replace`]).
    pub fn replace_forwarding_entry(&mut self, entry: &ForwardingEntry) -> Result<(), Error> {
        self.change(format_args!("replacing the forwarding entry {entry}"), &entry.replace())
    }

    /// Deletes a forwarding entry (see [`ForwardingEntry::delete`]). Returns whether its hardware address had one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_forwarding_entry(&mut self, entry: &ForwardingEntry) -> Result<bool, Error> {
        self.remove(format_args!("deleting the forwarding entry {entry}"), &entry.delete())
    }

    /// Adds a route on an existing device, or replaces the first one with the same table, destination, TOS and metric.
    ///
    /// # Errors
    /// The kernel's.
    pub fn replace_route(&mut self, route: &Route) -> Result<(), Error> {
        self.change(format_args!("replacing the route {route}"), &route.set(None))
    }

    /// Deletes a route. Returns whether it existed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_route(&mut self, route: &Route) -> Result<bool, Error> {
        self.remove(format_args!("deleting the route {route}"), &route.delete(None))
    }

    /// Adds a policy rule. Returns false if there is an equal one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        match self.request(&rule.add()) {
            Ok(()) => Ok(true),
            Err(error @ Error::Refused(_)) if error.is(&[libc::EEXIST]) => Ok(false),
            Err(error) => Err(error.during(format_args!("adding the rule {rule}"))),
        }
    }

    /// Deletes a policy rule. Returns whether it existed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        self.remove(format_args!("deleting the rule {rule}"), &rule.delete())
    }
}

#[cfg(test)]
mod tests;
