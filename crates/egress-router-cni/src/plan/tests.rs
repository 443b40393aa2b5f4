mod orders;

use common::netlink::address::Address;
use common::netlink::link::Link;
use common::netlink::nftables::expression::Expression;
use common::netlink::route::Device;

use super::simulated::{PRIMARY, Simulated, desired, link, net, pod, there};
use super::*;
use crate::config::destinations::{Destinations, Protocol, Redirect};

const BOTH: &[Family] = &Family::ALL;

fn redirecting(number: u8, families: &[Family]) -> Desired {
    let mut desired = desired(number, families);
    let to = |family: &Family| {
        if family.is_v6() { "2001:db8::7".parse().unwrap() } else { "203.0.113.7".parse().unwrap() }
    };
    desired.destinations.redirects = families
        .iter()
        .map(|family| Redirect { port: 80, protocol: Protocol::Tcp, to: to(family), to_port: None })
        .collect();
    desired
}

fn holder(simulated: &Simulated, family: Family) -> Option<String> {
    let default = primary::lowest_default(&simulated.pod, family)?;
    let Some(Device::Index(index)) = default.device else { return None };
    simulated.pod.links.iter().find(|link| link.index == index).map(|link| link.name.clone())
}

fn has(simulated: &Simulated, table: u32, destination: &str, gateway: Option<&str>) -> bool {
    let gateway = gateway.map(|gateway| gateway.parse().unwrap());
    let destination = net(destination);
    simulated
        .pod
        .routes
        .iter()
        .any(|route| (route.table, route.destination, route.gateway) == (table, destination, gateway))
}

#[test]
fn the_firewall_comes_first_and_the_default_route_last() {
    let plan = add::add(&desired(1, BOTH), &pod().pod).unwrap();
    assert!(
        matches!(plan.steps.first(), Some(Step::Firewall(firewall)) if firewall.primary.values().eq(["eth0", "eth0"]))
    );
    let tail: Vec<&Step> = plan.steps.iter().rev().take(2).collect();
    assert!(tail.iter().all(
        |step| matches!(step, Step::ReplaceRoute { before, .. } if before.destination.prefix_len() == 0)
    ));
}

#[test]
fn the_primary_interface_keeps_cluster_routes_service_routes_and_the_reply_direction() {
    let mut simulated = pod();
    simulated.add(&desired(1, BOTH));
    assert_eq!(holder(&simulated, Family::V4).as_deref(), Some("net1"));
    assert_eq!(holder(&simulated, Family::V6).as_deref(), Some("net1"));
    for (destination, gateway) in
        [("10.244.0.0/16", "10.244.1.1"), ("172.30.0.0/16", "10.244.1.1"), ("fd44::/48", "fe80::1")]
    {
        assert!(has(&simulated, route::MAIN, destination, Some(gateway)), "{destination}");
    }
    // The node, whose network is the new interface's.
    assert!(has(&simulated, route::MAIN, "192.168.1.2/32", Some("10.244.1.1")));
    assert!(has(&simulated, route::MAIN, "fd50:1::2/128", Some("fe80::1")));
    let table = crate::names::primary_table(1);
    assert!(
        has(&simulated, table, "0.0.0.0/0", Some("10.244.1.1"))
            && has(&simulated, table, "10.244.1.0/24", None)
    );
    assert!(has(&simulated, table, "::/0", Some("fe80::1")));
    let table = crate::names::egress_table(1);
    assert!(
        has(&simulated, table, "0.0.0.0/0", Some("192.168.1.1"))
            && has(&simulated, table, "192.168.1.0/24", None)
    );
    let default = primary::lowest_default(&simulated.pod, Family::V4).unwrap();
    assert_eq!(default.source, Some("192.168.1.9".parse().unwrap()));
    assert_eq!(simulated.pod.rules.len(), 4);
}

#[test]
fn routes_through_the_primary_interface_are_kept() {
    let mut simulated = pod();
    simulated.pod.routes.push(there("172.30.0.0/16", Some("10.244.1.1"), PRIMARY, None));
    simulated.pod.routes.push(there("10.0.0.0/8", Some("10.244.1.1"), PRIMARY, None));
    let plan = add::add(&desired(1, &[Family::V4]), &simulated.pod).unwrap();
    let kept: Vec<String> = plan.primary_routes.iter().map(|route| route.destination.to_string()).collect();
    assert_eq!(kept, ["169.254.0.0/16", "192.168.1.2/32"]);
}

/// A flat LAN or a VPC: pods and the attachment are in the same network.
#[test]
fn a_cluster_network_that_equals_the_attachments_network_stays_on_the_attachment() {
    let mut desired = desired(1, BOTH);
    desired.cluster_networks.extend([net("192.168.1.7/24"), net("fd50:1::/64"), net("192.168.1.128/25")]);
    let mut simulated = pod();
    let before = simulated.state();
    let plan = add::add(&desired, &simulated.pod).unwrap();
    for own in ["192.168.1.0/24", "fd50:1::/64"] {
        assert!(plan.primary_routes.iter().all(|route| route.destination != net(own)), "{own}");
    }
    // A smaller part of it can be reached through the primary interface, and the node always is.
    for kept in ["192.168.1.128/25", "192.168.1.2/32"] {
        assert!(plan.primary_routes.iter().any(|route| route.destination == net(kept)), "{kept}");
    }
    for named in ["192.168.1.7/24", "fd50:1::/64"] {
        assert!(plan.warnings.iter().any(|warning| warning.contains(named)), "{:?}", plan.warnings);
    }
    assert_eq!(plan.warnings.len(), 2, "{:?}", plan.warnings);
    simulated.add(&desired);
    simulated.del("net1");
    assert_eq!(simulated.state(), before);
    // Host addresses are not a network.
    desired.addresses = vec![net("192.168.1.9/32")];
    desired.cluster_networks = vec![net("192.168.1.0/24")];
    assert!(!route::is_own_network(&desired, &net("192.168.1.0/24")));
}

