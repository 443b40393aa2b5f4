//! The only writer: rechecks each route, removes them, and compares the router in the response.
//!
//! The removal is idempotent: a route that is already gone is not removed again, and the response is the current router. Only the
//! given pairs of destination and next hop are removed. With `extraroute-atomic`, Neutron removes pairs. Without it, the whole list
//! is replaced under the revision at which it was read. Without revisions, the list is read again right before it is written, and
//! only if the policy allows that.

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

/// Attempts under a revision. An attempt fails only if another client changes the router between read and write.
const TRIES: usize = 3;

/// Checks whether the removals are still desired. It runs after the recheck, which can take minutes, and before each write: a policy
/// that is changed or deleted in the meantime takes effect.
#[derive(Clone)]
pub struct StillDesired(Arc<dyn Fn() -> BoxFuture<'static, Result<bool, String>> + Send + Sync>);

impl StillDesired {
    /// From a function that checks. It returns the reason if it cannot find out.
    pub fn new(check: impl Fn() -> BoxFuture<'static, Result<bool, String>> + Send + Sync + 'static) -> Self {
        StillDesired(Arc::new(check))
    }

    /// Whether the removals are still desired.
    ///
    /// # Errors
    /// This is unknown.
    pub async fn check(&self) -> Result<bool, String> {
        (self.0)().await
    }
}

impl fmt::Debug for StillDesired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StillDesired")
    }
}

/// Result of the removals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Removed, as the response shows.
    pub removed: Vec<Route>,
    /// Already gone at the recheck.
    pub gone: Vec<Route>,
    /// Not removed after the recheck, with the reason.
    pub skipped: Vec<(Route, String)>,
    /// Still in the response although they were removed: another client re-created them at the same time.
    pub recreated: Vec<Route>,
    /// Number of routes that the router has now.
    pub left: usize,
}

/// Why nothing was removed, as far as is known. The message says what, why, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum RemovalError {
    /// Neutron could not be read again.
    #[error("the recheck before the removal failed: {0}")]
    Recheck(Error),
    /// The router's networks and ports could not be read completely again.
    #[error("the recheck before the removal failed: {0}")]
    Observe(ObserveError),
    /// The Nodes could not be listed again.
    #[error("the recheck before the removal failed: cannot list the cluster's Nodes: {0}")]
    Nodes(String),
    /// Another route of the router is not valid, so Neutron refuses every change.
    #[error(
        "Neutron refuses every change of this router while it has routes whose next hop is on none of its networks: {}; remove them \
         (openstack router unset --route) or attach their network: {cause}",
        named(invalid, *hidden)
    )]
    InvalidRoutes {
        /// The invalid routes among those that stay; one of these if `hidden`.
        invalid: Vec<Route>,
        /// Whether the router is also attached to a network that is not visible to us, such as that of its gateway.
        hidden: bool,
        /// Neutron's error.
        cause: Error,
    },
    /// Other clients change the router all the time.
    #[error(
        "another client changed the router each time: all {TRIES} attempts under the revision that was read came too late"
    )]
    Contention,
    /// [`StillDesired`] returned false: nothing was sent to Neutron.
    #[error("the policy was changed or deleted since the decision: nothing was removed")]
    PolicyChanged,
    /// [`StillDesired`] could not find out: nothing was sent to Neutron.
    #[error("the last check before the removal failed: {0}; nothing was removed")]
    Unchecked(String),
    /// Neutron can neither remove pairs nor compare revisions.
    #[error(
        "this Neutron has neither extraroute-atomic nor revision-if-match: the whole list would be replaced, and a route that another \
         client adds at the same time would be lost; safety.allowUnsafeUpdate: true accepts this"
    )]
    NoLock,
    /// Neutron refused, or did not respond: then it is not known whether it acted.
    #[error("cannot remove the routes: {0}")]
    Refused(Error),
}

/// The routes for which Neutron refuses every change, as far as they are visible.
fn named(invalid: &[Route], hidden: bool) -> String {
    match (invalid, hidden) {
        ([], _) => "one that is not visible to this project".to_owned(),
        (_, true) => format!("one of: {}", route::list(invalid)),
        (_, false) => route::list(invalid),
    }
}

impl RemovalError {
    /// One CamelCase word of a closed set: the reason of a condition.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            RemovalError::Recheck(cause) => ObserveError::code_of(cause),
            RemovalError::Observe(error) => error.code(),
            RemovalError::Nodes(_) => "NodesUnavailable",
            RemovalError::InvalidRoutes { .. } => "RouterHasInvalidRoutes",
            RemovalError::Contention => "RouterChanging",
            RemovalError::PolicyChanged => "PolicyChanged",
            RemovalError::Unchecked(_) => "KubernetesUnavailable",
            RemovalError::NoLock => "NoSafeUpdate",
            RemovalError::Refused(cause) if cause.is_forbidden() => "Forbidden",
            RemovalError::Refused(_) => "RemovalFailed",
        }
    }

    /// Whether the router certainly was not changed: nothing was sent to Neutron, or it refused. After a missing response or a server
    /// error this is not known.
    #[must_use]
    pub fn changed_nothing(&self) -> bool {
        match self {
            // 408 may come from a proxy, after Neutron has acted.
            RemovalError::Refused(cause) => {
                cause.status().is_some_and(|status| (400..500).contains(&status) && status != 408)
            }
            _ => true,
        }
    }
}

