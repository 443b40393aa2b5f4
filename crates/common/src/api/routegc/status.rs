//! What a person is told of a router's routes, and what must survive a restart.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::schema;
use crate::conditions::Condition;

/// What the passes found. It is written when something in it is new, never just because time went by.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RouteGCStatus {
    /// The metadata.generation that the last pass worked with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Ready`: the last pass could decide and do what it should. `SafetyThreshold`, `Contested`, `RouterHasInvalidRoutes` and
    /// `WideAddressPair` are True while a person should look at them.
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
    /// The router's routes by what they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// How full the router is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<Quota>,
    /// Routes whose next hop was found dead, and how well that is confirmed. At most 1000 are followed at a time.
    pub candidates: Vec<Candidate>,
    /// Stands for the exact list of routes that the last pass wanted to remove and did not, because of the safety threshold.
    /// As the value of the annotation `routegc.perimeter.dev/allow-removal` it lets this list, and no other, through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal_hash: Option<String>,
    /// Routes that a pass is about to remove. Written down before, so that a pass that was cut short is known for what it did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removing: Vec<RouteText>,
    /// Routes that routegc removed and that somebody put back although their next hop is still dead. They are left alone for a
    /// day; find out who writes them.
    pub contested: Vec<Contested>,
    /// What routegc removed, the latest last, without what is back and leads to somebody again. At most 100 are kept.
    pub last_removed: Vec<Removed>,
    /// When a pass last found or did something new. The time of the last pass of all is the metric
    /// `routegc_last_success_timestamp_seconds`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schema::optional_time")]
    pub last_change: Option<Timestamp>,
}

/// The router's routes by what they are: each is one of valid, orphan, foreign, unknown and invalid; the rest overlaps with these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    /// In a pod network, and the next hop lives.
    pub valid: u32,
    /// In a pod network, and the next hop is gone.
    pub orphan: u32,
    /// In none of the pod networks, or not of a node's prefix length: never touched.
    pub foreign: u32,
    /// In a pod network, but it cannot be seen whether the next hop lives (a network of another project, an address pair for a
    /// whole range): never touched.
    pub unknown: u32,
    /// In a pod network, but no route that could work (its next hop is on no network of the router): never touched.
    pub invalid: u32,
    /// In a pod network, and another route has the same destination.
    pub duplicates: u32,
    /// Orphans that were removed before and put back by somebody: left alone.
    pub contested: u32,
}

/// How full the router is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Quota {
    /// Routes on the router, whosever they are.
    pub routes: u32,
    /// How many the project may have on a router, where the cloud says so (Neutron 2026.2 and newer); 30 is its usual default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<i64>,
}

/// A route whose next hop was found dead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Destination, to the letter as the router has it.
    pub destination: String,
    /// Next hop, to the letter as the router has it.
    pub nexthop: String,
    /// Why it counts as dead: NoPort, ServerGone or NodeHasAnother.
    pub reason: String,
    /// When it was first found dead, without having been alive since.
    #[schemars(schema_with = "schema::time")]
    pub first_seen: Timestamp,
    /// In how many passes in a row, counted up to `spec.safety.confirmations`.
    pub observations: u32,
}

/// A route, to the letter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RouteText {
    /// Destination, to the letter as the router has it.
    pub destination: String,
    /// Next hop, to the letter as the router has it.
    pub nexthop: String,
}

/// A route that routegc removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Removed {
    /// Destination, to the letter as the router had it.
    pub destination: String,
    /// Next hop, to the letter as the router had it.
    pub nexthop: String,
    /// When it was last removed.
    #[schemars(schema_with = "schema::time")]
    pub at: Timestamp,
    /// How often it was removed.
    pub times: u32,
}

/// A route that somebody keeps putting back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Contested {
    /// Destination, to the letter as the router has it.
    pub destination: String,
    /// Next hop, to the letter as the router has it.
    pub nexthop: String,
    /// The Nova server to which the address belongs or belonged, where one can be told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// The Node to which the destination belongs, where Nodes are known: whoever puts the route back does it for this Node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// When routegc last removed it.
    #[schemars(schema_with = "schema::time")]
    pub removed_at: Timestamp,
    /// When it was first seen to be back.
    #[schemars(schema_with = "schema::time")]
    pub back_since: Timestamp,
    /// How often routegc removed it.
    pub times: u32,
}