#[test]
fn a_gateway_outside_of_the_network_gets_a_route_of_its_own() {
    let mut desired = desired(1, BOTH);
    desired.addresses = vec![net("192.168.1.9/32"), net("fd50:1::9/128")];
    let mut simulated = pod();
    let before = simulated.state();
    simulated.add(&desired);
    for table in [route::MAIN, crate::names::egress_table(1)] {
        assert!(
            has(&simulated, table, "192.168.1.1/32", None) && has(&simulated, table, "fd50:1::1/128", None)
        );
    }
    simulated.del("net1");
    assert_eq!(simulated.state(), before);
}

#[test]
fn an_ipvlan_on_layer_3_has_a_default_route_without_a_gateway() {
    let mut desired = desired(1, BOTH);
    desired.kind = Kind::Ipvlan(IpvlanMode::L3);
    desired.gateways = Gateways::default();
    let mut simulated = pod();
    simulated.add(&desired);
    let default = primary::lowest_default(&simulated.pod, Family::V4).unwrap();
    assert_eq!((default.gateway, default.scope), (None, route::LINK));
}

#[test]
fn an_existing_interface_or_address_is_refused() {
    let mut simulated = pod();
    simulated.pod.links.push(link(3, "net1", "veth"));
    assert!(add::add(&desired(1, BOTH), &simulated.pod).unwrap_err().message.contains("net1 already"));
    let mut desired = desired(2, BOTH);
    desired.addresses.push(net("10.244.1.5/16"));
    assert!(add::add(&desired, &simulated.pod).unwrap_err().message.contains("10.244.1.5/16"));
}

/// The interfaces that the rules of `chain` compare with.
fn interfaces_of(plan: &Plan, chain: &str) -> Vec<String> {
    let Some(Step::Firewall(firewall)) = plan.steps.first() else { panic!("the table comes first") };
    let ruleset = firewall.ruleset();
    let rules = ruleset.chains.iter().filter(|(other, _)| other.name == chain).flat_map(|(_, rules)| rules);
    let compared = rules.flat_map(|rule| &rule.expressions).filter_map(|expression| match expression {
        Expression::Compare { value, .. } if value.len() == 16 => {
            Some(String::from_utf8_lossy(value).trim_end_matches('\0').to_owned())
        }
        _ => None,
    });
    compared.collect()
}

#[test]
fn each_family_has_its_own_primary_interface() {
    let mut simulated = pod();
    simulated.pod.links.push(link(3, "eth1", "veth"));
    simulated.pod.addresses.push(Address { link: 3, net: net("fd45::5/64"), scope: 0, flags: 0 });
    simulated.pod.routes.retain(|route| route.destination != net("::/0"));
    simulated.pod.routes.push(there("fd45::/64", None, 3, Some(256)));
    simulated.pod.routes.push(there("::/0", Some("fd45::1"), 3, Some(1024)));
    let before = simulated.state();
    let desired = redirecting(1, BOTH);
    let plan = add::add(&desired, &simulated.pod).unwrap();
    assert_eq!(interfaces_of(&plan, "prerouting_mark"), ["eth0", "eth1"]);
    assert_eq!(interfaces_of(&plan, "prerouting_dnat"), ["eth0", "eth1"]);
    simulated.add(&desired);
    assert!(has(&simulated, crate::names::primary_table(1), "0.0.0.0/0", Some("10.244.1.1")));
    assert!(has(&simulated, crate::names::primary_table(1), "::/0", Some("fd45::1")));
    simulated.del("net1");
    assert_eq!(simulated.state(), before);
}

/// NodeLocal DNS has 169.254.20.10, a metadata service 169.254.169.254.
#[test]
fn link_local_services_of_the_cluster_stay_on_the_primary_interface() {
    let mut simulated = pod();
    let mut with_none = desired(1, BOTH);
    with_none.cluster_networks.clear();
    simulated.add(&with_none);
    assert!(has(&simulated, route::MAIN, "169.254.0.0/16", Some("10.244.1.1")));
    // An attachment in this network reaches its own hosts.
    let mut own = desired(2, BOTH);
    own.addresses = vec![net("169.254.7.9/16")];
    own.gateways = Gateways { v4: Some("169.254.7.1".parse().unwrap()), v6: None };
    let plan = add::add(&own, &pod().pod).unwrap();
    assert!(plan.primary_routes.iter().all(|route| route.destination != net("169.254.0.0/16")));
}

