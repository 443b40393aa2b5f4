//! The flows of the bridge.

use std::{collections::BTreeSet, net::Ipv4Addr};

use ipnet::Ipv4Net;

use crate::agent::{
    datapath::{Bound, Datapath, VipRoute},
    ovs::{
        facts::Facts,
        flow::{Action, Flow, Match},
        profile::{Exit, Profile},
    },
};

/// The table in which openshift-sdn checks the address of a pod.
const POD_TABLE: u8 = 20;
/// Above openshift-sdn's own flow of the pod (100).
const POD_PRIORITY: u16 = 110;
/// ID of the conjunction of the bound pods and the excluded destinations. openshift-sdn uses no conjunctions.
const EXCLUDED: u32 = 0xc6e0;
/// The zone of conntrack with the connections that came to bound pods from outside of the cluster. openshift-sdn and netfilter use
/// zone 0.
const CLIENTS: u16 = 0xc6e0;
/// Multicast between pods.
const MULTICAST: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(224, 0, 0, 0), 4);

fn host(address: Ipv4Addr) -> Ipv4Net {
    Ipv4Net::from(address)
}

/// The flows of the bridge.
#[must_use]
pub fn flows(profile: &Profile, datapath: &Datapath, facts: &Facts) -> BTreeSet<Flow> {
    let mut flows = BTreeSet::new();
    tags(profile, datapath, facts, &mut flows);
    egress(profile, datapath, facts, &mut flows);
    if !datapath.networks.excluded.is_empty() {
        excluded(profile, datapath, facts, &mut flows);
    }
    if datapath.node.candidate {
        arrival(profile, datapath, facts, &mut flows);
    }
    flows
}

fn exit(exit: Exit, facts: &Facts) -> Action {
    match exit {
        Exit::Table(table) => Action::Goto(table),
        Exit::Tunnel => Action::Output(facts.tun_port),
    }
}

/// Tags the packets of the node's bound pods.
fn tags(profile: &Profile, datapath: &Datapath, facts: &Facts, flows: &mut BTreeSet<Flow>) {
    for (address, Bound { path, .. }) in datapath.own_pods() {
        // A pod that openshift-sdn has not set up cannot send. The guards of iptables drop what it sends before it has a tag.
        let Some(local) = facts.pods.get(&address) else { continue };
        let source = Match::NwSrc(host(address));
        let next = if profile.tracks_pods {
            Action::CtTable(profile.pod_next)
        } else {
            Action::Goto(profile.pod_next)
        };
        flows.insert(Flow::new(
            POD_TABLE,
            POD_PRIORITY,
            &[Match::Ip, Match::InPort(local.port), source],
            &[Action::LoadReg0(local.vnid), Action::LoadReg3(path.tun_id.number()), next],
        ));
        if !(profile.precedes_conntrack && datapath.node.candidate && path.route == VipRoute::Local) {
            continue;
        }
        // The gateway's netfilter translated the connection. An RST that Open vSwitch's conntrack sees first removes the entry.
        let untracked = [Match::InPort(local.port), Match::CtState("-trk"), source];
        for network in &datapath.networks.pods {
            flows.insert(Flow::new(
                0,
                profile.between_pods_priority,
                &[&untracked[..], &[Match::Ip, Match::NwDst(*network)]].concat(),
                &[Action::CtTable(0)],
            ));
        }
        flows.insert(Flow::new(
            0,
            profile.arrival_priority,
            &[&untracked[..], &[Match::Tcp, Match::TcpFlags("+rst")]].concat(),
            &[Action::Goto(POD_TABLE)],
        ));
    }
}

/// Sends tagged packets to the gateways.
fn egress(profile: &Profile, datapath: &Datapath, facts: &Facts, flows: &mut BTreeSet<Flow>) {
    let table = profile.egress_table;
    let leave = exit(profile.exit, facts);
    for path in datapath.vips.values() {
        let tag = Match::Reg3(path.tun_id.number());
        let actions = to_gateway(profile, path.route, facts);
        flows.insert(Flow::new(table, profile.egress_priority, &[Match::Ip, tag], &actions));
        if let Some(priority) = profile.reply_priority {
            flows.insert(Flow::new(table, priority, &[Match::Ip, Match::CtState("+rpl+trk"), tag], &[leave]));
        }
    }
}

