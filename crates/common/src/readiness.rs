//! What `/readyz` asks: named checks, each green or red with a reason.
//!
//! Ready means that the caches are filled, not that this process leads: a standby must be ready, else a rollout and a
//! disruption budget wait for each other for ever.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type Checks = BTreeMap<String, Result<(), String>>;

/// The checks of one process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    checks: Arc<Mutex<Checks>>,
}

/// One check. It starts red, as `not started`.
#[derive(Clone, Debug)]
pub struct Check {
    name: String,
    checks: Arc<Mutex<Checks>>,
}

fn lock(checks: &Mutex<Checks>) -> MutexGuard<'_, Checks> {
    // A panic while the lock is held cannot leave the map half written: each change is one insert.
    checks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Readiness {
    /// Adds a check. One of the same name is taken over and starts red again.
    #[must_use]
    pub fn check(&self, name: &str) -> Check {
        let check = Check { name: name.to_owned(), checks: Arc::clone(&self.checks) };
        check.failing("not started");
        check
    }

    /// Whether there is at least one check and all are green: a process that has not said yet what it needs is not ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        let checks = lock(&self.checks);
        !checks.is_empty() && checks.values().all(Result::is_ok)
    }

    /// Every check with its state, by name.
    #[must_use]
    pub fn report(&self) -> Vec<(String, Result<(), String>)> {
        lock(&self.checks).iter().map(|(name, state)| (name.clone(), state.clone())).collect()
    }
}

impl Check {
    /// Turns green.
    pub fn ready(&self) {
        lock(&self.checks).insert(self.name.clone(), Ok(()));
    }

    /// Turns red; `why` is what a person reads in `/readyz?verbose`.
    pub fn failing(&self, why: impl Into<String>) {
        lock(&self.checks).insert(self.name.clone(), Err(why.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_only_when_every_check_is_green() {
        let readiness = Readiness::default();
        assert!(!readiness.is_ready(), "no check yet");
        let (nodes, jobs) = (readiness.check("nodes"), readiness.check("jobs"));
        nodes.ready();
        assert!(!readiness.is_ready());
        assert_eq!(readiness.report()[0], ("jobs".to_owned(), Err("not started".to_owned())));
        jobs.ready();
        assert!(readiness.is_ready());
        nodes.failing("403");
        assert!(!readiness.is_ready());
        assert_eq!(readiness.report()[1], ("nodes".to_owned(), Err("403".to_owned())));
    }
}
