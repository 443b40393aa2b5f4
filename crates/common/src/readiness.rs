//! The named checks of `/readyz`.
//!
//! A process is ready once every check has succeeded once: its caches have synced. It does not have to lead: a standby must be
//! ready, otherwise a rollout and a PodDisruptionBudget wait for each other. A later failure does not take readiness
//! away: a restart of the API server would remove every endpoint of every controller at once, and a restart of the
//! controller would not help. `/readyz?verbose` shows such a failure, and the watch metrics count it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Checks = BTreeMap<String, State>;

/// The checks of one process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<Mutex<Checks>>,
}

/// One check. It begins as not ready, with the reason `not started`.
#[derive(Clone, Debug)]
pub struct Check {
    name: String,
    checks: Arc<Mutex<Checks>>,
}

/// The state of one check, as `/readyz?verbose` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Whether it has succeeded at least once.
    pub ready: bool,
    /// The last failure, until the next success.
    pub problem: Option<String>,
}

fn lock(checks: &Mutex<Checks>) -> MutexGuard<'_, Checks> {
    // A panic while the lock is held cannot leave the map half written: each change is one assignment.
    checks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readiness {
    /// Adds a check. An existing check of the same name starts again as not ready.
    #[must_use]
    pub fn check(&self, name: &str) -> Check {
        let state = State { ready: false, problem: Some("not started".to_owned()) };
        lock(&self.checks).insert(name.to_owned(), state);
        Check { name: name.to_owned(), checks: Arc::clone(&self.checks) }
    }

    /// Whether there is at least one check and each has succeeded once. Without any check the controller has not yet started.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        is_ready(&self.report())
    }

    /// Every check with its state, by name.
    #[must_use]
    pub fn report(&self) -> Vec<(String, State)> {
        lock(&self.checks).iter().map(|(name, state)| (name.clone(), state.clone())).collect()
    }
}

/// The rule of [`Readiness::is_ready`], for a report that is printed too: a check that changes meanwhile must not give a page that
/// contradicts itself.
pub(crate) fn is_ready(report: &[(String, State)]) -> bool {
    !report.is_empty() && report.iter().all(|(_, state)| state.ready)
}

impl Check {
    /// Records a success: ready from now on, and without a problem.
    pub fn ready(&self) {
        lock(&self.checks).insert(self.name.clone(), State { ready: true, problem: None });
    }

    /// Records a failure for `/readyz?verbose`. A check that was ready stays ready.
    pub fn failing(&self, problem: impl Into<String>) {
        lock(&self.checks).entry(self.name.clone()).or_default().problem = Some(problem.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_after_every_check_has_succeeded() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready(), "no check yet");
        let (nodes, jobs) = (readiness.check("nodes"), readiness.check("jobs"));
        nodes.ready();
        assert!(!readiness.is_ready());
        let not_started = State { ready: false, problem: Some("not started".to_owned()) };
        assert_eq!(readiness.report()[0], ("jobs".to_owned(), not_started));
        jobs.failing("403");
        assert!(!readiness.is_ready(), "a failure before the first success");
        jobs.ready();
        assert!(readiness.is_ready());
    }

    #[test]
    fn a_failure_after_the_first_success_is_reported_and_does_not_take_readiness_away() {
        let readiness = Readiness::default();
        let nodes = readiness.check("nodes");
        nodes.ready();
        nodes.failing("connection refused");
        assert!(readiness.is_ready());
        let failing = State { ready: true, problem: Some("connection refused".to_owned()) };
        assert_eq!(readiness.report(), [("nodes".to_owned(), failing)]);
        nodes.ready();
        assert_eq!(readiness.report(), [("nodes".to_owned(), State { ready: true, problem: None })]);
    }
}
