//! The observed state at one time: plain data, no client, no clock.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub use common::conditions::Status as Ready;
use ipnet::Ipv4Net;
use jiff::Timestamp;

use super::health::Health;
use crate::task::Task;

/// The observed state at one time. It is complete: a partial list never becomes a Snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Every Node of the cluster, by name; those that the selector leaves out too, since they may have to be cleaned.
    pub nodes: Vec<Node>,
    /// natgw's Jobs, by the name of their Node.
    pub jobs: BTreeMap<String, Vec<Job>>,
    /// The private network.
    pub network: Network,
    /// The server of each IPv4 floating IP (None: assigned to no server), by the last complete list. None if there is no list
    /// yet.
    pub floating_ips: Option<FloatingIPs>,
    /// Polls in a row after which the same labels of Nodes had no floating IP assigned to their server.
    pub floating_ip_polls: u32,
    /// Why the floating IPs could not be listed for this Snapshot: `floating_ips` is an earlier list then.
    pub floating_ips_error: Option<String>,
    /// The responses of the gateways to health checks. Empty if there are none.
    pub health: Health,
}

impl Snapshot {
    /// The Jobs of one Node; empty where it has none.
    #[must_use]
    pub fn jobs_of(&self, node: &str) -> &[Job] {
        self.jobs.get(node).map_or(&[], Vec::as_slice)
    }
}

/// The server of each IPv4 floating IP; None: it is assigned to no server.
pub type FloatingIPs = BTreeMap<Ipv4Addr, Option<u64>>;

/// One Node, reduced to what a decision needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// metadata.resourceVersion: every write carries it, so that a decision on an outdated Node is refused.
    pub resource_version: String,
    /// metadata.creationTimestamp
    pub created: Timestamp,
    /// metadata.deletionTimestamp is set.
    pub terminating: bool,
    /// The node selector matches.
    pub selected: bool,
    /// Ready condition. `False`: the kubelet reports that it is not ready, and host-network pods still run. `Unknown`, also if the
    /// condition is absent: the kubelet does not report, and pods neither start nor end.
    pub ready: Ready,
    /// spec.unschedulable
    pub cordoned: bool,
    /// status.nodeInfo.bootID
    pub boot_id: String,
    /// Value of the floating-IP label.
    pub label: Option<String>,
    /// Value of the setup annotation.
    pub setup: Option<String>,
    /// Value of the client annotation.
    pub client: Option<String>,
    /// Boot ID of the last successful setup.
    pub setup_boot_id: Option<String>,
    /// Address in the private network at the last successful setup.
    pub setup_private_ip: Option<Ipv4Addr>,
    /// Hash of the script and the environment of the last successful setup.
    pub setup_hash: Option<String>,
    /// Value of the pending annotation.
    pub pending: Option<String>,
    /// Jobs in a row that failed for what is pending.
    pub failures: u32,
    /// The next attempt is not before this time.
    pub retry_after: Option<Timestamp>,
    /// A user requested to forget this Node.
    pub forget: bool,
    /// The role label is there.
    pub role: bool,
    /// The Node's server in the cloud.
    pub server: Server,
}

impl Node {
    /// Whether a setup can run: with a kubelet that reports, and an address, without which a script could only guess the private interface.
    #[must_use]
    pub fn can_be_set_up(&self) -> bool {
        self.ready != Ready::Unknown && self.private_ip().is_some()
    }

    /// Address in the private network, if the Node's server has one.
    #[must_use]
    pub fn private_ip(&self) -> Option<Ipv4Addr> {
        match self.server {
            Server::Cloud { private_ip, .. } => private_ip,
            Server::Robot | Server::Unknown => None,
        }
    }

    /// Whether this Node has a label or an annotation of natgw: then a route to it is natgw's.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.setup.is_some() || self.pending.is_some() || self.role
    }
}

/// The server of a Node at Hetzner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Server {
    /// A Cloud server, and its address in the network (None: not attached to it).
    Cloud {
        /// Server ID.
        id: u64,
        /// Address in the configured network; a server may be in others too.
        private_ip: Option<Ipv4Addr>,
    },
    /// A dedicated server (`hrobot://`, `hcloud://bm-`): its address lies behind a vSwitch, which no route may point to.
    Robot,
    /// No such server: no or a foreign provider ID and no server of the Node's name, or the server is gone.
    Unknown,
}

/// One of natgw's Jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// The Job's task: its kind, and the IP address that it is for. None if its labels do not tell.
    pub task: Option<Task>,
    /// Hash of the Node's UID and boot ID, and of the script, for which it was made.
    pub generation: String,
    /// 1 for the first try.
    pub attempt: u32,
    /// metadata.deletionTimestamp is set: its status is ignored.
    pub terminating: bool,
    /// How it ended, if it did.
    pub outcome: Outcome,
}

/// How and when a Job ended, if it did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Pending or running.
    Running,
    /// Condition `Complete`.
    Succeeded {
        /// When it was set.
        at: Timestamp,
    },
    /// Condition `Failed` of a [`Kind::Verify`](crate::task::Kind::Verify) Job: the Node differs from its setup.
    Differs {
        /// When it was set.
        at: Timestamp,
    },
    /// Condition `Failed`.
    Failed {
        /// When the Job controller gave up.
        at: Timestamp,
        /// Its reason and message.
        message: String,
    },
}

impl Outcome {
    /// When the Job ended.
    #[must_use]
    pub fn ended(&self) -> Option<Timestamp> {
        match self {
            Outcome::Running => None,
            Outcome::Succeeded { at } | Outcome::Differs { at } | Outcome::Failed { at, .. } => Some(*at),
        }
    }
}

/// The private network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Network ID.
    pub id: u64,
    /// Network name.
    pub name: String,
    /// The whole range.
    pub ip_range: Ipv4Net,
    /// Next hop of the route `0.0.0.0/0`, if there is one.
    pub default_route: Option<Ipv4Addr>,
    /// The server at each address of the network, Nodes or not; a server may have alias IPs.
    pub servers: BTreeMap<Ipv4Addr, Attached>,
}

/// A server that is attached to the network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Server ID.
    pub id: u64,
    /// Server name.
    pub name: String,
}

impl Network {
    /// First address of the range: Hetzner's router, the gateway of every client.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        self.ip_range.hosts().next().unwrap_or_else(|| self.ip_range.network())
    }
}
