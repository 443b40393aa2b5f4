//! The VIP of each pod.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::Ipv4Addr,
};

use common::cache::ObjectKey;

use super::{
    Bindings, Nodes,
    bindings::Admitted,
    problem::{Problems, Reason},
};
use crate::agent::{
    datapath::BoundPod,
    snapshot::{Pod, Service, Snapshot},
};

/// The VIP of each pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    /// VIP and pod by address.
    pub bound: BTreeMap<Ipv4Addr, (Ipv4Addr, BoundPod)>,
    /// Addresses of pods of this node that no admitted Service selects.
    pub unbound: BTreeSet<Ipv4Addr>,
}

/// The decision of the admitted Services about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selected<'a> {
    /// It uses the VIP of this Service.
    Bound {
        /// The VIP.
        vip: Ipv4Addr,
        /// The Service that has precedence.
        service: &'a Service,
    },
    /// It is behind this Service, and cannot use its VIP.
    Blocked {
        /// The Service that has precedence.
        service: &'a Service,
    },
}

impl Pods {
    pub(super) fn assign(
        bindings: &Bindings<'_>,
        snapshot: &Snapshot,
        nodes: &Nodes,
        problems: &mut Problems<'_>,
    ) -> Pods {
        let selection = Selection::of(bindings, problems);
        let mut bound: BTreeMap<Ipv4Addr, (Ipv4Addr, &Pod)> = BTreeMap::new();
        let mut blocked: HashSet<Ipv4Addr> = HashSet::new();
        for (pod, selected) in selection.in_order() {
            let Some(address) = pod.ip else { continue };
            let Selected::Bound { vip, service } = selected else {
                blocked.insert(address);
                continue;
            };
            match bound.get_mut(&address) {
                // A pod of a node that was replaced may still be listed when its address is another pod's.
                Some((before, other)) => {
                    let is_better = other.terminating && !pod.terminating;
                    if vip != *before {
                        let (pod, other) = if is_better { (*other, pod) } else { (pod, *other) };
                        let (pod, other) = (pod.key.to_string(), other.key.to_string());
                        problems.service(service, Reason::AddressConflict { pod, other, address });
                    }
                    if is_better {
                        (*before, *other) = (vip, pod);
                    }
                }
                None => {
                    bound.insert(address, (vip, pod));
                }
            }
        }
        let bound = bound.into_iter().filter_map(|(address, (vip, pod))| {
            // A pod of a Node that is gone: its address is not reachable.
            let node_ip = nodes.ip(&pod.node)?;
            Some((address, (vip, BoundPod { name: pod.key.to_string(), node_ip })))
        });
        let bound: BTreeMap<_, _> = bound.collect();
        let unbound = snapshot
            .local_pods
            .iter()
            .filter(|pod| uses_network(pod) && !selection.by_key.contains_key(&pod.key))
            .filter_map(|pod| pod.ip)
            .filter(|address| !bound.contains_key(address) && !blocked.contains(address))
            .collect();
        Pods { bound, unbound }
    }
}

/// Whether the pod has a network of its own that the datapath is for.
pub(super) fn uses_network(pod: &Pod) -> bool {
    !pod.finished && !pod.host_network
}

/// The decision about each selected pod, by its name.
#[derive(Debug)]
pub struct Selection<'a> {
    by_key: HashMap<&'a ObjectKey, (&'a Pod, Selected<'a>)>,
}

impl<'a> Selection<'a> {
    /// Selects the pods of all admitted Services. The first Service with a usable VIP decides about a pod.
    pub(in crate::agent) fn of(bindings: &Bindings<'a>, problems: &mut Problems<'_>) -> Selection<'a> {
        let mut by_key: HashMap<&ObjectKey, (&Pod, Selected<'_>)> = HashMap::new();
        for Admitted { carrier, vip } in &bindings.services {
            let service = &*carrier.service;
            for pod in &carrier.pods {
                if pod.finished {
                    continue;
                }
                if pod.host_network {
                    problems.service(service, Reason::HostNetwork);
                    continue;
                }
                let selected = match (vip, pod.foreign_egress) {
                    (_, Some(annotation)) => {
                        problems.service(service, Reason::ForeignEgress { annotation });
                        Selected::Blocked { service }
                    }
                    (Err(_), None) => Selected::Blocked { service },
                    (Ok(vip), None) => Selected::Bound { vip: *vip, service },
                };
                let (_, before) = by_key.entry(&pod.key).or_insert((pod, selected));
                match (*before, selected) {
                    (Selected::Bound { vip, service: other }, Selected::Bound { vip: another, .. })
                        if vip != another =>
                    {
                        let other = other.key.to_string();
                        problems.service(service, Reason::PodConflict { other, vip });
                    }
                    (Selected::Blocked { .. }, Selected::Bound { .. }) => *before = selected,
                    _ => {}
                }
            }
        }
        Selection { by_key }
    }

    /// The decision about a pod. None: no admitted Service selects it.
    #[must_use]
    pub fn get(&self, pod: &ObjectKey) -> Option<Selected<'a>> {
        self.by_key.get(pod).map(|(_, selected)| *selected)
    }

    /// Sorted by name, so that the plan does not depend on the order of the input.
    fn in_order(&self) -> Vec<(&'a Pod, Selected<'a>)> {
        let mut pods: Vec<_> = self.by_key.values().copied().collect();
        pods.sort_unstable_by(|(a, _), (b, _)| a.key.cmp(&b.key));
        pods
    }
}