/// Multus deletes the default route of the other networks before this plugin runs.
#[test]
fn the_primary_interface_is_found_without_its_default_route() {
    let mut simulated = pod();
    simulated.pod.routes.retain(|route| route.destination.prefix_len() != 0);
    simulated.pod.routes.push(there("172.30.0.0/16", Some("10.244.1.3"), PRIMARY, None));
    simulated.pod.routes.push(there("10.128.0.0/14", Some("10.244.1.1"), PRIMARY, None));
    let before = simulated.state();
    simulated.add(&desired(1, BOTH));
    assert!(has(&simulated, crate::names::primary_table(1), "0.0.0.0/0", Some("10.244.1.1")));
    assert!(has(&simulated, route::MAIN, "10.244.0.0/16", Some("10.244.1.1")));
    // Multus then replaces the attachment's default route.
    let index = simulated.pod.links.iter().find(|link| link.name == "net1").unwrap().index;
    simulated.pod.routes.retain(|route| route.table != route::MAIN || route.destination != net("0.0.0.0/0"));
    simulated.pod.routes.push(there("0.0.0.0/0", Some("192.168.1.1"), index, None));
    simulated.add(&desired(2, BOTH));
    simulated.del("net1");
    assert_eq!(holder(&simulated, Family::V4).as_deref(), Some("net2"));
    simulated.del("net2");
    assert_eq!(simulated.state(), before);
}

#[test]
fn the_primary_interface_is_found_by_each_of_its_sources() {
    let none = std::collections::BTreeMap::new();
    let found = |simulated: &Simulated, previous: Option<&Previous>| {
        primary::find(&simulated.pod, Family::V4, &none, previous)
            .map(|primary| (primary.name, primary.defaults.first().and_then(|route| route.gateway)))
    };
    let gateway = |text: &str| Some(text.parse().unwrap());
    let mut simulated = pod();
    simulated.pod.links.push(link(3, "eth1", "veth"));
    simulated.pod.addresses.push(Address { link: 3, net: net("10.9.0.5/24"), scope: 0, flags: 0 });
    simulated.pod.routes.push(there("10.9.0.0/24", None, 3, None));
    simulated.pod.routes.push(there("0.0.0.0/0", Some("10.9.0.1"), 3, Some(50)));
    assert_eq!(found(&simulated, None), Some(("eth0".into(), gateway("10.244.1.1"))));
    simulated
        .pod
        .routes
        .iter_mut()
        .filter(|route| route.metric.is_none())
        .for_each(|route| route.metric = Some(100));
    assert_eq!(found(&simulated, None), Some(("eth1".into(), gateway("10.9.0.1"))));
    // Without default routes: the previous result, otherwise an unambiguous interface.
    simulated.pod.routes.retain(|route| route.gateway.is_none());
    let previous = Previous { interface: "eth1".into(), gateways: vec!["10.9.0.7".parse().unwrap()] };
    assert_eq!(found(&simulated, Some(&previous)), Some(("eth1".into(), gateway("10.9.0.7"))));
    assert_eq!(found(&simulated, None), None);
    simulated.pod.routes.push(there("172.30.0.0/16", Some("10.9.0.3"), 3, None));
    assert_eq!(found(&simulated, None), Some(("eth1".into(), gateway("10.9.0.3"))));
    simulated.pod.routes.retain(|route| route.gateway.is_none());
    simulated.pod.addresses.retain(|address| address.link != 3);
    assert_eq!(found(&simulated, None), Some(("eth0".into(), None)));
}

#[test]
fn a_pod_without_other_networks_works_too() {
    let mut simulated = pod();
    simulated.drop_primary();
    let before = simulated.state();
    simulated.add(&desired(1, BOTH));
    assert_eq!(holder(&simulated, Family::V6).as_deref(), Some("net1"));
    assert!(simulated.pod.rules.iter().all(|rule| rule.mark.is_none()));
    simulated.del("net1");
    assert_eq!(simulated.state(), before);
}

impl Simulated {
    fn drop_primary(&mut self) {
        self.apply(&Step::DeleteLink { index: PRIMARY, name: "eth0".into() }).unwrap();
    }
}

#[test]
fn sysctls_change_only_as_far_as_needed() {
    let named = |steps: &[Step], part: &str| {
        let sysctls = steps.iter().filter_map(|step| match step {
            Step::Sysctl { name, value, .. } => Some(format!("{}={value}", name.join("."))),
            _ => None,
        });
        sysctls.filter(|name| name.contains(part)).collect::<Vec<_>>()
    };
    let mut simulated = pod();
    let plan = add::add(&desired(1, BOTH), &simulated.pod).unwrap();
    assert_eq!(named(&plan.steps, "rp_filter"), [""; 0]);
    assert_eq!(named(&plan.steps, "forwarding"), [""; 0]);
    simulated.pod.sysctls.insert(sysctl::conf(Family::V4, "all", "rp_filter"), "1".into());
    simulated.pod.sysctls.insert(sysctl::conf(Family::V6, "lo", "forwarding"), "1".into());
    let plan = add::add(&redirecting(1, BOTH), &simulated.pod).unwrap();
    assert_eq!(
        named(&plan.steps, "rp_filter"),
        ["net.ipv4.conf.eth0.rp_filter=2", "net.ipv4.conf.net1.rp_filter=2"]
    );
    assert_eq!(
        named(&plan.steps, "forwarding"),
        [
            "net.ipv4.conf.eth0.forwarding=1",
            "net.ipv6.conf.lo.forwarding=1",
            "net.ipv6.conf.all.forwarding=1",
            "net.ipv4.conf.net1.forwarding=1"
        ]
    );
    simulated.pod.sysctls.insert(sysctl::conf(Family::V4, "all", "rp_filter"), "2".into());
    assert_eq!(named(&add::add(&desired(1, BOTH), &simulated.pod).unwrap().steps, "rp_filter"), [""; 0]);
}

