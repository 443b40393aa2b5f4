//! A datapath and a decision as text and as JSON: for `/statusz` and `--dry-run`.

use std::{collections::BTreeMap, fmt::Write as _, net::Ipv4Addr};

use common::plan::Reason as _;
use serde_json::{Value, json};

use super::{
    datapath::{Datapath, VipPath, VipRoute},
    driver::Change,
    plan::Decision,
};

/// The most VIPs on `/statusz`, a page for a person.
const VIPS_SHOWN: usize = 100;

/// The datapath in one line.
#[must_use]
pub fn summary(datapath: &Datapath) -> String {
    let Datapath { node, peers, vips, unbound_pods, .. } = datapath;
    let role = if node.candidate { "gateway candidate" } else { "no gateway candidate" };
    format!(
        "node {} ({}, {role}), {} other nodes, {} VIPs, {} bound pods, {} unbound pods on this node",
        node.name,
        node.ip,
        peers.len(),
        vips.len(),
        vips.values().map(|path| path.pods.len()).sum::<usize>(),
        unbound_pods.len()
    )
}

/// One line for each VIP, up to a limit.
#[must_use]
pub fn vips(datapath: &Datapath) -> BTreeMap<Ipv4Addr, String> {
    let line = |(vip, path): (&Ipv4Addr, &VipPath)| {
        let local = path.pods.values().filter(|pod| pod.node_ip == datapath.node.ip).count();
        let restricted = path.ports.iter().filter(|port| port.sources.is_some()).count();
        let text = format!(
            "{}, tunnel ID {}, {} pods, {local} on this node, {} ports, {restricted} with loadBalancerSourceRanges",
            gateway(datapath, &path.route),
            path.tun_id,
            path.pods.len(),
            path.ports.len()
        );
        (*vip, text)
    };
    datapath.vips.iter().take(VIPS_SHOWN).map(line).collect()
}

fn gateway(datapath: &Datapath, route: &VipRoute) -> String {
    match route {
        VipRoute::Drop => "no gateway: packets to the outside are dropped".to_owned(),
        VipRoute::Local => "gateway is this node".to_owned(),
        VipRoute::Remote { node_ip, .. } => {
            let name = datapath.peers.get(node_ip).map_or("", |peer| peer.name.as_str());
            format!("gateway {name} ({node_ip})")
        }
    }
}

/// The decision for a person, with the changes that the driver would make.
#[must_use]
pub fn text(decision: &Decision, changes: &[Change]) -> String {
    let mut text = String::new();
    let mut line = |line: String| {
        // Writing into a String does not fail.
        let _ = writeln!(text, "{line}");
    };
    match &decision.datapath {
        Some(datapath) => {
            line(format!("datapath: {}", summary(datapath)));
            vips(datapath).into_iter().for_each(|(vip, rest)| line(format!("  VIP {vip}: {rest}")));
            line(format!("{} changes", changes.len()));
        }
        None => line("datapath: unknown, nothing would be changed".to_owned()),
    }
    changes.iter().for_each(|change| line(format!("  {change}")));
    decision.problems.iter().for_each(|problem| line(format!("problem: {problem}")));
    text
}

/// The same as JSON.
#[must_use]
pub fn json(decision: &Decision, changes: &[Change]) -> Value {
    json!({
        "datapath": decision.datapath.as_ref().map(datapath),
        "changes": changes.iter().map(|change| json!({
            "object": change.object, "description": change.description, "isRepair": change.is_repair,
        })).collect::<Vec<_>>(),
        "problems": decision.problems.iter().map(|problem| json!({
            "regarding": problem.regarding, "reason": problem.because.code(), "because": problem.because.to_string(),
        })).collect::<Vec<_>>(),
    })
}

fn datapath(datapath: &Datapath) -> Value {
    let Datapath { node, peers, networks, vips, unbound_pods } = datapath;
    json!({
        "node": {"name": node.name, "ip": node.ip, "podCIDRs": node.pod_cidrs, "candidate": node.candidate},
        "peers": peers.iter().map(|(ip, peer)| json!({"ip": ip, "name": peer.name, "candidate": peer.candidate})).collect::<Vec<_>>(),
        "networks": {"pods": networks.pods, "services": networks.services, "excluded": networks.excluded},
        "vips": vips.iter().map(|(address, path)| vip(*address, path)).collect::<Vec<_>>(),
        "unboundPods": unbound_pods,
    })
}

fn vip(vip: Ipv4Addr, path: &VipPath) -> Value {
    json!({
        "vip": vip,
        "tunID": path.tun_id.to_string(),
        "route": path.route,
        "pods": path.pods.iter().map(|(ip, pod)| json!({"ip": ip, "name": pod.name, "nodeIP": pod.node_ip})).collect::<Vec<_>>(),
        "ports": path.ports.iter().map(|port| json!({
            "service": port.service,
            "name": port.name,
            "protocol": port.protocol.to_string(),
            "port": port.port,
            "backends": port.backends.iter().map(|(ip, number)| format!("{ip}:{number}")).collect::<Vec<_>>(),
            "affinity": port.affinity.map(|timeout| format!("{}s", timeout.as_secs())),
            "sources": port.sources,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::tests::env::{G1, TestEnv, VIP_A, mac_of, service};

    #[test]
    fn a_decision_is_rendered_as_text_and_json() {
        let mut env = TestEnv::bound();
        env.service(service("c/forged", VIP_A, "", "app=x"));
        env.edit_service("a/a", |service| service.source_ranges = vec!["192.0.2.0/24".into()]);
        let decision = env.decide("n1");
        let change = Change { object: "route", description: "add".into(), is_repair: false };
        let text = text(&decision, std::slice::from_ref(&change));
        for part in [
            "datapath: node n1 (192.168.50.11, no gateway candidate), 2 other nodes, 2 VIPs, 4 bound pods, 1 unbound pods on this node",
            "  VIP 192.168.50.201: gateway g1 (192.168.50.21), tunnel ID 0x00000001, 2 pods, 1 on this node, 1 ports, 1 with loadBalancerSourceRanges",
            "1 changes\n  route: add",
            "problem: Service c/forged: no binding of VIP 192.168.50.201 admits this Service",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        let json = json(&decision, &[change]);
        let backends = json.pointer("/datapath/vips/0/ports/0/backends").unwrap();
        assert_eq!(*backends, serde_json::json!(["10.244.11.10:8080", "10.244.21.10:8080"]));
        let sources = json.pointer("/datapath/vips/0/ports/0/sources").unwrap();
        assert_eq!(*sources, serde_json::json!(["192.0.2.0/24"]));
        assert_eq!(*json.pointer("/problems/0/reason").unwrap(), "NotAdmitted");
        let route = serde_json::json!({"type": "Remote", "nodeIP": "192.168.50.21", "tunMAC": mac_of(G1)});
        assert_eq!(*json.pointer("/datapath/vips/0/route").unwrap(), route);
    }
}
