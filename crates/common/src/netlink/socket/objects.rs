//! Reads objects by kind.

use super::Socket;
use crate::netlink::Error;
use crate::netlink::address::Address;
use crate::netlink::link::Link;
use crate::netlink::neighbour::{ForwardingEntry, Neighbour};
use crate::netlink::netconf::Netconf;
use crate::netlink::route::Route;
use crate::netlink::rule::Rule;
use crate::netlink::vxlan::Vxlan;

impl Socket {
    /// All links.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        self.dump(&Link::all(), |_, payload| Link::decode(payload).map(Some))
    }

    /// The link `name`, if it exists.
    ///
    /// # Errors
    /// As [`Socket::ask`].
    pub fn link_by_name(&mut self, name: &str) -> Result<Option<Link>, Error> {
        found(self.ask(&Link::by_name(name), |_, payload| Link::decode(payload)))
    }

    /// The link `name` with its VXLAN attributes, if it exists. No attributes: it is a link of another kind.
    ///
    /// # Errors
    /// As [`Socket::ask`].
    pub fn vxlan_by_name(&mut self, name: &str) -> Result<Option<(Link, Option<Vxlan>)>, Error> {
        found(self.ask(&Link::by_name(name), |_, payload| Vxlan::decode(payload)))
    }

    /// The link with this index, if it exists.
    ///
    /// # Errors
    /// As [`Socket::ask`].
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, Error> {
        found(self.ask(&Link::by_index(index), |_, payload| Link::decode(payload)))
    }

    /// The addresses of the link with index `link`, of IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn addresses_of(&mut self, link: u32) -> Result<Vec<Address>, Error> {
        self.dump(&Address::of(link), |_, payload| {
            // Kernels before 4.20 do not filter.
            Address::decode(payload).map(|address| address.filter(|address| address.link == link))
        })
    }

    /// The IPv4 neighbours of the link with index `link`.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn neighbours(&mut self, link: u32) -> Result<Vec<Neighbour>, Error> {
        self.dump(&Neighbour::of(link), |_, payload| {
            Neighbour::decode(payload).map(|neighbour| neighbour.filter(|neighbour| neighbour.link == link))
        })
    }

    /// The forwarding entries of the VXLAN link with index `link`.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn forwarding_entries(&mut self, link: u32) -> Result<Vec<ForwardingEntry>, Error> {
        self.dump(&ForwardingEntry::of(link), |_, payload| {
            ForwardingEntry::decode(payload).map(|entry| entry.filter(|entry| entry.link == link))
        })
    }

    /// All addresses, of IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn addresses(&mut self) -> Result<Vec<Address>, Error> {
        self.dump(&Address::all(), |_, payload| Address::decode(payload))
    }

    /// The routes of all tables but local, or of one table, of IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn routes(&mut self, table: Option<u32>) -> Result<Vec<Route>, Error> {
        self.dump(&Route::all(table), |_, payload| {
            // Kernels before 4.20 do not filter.
            let desired = |route: &Route| table.is_none_or(|table| route.table == table);
            Route::decode(payload).map(|route| route.filter(desired))
        })
    }

    /// The routes of `protocol` (RTPROT_*) in all tables but local, of IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn routes_of_protocol(&mut self, protocol: u8) -> Result<Vec<Route>, Error> {
        self.dump(&Route::of_protocol(protocol), |_, payload| {
            Route::decode(payload).map(|route| route.filter(|route| route.protocol == protocol))
        })
    }

    /// All rules that [`Rule`] can represent, of IPv4 and IPv6.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        self.dump(&Rule::all(), |_, payload| Rule::decode(payload))
    }

    /// Forwarding and reverse path filters of all devices.
    ///
    /// # Errors
    /// As [`Socket::dump`].
    pub fn netconf(&mut self) -> Result<Vec<Netconf>, Error> {
        self.dump(&Netconf::all(), |_, payload| Netconf::decode(payload))
    }

    /// Whether the kernel has links of this kind (`macvlan`, `ipvlan`).
    ///
    /// # Errors
    /// Why there is no reply.
    pub fn knows(&mut self, kind: &str) -> Result<bool, Error> {
        match self.request(&Link::probe(kind)) {
            Err(error @ Error::Refused(_)) => Ok(!error.is(&[libc::EOPNOTSUPP])),
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }
}

fn found<T>(reply: Result<T, Error>) -> Result<Option<T>, Error> {
    match reply {
        Ok(object) => Ok(Some(object)),
        // ENOENT: kernels before 5.x, for names.
        Err(error @ Error::Refused(_)) if error.is(&[libc::ENODEV, libc::ENOENT]) => Ok(None),
        Err(error) => Err(error),
    }
}
