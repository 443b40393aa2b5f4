//! The part of the cluster that one node's datapath depends on, as plain data of one time.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
    time::Duration,
};

use common::cache::ObjectKey;
use ipnet::Ipv4Net;

use super::datapath::Protocol;
use crate::api::{
    Vip,
    stores::{self, Bind, EntryError},
};

/// The cluster, as the plan of one node reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Name of the Node whose datapath is planned.
    pub node: String,
    /// All Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// The store `binds`. None: its Service does not exist, so nothing is known about any binding.
    pub store: Option<Arc<Store>>,
    /// Every Service with the annotation `vip`, whether a binding admits it or not.
    pub services: Vec<Carrier>,
    /// The pods of this node.
    pub local_pods: Vec<Arc<Pod>>,
}

/// A Service with the annotation `vip`, and the objects that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carrier {
    /// The Service.
    pub service: Arc<Service>,
    /// The pods of its selector. Empty if no binding admits the Service.
    pub pods: Vec<Arc<Pod>>,
    /// Its EndpointSlices.
    pub slices: Vec<Arc<Slice>>,
}

/// A Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// Its first InternalIP of IPv4.
    pub ip: Option<Ipv4Addr>,
    /// `spec.podCIDRs` of IPv4.
    pub pod_cidrs: Vec<Ipv4Net>,
    /// Whether it has the label `cgw-controller.perimeter.dev/gateway`.
    pub candidate: bool,
}

/// The store `binds`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    /// The bindings.
    pub binds: BTreeMap<Vip, Bind>,
    /// Annotations that are no bindings.
    pub errors: Vec<EntryError>,
}

impl Store {
    /// Reads the annotations of the store Service.
    #[must_use]
    pub fn read(annotations: &BTreeMap<String, String>) -> Store {
        let (binds, errors) = stores::binds(annotations);
        Store { binds, errors }
    }

    /// The binding of the VIP, if it admits the Service.
    #[must_use]
    pub fn admitting(&self, vip: Vip, service: &ObjectKey) -> Option<&Bind> {
        self.binds.get(&vip).filter(|bind| bind.owner.admits(service))
    }

    /// Whether the VIP has a record that cannot be read: it is bound, and its owner is unknown.
    #[must_use]
    pub fn is_unreadable(&self, vip: Vip) -> bool {
        // If the agents are older than the format of the records, that is all of them.
        let key = Bind::key(vip);
        self.errors.iter().any(|error| error.key == key)
    }
}

/// A Service with the annotation `vip`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Namespace and name.
    pub key: ObjectKey,
    /// metadata.uid
    pub uid: String,
    /// metadata.creationTimestamp in seconds since 1970.
    pub created: i64,
    /// The annotations of this program. The tenant can write them too.
    pub annotations: BTreeMap<String, String>,
    /// spec.selector
    pub selector: BTreeMap<String, String>,
    /// spec.ports
    pub ports: Vec<Port>,
    /// `sessionAffinity: ClientIP`, with its timeout.
    pub affinity: Option<Duration>,
    /// spec.loadBalancerSourceRanges
    pub source_ranges: Vec<String>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its name; may be empty.
    pub name: String,
    /// Transport protocol.
    pub protocol: Protocol,
    /// Port of the VIP.
    pub port: u16,
}

/// An EndpointSlice of IPv4. Who can write EndpointSlices can put any address into it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// Name, protocol and number of each port.
    pub ports: Vec<Port>,
    /// The endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// One address of an EndpointSlice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The address.
    pub ip: Ipv4Addr,
    /// Whether it takes new connections.
    pub state: EndpointState,
}

/// Whether an endpoint takes connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// Yes.
    Ready,
    /// It terminates and still serves: it takes connections if no endpoint of the port is ready.
    ServingTerminating,
    /// No.
    Unready,
}

/// Labels of a pod, sorted by key. Pods of one ReplicaSet share them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// Sorts the labels.
    #[must_use]
    pub fn new(labels: &BTreeMap<String, String>) -> Labels {
        Labels(labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect())
    }

    /// Keys and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let found = self.0.binary_search_by(|(one, _)| (**one).cmp(key)).ok()?;
        self.0.get(found).map(|(_, value)| &**value)
    }

    /// Whether a Service's selector selects pods with these labels. An empty selector selects none.
    #[must_use]
    pub fn match_selector(&self, selector: &BTreeMap<String, String>) -> bool {
        !selector.is_empty()
            && selector.iter().all(|(key, value)| self.get(key).is_some_and(|label| label == value))
    }
}

/// A pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: ObjectKey,
    /// Its labels.
    pub labels: Arc<Labels>,
    /// Name of its Node; empty until it is scheduled.
    pub node: Arc<str>,
    /// Its first address of IPv4; None until its network is set up.
    pub ip: Option<Ipv4Addr>,
    /// Whether it has the network of its node.
    pub host_network: bool,
    /// Whether all its containers have ended: the address may already be another pod's.
    pub finished: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// An annotation by which the CNI gives the pod another source address.
    pub foreign_egress: Option<&'static str>,
}

impl Snapshot {
    /// The pods of the snapshot by name: those of this node, and those of admitted Services.
    #[must_use]
    pub fn pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        let selected = self.services.iter().flat_map(|carrier| &carrier.pods);
        self.local_pods.iter().chain(selected).find(|pod| pod.key == *key)
    }

    /// The addresses of all nodes.
    #[must_use]
    pub fn node_ips(&self) -> BTreeSet<Ipv4Addr> {
        self.nodes.iter().filter_map(|node| node.ip).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_selector_selects_pods_with_all_its_labels() {
        let labels = Labels::new(&map(&[("tier", "front"), ("app", "a"), ("z", "")]));
        assert_eq!((labels.get("app"), labels.get("z"), labels.get("b")), (Some("a"), Some(""), None));
        for (selector, matches) in [
            (map(&[("app", "a")]), true),
            (map(&[("app", "a"), ("tier", "front")]), true),
            (map(&[("app", "a"), ("tier", "back")]), false),
            (map(&[("none", "")]), false),
            (map(&[("z", "")]), true),
            (map(&[]), false),
        ] {
            assert_eq!(labels.match_selector(&selector), matches, "{selector:?}");
        }
    }
}