/// The actions that send a tagged packet to the gateway.
fn to_gateway(profile: &Profile, route: VipRoute, facts: &Facts) -> Vec<Action> {
    match route {
        VipRoute::Drop => vec![Action::Drop],
        VipRoute::Local => vec![exit(profile.exit, facts)],
        VipRoute::Remote { node_ip, tun_mac } => {
            let mut actions = if profile.commits { vec![Action::CtCommit] } else { Vec::new() };
            actions.extend([
                Action::SetEthDst(tun_mac),
                Action::VnidToTunnel,
                Action::SetTunDst(node_ip),
                Action::Output(facts.vxlan_port),
            ]);
            actions
        }
    }
}

/// Packets to excluded destinations leave on this node, except for replies to clients of a VIP: nodes are excluded, and the client may
/// be a node, or a pod that is not bound and has the address of its node.
fn excluded(profile: &Profile, datapath: &Datapath, facts: &Facts, flows: &mut BTreeSet<Flow>) {
    if datapath.vips.is_empty() {
        return;
    }
    let (table, priority) = (profile.egress_table, profile.excluded_priority);
    let mut add = |above: u16, matches: &[Match], actions: &[Action]| {
        flows.insert(Flow::new(table, priority + above, &[&[Match::Ip], matches].concat(), actions));
    };
    let found = [Match::CtZone(CLIENTS), Match::CtState("+rpl+trk")];
    for path in datapath.vips.values() {
        let tag = Match::Reg3(path.tun_id.number());
        add(0, &[tag], &[Action::Conjunction(EXCLUDED, 1, 2)]);
        add(2, &[&found[..], &[tag]].concat(), &to_gateway(profile, path.route, facts));
    }
    for network in &datapath.networks.excluded {
        add(0, &[Match::NwDst(*network)], &[Action::Conjunction(EXCLUDED, 2, 2)]);
    }
    add(0, &[Match::Conjunction(EXCLUDED)], &[Action::CtZoneTable(CLIENTS, table)]);
    add(1, &[Match::CtZone(CLIENTS), Match::CtState("+trk")], &[exit(profile.exit, facts)]);
    // Connections that come to the node's bound pods from outside of the cluster come from the gateway.
    let arriving = [Match::Ip, Match::InPort(facts.vxlan_port)];
    let local = datapath.own_pods().into_keys().filter(|address| facts.pods.contains_key(address));
    let mut has_pods = false;
    for address in local {
        has_pods = true;
        flows.insert(Flow::new(
            0,
            profile.client_priority,
            &[&arriving[..], &[Match::NwDst(host(address))]].concat(),
            &[Action::CtCommitZone(CLIENTS), Action::VnidFromTunnel, Action::Goto(10)],
        ));
    }
    for source in datapath.networks.pods.iter().filter(|_| has_pods) {
        for destination in &datapath.networks.pods {
            flows.insert(Flow::new(
                0,
                profile.client_priority + 5,
                &[&arriving[..], &[Match::NwSrc(*source), Match::NwDst(*destination)]].concat(),
                &[Action::VnidFromTunnel, Action::Goto(10)],
            ));
        }
    }
}

/// Packets of bound pods that arrive over VXLAN from a node leave by tun0, with the present MAC address of tun0: the sender's may be old.
fn arrival(profile: &Profile, datapath: &Datapath, facts: &Facts, flows: &mut BTreeSet<Flow>) {
    let mut arriving = vec![Match::Ip, Match::InPort(facts.vxlan_port)];
    if profile.precedes_conntrack {
        arriving.push(Match::CtState("-trk"));
    }
    for source in &datapath.networks.pods {
        let source = Match::NwSrc(*source);
        // Packets between pods continue as openshift-sdn sends them.
        for destination in datapath.networks.pods.iter().chain([&MULTICAST]) {
            let actions = if profile.precedes_conntrack {
                vec![Action::CtTable(0)]
            } else {
                vec![Action::VnidFromTunnel, Action::Goto(10)]
            };
            flows.insert(Flow::new(
                0,
                profile.between_pods_priority,
                &[&arriving[..], &[source, Match::NwDst(*destination)]].concat(),
                &actions,
            ));
        }
        for node in datapath.peers.keys() {
            flows.insert(Flow::new(
                0,
                profile.arrival_priority,
                &[&arriving[..], &[source, Match::TunSrc(*node)]].concat(),
                &[Action::VnidFromTunnel, Action::SetEthDst(facts.tun_mac), exit(profile.arrival, facts)],
            ));
        }
    }
}
