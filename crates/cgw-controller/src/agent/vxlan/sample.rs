//! Datapaths of tests: two workers and two gateways.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use super::plan::mac_of;
use crate::agent::datapath::*;
use crate::api::{TunId, TunMac};

pub const W1: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 11);
pub const W2: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 12);
pub const G1: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 21);
pub const G2: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 22);
pub const A: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 201);
pub const B: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 202);
/// Pods of A on the worker, the other worker and the first gateway.
pub const A1: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 10);
pub const A2: Ipv4Addr = Ipv4Addr::new(10, 244, 2, 10);
pub const A3: Ipv4Addr = Ipv4Addr::new(10, 244, 3, 10);
/// The pod of B on the other worker.
pub const B1: Ipv4Addr = Ipv4Addr::new(10, 244, 2, 20);
/// The unbound pod on the worker.
pub const C1: Ipv4Addr = Ipv4Addr::new(10, 244, 1, 30);

/// The route to a gateway on another node.
pub fn via(node_ip: Ipv4Addr) -> VipRoute {
    VipRoute::Remote { node_ip, tun_mac: TunMac::new(mac_of(node_ip)).unwrap() }
}

fn pod(node_ip: Ipv4Addr) -> BoundPod {
    BoundPod { name: "default/pod".to_owned(), node_ip }
}

fn port(backends: Vec<(Ipv4Addr, u16)>) -> ServicePort {
    ServicePort {
        service: "default/service".to_owned(),
        name: String::new(),
        protocol: Protocol::Tcp,
        port: 80,
        backends,
        affinity: None,
        sources: None,
    }
}

fn datapath(own: Ipv4Addr, candidate: bool, cidr: &str) -> Datapath {
    let peers = [(W1, false), (W2, false), (G1, true), (G2, true)].into_iter().filter(|(ip, _)| *ip != own);
    let peers = peers.map(|(ip, candidate)| (ip, Peer { name: ip.to_string(), candidate }));
    let route = |gateway| if gateway == own { VipRoute::Local } else { via(gateway) };
    let a = VipPath {
        tun_id: TunId::new(1).unwrap(),
        route: route(G1),
        pods: BTreeMap::from([(A1, pod(W1)), (A2, pod(W2)), (A3, pod(G1))]),
        ports: vec![port(vec![(A1, 8080), (A2, 8080), (A3, 8080)])],
    };
    let b = VipPath {
        tun_id: TunId::new(2).unwrap(),
        route: route(G1),
        pods: BTreeMap::from([(B1, pod(W2))]),
        ports: vec![port(vec![(B1, 8080)])],
    };
    Datapath {
        node: Node { name: own.to_string(), ip: own, pod_cidrs: vec![cidr.parse().unwrap()], candidate },
        peers: peers.collect(),
        networks: Networks {
            pods: vec!["10.244.0.0/16".parse().unwrap()],
            services: vec!["10.96.0.0/12".parse().unwrap()],
            excluded: [W1, W2, G1, G2].map(Into::into).to_vec(),
        },
        vips: BTreeMap::from([(A, a), (B, b)]),
        unbound_pods: BTreeSet::new(),
    }
}

/// The first worker, with [`A1`] and [`C1`].
pub fn worker() -> Datapath {
    Datapath { unbound_pods: BTreeSet::from([C1]), ..datapath(W1, false, "10.244.1.0/24") }
}

/// The first gateway, which both VIPs are at, with [`A3`].
pub fn gateway() -> Datapath {
    datapath(G1, true, "10.244.3.0/24")
}

/// A candidate, where no VIP is.
pub fn standby() -> Datapath {
    datapath(G2, true, "10.244.4.0/24")
}
