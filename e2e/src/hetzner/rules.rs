//! What may be changed: the constraints of the API's reference, each with the words that the API was seen to use
//! where they are known.

use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

use super::{
    model::{Network, PrivateNet, Route},
    project::Project,
    refusal::{Code, Refusal},
};

/// Routes in one network.
const MOST_ROUTES: usize = 100;
/// Servers and load balancers in one network.
const MOST_MEMBERS: usize = 100;
/// Networks of one server.
const MOST_NETWORKS: usize = 3;
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

/// Whether the route may be added. The default route is of a kind of its own: it contains every pod route, and
/// they are seen side by side in real clusters, so that `0.0.0.0/0` overlaps with another `0.0.0.0/0` only.
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

/// The place that a server gets in a network.
pub(super) fn attach(
    project: &Project,
    server: u64,
    network: &Network,
    ip: Option<Ipv4Addr>,
    alias_ips: Vec<Ipv4Addr>,
) -> Result<PrivateNet, Refusal> {
    let current =
        &project.servers.get(&server).ok_or_else(|| Refusal::not_found("server", server))?.private_net;
    if current.iter().any(|net| net.network == network.id) {
        return Err(Refusal::new(Code::ServerAlreadyAttached, "server is already attached to the network"));
    }
    if current.len() >= MOST_NETWORKS {
        return Err(Refusal::limit("server_network_limit", "server network limit exceeded"));
    }
    if project.members(network.id).len() >= MOST_MEMBERS {
        return Err(Refusal::limit("network_attachment_limit", "network attachment limit exceeded"));
    }
    let overlapping = current.iter().filter_map(|net| project.networks.get(&net.network)).any(|other| {
        other.ip_range.contains(&network.ip_range) || network.ip_range.contains(&other.ip_range)
    });
    if overlapping {
        return Err(Refusal::new(Code::NetworksOverlap, "networks overlap"));
    }
    let ip = match ip {
        Some(ip) if usable(project, network, ip, None) => ip,
        Some(ip) => return Err(Refusal::new(Code::IpNotAvailable, format!("IP {ip} is not available"))),
        None => free_ip(project, network)
            .ok_or_else(|| Refusal::new(Code::NoSubnetAvailable, "no subnet with a free IP available"))?,
    };
    check_aliases(project, server, network, &alias_ips)?;
    if alias_ips.contains(&ip) {
        return Err(Refusal::new(Code::IpNotAvailable, format!("IP {ip} is not available")));
    }
    Ok(PrivateNet { network: network.id, ip, alias_ips })
}

/// Aliases must be in a subnet and not in use by another server; the server's own may stay.
pub(super) fn check_aliases(
    project: &Project,
    server: u64,
    network: &Network,
    alias_ips: &[Ipv4Addr],
) -> Result<(), Refusal> {
    match alias_ips.iter().find(|ip| !usable(project, network, **ip, Some(server))) {
        Some(ip) => Err(Refusal::new(Code::IpNotAvailable, format!("IP {ip} is not available"))),
        None => Ok(()),
    }
}

fn usable(project: &Project, network: &Network, ip: Ipv4Addr, aliases_of: Option<u64>) -> bool {
    let inside = network.subnets.iter().any(|subnet| {
        subnet.vswitch.is_none()
            && subnet.ip_range.contains(&ip)
            && ip != subnet.ip_range.network()
            && ip != subnet.ip_range.broadcast()
    });
    let taken = project
        .server_at(network.id, ip)
        .is_some_and(|owner| Some(owner.id) != aliases_of || owner.private_ip(network.id) == Some(ip));
    inside && ip != network.first_ip() && !taken
}

fn free_ip(project: &Project, network: &Network) -> Option<Ipv4Addr> {
    let cloud = network.subnets.iter().filter(|subnet| subnet.vswitch.is_none());
    cloud.flat_map(|subnet| subnet.ip_range.hosts()).find(|ip| usable(project, network, *ip, None))
}
