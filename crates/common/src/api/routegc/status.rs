//! The status of a RouteGC: the result of the reconciliations, and the state that survives a restart.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::schema;
use crate::conditions::Condition;

/// Result of the reconciliations. It is written only if something other than the time has changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteGCStatus {
    /// The metadata.generation that the last reconciliation used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the last reconciliation succeeded. `SafetyThreshold`, `Recreated`, `RouterHasInvalidRoutes` and
    /// `WideAddressPair` are True while you should act on them.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// ID of the router. If the spec does not contain it, this is the ID that was found first: another router is a refusal until
    /// the RouteGC is created again.
    #[serde(rename = "routerID", skip_serializing_if = "Option::is_none")]
    pub router_id: Option<String>,
    /// The number of routes of each class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Routes of the router and their limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// Orphaned routes that are not removed yet, with the number of observations. At most 1000 are tracked at a time.
    pub candidates: Vec<Candidate>,
    /// Hash of the exact list of routes that the last reconciliation did not remove because of the safety threshold. As the
    /// value of the annotation `routegc.perimeter.dev/allow-removal` it allows this list and no other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal_hash: Option<String>,
    /// Routes that are about to be removed. They are recorded before the removal, so that an interrupted removal is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removing: Vec<Route>,
    /// Routes that another client re-created after routegc removed them, although their next hop still does not exist. routegc
    /// does not remove them again for a day. Find the client that writes them.
    pub recreated: Vec<Recreated>,
    /// Routes that routegc removed, the latest last, without those that are in use again. At most 100 are kept.
    pub last_removed: Vec<Removed>,
    /// When this status last changed. The time of the last successful reconciliation is the metric
    /// `routegc_last_success_timestamp_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub last_change: Option<Timestamp>,
}

/// The number of routes of each class. Each route is one of valid, orphan, foreign, unknown and invalid; duplicates and
/// recreated overlap with these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// In a pod network, and the next hop exists.
    pub valid: u32,
    /// In a pod network, and the next hop no longer exists.
    pub orphan: u32,
    /// In none of the pod networks, or of another prefix length than a node's: never removed.
    pub foreign: u32,
    /// In a pod network, but it is not visible whether the next hop exists (a network of another project, an address pair for a
    /// whole range): never removed.
    pub unknown: u32,
    /// In a pod network, but the route cannot work (its next hop is on no network of the router): never removed.
    pub invalid: u32,
    /// In a pod network, and another route has the same destination.
    pub duplicates: u32,
    /// Orphaned routes that another client re-created after their removal: not removed again for a day.
    pub recreated: u32,
}

/// Routes of the router and their limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Quota {
    /// All routes of the router.
    pub routes: u32,
    /// How many routes a router of the project may have, where the cloud reports it (Neutron 2026.2 and newer). The usual default
    /// is 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
}

/// An orphaned route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Destination, exactly as the router has it.
    pub destination: String,
    /// Next hop, exactly as the router has it.
    pub nexthop: String,
    /// Why it is orphaned: NoPort, ServerGone or NodeHasAnother.
    pub reason: String,
    /// When it was first found orphaned, without being valid since.
    #[schemars(schema_with = "schema::time")]
    pub first_seen: Timestamp,
    /// How many consecutive reconciliations found it orphaned, counted up to `spec.safety.confirmations`.
    pub observations: u32,
}

/// A route, exactly as the router has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// Destination, exactly as the router has it.
    pub destination: String,
    /// Next hop, exactly as the router has it.
    pub nexthop: String,
}

/// A route that routegc removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    /// Destination, exactly as the router had it.
    pub destination: String,
    /// Next hop, exactly as the router had it.
    pub nexthop: String,
    /// When it was last removed.
    #[schemars(schema_with = "schema::time")]
    pub at: Timestamp,
    /// How many times routegc removed it.
    pub times: u32,
}

/// A route that another client re-created after its removal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Recreated {
    /// Destination, exactly as the router has it.
    pub destination: String,
    /// Next hop, exactly as the router has it.
    pub nexthop: String,
    /// The Nova server that has or had the address, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The Node that the destination belongs to, where Nodes are known: the other client re-creates the route for this Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When routegc last removed it.
    #[schemars(schema_with = "schema::time")]
    pub removed_at: Timestamp,
    /// When it was first found re-created.
    #[schemars(schema_with = "schema::time")]
    pub back_since: Timestamp,
    /// How many times routegc removed it.
    pub times: u32,
}
