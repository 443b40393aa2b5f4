//! The only writer: removes routes, after a last look at each, and compares what the router then has.
//!
//! Repeatable: what is gone already is not asked for, and the answer is the router as it is, so a second try finds nothing to
//! do. Nothing but the named pairs of destination and next hop is ever removed: where Neutron removes pairs
//! (`extraroute-atomic`), by itself; where it only takes whole lists, because the list is written under the revision that it was
//! read at. Where it has no revisions either, the list is read once more right before it is written, if that is allowed at all.

mod recheck;

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::observe::{NodeSource, ObserveError};
use super::plan::Removal;
use super::policy::Policy;
use super::route::{self, Route};
use super::snapshot::Snapshot;
use crate::cloud::openstack::{self, Cloud, Error, Router};

/// Tries under a revision. Each loses only to somebody else who changed the router in the second between.
const TRIES: usize = 3;

/// Whether the removals are still wanted. Asked after the last look and before each write, for that look may take minutes: whoever
/// stops the one who decided is heard until then.
#[derive(Clone)]
pub struct StillDesired(Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>);

impl StillDesired {
    /// Of a function that finds out; where it cannot, it says no.
    pub fn new(ask: impl Fn() -> BoxFuture<'static, bool> + Send + Sync + 'static) -> Self {
        StillDesired(Arc::new(ask))
    }

    /// Whether they are, now.
    pub async fn ask(&self) -> bool {
        (self.0)().await
    }
}

impl fmt::Debug for StillDesired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StillWanted")
    }
}

/// What became of the removals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Removed by us, as the answer shows.
    pub removed: Vec<Route>,
    /// Gone before we came.
    pub gone: Vec<Route>,
    /// Not removed after the last look, and why.
    pub skipped: Vec<(Route, String)>,
    /// Still there in the answer although they were removed: somebody put them back in that instant.
    pub recreated: Vec<Route>,
    /// How many routes the router has now.
    pub left: usize,
}

/// Why nothing was removed, as far as is known. The message is complete: what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// Neutron could not be asked again.
    #[error("the last look before the removal failed: {0}")]
    Recheck(Error),
    /// The router's neighbourhood could not be seen whole again.
    #[error("the last look before the removal failed: {0}")]
    Observe(ObserveError),
    /// The Nodes could not be listed again.
    #[error("the last look before the removal failed: the cluster's Nodes cannot be listed: {0}")]
    Nodes(String),
    /// Another route of the router is not valid, so Neutron refuses every change.
    #[error(
        "Neutron refuses every change of this router while it has routes whose next hop is on none of its networks: {}; remove them \
         (openstack router unset --route) or attach their network: {cause}",
        named(invalid, *hidden)
    )]
    InvalidRoutes {
        /// Which, out of those that stay; if `hidden`, one of these.
        invalid: Vec<Route>,
        /// Whether the router is also attached to something that is not shown to us, such as the network of its gateway.
        hidden: bool,
        /// Neutron's answer.
        cause: Error,
    },
    /// Others change the router all the time.
    #[error(
        "somebody else changed the router each time: {TRIES} tries under the revision that was read all came too late"
    )]
    Contention,
    /// [`StillDesired`] said no: Neutron was not asked to remove anything.
    #[error(
        "the policy has changed since the decision, is gone, or cannot be read again: nothing was removed"
    )]
    PolicyChanged,
    /// Neutron can neither remove pairs nor lock.
    #[error(
        "this Neutron has neither extraroute-atomic nor revision-if-match: the whole list would be written, and a route that somebody \
         adds in that second would be lost; safety.allowUnsafeUpdate: true accepts that"
    )]
    NoLock,
    /// Neutron refused, or no answer came: then it is not known whether it acted.
    #[error("the routes cannot be removed: {0}")]
    Refused(Error),
}

/// The routes for which Neutron refuses every change, as far as it can be seen which.
fn named(invalid: &[Route], hidden: bool) -> String {
    match (invalid, hidden) {
        ([], _) => "one that is not shown to us".to_owned(),
        (_, true) => format!("one of: {}", route::list(invalid)),
        (_, false) => route::list(invalid),
    }
}

