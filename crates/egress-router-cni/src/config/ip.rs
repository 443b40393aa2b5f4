//! `ip`: addresses, gateways and destinations of one pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::destinations::{Destinations, not_a_host};
use crate::cni::Error;
use crate::cni::field::{Dict, Field};
use crate::plan::Family;

/// A validated `ip`, of `ip`, `podIP`, a ConfigMap or `overrides`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ip {
    /// In order; the first of each family is the source address of redirected traffic. `/32` and `/128` if no prefix length is written.
    /// Empty only in `overrides`.
    pub addresses: Vec<IpNet>,
    /// `gateway`.
    pub gateways: Gateways,
    /// `destinations` and `fallbackIP`.
    pub destinations: Destinations,
}

/// At most one gateway per family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateways {
    /// IPv4.
    pub v4: Option<Ipv4Addr>,
    /// IPv6; may be link-local.
    pub v6: Option<Ipv6Addr>,
}

impl Gateways {
    /// The gateway of a family.
    #[must_use]
    pub fn of(&self, family: Family) -> Option<IpAddr> {
        match family {
            Family::V4 => self.v4.map(IpAddr::V4),
            Family::V6 => self.v6.map(IpAddr::V6),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> {
        Family::ALL.into_iter().filter_map(move |family| self.of(family))
    }

    /// Sets the gateway of its family.
    pub fn set(&mut self, gateway: IpAddr) {
        match gateway {
            IpAddr::V4(gateway) => self.v4 = Some(gateway),
            IpAddr::V6(gateway) => self.v6 = Some(gateway),
        }
    }
}

impl Ip {
    /// An `ip` that a pod can be given.
    ///
    /// `gateway` is one address, or a list with one of each family. An empty string counts as unset, as templates may leave it.
    ///
    /// # Errors
    ///
    /// Code 2 for an unknown key, 6 for a wrong type, 7 for a value that is not allowed; each names the field.
    pub fn parse(field: &Field<'_>) -> Result<Self, Error> {
        let dict = field.dict()?;
        let ip = Self::read(&dict)?;
        if ip.addresses.is_empty() {
            return Err(Error::invalid_config(format!(
                "{} is missing or empty: at least one address is needed",
                dict.path_of("addresses")
            )));
        }
        ip.coherent(&field.path)?;
        Ok(ip)
    }

    /// An `ip` with optional parts (`overrides`).
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]. An empty list is refused, because it is ambiguous.
    pub fn parse_overrides(field: &Field<'_>) -> Result<Self, Error> {
        let dict = field.dict()?;
        for key in ["addresses", "destinations"] {
            if let Some(list) = dict.get(key).filter(|list| list.value.as_array().is_some_and(Vec::is_empty))
            {
                return Err(list.invalid("it must have at least one entry, or be left out"));
            }
        }
        Self::read(&dict)
    }

    fn read(dict: &Dict<'_>) -> Result<Self, Error> {
        dict.only(&["addresses", "gateway", "destinations", "fallbackIP"])?;
        let mut addresses: Vec<IpNet> = Vec::new();
        for field in dict.list("addresses")? {
            let address = field.cidr()?;
            if let Some(wrong) = one_more(&addresses, &address) {
                return Err(field.invalid(wrong));
            }
            addresses.push(address);
        }
        Ok(Self { addresses, gateways: gateways(dict)?, destinations: Destinations::parse(dict)? })
    }

    /// Checks that gateways and targets have an address of their family. `path` is for the message.
    pub(crate) fn coherent(&self, path: &str) -> Result<(), Error> {
        let lacks = |desired: IpAddr| {
            !self.addresses.iter().any(|address| address.addr().is_ipv4() == desired.is_ipv4())
        };
        let refuse = |what: String, address: IpAddr| {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let message =
                format!("{path}.{what} {address}: {path}.addresses must have an {family} address for it");
            Err(Error::invalid_config(message))
        };
        for gateway in self.gateways.all() {
            if lacks(gateway) {
                return refuse("gateway is".to_owned(), gateway);
            }
            let ends = |net: &IpNet| net.addr().is_ipv4() && net.prefix_len() < 31 && net.contains(&gateway);
            let ended = |net: &IpNet| gateway == net.network() || gateway == net.broadcast();
            if let Some(net) = self.addresses.iter().find(|net| ends(net) && ended(net)) {
                return Err(Error::invalid_config(format!(
                    "{path}.gateway is {gateway}: it is the network or broadcast address of {}",
                    net.trunc()
                )));
            }
            if self.addresses.iter().any(|address| address.addr() == gateway) {
                return Err(Error::invalid_config(format!(
                    "{path}.gateway is {gateway}: it is one of {path}.addresses, and must be another host"
                )));
            }
        }
        for to in self.destinations.targets() {
            if lacks(to) {
                return refuse("destinations redirects to".to_owned(), to);
            }
            if self.addresses.iter().any(|address| address.addr() == to) {
                return Err(Error::invalid_config(format!(
                    "{path}.destinations redirects to {to}: it is one of {path}.addresses, and must be another host"
                )));
            }
        }
        Ok(())
    }
}

fn gateways(dict: &Dict<'_>) -> Result<Gateways, Error> {
    let mut gateways = Gateways::default();
    let fields = match dict.get("gateway") {
        Some(field) if field.value.is_array() => field.list()?,
        Some(field) if field.value.as_str() == Some("") => Vec::new(),
        field => field.into_iter().collect(),
    };
    for field in fields {
        let gateway = field.ip()?;
        if let Some(kind) = not_a_host(gateway) {
            return Err(field.invalid(format_args!("it is {kind}: it must be the address of the next hop")));
        }
        if gateways.of(Family::of(&gateway)).is_some() {
            return Err(field.invalid("only one gateway per address family is allowed"));
        }
        gateways.set(gateway);
    }
    Ok(gateways)
}

/// Maximum number of addresses of one family. An nf_tables rule compares with each of them, and has at most 128 expressions
/// (NFT_RULE_MAXEXPRS).
const MAX_COUNT: usize = 48;

/// Why this address cannot be added to `addresses`.
pub(crate) fn one_more(addresses: &[IpNet], address: &IpNet) -> Option<String> {
    if let Some(wrong) = not_a_pod(address) {
        return Some(wrong);
    }
    if addresses.iter().any(|other| other.addr() == address.addr()) {
        return Some("the same address is listed twice".to_owned());
    }
    let family = addresses.iter().filter(|other| other.addr().is_ipv4() == address.addr().is_ipv4());
    (family.count() >= MAX_COUNT)
        .then(|| format!("an interface has at most {MAX_COUNT} addresses of one family"))
}

/// Why a pod cannot have this address.
fn not_a_pod(address: &IpNet) -> Option<String> {
    let length = address.prefix_len();
    if let Some(kind) = not_a_host(address.addr()) {
        return Some(format!("it is {kind}: a pod needs a unicast address of its own"));
    }
    if length == 0 {
        return Some("with /0 every address would be on-link: write the network's prefix length".to_owned());
    }
    // RFC 3021 and RFC 6164: both addresses of a /31 or /127 are host addresses.
    if length + 1 >= address.max_prefix_len() {
        return None;
    }
    let network = address.trunc();
    if address.addr() == network.addr() {
        return Some(format!("it is the network address of {network}: a pod needs a host address"));
    }
    (address.addr().is_ipv4() && address.addr() == network.broadcast())
        .then(|| format!("it is the broadcast address of {network}: a pod needs a host address"))
}

#[cfg(test)]
mod tests;
