//! Explains the source address with which a pod leaves the cluster. Pure; made from the same decisions as the datapath.

use std::{fmt, net::Ipv4Addr};

use common::cache::ObjectKey;
use serde::Serialize;

use super::{
    datapath::VipRoute,
    plan::{
        Admitted, Bindings, Config, Nodes, Selected, Selection,
        problem::{Problems, Reason},
    },
    snapshot::{Pod, Service, Snapshot},
};

/// The source address of a pod's packets to the outside, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The pod.
    pub pod: ObjectKey,
    /// The source address.
    pub source: Source,
    /// One sentence for each step of the decision, in order.
    pub because: Vec<String>,
}

/// The source address of a pod's packets to the outside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type")]
pub enum Source {
    /// The VIP.
    Vip {
        /// The VIP.
        #[serde(rename = "address")]
        vip: Ipv4Addr,
        /// Name of the gateway's Node.
        gateway: String,
        /// Its address.
        #[serde(rename = "gatewayIP")]
        gateway_ip: Ipv4Addr,
    },
    /// The address that the CNI gives: usually that of the pod's node.
    Node {
        /// Name of the Node.
        node: String,
        /// Its address, if it has one of IPv4.
        #[serde(rename = "address")]
        ip: Option<Ipv4Addr>,
    },
    /// None: such packets are dropped.
    Dropped,
    /// None: the pod has no network.
    NoNetwork,
    /// The pod is not in the snapshot, or its node's datapath cannot be planned.
    Unknown,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Vip { vip, gateway, gateway_ip } => {
                write!(f, "VIP {vip} through gateway {gateway} ({gateway_ip})")
            }
            Source::Node { node, ip: Some(ip) } => write!(f, "address of node {node} ({ip})"),
            Source::Node { node, ip: None } => write!(f, "address of node {node}"),
            Source::Dropped => f.write_str("none: packets to the outside are dropped"),
            Source::NoNetwork => f.write_str("none: the pod has no network"),
            Source::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "pod {}: source address: {}", self.pod, self.source)?;
        self.because.iter().try_for_each(|sentence| writeln!(f, "  {sentence}"))
    }
}

/// Explains the source address of a pod. [`Snapshot::node`] must be the pod's Node.
#[must_use]
pub fn explain(config: &Config, snapshot: &Snapshot, pod: &ObjectKey) -> Explanation {
    let mut because = Vec::new();
    let source = source(config, snapshot, pod, &mut because);
    Explanation { pod: pod.clone(), source, because }
}

fn source(config: &Config, snapshot: &Snapshot, key: &ObjectKey, because: &mut Vec<String>) -> Source {
    let Some(pod) = snapshot.pod(key) else {
        because.push(format!("there is no such pod on node {}", snapshot.node));
        return Source::Unknown;
    };
    let own = snapshot.nodes.iter().find(|node| *node.name == *pod.node);
    let node_address = || Source::Node { node: pod.node.to_string(), ip: own.and_then(|node| node.ip) };
    if pod.finished {
        because.push("all its containers have ended".to_owned());
        return Source::NoNetwork;
    }
    if pod.host_network {
        because.push("it has the network of its node (hostNetwork)".to_owned());
        return node_address();
    }
    let mut problems = Problems::new(config);
    let (nodes, store) = match (Nodes::read(config, snapshot, &mut problems), &snapshot.store) {
        (Some(nodes), Some(store)) => (nodes, store),
        (nodes, store) => {
            if store.is_none() {
                because.push(format!("Service {} does not exist", config.store));
            }
            if nodes.is_none() {
                because.extend(problems.sorted().iter().map(|problem| problem.because.to_string()));
            }
            return Source::Unknown;
        }
    };
    let bindings = Bindings::read(config, snapshot, store, &nodes, &mut problems);
    let selection = Selection::of(&bindings, &mut problems);
    let source = match selection.get(key) {
        None => {
            because.push("no Service that a binding admits selects it".to_owned());
            node_address()
        }
        Some(Selected::Blocked { service }) => {
            because.push(blocked(&bindings, pod, service));
            Source::Dropped
        }
        Some(Selected::Bound { vip, service }) => {
            because.push(format!("Service {} selects it and carries VIP {vip}", service.key));
            if let Some((_, bind)) = store.binds.iter().find(|(one, _)| one.address() == vip) {
                because.push(format!("VIP {vip} is bound to {}, tunnel ID {}", bind.owner, bind.tun_id));
            }
            through_gateway(vip, &bindings, &nodes, because)
        }
    };
    if pod.ip.is_none() {
        because.push("it has no address of IPv4 yet".to_owned());
    }
    because.extend(problems_of(pod, snapshot, problems));
    source
}

fn through_gateway(
    vip: Ipv4Addr,
    bindings: &Bindings<'_>,
    nodes: &Nodes,
    because: &mut Vec<String>,
) -> Source {
    let path = bindings.paths.get(&vip);
    let gateway_ip = match path.map(|path| path.route) {
        Some(VipRoute::Local) => nodes.own.ip,
        Some(VipRoute::Remote { node_ip, .. }) => node_ip,
        Some(VipRoute::Drop) | None => {
            if path.is_none_or(|path| !path.has_unusable_gateway) {
                because.push(format!("no gateway of VIP {vip} is known: the annotation node-ip is empty"));
            }
            return Source::Dropped;
        }
    };
    let gateway = nodes.node(gateway_ip).map(|(name, _)| name.to_owned()).unwrap_or_default();
    Source::Vip { vip, gateway, gateway_ip }
}

fn blocked(bindings: &Bindings<'_>, pod: &Pod, service: &Service) -> String {
    let is_of = |admitted: &&Admitted<'_>| admitted.carrier.service.key == service.key;
    let unusable = bindings.services.iter().find(is_of).and_then(|admitted| admitted.vip.as_ref().err());
    match (pod.foreign_egress, unusable) {
        (Some(annotation), _) => {
            format!("it has the annotation {annotation}, and Service {} selects it", service.key)
        }
        (None, Some(vip)) => format!("Service {} selects it, and carries VIP {vip}", service.key),
        (None, None) => format!("Service {} selects it", service.key),
    }
}

/// The problems of the Services whose selectors match the pod.
fn problems_of(pod: &Pod, snapshot: &Snapshot, problems: Problems<'_>) -> impl Iterator<Item = String> {
    let is_around = |service: &Service| {
        service.key.namespace() == pod.key.namespace() && pod.labels.match_selector(&service.selector)
    };
    let services = snapshot.services.iter().map(|carrier| &*carrier.service);
    let around: Vec<ObjectKey> =
        services.filter(|service| is_around(service)).map(|service| service.key.clone()).collect();
    problems.sorted().into_iter().filter_map(move |problem| {
        let regarding = &problem.regarding;
        let key = ObjectKey::new(regarding.namespace.as_deref().unwrap_or_default(), &regarding.name);
        let is_about_pod = match problem.because {
            Reason::HostNetwork | Reason::InvalidBinding { .. } => false,
            _ => regarding.kind == "Service" && around.contains(&key),
        };
        is_about_pod.then(|| format!("Service {key}: {}", problem.because))
    })
}
