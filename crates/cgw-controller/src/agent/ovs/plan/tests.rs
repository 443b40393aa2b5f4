use std::time::Duration;

use super::*;
use crate::{
    agent::{
        datapath::{BoundPod, Networks, Node, Peer, Protocol, ServicePort, VipPath, VipRoute},
        ovs::{
            difference,
            facts::{Facts, LocalPod},
            flow::{Flow, parse_dump},
            iptables::{Chain, Rules, Table, render},
            profile::{Profile, V3_7, V4_10},
        },
    },
    api::{TunId, TunMac},
};

/// The example of openshift-sdn's part of the specification: n1 .11, n2 .12, g1 .21, g2 .22; Service A on VIP .201 with the pods a1
/// (n1), a2 (n2), a3 (g1), Service B on VIP .202 with the pod b1 (n2).
fn example(node: &str, route: VipRoute) -> (Datapath, Facts) {
    let ips =
        [("n1", 11), ("n2", 12), ("g1", 21), ("g2", 22)].map(|(name, last)| (name, ip([192, 168, 50, last])));
    let own = ips.iter().find(|(name, _)| *name == node).unwrap().1;
    let candidate = |name: &str| name.starts_with('g');
    let pod = |node: usize, name: &str| BoundPod { name: name.into(), node_ip: ips[node].1 };
    let port = |service: &str, backends: &[Ipv4Addr]| ServicePort {
        service: service.into(),
        name: "http".into(),
        protocol: Protocol::Tcp,
        port: 80,
        backends: backends.iter().map(|address| (*address, 8080)).collect(),
        affinity: None,
        sources: None,
    };
    let (a1, a2, a3, b1) =
        (ip([10, 128, 0, 10]), ip([10, 129, 0, 10]), ip([10, 130, 0, 10]), ip([10, 129, 0, 20]));
    let vips = BTreeMap::from([
        (
            ip([192, 168, 50, 201]),
            VipPath {
                tun_id: TunId::new(0xaabb).unwrap(),
                route,
                pods: BTreeMap::from([
                    (a1, pod(0, "ns-a/a1")),
                    (a2, pod(1, "ns-a/a2")),
                    (a3, pod(2, "ns-a/a3")),
                ]),
                ports: vec![port("ns-a/svc-a", &[a1, a2, a3])],
            },
        ),
        (
            ip([192, 168, 50, 202]),
            VipPath {
                tun_id: TunId::new(0xccdd).unwrap(),
                route,
                pods: BTreeMap::from([(b1, pod(1, "ns-b/b1"))]),
                ports: vec![port("ns-b/svc-b", &[b1])],
            },
        ),
    ]);
    let datapath = Datapath {
        node: Node { name: node.into(), ip: own, pod_cidrs: Vec::new(), candidate: candidate(node) },
        peers: ips
            .iter()
            .filter(|(_, address)| *address != own)
            .map(|(name, address)| (*address, Peer { name: (*name).into(), candidate: candidate(name) }))
            .collect(),
        networks: Networks {
            pods: vec!["10.128.0.0/14".parse().unwrap()],
            services: vec!["172.30.0.0/16".parse().unwrap()],
            excluded: Vec::new(),
        },
        vips,
        unbound_pods: BTreeSet::new(),
    };
    let pods = match node {
        "n1" => BTreeMap::from([(a1, LocalPod { port: 3, vnid: 0x003f_6450 })]),
        "n2" => BTreeMap::from([
            (a2, LocalPod { port: 3, vnid: 0x003f_6450 }),
            (b1, LocalPod { port: 4, vnid: 0x1234 }),
        ]),
        "g1" => BTreeMap::from([(a3, LocalPod { port: 3, vnid: 0x003f_6450 })]),
        _ => BTreeMap::new(),
    };
    let tun_mac = if node == "g1" { mac() } else { "02:00:00:00:00:02".parse().unwrap() };
    (datapath, Facts { vxlan_port: 1, tun_port: 2, tun_mac, pods, has_egress_ip: false })
}

fn ip(octets: [u8; 4]) -> Ipv4Addr {
    octets.into()
}

fn mac() -> TunMac {
    "3a:a8:33:5f:e8:d9".parse().unwrap()
}

fn to_g1() -> VipRoute {
    VipRoute::Remote { node_ip: ip([192, 168, 50, 21]), tun_mac: mac() }
}

struct Desired {
    flows: BTreeSet<Flow>,
    rules: Rules,
    sysctls: BTreeMap<&'static str, &'static str>,
}

