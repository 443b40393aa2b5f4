//! The safety threshold: how many routes may be removed at once. If a cloud returns wrong data, many routes look orphaned at the same
//! time. Then none is removed until the user allows exactly this list.

use std::fmt;

use sha2::{Digest, Sha256};

use super::Removal;
use super::classify::{ClassifiedRoute, RouteClass};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// This many may always be removed, whatever their percentage: in a cluster of three nodes each route is a third.
const ALWAYS: usize = 2;

/// More routes than may be removed at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// The routes.
    pub routes: Vec<Route>,
    /// Number of routes in the pod networks.
    pub of: usize,
    /// The limit that is exceeded.
    pub limit: Limit,
    /// Hash of exactly these routes of this router and since when they are orphaned: a user who sets it has read the list.
    pub hash: String,
}

/// A safety limit that a plan can exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `maxRemovals`
    Removals(usize),
    /// `maxPercent`
    Percent(usize),
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} routes look orphaned, and ", self.routes.len(), self.of)?;
        match self.limit {
            Limit::Removals(most) => {
                write!(f, "no more than {most} may be removed in one reconciliation (maxRemovals)")
            }
            Limit::Percent(most) => {
                write!(f, "no more than {most} % may be removed in one reconciliation (maxPercent)")
            }
        }
    }
}

/// The removals if they are within the limits or allowed, else the excess.
pub(super) fn within(
    policy: &Policy,
    snapshot: &Snapshot,
    classified: &[ClassifiedRoute],
    ready: Vec<Removal>,
    allow: Option<&str>,
) -> (Vec<Removal>, Option<Excess>) {
    let of = classified.iter().filter(|one| one.class != RouteClass::Foreign).count();
    let count = ready.len();
    let (most, percent) = (policy.safety.max_removals as usize, usize::from(policy.safety.max_percent));
    let limit = if count > most {
        Limit::Removals(most)
    } else if count > ALWAYS && count * 100 > percent * of {
        Limit::Percent(percent)
    } else {
        return (ready, None);
    };
    let hash = hash(&snapshot.router, &ready);
    if allow == Some(hash.as_str()) {
        return (ready, None);
    }
    let routes = ready.into_iter().map(|one| one.route).collect();
    (Vec::new(), Some(Excess { routes, of, limit, hash }))
}

/// Hash of exactly these routes of this router, in any order, and of the time since when each is orphaned: if the same routes are
/// orphaned again later, the user has not seen that list. 128 bits exclude a collision by accident.
#[must_use]
pub fn hash(router: &str, removals: &[Removal]) -> String {
    // The time as it is stored, to the nanosecond: it is the same in each reconciliation and after a restart.
    let line = |one: &Removal| format!("{} since {}", one.route, one.first_seen);
    let mut lines: Vec<String> = removals.iter().map(line).collect();
    lines.sort_unstable();
    let digest = Sha256::digest(format!("{router}\n{}", lines.join("\n")));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
