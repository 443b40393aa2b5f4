//! The status of a `Deorbit`.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::schema::{conditions, optional_time};
use crate::conditions::Condition;

/// How far a run is.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub enum Phase {
    /// Nothing was done yet.
    #[default]
    Pending,
    /// The IDs of everything that will be deleted are being recorded.
    Inventory,
    /// New claims, snapshots and load balancers are being prevented.
    Freeze,
    /// Objects of the cluster are being deleted.
    Delete,
    /// Waiting until the cluster's own controllers have removed them.
    Wait,
    /// Each recorded ID is looked up in OpenStack until it is gone.
    Verify,
    /// Looking for what no object of the cluster names any more.
    Sweep,
    /// The cluster's routes are being removed.
    Routes,
    /// Everything is gone, and this is proven as far as credentials allow.
    Complete,
    /// A timeout is over; status.debris lists what is left. The cluster may die.
    CompletedWithDebris,
    /// A timeout is over and onTimeout is Block; status.debris lists what is left.
    Failed,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Phase; 11] = [
        Phase::Pending,
        Phase::Inventory,
        Phase::Freeze,
        Phase::Delete,
        Phase::Wait,
        Phase::Verify,
        Phase::Sweep,
        Phase::Routes,
        Phase::Complete,
        Phase::CompletedWithDebris,
        Phase::Failed,
    ];

    /// Whether the run is over.
    #[must_use]
    pub fn is_final(self) -> bool {
        self >= Phase::Complete
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Kind of a resource in OpenStack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// A Cinder volume.
    Volume,
    /// A Cinder snapshot.
    Snapshot,
    /// An Octavia load balancer.
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
    /// How far the run is.
    pub phase: Phase,
    /// Complete, Clean, Frozen, TargetReachable, CloudReachable, CleanerNotRunning, Protected.
    #[schemars(schema_with = "conditions")]
    pub conditions: Vec<Condition>,
    /// The OpenStack resources that were found, recorded before the first delete. A record is never removed.
    pub inventory: Inventory,
    /// Objects that shall go and are still there.
    pub remaining: i64,
    /// Resources and objects that remain although they should be gone: the first entries.
    pub debris: Vec<Debris>,
    /// How many there are of them.
    pub debris_count: i64,
    /// When the first delete was about to begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_time")]
    pub started_at: Option<Timestamp>,
    /// When the present phase began.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_time")]
    pub phase_since: Option<Timestamp>,
    /// When the run was over.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_time")]
    pub completed_at: Option<Timestamp>,
    /// Since when the target's API server or OpenStack has not answered once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "optional_time")]
    pub first_unavailable_at: Option<Timestamp>,
    /// The generation of the spec that this was decided for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The OpenStack resources that a run found, and the cluster and the project in which it found them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Inventory {
    /// Whether the target cluster was read whole at least once.
    pub taken: bool,
    /// UID of the target cluster's namespace kube-system, where it may be read: another cluster that answers in its place is
    /// not touched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// ID of the OpenStack project that was read: in another one every record would seem to be gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// How many records there are.
    pub count: i64,
    /// The records, where there are few of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<Recorded>,
    /// The ConfigMaps that hold the records, where there are many. The Deorbit owns them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_maps: Vec<String>,
}

/// One thing in OpenStack and the object of the cluster that holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recorded {
    /// Kind of the resource in OpenStack.
    pub kind: Kind,
    /// Its OpenStack ID; none while the cluster's object names none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Kind of the object in the cluster: PersistentVolumeClaim, PersistentVolume, VolumeSnapshot, Service, Ingress; none
    /// where the sweep has found it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
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
    /// OpenStack has shown it once: that it is not there any more proves that it is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub seen: bool,
    /// Why it is left alone, where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<String>,
    /// Namespace/name of the Service that keeps it, where it is a floating IP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept_by: Option<String>,
}

/// One thing that is left.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Debris {
    /// Kind: Volume, Snapshot, LoadBalancer, FloatingIP, SecurityGroup, or a kind of the cluster.
    pub kind: String,
    /// Its OpenStack ID, where it has one.
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