fn desired(profile: &Profile, (datapath, facts): &(Datapath, Facts)) -> Desired {
    Desired {
        flows: flows(profile, datapath, facts),
        rules: rules(PortMode::Own, datapath),
        sysctls: sysctls(datapath),
    }
}

/// Flows as the specification writes them.
fn spec(lines: &[&str]) -> BTreeSet<Flow> {
    let line = |line: &&str| format!("cookie=0xc6e0000000000000,{line}\n");
    parse_dump(&lines.iter().map(line).collect::<String>()).unwrap()
}

fn text(rules: &Rules) -> String {
    render(&difference::rules(&Rules::default(), rules))
}

#[test]
fn profile_3_7_has_the_flows_of_the_specification_on_a_node() {
    // Part 6 of the specification changes priority 150 to 140 and goto_table:21 to ct(table=21), and adds priority 160.
    let remote = "actions=set_field:3a:a8:33:5f:e8:d9->eth_dst,move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],\
                  set_field:192.168.50.21->tun_dst,output:1";
    let egress = [
        format!("table=100,priority=140,ip,reg3=0xaabb,{remote}"),
        format!("table=100,priority=140,ip,reg3=0xccdd,{remote}"),
        "table=100,priority=160,ip,ct_state=+rpl+trk,reg3=0xaabb,actions=goto_table:101".to_owned(),
        "table=100,priority=160,ip,ct_state=+rpl+trk,reg3=0xccdd,actions=goto_table:101".to_owned(),
    ];
    let with = |tags: &[&str]| {
        spec(&egress.iter().map(String::as_str).chain(tags.iter().copied()).collect::<Vec<_>>())
    };
    let n1 = desired(&V3_7, &example("n1", to_g1()));
    let a1 = "table=20,priority=110,ip,in_port=3,nw_src=10.128.0.10,\
              actions=load:0x3f6450->NXM_NX_REG0[],load:0xaabb->NXM_NX_REG3[],ct(table=21)";
    assert_eq!(n1.flows, with(&[a1]));
    assert!(n1.sysctls.is_empty());
    let n2 = desired(&V3_7, &example("n2", to_g1()));
    let a2 = "table=20,priority=110,ip,in_port=3,nw_src=10.129.0.10,\
              actions=load:0x3f6450->NXM_NX_REG0[],load:0xaabb->NXM_NX_REG3[],ct(table=21)";
    let b1 = "table=20,priority=110,ip,in_port=4,nw_src=10.129.0.20,\
              actions=load:0x1234->NXM_NX_REG0[],load:0xccdd->NXM_NX_REG3[],ct(table=21)";
    assert_eq!(n2.flows, with(&[a2, b1]));
}

#[test]
fn profile_3_7_has_the_flows_of_the_specification_on_a_gateway() {
    let from = |node: u8| {
        format!(
            "table=0,priority=210,in_port=1,tun_src=192.168.50.{node},ip,nw_src=10.128.0.0/14,\
             actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],set_field:3a:a8:33:5f:e8:d9->eth_dst,goto_table:100"
        )
    };
    let g1 = desired(&V3_7, &example("g1", VipRoute::Local));
    assert_eq!(
        g1.flows,
        spec(&[
            "table=20,priority=110,ip,in_port=3,nw_src=10.130.0.10,\
             actions=load:0x3f6450->NXM_NX_REG0[],load:0xaabb->NXM_NX_REG3[],ct(table=21)",
            "table=100,priority=140,ip,reg3=0xaabb,actions=goto_table:101",
            "table=100,priority=140,ip,reg3=0xccdd,actions=goto_table:101",
            "table=100,priority=160,ip,ct_state=+rpl+trk,reg3=0xaabb,actions=goto_table:101",
            "table=100,priority=160,ip,ct_state=+rpl+trk,reg3=0xccdd,actions=goto_table:101",
            "table=0,priority=220,in_port=1,ip,nw_src=10.128.0.0/14,nw_dst=10.128.0.0/14,\
             actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],goto_table:10",
            "table=0,priority=220,in_port=1,ip,nw_src=10.128.0.0/14,nw_dst=224.0.0.0/4,\
             actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],goto_table:10",
            &from(11),
            &from(12),
            &from(22),
        ])
    );
    assert_eq!(
        g1.sysctls,
        BTreeMap::from([("net/ipv4/conf/tun0/arp_announce", "2"), ("net/ipv4/ip_forward", "1")])
    );
}

