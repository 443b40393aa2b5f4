//! The observed objects in compact form, with the indexes by which a snapshot is taken. A pure type: the caches write it.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    hash::Hash,
    sync::Arc,
};

use common::cache::ObjectKey;

use crate::{
    agent::snapshot::{Carrier, Labels, Node, Pod, Service, Slice, Snapshot, Store},
    api::service::Carried,
    names,
};

/// The observed objects.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// Name of the Node of this agent: a change of its pods is relevant.
    node: String,
    nodes: BTreeMap<String, Arc<Node>>,
    store: Option<Arc<Store>>,
    /// Only those with the annotation `vip`.
    services: BTreeMap<ObjectKey, Arc<Service>>,
    /// By Service, then by the name of the slice.
    slices: HashMap<ObjectKey, BTreeMap<Box<str>, Arc<Slice>>>,
    pods: HashMap<ObjectKey, Arc<Pod>>,
    /// By namespace, then by labels: a selector is compared with each set of labels once, not with each pod.
    by_labels: HashMap<Box<str>, Groups>,
    by_node: HashMap<Arc<str>, Vec<Arc<Pod>>>,
}

/// The pods of a namespace by their labels.
type Groups = HashMap<Arc<Labels>, Vec<Arc<Pod>>>;

/// How soon a change has to be planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Urgency {
    /// Never: it cannot change the datapath of this node.
    #[default]
    Irrelevant,
    /// Soon, together with other changes.
    Soon,
    /// At once: packets may be lost until then.
    Now,
}

impl Inventory {
    /// Nothing is observed yet.
    #[must_use]
    pub fn new(node: &str) -> Inventory {
        Inventory { node: node.to_owned(), ..Inventory::default() }
    }

    /// The store `binds` is this. None: it does not exist.
    pub fn set_store(&mut self, store: Option<Store>) -> Urgency {
        if self.store.as_deref() == store.as_ref() {
            return Urgency::Irrelevant;
        }
        self.store = store.map(Arc::new);
        Urgency::Soon
    }

    /// The Node of this name is this. None: it does not exist.
    pub fn set_node(&mut self, name: &str, node: Option<Node>) -> Urgency {
        if replace(&mut self.nodes, name.to_owned(), node) { Urgency::Soon } else { Urgency::Irrelevant }
    }

    /// The Service is this. None: it does not exist, or has no annotation `vip`.
    pub fn set_service(&mut self, key: &ObjectKey, service: Option<Service>) -> Urgency {
        let gateway = |service: Option<&Service>| {
            let annotation = |name| service.and_then(|service| service.annotations.get(name)).cloned();
            [names::VIP, names::NODE_IP, names::TUN_MAC].map(annotation)
        };
        let is_moved = gateway(self.services.get(key).map(|old| &**old)) != gateway(service.as_ref());
        match replace(&mut self.services, key.clone(), service) {
            true if is_moved => Urgency::Now,
            true => Urgency::Soon,
            false => Urgency::Irrelevant,
        }
    }

    /// The EndpointSlice of a Service is this. None: it does not exist, or is not of IPv4.
    pub fn set_slice(&mut self, service: &ObjectKey, name: &str, slice: Option<Slice>) -> Urgency {
        let slices = self.slices.entry(service.clone()).or_default();
        let is_changed = replace(slices, name.into(), slice);
        if slices.is_empty() {
            self.slices.remove(service);
        }
        if is_changed && self.services.contains_key(service) { Urgency::Soon } else { Urgency::Irrelevant }
    }

    /// The pod is this. None: it does not exist, or has finished.
    pub fn set_pod(&mut self, key: &ObjectKey, pod: Option<Pod>) -> Urgency {
        let old = self.pods.get(key).cloned();
        if old.as_deref() == pod.as_ref() {
            return Urgency::Irrelevant;
        }
        if let Some(old) = &old {
            self.remove(old);
        }
        let pod = pod.map(|pod| self.add(pod));
        let is_relevant = old.iter().chain(&pod).any(|pod| self.concerns(pod));
        if is_relevant { Urgency::Soon } else { Urgency::Irrelevant }
    }

