//! Nodes, gateway candidates and the networks of the cluster.

use std::{
    collections::{BTreeMap, HashMap},
    net::Ipv4Addr,
};

use ipnet::Ipv4Net;

use super::{
    Config,
    pods::uses_network,
    problem::{Problems, Reason},
};
use crate::agent::{
    datapath::{self, Networks, Peer},
    snapshot::Snapshot,
};

/// The nodes, as the rest of the plan needs them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// The node whose datapath is planned.
    pub own: datapath::Node,
    /// All others by address.
    pub peers: BTreeMap<Ipv4Addr, Peer>,
    /// Networks of the cluster.
    pub networks: Networks,
    by_name: HashMap<String, Ipv4Addr>,
}

impl Nodes {
    /// None if the datapath cannot be planned; the reasons are added to the problems.
    pub(in crate::agent) fn read(
        config: &Config,
        snapshot: &Snapshot,
        problems: &mut Problems<'_>,
    ) -> Option<Nodes> {
        let Some(own) = snapshot.nodes.iter().find(|node| node.name == snapshot.node) else {
            problems.node(snapshot, Reason::NoNode);
            return None;
        };
        let Some(own_ip) = own.ip else {
            problems.node(snapshot, Reason::NoNodeAddress);
            return None;
        };
        let mut peers: BTreeMap<Ipv4Addr, Peer> = BTreeMap::new();
        let mut by_name = HashMap::new();
        for node in &snapshot.nodes {
            let Some(ip) = node.ip else { continue };
            by_name.insert(node.name.clone(), ip);
            if ip == own_ip {
                continue;
            }
            // Two Nodes with one address: one of them is left over from a machine that was replaced. The label counts on either.
            let peer = peers.entry(ip).or_insert_with(|| Peer { name: node.name.clone(), candidate: false });
            peer.candidate |= node.candidate;
            if node.name < peer.name {
                peer.name.clone_from(&node.name);
            }
        }
        let pods = match config.cluster_cidrs.as_slice() {
            [] => {
                let cidrs = snapshot.nodes.iter().flat_map(|node| node.pod_cidrs.iter().copied());
                // As few networks as possible: the drivers write a rule for each.
                Ipv4Net::aggregate(&cidrs.collect::<Vec<_>>())
            }
            given => sorted(given.iter().copied()),
        };
        if pods.is_empty() {
            problems.node(snapshot, Reason::NoPodNetwork);
            return None;
        }
        let node_ips = snapshot.node_ips().into_iter().map(Ipv4Net::from);
        let networks = Networks {
            pods: sorted(pods),
            services: sorted(config.service_cidrs.iter().copied()),
            excluded: sorted(node_ips.chain(config.exclude_cidrs.iter().copied())),
        };
        let own = datapath::Node {
            name: own.name.clone(),
            ip: own_ip,
            pod_cidrs: sorted(own.pod_cidrs.iter().copied()),
            candidate: own.candidate,
        };
        Some(Nodes { own, peers, networks, by_name })
    }

    /// The address of a Node.
    #[must_use]
    pub fn ip(&self, name: &str) -> Option<Ipv4Addr> {
        self.by_name.get(name).copied()
    }

    /// The Node with this address, and whether it is a gateway candidate.
    #[must_use]
    pub fn node(&self, ip: Ipv4Addr) -> Option<(&str, bool)> {
        if ip == self.own.ip {
            return Some((&self.own.name, self.own.candidate));
        }
        self.peers.get(&ip).map(|peer| (peer.name.as_str(), peer.candidate))
    }

    /// The networks of the node's pods: its pod CIDRs, or the cluster's if it has none, or if one of its pods has an address outside of
    /// them. Not always the cluster's: the node may be a router of other nodes' pods, which its agent does not read.
    pub(super) fn networks_of_pods(&self, snapshot: &Snapshot, problems: &mut Problems<'_>) -> Vec<Ipv4Net> {
        let outside = |networks: &[Ipv4Net]| {
            let is_outside = |ip: Ipv4Addr| !networks.iter().any(|network| network.contains(&ip));
            let pods = snapshot.local_pods.iter().filter(|pod| uses_network(pod));
            pods.filter(|pod| pod.ip.is_some_and(is_outside)).min_by(|a, b| a.key.cmp(&b.key))
        };
        let (own, all) = (&self.own.pod_cidrs, &self.networks.pods);
        if !own.is_empty() && outside(own).is_none() {
            return own.clone();
        }
        if let Some(pod) = outside(all) {
            problems.node(snapshot, Reason::PodOutsideNetworks { pod: pod.key.to_string() });
        }
        all.clone()
    }
}

fn sorted(networks: impl IntoIterator<Item = Ipv4Net>) -> Vec<Ipv4Net> {
    let mut networks: Vec<Ipv4Net> = networks.into_iter().map(|network| network.trunc()).collect();
    networks.sort_unstable();
    networks.dedup();
    networks
}
