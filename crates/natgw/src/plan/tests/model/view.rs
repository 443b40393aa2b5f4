//! The Snapshot of the modelled cluster.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use ipnet::Ipv4Net;
use jiff::SignedDuration;

use super::cluster::{Boot, Cluster, End, Hop, Ip, Job, MOST, NOW, Node, Probed, Retry};
use crate::config::HealthCheck;
use crate::observe::health::{Health, Limits, Probes};
use crate::observe::snapshot::{self, Attached, Network, Outcome, Server, Snapshot};
use crate::plan::floating_ip::CONFIRMATIONS;
use crate::plan::jobs::generation;
use crate::plan::tests::env::config;
use crate::task::Kind;

impl Cluster {
    /// The Snapshot that natgw would observe now. It always has the cloud's floating IPs; only a flaw can ignore them.
    pub fn snapshot(&self) -> Snapshot {
        let nodes = || (0..).zip(self.nodes());
        let server = |index: u8, node: &Node| Server::Cloud {
            id: index.into(),
            private_ip: Hop::Node(index).address().filter(|_| node.attached),
        };
        let servers = nodes().filter(|(_, node)| node.attached).map(|(index, _)| index);
        let servers = servers.map(|index| {
            let server = Attached { id: index.into(), name: name(index) };
            (Hop::Node(index).address().unwrap(), server)
        });
        let foreign = Attached { id: 99, name: "foreign".into() };
        Snapshot {
            nodes: nodes().map(|(index, node)| view(index, node, server(index, node))).collect(),
            jobs: nodes()
                .filter(|(_, node)| node.jobs().next().is_some())
                .map(|(index, node)| (name(index), node.jobs().map(|job| job_view(index, job)).collect()))
                .collect(),
            network: Network {
                id: 1,
                name: "lan".into(),
                ip_range: range(),
                default_route: self.route.address(),
                servers: servers.chain([(Hop::Foreign.address().unwrap(), foreign)]).collect(),
            },
            floating_ips: Some(self.floating_ips()),
            floating_ip_polls: if self.confirmed == Some(true) { CONFIRMATIONS } else { 1 },
            floating_ips_error: None,
            health: self.health(),
        }
    }

    fn health(&self) -> Health {
        let Some(probed) = self.probed else { return Health::default() };
        let nodes = (0..self.len).zip(probed).map(|(index, probed)| (name(index), probes(probed)));
        let reference = probes(if self.reference { Probed::Responds } else { Probed::Fails });
        Health { nodes: nodes.collect(), reference }
    }

    fn floating_ips(&self) -> BTreeMap<Ipv4Addr, Option<u64>> {
        Ip::ALL.map(|ip| (ip.address(), self.assigned[ip as usize].map(u64::from))).into()
    }
}

/// The counts of a target in this state.
fn probes(probed: Probed) -> Probes {
    let limits = Limits::new(&HealthCheck::default());
    let mut probes = Probes::default();
    (0..3).for_each(|_| probes.responded(limits));
    if probed != Probed::Responds {
        (0..3).for_each(|_| probes.failed(None, limits));
    }
    if probed == Probed::Recovers {
        (0..3).for_each(|_| probes.responded(limits));
    }
    probes
}

/// The range of the network, which never changes.
pub fn range() -> Ipv4Net {
    "10.0.0.0/16".parse().unwrap()
}

pub fn name(index: u8) -> String {
    format!("node-{index}")
}

/// The index of the Node with this name.
pub fn index(name: &str) -> u8 {
    name.rsplit_once('-').unwrap().1.parse().unwrap()
}

/// The generations of each Node's teardowns and setups in its current boot. They are kept, because their hashes cost more than the rest of
/// a view. A setup is created while the Node is attached.
static GENERATIONS: LazyLock<[[String; 2]; MOST]> = LazyLock::new(|| {
    let attached = |index: u8| Server::Cloud { id: index.into(), private_ip: Hop::Node(index).address() };
    let view = |index| view(index, &Node::NEW, attached(index));
    let of = |index, kind| generation(&config(), range(), &view(index), kind);
    [0, 1, 2].map(|index| [Kind::Teardown, Kind::Setup].map(|kind| of(index, kind)))
});

/// The boot that a generation refers to.
pub fn boot_of(index: u8, generation: &str) -> Boot {
    let mut of_this_boot = GENERATIONS[usize::from(index)].iter();
    if of_this_boot.any(|this| this == generation) { Boot::This } else { Boot::Earlier }
}

fn boot_id(boot: Boot) -> String {
    format!("{boot:?}")
}

fn view(index: u8, node: &Node, server: Server) -> snapshot::Node {
    snapshot::Node {
        name: name(index),
        uid: format!("uid-{index}"),
        resource_version: "1".into(),
        created: *NOW - SignedDuration::from_hours(24 - i64::from(index)),
        terminating: false,
        selected: true,
        ready: node.ready,
        cordoned: node.cordoned,
        boot_id: boot_id(Boot::This),
        label: node.label.map(|ip| ip.address().to_string()),
        setup: node.setup.map(|ip| ip.address().to_string()),
        client: None,
        setup_boot_id: node.setup_boot.map(boot_id),
        setup_private_ip: None,
        setup_hash: None,
        pending: node.pending.map(|work| work.task().to_string()),
        failures: node.failures.into(),
        retry_after: match node.retry {
            Retry::None => None,
            Retry::Later => Some(*NOW + SignedDuration::from_secs(1)),
            Retry::Due => Some(*NOW),
        },
        forget: false,
        role: node.role,
        server,
    }
}

fn job_view(index: u8, job: &Job) -> snapshot::Job {
    let name = format!("{}-{}-{:?}-{}", name(index), job.work.task(), job.boot, job.attempt);
    snapshot::Job {
        uid: name.clone(),
        name,
        task: Some(job.work.task()),
        generation: match job.boot {
            Boot::This => GENERATIONS[usize::from(index)][usize::from(job.work.setup)].clone(),
            Boot::Earlier => "earlier".into(),
        },
        attempt: job.attempt.into(),
        terminating: job.terminating,
        outcome: match job.end {
            End::Running => Outcome::Running,
            End::Succeeded => Outcome::Succeeded { at: *NOW },
            End::Failed => Outcome::Failed { at: *NOW, message: "BackoffLimitExceeded".into() },
        },
    }
}