#[test]
fn profile_4_10_has_the_corrected_flows() {
    let n1 = desired(&V4_10, &example("n1", to_g1()));
    let remote = "actions=ct(commit),set_field:3a:a8:33:5f:e8:d9->eth_dst,\
                  move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],set_field:192.168.50.21->tun_dst,output:1";
    assert_eq!(
        n1.flows,
        spec(&[
            "table=20,priority=110,ip,in_port=3,nw_src=10.128.0.10,\
             actions=load:0x3f6450->NXM_NX_REG0[],load:0xaabb->NXM_NX_REG3[],goto_table:27",
            &format!("table=101,priority=140,ip,reg3=0xaabb,{remote}"),
            &format!("table=101,priority=140,ip,reg3=0xccdd,{remote}"),
        ])
    );
    let g1 = desired(&V4_10, &example("g1", VipRoute::Local));
    let from = |node: u8| {
        format!(
            "table=0,priority=1110,in_port=1,tun_src=192.168.50.{node},ip,ct_state=-trk,nw_src=10.128.0.0/14,\
             actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],set_field:3a:a8:33:5f:e8:d9->eth_dst,output:2"
        )
    };
    assert_eq!(
        g1.flows,
        spec(&[
            "table=20,priority=110,ip,in_port=3,nw_src=10.130.0.10,\
             actions=load:0x3f6450->NXM_NX_REG0[],load:0xaabb->NXM_NX_REG3[],goto_table:27",
            "table=101,priority=140,ip,reg3=0xaabb,actions=output:2",
            "table=101,priority=140,ip,reg3=0xccdd,actions=output:2",
            "table=0,priority=1120,in_port=1,ip,ct_state=-trk,nw_src=10.128.0.0/14,nw_dst=10.128.0.0/14,actions=ct(table=0)",
            "table=0,priority=1120,in_port=1,ip,ct_state=-trk,nw_src=10.128.0.0/14,nw_dst=224.0.0.0/4,actions=ct(table=0)",
            &from(11),
            &from(12),
            &from(22),
            "table=0,priority=1120,in_port=3,ip,ct_state=-trk,nw_src=10.130.0.10,nw_dst=10.128.0.0/14,actions=ct(table=0)",
            "table=0,priority=1110,in_port=3,tcp,tcp_flags=+rst,ct_state=-trk,nw_src=10.130.0.10,actions=goto_table:20",
        ])
    );
}

#[test]
fn bound_pods_without_a_gateway_are_dropped() {
    let n1 = desired(&V3_7, &example("n1", VipRoute::Drop));
    let drops = n1.flows.iter().filter(|flow| flow.key.priority == 140).map(|flow| flow.actions.join(","));
    assert_eq!(drops.collect::<Vec<_>>(), ["drop", "drop"]);
}

#[test]
fn excluded_destinations_leave_on_the_own_node() {
    let (mut datapath, facts) = example("n1", to_g1());
    datapath.networks.excluded = vec!["192.168.50.11/32".parse().unwrap(), "10.0.0.0/8".parse().unwrap()];
    let n1 = desired(&V3_7, &(datapath, facts));
    let excluded: BTreeSet<Flow> = n1
        .flows
        .into_iter()
        .filter(|flow| flow.key.table == 0 || (161..164).contains(&flow.key.priority))
        .collect();
    let to_gateway = "actions=set_field:3a:a8:33:5f:e8:d9->eth_dst,move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31],\
                      set_field:192.168.50.21->tun_dst,output:1";
    assert_eq!(
        excluded,
        spec(&[
            "table=100,priority=161,ip,reg3=0xaabb,actions=conjunction(50912,1/2)",
            "table=100,priority=161,ip,reg3=0xccdd,actions=conjunction(50912,1/2)",
            "table=100,priority=161,ip,nw_dst=192.168.50.11,actions=conjunction(50912,2/2)",
            "table=100,priority=161,ip,nw_dst=10.0.0.0/8,actions=conjunction(50912,2/2)",
            "table=100,priority=161,ip,conj_id=50912,actions=ct(table=100,zone=50912)",
            "table=100,priority=162,ip,ct_state=+trk,ct_zone=50912,actions=goto_table:101",
            &format!("table=100,priority=163,ip,ct_state=+rpl+trk,ct_zone=50912,reg3=0xaabb,{to_gateway}"),
            &format!("table=100,priority=163,ip,ct_state=+rpl+trk,ct_zone=50912,reg3=0xccdd,{to_gateway}"),
            "table=0,priority=215,ip,in_port=1,nw_dst=10.128.0.10,\
             actions=ct(commit,zone=50912),move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],goto_table:10",
            "table=0,priority=220,ip,in_port=1,nw_src=10.128.0.0/14,nw_dst=10.128.0.0/14,\
             actions=move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[],goto_table:10",
        ])
    );
}

