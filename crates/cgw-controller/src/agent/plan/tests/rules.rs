//! One rule a test.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc, time::Duration};

use super::{
    super::{MacRule, plan},
    env::{
        G1, G2, N1, TestEnv, VIP_A, VIP_B, bind, codes, config, ip, key, labels, mac_of, node, pod, service,
        slice,
    },
};
use crate::{
    agent::{
        datapath::{Datapath, Protocol, VipRoute},
        snapshot::{EndpointState, Labels, Pod, Port, Store},
        trace::{Source, explain},
    },
    api::TunMac,
    names,
};

fn pods(datapath: &Datapath, vip: &str) -> Vec<Ipv4Addr> {
    datapath.vips.get(&ip(vip)).map(|path| path.pods.keys().copied().collect()).unwrap_or_default()
}

fn unbound(datapath: &Datapath) -> Vec<Ipv4Addr> {
    datapath.unbound_pods.iter().copied().collect()
}

fn route(datapath: &Datapath, vip: &str) -> VipRoute {
    datapath.vips[&ip(vip)].route
}

fn backends(datapath: &Datapath, vip: &str) -> Vec<(Ipv4Addr, u16)> {
    datapath.vips[&ip(vip)].ports[0].backends.clone()
}

const NONE: [Ipv4Addr; 0] = [];

#[test]
fn bound_pods_of_all_nodes_use_the_vip_and_the_others_of_the_node_are_unbound() {
    let env = TestEnv::bound();
    let (datapath, problems) = env.datapath("n1");
    assert_eq!(problems, [""; 0]);
    assert_eq!((datapath.node.ip, datapath.node.candidate), (ip(N1), false));
    assert_eq!(datapath.node.pod_cidrs, ["10.244.11.0/24".parse().unwrap()]);
    assert_eq!(
        datapath.peers.iter().map(|(ip, peer)| (*ip, peer.candidate)).collect::<Vec<_>>(),
        [(ip(G1), true), (ip(G2), true)]
    );
    assert_eq!(pods(&datapath, VIP_A), [ip("10.244.11.10"), ip("10.244.21.10")]);
    assert_eq!(datapath.vips[&ip(VIP_A)].pods[&ip("10.244.21.10")].node_ip, ip(G1));
    assert_eq!(datapath.vips[&ip(VIP_A)].tun_id.number(), 1);
    assert_eq!(datapath.vips[&ip(VIP_B)].tun_id.number(), 2, "of the binding, not of the annotation");
    assert_eq!(unbound(&datapath), [ip("10.244.11.30")]);
    let tun_mac: TunMac = mac_of(G1).parse().unwrap();
    assert_eq!(route(&datapath, VIP_A), VipRoute::Remote { node_ip: ip(G1), tun_mac });
    assert_eq!(backends(&datapath, VIP_A), [(ip("10.244.11.10"), 8080), (ip("10.244.21.10"), 8080)]);
    let excluded: Vec<String> = datapath.networks.excluded.iter().map(ToString::to_string).collect();
    assert_eq!(excluded, ["192.168.50.11/32", "192.168.50.21/32", "192.168.50.22/32"]);

    let (datapath, _) = env.datapath("g1");
    assert_eq!(route(&datapath, VIP_A), VipRoute::Local);
    assert_eq!(unbound(&datapath), NONE);
}

#[test]
fn a_service_that_no_binding_admits_changes_nothing() {
    let mut env = TestEnv::new();
    env.pod(pod("a/a1", "n1", "10.244.11.10", "app=x"));
    env.service(service("a/a", VIP_A, G1, "app=x"));
    for binding in [None, Some("b"), Some("a/other"), Some("b/a")] {
        if let Some(binding) = binding {
            env.bind(VIP_A, bind(binding, 1));
        }
        let (datapath, problems) = env.datapath("n1");
        assert!(datapath.vips.is_empty(), "{binding:?}");
        assert_eq!(unbound(&datapath), [ip("10.244.11.10")]);
        assert_eq!(problems, ["Service a/a: NotAdmitted"]);
    }
    env.edit_service("a/a", |service| drop(service.annotations.insert(names::VIP.into(), "x".into())));
    let (datapath, problems) = env.datapath("n1");
    assert!(datapath.vips.is_empty());
    assert_eq!(problems, ["Service a/a: InvalidVip"]);
}