/// The pod still forwards what it forwarded before.
#[test]
fn redirects_do_not_make_the_pod_forward_other_traffic() {
    let forwards = |simulated: &Simulated, desired: &Desired| match add::add(desired, &simulated.pod) {
        Ok(Plan { steps, .. }) => match steps.first() {
            Some(Step::Firewall(firewall)) => (firewall.forwards.v4, firewall.forwards.v6),
            step => panic!("{step:?}"),
        },
        Err(error) => panic!("{error}"),
    };
    let mut simulated = pod();
    assert_eq!(forwards(&simulated, &desired(1, BOTH)), (false, false));
    assert_eq!(forwards(&simulated, &redirecting(1, BOTH)), (true, true));
    assert_eq!(forwards(&simulated, &redirecting(1, &[Family::V4])), (true, false));
    // The record of another attachment shows that it enabled forwarding.
    simulated.add(&redirecting(1, BOTH));
    assert_eq!(forwards(&simulated, &redirecting(2, BOTH)), (true, true));
    let mut router = pod();
    router.pod.sysctls.insert(sysctl::conf(Family::V4, "eth0", "forwarding"), "1".into());
    router.pod.sysctls.insert(sysctl::conf(Family::V6, "all", "forwarding"), "1".into());
    assert_eq!(forwards(&router, &redirecting(1, BOTH)), (false, false));
}

#[test]
fn a_network_with_another_existing_route_is_not_in_the_result() {
    let mut simulated = pod();
    let before = add::add(&desired(1, BOTH), &simulated.pod).unwrap();
    let has = |plan: &Plan| plan.primary_routes.iter().any(|route| route.destination == net("172.30.0.0/16"));
    assert!(has(&before));
    simulated.pod.links.push(link(9, "net0", ""));
    simulated.pod.routes.push(there("172.30.0.0/16", None, 9, None));
    let plan = add::add(&desired(1, BOTH), &simulated.pod).unwrap();
    assert!(!has(&plan));
    assert!(plan.warnings.iter().any(|warning| warning.contains("172.30.0.0/16")), "{:?}", plan.warnings);
}

#[test]
fn a_new_link_ignores_router_advertisements_and_announces_its_addresses() {
    let (v4, v6) = (Family::V4, Family::V6);
    let arp = [(v4, "arp_notify", "1"), (v4, "arp_ignore", "1"), (v4, "arp_announce", "2")];
    let ipv6 = [(v6, "accept_ra", "0"), (v6, "disable_ipv6", "0"), (v6, "ndisc_notify", "1")];
    // Without an IPv6 address, the link has no link-local one either.
    let none: &[_] = &[(v6, "disable_ipv6", "1")];
    for (families, needed) in
        [(&[v4][..], [&arp[..], none].concat()), (&[v6], ipv6.to_vec()), (BOTH, [&arp[..], &ipv6].concat())]
    {
        let plan = add::add(&desired(1, families), &pod().pod).unwrap();
        let up = plan.steps.iter().position(|step| *step == Step::SetUp).unwrap();
        for (family, key, value) in needed {
            let step =
                Step::Sysctl { name: sysctl::conf(family, "net1", key), value: value.into(), before: None };
            assert!(plan.steps[..up].contains(&step), "{families:?}: {key}");
        }
    }
}

/// `ip route append`: of several default routes that differ only in their next hop, the first is used.
#[test]
fn default_routes_of_the_same_metric_are_restored_in_order() {
    let defaults = |simulated: &Simulated| {
        let main = route::defaults(&simulated.pod, route::MAIN, Family::V4);
        main.map(|route| route.gateway.unwrap().to_string()).collect::<Vec<_>>()
    };
    let mut simulated = pod();
    for gateway in ["10.244.1.3", "10.244.1.4"] {
        simulated.pod.routes.push(there("0.0.0.0/0", Some(gateway), PRIMARY, None));
    }
    let before = defaults(&simulated);
    assert_eq!(before, ["10.244.1.1", "10.244.1.3", "10.244.1.4"]);
    simulated.add(&desired(1, BOTH));
    assert_eq!(defaults(&simulated), ["192.168.1.1"]);
    simulated.add(&desired(2, BOTH));
    let both = simulated.clone();
    for order in [["net1", "net2"], ["net2", "net1"]] {
        simulated = both.clone();
        order.iter().for_each(|interface| simulated.del(interface));
        assert_eq!(defaults(&simulated), before, "{order:?}");
    }
    // A DEL that was killed between two steps.
    simulated = both;
    simulated.del("net2");
    let record = simulated.pod.attachments["net1"].clone();
    let steps = del::del(&simulated.pod, "net1", &record);
    for killed in 0..4 {
        let mut repeated = simulated.clone();
        repeated.run(&steps[..killed]);
        repeated.del("net1");
        assert_eq!(defaults(&repeated), before, "killed after {killed}");
    }
    // A remaining one is not added twice, and a foreign one stays.
    let foreign = there("0.0.0.0/0", Some("10.244.1.77"), PRIMARY, None);
    simulated
        .pod
        .routes
        .retain(|route| route.table != route::MAIN || route.destination != foreign.destination);
    simulated.pod.routes.push(foreign);
    simulated.del("net1");
    assert_eq!(defaults(&simulated), ["10.244.1.77"]);
}

