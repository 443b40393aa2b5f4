//! The state of the API server and of the cloud at one time, reduced to the fields that natgw reads and writes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use e2e::natgw::{FLOATING_IP_LABEL, TestEnv, persistent_annotations, task_of};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use natgw::names;

use super::invariants::Machines;

/// One Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedNode {
    pub ip: Option<Ipv4Addr>,
    pub label: Option<String>,
    /// natgw's annotations without the boot ID, which differs from run to run.
    pub annotations: BTreeMap<String, String>,
    /// The setup was done since the boot that the kubelet reports.
    pub this_boot: bool,
    /// Ready, not cordoned, not being deleted.
    pub fit: bool,
    pub role: bool,
    pub jobs: BTreeSet<ObservedJob>,
}

/// One Job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObservedJob {
    pub task: String,
    attempt: String,
    succeeded: bool,
    pub terminating: bool,
}

/// The environment at one time.
#[derive(Clone, Debug)]
pub struct ObservedState {
    pub route: Option<Ipv4Addr>,
    pub nodes: BTreeMap<String, ObservedNode>,
}

/// The end state: the route, and each Node with the floating IP that its kernel translates to. Addresses and the order of the
/// Nodes are the same in all environments, names are not.
pub type End = (Option<Ipv4Addr>, Vec<(ObservedNode, Option<String>)>);

impl ObservedNode {
    /// The floating IP that the Node is set up for, as its annotation reports.
    pub fn setup(&self) -> Option<&String> {
        self.annotations.get("nat-gateway")
    }

    /// Whether a Job is pending.
    pub fn pending(&self) -> bool {
        self.annotations.contains_key("pending")
    }

    /// Set up for the IP in its label, since its last boot, with nothing pending, and fit.
    pub fn is_candidate(&self) -> bool {
        self.fit
            && self.label.is_some()
            && self.label.as_ref() == self.setup()
            && self.this_boot
            && !self.pending()
    }
}

impl ObservedState {
    /// Reads the API server, not a cache.
    pub async fn of(env: &TestEnv) -> anyhow::Result<ObservedState> {
        let ours = ListParams::default().labels(&format!("env={}", env.namespace));
        let nodes = Api::<Node>::all(env.client.clone()).list(&ours).await?;
        let jobs = env.jobs().await?;
        let role = env.role_label();
        let nodes = nodes.items.iter().map(|node| (node.name_any(), observed_node(node, &role, &jobs)));
        Ok(ObservedState { nodes: nodes.collect(), route: env.hetzner.default_gateway(env.network) })
    }

    /// The Node that the route points to.
    pub fn next_hop(&self) -> Option<(&String, &ObservedNode)> {
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

    /// Whether the route and the role label are at this Node alone.
    pub fn has_primary(&self, name: &str) -> bool {
        self.roles() == [name] && self.next_hop().is_some_and(|(next_hop, _)| next_hop == name)
    }

    /// As an end state.
    pub fn end(&self, machines: &Machines) -> End {
        let kernel = |name: &String| machines.all.get(name).and_then(|machine| machine.translates_to.clone());
        (self.route, self.nodes.iter().map(|(name, node)| (node.clone(), kernel(name))).collect())
    }
}

fn observed_node(node: &Node, role: &str, jobs: &[Job]) -> ObservedNode {
    let status = node.status.as_ref();
    let mut addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
    let boot_id = status.and_then(|status| status.node_info.as_ref()).map(|info| &info.boot_id);
    let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let on_node = |job: &&Job| job.annotations().get(names::NODE_NAME_ANNOTATION) == Some(&node.name_any());
    ObservedNode {
        ip: addresses.find(|each| each.type_ == "InternalIP").and_then(|each| each.address.parse().ok()),
        label: node.labels().get(FLOATING_IP_LABEL).cloned(),
        annotations: persistent_annotations(node),
        this_boot: boot_id.is_some() && node.annotations().get(names::BOOT_ID_ANNOTATION) == boot_id,
        fit: ready && !cordoned && node.metadata.deletion_timestamp.is_none(),
        role: node.labels().contains_key(role),
        jobs: jobs.iter().filter(on_node).map(observed_job).collect(),
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
