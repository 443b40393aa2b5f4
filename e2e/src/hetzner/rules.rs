//! The rules of the API for a new route, with the messages of the real API.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

use super::{
    model::{Network, Route},
    refusal::{Code, Refusal},
};

/// Routes in one network.
const MOST_ROUTES: usize = 100;
/// The gateway of every server's public interface.
const PUBLIC_GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 1);

/// Private ranges of RFC 1918.
fn private() -> [Ipv4Net; 3] {
    [(10, 0, 8), (172, 16, 12), (192, 168, 16)]
        .map(|(a, b, length)| Ipv4Net::new_assert(Ipv4Addr::new(a, b, 0, 0), length))
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new(Code::InvalidInput, message)
}

/// Whether the route is allowed. `0.0.0.0/0` overlaps with another `0.0.0.0/0` only: real clusters have it next to pod routes.
pub(super) fn route(network: &Network, route: Route) -> Result<(), Refusal> {
    let Route { destination, gateway } = route;
    let default = destination.prefix_len() == 0;
    if !default && !private().iter().any(|range| range.contains(&destination)) {
        return Err(Refusal::field("destination", "must be a private IPv4 range of RFC1918 or 0.0.0.0/0"));
    }
    let overlaps = |other: &Ipv4Net| {
        (other.prefix_len() == 0) == default && (other.contains(&destination) || destination.contains(other))
    };
    if network.subnets.iter().any(|subnet| overlaps(&subnet.ip_range))
        || network.routes.iter().any(|other| overlaps(&other.destination))
        || (!default && destination.contains(&PUBLIC_GATEWAY))
    {
        return Err(invalid("network route destination overlaps with another subnetwork or network route"));
    }
    if gateway == PUBLIC_GATEWAY {
        return Err(invalid("invalid gateway"));
    }
    if !network.ip_range.contains(&gateway) {
        let range = network.ip_range;
        return Err(invalid(format!("network route gateway not part of the network IP range ({range})")));
    }
    let behind_vswitch =
        network.subnets.iter().any(|subnet| subnet.vswitch.is_some() && subnet.ip_range.contains(&gateway));
    if gateway == network.first_ip() || gateway == network.ip_range.network() || behind_vswitch {
        return Err(invalid("invalid gateway"));
    }
    if network.routes.len() >= MOST_ROUTES {
        return Err(Refusal::limit("network_route_limit", "network route limit exceeded"));
    }
    Ok(())
}
