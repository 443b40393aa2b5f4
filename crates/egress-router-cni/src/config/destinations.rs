//! `destinations`: the allow-list (entries with `/`) and the redirects (`port proto ip [rport]`, or an IP alone).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::cni::Error;
use crate::cni::field::{Dict, Field, cidr};

/// The allowed entries, for messages.
const GRAMMAR: &str = "an entry is a CIDR block that the pod may reach (203.0.113.0/24), or a redirect \"port protocol address [target port]\" \
                       (80 tcp 203.0.113.26 8080), or an address to which all other ports are redirected (203.0.113.26)";

/// A validated list.
///
/// The words of an entry are separated by any number of spaces. Protocols may have upper case, as cluster-network-operator writes them.
/// Without an entry with `/` every destination is allowed: redirects alone do not restrict the pod. An empty list without `fallbackIP`
/// allows nothing, so that it never allows more than the user requested.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Destinations {
    /// The allow-list. None allows everything, an empty list nothing. Networks without host bits, sorted, none inside of another.
    pub allowed: Option<Vec<IpNet>>,
    /// `port proto ip [rport]`, no two for the same port and protocol of one family.
    pub redirects: Vec<Redirect>,
    /// A bare IP, or `fallbackIP`: the target of all ports without a redirect.
    pub fallback_v4: Option<Ipv4Addr>,
    /// The same for IPv6.
    pub fallback_v6: Option<Ipv6Addr>,
}

/// DNAT of connections to the pod's `port` to `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Redirect {
    /// 1 to 65535.
    pub port: u16,
    /// tcp, udp or sctp.
    pub protocol: Protocol,
    /// The target.
    pub to: IpAddr,
    /// The target's port; none: the same.
    pub to_port: Option<u16>,
}

/// A transport protocol with ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// `tcp`, in upper or lower case.
    Tcp,
    /// `udp`.
    Udp,
    /// `sctp`.
    Sctp,
}

impl Protocol {
    /// IANA's protocol number.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [("tcp", Self::Tcp), ("udp", Self::Udp), ("sctp", Self::Sctp)]
            .into_iter()
            .find(|(name, _)| word.eq_ignore_ascii_case(name))
            .map(|(_, protocol)| protocol)
    }
}

impl Destinations {
    /// Whether there is any redirect.
    #[must_use]
    pub fn redirect(&self) -> bool {
        self.targets().next().is_some()
    }

    /// The targets of redirects, and the fallback targets.
    pub fn targets(&self) -> impl Iterator<Item = IpAddr> {
        self.redirects.iter().map(|redirect| redirect.to).chain(self.fallbacks())
    }

    /// The fallback targets, at most one of each family.
    pub fn fallbacks(&self) -> impl Iterator<Item = IpAddr> {
        self.fallback_v4.map(IpAddr::V4).into_iter().chain(self.fallback_v6.map(IpAddr::V6))
    }

    /// `destinations` and `fallbackIP` of an `ip`.
    ///
    /// A block is masked: `203.0.113.26/30` is the network 203.0.113.24/30.
    ///
    /// # Errors
    ///
    /// Code 6 for a wrong type; 7 for an invalid entry, for port 0, for entries that contradict or repeat each other.
    pub fn parse(ip: &Dict<'_>) -> Result<Self, Error> {
        let mut parsed = Self::default();
        // A list may be as long as a Kubernetes object: comparing all pairs would take seconds.
        let (mut blocks, mut ports) = (BTreeSet::new(), BTreeSet::new());
        for entry in ip.list("destinations")? {
            let words: Vec<_> = entry.string()?.split_ascii_whitespace().collect();
            match *words.as_slice() {
                [block] if block.contains('/') => {
                    let block = cidr(block).ok_or_else(|| entry.invalid(GRAMMAR))?.trunc();
                    if !blocks.insert(block) {
                        return Err(entry.invalid("the same block is listed twice"));
                    }
                }
                [address] => {
                    let address = target(&entry, address)?;
                    if parsed.fallback(address).is_some() {
                        return Err(
                            entry.invalid("another entry already redirects all other ports of this family")
                        );
                    }
                    parsed.set_fallback(address);
                }
                [port, protocol, to, ref to_port @ ..] if to_port.len() < 2 => {
                    let redirect = redirect(&entry, port, protocol, to, to_port.first().copied())?;
                    let taken = (redirect.port, redirect.protocol.number(), redirect.to.is_ipv4());
                    if !ports.insert(taken) {
                        return Err(entry.invalid("another entry already redirects this port and protocol"));
                    }
                    parsed.redirects.push(redirect);
                }
                _ => return Err(entry.invalid(GRAMMAR)),
            }
        }
        if let Some(field) = ip.get("fallbackIP")
            && let Some(text) = ip.text("fallbackIP")?
        {
            let address = target(&field, text)?;
            if parsed.fallback(address).is_some_and(|other| other != address) {
                return Err(field
                    .invalid("an address in destinations already redirects all other ports of this family"));
            }
            parsed.set_fallback(address);
        }
        let written = ip.get("destinations").is_some_and(|field| field.value.is_array());
        if !blocks.is_empty() || (written && !parsed.redirect()) {
            parsed.allowed = Some(IpNet::aggregate(&blocks.into_iter().collect()));
        }
        Ok(parsed)
    }

    fn fallback(&self, family: IpAddr) -> Option<IpAddr> {
        self.fallbacks().find(|fallback| fallback.is_ipv4() == family.is_ipv4())
    }

    fn set_fallback(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.fallback_v4 = Some(address),
            IpAddr::V6(address) => self.fallback_v6 = Some(address),
        }
    }
}

fn redirect(
    entry: &Field<'_>,
    port: &str,
    protocol: &str,
    to: &str,
    to_port: Option<&str>,
) -> Result<Redirect, Error> {
    Ok(Redirect {
        port: self::port(entry, port)?,
        protocol: Protocol::parse(protocol)
            .ok_or_else(|| entry.invalid("the protocol must be tcp, udp or sctp"))?,
        to: target(entry, to)?,
        to_port: to_port.map(|port| self::port(entry, port)).transpose()?,
    })
}

fn port(entry: &Field<'_>, word: &str) -> Result<u16, Error> {
    // `u16` would also accept "+80".
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse()
        .ok()
        .filter(|port| *port > 0 && digits)
        .ok_or_else(|| entry.invalid(format_args!("{word:?} is no port: it must be 1 to 65535")))
}

/// The target of a redirect: one host.
fn target(entry: &Field<'_>, word: &str) -> Result<IpAddr, Error> {
    let net = cidr(word).ok_or_else(|| entry.invalid(GRAMMAR))?;
    if net.prefix_len() != net.max_prefix_len() {
        return Err(entry.invalid(format_args!(
            "a redirect target is one host: write {} without /{}",
            net.addr(),
            net.prefix_len()
        )));
    }
    match not_a_host(net.addr()) {
        Some(kind) => {
            Err(entry.invalid(format_args!("{} is {kind}: a redirect target is another host", net.addr())))
        }
        None => Ok(net.addr()),
    }
}

/// The kind of an address that cannot be a host's address.
pub(super) fn not_a_host(address: IpAddr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("the unspecified address");
    }
    if address.is_loopback() {
        return Some("a loopback address");
    }
    if address.is_multicast() {
        return Some("a multicast address");
    }
    match address {
        IpAddr::V4(address) if address.is_broadcast() => Some("the broadcast address"),
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => Some("an IPv4 address written as IPv6"),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
