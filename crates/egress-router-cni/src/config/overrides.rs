//! `ipConfig.overrides`: how far a ConfigMap may go.
//!
//! The seed's three rules, and what they mean where it is silent. A ConfigMap never gets further than the overrides allow:
//!
//! 1. `addresses` is a closed list. Addresses are compared without their prefix length; where both sides write one it has to
//!    be the same, and where one does it counts. The ConfigMap still must name its addresses.
//! 2. `gateway` is what the ConfigMap gets when it names none, and the only one that it may name.
//! 3. `destinations` and `fallbackIP` are one unit. A ConfigMap that says nothing of them gets the overrides' whole. Else its
//!    allow-list is intersected with the overrides'; an intersection without a block allows nothing. What it hands on has
//!    to be among what the overrides redirect, or go to an address within their allow-list; else the ConfigMap is refused:
//!    to leave a redirect out in silence would look like a service that is down. Redirects of the overrides that such a
//!    ConfigMap does not repeat are not taken over.

use std::net::IpAddr;

use ipnet::IpNet;

use super::destinations::Destinations;
use super::ip::{Gateways, Ip};
use crate::cni::{Code, Error};

/// What is left of `ip`, which stands at `path` of a ConfigMap, within `limits`.
pub(super) fn apply(limits: &Ip, ip: Ip, path: &str) -> Result<Ip, Error> {
    let addresses = ip
        .addresses
        .into_iter()
        .map(|address| allowed_address(&limits.addresses, address, path))
        .collect::<Result<Vec<_>, _>>()?;
    let gateways = gateways(&limits.gateways, &ip.gateways, &addresses, path)?;
    let destinations = destinations(&limits.destinations, ip.destinations, path)?;
    let ip = Ip { addresses, gateways, destinations };
    ip.coherent(path)?;
    Ok(ip)
}

fn beyond(message: String) -> Error {
    Error::new(Code::InvalidConfig, message)
}

fn allowed_address(limits: &[IpNet], address: IpNet, path: &str) -> Result<IpNet, Error> {
    if limits.is_empty() {
        return Ok(address);
    }
    let is_bare = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
    let listed = || limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let Some(limit) = limits.iter().find(|limit| limit.addr() == address.addr()) else {
        return Err(beyond(format!(
            "{path}.addresses has {address}: ipConfig.overrides.addresses allows {}",
            listed()
        )));
    };
    if is_bare(&address) {
        Ok(*limit)
    } else if is_bare(limit) || limit.prefix_len() == address.prefix_len() {
        Ok(address)
    } else {
        Err(beyond(format!(
            "{path}.addresses has {address}: ipConfig.overrides.addresses allows it as {limit}"
        )))
    }
}

fn gateways(limits: &Gateways, named: &Gateways, addresses: &[IpNet], path: &str) -> Result<Gateways, Error> {
    let mut allowed = limits.all().peekable();
    if allowed.peek().is_none() {
        return Ok(*named);
    }
    if let Some(other) = named.all().find(|gateway| limits.of(gateway) != Some(*gateway)) {
        let allowed: Vec<_> = allowed.map(|gateway| gateway.to_string()).collect();
        return Err(beyond(format!(
            "{path}.gateway is {other}: ipConfig.overrides.gateway allows {}",
            allowed.join(", ")
        )));
    }
    // The overrides are written once for pods of either family.
    let has = |v4: bool| addresses.iter().any(|address| address.addr().is_ipv4() == v4);
    Ok(Gateways { v4: limits.v4.filter(|_| has(true)), v6: limits.v6.filter(|_| has(false)) })
}

fn destinations(limits: &Destinations, named: Destinations, path: &str) -> Result<Destinations, Error> {
    if named == Destinations::default() {
        return Ok(limits.clone());
    }
    if *limits == Destinations::default() {
        return Ok(named);
    }
    let within = |to: IpAddr| {
        limits.allowed.as_ref().is_some_and(|blocks| blocks.iter().any(|block| block.contains(&to)))
    };
    for redirect in &named.redirects {
        if !limits.redirects.contains(redirect) && !within(redirect.to) {
            return Err(beyond(format!(
                "{path}.destinations redirects port {} to {}: ipConfig.overrides.destinations has neither this redirect nor a block \
                 that contains this address",
                redirect.port, redirect.to
            )));
        }
    }
    for fallback in named.fallbacks() {
        if !limits.fallbacks().any(|other| other == fallback) && !within(fallback) {
            return Err(beyond(format!(
                "{path} redirects all other ports to {fallback}: ipConfig.overrides neither does so nor has a block that contains \
                 this address"
            )));
        }
    }
    let allowed = match (&limits.allowed, named.allowed) {
        (Some(limits), Some(named)) => Some(intersection(limits, &named)),
        (limits, named) => named.or_else(|| limits.clone()),
    };
    Ok(Destinations { allowed, ..named })
}

/// What both lists allow. Of two blocks that have anything in common one lies within the other.
#[must_use]
pub fn intersection(left: &[IpNet], right: &[IpNet]) -> Vec<IpNet> {
    let common = |a: &IpNet, b: &IpNet| {
        if a.contains(b) {
            Some(*b)
        } else if b.contains(a) {
            Some(*a)
        } else {
            None
        }
    };
    let both: Vec<_> = left.iter().flat_map(|a| right.iter().filter_map(move |b| common(a, b))).collect();
    IpNet::aggregate(&both)
}

#[cfg(test)]
mod tests;