#[test]
fn rules_of_a_gateway_candidate() {
    assert_eq!(
        text(&rules(PortMode::Own, &example("g1", VipRoute::Local).0)),
        include_str!("../tests/gateway.txt")
    );
}

#[test]
fn rules_of_a_node() {
    let (mut datapath, _) = example("n1", to_g1());
    datapath.unbound_pods = BTreeSet::from([ip([10, 128, 0, 30])]);
    assert_eq!(text(&rules(PortMode::Own, &datapath)), include_str!("../tests/node.txt"));
}

#[test]
fn change_of_a_gateway_changes_flows_only() {
    let standby = desired(&V3_7, &example("g2", to_g1()));
    let active = desired(&V3_7, &example("g2", VipRoute::Local));
    assert_eq!(standby.rules, active.rules);
    assert_eq!(difference::flows(&standby.flows, &active.flows).len(), 2);
}

#[test]
fn pod_of_a_standby_does_not_leave_there() {
    let guard = |route| {
        let rules = rules(PortMode::Own, &example("g1", route).0);
        rules.chains[&Chain::ours(Table::Mangle, "GUARD")].contains(&"-s 10.130.0.10/32 -j RETURN".to_owned())
    };
    assert!(guard(VipRoute::Local));
    assert!(!guard(to_g1()));
}

#[test]
fn kube_proxy_mode_only_marks() {
    let (datapath, _) = example("g1", VipRoute::Local);
    let rendered = text(&rules(PortMode::KubeProxy, &datapath));
    assert!(!rendered.contains("DNAT --to"), "{rendered}");
    assert!(rendered.contains("-A CGW-SERVICES -d 192.168.50.201/32 -j CGW-MARK\n"), "{rendered}");
}

#[test]
fn affinity_ignores_the_port_of_the_client() {
    let (mut datapath, _) = example("g1", VipRoute::Local);
    for path in datapath.vips.values_mut() {
        path.ports[0].affinity = Some(Duration::from_secs(10800));
    }
    assert!(text(&rules(PortMode::Own, &datapath)).contains("--bytecode \"13,32 0 0 12,"));
}

#[test]
fn port_without_backends_is_rejected() {
    let (mut datapath, _) = example("g1", VipRoute::Local);
    datapath.vips.values_mut().for_each(|path| path.ports[0].backends.clear());
    let rendered = text(&rules(PortMode::Own, &datapath));
    assert_eq!(rendered.matches("-j REJECT --reject-with icmp-port-unreachable").count(), 2);
    assert!(!rendered.contains("DNAT --to"), "{rendered}");
}

fn restricted(node: &str, list: &[&str]) -> Datapath {
    let (mut datapath, _) = example(node, VipRoute::Local);
    let path = datapath.vips.get_mut(&ip([192, 168, 50, 201])).unwrap();
    path.ports[0].sources = Some(list.iter().map(|network| network.parse().unwrap()).collect());
    datapath
}

#[test]
fn sources_are_compared_before_any_program_translates_the_vip() {
    // A network outside, the node, VIP A, and the pods, which have VIPs.
    let list = ["192.0.2.0/24", "192.168.50.21/32", "192.168.50.201/32", "10.128.0.0/14"];
    let datapath = restricted("g1", &list);
    for mode in [PortMode::Own, PortMode::KubeProxy] {
        let without = rules(mode, &example("g1", VipRoute::Local).0);
        let steps = difference::rules(&without, &rules(mode, &datapath));
        assert_eq!(render(&steps), include_str!("../tests/restricted.txt"), "{mode:?}");
    }
    let node = rules(PortMode::Own, &restricted("n1", &list));
    assert_eq!(node, rules(PortMode::Own, &example("n1", VipRoute::Local).0), "no candidate");
}