    /// Whether the pod is on this node or behind a Service with a VIP.
    fn concerns(&self, pod: &Pod) -> bool {
        *pod.node == *self.node
            || self
                .services_of(pod.key.namespace())
                .any(|service| pod.labels.match_selector(&service.selector))
    }

    fn services_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Arc<Service>> {
        let first = ObjectKey::new(namespace, "");
        let of_namespace = move |(key, _): &(&ObjectKey, _)| key.namespace() == namespace;
        self.services.range(first..).take_while(of_namespace).map(|(_, service)| service)
    }

    fn add(&mut self, mut pod: Pod) -> Arc<Pod> {
        let namespace = self.by_labels.entry(pod.key.namespace().into()).or_default();
        // One allocation for the labels of all pods that have the same, and for the name of their node.
        pod.labels = interned(namespace, pod.labels);
        pod.node = interned(&mut self.by_node, pod.node);
        let pod = Arc::new(pod);
        if let Some(group) = namespace.get_mut(&pod.labels) {
            group.push(Arc::clone(&pod));
        }
        if let Some(node) = self.by_node.get_mut(&pod.node) {
            node.push(Arc::clone(&pod));
        }
        self.pods.insert(pod.key.clone(), Arc::clone(&pod));
        pod
    }

    fn remove(&mut self, pod: &Arc<Pod>) {
        self.pods.remove(&pod.key);
        if let Entry::Occupied(mut namespace) = self.by_labels.entry(pod.key.namespace().into()) {
            if let Some(group) = namespace.get_mut().get_mut(&pod.labels) {
                take(group, pod);
                if group.is_empty() {
                    namespace.get_mut().remove(&pod.labels);
                }
            }
            if namespace.get().is_empty() {
                namespace.remove();
            }
        }
        if let Some(node) = self.by_node.get_mut(&pod.node) {
            take(node, pod);
            if node.is_empty() {
                self.by_node.remove(&pod.node);
            }
        }
    }

    /// The pods that each of these Services selects, in no particular order. All Services are in one namespace. It can have thousands of
    /// them, and of sets of labels: a selector is compared only with the sets that have its rarest label.
    fn selected<'a>(&self, services: &[&'a Service]) -> HashMap<&'a ObjectKey, Vec<Arc<Pod>>> {
        let mut uses: HashMap<(&str, &str), usize> = HashMap::new();
        for (key, value) in services.iter().flat_map(|service| &service.selector) {
            *uses.entry((key.as_str(), value.as_str())).or_default() += 1;
        }
        let mut by_label: HashMap<(&str, &str), Vec<&'a Service>> = HashMap::new();
        for service in services {
            let labels = service.selector.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            if let Some(rarest) = labels.min_by_key(|label| uses.get(label).copied()) {
                by_label.entry(rarest).or_default().push(*service);
            }
        }
        let mut selected: HashMap<&ObjectKey, Vec<Arc<Pod>>> =
            services.iter().map(|service| (&service.key, Vec::new())).collect();
        let namespace = services.first().map_or("", |service| service.key.namespace());
        for (labels, pods) in self.by_labels.get(namespace).into_iter().flatten() {
            let possible = labels.iter().filter_map(|label| by_label.get(&label)).flatten();
            for service in possible.filter(|service| labels.match_selector(&service.selector)) {
                selected.entry(&service.key).or_default().extend(pods.iter().cloned());
            }
        }
        selected
    }

    /// Whether a binding admits the Service, or may admit it.
    fn is_bound(&self, service: &Service) -> bool {
        let Some(vip) = Carried::vip_of(&service.annotations).ok().flatten() else { return false };
        let admits =
            |store: &Arc<Store>| store.admitting(vip, &service.key).is_some() || store.is_unreadable(vip);
        self.store.as_ref().is_some_and(admits)
    }

    /// The snapshot for one node. The parts that the datapath of the node cannot depend on are left out.
    #[must_use]
    pub fn snapshot(&self, node: &str) -> Snapshot {
        let bound: Vec<&Service> = self
            .services
            .values()
            .map(|service| &**service)
            .filter(|service| self.is_bound(service))
            .collect();
        let by_namespace = bound.chunk_by(|a, b| a.key.namespace() == b.key.namespace());
        let mut selected: HashMap<&ObjectKey, Vec<Arc<Pod>>> =
            by_namespace.flat_map(|services| self.selected(services)).collect();
        let carrier = |service: &Arc<Service>| {
            let (pods, slices) = match selected.remove(&service.key) {
                Some(pods) => {
                    let slices = self.slices.get(&service.key).into_iter().flat_map(BTreeMap::values);
                    (pods, slices.cloned().collect())
                }
                None => (Vec::new(), Vec::new()),
            };
            Carrier { service: Arc::clone(service), pods, slices }
        };
        Snapshot {
            node: node.to_owned(),
            nodes: self.nodes.values().cloned().collect(),
            store: self.store.clone(),
            services: self.services.values().map(carrier).collect(),
            local_pods: self.by_node.get(node).into_iter().flatten().cloned().collect(),
        }
    }

    /// A pod.
    #[must_use]
    pub fn pod(&self, key: &ObjectKey) -> Option<&Arc<Pod>> {
        self.pods.get(key)
    }

    /// A Service with the annotation `vip`.
    #[must_use]
    pub fn service(&self, key: &ObjectKey) -> Option<&Arc<Service>> {
        self.services.get(key)
    }
}