/// A pod with an advertised IPv6 default route that expires in half an hour.
fn advertised() -> Simulated {
    let mut simulated = pod();
    simulated.pod.sysctls.insert(sysctl::routers("eth0"), "1".into());
    let all = net("::/0");
    let default = simulated.pod.routes.iter_mut().find(|route| route.destination == all).unwrap();
    default.protocol = 9;
    default.rest.push((23, 1800_u32.to_ne_bytes().to_vec()));
    simulated
}

/// The next advertisement would add it again.
#[test]
fn advertised_default_routes_are_ignored_until_the_last_attachment_is_removed() {
    let heard = |simulated: &Simulated| simulated.pod.sysctls[&sysctl::routers("eth0")].clone();
    let defaults = |simulated: &Simulated| {
        let main = route::defaults(&simulated.pod, route::MAIN, Family::V6);
        main.map(|route| (route.protocol, route::metric(route))).collect::<Vec<_>>()
    };
    let mut simulated = advertised();
    let before = simulated.state();
    for order in [["net1", "net2"], ["net2", "net1"]] {
        for number in [1, 2] {
            simulated.add(&desired(number, BOTH));
            assert_eq!(defaults(&simulated), [(crate::names::PROTOCOL, 1)]);
            // Copies do not expire: see netlink::route.
            let copies = simulated.pod.routes.iter_mut().filter(|route| route.table != route::MAIN);
            copies.for_each(|route| route.rest.retain(|(kind, _)| *kind != 23));
        }
        simulated.del(order[0]);
        assert_eq!((heard(&simulated).as_str(), defaults(&simulated).len()), ("0", 1));
        simulated.del(order[1]);
        assert_eq!(simulated.state(), before, "{order:?}");
    }
    // An attachment without IPv6 does not change it.
    simulated.add(&desired(1, &[Family::V4]));
    assert_eq!((heard(&simulated).as_str(), defaults(&simulated)), ("1", vec![(9, 1024)]));
    // Without an advertised route, a later one does not bypass the attachment either.
    let mut later = pod();
    later.pod.routes.retain(|route| route.destination != net("::/0"));
    later.add(&desired(1, BOTH));
    assert_eq!(defaults(&later), [(crate::names::PROTOCOL, 1)]);
}

#[test]
fn check_reports_a_default_route_that_the_kernel_may_use_instead() {
    let mut simulated = pod();
    simulated.pod.routes.retain(|route| route.destination != net("::/0"));
    simulated.pod.routes.push(there("::/0", Some("fe80::1"), PRIMARY, Some(100)));
    let desired = desired(1, BOTH);
    simulated.add(&desired);
    let record = simulated.pod.attachments["net1"].clone();
    let named = |other: Route| {
        let mut simulated = simulated.clone();
        simulated.pod.routes.push(other);
        let all = check::check(&desired, &record, &simulated.pod);
        all.into_iter().filter(|words| words.contains("default route of")).collect::<Vec<_>>()
    };
    for (other, words) in [
        (
            there("::/0", Some("fe80::1"), PRIMARY, Some(100)),
            "of IPv6 is ::/0 via fe80::1 dev eth0 metric 100",
        ),
        (there("::/0", Some("fe80::1"), PRIMARY, Some(99)), "of IPv6 is ::/0 via fe80::1 dev eth0 metric 99"),
        (
            there("0.0.0.0/0", Some("10.244.1.1"), PRIMARY, None),
            "of IPv4 is 0.0.0.0/0 via 10.244.1.1 dev eth0",
        ),
        (
            Route { tos: 8, ..there("0.0.0.0/0", Some("10.244.1.1"), PRIMARY, Some(7)) },
            "of IPv4 is 0.0.0.0/0 via 10.244.1.1 dev eth0 metric 7",
        ),
    ] {
        assert_eq!(named(other), [format!("the default route {words} table 254, not through net1")]);
    }
    assert_eq!(named(there("::/0", Some("fe80::1"), PRIMARY, Some(101))), [""; 0]);
    assert_eq!(named(there("0.0.0.0/0", Some("10.244.1.1"), PRIMARY, Some(1))), [""; 0]);
}

