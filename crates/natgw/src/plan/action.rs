//! Every action of natgw.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv4Addr;

use common::plan::{self, Regarding};
use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde::Serialize;

use super::reason::Reason;
use crate::observe::snapshot;
use crate::task::Task;

/// A Node as it was when the decision was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeRef {
    /// metadata.name
    pub name: String,
    /// metadata.uid
    pub uid: String,
    /// metadata.resourceVersion: a write that carries an outdated one is refused by the API server.
    pub resource_version: String,
}

impl From<&snapshot::Node> for NodeRef {
    fn from(node: &snapshot::Node) -> Self {
        NodeRef {
            name: node.name.clone(),
            uid: node.uid.clone(),
            resource_version: node.resource_version.clone(),
        }
    }
}

impl NodeRef {
    /// The object of the Event about this Node.
    #[must_use]
    pub fn regarding(&self) -> Regarding {
        Regarding {
            api_version: "v1",
            kind: "Node",
            namespace: None,
            name: self.name.clone(),
            uid: Some(self.uid.clone()),
        }
    }
}

/// A Job to create.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// metadata.name: the same decision always makes the same name, so that creating it twice is harmless.
    pub name: String,
    /// What it does, and for which IP.
    pub task: Task,
    /// Node UID and boot ID, hashed.
    pub generation: String,
    /// 1 for the first try.
    pub attempt: u32,
    /// The Node's address in the network, if it has one.
    pub private_ip: Option<Ipv4Addr>,
    /// The network's range.
    pub network_cidr: Ipv4Net,
    /// The network's first address.
    pub network_gateway: Ipv4Addr,
}

/// One outward act. Each names what makes it repeatable in the module of `apply` that runs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
pub enum Action {
    /// Point `0.0.0.0/0` of the network to a Node.
    MoveRoute {
        /// Network ID.
        network: u64,
        /// The current next hop.
        from: Option<Ipv4Addr>,
        /// The Node at the current next hop, if it is one.
        from_node: Option<String>,
        /// Next hop desired.
        to: Ipv4Addr,
        /// The Node's server ID.
        server: u64,
        /// The new primary.
        node: NodeRef,
    },
    /// Remove `0.0.0.0/0` from the network.
    RemoveRoute {
        /// Network ID.
        network: u64,
        /// Next hop of the route that is removed, and of no other.
        gateway: Ipv4Addr,
        /// The Node at this address.
        node: NodeRef,
    },
    /// Put the role label on a Node.
    SetRole {
        /// Which.
        node: NodeRef,
    },
    /// Take the role label off a Node.
    ClearRole {
        /// Which.
        node: NodeRef,
    },
    /// Write or remove the floating-IP label.
    LabelFloatingIP {
        /// Which.
        node: NodeRef,
        /// None removes the label.
        ip: Option<Ipv4Addr>,
    },
    /// Delete a Job and its pods.
    DeleteJob {
        /// Whose.
        node: NodeRef,
        /// Job name.
        job: String,
        /// Job UID: another Job of this name is not meant.
        uid: String,
        /// What it does.
        task: Task,
    },
    /// Write down on the Node that a Job will change it, before it does.
    RecordPending {
        /// Which.
        node: NodeRef,
        /// What the Job will do.
        task: Task,
        /// Jobs in a row that failed so far for this task.
        failures: u32,
    },
    /// Create a Job on a Node.
    CreateJob {
        /// Which.
        node: NodeRef,
        /// The Job.
        job: JobSpec,
    },
    /// Write down that a setup Job succeeded: the Node has this part, since this boot.
    RecordSetup {
        /// Which.
        node: NodeRef,
        /// What was set up.
        task: Task,
        /// Boot ID that the Job saw.
        boot_id: String,
    },
    /// Write down that a teardown Job succeeded.
    RecordTeardown {
        /// Which.
        node: NodeRef,
        /// What was torn down.
        task: Task,
    },
    /// Record that a Job failed, and when it is retried.
    RecordFailure {
        /// Which.
        node: NodeRef,
        /// What failed.
        task: Task,
        /// Jobs in a row that failed.
        failures: u32,
        /// Not before this time.
        retry_after: Timestamp,
    },
    /// Remove all of natgw's annotations from a Node, without any Job.
    Forget {
        /// Which.
        node: NodeRef,
    },
}

impl Action {
    /// The Node that the act is about.
    #[must_use]
    pub fn node(&self) -> &NodeRef {
        match self {
            Action::MoveRoute { node, .. }
            | Action::RemoveRoute { node, .. }
            | Action::SetRole { node }
            | Action::ClearRole { node }
            | Action::LabelFloatingIP { node, .. }
            | Action::DeleteJob { node, .. }
            | Action::RecordPending { node, .. }
            | Action::CreateJob { node, .. }
            | Action::RecordSetup { node, .. }
            | Action::RecordTeardown { node, .. }
            | Action::RecordFailure { node, .. }
            | Action::Forget { node } => node,
        }
    }

