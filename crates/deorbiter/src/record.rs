//! The bookkeeping of a run: the resources that it recorded, and the cluster and the project that they belong to. It is stored in
//! ConfigMaps that the Deorbit owns, before anything is deleted; the status has only what a user reads.

use common::api::deorbit::{DeorbitSpec, Kind};
use common::routes::Route;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::observe::snapshot::Cloud;
use crate::plan::action::ObjectKind;

/// The memory of a run beside its records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Book {
    /// Whether the target cluster was read whole at least once: by the run itself, after a dry run.
    pub taken: bool,
    /// UID of the target cluster's namespace kube-system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// ID of the OpenStack project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The region of the login, where it names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The proof that the login is for the target's own project and region.
    pub proof: Proof,
    /// From when `timeouts.total` counts: the begin of the run, or the end of a protection or a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<Timestamp>,
    /// When the present phase began, or a protection or a refusal ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase_since: Option<Timestamp>,
    /// When the first delete was about to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleting_since: Option<Timestamp>,
    /// Since when the target's API server has not responded at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreachable_since: Option<Timestamp>,
    /// Since when the block of new objects cannot be created.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block_refused_since: Option<Timestamp>,
    /// The whole project is listed, to find resources by the cluster's name.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub discovering: bool,
    /// It has been listed, and everything that was found is recorded.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub discovered: bool,
    /// The run waits for a user: it is protected, or a server refuses.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// A limit is over: the run ends with what is left.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub over: bool,
    /// The block is being lifted at the end: what is created from now on belongs to the cluster that survives.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub lifting: bool,
    /// ID of the application credential that is being deleted: everything else is gone, and was verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// Routes of the router to recorded Nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<NodeRoute>,
    /// The settings for which a failed run is tried again when they change.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub limits: String,
}

/// A route to a Node that existed at the inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRoute {
    /// Its destination, as Neutron has it.
    pub destination: String,
    /// Its next hop, as Neutron has it.
    pub nexthop: String,
    /// Since when the router does not have it any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<Timestamp>,
}

impl NodeRoute {
    /// The pair.
    #[must_use]
    pub fn route(&self) -> Route {
        Route::new(&self.destination, &self.nexthop)
    }
}

impl Book {
    /// Records the project and the region; a later login for others is refused.
    pub fn bind(&mut self, cloud: &Cloud) {
        self.project.get_or_insert_with(|| cloud.project.clone());
        self.region = self.region.take().or_else(|| cloud.region.clone());
    }

    /// The settings for which a failed run is tried again when they change.
    #[must_use]
    pub fn limits_of(spec: &DeorbitSpec) -> String {
        let timeouts = serde_json::to_string(&spec.timeouts).unwrap_or_default();
        format!("{timeouts} {:?} {:?}", spec.on_timeout, spec.orphan_policy)
    }
}

/// The proof that the login is for the target's own project and region. A missing resource is gone only then: in another project, or
/// another region, every resource seems to be gone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Proof {
    /// A server of this project and region that a Node of the target names: it is valid for all services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Cinder has shown a volume or snapshot by the ID that an object of the target has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub block_storage: bool,
    /// Octavia has shown a load balancer by the ID that an object of the target has.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub load_balancer: bool,
    /// The cluster is gone, and `clusterGone` names the project of the login: it is valid for all services.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub project: bool,
}

impl Proof {
    /// Whether it is valid for all services.
    fn is_for_all(&self) -> bool {
        self.server.is_some() || self.project
    }

    /// Whether anything is proven.
    #[must_use]
    pub fn any(&self) -> bool {
        self.is_for_all() || self.block_storage || self.load_balancer
    }

    /// Whether it is valid for the service of this kind.
    #[must_use]
    pub fn covers(&self, kind: Kind) -> bool {
        self.is_for_all()
            || match kind {
                Kind::Volume | Kind::Snapshot => self.block_storage,
                Kind::LoadBalancer | Kind::FloatingIP | Kind::SecurityGroup => self.load_balancer,
            }
    }
}

/// One resource in the cloud, and the object of the cluster that holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// Kind of the resource.
    pub kind: Kind,
    /// Its ID in OpenStack, or driver and handle with any provider; none while the cluster's object names none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Kind of the object in the cluster; none where it was found by the cluster's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKind>,
    /// Namespace of that object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name of that object, or in OpenStack where there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID of that object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The load balancer's tag that stands for this Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The load balancer also serves others, or is not known to serve this cluster alone: its tag goes, it stays.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// An object of the cluster has its ID, or the driver named it after the UID of its object.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named: bool,
    /// OpenStack has shown it once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seen: bool,
    /// Why it is kept, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Namespace/name of the Service that keeps it, where it is a floating IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<String>,
}
