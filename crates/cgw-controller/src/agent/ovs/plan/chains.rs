//! The chains of iptables. Rules have the form in which `iptables-save` prints them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use sha2::{Digest as _, Sha256};

use super::{PortMode, sources::restrict, vip_by_pod};
use crate::agent::{
    datapath::{Datapath, Protocol, ServicePort, VipRoute},
    ovs::{
        balance,
        iptables::{Chain, Rules, Table},
    },
};

/// Rules of one chain for each source address are split by /24 above this number.
const LINEAR: usize = 256;
/// A TCP packet that does not begin a connection.
const NO_SYN: &str = "! --tcp-flags FIN,SYN,RST,ACK SYN";

/// The chains of iptables. They do not depend on the bridge, so the guards are in place before it is.
#[must_use]
pub fn rules(ports: PortMode, datapath: &Datapath) -> Rules {
    let mut rules = Rules::default();
    guard_new(ports, datapath, &mut rules);
    guard_established(datapath, &mut rules);
    if datapath.node.candidate {
        restrict(datapath, &mut rules);
        ingress(ports, datapath, &mut rules);
        egress(datapath, &mut rules);
        input(ports, datapath, &mut rules);
    }
    rules
}

pub(super) fn jump(rules: &mut Rules, table: Table, parent: &str, rule: &str) {
    rules.jumps.insert(Chain { table, name: parent.into() }, vec![(1, rule.into())]);
}

/// Drops new connections of pods that have no SNAT here and are not known as unbound: fail-closed. Without it, a bound pod that
/// lost its tag leaves with the address of its node, and a pod whose rules are missing leaves with the address of the gateway.
fn guard_new(ports: PortMode, datapath: &Datapath, rules: &mut Rules) {
    let chain = Chain::ours(Table::Mangle, "FORWARD");
    let guard = Chain::ours(Table::Mangle, "GUARD");
    jump(rules, Table::Mangle, "FORWARD", "-i tun0 -j CGW-FORWARD");
    rules.chains.entry(chain.clone()).or_default();
    for network in &datapath.networks.pods {
        rules.append(&chain, format!("-s {network} -j CGW-GUARD"));
    }
    // Between pods: only a hairpin has the mark.
    rules.append(&guard, "-o tun0 -m mark ! --mark 0x4/0x4 -j RETURN".into());
    // nat does not translate these, so they would leave with the address of the pod.
    rules.append(&guard, "-m conntrack --ctstate INVALID -j DROP".into());
    rules.append(&guard, "-m conntrack --ctstate RELATED,ESTABLISHED -j RETURN".into());
    if datapath.node.candidate && ports == PortMode::Own {
        // After a change of the gateway the client's next packet restores the entry of its connection: the choice of the backend is
        // the same. The backend's next packet must not come first, or it would become a connection of its own.
        let backends = Chain::ours(Table::Mangle, "BACKENDS");
        rules.append(&guard, format!("-p tcp -m tcp {NO_SYN} -j CGW-BACKENDS"));
        rules.chains.entry(backends.clone()).or_default();
        let tcp = datapath.ports().filter(|(_, port)| port.protocol == Protocol::Tcp);
        let targets: BTreeSet<(Ipv4Addr, u16)> =
            tcp.flat_map(|(_, port)| port.backends.iter().copied()).collect();
        for (address, port) in targets {
            rules.append(&backends, format!("-s {address}/32 -p tcp -m tcp --sport {port} -j DROP"));
        }
    }
    for network in &datapath.networks.services {
        rules.append(&guard, format!("-m conntrack --ctorigdst {network} -j RETURN"));
    }
    for network in &datapath.networks.excluded {
        rules.append(&guard, format!("-d {network} -j RETURN"));
    }
    if !datapath.node.candidate {
        // openshift-sdn marks what leaves with an egressIP of this node. Pods of other nodes leave with it too, and unbound ones are not
        // known here.
        let marked = Chain::ours(Table::Mangle, "MARKED");
        rules.append(&guard, "-m mark ! --mark 0x0 -g CGW-MARKED".into());
        let bound = datapath.bound_pods().into_keys().map(|address| (address, "DROP")).collect();
        sources(rules, &marked, bound, Some("RETURN"));
    }
    let mut known: BTreeMap<Ipv4Addr, &str> =
        datapath.unbound_pods.iter().map(|address| (*address, "RETURN")).collect();
    for (address, bound) in datapath.bound_pods() {
        let is_local = bound.node == datapath.node.ip;
        // A pod of this node leaves here only if this node is the gateway. Pods of other nodes may arrive before this node has read
        // that it is the gateway.
        if datapath.node.candidate && (!is_local || bound.path.route == VipRoute::Local) {
            known.insert(address, "RETURN");
        } else {
            known.remove(&address);
        }
    }
    sources(rules, &guard, known, Some("DROP"));
}

