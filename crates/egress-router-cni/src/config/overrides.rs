//! `ipConfig.overrides`: the limits of a ConfigMap.
//!
//! Three rules. A ConfigMap never gets more than the overrides allow:
//!
//! 1. `addresses` is a closed list. Addresses are compared without their prefix length. If both have a length, it must be the same; if one
//!    has it, it is used. The ConfigMap must list its addresses.
//! 2. `gateway` is the default of the ConfigMap, and the only allowed value.
//! 3. `destinations` and `fallbackIP` are one unit. A ConfigMap with neither gets those of the overrides. Otherwise its allow-list is
//!    intersected with that of the overrides; an empty intersection allows nothing. Each of its redirects must be among those of the
//!    overrides, or have a target in their allow-list. Otherwise the ConfigMap is refused, because silently dropping a redirect would look
//!    like a service that is down. Redirects of the overrides that the ConfigMap does not repeat are not added.

use std::net::IpAddr;

use ipnet::IpNet;

use super::destinations::Destinations;
use super::ip::{Gateways, Ip};
use crate::cni::Error;
use crate::plan::Family;

/// `ip`, which is at `path` of a ConfigMap, limited by `limits`.
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

fn allowed_address(limits: &[IpNet], address: IpNet, path: &str) -> Result<IpNet, Error> {
    if limits.is_empty() {
        return Ok(address);
    }
    let is_bare = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
    let listed = || limits.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let Some(limit) = limits.iter().find(|limit| limit.addr() == address.addr()) else {
        return Err(Error::invalid_config(format!(
            "{path}.addresses has {address}: ipConfig.overrides.addresses allows {}",
            listed()
        )));
    };
    if is_bare(&address) {
        Ok(*limit)
    } else if is_bare(limit) || limit.prefix_len() == address.prefix_len() {
        Ok(address)
    } else {
        Err(Error::invalid_config(format!(
            "{path}.addresses has {address}: ipConfig.overrides.addresses allows it as {limit}"
        )))
    }
}

fn gateways(limits: &Gateways, named: &Gateways, addresses: &[IpNet], path: &str) -> Result<Gateways, Error> {
    let mut allowed = limits.all().peekable();
    if allowed.peek().is_none() {
        return Ok(*named);
    }
    if let Some(other) = named.all().find(|gateway| limits.of(Family::of(gateway)) != Some(*gateway)) {
        let allowed: Vec<_> = allowed.map(|gateway| gateway.to_string()).collect();
        return Err(Error::invalid_config(format!(
            "{path}.gateway is {other}: ipConfig.overrides.gateway allows {}",
            allowed.join(", ")
        )));
    }
    // The same overrides may apply to pods of either family.
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
            return Err(Error::invalid_config(format!(
                "{path}.destinations redirects port {} to {}: ipConfig.overrides.destinations has neither this redirect nor a block \
                 that contains this address",
                redirect.port, redirect.to
            )));
        }
    }
    for fallback in named.fallbacks() {
        if !limits.fallbacks().any(|other| other == fallback) && !within(fallback) {
            return Err(Error::invalid_config(format!(
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

/// The intersection of both lists. Of two overlapping blocks one is inside the other.
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
