//! Why routegc acts, and the problems it reports: every reason, its code and its sentence.

use std::fmt;

use common::api::routegc::{ALLOW_ANNOTATION, Recreated};
use common::plan::{self, Related};
use common::routes::Route;
use common::routes::plan::{Covered, Excess, OrphanReason};
use common::routes::route::{first_of, list, so_many};
use serde::{Serialize, Serializer};

use super::action::related;

/// Why a route is removed, or a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// The next hop is gone.
    Orphaned(OrphanReason),
    /// A route is gone after a removal whose result did not arrive.
    RemovedEarlier,
    /// Mode Audit: these would be removed.
    WouldRemove(Vec<Route>),
    /// More routes are orphaned than may be removed at once.
    SafetyThreshold(Excess),
    /// A removed route was recreated.
    Recreated(Recreated),
    /// Neutron refuses every change of the router.
    InvalidRoutes(Vec<Route>),
    /// Ports may use more addresses than can be observed, among them next hops that nothing else has.
    WideAddressPair(Covered),
    /// A route was not removed after the last read.
    Skipped(Route, String),
    /// A route was in the response to its own removal.
    RecreatedImmediately(Route),
    /// The reconciliation failed.
    Failed(&'static str, String),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Orphaned(why) => why.fmt(f),
            Reason::RemovedEarlier => f.write_str(
                "it no longer exists: the removal was sent earlier, and the result did not arrive",
            ),
            Reason::WouldRemove(routes) => {
                write!(f, "mode Enforce would remove {}: {}", so_many(routes.len()), list(routes))
            }
            Reason::SafetyThreshold(excess) => write!(
                f,
                "{excess}; nothing is removed. If all of them are orphaned, annotate with {ALLOW_ANNOTATION}={}: {}",
                excess.hash,
                list(&excess.routes)
            ),
            Reason::Recreated(one) => {
                let times = match one.times {
                    1 => "once".to_owned(),
                    many => format!("{many} times"),
                };
                write!(
                    f,
                    "route {} via {}, removed at {}, is back since {} although its next hop is gone; it was removed {times} and is not \
                     removed again for a day. Find out what writes it",
                    one.destination, one.nexthop, one.removed_at, one.back_since
                )?;
                if let Some(node) = &one.node {
                    write!(f, "; the destination belongs to Node {node}")?;
                }
                if let Some(server) = &one.server {
                    write!(f, "; server {server}")?;
                }
                Ok(())
            }
            Reason::InvalidRoutes(routes) => write!(
                f,
                "Neutron refuses every change of the router while it has routes whose next hop is on none of its networks: {}; remove \
                 them by hand (openstack router unset --route), or attach their network again",
                list(routes)
            ),
            Reason::WideAddressPair(covered) => {
                let (pairs, open): (Vec<_>, Vec<_>) =
                    covered.covers.iter().partition(|cover| cover.range.is_some());
                write!(
                    f,
                    "whether the next hops of {} exist cannot be observed, because ports may use any address of ranges that contain them: ",
                    so_many(covered.routes.len())
                )?;
                if !pairs.is_empty() {
                    f.write_str("narrow the ports' allowed_address_pairs to the addresses that they use, ")?;
                }
                if !open.is_empty() {
                    f.write_str(
                        "enable port security on the ports without it, or, if they use only the addresses that Neutron knows, set \
                         safety.ignoreOpenPorts: true, ",
                    )?;
                }
                write!(
                    f,
                    "or remove orphaned routes by hand (openstack router unset --route): {}; {}",
                    list(&covered.routes),
                    first_of(covered.covers.iter().map(ToString::to_string))
                )
            }
            Reason::Skipped(route, why) => {
                write!(f, "route {route} was not removed after the last read: {why}")
            }
            Reason::RecreatedImmediately(route) => {
                write!(f, "route {route} was recreated at the moment of its removal")
            }
            Reason::Failed(_, why) => f.write_str(why),
        }
    }
}

impl plan::Reason for Reason {
    fn code(&self) -> &'static str {
        match self {
            Reason::Orphaned(why) => why.code(),
            Reason::RemovedEarlier => "RemovedEarlier",
            Reason::WouldRemove(_) => "OrphansFound",
            Reason::SafetyThreshold(_) => "SafetyThreshold",
            Reason::Recreated(_) => "Recreated",
            Reason::InvalidRoutes(_) => "RouterHasInvalidRoutes",
            Reason::WideAddressPair(_) => "WideAddressPair",
            Reason::Skipped(..) => "Skipped",
            Reason::RecreatedImmediately(_) => "RecreatedImmediately",
            Reason::Failed(code, _) => code,
        }
    }

    fn related(&self) -> Option<Related> {
        match self {
            Reason::Skipped(route, _) | Reason::RecreatedImmediately(route) => Some(related(route)),
            Reason::Recreated(one) => Some(related(&Route::new(&one.destination, &one.nexthop))),
            _ => None,
        }
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}
