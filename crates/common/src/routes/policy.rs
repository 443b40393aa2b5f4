//! The routes that may be removed, and the safety limits.

use ipnet::IpNet;

use crate::api::routegc::{NodePrefixLength, RouteGCSpec, Safety};

/// The routes that may be removed, and the safety limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Routes into these may be removed; all others are foreign.
    pub pod_cidrs: Vec<IpNet>,
    /// If set, routes of another prefix length are foreign too.
    pub node_prefix_length: NodePrefixLength,
    /// Limits that a removal must respect.
    pub safety: Safety,
}

/// A policy that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The text is no network.
    #[error("{0:?} is no network; write 10.244.0.0/16 or fd00:10::/56")]
    NoNetwork(String),
    /// The text has host bits: it is not clear whether the network or one address is meant.
    #[error("{0} has host bits; write {1}")]
    HostBits(String, IpNet),
    /// Every route of the router would be in it.
    #[error("{0} has prefix length 0: no route would be foreign")]
    Everything(IpNet),
    /// No pod network at all.
    #[error("no pod network is given; set the value of the controller manager's --cluster-cidr")]
    Nothing,
}

impl Policy {
    /// Parses the pod networks; `node_prefix_length` and `safety` as the custom resource has them.
    ///
    /// # Errors
    /// The first network that is not valid.
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
            safety: safety.clone(),
        })
    }

    /// The policy of one RouteGC.
    ///
    /// # Errors
    /// As [`Policy::new`]; the schema refuses such a RouteGC before.
    pub fn of(spec: &RouteGCSpec) -> Result<Policy, Invalid> {
        Policy::new(&spec.pod_cidrs, spec.node_prefix_length, &spec.safety)
    }

    /// Whether the policy applies to a destination: completely inside one of the pod networks, and of a node's prefix length.
    #[must_use]
    pub fn applies_to(&self, destination: &IpNet) -> bool {
        let length = match destination {
            IpNet::V4(_) => self.node_prefix_length.ipv4,
            IpNet::V6(_) => self.node_prefix_length.ipv6,
        };
        self.pod_cidrs.iter().any(|net| net.contains(destination))
            && length.is_none_or(|length| length == destination.prefix_len())
    }

    /// A pod network that overlaps with one of the other policy. Two policies must not apply to one route.
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

    /// R7: several networks of both families; a summary route around the pod network is foreign.
    #[test]
    fn a_policy_applies_only_to_destinations_completely_inside_a_pod_network() {
        let policy = policy(&["10.244.0.0/16", "fd00:10::/56"]);
        assert!(applies_to(&policy, "10.244.3.0/24") && applies_to(&policy, "10.244.0.0/16"));
        assert!(applies_to(&policy, "fd00:10:0:1::/64"));
        assert!(!applies_to(&policy, "10.244.0.0/15") && !applies_to(&policy, "10.245.0.0/24"));
        assert!(!applies_to(&policy, "0.0.0.0/0") && !applies_to(&policy, "fd00:11::/64"));
    }

    #[test]
    fn a_summary_route_is_foreign_if_the_node_prefix_length_is_set() {
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
    fn an_invalid_network_is_refused_with_a_suggestion() {
        let refused = |net: &str| Policy::new([net], None, &Safety::default()).unwrap_err().to_string();
        assert!(refused("10.244.1.0/16").ends_with("write 10.244.0.0/16"));
        assert!(refused("0.0.0.0/0").contains("prefix length 0"));
        assert!(refused("pods").contains("write 10.244.0.0/16"));
        assert!(Policy::new([""; 0], None, &Safety::default()).is_err());
    }
}
