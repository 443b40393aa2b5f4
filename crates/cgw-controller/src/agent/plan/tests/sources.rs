//! `spec.loadBalancerSourceRanges`.

use super::env::{TestEnv, VIP_A, VIP_B, ip};
use crate::agent::datapath::{Protocol, ServicePort};
use crate::agent::snapshot::Port;

type List<'a> = &'a [&'a str];

/// The ports of a VIP whose Service has this list, and the problems.
fn with(ranges: &[&str], node: &str) -> (Vec<ServicePort>, Vec<String>) {
    let mut env = TestEnv::bound();
    env.edit_service("a/a", |service| {
        service.source_ranges = ranges.iter().map(|range| (*range).to_owned()).collect();
        service.ports.push(Port { name: "dns".into(), protocol: Protocol::Udp, port: 53 });
    });
    let (datapath, problems) = env.datapath(node);
    assert_eq!(datapath.vips[&ip(VIP_B)].ports[0].sources, None, "another Service");
    (datapath.vips[&ip(VIP_A)].ports.clone(), problems)
}

#[test]
fn a_list_admits_its_networks_of_ipv4() {
    let (invalid, none) = ("Service a/a: InvalidSourceRange", "Service a/a: NoSourceRange");
    let cases: [(List<'_>, Option<List<'_>>, List<'_>); 11] = [
        (&[], None, &[]),
        (&["192.0.2.0/24"], Some(&["192.0.2.0/24"]), &[]),
        (&[" 192.0.2.7/32\t", "\n10.0.0.0/8 "], Some(&["10.0.0.0/8", "192.0.2.7/32"]), &[]),
        // Drivers need disjoint networks.
        (&["10.1.2.3/16", "10.0.0.0/16", "10.0.7.0/24"], Some(&["10.0.0.0/15"]), &[]),
        (&["192.0.2.0/24", "2001:db8::/32"], Some(&["192.0.2.0/24"]), &[]),
        (&["2001:db8::/32"], Some(&[]), &[none]),
        (&["::/0", "0.0.0.0/0"], None, &[]),
        (&["0.0.0.0/1", "128.0.0.0/1"], None, &[]),
        (&["192.0.2.7", "192.0.2.0/24"], Some(&["192.0.2.0/24"]), &[invalid]),
        (&["192.0.2.0/33"], Some(&[]), &[invalid, none]),
        (&["x", "", "y"], Some(&[]), &[invalid, invalid, invalid, none]),
    ];
    for (ranges, expected, problems) in cases {
        let expected = expected.map(|list| list.iter().map(|net| net.parse().unwrap()).collect::<Vec<_>>());
        for node in ["n1", "g1"] {
            let (ports, found) = with(ranges, node);
            assert_eq!(ports.len(), 2);
            assert!(ports.iter().all(|port| port.sources == expected), "{ranges:?}: {ports:?}");
            assert_eq!(found, problems, "{ranges:?}");
        }
    }
}

#[test]
fn a_port_admits_clients_of_its_networks() {
    let admits = |ranges: &[&str], client| with(ranges, "g1").0[0].admits(ip(client));
    assert!(admits(&[], "192.0.2.1"));
    assert!(admits(&["192.0.2.0/24", "198.51.100.1/32"], "192.0.2.255"));
    assert!(admits(&["192.0.2.0/24", "198.51.100.1/32"], "198.51.100.1"));
    assert!(!admits(&["192.0.2.0/24", "198.51.100.1/32"], "198.51.100.2"));
    assert!(!admits(&["::/0"], "192.0.2.1"));
}