#[test]
fn a_gateway_must_be_a_candidate_with_the_mac_address_of_its_node() {
    let mut env = TestEnv::bound();
    for (node_ip, mac, problem) in [
        (N1, mac_of(N1), "UnknownGateway"),
        ("192.168.50.99", mac_of("192.168.50.99"), "UnknownGateway"),
        ("fd00::1", mac_of(G1), "UnknownGateway"),
        (G2, mac_of(G1), "WrongMac"),
        (G2, "x".into(), "InvalidGateway"),
        ("", mac_of(G1), "InvalidGateway"),
    ] {
        env.edit_service("a/a", |service| {
            service.annotations.insert(names::NODE_IP.into(), node_ip.into());
            service.annotations.insert(names::TUN_MAC.into(), mac.clone());
        });
        let (datapath, problems) = env.datapath("n1");
        assert_eq!(route(&datapath, VIP_A), VipRoute::Drop, "{node_ip} {mac}");
        assert_eq!(pods(&datapath, VIP_A).len(), 2, "the pods stay bound");
        assert_eq!(unbound(&datapath), [ip("10.244.11.30")]);
        assert_eq!(problems, [format!("Service a/a: {problem}")]);
    }
    let other = "3a:a8:33:5f:e8:d9";
    env.edit_service("a/a", |service| {
        service.annotations.insert(names::NODE_IP.into(), G2.into());
        service.annotations.insert(names::TUN_MAC.into(), other.into());
    });
    let mut config = config();
    config.mac_rule = MacRule::Annotated;
    let decision = plan(&config, &env.snapshot("n1"));
    let expected = VipRoute::Remote { node_ip: ip(G2), tun_mac: other.parse().unwrap() };
    assert_eq!(route(&decision.datapath.unwrap(), VIP_A), expected);
}

#[test]
fn without_a_known_gateway_packets_are_dropped_without_a_problem() {
    let mut env = TestEnv::bound();
    env.service(service("a/a", VIP_A, "", "app=x"));
    let (datapath, problems) = env.datapath("n1");
    assert_eq!((route(&datapath, VIP_A), problems.len()), (VipRoute::Drop, 0));
}

#[test]
fn services_of_one_vip_use_the_newest_gateway() {
    let mut env = TestEnv::bound();
    env.pod(pod("a/s", "n1", "10.244.11.40", "app=s"));
    let mut second = service("a/second", VIP_A, G2, "app=s");
    second.ports[0].port = 81;
    env.service(second);
    for (epoch, gateway) in [("0", G1), ("2", G2), ("x", G1)] {
        env.edit_service("a/second", |one| drop(one.annotations.insert(names::EPOCH.into(), epoch.into())));
        let (datapath, problems) = env.datapath("n1");
        let expected = VipRoute::Remote { node_ip: ip(gateway), tun_mac: mac_of(gateway).parse().unwrap() };
        assert_eq!(route(&datapath, VIP_A), expected, "{epoch}");
        assert_eq!(pods(&datapath, VIP_A).len(), 3);
        assert_eq!(datapath.vips[&ip(VIP_A)].ports.len(), 2);
        assert_eq!(problems.len(), 0);
    }
    // It has joined while no gateway was known, with the epoch of an earlier binding.
    let mut joined = service("a/second", VIP_A, "", "app=s");
    joined.annotations.insert(names::EPOCH.into(), "9".into());
    env.service(joined);
    let expected = VipRoute::Remote { node_ip: ip(G1), tun_mac: mac_of(G1).parse().unwrap() };
    assert_eq!(route(&env.datapath("n1").0, VIP_A), expected);
}

