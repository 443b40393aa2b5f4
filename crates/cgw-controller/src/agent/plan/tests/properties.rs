//! Properties of random clusters.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    super::{Decision, plan},
    env::{G1, G2, N1, TestEnv, bind, config, ip, key, mac_of, node, pod, service, slice},
};
use crate::{
    agent::{
        datapath::{Datapath, VipRoute},
        snapshot::{EndpointState, Labels, Snapshot},
    },
    names,
};

const VIPS: [&str; 6] =
    ["192.168.50.201", "192.168.50.202", "192.168.50.203", "fd00::1", "10.244.99.1", "192.168.50.22"];
const NODES: [(&str, &str); 3] = [("n1", N1), ("g1", G1), ("g2", G2)];
const GATEWAYS: [&str; 5] = ["", N1, G1, G2, "192.168.50.99"];
const STATES: [EndpointState; 3] =
    [EndpointState::Ready, EndpointState::ServingTerminating, EndpointState::Unready];

/// One change of the cluster.
#[derive(Clone, Debug)]
enum Event {
    Bind(usize, usize, u32),
    Unbind(usize),
    Service { name: usize, vip: usize, gateway: usize, mac: usize, epoch: u8, selector: usize, created: i64 },
    NoService(usize),
    Pod { name: usize, node: usize, address: usize, labels: usize, kind: u8 },
    NoPod(usize),
    Slice(usize, Vec<(usize, usize)>),
    Candidate(usize, bool),
}

const OWNERS: [&str; 4] = ["a", "b", "a/0", "b/1"];
const SERVICES: [&str; 5] = ["a/0", "a/1", "a/2", "b/0", "b/1"];
const PODS: [&str; 6] = ["a/0", "a/1", "a/2", "b/0", "b/1", "c/0"];
const LABELS: [&str; 4] = ["app=x", "app=y", "app=x,n=1", "n=1"];
const SELECTORS: [&str; 4] = ["app=x", "app=y", "n=1", ""];

fn address(index: usize) -> String {
    format!("10.244.{}.{}", [11, 21, 22][index % 3], 10 + index)
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..VIPS.len(), 0..OWNERS.len(), 1..4_u32).prop_map(|(v, o, t)| Event::Bind(v, o, t)),
        1 => (0..VIPS.len()).prop_map(Event::Unbind),
        6 => (0..SERVICES.len(), 0..VIPS.len(), 0..GATEWAYS.len(), 0..4_usize, 0..3_u8, 0..SELECTORS.len(), 0..3_i64).prop_map(
            |(name, vip, gateway, mac, epoch, selector, created)| Event::Service { name, vip, gateway, mac, epoch, selector, created }),
        1 => (0..SERVICES.len()).prop_map(Event::NoService),
        8 => (0..PODS.len(), 0..3_usize, 0..8_usize, 0..LABELS.len(), 0..8_u8).prop_map(
            |(name, node, address, labels, kind)| Event::Pod { name, node, address, labels, kind }),
        1 => (0..PODS.len()).prop_map(Event::NoPod),
        3 => (0..SERVICES.len(), prop::collection::vec((0..8_usize, 0..3_usize), 0..4)).prop_map(|(s, e)| Event::Slice(s, e)),
        1 => (0..3_usize, any::<bool>()).prop_map(|(n, on)| Event::Candidate(n, on)),
    ]
}

