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
    /// The Job's task: its kind, and the IP address that it is for.
    pub task: Task,
    /// Hash of the Node's UID and boot ID, and of the setup.
    pub generation: String,
    /// Number of the attempt; 1 for the first.
    pub attempt: u32,
    /// The Node's address in the network, if it has one.
    pub private_ip: Option<Ipv4Addr>,
    /// The network's range.
    pub network_cidr: Ipv4Net,
    /// The network's first address; for a client Job, the one that it is for.
    pub network_gateway: Ipv4Addr,
}

/// One write to the API server or the cloud. The module of `apply` that runs it documents why it can be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "name", rename_all_fields = "camelCase")]
pub enum Action {
    /// Point `0.0.0.0/0` of the network to a Node.
    MoveRoute {
        /// Network ID.
        network: u64,
        /// The current next hop.
        from: Option<Ipv4Addr>,
        /// Name of the Node that has the current next hop's address, if there is one.
        from_node: Option<String>,
        /// The desired next hop.
        to: Ipv4Addr,
        /// Server ID of the new primary.
        server: u64,
        /// The new primary.
        node: NodeRef,
    },
    /// Remove `0.0.0.0/0` from the network.
    RemoveRoute {
        /// Network ID.
        network: u64,
        /// Next hop of the route. A route to another next hop is not removed.
        gateway: Ipv4Addr,
        /// The Node at this address.
        node: NodeRef,
    },
    /// Put the role label on a Node.
    SetRole {
        /// The Node that gets the label.
        node: NodeRef,
    },
    /// Take the role label off a Node.
    ClearRole {
        /// The Node that loses the label.
        node: NodeRef,
    },
    /// Write or remove the floating-IP label.
    LabelFloatingIP {
        /// The Node that gets or loses the label.
        node: NodeRef,
        /// The label's value; None removes the label.
        ip: Option<Ipv4Addr>,
    },
    /// Delete a Job and its pods.
    DeleteJob {
        /// The Node that the Job is for.
        node: NodeRef,
        /// Job name.
        job: String,
        /// Job UID: another Job of this name is not deleted.
        uid: String,
        /// The Job's task, if its labels tell.
        task: Option<Task>,
    },
    /// Write the pending annotation to a Node: the task of a Job, recorded before the Job changes the Node.
    RecordPending {
        /// The Node that gets the annotation.
        node: NodeRef,
        /// The Job's task.
        task: Task,
        /// Number of Jobs in a row that have failed for this task.
        failures: u32,
    },
    /// Create a Job on a Node.
    CreateJob {
        /// The Node that the Job runs on.
        node: NodeRef,
        /// The Job.
        job: JobSpec,
    },
    /// Record on a Node that a setup Job succeeded: the IP that the Node is set up for, and the boot ID of the setup.
    RecordSetup {
        /// The Node that was set up.
        node: NodeRef,
        /// The task of the setup Job.
        task: Task,
        /// The Node's boot ID at the time of the Job.
        boot_id: String,
        /// The Node's private address at the time of the Job.
        private_ip: Option<Ipv4Addr>,
        /// Hash of the Job's script, environment and range.
        hash: String,
    },
    /// Record on a Node that a teardown Job succeeded: the annotation of the setup is removed.
    RecordTeardown {
        /// The Node that was torn down.
        node: NodeRef,
        /// The task of the teardown Job.
        task: Task,
    },
    /// Record that a Job failed, and when it is retried.
    RecordFailure {
        /// The Node on which the Job failed.
        node: NodeRef,
        /// The task of the failed Job.
        task: Task,
        /// Number of Jobs in a row that have failed.
        failures: u32,
        /// The earliest time of the next attempt.
        retry_after: Timestamp,
    },
    /// Remove all of natgw's annotations from a Node, without any Job.
    Forget {
        /// The Node that loses the annotations.
        node: NodeRef,
    },
}

impl Action {
    /// The Node that the action is about.
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

    /// Whether it changes the route or sets the role label. These actions come before the work on single Nodes.
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
            Action::RecordPending { task, .. } => task.kind.is_teardown(),
            Action::CreateJob { job, .. } => job.task.kind.is_teardown(),
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
            // The role label follows the route, and a Node that still has the traffic keeps its rules.
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

/// The failed actions of one plan. They prevent later actions that depend on them.
#[derive(Debug, Default)]
pub struct Failures<'a> {
    failed: Vec<(&'a Action, bool)>,
    /// Nodes on which an action was prevented. The later actions of the same chain depend on it and are prevented too.
    stopped: BTreeSet<&'a str>,
}

impl<'a> Failures<'a> {
    /// Records that the action failed; see [`Action::is_prevented_by`].
    pub fn record(&mut self, action: &'a Action, is_outdated: bool) {
        self.failed.push((action, is_outdated));
    }

    /// Whether an earlier failure prevents the action. If so, the later actions of its chain are prevented too.
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
            Action::DeleteJob { job, task: Some(task), .. } => {
                write!(f, "delete Job {job} ({task}) of Node {node}")
            }
            Action::DeleteJob { job, task: None, .. } => {
                write!(f, "delete Job {job} of Node {node}, whose labels name no task")
            }
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