#[test]
fn the_older_service_decides_about_a_pod_behind_two() {
    let mut env = TestEnv::bound();
    env.bind(VIP_B, bind("a", 2));
    let mut second = service("a/second", VIP_B, G1, "n=1");
    second.created = 2;
    env.service(second);
    env.slice("a/second", slice(9090, &[("10.244.11.10", EndpointState::Ready)]));
    let (datapath, problems) = env.datapath("n1");
    assert_eq!(pods(&datapath, VIP_A), [ip("10.244.11.10"), ip("10.244.21.10")]);
    assert_eq!((pods(&datapath, VIP_B), backends(&datapath, VIP_B)), (Vec::new(), Vec::new()));
    assert!(problems.contains(&"Service a/second: PodConflict".to_owned()), "{problems:?}");

    env.edit_service("a/second", |service| service.created = 0);
    let (datapath, problems) = env.datapath("n1");
    assert_eq!(pods(&datapath, VIP_B), [ip("10.244.11.10")]);
    assert_eq!(pods(&datapath, VIP_A), [ip("10.244.21.10")]);
    assert_eq!(backends(&datapath, VIP_A), [(ip("10.244.21.10"), 8080)]);
    assert!(problems.contains(&"Service a/a: PodConflict".to_owned()), "{problems:?}");
}

#[test]
fn a_vip_that_cannot_be_used_leaves_its_pods_neither_bound_nor_unbound() {
    for (vip, code) in [
        ("fd00::1", "Ipv6Vip"),
        ("10.244.99.1", "VipInNetwork"),
        ("10.96.0.1", "VipInNetwork"),
        (N1, "VipOfNode"),
        (G2, "VipOfNode"),
        ("192.168.50.203", "TunIdInUse"),
        ("192.168.50.204", "TunIdTooLarge"),
        ("192.168.50.205", "UnreadableBinding"),
    ] {
        let mut env = TestEnv::bound();
        env.bind(VIP_B, bind("b/b", 3));
        env.bind(VIP_A, bind("z", 1));
        let tun_id = match code {
            "TunIdInUse" => 3,
            "TunIdTooLarge" => 0x3fff,
            _ => 4,
        };
        env.bind(vip, bind("a", tun_id));
        let is_unreadable = code == "UnreadableBinding";
        if is_unreadable {
            env.damage(vip);
        }
        env.service(service("a/a", vip, G1, "app=x"));
        let (datapath, problems) = env.datapath("n1");
        assert_eq!(datapath.vips.keys().copied().collect::<Vec<_>>(), [ip(VIP_B)]);
        assert_eq!(unbound(&datapath), [ip("10.244.11.30")], "{vip}");
        let mut expected = vec![format!("Service a/a: {code}")];
        if is_unreadable {
            expected.push("Service cgw-system/cgw-binds: InvalidBinding".into());
        }
        assert_eq!(problems, expected);
        let dropped = explain(&config(), &env.snapshot("n1"), &key("a/a1"));
        assert_eq!(dropped.source, Source::Dropped, "{dropped}");
    }
}

#[test]
fn a_usable_vip_wins_over_an_older_service_whose_vip_cannot_be_used() {
    let mut env = TestEnv::bound();
    env.bind("fd00::1", bind("a", 3));
    let mut old = service("a/0", "fd00::1", G1, "app=x");
    old.created = 0;
    env.service(old);
    assert_eq!(pods(&env.datapath("n1").0, VIP_A).len(), 2);
}

#[test]
fn pods_without_a_network_of_their_own_are_ignored() {
    let mut env = TestEnv::bound();
    env.edit_pod("a/a1", |pod| (pod.host_network, pod.ip) = (true, Some(ip(N1))));
    env.edit_pod("a/a2", |pod| pod.finished = true);
    env.edit_pod("c/c", |pod| pod.ip = None);
    let (datapath, problems) = env.datapath("n1");
    assert_eq!(pods(&datapath, VIP_A), NONE);
    assert_eq!(backends(&datapath, VIP_A), []);
    assert_eq!(unbound(&datapath), NONE);
    assert_eq!(problems, ["Service a/a: HostNetwork"]);
}

#[test]
fn terminating_and_unready_pods_stay_bound() {
    let mut env = TestEnv::bound();
    env.edit_pod("a/a1", |pod| pod.terminating = true);
    env.slice("a/a", slice(8080, &[("10.244.21.10", EndpointState::Unready)]));
    let (datapath, problems) = env.datapath("n1");
    assert_eq!(pods(&datapath, VIP_A).len(), 2);
    assert_eq!((backends(&datapath, VIP_A), problems.len()), (Vec::new(), 0));
}

