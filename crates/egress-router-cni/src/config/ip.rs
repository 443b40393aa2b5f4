//! `ip`: addresses, gateways and destinations of one pod.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::destinations::{Destinations, not_a_host};
use crate::cni::field::{Dict, Field};
use crate::cni::{Code, Error};

/// A validated `ip`, as it is written there, in `podIP`, in a ConfigMap or in `overrides`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ip {
    /// In their order; the first of each family is the source address of what is forwarded. `/32` and `/128` where no
    /// prefix length was written. Empty only in `overrides`.
    pub addresses: Vec<IpNet>,
    /// `gateway`.
    pub gateways: Gateways,
    /// `destinations` and `fallbackIP`.
    pub destinations: Destinations,
}

/// At most one gateway a family.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Gateways {
    /// IPv4.
    pub v4: Option<Ipv4Addr>,
    /// IPv6; may be link-local.
    pub v6: Option<Ipv6Addr>,
}

impl Gateways {
    /// That of `address`' family.
    #[must_use]
    pub fn of(&self, address: &IpAddr) -> Option<IpAddr> {
        if address.is_ipv4() { self.v4.map(IpAddr::V4) } else { self.v6.map(IpAddr::V6) }
    }

    /// Those that are there.
    pub fn all(&self) -> impl Iterator<Item = IpAddr> + use<> {
        self.v4.map(IpAddr::V4).into_iter().chain(self.v6.map(IpAddr::V6))
    }

    fn set(&mut self, gateway: IpAddr) {
        match gateway {
            IpAddr::V4(gateway) => self.v4 = Some(gateway),
            IpAddr::V6(gateway) => self.v6 = Some(gateway),
        }
    }
}

impl Ip {
    /// An `ip` that a pod can be given.
    ///
    /// `gateway` is one address, or a list with one of each family; an empty string says nothing, as templates leave it.
    ///
    /// # Errors
    ///
    /// Code 2 for a key that is not known, 6 for another shape, 7 for a value that is not allowed; each names the field.
    pub fn parse(field: &Field<'_>) -> Result<Self, Error> {
        let dict = field.dict()?;
        let ip = Self::read(&dict)?;
        if ip.addresses.is_empty() {
            return Err(Error::new(
                Code::InvalidConfig,
                format!("{} is missing or empty: at least one address is needed", dict.path_of("addresses")),
            ));
        }
        ip.coherent(&field.path)?;
        Ok(ip)
    }

    /// An `ip` of which every part may be missing (`overrides`).
    ///
    /// # Errors
    ///
    /// As [`Self::parse`]. An empty list is refused: it could mean that nothing is allowed, or everything.
    pub fn parse_overrides(field: &Field<'_>) -> Result<Self, Error> {
        let dict = field.dict()?;
        for key in ["addresses", "destinations"] {
            if let Some(list) = dict.get(key).filter(|list| list.value.as_array().is_some_and(Vec::is_empty))
            {
                return Err(
                    list.invalid("it has to name at least one, or to be left out where nothing is ruled")
                );
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

    /// That every part has an address of its family to work with. `path` is for the message.
    pub(crate) fn coherent(&self, path: &str) -> Result<(), Error> {
        let lacks = |wanted: IpAddr| {
            !self.addresses.iter().any(|address| address.addr().is_ipv4() == wanted.is_ipv4())
        };
        let refuse = |what: String, address: IpAddr| {
            let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            let message =
                format!("{path}.{what} {address}: {path}.addresses has to hold an {family} address for it");
            Err(Error::new(Code::InvalidConfig, message))
        };
        for gateway in self.gateways.all() {
            if lacks(gateway) {
                return refuse("gateway is".to_owned(), gateway);
            }
            let ends = |net: &IpNet| net.addr().is_ipv4() && net.prefix_len() < 31 && net.contains(&gateway);
            let ended = |net: &IpNet| gateway == net.network() || gateway == net.broadcast();
            if let Some(net) = self.addresses.iter().find(|net| ends(net) && ended(net)) {
                return Err(Error::new(
                    Code::InvalidConfig,
                    format!(
                        "{path}.gateway is {gateway}: that is no host's address in {}, its first and last are none",
                        net.trunc()
                    ),
                ));
            }
            if self.addresses.iter().any(|address| address.addr() == gateway) {
                return Err(Error::new(
                    Code::InvalidConfig,
                    format!(
                        "{path}.gateway is {gateway}: it is one of {path}.addresses, and has to be another host"
                    ),
                ));
            }
        }
        let redirects = self.destinations.redirects.iter().map(|redirect| redirect.to);
        for to in redirects.chain(self.destinations.fallbacks()) {
            if lacks(to) {
                return refuse("destinations hands on to".to_owned(), to);
            }
            if self.addresses.iter().any(|address| address.addr() == to) {
                return Err(Error::new(
                    Code::InvalidConfig,
                    format!(
                        "{path}.destinations hands on to {to}: it is one of {path}.addresses, and has to be another host"
                    ),
                ));
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
            return Err(field.invalid(format_args!("that is {kind}: it has to be the next hop's")));
        }
        if gateways.of(&gateway).is_some() {
            return Err(field.invalid("one gateway a family is allowed"));
        }
        gateways.set(gateway);
    }
    Ok(gateways)
}

/// Addresses of one family that an attachment can have: a rule of nf_tables compares with each of them, and holds at most
/// 128 expressions (NFT_RULE_MAXEXPRS).
const MOST: usize = 48;

/// Why a pod that has `addresses` cannot have this one too.
pub(crate) fn one_more(addresses: &[IpNet], address: &IpNet) -> Option<String> {
    if let Some(wrong) = not_a_pod(address) {
        return Some(wrong);
    }
    if addresses.iter().any(|other| other.addr() == address.addr()) {
        return Some("the same address stands there twice".to_owned());
    }
    let family = addresses.iter().filter(|other| other.addr().is_ipv4() == address.addr().is_ipv4());
    (family.count() >= MOST).then(|| format!("an interface has at most {MOST} addresses of one family"))
}

/// Why a pod cannot have this address.
fn not_a_pod(address: &IpNet) -> Option<String> {
    let length = address.prefix_len();
    if let Some(kind) = not_a_host(address.addr()) {
        return Some(format!("that is {kind}: a pod needs one of its own"));
    }
    if length == 0 {
        return Some(
            "with /0 everything would be on the same wire: write the network's prefix length".to_owned(),
        );
    }
    // RFC 3021 and RFC 6164: both addresses of a pair are hosts'.
    if length + 1 >= address.max_prefix_len() {
        return None;
    }
    let network = address.trunc();
    if address.addr() == network.addr() {
        return Some(format!("that is the network {network} itself: a pod needs an address in it"));
    }
    (address.addr().is_ipv4() && address.addr() == network.broadcast())
        .then(|| format!("that is the broadcast address of {network}: a pod needs one of its own"))
}

#[cfg(test)]
mod tests;