    /// Whether it is about the route or the role label: these come before the work on single Nodes.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        matches!(self, Action::MoveRoute { .. } | Action::RemoveRoute { .. } | Action::SetRole { .. })
    }

    /// Whether it is part of a Node's chain of Jobs and annotations, whose actions depend on each other.
    #[must_use]
    pub fn is_job_work(&self) -> bool {
        !self.is_shared() && !matches!(self, Action::ClearRole { .. })
    }

    /// Whether it starts a teardown.
    fn tears_down(&self) -> bool {
        match self {
            Action::RecordPending { task, .. } => !task.kind.is_setup(),
            Action::CreateJob { job, .. } => !job.task.kind.is_setup(),
            _ => false,
        }
    }

    /// Whether the failure of `failed`, earlier in the same plan, prevents this action. `is_outdated`: it failed because the
    /// Node has changed since the plan.
    ///
    /// Everything else continues: the route, the role label and each Node fail separately.
    #[must_use]
    pub fn is_prevented_by(&self, failed: &Action, is_outdated: bool) -> bool {
        let same_node = self.node().name == failed.node().name;
        match failed {
            // The role follows the route, and a Node that still has the traffic keeps its rules.
            Action::MoveRoute { from_node: holder, .. } => {
                !self.is_job_work()
                    || self.tears_down() && Some(&self.node().name) == holder.as_ref()
                    || same_node && is_outdated
            }
            Action::RemoveRoute { .. } => {
                !self.is_job_work() || same_node && (is_outdated || self.tears_down())
            }
            // At least one Node has the role label at any time.
            Action::SetRole { .. } => matches!(self, Action::ClearRole { .. }) || same_node && is_outdated,
            Action::ClearRole { .. } => same_node && is_outdated,
            _ => same_node,
        }
    }
}

/// The failures of one plan, and what they prevent.
#[derive(Debug, Default)]
pub struct Failures<'a> {
    failed: Vec<(&'a Action, bool)>,
    /// Nodes on which an action was prevented: the later ones of the same chain rely on it.
    stopped: BTreeSet<&'a str>,
}

impl<'a> Failures<'a> {
    /// Records that the action failed; see [`Action::is_prevented_by`].
    pub fn record(&mut self, action: &'a Action, is_outdated: bool) {
        self.failed.push((action, is_outdated));
    }

    /// Whether the action is not to be run, because of what has failed before it.
    pub fn prevent(&mut self, action: &'a Action) -> bool {
        let node = action.node().name.as_str();
        let prevented = action.is_job_work() && self.stopped.contains(node)
            || self.failed.iter().any(|(failed, is_outdated)| action.is_prevented_by(failed, *is_outdated));
        if prevented && action.is_job_work() {
            self.stopped.insert(node);
        }
        prevented
    }
}

impl plan::Action for Action {
    type Reason = Reason;

    fn name(&self) -> &'static str {
        match self {
            Action::MoveRoute { .. } => "MoveRoute",
            Action::RemoveRoute { .. } => "RemoveRoute",
            Action::SetRole { .. } => "SetRole",
            Action::ClearRole { .. } => "ClearRole",
            Action::LabelFloatingIP { .. } => "LabelFloatingIP",
            Action::DeleteJob { .. } => "DeleteJob",
            Action::RecordPending { .. } => "RecordPending",
            Action::CreateJob { .. } => "CreateJob",
            Action::RecordSetup { .. } => "RecordSetup",
            Action::RecordTeardown { .. } => "RecordTeardown",
            Action::RecordFailure { .. } => "RecordFailure",
            Action::Forget { .. } => "Forget",
        }
    }

    fn regarding(&self) -> Regarding {
        self.node().regarding()
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = &self.node().name;
        match self {
            Action::MoveRoute { network, from: None, to, .. } => {
                write!(f, "add route 0.0.0.0/0 of network {network} to {to} ({node})")
            }
            Action::MoveRoute { network, from: Some(from), to, .. } => {
                write!(f, "move route 0.0.0.0/0 of network {network} from {from} to {to} ({node})")
            }
            Action::RemoveRoute { network, gateway, .. } => {
                write!(f, "remove route 0.0.0.0/0 of network {network} to {gateway} ({node})")
            }
            Action::SetRole { .. } => write!(f, "add the role label to Node {node}"),
            Action::ClearRole { .. } => write!(f, "remove the role label from Node {node}"),
            Action::LabelFloatingIP { ip: Some(ip), .. } => {
                write!(f, "label Node {node} with floating IP {ip}")
            }
            Action::LabelFloatingIP { ip: None, .. } => {
                write!(f, "remove the floating-IP label from Node {node}")
            }
            Action::DeleteJob { job, task, .. } => write!(f, "delete Job {job} ({task}) of Node {node}"),
            Action::RecordPending { task, .. } => write!(f, "annotate Node {node} as pending {task}"),
            Action::CreateJob { job, .. } => {
                write!(f, "create Job {} ({}, attempt {}) on Node {node}", job.name, job.task, job.attempt)
            }
            Action::RecordSetup { task, .. } => write!(f, "annotate Node {node}: {task} done"),
            Action::RecordTeardown { task, .. } => {
                write!(f, "remove the annotation from Node {node}: {task} done")
            }
            Action::RecordFailure { task, failures, retry_after, .. } => {
                write!(f, "record failure {failures} of {task} on Node {node}, retry after {retry_after}")
            }
            Action::Forget { .. } => write!(f, "remove natgw's annotations from Node {node}"),
        }
    }
}