/// Drops packets of connections that began without SNAT: nat translates only the first packet of a connection.
fn guard_established(datapath: &Datapath, rules: &mut Rules) {
    let chain = Chain::ours(Table::Mangle, "POSTROUTING");
    let guard = Chain::ours(Table::Mangle, "COMMITTED");
    jump(rules, Table::Mangle, "POSTROUTING", "! -o tun0 -j CGW-POSTROUTING");
    rules.chains.entry(chain.clone()).or_default();
    for network in &datapath.networks.pods {
        rules.append(&chain, format!("-s {network} -j CGW-COMMITTED"));
        rules.append(&guard, format!("-d {network} -j RETURN"));
    }
    let states = "-m conntrack --ctstate ESTABLISHED --ctdir ORIGINAL -m conntrack ! --ctstate SNAT";
    rules.append(&guard, format!("{states} -j DROP"));
}

/// DNAT of packets to a VIP, and the marks: 0x4 for clients in pods, 0x2 for all others. A packet has one of them.
fn ingress(ports: PortMode, datapath: &Datapath, rules: &mut Rules) {
    let services = Chain::ours(Table::Nat, "SERVICES");
    let mark = Chain::ours(Table::Nat, "MARK");
    jump(rules, Table::Nat, "PREROUTING", "-j CGW-PREROUTING");
    rules.append(
        &Chain::ours(Table::Nat, "PREROUTING"),
        // A candidate that does not carry the VIP forwards the packet to the one that does.
        "-m addrtype --dst-type LOCAL -j CGW-SERVICES".into(),
    );
    rules.chains.entry(services.clone()).or_default();
    rules.append(&mark, "-j MARK --set-xmark 0x2/0x6".into());
    for network in &datapath.networks.pods {
        rules.append(&mark, format!("-s {network} -j MARK --set-xmark 0x4/0x6"));
    }
    if ports == PortMode::KubeProxy {
        for vip in datapath.vips.keys() {
            rules.append(&services, format!("-d {vip}/32 -j CGW-MARK"));
        }
        return;
    }
    // Processes of the gateway itself. kube-proxy does this in its own mode.
    jump(rules, Table::Nat, "OUTPUT", "-j CGW-PREROUTING");
    for (vip, port) in datapath.ports() {
        if port.backends.is_empty() {
            continue;
        }
        let protocol = port.protocol.name();
        let chain = chain_of_port(Table::Nat, "SVC", vip, port);
        rules.append(
            &services,
            format!(
                "-d {vip}/32 -p {protocol} -m {protocol} --dport {} -m comment --comment \"{}\" -j {}",
                port.port,
                comment(port),
                chain.name
            ),
        );
        rules.append(&chain, "-j CGW-MARK".into());
        let (last, count) = (port.backends.len() - 1, port.backends.len());
        for (index, (address, target)) in port.backends.iter().enumerate() {
            let condition = if index == last {
                String::new()
            } else {
                format!("-m bpf --bytecode \"{}\" ", balance::bytecode(port.affinity.is_none(), count, index))
            };
            rules.append(
                &chain,
                format!("-p {protocol} {condition}-j DNAT --to-destination {address}:{target}"),
            );
        }
    }
}

