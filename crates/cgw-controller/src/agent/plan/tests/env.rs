//! A small cluster for tests: three nodes, of which two are gateway candidates.

use std::{collections::BTreeMap, net::Ipv4Addr, sync::Arc};

use common::cache::ObjectKey;

use super::super::{Config, Decision, MacRule, plan};
use crate::{
    agent::{
        datapath::{Datapath, Protocol},
        observe::inventory::Inventory,
        snapshot::{Endpoint, EndpointState, Labels, Node, Pod, Port, Service, Slice, Snapshot, Store},
        vxlan,
    },
    api::{
        TunId, Vip,
        stores::{Bind, EntryError, Owner, VERSION},
    },
    names,
};

pub fn ip(text: &str) -> Ipv4Addr {
    text.parse().unwrap()
}

pub fn mac_of(node: &str) -> String {
    crate::api::TunMac::new(vxlan::plan::mac_of(ip(node))).unwrap().to_string()
}

pub fn config() -> Config {
    Config {
        cluster_cidrs: vec!["10.244.0.0/16".parse().unwrap()],
        service_cidrs: vec!["10.96.0.0/12".parse().unwrap()],
        exclude_cidrs: Vec::new(),
        mac_rule: MacRule::Derived,
        max_tun_id: 0x3ffe,
        store: ObjectKey::new("cgw-system", names::BINDS),
    }
}

pub const N1: &str = "192.168.50.11";
pub const G1: &str = "192.168.50.21";
pub const G2: &str = "192.168.50.22";
pub const VIP_A: &str = "192.168.50.201";
pub const VIP_B: &str = "192.168.50.202";

pub fn key(text: &str) -> ObjectKey {
    match text.split_once('/') {
        Some((namespace, name)) => ObjectKey::new(namespace, name),
        None => ObjectKey::new("", text),
    }
}

pub fn node(name: &str, address: &str, candidate: bool) -> Node {
    let [.., last] = ip(address).octets();
    Node {
        name: name.into(),
        uid: format!("uid-{name}"),
        ip: Some(ip(address)),
        pod_cidrs: vec![format!("10.244.{last}.0/24").parse().unwrap()],
        candidate,
    }
}