/// Sets the value of a key, or removes it. Returns whether it was another one.
fn replace<K: Ord, V: PartialEq>(map: &mut BTreeMap<K, Arc<V>>, key: K, value: Option<V>) -> bool {
    if map.get(&key).map(|old| &**old) == value.as_ref() {
        return false;
    }
    match value {
        Some(value) => map.insert(key, Arc::new(value)),
        None => map.remove(&key),
    };
    true
}

fn take(pods: &mut Vec<Arc<Pod>>, pod: &Arc<Pod>) {
    if let Some(at) = pods.iter().position(|one| Arc::ptr_eq(one, pod)) {
        pods.swap_remove(at);
    }
}

/// The equal key that the map has already, else this one, which the map then has.
fn interned<K: Eq + Hash + Clone, V: Default>(map: &mut HashMap<K, V>, key: K) -> K {
    if let Some((known, _)) = map.get_key_value(&key) {
        return known.clone();
    }
    map.insert(key.clone(), V::default());
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::plan::tests::env::{TestEnv, VIP_A, bind, pod, service};

    #[test]
    fn a_service_has_the_pods_of_its_namespace_with_all_labels_of_its_selector() {
        let mut env = TestEnv::new();
        env.bind(VIP_A, bind("a", 1));
        let expected = [
            ("a/all", "app=x", vec!["a/1", "a/2", "a/3"]),
            ("a/both", "app=x,tier=front", vec!["a/1", "a/2"]),
            ("a/one", "app=x,n=2,tier=front", vec!["a/2"]),
            ("a/same", "tier=front", vec!["a/1", "a/2", "a/4"]),
            ("a/none", "app=x,tier=other", vec![]),
            ("a/without", "", vec![]),
            ("b/unbound", "app=x", vec![]),
        ];
        for (name, selector, _) in &expected {
            env.service(service(name, VIP_A, "", selector));
        }
        for (name, labels) in [
            ("a/1", "app=x,n=1,tier=front"),
            ("a/2", "app=x,n=2,tier=front"),
            ("a/3", "app=x"),
            ("a/4", "app=y,tier=front"),
            ("b/5", "app=x,tier=front"),
        ] {
            env.pod(pod(name, "n1", "10.244.11.10", labels));
        }
        let snapshot = env.snapshot("n1");
        let pods = |carrier: &Carrier| {
            let mut names: Vec<String> = carrier.pods.iter().map(|pod| pod.key.to_string()).collect();
            names.sort();
            (carrier.service.key.to_string(), names)
        };
        let found: BTreeMap<String, Vec<String>> = snapshot.services.iter().map(pods).collect();
        assert_eq!(found.len(), expected.len());
        for (name, _, pods) in expected {
            assert_eq!(found[name], pods, "{name}");
        }
    }
}
