//! The chains that drop new connections to a port of a VIP from sources that its Service does not admit. In the table mangle, before the DNAT
//! of the driver and of kube-proxy.

use std::{collections::BTreeMap, net::Ipv4Addr};

use super::{
    chains::{chain_of_port, comment, jump, sources},
    vip_by_pod,
};
use crate::agent::{
    datapath::{Datapath, ServicePort},
    ovs::iptables::{Chain, Rules, Table},
};

/// The bound pods of each VIP, with the target of a packet from them.
type Pods = BTreeMap<Ipv4Addr, BTreeMap<Ipv4Addr, &'static str>>;

pub(super) fn restrict(datapath: &Datapath, rules: &mut Rules) {
    let restricted: Vec<_> = datapath.ports().filter(|(_, port)| port.sources.is_some()).collect();
    if restricted.is_empty() {
        return;
    }
    let all = Chain::ours(Table::Mangle, "RESTRICTED");
    for parent in ["PREROUTING", "OUTPUT"] {
        // As DNAT, only where the VIP is. Open connections are not new, so a changed list interrupts none.
        jump(
            rules,
            Table::Mangle,
            parent,
            "-m addrtype --dst-type LOCAL -m conntrack --ctstate NEW -j CGW-RESTRICTED",
        );
    }
    let mut pods = Pods::new();
    for (pod, vip) in vip_by_pod(datapath) {
        pods.entry(vip).or_default().insert(pod, "MARK --set-xmark 0x4/0x4");
    }
    let refused = Chain::ours(Table::Mangle, "REFUSED");
    rules.append(&refused, "-m comment --comment \"not in loadBalancerSourceRanges\" -j DROP".into());
    for (vip, port) in restricted {
        let (name, protocol) = (chain_of_port(Table::Mangle, "SRC", vip, port), port.protocol.name());
        rules.append(
            &all,
            format!(
                "-d {vip}/32 -p {protocol} -m {protocol} --dport {} -m comment --comment \"{}\" -g {}",
                port.port,
                comment(port),
                name.name
            ),
        );
        admit(datapath.node.ip, &pods, port, &name, rules);
    }
    let unbound = Chain::ours(Table::Mangle, "UNBOUND");
    rules.chains.entry(unbound.clone()).or_default();
    let bound = pods.values().flat_map(BTreeMap::keys).map(|pod| (*pod, refused.name.as_str())).collect();
    sources(rules, &unbound, bound, None);
}

/// The chain of a port. It is entered with "goto": the target RETURN leaves all chains of this module.
fn admit(node: Ipv4Addr, pods: &Pods, port: &ServicePort, chain: &Chain, rules: &mut Rules) {
    if port.admits(node) {
        // A process of this node has the VIP as its source, because the VIP is a local address.
        rules.append(chain, "-m addrtype --src-type LOCAL -j RETURN".into());
    }
    let admitted: Vec<_> = pods.iter().filter(|(vip, _)| port.admits(**vip)).collect();
    if !admitted.is_empty() {
        rules.append(chain, "-j MARK --set-xmark 0x0/0x4".into());
        for (vip, pods) in admitted {
            let of_vip = Chain::ours(Table::Mangle, &format!("OF-{:08x}", vip.to_bits()));
            rules.append(chain, format!("-j {}", of_vip.name));
            if !rules.chains.contains_key(&of_vip) {
                sources(rules, &of_vip, pods.clone(), None);
            }
        }
        rules.append(chain, "-m mark --mark 0x4/0x4 -j RETURN".into());
    }
    for network in port.sources.iter().flatten() {
        // The gateway of another VIP sees the client's VIP, not the pod: the pod's own address does not count here either.
        rules.append(chain, format!("-s {network} -g CGW-UNBOUND"));
    }
    rules.append(chain, format!("-m comment --comment \"{}\" -j CGW-REFUSED", comment(port)));
}
