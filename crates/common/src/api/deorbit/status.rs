//! The status of a `Deorbit`.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::schema::{conditions, optional_time};
use crate::conditions::Condition;

/// The phase of a run.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// Nothing was read yet.
    #[default]
    Pending,
    /// The IDs of everything that will be deleted are being recorded, and new objects are being blocked.
    Inventory,
    /// A dry run has recorded what would be deleted.
    Planned,
    /// Objects of the cluster are being deleted, and the cluster's own controllers delete their resources.
    Deleting,
    /// Each recorded ID is polled in OpenStack until it is gone.
    Verifying,
    /// The cluster's routes are being removed.
    Finishing,
    /// The Deorbit is being deleted before the end of the run: the block is being lifted.
    Aborting,
    /// The cluster may be deleted: everything is gone, or status.debris lists what is left.
    Succeeded,
    /// A timeout is over and onTimeout is Block; status.debris lists what is left.
    Failed,
    /// A phase that another version of deorbiter wrote. One such Deorbit must not make the list of all of them unreadable.
    #[serde(other)]
    #[schemars(skip)]
    Unknown,
}

impl Phase {
    /// All that this version writes, in order.
    pub const ALL: [Phase; 9] = [
        Phase::Pending,
        Phase::Inventory,
        Phase::Planned,
        Phase::Deleting,
        Phase::Verifying,
        Phase::Finishing,
        Phase::Aborting,
        Phase::Succeeded,
        Phase::Failed,
    ];

    /// Whether the run is over.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The origin of a Deorbit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Trigger {
    /// A user.
    #[default]
    Manual,
    /// A DeorbitBinding.
    Binding,
    /// Cluster API's hook.
    ClusterAPI,
}

impl Trigger {
    /// All of them.
    pub const ALL: [Trigger; 3] = [Trigger::Manual, Trigger::Binding, Trigger::ClusterAPI];
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Kind of a resource in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// A volume, of Cinder or of another CSI driver.
    Volume,
    /// A snapshot, of Cinder or of another CSI driver.
    Snapshot,
    /// A load balancer, of Octavia or of another controller.
    LoadBalancer,
    /// A Neutron floating IP.
    FloatingIP,
    /// A Neutron security group.
    SecurityGroup,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] =
        [Kind::Volume, Kind::Snapshot, Kind::LoadBalancer, Kind::FloatingIP, Kind::SecurityGroup];

    /// Its name as a kind, as the status has it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Volume => "Volume",
            Kind::Snapshot => "Snapshot",
            Kind::LoadBalancer => "LoadBalancer",
            Kind::FloatingIP => "FloatingIP",
            Kind::SecurityGroup => "SecurityGroup",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Volume => "volume",
            Kind::Snapshot => "snapshot",
            Kind::LoadBalancer => "load balancer",
            Kind::FloatingIP => "floating IP",
            Kind::SecurityGroup => "security group",
        })
    }
}

/// Progress and result of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DeorbitStatus {
    /// The phase of the run.
    pub phase: Phase,
    /// Complete, Failed, Ready, Reconciling, Stalled, Verified, CreationBlocked, TargetReachable, CloudReachable, ProvidersHealthy,
    /// Planned, Protected.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The cluster that is cleaned up.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target: String,
    /// The origin of the Deorbit.
    pub trigger: Trigger,
    /// Resources and objects that are to be deleted and still exist.
    pub remaining: i64,
    /// Of these, those that take longer than timeouts.perObject.
    pub overdue: i64,
    /// Resources that are kept on purpose: by an annotation, a policy, or the spec.
    pub kept: i64,
    /// Resources and objects that remain although they should be gone: the first entries.
    pub debris: Vec<Debris>,
    /// How many there are of them.
    pub debris_count: i64,
    /// The first of the ConfigMaps that hold the records of the run: each resource in the cloud with its ID, its object and, where it
    /// is kept, the reason. The Deorbit owns them.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub records: String,
    /// When the run began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_time")]
    pub start_time: Option<Timestamp>,
    /// When the run was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_time")]
    pub completion_time: Option<Timestamp>,
    /// The generation of the spec that this was decided for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// One thing that is left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Debris {
    /// Kind: Volume, Snapshot, LoadBalancer, FloatingIP, SecurityGroup, or a kind of the cluster.
    pub kind: String,
    /// Its ID in OpenStack, or its driver and handle with provider: Any, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name of the object that held it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Namespace of that object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Why it is still there, as far as is known.
    pub reason: String,
}
