//! The modelled cluster: only the state that a decision can depend on, so that all clusters can be enumerated.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use jiff::Timestamp;

use crate::plan::tests::env::{fip, private};
use crate::task::{Part, Role, Task};

pub use crate::observe::snapshot::Ready;

/// Maximum number of Nodes in the model.
pub const MOST: usize = 3;
/// The time of every decision. The model has no clock: a backoff is due or not (see [`Retry`]).
pub static NOW: LazyLock<Timestamp> = LazyLock::new(|| "2026-11-21T12:00:00Z".parse().unwrap());

/// The two floating IPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ip {
    A,
    B,
}

impl Ip {
    pub const ALL: [Ip; 2] = [Ip::A, Ip::B];

    pub fn address(self) -> Ipv4Addr {
        fip(self as u8 + 1)
    }

    pub fn of(address: Ipv4Addr) -> Ip {
        Ip::ALL.into_iter().find(|ip| ip.address() == address).unwrap()
    }
}

/// The task of a Job. Only gateways are modelled, no clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Work {
    pub setup: bool,
    pub ip: Ip,
}

impl Work {
    pub fn task(self) -> Task {
        let part = Part { role: Role::Gateway, ip: self.ip.address() };
        if self.setup { part.setup() } else { part.teardown() }
    }

    pub fn of(task: Task) -> Work {
        assert_eq!(task.kind.role(), Role::Gateway);
        Work { setup: task.kind.is_setup(), ip: Ip::of(task.ip) }
    }
}

/// The state of one floating IP in a Node's kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Kernel {
    #[default]
    Clean,
    /// A script has started and is not known to have succeeded.
    Dirty,
    SetUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Boot {
    This,
    Earlier,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    Running,
    Succeeded,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    pub work: Work,
    pub boot: Boot,
    pub attempt: u8,
    pub terminating: bool,
    pub end: End,
}

impl Job {
    /// Whether both have the same name, which is made from these fields.
    pub fn is(&self, other: &Job) -> bool {
        (self.work, self.boot, self.attempt) == (other.work, other.boot, other.attempt)
    }

    /// Whether its pod may be running.
    pub fn is_alive(&self) -> bool {
        self.terminating || self.end == End::Running
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    None,
    Later,
    Due,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    pub label: Option<Ip>,
    pub ready: Ready,
    pub cordoned: bool,
    /// Whether its server is attached to the network.
    pub attached: bool,
    pub setup: Option<Ip>,
    pub setup_boot: Option<Boot>,
    pub pending: Option<Work>,
    pub failures: u8,
    pub retry: Retry,
    pub role: bool,
    pub kernel: [Kernel; 2],
    /// In the order of their creation, without gaps.
    pub jobs: [Option<Job>; 2],
}

impl Node {
    pub const NEW: Node = Node {
        label: None,
        ready: Ready::True,
        cordoned: false,
        attached: true,
        setup: None,
        setup_boot: None,
        pending: None,
        failures: 0,
        retry: Retry::None,
        role: false,
        kernel: [Kernel::Clean; 2],
        jobs: [None; 2],
    };

    pub fn kernel(&mut self, ip: Ip) -> &mut Kernel {
        &mut self.kernel[ip as usize]
    }

    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().flatten()
    }

    /// Adds a Job. Returns false if there are two already; natgw without a flaw never creates a third.
    pub fn add(&mut self, job: Job) -> bool {
        let free = self.jobs.iter_mut().find(|slot| slot.is_none());
        free.map(|slot| *slot = Some(job)).is_some()
    }

    pub fn remove(&mut self, index: usize) {
        self.jobs[index] = None;
        self.jobs.sort_by_key(Option::is_none);
    }
}

/// The health checks of one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probed {
    Responds,
    /// It has failed the required number of times.
    Fails,
    /// It responds, and has not for long enough.
    Recovers,
}

/// The next hop of the default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hop {
    None,
    /// The private address of that Node's server, whether or not it is attached to the network.
    Node(u8),
    /// A server that is no Node.
    Foreign,
}

impl Hop {
    pub fn address(self) -> Option<Ipv4Addr> {
        match self {
            Hop::None => None,
            Hop::Node(index) => Some(private(index + 2)),
            Hop::Foreign => Some(private(99)),
        }
    }

    pub fn of(address: Option<Ipv4Addr>) -> Hop {
        let nodes = (0..MOST as u8).map(Hop::Node);
        nodes.chain([Hop::None, Hop::Foreign]).find(|hop| hop.address() == address).unwrap()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cluster {
    /// Number of Nodes in use; a Node with a smaller index is older.
    pub len: u8,
    pub nodes: [Node; MOST],
    pub route: Hop,
    /// The Node to whose server each floating IP is assigned.
    pub assigned: [Option<u8>; 2],
    /// The health checks of the Nodes, if there are any.
    pub probed: Option<[Probed; MOST]>,
    /// Whether the third reference of the health checks responds.
    pub reference: bool,
    /// Whether the last polls of the floating IPs have reported the same. None if natgw does not write labels.
    pub confirmed: Option<bool>,
}

impl Cluster {
    pub fn new(len: usize) -> Cluster {
        Cluster {
            len: len as u8,
            nodes: [Node::NEW; MOST],
            route: Hop::None,
            assigned: [None; 2],
            probed: None,
            reference: true,
            confirmed: None,
        }
    }

    /// All Nodes, as bits.
    pub fn all(&self) -> u8 {
        (1 << self.len) - 1
    }

    /// Nodes, as bits, that may become or stop being a candidate when this one does: health checks are judged by the other
    /// candidates.
    pub fn touched(&self, index: u8) -> u8 {
        if self.probed.is_some() { self.all() } else { 1 << index }
    }

    pub fn nodes(&self) -> &[Node] {
        &self.nodes[..self.len.into()]
    }

    pub fn node(&mut self, index: u8) -> &mut Node {
        &mut self.nodes[usize::from(index)]
    }

    /// Sets up that Node as a gateway for its label. If there is no route, the Node gets it and the role label.
    pub fn with_gateway(mut self, index: u8) -> Cluster {
        let node = self.node(index);
        let Some(ip) = node.label else { unreachable!("node-{index} has no label") };
        node.setup = Some(ip);
        node.setup_boot = Some(Boot::This);
        *node.kernel(ip) = Kernel::SetUp;
        if self.route == Hop::None {
            self.node(index).role = true;
            self.route = Hop::Node(index);
        }
        self
    }
}
