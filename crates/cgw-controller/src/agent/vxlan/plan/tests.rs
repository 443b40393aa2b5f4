use super::*;
use crate::agent::vxlan::sample;
use crate::api::TunMac;

const LINK_MTU: u32 = 1500;

#[test]
fn a_worker_sends_to_candidates_only() {
    let kernel = plan(&sample::worker(), &Config::default(), LINK_MTU);
    assert_eq!((kernel.device.mtu, kernel.device.mac), (1450, [2, 0x63, 192, 168, 50, 11]));
    assert_eq!(kernel.neighbours.keys().copied().collect::<Vec<_>>(), [sample::G1, sample::G2]);
    let via = Next::Via(sample::G1);
    let routes = [((0x6300_0001, Ipv4Net::default()), via), ((0x6300_0002, Ipv4Net::default()), via)];
    assert_eq!(kernel.routes, BTreeMap::from(routes));
    let rule = |mark| Lookup { priority: 9901, mark, mask: 0x3fff, table: TABLES + mark };
    assert_eq!(kernel.rules, BTreeSet::from([rule(1), rule(2)]));
    let table = ruleset::table(&sample::worker(), &Config::default());
    let pods = |set: &str| table.elements[set].iter().map(|element| element.key.clone()).collect::<Vec<_>>();
    assert_eq!(pods("pods"), [sample::A1.octets()]);
    assert_eq!(pods("unbound"), [sample::C1.octets()]);
    assert!(!table.elements.contains_key("services"));
}

#[test]
fn a_gateway_sends_to_all_nodes_with_bound_pods() {
    let kernel = plan(&sample::gateway(), &Config::default(), LINK_MTU);
    assert_eq!(kernel.neighbours.len(), 3);
    assert_eq!(kernel.routes[&(0x6300_0001, Ipv4Net::default())], Next::Throw);
    let pods: Vec<_> = kernel.routes.range(..(TABLES + 1, Ipv4Net::default())).collect();
    let to = |pod: Ipv4Addr, node| ((TABLES, Ipv4Net::from(pod)), Next::Via(node));
    let expected = [to(sample::A1, sample::W1), to(sample::A2, sample::W2), to(sample::B1, sample::W2)];
    assert_eq!(pods, expected.iter().map(|(key, next)| (key, next)).collect::<Vec<_>>());
    let table = ruleset::table(&sample::gateway(), &Config::default());
    assert_eq!(table.elements["vip-of"].len(), 4);
    assert_eq!(table.elements["replies"].len(), 4);
}

#[test]
fn an_annotation_with_another_mac_is_no_gateway() {
    let mut datapath = sample::worker();
    let route = VipRoute::Remote { node_ip: sample::G1, tun_mac: TunMac::new([2, 0, 0, 0, 0, 1]).unwrap() };
    datapath.vips.get_mut(&sample::A).unwrap().route = route;
    let kernel = plan(&datapath, &Config::default(), LINK_MTU);
    assert_eq!(kernel.routes[&(0x6300_0001, Ipv4Net::default())], Next::Blackhole);
    assert_eq!(kernel.problems.len(), 1);
}

#[test]
fn a_tunnel_id_uses_the_bits_of_the_mask() {
    let id = |number| TunId::new(number).unwrap();
    assert_eq!(mark_of(id(5), 0x3fff), Some(5));
    assert_eq!(mark_of(id(5), 0x00f0_0000), Some(0x0050_0000));
    assert_eq!(mark_of(id(9), 0x0101_0100), None);
    assert_eq!(mark_of(id(3), 0x0101_0100), Some(0x0001_0100));
    // The mark of packets to pods.
    assert_eq!((mark_of(id(0x3ffe), 0x3fff), mark_of(id(0x3fff), 0x3fff)), (Some(0x3ffe), None));
    let mut datapath = sample::worker();
    datapath.vips.get_mut(&sample::A).unwrap().tun_id = id(0x4000);
    let kernel = plan(&datapath, &Config::default(), LINK_MTU);
    assert_eq!(
        kernel.problems,
        ["VIP 192.168.50.201: its tunnel ID 0x00004000 does not fit the mark mask 0x3fff"]
    );
    let table = ruleset::table(&datapath, &Config::default());
    let chain = table.rules.iter().find(|(chain, _)| chain == "vip-0x00004000").unwrap();
    assert_eq!(chain.1, common::netlink::nftables::Rule::new().counter().drop());
}

#[test]
fn ambiguous_backends_have_no_reply_translation() {
    let mut datapath = sample::gateway();
    let path = datapath.vips.get_mut(&sample::A).unwrap();
    let mut second = path.ports[0].clone();
    second.port = 8080;
    path.ports.push(second);
    let table = ruleset::table(&datapath, &Config::default());
    assert_eq!(table.elements["services"].len(), 3);
    assert_eq!(table.elements["replies"].len(), 1);
}
