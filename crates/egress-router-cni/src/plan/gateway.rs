//! Infers the gateway of the pod's network from the node's routes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use common::netlink::route::Route;
use ipnet::IpNet;

use crate::cni::Error;
use crate::config::interface::Kind;
use crate::config::ip::Gateways;
use crate::observe::Host;

use super::{Family, master, needs_gateway, route};

/// `given`, and for each other family of `addresses` the gateway of the node's lowest-metric default route through `master`, if it is in
/// the network of an address of the pod (or link-local); otherwise the only gateway in it of other routes through the master. Of a
/// multipath route the first matching next hop is used.
///
/// # Errors
/// Code 7: a family has no or several candidates; they are listed.
pub fn infer(
    host: &Host,
    master: u32,
    addresses: &[IpNet],
    given: Gateways,
    kind: Kind,
) -> Result<Gateways, Error> {
    let mut gateways = given;
    if !needs_gateway(kind) {
        return Ok(gateways);
    }
    for family in missing(addresses, &given) {
        gateways.set(one(host, master, addresses, family)?);
    }
    Ok(gateways)
}

/// Families with addresses but without a gateway.
pub fn missing(addresses: &[IpNet], given: &Gateways) -> Vec<Family> {
    let has = |family: Family| addresses.iter().any(|address| Family::of_net(address) == family);
    Family::ALL.into_iter().filter(|family| has(*family) && given.of(*family).is_none()).collect()
}

fn one(host: &Host, master: u32, addresses: &[IpNet], family: Family) -> Result<IpAddr, Error> {
    let nets = networks(host, master, addresses, family);
    let mut via: Vec<(&Route, IpAddr)> = host
        .routes
        .iter()
        .filter(|found| found.kind == route::UNICAST && Family::of_net(&found.destination) == family)
        .flat_map(|found| found.paths().into_iter().map(move |path| (found, path)))
        .filter(|(_, (device, _))| *device == master)
        .filter_map(|(found, (_, gateway))| {
            Some((found, gateway.filter(|gateway| Family::of(gateway) == family)?))
        })
        .filter(|(_, gateway)| route::link_local(gateway) || nets.iter().any(|net| net.contains(gateway)))
        .filter(|(_, gateway)| !addresses.iter().any(|address| address.addr() == *gateway))
        .collect();
    via.sort_by_key(|(found, _)| (found.destination.prefix_len() != 0, route::metric(found)));
    let default = via.iter().find(|(found, _)| found.destination.prefix_len() == 0);
    if let Some((_, gateway)) = default {
        return Ok(*gateway);
    }
    let different: BTreeSet<IpAddr> = via.iter().map(|(_, gateway)| *gateway).collect();
    let words = different.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let name =
        host.links.iter().find(|link| link.index == master).map_or("the master", |link| link.name.as_str());
    let of = nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let cannot = |why: String| {
        let why = format!("ip.gateway is not given for {of} and cannot be inferred: {why}");
        Err(Error::invalid_config(why))
    };
    match different.len() {
        1 => different.first().copied().map_or_else(|| cannot(String::new()), Ok),
        0 => cannot(format!("no route of the node through {name} has a gateway there")),
        _ => cannot(format!("routes of the node through {name} have several there: {words}")),
    }
}

