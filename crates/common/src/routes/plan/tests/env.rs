//! A small environment: one network of our project, one of another project, routes of Nodes.

use std::net::IpAddr;

use jiff::Timestamp;

use crate::api::routegc::Safety;
use crate::routes::plan::{Decision, History, RouteClass, plan};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::{Holder, Network, Node, Servers, Snapshot};

pub(super) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Minutes after some start.
pub(super) fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + minute * 60).unwrap()
}

pub(super) fn safety() -> Safety {
    Safety { all_next_hops_are_ports: true, ..Safety::default() }
}

pub(super) fn policy_with(safety: &Safety) -> Policy {
    Policy::new(["10.244.0.0/16", "fd00:10::/56"], None, safety).unwrap()
}

pub(super) fn policy() -> Policy {
    policy_with(&safety())
}

/// A router on `nodes` (10.0.0.0/24, fd00:1::/64) with the address .1, and on `theirs` (10.9.0.0/24).
pub(super) fn snapshot(routes: &[(&str, &str)]) -> Snapshot {
    let network = |id: &str, foreign, subnets: &[&str]| Network {
        id: id.to_owned(),
        name: id.to_owned(),
        foreign,
        subnets: subnets.iter().map(|net| net.parse().unwrap()).collect(),
    };
    Snapshot {
        router: "router-1".to_owned(),
        routes: routes.iter().map(|(destination, nexthop)| Route::new(*destination, *nexthop)).collect(),
        own: [ip("10.0.0.1"), ip("fd00:1::1")].into(),
        networks: vec![
            network("nodes", false, &["10.0.0.0/24", "fd00:1::/64"]),
            network("theirs", true, &["10.9.0.0/24"]),
        ],
        machines: 3,
        servers: Some(Servers::default()),
        ..Snapshot::default()
    }
}

/// A port, of a server of ours if that is given.
pub(super) fn holder(port: &str, network: &str, server: Option<&str>) -> Holder {
    let server = server.map(str::to_owned);
    Holder { port: port.to_owned(), network: network.to_owned(), machine: server.clone(), server }
}

impl Snapshot {
    /// A server of ours with a port.
    pub(super) fn server(mut self, id: &str, address: &str) -> Self {
        self.servers.get_or_insert_default().ids.insert(id.to_owned());
        self.port(&format!("port-of-{id}"), Some(id), address)
    }

    pub(super) fn port(mut self, id: &str, server: Option<&str>, address: &str) -> Self {
        let holder = holder(id, "nodes", server);
        self.ports.entry(ip(address)).or_default().push(holder);
        self
    }

    /// A port with an address pair for a range.
    pub(super) fn pair(mut self, id: &str, server: Option<&str>, network: &str, range: &str) -> Self {
        let holder = holder(id, network, server);
        self.pairs.push((range.parse().unwrap(), holder));
        self
    }

    pub(super) fn node(mut self, name: &str, address: &str, pod_cidr: &str) -> Self {
        self.nodes.get_or_insert_default().push(Node {
            name: name.to_owned(),
            addresses: [ip(address)].into(),
            pod_cidrs: vec![pod_cidr.parse().unwrap()],
            server: Some(format!("server-of-{name}")),
        });
        self
    }
}

/// One word a route, in the snapshot's order.
pub(super) fn classes(snapshot: &Snapshot) -> Vec<&'static str> {
    let decision = plan(&policy(), snapshot, &History::default(), None, at(0));
    let word = |class: &RouteClass| match class {
        RouteClass::Foreign => "foreign",
        RouteClass::Valid(_) => "valid",
        RouteClass::Unknown(_) | RouteClass::Covered(_) => "unknown",
        RouteClass::Invalid(_) => "invalid",
        RouteClass::Orphan(orphaned) => orphaned.code(),
    };
    decision.classified.iter().map(|one| word(&one.class)).collect()
}

/// Two reconciliations, ten minutes apart: what the second one removes is confirmed.
pub(super) fn second_reconciliation(policy: &Policy, snapshot: &Snapshot, allow: Option<&str>) -> Decision {
    let first = plan(policy, snapshot, &History::default(), allow, at(0));
    assert!(
        first.removals.is_empty() && first.excess.is_none(),
        "nothing is removed at the first observation"
    );
    plan(policy, snapshot, &first.history, allow, at(10))
}

pub(super) fn removed(decision: &Decision) -> Vec<String> {
    decision.removals.iter().map(|one| one.route.to_string()).collect()
}
