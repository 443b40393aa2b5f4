//! How many routes may go at once. A cloud that answers wrongly makes many routes look dead at the same time; then none goes,
//! until a person has looked at exactly this list.

use std::fmt;

use sha2::{Digest, Sha256};

use super::Removal;
use super::classify::{ClassifiedRoute, RouteClass};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// So many may always go, whatever share of the routes they are: in a cluster of three nodes each is a third.
const ALWAYS: usize = 2;

/// More routes than may go at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Which.
    pub routes: Vec<Route>,
    /// Out of how many that are judged at all.
    pub of: usize,
    /// Which limit is exceeded.
    pub limit: Limit,
    /// Stands for exactly these routes of this router, dead since exactly then: whoever says it has seen the list.
    pub hash: String,
}

/// Which limit is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// `maxRemovals`
    Removals(usize),
    /// `maxPercent`
    Percent(usize),
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} routes look dead, and ", self.routes.len(), self.of)?;
        match self.limit {
            Limit::Removals(most) => {
                write!(f, "no more than {most} may be removed in one pass (maxRemovals)")
            }
            Limit::Percent(most) => {
                write!(f, "no more than {most} % may be removed in one pass (maxPercent)")
            }
        }
    }
}

/// The removals if they are few enough or let through, else what is too much.
pub(super) fn within(
    policy: &Policy,
    snapshot: &Snapshot,
    classified: &[ClassifiedRoute],
    ready: Vec<Removal>,
    allow: Option<&str>,
) -> (Vec<Removal>, Option<Excess>) {
    let of = classified.iter().filter(|one| one.class != RouteClass::Foreign).count();
    let count = ready.len();
    let limit = if count > policy.max_removals {
        Limit::Removals(policy.max_removals)
    } else if count > ALWAYS && count * 100 > policy.max_percent * of {
        Limit::Percent(policy.max_percent)
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

/// Stands for exactly these routes of this router, in whatever order, and for since when each is dead: the same ones, dead anew,
/// are another problem, and nobody has looked at that. 128 bits: nobody finds a second list for it by accident.
#[must_use]
pub fn hash(router: &str, removals: &[Removal]) -> String {
    // The time as it is kept, to the nanosecond: it is the same in each pass and after a restart.
    let line = |one: &Removal| format!("{} since {}", one.route, one.first_seen);
    let mut lines: Vec<String> = removals.iter().map(line).collect();
    lines.sort_unstable();
    let digest = Sha256::digest(format!("{router}\n{}", lines.join("\n")));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}