/// Networks that may contain the gateway: those of the pod's addresses; for an address without a prefix length, those of the master.
fn networks(host: &Host, master: u32, addresses: &[IpNet], family: Family) -> Vec<IpNet> {
    let mut nets = BTreeSet::new();
    for address in addresses.iter().filter(|address| Family::of_net(address) == family) {
        if address.prefix_len() < address.max_prefix_len() {
            nets.insert(address.trunc());
        } else {
            nets.extend(
                master::nets(host, master).filter(|net| net.contains(&address.addr())).map(|net| net.trunc()),
            );
        }
    }
    nets.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use common::netlink::address::Address;
    use common::netlink::route::Device;

    use super::*;
    use crate::config::interface::{IpvlanMode, MacvlanMode};

    const MASTER: u32 = 2;

    fn host(routes: &[(&str, &str, u32, u32)]) -> Host {
        let net = |net: &str| Address { link: MASTER, net: net.parse().unwrap(), scope: 0, flags: 0 };
        Host {
            links: Vec::new(),
            addresses: vec![net("192.168.50.2/24"), net("fd50::2/64")],
            routes: routes
                .iter()
                .map(|(to, gateway, device, metric)| Route {
                    gateway: Some(gateway.parse().unwrap()),
                    device: Some(Device::Index(*device)),
                    metric: Some(*metric),
                    ..route::unicast(to.parse().unwrap())
                })
                .collect(),
        }
    }

    fn inferred(
        routes: &[(&str, &str, u32, u32)],
        addresses: &[&str],
        given: Gateways,
    ) -> Result<Gateways, String> {
        let addresses: Vec<IpNet> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        infer(&host(routes), MASTER, &addresses, given, Kind::Macvlan(MacvlanMode::Bridge))
            .map_err(|error| error.message)
    }

    fn v4(gateway: &str) -> Gateways {
        Gateways { v4: Some(gateway.parse().unwrap()), v6: None }
    }

    #[test]
    fn the_default_route_with_the_lowest_metric_comes_first() {
        let routes = [
            ("10.0.0.0/8", "192.168.50.7", MASTER, 0),
            ("0.0.0.0/0", "192.168.50.9", MASTER, 200),
            ("0.0.0.0/0", "192.168.50.1", MASTER, 100),
            ("0.0.0.0/0", "192.168.50.3", 9, 0),
            ("0.0.0.0/0", "192.168.51.1", MASTER, 0),
        ];
        assert_eq!(inferred(&routes, &["192.168.50.99/24"], Gateways::default()), Ok(v4("192.168.50.1")));
        assert_eq!(inferred(&routes, &["192.168.50.99/32"], Gateways::default()), Ok(v4("192.168.50.1")));
        // A given gateway is kept.
        assert_eq!(inferred(&routes, &["192.168.50.99/24"], v4("192.168.50.77")), Ok(v4("192.168.50.77")));
    }

    #[test]
    fn without_a_default_route_the_only_gateway_is_used() {
        let routes = [("10.0.0.0/8", "192.168.50.7", MASTER, 0), ("11.0.0.0/8", "192.168.50.7", MASTER, 0)];
        assert_eq!(inferred(&routes, &["192.168.50.99/24"], Gateways::default()), Ok(v4("192.168.50.7")));
        let routes = [("10.0.0.0/8", "192.168.50.7", MASTER, 0), ("11.0.0.0/8", "192.168.50.8", MASTER, 0)];
        let several = inferred(&routes, &["192.168.50.99/24"], Gateways::default()).unwrap_err();
        assert!(several.ends_with("several there: 192.168.50.7, 192.168.50.8"), "{several}");
        let none = inferred(&[], &["192.168.50.99/24"], Gateways::default()).unwrap_err();
        assert!(none.starts_with("ip.gateway is not given for 192.168.50.0/24"), "{none}");
        // The pod's own address is not a candidate.
        let own = [("0.0.0.0/0", "192.168.50.99", MASTER, 0)];
        assert!(inferred(&own, &["192.168.50.99/24"], Gateways::default()).is_err());
    }

    #[test]
    fn each_family_needs_one() {
        let routes = [("0.0.0.0/0", "192.168.50.1", MASTER, 0), ("::/0", "fe80::1", MASTER, 1024)];
        let both = Gateways { v6: Some("fe80::1".parse().unwrap()), ..v4("192.168.50.1") };
        assert_eq!(inferred(&routes, &["192.168.50.99/24", "fd50::99/64"], Gateways::default()), Ok(both));
        let missing =
            inferred(&routes[..1], &["192.168.50.99/24", "fd50::99/64"], Gateways::default()).unwrap_err();
        assert!(missing.contains("fd50::/64"), "{missing}");
    }

    #[test]
    fn an_ipvlan_on_layer_3_needs_none() {
        let addresses = ["192.168.50.99/24".parse().unwrap()];
        let found = infer(&host(&[]), MASTER, &addresses, Gateways::default(), Kind::Ipvlan(IpvlanMode::L3s));
        assert_eq!(found, Ok(Gateways::default()));
    }
}