#[test]
fn serving_terminating_endpoints_take_connections_only_without_a_ready_one() {
    let mut env = TestEnv::bound();
    let both = |one, two| slice(8080, &[("10.244.11.10", one), ("10.244.21.10", two)]);
    env.slice("a/a", both(EndpointState::ServingTerminating, EndpointState::Ready));
    assert_eq!(backends(&env.datapath("g1").0, VIP_A), [(ip("10.244.21.10"), 8080)]);
    env.slice("a/a", both(EndpointState::ServingTerminating, EndpointState::Unready));
    assert_eq!(backends(&env.datapath("g1").0, VIP_A), [(ip("10.244.11.10"), 8080)]);
}

#[test]
fn an_endpoint_that_is_no_bound_pod_of_the_vip_is_no_backend() {
    let mut env = TestEnv::bound();
    let foreign = [N1, "10.96.0.1", "10.244.11.30", "10.244.11.20", "127.0.0.1", "8.8.8.8", "10.244.11.10"];
    env.slice("a/a", slice(8080, &foreign.map(|address| (address, EndpointState::Ready))));
    assert_eq!(backends(&env.datapath("g1").0, VIP_A), [(ip("10.244.11.10"), 8080)]);
}

#[test]
fn ports_are_matched_by_name_and_protocol_and_the_older_service_keeps_its_port() {
    let mut env = TestEnv::bound();
    env.edit_service("a/a", |service| {
        service.affinity = Some(Duration::from_secs(5));
        service.ports.push(Port { name: "dns".into(), protocol: Protocol::Udp, port: 53 });
        service.ports.push(Port { name: "http".into(), protocol: Protocol::Udp, port: 80 });
    });
    let mut second = service("a/second", VIP_A, G1, "app=x");
    second.created = 2;
    env.service(second);
    let (datapath, problems) = env.datapath("g1");
    let ports: Vec<_> = datapath.vips[&ip(VIP_A)]
        .ports
        .iter()
        .map(|port| (port.protocol, port.port, port.service.as_str(), port.backends.len()))
        .collect();
    let (tcp, udp) = (Protocol::Tcp, Protocol::Udp);
    assert_eq!(ports, [(tcp, 80, "a/a", 2), (udp, 53, "a/a", 0), (udp, 80, "a/a", 0)]);
    assert_eq!(datapath.vips[&ip(VIP_A)].ports[0].affinity, Some(Duration::from_secs(5)));
    assert_eq!(problems, ["Service a/second: PortConflict"]);
}

#[test]
fn a_pod_with_an_egress_annotation_of_the_cni_is_refused() {
    let mut env = TestEnv::bound();
    env.edit_pod("a/a1", |pod| pod.foreign_egress = Some("egress.projectcalico.org/selector"));
    env.edit_pod("c/c", |pod| pod.foreign_egress = Some("egress.projectcalico.org/selector"));
    let (datapath, problems) = env.datapath("n1");
    assert_eq!(pods(&datapath, VIP_A), [ip("10.244.21.10")]);
    assert_eq!(unbound(&datapath), [ip("10.244.11.30")], "only pods of bound Services are refused");
    assert_eq!(problems, ["Service a/a: ForeignEgress"]);
}

#[test]
fn an_address_of_two_pods_is_that_of_the_pod_that_does_not_terminate() {
    let mut env = TestEnv::bound();
    env.edit_pod("a/a2", |pod| (pod.ip, pod.terminating) = (Some(ip("10.244.11.20")), true));
    let (datapath, problems) = env.datapath("n1");
    assert_eq!(pods(&datapath, VIP_B), [ip("10.244.11.20"), ip("10.244.21.20")]);
    assert_eq!(pods(&datapath, VIP_A), [ip("10.244.11.10")]);
    assert_eq!(problems, ["Service b/b: AddressConflict"]);
    env.edit_pod("c/c", |pod| pod.ip = Some(ip("10.244.11.20")));
    assert_eq!(unbound(&env.datapath("n1").0), NONE, "bound wins over unbound");
}