impl Event {
    fn happen(&self, env: &mut TestEnv) {
        match self {
            Event::Bind(vip, owner, tun_id) => env.bind(VIPS[*vip], bind(OWNERS[*owner], *tun_id)),
            Event::Unbind(vip) => env.unbind(VIPS[*vip]),
            Event::Service { name, vip, gateway, mac, epoch, selector, created } => {
                let mut one = service(SERVICES[*name], VIPS[*vip], GATEWAYS[*gateway], SELECTORS[*selector]);
                one.created = *created;
                one.annotations.insert(names::EPOCH.into(), epoch.to_string());
                if *mac == 0 {
                    one.annotations.insert(names::TUN_MAC.into(), mac_of("1.2.3.4"));
                }
                env.service(one);
            }
            Event::NoService(name) => {
                env.inventory.set_service(&key(SERVICES[*name]), None);
            }
            Event::Pod { name, node, address: at, labels, kind } => {
                let mut one = pod(PODS[*name], NODES[*node].0, &address(*at), LABELS[*labels]);
                match kind {
                    0 => one.host_network = true,
                    1 => one.finished = true,
                    2 => one.terminating = true,
                    3 => one.ip = None,
                    4 => one.foreign_egress = Some("other"),
                    _ => {}
                }
                env.pod(one);
            }
            Event::NoPod(name) => {
                env.inventory.set_pod(&key(PODS[*name]), None);
            }
            Event::Slice(service, endpoints) => {
                let endpoints: Vec<_> =
                    endpoints.iter().map(|(at, state)| (address(*at), STATES[*state])).collect();
                let endpoints: Vec<_> = endpoints.iter().map(|(at, state)| (at.as_str(), *state)).collect();
                env.slice(SERVICES[*service], slice(8080, &endpoints));
            }
            Event::Candidate(index, candidate) => {
                let (name, address) = NODES[*index];
                env.node(node(name, address, *candidate));
            }
        }
    }
}

/// The rules that hold in every cluster, written independently of the plan.
fn assert_safe(snapshot: &Snapshot, datapath: &Datapath) {
    let store = snapshot.store.as_ref().unwrap();
    // No address has two VIPs, and none is bound and unbound.
    let mut seen = BTreeSet::new();
    for path in datapath.vips.values() {
        for address in path.pods.keys() {
            assert!(seen.insert(*address), "{address} has two VIPs");
            assert!(!datapath.unbound_pods.contains(address), "{address} is bound and unbound");
        }
    }
    let admitted = || {
        snapshot.services.iter().filter(|carrier| {
            let vip = carrier.service.annotations[names::VIP].parse().unwrap();
            store.admitting(vip, &carrier.service.key).is_some()
        })
    };
    // A pod of a bound Service is never unbound.
    for carrier in admitted() {
        for pod in carrier.pods.iter().filter(|pod| !pod.finished && !pod.host_network) {
            let Some(address) = pod.ip else { continue };
            assert!(
                !datapath.unbound_pods.contains(&address),
                "{} of {} is unbound",
                pod.key,
                carrier.service.key
            );
        }
    }
    // Each VIP and each bound pod is justified by a binding.
    for (vip, path) in &datapath.vips {
        let of_vip: Vec<_> =
            admitted().filter(|carrier| carrier.service.annotations[names::VIP] == vip.to_string()).collect();
        assert!(!of_vip.is_empty(), "{vip} is bound without a binding");
        for address in path.pods.keys() {
            let is_selected = of_vip.iter().any(|carrier| {
                carrier.pods.iter().any(|pod| pod.ip == Some(*address) && !pod.host_network && !pod.finished)
            });
            assert!(is_selected, "{address} has VIP {vip} and is not behind it");
        }
        for (backend, _) in path.ports.iter().flat_map(|port| &port.backends) {
            assert!(path.pods.contains_key(backend), "backend {backend} of {vip} is not bound");
        }
        match path.route {
            VipRoute::Drop => {}
            VipRoute::Local => assert!(datapath.node.candidate),
            VipRoute::Remote { node_ip, .. } => assert!(datapath.peers[&node_ip].candidate),
        }
        assert!(
            datapath
                .networks
                .pods
                .iter()
                .chain(&datapath.networks.services)
                .all(|network| !network.contains(vip))
        );
    }
    let tun_ids: BTreeSet<_> = datapath.vips.values().map(|path| path.tun_id).collect();
    assert_eq!(tun_ids.len(), datapath.vips.len(), "two VIPs have one tunnel ID");
    // Unbound are only addresses of this node's pods.
    for address in &datapath.unbound_pods {
        assert!(
            snapshot.local_pods.iter().any(|pod| pod.ip == Some(*address)),
            "{address} is not of this node"
        );
    }
}