/// Removes the routes.
///
/// `snapshot` is the state of the decision. The router, all ports of its networks and `nodes` are read again before the removal.
/// `desired` is checked before each write; None if the removals cannot be withdrawn.
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
        let mut router = cloud.router(&snapshot.router).await.map_err(RemovalError::Recheck)?;
        let rechecked = recheck::all(cloud, policy, snapshot, &router, removals, nodes).await?;
        let recheck::Rechecked { mut orphaned, gone, skipped, seen } = rechecked;
        let revision = router.revision_number.filter(|_| lock);
        let mut applied = Applied { gone, skipped, left: router.routes.len(), ..Applied::default() };
        if orphaned.is_empty() {
            return Ok(applied);
        }
        ensure_still_desired(desired).await?;
        if !atomic && revision.is_none() {
            if !policy.safety.allow_unsafe_update {
                return Err(RemovalError::NoLock);
            }
            // The recheck may have taken minutes, and nothing protects what other clients wrote in the meantime.
            router = cloud.router(&snapshot.router).await.map_err(RemovalError::Recheck)?;
            let (still, gone) = split(&router, orphaned);
            orphaned = still;
            applied.gone.extend(gone);
            applied.left = router.routes.len();
            if orphaned.is_empty() {
                return Ok(applied);
            }
        }
        // Pairs are removed atomically, so the revision only ensures that the recheck is about the current router. The last attempt
        // omits it, so that a client that writes all the time cannot block the removal.
        let revision = revision.filter(|_| !(atomic && last));
        match send(cloud, &router, &orphaned, atomic, revision).await {
            Ok(after) => return Ok(compared(applied, orphaned, after)),
            Err(error) if error.is_precondition_failed() => {}
            Err(cause) if cause.kind() == Some("InvalidRoutes") => {
                let mut invalid = super::plan::classify::on_no_visible_subnet(&seen);
                invalid.retain(|route| !orphaned.contains(route));
                return Err(RemovalError::InvalidRoutes { invalid, hidden: seen.hidden, cause });
            }
            Err(cause) => return Err(RemovalError::Refused(cause)),
        }
    }
    Err(RemovalError::Contention)
}

/// Removes exactly these pairs from the router, whatever has their next hops: the caller owns them. A pair that is already gone is
/// no error.
///
/// # Errors
/// As named; no other route was removed in any case.
pub async fn remove(cloud: &Cloud, router: &str, pairs: &[Route]) -> Result<Applied, RemovalError> {
    let extensions = cloud.extensions().await.map_err(RemovalError::Recheck)?;
    let atomic = extensions.contains("extraroute-atomic");
    let lock = extensions.contains("revision-if-match");
    for _ in 0..TRIES {
        let router = cloud.router(router).await.map_err(RemovalError::Recheck)?;
        let (there, gone) = split(&router, pairs.to_vec());
        let applied = Applied { gone, left: router.routes.len(), ..Applied::default() };
        if there.is_empty() {
            return Ok(applied);
        }
        // Exact pairs are removed in any state of the router.
        let revision = router.revision_number.filter(|_| lock && !atomic);
        if !atomic && revision.is_none() {
            return Err(RemovalError::NoLock);
        }
        match send(cloud, &router, &there, atomic, revision).await {
            Ok(after) => return Ok(compared(applied, there, after)),
            Err(error) if error.is_precondition_failed() => {}
            Err(cause) if cause.kind() == Some("InvalidRoutes") => {
                return Err(RemovalError::InvalidRoutes { invalid: Vec::new(), hidden: true, cause });
            }
            Err(cause) => return Err(RemovalError::Refused(cause)),
        }
    }
    Err(RemovalError::Contention)
}

async fn ensure_still_desired(desired: Option<&StillDesired>) -> Result<(), RemovalError> {
    let Some(desired) = desired else { return Ok(()) };
    match desired.check().await {
        Ok(true) => Ok(()),
        Ok(false) => Err(RemovalError::PolicyChanged),
        Err(why) => Err(RemovalError::Unchecked(why)),
    }
}

/// Those of the routes that the router has, and the others.
fn split(router: &Router, routes: Vec<Route>) -> (Vec<Route>, Vec<Route>) {
    routes.into_iter().partition(|route| router.routes.iter().any(|one| Route::from(one.clone()) == *route))
}

/// Sends one removal: of the pairs, if Neutron can remove pairs, or of the whole list without them. With `revision`, Neutron refuses it if
/// the router has changed.
async fn send(
    cloud: &Cloud,
    router: &Router,
    routes: &[Route],
    atomic: bool,
    revision: Option<u64>,
) -> Result<Router, Error> {
    if atomic {
        let pairs: Vec<_> = routes.iter().map(Into::into).collect();
        cloud.remove_extraroutes(&router.id, &pairs, revision).await
    } else {
        cloud.replace_routes(&router.id, &without(router, routes), revision).await
    }
}

/// The router's list without these routes.
fn without(router: &Router, orphaned: &[Route]) -> Vec<openstack::Route> {
    let keep = |route: &&openstack::Route| !orphaned.contains(&Route::from((*route).clone()));
    router.routes.iter().filter(keep).cloned().collect()
}

/// Status 200 does not prove that a route is gone: the response shows the routes of the router.
fn compared(applied: Applied, asked: Vec<Route>, after: Router) -> Applied {
    let left = after.routes.len();
    let now: Vec<Route> = after.routes.into_iter().map(Route::from).collect();
    let (recreated, removed) = asked.into_iter().partition(|route| now.contains(route));
    Applied { removed, recreated, left, ..applied }
}