/// SNAT of packets of bound pods, for every protocol.
fn egress(datapath: &Datapath, rules: &mut Rules) {
    let chain = Chain::ours(Table::Nat, "POSTROUTING");
    let pods = Chain::ours(Table::Nat, "EGRESS");
    let hairpin = Chain::ours(Table::Nat, "HAIRPIN");
    let snat = Chain::ours(Table::Nat, "SNAT");
    jump(rules, Table::Nat, "POSTROUTING", "-j CGW-POSTROUTING");
    rules.chains.entry(chain.clone()).or_default();
    // Ingress: the client's address is kept, before openshift-sdn and kube-proxy masquerade it.
    for network in &datapath.networks.pods {
        rules.append(&chain, format!("-d {network} -m mark --mark 0x2/0x2 -j ACCEPT"));
    }
    for network in &datapath.networks.pods {
        rules.append(&chain, format!("-s {network} -j CGW-EGRESS"));
    }
    for network in &datapath.networks.services {
        rules.append(&pods, format!("-m conntrack --ctorigdst {network} -j RETURN"));
    }
    for network in &datapath.networks.excluded {
        rules.append(&pods, format!("-d {network} -j RETURN"));
    }
    for network in &datapath.networks.pods {
        rules.append(&pods, format!("-d {network} -m mark --mark 0x4/0x4 -j CGW-HAIRPIN"));
        rules.append(&pods, format!("-d {network} -j RETURN"));
    }
    rules.append(&pods, "-j CGW-SNAT".into());
    rules.append(&hairpin, "-j CGW-SNAT".into());
    // An unbound pod of this node: without it, the backend's reply goes to the pod directly and with the wrong source.
    rules.append(&hairpin, "-j MASQUERADE".into());
    rules.chains.entry(snat.clone()).or_default();
    let targets: BTreeMap<Ipv4Addr, String> =
        vip_by_pod(datapath).into_iter().map(|(pod, vip)| (pod, format!("SNAT --to-source {vip}"))).collect();
    sources(
        rules,
        &snat,
        targets.iter().map(|(address, target)| (*address, target.as_str())).collect(),
        None,
    );
}

/// Packets to a VIP that no rule translates.
fn input(ports: PortMode, datapath: &Datapath, rules: &mut Rules) {
    let chain = Chain::ours(Table::Filter, "INPUT");
    jump(rules, Table::Filter, "INPUT", "-j CGW-INPUT");
    rules.chains.entry(chain.clone()).or_default();
    for vip in datapath.vips.keys() {
        // Packets of connections whose conntrack entry is on another gateway: this node's TCP would reset the connections.
        rules.append(
            &chain,
            format!("-d {vip}/32 -p tcp -m tcp {NO_SYN} -m conntrack ! --ctstate DNAT -j DROP"),
        );
    }
    if ports == PortMode::KubeProxy {
        return;
    }
    // A process of this node that listens on all addresses is no backend.
    for (vip, port) in datapath.ports().filter(|(_, port)| port.backends.is_empty()) {
        let protocol = port.protocol.name();
        rules.append(
            &chain,
            format!(
                "-d {vip}/32 -p {protocol} -m {protocol} --dport {} -m comment --comment \"{}\" -j REJECT \
                 --reject-with icmp-port-unreachable",
                port.port,
                comment(port)
            ),
        );
    }
}

/// Rules for many source addresses: one for each, or chains by /24. All other addresses have the target `otherwise`.
pub(super) fn sources(
    rules: &mut Rules,
    chain: &Chain,
    targets: BTreeMap<Ipv4Addr, &str>,
    otherwise: Option<&str>,
) {
    let end = |rules: &mut Rules, chain: &Chain| {
        if let Some(target) = otherwise {
            rules.append(chain, format!("-j {target}"));
        }
    };
    if targets.len() <= LINEAR {
        for (address, target) in targets {
            rules.append(chain, format!("-s {address}/32 -j {target}"));
        }
        end(rules, chain);
        return;
    }
    let mut networks: BTreeMap<Ipv4Addr, BTreeMap<Ipv4Addr, &str>> = BTreeMap::new();
    for (address, target) in targets {
        let network = Ipv4Addr::from_bits(address.to_bits() & 0xffff_ff00);
        networks.entry(network).or_default().insert(address, target);
    }
    for (network, targets) in networks {
        let part =
            Chain { table: chain.table, name: format!("{}-{:06x}", chain.name, network.to_bits() >> 8) };
        // "goto": the target RETURN leaves both chains.
        rules.append(chain, format!("-s {network}/24 -g {}", part.name));
        for (address, target) in targets {
            rules.append(&part, format!("-s {address}/32 -j {target}"));
        }
        end(rules, &part);
    }
    end(rules, chain);
}

/// The name of a chain has at most 28 characters.
pub(super) fn chain_of_port(table: Table, kind: &str, vip: Ipv4Addr, port: &ServicePort) -> Chain {
    let key = format!("{vip} {} {} {}", port.service, port.protocol.name(), port.port);
    let digest: String = Sha256::digest(key).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Chain::ours(table, &format!("{kind}-{digest}"))
}

/// `namespace/name:port`. `iptables-save` puts it in quotes because of the '/'.
pub(super) fn comment(port: &ServicePort) -> String {
    let text = format!("{}:{}", port.service, port.name);
    let text: String =
        text.chars().filter(|c| c.is_ascii_alphanumeric() || "-._/:".contains(*c)).take(200).collect();
    if text.contains('/') { text } else { format!("/{text}") }
}
