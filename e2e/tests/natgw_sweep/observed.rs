//! What the API server and the cloud say at one time, reduced to what natgw has a hand in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use e2e::natgw::{FLOATING_IP_LABEL, TestEnv, persistent_annotations, task_of};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use natgw::names;

use crate::natgw_sweep::machines::Machines;

/// One Node.
#[derive(Clone, Debug)]
pub struct ObservedNode {
    pub ip: Option<Ipv4Addr>,
    pub label: Option<String>,
    pub setup: Option<String>,
    pub pending: Option<String>,
    /// The setup was done since the boot that the kubelet reports.
    pub this_boot: bool,
    pub fit: bool,
    pub role: bool,
    /// All of natgw's own annotations but the boot ID, whose value differs from run to run.
    pub annotations: BTreeMap<String, String>,
    pub jobs: Vec<ObservedJob>,
}

/// One Job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedJob {
    pub task: String,
    pub attempt: String,
    pub succeeded: bool,
    pub terminating: bool,
}

impl ObservedNode {
    /// Set up for the IP in its label, since its last boot, with nothing under way; Ready, not cordoned, staying.
    pub fn is_candidate(&self) -> bool {
        self.fit
            && self.label.is_some()
            && self.label == self.setup
            && self.this_boot
            && self.pending.is_none()
    }
}

/// The environment at one time.
#[derive(Clone, Debug)]
pub struct ObservedState {
    pub route: Option<Ipv4Addr>,
    pub nodes: BTreeMap<String, ObservedNode>,
}

impl ObservedState {
    /// Asks the API server itself, no cache.
    pub async fn of(env: &TestEnv) -> anyhow::Result<ObservedState> {
        let ours = ListParams::default().labels(&format!("env={}", env.namespace));
        let nodes = Api::<Node>::all(env.client.clone()).list(&ours).await?;
        let jobs = env.jobs().await?;
        let role = env.role_label();
        let nodes = nodes.items.iter().map(|node| (node.name_any(), observed_node(node, &role, &jobs)));
        Ok(ObservedState { nodes: nodes.collect(), route: env.hetzner.default_gateway(env.network) })
    }

    /// The Node that the route points to, if it is one.
    pub fn holder(&self) -> Option<(&String, &ObservedNode)> {
        self.nodes.iter().find(|(_, node)| node.ip.is_some() && node.ip == self.route)
    }

    /// Names of the Nodes with the role label.
    pub fn roles(&self) -> Vec<&str> {
        self.nodes.iter().filter(|(_, node)| node.role).map(|(name, _)| name.as_str()).collect()
    }

    /// Names of the candidates.
    pub fn candidates(&self) -> Vec<&str> {
        self.nodes.iter().filter(|(_, node)| node.is_candidate()).map(|(name, _)| name.as_str()).collect()
    }

    /// Whether route and role label are at this Node alone.
    pub fn has_primary(&self, name: &str) -> bool {
        self.roles() == [name] && self.holder().is_some_and(|(holder, _)| holder == name)
    }
}

fn observed_node(node: &Node, role: &str, jobs: &[Job]) -> ObservedNode {
    let status = node.status.as_ref();
    let addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
    let boot_id = status.and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.clone());
    let ready = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let annotation = |key: &str| node.annotations().get(key).cloned();
    ObservedNode {
        ip: addresses
            .filter(|address| address.type_ == "InternalIP")
            .find_map(|address| address.address.parse().ok()),
        label: node.labels().get(FLOATING_IP_LABEL).cloned(),
        setup: annotation(names::SETUP_ANNOTATION),
        pending: annotation(names::PENDING_ANNOTATION),
        this_boot: boot_id.is_some() && annotation(names::BOOT_ID_ANNOTATION) == boot_id,
        fit: ready && !cordoned && node.metadata.deletion_timestamp.is_none(),
        role: node.labels().contains_key(role),
        annotations: persistent_annotations(node),
        jobs: jobs
            .iter()
            .filter(|job| job.annotations().get(names::NODE_NAME_ANNOTATION) == Some(&node.name_any()))
            .map(observed_job)
            .collect(),
    }
}

fn observed_job(job: &Job) -> ObservedJob {
    ObservedJob {
        task: task_of(job),
        attempt: job.annotations().get(names::ATTEMPT_ANNOTATION).cloned().unwrap_or_default(),
        succeeded: job.status.as_ref().and_then(|status| status.succeeded) == Some(1),
        terminating: job.metadata.deletion_timestamp.is_some(),
    }
}

/// Everything that natgw has a hand in at the end of a story, without the names that differ between environments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The place of the Node that the route points to, in the order of their creation.
    route: Option<usize>,
    nodes: Vec<NodeEnd>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodeEnd {
    candidate: bool,
    role: bool,
    annotations: BTreeMap<String, String>,
    this_boot: bool,
    kernel: Option<String>,
    jobs: BTreeSet<ObservedJob>,
}

impl End {
    /// Of the Nodes in this order.
    pub fn of(observed: &ObservedState, machines: &Machines, order: &[String]) -> End {
        let nodes =
            order.iter().filter_map(|name| Some((observed.nodes.get(name)?, machines.all.get(name)?)));
        End {
            route: order.iter().position(|name| observed.holder().is_some_and(|(holder, _)| holder == name)),
            nodes: nodes
                .map(|(node, machine)| NodeEnd {
                    candidate: node.is_candidate(),
                    role: node.role,
                    annotations: node.annotations.clone(),
                    this_boot: node.this_boot,
                    kernel: machine.translates_to.clone(),
                    jobs: node.jobs.iter().cloned().collect(),
                })
                .collect(),
        }
    }
}