fn reversed(snapshot: &Snapshot) -> Snapshot {
    let mut snapshot = snapshot.clone();
    snapshot.nodes.reverse();
    snapshot.services.reverse();
    snapshot.local_pods.reverse();
    for carrier in &mut snapshot.services {
        carrier.pods.reverse();
        carrier.slices.reverse();
    }
    snapshot
}

/// The shared part of the datapath of one node.
fn shared(decision: &Decision, own: &str) -> Vec<String> {
    let datapath = decision.datapath.as_ref().unwrap();
    datapath
        .vips
        .iter()
        .map(|(vip, path)| {
            let gateway = match path.route {
                VipRoute::Local => Some(ip(own)),
                VipRoute::Remote { node_ip, .. } => Some(node_ip),
                VipRoute::Drop => None,
            };
            format!("{vip} {gateway:?} {} {:?} {:?}", path.tun_id, path.pods, path.ports)
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_datapath_is_safe_and_the_order_of_the_input_is_irrelevant(events in prop::collection::vec(event(), 1..60)) {
        let mut env = TestEnv::new();
        for event in &events {
            event.happen(&mut env);
        }
        let mut of_nodes = Vec::new();
        for (name, address) in NODES {
            let snapshot = env.snapshot(name);
            let decision = plan(&config(), &snapshot);
            assert_safe(&snapshot, decision.datapath.as_ref().unwrap());
            prop_assert_eq!(&decision, &plan(&config(), &reversed(&snapshot)));
            of_nodes.push(shared(&decision, address));
        }
        // All nodes agree about VIPs, gateways, pods and backends.
        prop_assert!(of_nodes.windows(2).all(|pair| pair[0] == pair[1]), "{:#?}", of_nodes);
    }

    #[test]
    fn a_service_without_a_binding_has_no_effect(
        events in prop::collection::vec(event(), 1..40),
        forged in event().prop_filter("a Service", |event| matches!(event, Event::Service { .. })),
    ) {
        let mut env = TestEnv::new();
        for event in &events {
            event.happen(&mut env);
        }
        let Event::Service { vip, name, .. } = &forged else { return Ok(()) };
        env.unbind(VIPS[*vip]);
        env.inventory.set_service(&key(SERVICES[*name]), None);
        let before: Vec<_> = NODES.map(|(node, _)| env.decide(node).datapath).into();
        forged.happen(&mut env);
        let after: Vec<_> = NODES.map(|(node, _)| env.decide(node).datapath).into();
        prop_assert_eq!(before, after);
    }

    /// The inventory is kept by single changes; it must equal one that is filled at once from the final state.
    #[test]
    fn the_inventory_converges_to_the_final_objects(events in prop::collection::vec(event(), 1..60)) {
        let mut env = TestEnv::new();
        for event in &events {
            event.happen(&mut env);
        }
        let mut fresh = TestEnv::new();
        for event in &events {
            match event {
                Event::Bind(..) | Event::Unbind(_) | Event::Candidate(..) | Event::Slice(..) => event.happen(&mut fresh),
                _ => {}
            }
        }
        for service in SERVICES.map(key) {
            fresh.inventory.set_service(&service, env.inventory.service(&service).map(|service| (**service).clone()));
        }
        for pod in PODS.map(key) {
            fresh.inventory.set_pod(&pod, env.inventory.pod(&pod).map(|pod| {
                let labels = std::sync::Arc::new(Labels::clone(&pod.labels));
                crate::agent::snapshot::Pod { labels, ..(**pod).clone() }
            }));
        }
        for (node, _) in NODES {
            prop_assert_eq!(env.decide(node), fresh.decide(node));
        }
    }
}