/// IPv4 prefers a route for a packet's TOS, independent of metrics.
#[test]
fn a_default_route_for_a_tos_is_not_the_default_and_is_removed_too() {
    for plain in [true, false] {
        let mut simulated = pod();
        simulated.pod.links.push(link(3, "eth1", "veth"));
        simulated.pod.routes.push(there("10.9.0.0/24", None, 3, None));
        let all = net("0.0.0.0/0");
        simulated.pod.routes.retain(|route| route.destination != all);
        simulated
            .pod
            .routes
            .push(Route { tos: 0x10, ..there("0.0.0.0/0", Some("10.244.1.3"), PRIMARY, None) });
        simulated.pod.routes.push(Route { tos: 0x08, ..there("0.0.0.0/0", Some("10.9.0.1"), 3, Some(7)) });
        simulated
            .pod
            .routes
            .extend(plain.then(|| there("0.0.0.0/0", Some("10.244.1.1"), PRIMARY, Some(100))));
        let before = simulated.state();
        simulated.add(&desired(1, BOTH));
        let index = simulated.pod.links.iter().find(|link| link.name == "net1").unwrap().index;
        let left: Vec<&Route> = route::defaults(&simulated.pod, route::MAIN, Family::V4).collect();
        assert!(
            matches!(left.as_slice(), [one] if one.tos == 0 && one.device == Some(Device::Index(index))),
            "{left:?}"
        );
        // The primary table has all of them, and kept routes follow the one without a TOS.
        let primary = route::defaults(&simulated.pod, crate::names::primary_table(1), Family::V4);
        assert_eq!(primary.count(), 2 + usize::from(plain));
        let gateway = if plain { "10.244.1.1" } else { "10.244.1.3" };
        assert!(has(&simulated, route::MAIN, "172.30.0.0/16", Some(gateway)));
        simulated.add(&desired(2, BOTH));
        simulated.del("net1");
        assert_eq!(holder(&simulated, Family::V4).as_deref(), Some("net2"));
        simulated.del("net2");
        assert_eq!(simulated.state(), before);
    }
}

#[test]
fn routes_that_only_the_newer_attachment_removed_are_restored_when_it_is_removed_first() {
    let mut simulated = pod();
    simulated.pod.links.push(link(3, "eth1", "veth"));
    simulated.pod.routes.push(there("10.9.0.0/24", None, 3, None));
    let first = simulated.state();
    simulated.add(&desired(1, BOTH));
    let late = Route { tos: 0x10, ..there("0.0.0.0/0", Some("10.9.0.1"), 3, None) };
    simulated.pod.routes.push(late.clone());
    let before = simulated.state();
    simulated.add(&desired(2, BOTH));
    assert!(!simulated.pod.routes.contains(&late));
    simulated.del("net2");
    assert_eq!(simulated.state(), before);
    simulated.del("net1");
    assert!(simulated.pod.routes.contains(&late), "it belongs to no attachment");
    simulated.pod.routes.retain(|route| *route != late);
    assert_eq!(simulated.state(), first);
}

/// Another route is advertised or appended.
#[test]
fn a_default_route_is_restored_although_another_one_was_added() {
    for (all, twin) in [("::/0", "fe80::9"), ("0.0.0.0/0", "10.244.1.9")] {
        let mut simulated = pod();
        let is_default = |route: &&Route| route.destination == net(all) && route.table == route::MAIN;
        let before = simulated.pod.routes.iter().find(is_default).unwrap().clone();
        simulated.add(&desired(1, BOTH));
        let twin_route = Route { gateway: Some(twin.parse().unwrap()), ..before.clone() };
        simulated.pod.routes.push(twin_route.clone());
        simulated.del("net1");
        let mut left: Vec<Route> = simulated.pod.routes.iter().filter(is_default).cloned().collect();
        left.sort_by_key(|route| route.gateway);
        assert_eq!(left, [before, twin_route]);
    }
}

/// The second attachment has the lowest metric, and DEL leaves it to the first.
#[test]
fn a_static_default_route_is_restored_although_one_was_advertised_between_two_attachments() {
    let mut simulated = pod();
    simulated.pod.sysctls.insert(sysctl::routers("eth0"), "1".into());
    let all = net("::/0");
    let is_default = |route: &&Route| route.destination == all && route.table == route::MAIN;
    let before = simulated.pod.routes.iter().find(is_default).unwrap().clone();
    simulated.add(&desired(1, BOTH));
    let advertised = Route { gateway: Some("fe80::9".parse().unwrap()), protocol: 9, ..before.clone() };
    simulated.pod.routes.push(advertised.clone());
    simulated.add(&desired(2, BOTH));
    for interface in ["net2", "net1"] {
        simulated.del(interface);
    }
    let mut left: Vec<Route> = simulated.pod.routes.iter().filter(is_default).cloned().collect();
    left.sort_by_key(|route| route.gateway);
    assert_eq!(left, [before, advertised]);
}

/// The kernel uses the next of several equal default routes if the gateway of the first is unreachable.
#[test]
fn a_default_route_of_the_same_metric_on_another_interface_is_removed_too() {
    let mut simulated = pod();
    simulated.pod.links.push(link(3, "eth1", "veth"));
    simulated.pod.routes.push(there("10.9.0.0/24", None, 3, None));
    simulated.pod.routes.push(there("0.0.0.0/0", Some("10.9.0.1"), 3, None));
    simulated.pod.routes.push(there("0.0.0.0/0", Some("10.9.0.2"), 3, Some(9)));
    let gateways = |simulated: &Simulated| {
        let main = route::defaults(&simulated.pod, route::MAIN, Family::V4);
        main.map(|route| route.gateway.unwrap().to_string()).collect::<Vec<_>>()
    };
    let before = gateways(&simulated);
    simulated.add(&desired(1, BOTH));
    assert_eq!(gateways(&simulated), ["192.168.1.1", "10.9.0.2"]);
    simulated.del("net1");
    let mut after = gateways(&simulated);
    assert_eq!(after[0], before[0]);
    after.sort();
    assert_eq!(after, ["10.244.1.1", "10.9.0.1", "10.9.0.2"]);
}

