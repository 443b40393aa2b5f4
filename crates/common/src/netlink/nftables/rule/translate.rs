//! Statements that change marks, addresses and options.

use std::net::Ipv4Addr;

use super::{Field, R, Rule};
use crate::netlink::nftables::Family;
use crate::netlink::nftables::expression::{Ct, Expression, Meta, Nat, Register};

/// The register of the port behind an address in the first one.
fn port_register() -> Register {
    R.plus(1)
}

impl Rule {
    /// Sets the bits of `mask` in the packet's mark to those of `mark`.
    #[must_use]
    pub fn set_mark(self, mark: u32, mask: u32) -> Self {
        self.set_bits(Self::meta(Meta::Mark), mark, mask).with([Expression::SetMark { from: R }])
    }

    /// Sets the packet's mark to the bits of `mask` of the connection's mark. All other bits become zero.
    #[must_use]
    pub fn set_mark_from_ct(self, mask: u32) -> Self {
        self.with([Self::ct(Ct::Mark), Self::bits(mask, 0), Expression::SetMark { from: R }])
    }

    /// Sets the packet's mark to the data of the fields in a map, whose key has their types in this order. The rule ends if the map does not
    /// have them.
    #[must_use]
    pub fn set_mark_from_map(self, fields: &[Field], map: &str) -> Self {
        let (rule, _) = self.load(fields);
        rule.with([Expression::FromMap { from: R, map: map.into(), to: R }, Expression::SetMark { from: R }])
    }

    /// Sets the bits of `mask` in the connection's mark to those of `mark`.
    #[must_use]
    pub fn set_ct_mark(self, mark: u32, mask: u32) -> Self {
        self.set_bits(Self::ct(Ct::Mark), mark, mask).with([Expression::SetCtMark { from: R }])
    }

    /// Sets the connection's mark to the bits of `mask` of the packet's mark. All other bits become zero.
    #[must_use]
    pub fn set_ct_mark_from_mark(self, mask: u32) -> Self {
        self.with([Self::meta(Meta::Mark), Self::bits(mask, 0), Expression::SetCtMark { from: R }])
    }

    /// The mark that `load` loads, with the bits of `mask` set to those of `mark`.
    fn set_bits(self, load: Expression, mark: u32, mask: u32) -> Self {
        if mask == u32::MAX {
            return self.with([Expression::Immediate { to: R, value: mark.to_ne_bytes().into() }]);
        }
        self.with([load, Self::bits(!mask, mark & mask)])
    }

    /// SNAT to `address`; with `ports`, to a port of this range. `flags` are NF_NAT_RANGE_*.
    #[must_use]
    pub fn snat(self, address: Ipv4Addr, ports: Option<(u16, u16)>, flags: u32) -> Self {
        let rule = self.with([Expression::Immediate { to: R, value: address.octets().into() }]);
        match ports {
            None => rule.nat(Nat::Source, None, None, flags),
            Some((first, last)) => {
                let (port, last_port) = (port_register(), port_register().plus(1));
                let load = |to, port: u16| Expression::Immediate { to, value: port.to_be_bytes().into() };
                rule.with([load(port, first), load(last_port, last)]).nat(
                    Nat::Source,
                    Some(port),
                    Some(last_port),
                    flags,
                )
            }
        }
    }

    /// SNAT to the data of the fields in a map to IPv4 addresses. The rule ends if the map does not have them.
    #[must_use]
    pub fn snat_from_map(self, fields: &[Field], map: &str, flags: u32) -> Self {
        let (rule, _) = self.load(fields);
        rule.with([Expression::FromMap { from: R, map: map.into(), to: R }]).nat(
            Nat::Source,
            None,
            None,
            flags,
        )
    }

    /// DNAT to `address`; without `port`, to the same port.
    #[must_use]
    pub fn dnat(self, address: Ipv4Addr, port: Option<u16>) -> Self {
        let rule = self.with([Expression::Immediate { to: R, value: address.octets().into() }]);
        match port {
            None => rule.nat(Nat::Destination, None, None, 0),
            Some(port) => rule
                .with([Expression::Immediate { to: port_register(), value: port.to_be_bytes().into() }])
                .nat(Nat::Destination, Some(port_register()), None, 0),
        }
    }

    /// DNAT to the data of the fields in a map to IPv4 addresses, to the same port. The rule ends if the map does not have them.
    #[must_use]
    pub fn dnat_from_map(self, fields: &[Field], map: &str) -> Self {
        let (rule, _) = self.load(fields);
        rule.with([Expression::FromMap { from: R, map: map.into(), to: R }]).nat(
            Nat::Destination,
            None,
            None,
            0,
        )
    }

    /// DNAT to a backend that the hash of the fields selects: `map` has an address and a port
    /// ([`backend_data`](crate::netlink::nftables::set::backend_data)) for each index from 0 to `backends` - 1 (four bytes in host order). The
    /// same fields and seed select the same backend on all machines with the same byte order.
    #[must_use]
    pub fn dnat_by_hash(self, fields: &[Field], seed: u32, backends: u32, map: &str) -> Self {
        let (rule, length) = self.load(fields);
        let hash = Expression::Hash { from: R, length, to: R, modulus: backends, seed, offset: 0 };
        rule.with([hash, Expression::FromMap { from: R, map: map.into(), to: R }]).nat(
            Nat::Destination,
            Some(port_register()),
            None,
            0,
        )
    }

    /// Translates to the IPv4 address in the first register.
    fn nat(self, kind: Nat, port: Option<Register>, last_port: Option<Register>, flags: u32) -> Self {
        let nat = Expression::Nat { kind, family: Family::Ipv4, address: Some(R), port, last_port, flags };
        self.with([nat])
    }

    /// Lowers the MSS of a TCP SYN to what its route's MTU allows (`tcp option maxseg size set rt mtu`). After [`Self::l4proto`] of TCP and
    /// [`Self::tcp_flags`], in chains behind the routing decision: forward, output, postrouting.
    #[must_use]
    pub fn clamp_mss(self) -> Self {
        self.with([
            Expression::RouteMss { to: R },
            Expression::HostToNetwork16 { from: R, to: R },
            Expression::SetMss { from: R },
        ])
    }

    /// Lowers the MSS of a TCP SYN to `mss`. After [`Self::l4proto`] of TCP and [`Self::tcp_flags`].
    #[must_use]
    pub fn set_mss(self, mss: u16) -> Self {
        self.with([
            Expression::Immediate { to: R, value: mss.to_be_bytes().into() },
            Expression::SetMss { from: R },
        ])
    }
}
