//! The result of ADD: the still valid part of the previous result, and the new interface.

use std::path::Path;

use common::netlink::link::Link;

use crate::cni::result::{Interface, Ip, Result, Route};
use crate::config::interface::mac_text;
use crate::plan::{Desired, Family, route::main_default};

/// `previous`, followed by the new interface, its addresses and routes. The previous default route of a family that the new interface has
/// is no longer valid and is omitted.
#[must_use]
pub fn result(
    desired: &Desired,
    previous: Option<&Result>,
    link: &Link,
    netns: &Path,
    kept: &[common::netlink::route::Route],
    dns: Option<&serde_json::Value>,
) -> Result {
    let mut result = previous.cloned().unwrap_or_default();
    let taken: Vec<Family> = desired.families().collect();
    result.routes.retain(|route| {
        route.destination.prefix_len() != 0 || !taken.contains(&Family::of_net(&route.destination))
    });
    let index = result.interfaces.len();
    result.interfaces.push(Interface {
        name: desired.interface.clone(),
        mac: link.mac.map(mac_text),
        sandbox: Some(netns.to_string_lossy().into_owned()),
        mtu: Some(link.mtu).filter(|mtu| *mtu > 0),
        rest: serde_json::Map::new(),
    });
    result.ips.extend(desired.addresses.iter().map(|address| Ip {
        address: *address,
        gateway: desired.gateways.of(Family::of_net(address)),
        interface: Some(index),
        rest: serde_json::Map::new(),
    }));
    let device = common::netlink::route::Device::New;
    let own = taken.iter().map(|family| main_default(desired, *family, device));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cni::Version;
    use crate::config::destinations::Destinations;
    use crate::config::interface::{Kind, MacvlanMode};
    use crate::config::ip::Gateways;
    use crate::plan::route::unicast;

    fn desired(addresses: &[&str]) -> Desired {
        Desired {
            interface: "net1".into(),
            kind: Kind::Macvlan(MacvlanMode::Bridge),
            master: 2,
            node_addresses: Vec::new(),
            mtu: None,
            mac: None,
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            gateways: Gateways { v4: Some("192.168.1.1".parse().unwrap()), v6: None },
            destinations: Destinations::default(),
            cluster_networks: Vec::new(),
            previous: None,
        }
    }

    fn link() -> Link {
        let link = crate::plan::simulated::link(9, "net1", "macvlan");
        Link { mac: Some([2, 0, 0, 0, 0, 0xab]), mtu: 1400, ..link }
    }

    fn result_of(
        addresses: &[&str],
        previous: Option<serde_json::Value>,
        version: Version,
    ) -> serde_json::Value {
        let previous = previous.map(|previous| Result::parse(&previous).unwrap());
        let mut kept = unicast("172.30.0.0/16".parse().unwrap());
        kept.gateway = Some("10.1.0.1".parse().unwrap());
        let result =
            result(&desired(addresses), previous.as_ref(), &link(), Path::new("/run/netns/x"), &[kept], None);
        serde_json::from_str(&result.to_json(version)).unwrap()
    }

    #[test]
    fn without_a_chain_the_result_has_only_the_attachment() {
        assert_eq!(
            result_of(&["192.168.1.9/24"], None, Version::V1_1_0),
            json!({
                "cniVersion": "1.1.0",
                "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:ab", "sandbox": "/run/netns/x", "mtu": 1400}],
                "ips": [{"address": "192.168.1.9/24", "gateway": "192.168.1.1", "interface": 0}],
                "routes": [{"dst": "0.0.0.0/0", "gw": "192.168.1.1"}, {"dst": "172.30.0.0/16", "gw": "10.1.0.1"}],
            })
        );
    }

    #[test]
    fn in_a_chain_it_follows_the_valid_part_of_the_previous_result() {
        let previous = json!({
            "cniVersion": "0.4.0",
            "interfaces": [{"name": "cni0"}, {"name": "eth0", "sandbox": "/run/netns/x"}],
            "ips": [{"version": "4", "address": "10.1.0.9/24", "gateway": "10.1.0.1", "interface": 1}],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "172.30.0.0/16", "gw": "10.1.0.1"}],
            "dns": {"nameservers": ["10.1.0.2"]},
        });
        let result = result_of(&["192.168.1.9/24"], Some(previous), Version::V0_4_0);
        assert_eq!(result["interfaces"][2]["name"], "net1");
        assert_eq!(result["ips"][1]["interface"], 2);
        assert_eq!(result["ips"][0]["interface"], 1);
        // The default route of IPv6 is still the pod's own, that of IPv4 is not.
        assert_eq!(
            result["routes"],
            json!([{"dst": "::/0"}, {"dst": "172.30.0.0/16", "gw": "10.1.0.1"}, {"dst": "0.0.0.0/0", "gw": "192.168.1.1"}])
        );
        assert_eq!(result["dns"]["nameservers"][0], "10.1.0.2");
    }
}