/// A link with a temporary name of a killed ADD.
#[test]
fn only_a_link_with_a_temporary_name_counts_as_left_over() {
    let mut simulated = pod();
    let mut add = |name: &str, kind: &str, up: bool| {
        let index = simulated.pod.links.len() as u32 + 20;
        simulated.pod.links.push(Link { up, ..link(index, name, kind) });
        index
    };
    add("egr1f", "macvlan", false);
    add("egr2", "ipvlan", false);
    add("egr3", "veth", false);
    add("egr4", "macvlan", true);
    add("egress0", "macvlan", false);
    add("egr", "macvlan", false);
    let addressed = add("egr6", "macvlan", false);
    simulated.pod.addresses.push(Address { link: addressed, net: net("10.9.0.5/24"), scope: 0, flags: 0 });
    let found: Vec<&str> = del::temporary(&simulated.pod).map(|link| link.name.as_str()).collect();
    assert_eq!(found, ["egr1f", "egr2"]);
}

/// The run directory was deleted: neither routes nor links of others are touched.
#[test]
fn without_a_record_only_the_link_with_a_table_of_its_name_is_deleted() {
    let mut simulated = pod();
    let before = simulated.pod.clone();
    simulated.add(&desired(1, BOTH));
    simulated.pod.attachments.clear();
    let whole = simulated.clone();
    simulated.run(&del::unrecorded(&simulated.pod, "net1"));
    assert_eq!((&simulated.pod.links, &simulated.pod.tables), (&before.links, &before.tables));
    let steps = del::unrecorded(&whole.pod, "net1");
    assert!(
        matches!(steps.as_slice(), [Step::DeleteLink { .. }, Step::DeleteFirewall { .. }]),
        "a link that is up always has its allow-list: {steps:?}"
    );
    assert_eq!(del::unrecorded(&simulated.pod, "net1"), []);
    // Without a table, a macvlan of another plugin. With a table, a link of another kind.
    let mut untabled = whole.clone();
    untabled.pod.tables.clear();
    assert_eq!(del::unrecorded(&untabled.pod, "net1"), []);
    let mut other = whole.clone();
    other.pod.links.iter_mut().filter(|link| link.name == "net1").for_each(|link| link.kind = "veth".into());
    assert!(matches!(del::unrecorded(&other.pod, "net1").as_slice(), [Step::DeleteFirewall { .. }]));
    // The next attachment has other tables, and its primary interface is not the unrecorded one.
    let plan = whole.clone().record(&desired(2, BOTH));
    assert_eq!((plan.undo.slot, plan.undo.primary[&Family::V4].interface.as_str()), (2, "eth0"));
}

#[test]
fn ipv6_needs_a_minimum_mtu() {
    let mut desired = desired(1, BOTH);
    desired.mtu = Some(1279);
    let error = add::add(&desired, &pod().pod).unwrap_err();
    assert_eq!(error.code, crate::cni::Code::InvalidConfig);
    assert!(error.message.starts_with("interfaceArgs.mtu is 1279"), "{error}");
    desired.mtu = Some(1280);
    assert!(add::add(&desired, &pod().pod).is_ok());
    assert!(
        add::add(&Desired { mtu: Some(68), ..super::simulated::desired(1, &[Family::V4]) }, &pod().pod)
            .is_ok()
    );
}

#[test]
fn a_later_foreign_change_is_kept() {
    let mut simulated = pod();
    simulated.pod.sysctls.insert(sysctl::conf(Family::V4, "eth0", "rp_filter"), "1".into());
    simulated.add(&desired(1, BOTH));
    simulated.pod.sysctls.insert(sysctl::conf(Family::V4, "eth0", "rp_filter"), "0".into());
    // The default route of another plugin stays.
    let default = simulated
        .pod
        .routes
        .iter_mut()
        .find(|route| route.table == route::MAIN && route.destination == net("0.0.0.0/0"))
        .unwrap();
    *default = there("0.0.0.0/0", Some("10.244.1.77"), PRIMARY, None);
    simulated.del("net1");
    assert_eq!(simulated.pod.sysctls[&sysctl::conf(Family::V4, "eth0", "rp_filter")], "0");
    assert!(has(&simulated, route::MAIN, "0.0.0.0/0", Some("10.244.1.77")));
}

/// Another program deleted the interface and its routes.
#[test]
fn a_link_that_was_deleted_by_others_leaves_nothing() {
    let mut simulated = pod();
    let before = simulated.state();
    simulated.add(&redirecting(1, BOTH));
    let index = simulated.pod.links.iter().find(|link| link.name == "net1").unwrap().index;
    simulated.apply(&Step::DeleteLink { index, name: "net1".into() }).unwrap();
    simulated.del("net1");
    assert_eq!(simulated.state(), before);
}

#[test]
fn a_renamed_link_is_deleted_and_one_that_got_its_name_stays() {
    let mut simulated = pod();
    simulated.add(&desired(1, BOTH));
    let made = simulated.pod.links.iter_mut().find(|link| link.name == "net1").unwrap();
    made.name = "renamed".into();
    let index = made.index;
    simulated.pod.links.push(link(99, "net1", "macvlan"));
    let undo = simulated.pod.attachments.get_mut("net1").unwrap();
    undo.link = Some(index);
    simulated.del("net1");
    let names: Vec<&str> = simulated.pod.links.iter().map(|link| link.name.as_str()).collect();
    assert_eq!(names, ["lo", "eth0", "net1"]);
    assert_eq!(holder(&simulated, Family::V4).as_deref(), Some("eth0"));
    assert_eq!(holder(&simulated, Family::V6).as_deref(), Some("eth0"));
}