pub fn labels(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|label| label.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

pub fn pod(name: &str, node: &str, address: &str, of: &str) -> Pod {
    Pod {
        key: key(name),
        labels: Arc::new(Labels::new(&labels(of))),
        node: node.into(),
        ip: Some(ip(address)),
        host_network: false,
        finished: false,
        terminating: false,
        foreign_egress: None,
    }
}

/// A Service that carries `vip` at the gateway; port 80 with the name `http`.
pub fn service(name: &str, vip: &str, gateway: &str, selector: &str) -> Service {
    let mut annotations = BTreeMap::from([
        (names::VIP.to_owned(), vip.to_owned()),
        (names::TUN_ID.to_owned(), "0x00000001".to_owned()),
        (names::EPOCH.to_owned(), "1".to_owned()),
        (names::NODE_IP.to_owned(), String::new()),
        (names::TUN_MAC.to_owned(), String::new()),
    ]);
    if !gateway.is_empty() {
        annotations.insert(names::NODE_IP.to_owned(), gateway.to_owned());
        annotations.insert(names::TUN_MAC.to_owned(), mac_of(gateway));
    }
    Service {
        key: key(name),
        uid: format!("uid-{name}"),
        created: 1,
        annotations,
        selector: labels(selector),
        ports: vec![Port { name: "http".into(), protocol: Protocol::Tcp, port: 80 }],
        affinity: None,
        source_ranges: Vec::new(),
    }
}

pub fn slice(port: u16, endpoints: &[(&str, EndpointState)]) -> Slice {
    Slice {
        ports: vec![Port { name: "http".into(), protocol: Protocol::Tcp, port }],
        endpoints: endpoints
            .iter()
            .map(|(address, state)| Endpoint { ip: ip(address), state: *state })
            .collect(),
    }
}

pub fn bind(owner: &str, tun_id: u32) -> Bind {
    let owner = match owner.split_once('/') {
        Some((namespace, service)) => Owner::Service { namespace: namespace.into(), service: service.into() },
        None => Owner::Namespace { namespace: owner.into() },
    };
    Bind { v: VERSION, owner, tun_id: TunId::new(tun_id).unwrap(), unbinding: false }
}

/// The cluster, from which the snapshot of any node is taken.
#[derive(Default)]
pub struct TestEnv {
    pub inventory: Inventory,
    pub binds: BTreeMap<Vip, Bind>,
    pub unreadable: Vec<EntryError>,
}

impl TestEnv {
    /// Nodes n1, g1 and g2, and no binding.
    pub fn new() -> TestEnv {
        let mut env = TestEnv::default();
        for (name, address, candidate) in [("n1", N1, false), ("g1", G1, true), ("g2", G2, true)] {
            env.node(node(name, address, candidate));
        }
        env.set_binds();
        env
    }

    /// Services a/a and b/b with VIPs at g1, each with a pod on n1 and one on g1, and an unbound pod on n1.
    pub fn bound() -> TestEnv {
        let mut env = TestEnv::new();
        env.bind(VIP_A, bind("a", 1));
        env.bind(VIP_B, bind("b/b", 2));
        for (name, vip, pod_name, last) in [("a/a", VIP_A, "a/a", 10), ("b/b", VIP_B, "b/b", 20)] {
            env.service(service(name, vip, G1, "app=x"));
            env.pod(pod(&format!("{pod_name}1"), "n1", &format!("10.244.11.{last}"), "app=x,n=1"));
            env.pod(pod(&format!("{pod_name}2"), "g1", &format!("10.244.21.{last}"), "app=x,n=2"));
            let (one, two) = (format!("10.244.11.{last}"), format!("10.244.21.{last}"));
            let ready = EndpointState::Ready;
            env.slice(name, slice(8080, &[(one.as_str(), ready), (two.as_str(), ready)]));
        }
        env.pod(pod("c/c", "n1", "10.244.11.30", "app=x"));
        env
    }

    fn set_binds(&mut self) {
        let store = Store { binds: self.binds.clone(), errors: self.unreadable.clone() };
        self.inventory.set_store(Some(store));
    }

    pub fn bind(&mut self, vip: &str, bind: Bind) {
        self.binds.insert(vip.parse().unwrap(), bind);
        self.set_binds();
    }

    /// Makes the record of a binding unreadable.
    pub fn damage(&mut self, vip: &str) {
        let vip = vip.parse().unwrap();
        self.binds.remove(&vip);
        self.unreadable.push(EntryError { key: Bind::key(vip), error: "version 2".into() });
        self.set_binds();
    }

    pub fn unbind(&mut self, vip: &str) {
        self.binds.remove(&vip.parse().unwrap());
        self.set_binds();
    }

    pub fn node(&mut self, node: Node) {
        self.inventory.set_node(&node.name.clone(), Some(node));
    }

    pub fn pod(&mut self, pod: Pod) {
        self.inventory.set_pod(&pod.key.clone(), Some(pod));
    }

    pub fn service(&mut self, service: Service) {
        self.inventory.set_service(&service.key.clone(), Some(service));
    }

    pub fn slice(&mut self, service: &str, slice: Slice) {
        self.inventory.set_slice(&key(service), "slice", Some(slice));
    }

    pub fn edit_service(&mut self, name: &str, edit: impl FnOnce(&mut Service)) {
        let mut service = (**self.inventory.service(&key(name)).unwrap()).clone();
        edit(&mut service);
        self.service(service);
    }

    pub fn edit_pod(&mut self, name: &str, edit: impl FnOnce(&mut Pod)) {
        let mut pod = (**self.inventory.pod(&key(name)).unwrap()).clone();
        edit(&mut pod);
        self.pod(pod);
    }

    pub fn snapshot(&self, node: &str) -> Snapshot {
        self.inventory.snapshot(node)
    }

    pub fn decide(&self, node: &str) -> Decision {
        plan(&config(), &self.snapshot(node))
    }

    /// The datapath of a node, and the problems as `object: code`.
    pub fn datapath(&self, node: &str) -> (Datapath, Vec<String>) {
        let decision = self.decide(node);
        let problems = codes(&decision);
        (decision.datapath.unwrap(), problems)
    }
}

pub fn codes(decision: &Decision) -> Vec<String> {
    let code = |problem: &common::plan::Problem<_>| {
        format!("{}: {}", problem.regarding, common::plan::Reason::code(&problem.because))
    };
    decision.problems.iter().map(code).collect()
}