#[test]
fn without_the_store_or_the_own_node_the_datapath_is_unknown() {
    let mut env = TestEnv::bound();
    env.inventory.set_node("n1", None);
    let decision = env.decide("n1");
    assert_eq!((decision.datapath.is_none(), codes(&decision)), (true, vec!["Node n1: NoNode".to_owned()]));
    let mut bare = node("n1", N1, false);
    bare.ip = None;
    env.node(bare);
    assert_eq!(codes(&env.decide("n1")), ["Node n1: NoNodeAddress"]);
    env.node(node("n1", N1, false));
    env.inventory.set_store(None);
    let decision = env.decide("n1");
    assert_eq!((decision.datapath.is_none(), codes(&decision)), (true, vec!["Node n1: NoStore".to_owned()]));
    env.inventory.set_store(Some(Store::default()));
    let (datapath, problems) = env.datapath("n1");
    assert_eq!((datapath.vips.len(), datapath.unbound_pods.len()), (0, 3), "an empty store is known");
    assert_eq!(problems, ["Service a/a: NotAdmitted", "Service b/b: NotAdmitted"]);
}

#[test]
fn pod_networks_are_those_of_the_nodes_if_none_is_given() {
    let mut env = TestEnv::bound();
    let mut config = config();
    config.cluster_cidrs.clear();
    config.exclude_cidrs = vec!["192.168.50.0/24".parse().unwrap()];
    env.inventory.set_node("g2", None);
    let decision = plan(&config, &env.snapshot("n1"));
    assert_eq!(codes(&decision), ["Service a/a: VipExcluded", "Service b/b: VipExcluded"]);
    let networks: Vec<_> = decision.datapath.unwrap().networks.pods.iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.244.11.0/24", "10.244.21.0/24"]);
    for name in ["n1", "g1"] {
        let mut one = node(name, if name == "n1" { N1 } else { G1 }, false);
        one.pod_cidrs.clear();
        env.node(one);
    }
    assert_eq!(codes(&plan(&config, &env.snapshot("n1"))), ["Node n1: NoPodNetwork"]);
}

#[test]
fn pods_outside_of_the_pod_cidrs_are_in_the_networks_of_the_cluster() {
    let networks = |env: &TestEnv| {
        let (datapath, problems) = env.datapath("n1");
        (datapath.node.pod_cidrs.iter().map(ToString::to_string).collect::<Vec<_>>(), problems)
    };
    let of = |network: &str| (vec![network.to_owned()], Vec::<String>::new());
    let mut env = TestEnv::bound();
    assert_eq!(networks(&env), of("10.244.11.0/24"));
    // A pod that does not use the network, and one that has finished.
    let other = pod("d/d", "n1", "10.250.0.1", "app=x");
    env.pod(Pod { host_network: true, ..other.clone() });
    assert_eq!(networks(&env), of("10.244.11.0/24"));
    env.pod(Pod { finished: true, ..other.clone() });
    assert_eq!(networks(&env), of("10.244.11.0/24"));
    // The CNI does not use the pod CIDRs of the Node.
    env.pod(pod("d/d", "n1", "10.244.200.1", "app=x"));
    assert_eq!(networks(&env), of("10.244.0.0/16"));
    assert!(env.datapath("n1").0.unbound_pods.contains(&ip("10.244.200.1")));
    // The Node has none.
    let mut bare = node("n1", N1, false);
    bare.pod_cidrs.clear();
    env.node(bare);
    assert_eq!(networks(&env), of("10.244.0.0/16"));
    // --cluster-cidr is wrong.
    env.pod(other);
    let outside = vec!["Node n1: PodOutsideNetworks".to_owned()];
    assert_eq!(networks(&env), (vec!["10.244.0.0/16".to_owned()], outside));
    assert_eq!(env.datapath("g1").1.len(), 0);
}

#[test]
fn two_nodes_of_one_address_are_one_peer() {
    let mut env = TestEnv::bound();
    env.node(node("a-old", G1, false));
    env.node(node("n0", N1, true));
    let (datapath, _) = env.datapath("n1");
    assert_eq!(datapath.peers.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from([ip(G1), ip(G2)]));
    let peer = &datapath.peers[&ip(G1)];
    assert!(peer.candidate && peer.name == "a-old" && !datapath.node.candidate);
}

