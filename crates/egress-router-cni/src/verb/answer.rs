//! The result of ADD: what the plugins before said, as far as it still holds, and what this one made.

use std::path::Path;

use crate::cni::result::{Interface, Ip, Result, Route};
use crate::netlink::link::Link;
use crate::plan::{Family, Wanted, route::main_default};

/// `previous`, with the new interface, its addresses and routes after it. A default route of before, in a family that the new
/// interface took over, no longer holds and is left out.
#[must_use]
pub fn answer(
    wanted: &Wanted,
    previous: Option<&Result>,
    link: &Link,
    netns: &Path,
    kept: &[crate::netlink::route::Route],
    dns: Option<&serde_json::Value>,
) -> Result {
    let mut result = previous.cloned().unwrap_or_default();
    let taken: Vec<Family> = wanted.families().collect();
    result.routes.retain(|route| {
        route.destination.prefix_len() != 0 || !taken.contains(&Family::of_net(&route.destination))
    });
    let index = result.interfaces.len();
    result.interfaces.push(Interface {
        name: wanted.interface.clone(),
        mac: link.mac.map(crate::aws::metadata::mac_text),
        sandbox: Some(netns.to_string_lossy().into_owned()),
        mtu: Some(link.mtu).filter(|mtu| *mtu > 0),
        rest: serde_json::Map::new(),
    });
    result.ips.extend(wanted.addresses.iter().map(|address| Ip {
        address: *address,
        gateway: wanted.gateway(Family::of_net(address)),
        interface: Some(index),
        rest: serde_json::Map::new(),
    }));
    let device = crate::netlink::route::Device::New;
    let own = taken.iter().map(|family| main_default(wanted, *family, device));
    for route in own.chain(kept.iter().cloned()) {
        let route =
            Route { destination: route.destination, gateway: route.gateway, rest: serde_json::Map::new() };
        if !result
            .routes
            .iter()
            .any(|there| there.destination == route.destination && there.gateway == route.gateway)
        {
            result.routes.push(route);
        }
    }
    if let Some(dns) = dns {
        result.dns = Some(dns.clone());
    }
    result
}