impl RemovalError {
    /// One CamelCase word of a closed set: the reason of a condition.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            RemovalError::Recheck(_) => "PartialInventory",
            RemovalError::Observe(error) => error.code(),
            RemovalError::Nodes(_) => "NodesUnavailable",
            RemovalError::InvalidRoutes { .. } => "RouterHasInvalidRoutes",
            RemovalError::Contention => "RouterChanging",
            RemovalError::PolicyChanged => "PolicyChanged",
            RemovalError::NoLock => "NoSafeUpdate",
            RemovalError::Refused(cause) if cause.is_forbidden() => "Forbidden",
            RemovalError::Refused(_) => "RemovalFailed",
        }
    }

    /// Whether it is certain that the router was not changed: Neutron was not asked to, or said no. An answer that did not come, or
    /// that is an error of its own, leaves that open.
    #[must_use]
    pub fn changed_nothing(&self) -> bool {
        match self {
            // 408 may come from a proxy in between, and later than Neutron's deed.
            RemovalError::Refused(cause) => {
                cause.status().is_some_and(|status| (400..500).contains(&status) && status != 408)
            }
            _ => true,
        }
    }
}

/// Removes the routes.
///
/// `snapshot` is what they were decided on; the router, all ports of its networks and `nodes` are read again before. `desired` has
/// the last word before each write; None: nobody takes the removals back.
///
/// # Errors
/// As named; nothing but the given routes was removed in any case.
pub async fn apply(
    cloud: &Cloud,
    policy: &Policy,
    snapshot: &Snapshot,
    removals: &[Removal],
    nodes: Option<&NodeSource>,
    desired: Option<&StillDesired>,
) -> Result<Applied, RemovalError> {
    let extensions = cloud.extensions().await.map_err(RemovalError::Recheck)?;
    let atomic = extensions.contains("extraroute-atomic");
    let lock = extensions.contains("revision-if-match");
    for last in [false, false, true] {
        let router = cloud.router(&snapshot.router).await.map_err(RemovalError::Recheck)?;
        let rechecked = recheck::all(cloud, policy, snapshot, &router, removals, nodes).await?;
        let recheck::Rechecked { mut orphaned, gone, skipped, seen } = rechecked;
        let revision = router.revision_number.filter(|_| lock);
        let mut applied = Applied { gone, skipped, left: router.routes.len(), ..Applied::default() };
        if orphaned.is_empty() {
            return Ok(applied);
        }
        ensure_still_desired(desired).await?;
        let answer = if atomic {
            let pairs: Vec<_> = orphaned.iter().map(Into::into).collect();
            // Pairs are removed by themselves, so the lock only says that the last look is of the router as it is. Against
            // somebody who never stops writing, the last try does without.
            cloud.remove_extraroutes(&router.id, &pairs, revision.filter(|_| !last)).await
        } else if revision.is_some() {
            cloud.replace_routes(&router.id, &without(&router, &orphaned), revision).await
        } else if policy.allow_unsafe_update {
            // The last look may have taken minutes, and nothing guards what others have written meanwhile.
            let router = cloud.router(&snapshot.router).await.map_err(RemovalError::Recheck)?;
            let there = |route: &Route| router.routes.iter().any(|one| Route::from(one.clone()) == *route);
            let (still, gone): (Vec<_>, Vec<_>) = orphaned.into_iter().partition(there);
            orphaned = still;
            applied.gone.extend(gone);
            applied.left = router.routes.len();
            if orphaned.is_empty() {
                return Ok(applied);
            }
            cloud.replace_routes(&router.id, &without(&router, &orphaned), None).await
        } else {
            return Err(RemovalError::NoLock);
        };
        match answer {
            Ok(after) => return Ok(compared(applied, orphaned, after)),
            Err(error) if error.is_precondition_failed() => {}
            Err(cause) if cause.kind() == Some("InvalidRoutes") => {
                let mut invalid = super::plan::classify::out_of_sight(&seen);
                invalid.retain(|route| !orphaned.contains(route));
                return Err(RemovalError::InvalidRoutes { invalid, hidden: seen.hidden, cause });
            }
            Err(cause) => return Err(RemovalError::Refused(cause)),
        }
    }
    Err(RemovalError::Contention)
}

async fn ensure_still_desired(desired: Option<&StillDesired>) -> Result<(), RemovalError> {
    let Some(desired) = desired else { return Ok(()) };
    if desired.ask().await { Ok(()) } else { Err(RemovalError::PolicyChanged) }
}

/// The router's list without these routes.
fn without(router: &Router, orphaned: &[Route]) -> Vec<openstack::Route> {
    let keep = |route: &&openstack::Route| !orphaned.contains(&Route::from((*route).clone()));
    router.routes.iter().filter(keep).cloned().collect()
}

/// 200 does not prove that a route is gone: the answer shows what the router has.
fn compared(applied: Applied, asked: Vec<Route>, after: Router) -> Applied {
    let left = after.routes.len();
    let now: Vec<Route> = after.routes.into_iter().map(Route::from).collect();
    let (recreated, removed) = asked.into_iter().partition(|route| now.contains(route));
    Applied { removed, recreated, left, ..applied }
}