#[test]
fn the_trace_names_source_and_reason() {
    let mut env = TestEnv::bound();
    let source = |env: &TestEnv, pod: &str, node: &str| explain(&config(), &env.snapshot(node), &key(pod));
    let node_address = Source::Node { node: "n1".into(), ip: Some(ip(N1)) };
    let through_g1 = Source::Vip { vip: ip(VIP_A), gateway: "g1".into(), gateway_ip: ip(G1) };
    let bound = source(&env, "a/a1", "n1");
    assert_eq!(bound.source, through_g1);
    assert!(bound.to_string().contains("bound to namespace a, tunnel ID 0x00000001"), "{bound}");
    assert_eq!(source(&env, "a/a2", "g1").source, through_g1);
    assert_eq!(source(&env, "c/c", "n1").source, node_address);
    assert_eq!(source(&env, "c/x", "n1").source, Source::Unknown);

    env.service(service("c/forged", VIP_A, G1, "app=x"));
    let forged = source(&env, "c/c", "n1");
    assert_eq!(forged.source, node_address);
    assert!(
        forged.to_string().contains("Service c/forged: no binding of VIP 192.168.50.201 admits"),
        "{forged}"
    );

    env.service(service("a/a", VIP_A, "", "app=x"));
    let dropped = source(&env, "a/a1", "n1");
    assert_eq!(dropped.source, Source::Dropped);
    assert!(dropped.to_string().contains("the annotation node-ip is empty"), "{dropped}");
    env.service(service("a/a", VIP_A, "192.168.50.99", "app=x"));
    assert!(source(&env, "a/a1", "n1").to_string().contains("192.168.50.99 is not the InternalIP"));

    env.edit_pod("a/a1", |pod| pod.host_network = true);
    assert_eq!(source(&env, "a/a1", "n1").source, node_address);
    env.edit_pod("a/a1", |pod| pod.finished = true);
    assert_eq!(source(&env, "a/a1", "n1").source, Source::NoNetwork);
    env.inventory.set_store(None);
    assert_eq!(source(&env, "c/c", "n1").source, Source::Unknown);
}

#[test]
fn relevant_changes_are_planned_and_gateways_at_once() {
    use crate::agent::observe::inventory::{Inventory, Urgency};
    let mut env = TestEnv::bound();
    // The inventory of node n1.
    let mut inventory = Inventory::new("n1");
    std::mem::swap(&mut inventory, &mut env.inventory);
    let snapshot = inventory.snapshot("n1");
    let mut inventory = Inventory::new("n1");
    inventory.set_store(snapshot.store.as_deref().cloned());
    let a = snapshot.services[0].service.as_ref().clone();
    assert_eq!(inventory.set_service(&a.key, Some(a.clone())), Urgency::Now);
    assert_eq!(inventory.set_service(&a.key, Some(a.clone())), Urgency::Irrelevant);
    let mut changed = a.clone();
    changed.ports.clear();
    assert_eq!(inventory.set_service(&a.key, Some(changed)), Urgency::Soon);
    assert_eq!(inventory.set_service(&a.key, Some(a.clone())), Urgency::Soon);
    assert_eq!(inventory.set_service(&a.key, Some(service("a/a", VIP_A, G2, "app=x"))), Urgency::Now);

    let set = |inventory: &mut Inventory, pod: Pod| inventory.set_pod(&pod.key.clone(), Some(pod));
    assert_eq!(set(&mut inventory, pod("z/z", "n1", "10.244.11.50", "app=z")), Urgency::Soon, "on this node");
    assert_eq!(set(&mut inventory, pod("z/y", "g1", "10.244.21.50", "app=x")), Urgency::Irrelevant);
    let mut bound = pod("a/y", "g1", "10.244.21.51", "app=x");
    assert_eq!(set(&mut inventory, bound.clone()), Urgency::Soon, "behind a Service with a VIP");
    assert_eq!(set(&mut inventory, bound.clone()), Urgency::Irrelevant, "unchanged");
    bound.labels = Arc::new(Labels::new(&labels("app=y")));
    assert_eq!(set(&mut inventory, bound.clone()), Urgency::Soon, "no longer behind it");
    assert_eq!(inventory.set_pod(&bound.key, None), Urgency::Irrelevant);

    let ready = slice(1, &[]);
    assert_eq!(inventory.set_slice(&key("a/a"), "s", Some(ready.clone())), Urgency::Soon);
    assert_eq!(inventory.set_slice(&key("z/z"), "s", Some(ready)), Urgency::Irrelevant);
}