#[test]
fn a_changed_list_of_sources_is_one_chain() {
    let of = |list: &[&str]| rules(PortMode::Own, &restricted("g1", list));
    let steps = difference::rules(&of(&["192.0.2.0/24"]), &of(&["198.51.100.0/24"]));
    assert_eq!(
        steps.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["chain mangle CGW-SRC-376aa81aa34fcc0d: 2 rules"]
    );
    assert_eq!(of(&[]).chains[steps[0].chain()].len(), 1);
}

#[test]
fn many_pods_are_split_by_network() {
    let (mut datapath, _) = example("g1", VipRoute::Local);
    let path = datapath.vips.values_mut().next().unwrap();
    for index in 0..5000_u32 {
        let address = Ipv4Addr::from_bits(0x0a80_0000 + index);
        path.pods.insert(address, BoundPod { name: "ns-a/x".into(), node_ip: ip([192, 168, 50, 11]) });
    }
    let rules = rules(PortMode::Own, &datapath);
    assert!(rules.chains.values().all(|chain| chain.len() <= 256 + 8));
    // A pod that is unknown is dropped in each part as well.
    let guards = rules.chains.iter().filter(|(chain, _)| chain.name.starts_with("CGW-GUARD"));
    assert!(guards.clone().count() > 20);
    assert!(guards.into_iter().all(|(_, list)| list.last().unwrap() == "-j DROP"));
    assert!(rules.chains.keys().all(|chain| chain.name.len() <= 28));
    let (_, guard) = crate::names::GUARDS[1];
    assert!(rules.chains.keys().any(|chain| chain.table == Table::Mangle && chain.name == guard));
}

#[test]
fn connections_of_pods_with_another_vip_end_on_a_gateway_candidate() {
    let (old, _) = example("g1", VipRoute::Local);
    assert_eq!(with_other_snat(&old, &old), BTreeSet::new());
    let (vip_a, vip_b) = (ip([192, 168, 50, 201]), ip([192, 168, 50, 202]));
    let (a1, a3) = (ip([10, 128, 0, 10]), ip([10, 130, 0, 10]));
    // Another gateway.
    let (moved, _) = example("g1", VipRoute::Drop);
    assert_eq!(with_other_snat(&old, &moved), BTreeSet::new());
    // One pod is bound to the other VIP, one is not bound any more.
    let mut new = old.clone();
    let taken = new.vips.get_mut(&vip_a).unwrap().pods.remove(&a1).unwrap();
    new.vips.get_mut(&vip_b).unwrap().pods.insert(a1, taken);
    new.vips.get_mut(&vip_a).unwrap().pods.remove(&a3);
    new.unbound_pods.insert(a3);
    assert_eq!(with_other_snat(&old, &new), BTreeSet::from([a1, a3]));
    // And back: both were known. A pod that was not has no connections.
    assert_eq!(with_other_snat(&new, &old), BTreeSet::from([a1, a3]));
    new.unbound_pods.clear();
    assert_eq!(with_other_snat(&new, &old), BTreeSet::from([a1]));
    new.node.candidate = false;
    assert_eq!(with_other_snat(&new, &old), BTreeSet::new());
}

#[test]
fn after_a_start_connections_with_another_snat_address_end() {
    let (mut datapath, _) = example("g1", VipRoute::Local);
    datapath.networks.excluded = vec!["192.168.50.21/32".parse().unwrap()];
    let (vip_a, vip_b) = (ip([192, 168, 50, 201]), ip([192, 168, 50, 202]));
    let (node, outside) = (ip([192, 168, 50, 21]), ip([192, 0, 2, 1]));
    let (a1, unbound) = (ip([10, 128, 0, 10]), ip([10, 128, 0, 30]));
    for (source, destination, snat, ends) in [
        (a1, outside, vip_a, false),
        // The VIP of an earlier binding, which another tenant has now; a binding that is newer than the connection.
        (a1, outside, vip_b, true),
        (a1, outside, node, true),
        (unbound, outside, vip_b, true),
        (unbound, outside, node, false),
        // Hairpin, and destinations that are not reached with the VIP.
        (a1, vip_b, vip_a, false),
        (a1, ip([172, 30, 0, 1]), node, false),
        (a1, node, ip([10, 130, 0, 1]), false),
        // Without SNAT, and a client outside.
        (a1, outside, a1, false),
        (outside, vip_a, outside, false),
    ] {
        assert_eq!(
            has_other_snat(&datapath)((source, destination), snat),
            ends,
            "{source} {destination} {snat}"
        );
    }
    datapath.node.candidate = false;
    assert!(!has_other_snat(&datapath)((a1, outside), vip_b));
}
