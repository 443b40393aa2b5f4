//! Statements that change marks, addresses and options.

use super::{Field, R, Rule};
use crate::netlink::nftables::Family;
use crate::netlink::nftables::expression::{Ct, Expression, Meta, Nat, Register};

impl Rule {
    /// Sets the bits of `mask` in the packet's mark to those of `mark`.
    #[must_use]
    pub fn set_mark(self, mark: u32, mask: u32) -> Self {
        self.set_bits(Expression::Meta(Meta::Mark), mark, mask).with([Expression::SetMark])
    }

    /// Sets the bits of `mask` in the connection's mark to those of `mark`.
    #[must_use]
    pub fn set_ct_mark(self, mark: u32, mask: u32) -> Self {
        self.set_bits(Self::ct(Ct::Mark), mark, mask).with([Expression::SetCtMark])
    }

    /// The mark that `load` loads, with the bits of `mask` set to those of `mark`.
    fn set_bits(self, load: Expression, mark: u32, mask: u32) -> Self {
        if mask == u32::MAX {
            return self.with([Expression::Immediate { to: R, value: mark.to_ne_bytes().into() }]);
        }
        self.with([load, Self::bits(!mask, mark & mask)])
    }

    /// SNAT to the data of the fields in a map to IPv4 addresses. The rule ends if the map does not have them.
    #[must_use]
    pub fn snat_from_map(self, fields: &[Field], map: &str) -> Self {
        self.load(fields).with([Expression::FromMap(map.into()), nat(Nat::Source, None)])
    }

    /// DNAT to a backend that the hash of the fields selects: `map` has an address and a port
    /// ([`backend_data`](crate::netlink::nftables::set::backend_data)) for each index from 0 to `backends` - 1 (four bytes in host order). The
    /// same fields and seed select the same backend on all machines with the same byte order.
    #[must_use]
    pub fn dnat_by_hash(self, fields: &[Field], seed: u32, backends: u32, map: &str) -> Self {
        // Each field takes a register of four bytes.
        let length = u32::try_from(fields.len()).unwrap_or(u32::MAX).saturating_mul(4);
        let hash = Expression::Hash { length, modulus: backends, seed };
        // The port is behind the address.
        let nat = nat(Nat::Destination, Some(R.plus(1)));
        self.load(fields).with([hash, Expression::FromMap(map.into()), nat])
    }

    /// Lowers the MSS of a TCP SYN to what its route's MTU allows (`tcp option maxseg size set rt mtu`). After [`Self::l4proto`] of TCP and
    /// [`Self::tcp_flags`], in chains behind the routing decision: forward, output, postrouting.
    #[must_use]
    pub fn clamp_mss(self) -> Self {
        self.with([Expression::RouteMss, Expression::HostToNetwork16, Expression::SetMss])
    }
}

/// Translates to the IPv4 address in the first register.
fn nat(kind: Nat, port: Option<Register>) -> Expression {
    Expression::Nat { kind, family: Family::Ipv4, port }
}
