//! What the API server and the cloud say at one time, reduced to what natgw has a hand in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use e2e::natgw::{FLOATING_IP_LABEL, TestEnv, lasting_marks, task_of};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use natgw::names;

use crate::natgw_sweep::machines::Machines;

/// One Node.
#[derive(Clone, Debug)]
pub struct NodeSight {
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
    pub jobs: Vec<JobSight>,
}

/// One Job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobSight {
    pub task: String,
    pub attempt: String,
    pub succeeded: bool,
    pub terminating: bool,
}

impl NodeSight {
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
pub struct Sight {
    pub route: Option<Ipv4Addr>,
    pub nodes: BTreeMap<String, NodeSight>,
}

impl Sight {
    /// Asks the API server itself, no cache.
    pub async fn of(env: &TestEnv) -> anyhow::Result<Sight> {
        let ours = ListParams::default().labels(&format!("env={}", env.namespace));
        let nodes = Api::<Node>::all(env.client.clone()).list(&ours).await?;
        let jobs = env.jobs().await?;
        let role = env.role_label();
        let nodes = nodes.items.iter().map(|node| (node.name_any(), node_sight(node, &role, &jobs)));
        Ok(Sight { nodes: nodes.collect(), route: env.hetzner.default_gateway(env.network) })
    }

    /// The Node that the route points to, if it is one.
    pub fn holder(&self) -> Option<(&String, &NodeSight)> {
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

fn node_sight(node: &Node, role: &str, jobs: &[Job]) -> NodeSight {
    let status = node.status.as_ref();
    let addresses = status.into_iter().flat_map(|status| status.addresses.iter().flatten());
    let boot_id = status.and_then(|status| status.node_info.as_ref()).map(|info| info.boot_id.clone());
    let ready = status
        .into_iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .any(|condition| condition.type_ == "Ready" && condition.status == "True");
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
    let annotation = |key: &str| node.annotations().get(key).cloned();
    NodeSight {
        ip: addresses
            .filter(|address| address.type_ == "InternalIP")
            .find_map(|address| address.address.parse().ok()),
        label: node.labels().get(FLOATING_IP_LABEL).cloned(),
        setup: annotation(names::SETUP_ANNOTATION),
        pending: annotation(names::PENDING_ANNOTATION),
        this_boot: boot_id.is_some() && annotation(names::BOOT_ID_ANNOTATION) == boot_id,
        fit: ready && !cordoned && node.metadata.deletion_timestamp.is_none(),
        role: node.labels().contains_key(role),
        annotations: lasting_marks(node),
        jobs: jobs
            .iter()
            .filter(|job| job.annotations().get(names::NODE_NAME_ANNOTATION) == Some(&node.name_any()))
            .map(job_sight)
            .collect(),
    }
}

fn job_sight(job: &Job) -> JobSight {
    JobSight {
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
    jobs: BTreeSet<JobSight>,
}

impl End {
    /// Of the Nodes in this order.
    pub fn of(sight: &Sight, machines: &Machines, order: &[String]) -> End {
        let nodes = order.iter().filter_map(|name| Some((sight.nodes.get(name)?, machines.all.get(name)?)));
        End {
            route: order.iter().position(|name| sight.holder().is_some_and(|(holder, _)| holder == name)),
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