#[test]
fn a_foreign_link_of_the_same_name_stays() {
    let mut simulated = pod();
    simulated.add(&desired(1, BOTH));
    let net1 = simulated.pod.links.iter_mut().find(|link| link.name == "net1").unwrap();
    net1.kind = "veth".into();
    simulated.del("net1");
    assert!(simulated.pod.links.iter().any(|link| link.name == "net1"));
    assert!(simulated.pod.tables.is_empty());
}

#[test]
fn check_reports_all_differences() {
    let mut simulated = pod();
    simulated.pod.sysctls.insert(sysctl::conf(Family::V4, "eth0", "rp_filter"), "1".into());
    let desired =
        Desired { kind: Kind::Macvlan(crate::config::interface::MacvlanMode::Bridge), ..desired(1, BOTH) };
    simulated.add(&desired);
    simulated.pod.links.iter_mut().for_each(|link| {
        if link.name == "net1" {
            link.mode = Some(desired.kind);
        }
    });
    let checked = |simulated: &Simulated| {
        let record = simulated.pod.attachments["net1"].clone();
        check::check(&desired, &record, &simulated.pod)
    };
    assert_eq!(checked(&simulated), [""; 0]);
    let whole = simulated.clone();
    for position in 0..simulated.pod.routes.len() {
        let route = whole.pod.routes[position].clone();
        let of_primary = route.device == Some(Device::Index(PRIMARY)) && route.destination.prefix_len() != 0;
        // Connected routes are not compared.
        if route.protocol == 2 || (of_primary && route.table == crate::names::primary_table(1)) {
            continue;
        }
        simulated = whole.clone();
        simulated.pod.routes.remove(position);
        assert_eq!(checked(&simulated).len(), 1, "{route:?}");
    }
    for position in 0..whole.pod.rules.len() {
        simulated = whole.clone();
        simulated.pod.rules.remove(position);
        assert_eq!(checked(&simulated).len(), 1);
    }
    simulated = whole.clone();
    simulated.pod.sysctls.insert(sysctl::conf(Family::V4, "eth0", "rp_filter"), "1".into());
    assert_eq!(checked(&simulated), ["sysctl net.ipv4.conf.eth0.rp_filter is 1, not 2"]);
    // Also sysctls that already had the required value.
    let mut found = pod();
    for key in ["forwarding", "rp_filter"] {
        found.pod.sysctls.insert(sysctl::conf(Family::V4, "eth0", key), "1".into());
    }
    found.pod.sysctls.insert(sysctl::conf(Family::V4, "all", "rp_filter"), "2".into());
    found.pod.sysctls.insert(sysctl::conf(Family::V6, "all", "forwarding"), "1".into());
    let with_redirects = redirecting(1, BOTH);
    found.add(&with_redirects);
    let record = found.pod.attachments["net1"].clone();
    assert_eq!(record.sysctls, []);
    let sysctls = |simulated: &Simulated| {
        let all = check::check(&with_redirects, &record, &simulated.pod);
        all.into_iter().filter(|words| words.starts_with("sysctl")).collect::<Vec<_>>()
    };
    assert_eq!(sysctls(&found), [""; 0]);
    for (family, interface, key, value, needed) in [
        (Family::V4, "eth0", "forwarding", "0", "net.ipv4.conf.eth0.forwarding is 0, not 1"),
        (Family::V4, "net1", "forwarding", "0", "net.ipv4.conf.net1.forwarding is 0, not 1"),
        (Family::V6, "all", "forwarding", "0", "net.ipv6.conf.all.forwarding is 0, not 1"),
    ] {
        let mut changed = found.clone();
        changed.pod.sysctls.insert(sysctl::conf(family, interface, key), value.into());
        assert_eq!(sysctls(&changed), [format!("sysctl {needed}")]);
    }
    // The new link forwards too.
    found.pod.sysctls.insert(sysctl::conf(Family::V4, "all", "rp_filter"), "1".into());
    assert_eq!(
        sysctls(&found),
        [
            "sysctl net.ipv4.conf.eth0.rp_filter is 1, not 2",
            "sysctl net.ipv4.conf.net1.rp_filter is 0, not 2"
        ]
    );
    simulated = whole.clone();
    simulated.pod.addresses.retain(|address| address.net != net("192.168.1.9/24"));
    assert_eq!(checked(&simulated), ["interface net1: address 192.168.1.9/24 is missing"]);
    simulated = whole;
    simulated.pod.links.retain(|link| link.name != "net1");
    assert_eq!(checked(&simulated), ["interface net1 is missing"]);
}

#[test]
fn an_empty_allow_list_stays_in_the_plan() {
    let mut desired = desired(1, BOTH);
    desired.destinations = Destinations { allowed: Some(Vec::new()), ..Destinations::default() };
    let plan = add::add(&desired, &pod().pod).unwrap();
    assert!(
        matches!(plan.steps.first(), Some(Step::Firewall(firewall)) if firewall.destinations.allowed == Some(Vec::new()))
    );
}
