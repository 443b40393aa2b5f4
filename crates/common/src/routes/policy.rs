//! Whose routes are judged, and how carefully.

use std::time::Duration;

use ipnet::IpNet;

use crate::api::routegc::{NodePrefixLength, RouteGCSpec, Safety};

/// Whose routes are judged, and how carefully.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Routes into these are judged, all others are foreign.
    pub pod_cidrs: Vec<IpNet>,
    /// Where given, routes of another prefix length are foreign too.
    pub node_prefix_length: NodePrefixLength,
    /// Passes in a row that must find a route dead.
    pub confirmations: u32,
    /// Since when it must have been dead.
    pub min_age: Duration,
    /// More removals in one pass than this: none.
    pub max_removals: usize,
    /// A larger share of the judged routes than this, in percent, and more than two: none.
    pub max_percent: usize,
    /// Whether the whole list may be written without a lock, where the cloud has none.
    pub allow_unsafe_update: bool,
    /// Whether a port without port security is believed to have no addresses but those that Neutron knows of.
    pub ignore_open_ports: bool,
}

/// A policy that cannot be meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The text is no network.
    #[error("{0:?} is no network; write 10.244.0.0/16 or fd00:10::/56")]
    NoNetwork(String),
    /// The text has host bits: was it meant to be the network, or one address?
    #[error("{0} has bits behind its prefix; write {1}")]
    HostBits(String, IpNet),
    /// Every route of the router would be in it.
    #[error("{0} is the whole internet: no route would be foreign")]
    Everything(IpNet),
    /// No pod network at all.
    #[error("no pod network is given; it is what the controller manager has as --cluster-cidr")]
    Nothing,
}

impl Policy {
    /// Reads the pod networks; `node_prefix_length` and `safety` as the custom resource has them.
    ///
    /// # Errors
    /// The first network that cannot be meant.
    pub fn new<S: AsRef<str>>(
        pod_cidrs: impl IntoIterator<Item = S>,
        node_prefix_length: Option<NodePrefixLength>,
        safety: &Safety,
    ) -> Result<Policy, Invalid> {
        let pod_cidrs: Vec<IpNet> =
            pod_cidrs.into_iter().map(|text| network(text.as_ref())).collect::<Result<_, _>>()?;
        if pod_cidrs.is_empty() {
            return Err(Invalid::Nothing);
        }
        Ok(Policy {
            pod_cidrs,
            node_prefix_length: node_prefix_length.unwrap_or_default(),
            confirmations: safety.confirmations,
            min_age: safety.min_age.duration(),
            max_removals: safety.max_removals as usize,
            max_percent: safety.max_percent.into(),
            allow_unsafe_update: safety.allow_unsafe_update,
            ignore_open_ports: safety.ignore_open_ports,
        })
    }

    /// The policy of one RouteGC.
    ///
    /// # Errors
    /// As [`Policy::new`]; the schema refuses such a RouteGC before.
    pub fn of(spec: &RouteGCSpec) -> Result<Policy, Invalid> {
        Policy::new(&spec.pod_cidrs, spec.node_prefix_length, &spec.safety)
    }

    /// Whether a destination is ours to judge: wholly inside one of the pod networks, and of a node's prefix length.
    #[must_use]
    pub fn applies_to(&self, destination: &IpNet) -> bool {
        let length = match destination {
            IpNet::V4(_) => self.node_prefix_length.ipv4,
            IpNet::V6(_) => self.node_prefix_length.ipv6,
        };
        self.pod_cidrs.iter().any(|net| net.contains(destination))
            && length.is_none_or(|length| length == destination.prefix_len())
    }

    /// A pod network that the other policy has too, wholly or in part: two that judge one route could undo each other.
    #[must_use]
    pub fn overlap(&self, other: &Policy) -> Option<IpNet> {
        let shared = |one: &IpNet, two: &IpNet| one.contains(two) || two.contains(one);
        self.pod_cidrs.iter().find(|one| other.pod_cidrs.iter().any(|two| shared(one, two))).copied()
    }
}

fn network(text: &str) -> Result<IpNet, Invalid> {
    let net: IpNet = text.trim().parse().map_err(|_| Invalid::NoNetwork(text.to_owned()))?;
    if net != net.trunc() {
        return Err(Invalid::HostBits(text.to_owned(), net.trunc()));
    }
    if net.prefix_len() == 0 {
        return Err(Invalid::Everything(net));
    }
    Ok(net)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(nets: &[&str]) -> Policy {
        Policy::new(nets, None, &Safety::default()).unwrap()
    }

    fn applies_to(policy: &Policy, destination: &str) -> bool {
        policy.applies_to(&destination.parse().unwrap())
    }

    /// R7: several networks of both families; a summary route around the pod network is nobody's.
    #[test]
    fn only_what_lies_wholly_inside_is_judged() {
        let policy = policy(&["10.244.0.0/16", "fd00:10::/56"]);
        assert!(applies_to(&policy, "10.244.3.0/24") && applies_to(&policy, "10.244.0.0/16"));
        assert!(applies_to(&policy, "fd00:10:0:1::/64"));
        assert!(!applies_to(&policy, "10.244.0.0/15") && !applies_to(&policy, "10.245.0.0/24"));
        assert!(!applies_to(&policy, "0.0.0.0/0") && !applies_to(&policy, "fd00:11::/64"));
    }

    #[test]
    fn a_summary_route_is_left_alone_where_the_nodes_length_is_known() {
        let length = NodePrefixLength { ipv4: Some(24), ipv6: None };
        let policy =
            Policy::new(["10.244.0.0/16", "fd00:10::/56"], Some(length), &Safety::default()).unwrap();
        assert!(applies_to(&policy, "10.244.3.0/24") && applies_to(&policy, "fd00:10::/60"));
        assert!(!applies_to(&policy, "10.244.0.0/16") && !applies_to(&policy, "10.244.3.0/25"));
    }

    #[test]
    fn overlapping_policies_find_each_other() {
        let one = policy(&["10.244.0.0/16", "fd00:10::/56"]);
        assert!(one.overlap(&policy(&["10.244.128.0/17"])).is_some());
        assert!(policy(&["10.244.128.0/17"]).overlap(&one).is_some());
        assert!(one.overlap(&policy(&["10.245.0.0/16", "fd00:11::/56"])).is_none());
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_to_write() {
        let refused = |net: &str| Policy::new([net], None, &Safety::default()).unwrap_err().to_string();
        assert!(refused("10.244.1.0/16").ends_with("write 10.244.0.0/16"));
        assert!(refused("0.0.0.0/0").contains("whole internet"));
        assert!(refused("pods").contains("write 10.244.0.0/16"));
        assert!(Policy::new([""; 0], None, &Safety::default()).is_err());
    }
}
