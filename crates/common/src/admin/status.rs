//! What a controller says of itself on `/statusz`, and its heartbeat for `/livez`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Twice the slowest resync of any controller: a leader that began no pass for so long is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(600);

/// Facts for a person, and the time of the last pass. Clones share them.
#[derive(Clone, Debug)]
pub struct Status {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    facts: BTreeMap<String, String>,
    beat: Instant,
}

impl Default for Status {
    fn default() -> Self {
        Status { inner: Arc::new(Mutex::new(Inner { facts: BTreeMap::new(), beat: Instant::now() })) }
    }
}

impl Status {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says one thing; a later text for the same key replaces it.
    pub fn set(&self, key: impl Into<String>, text: impl Into<String>) {
        self.lock().facts.insert(key.into(), text.into());
    }

    /// Takes one thing back.
    pub fn remove(&self, key: &str) {
        self.lock().facts.remove(key);
    }

    /// A pass begins. A leader that has not done so for ten minutes is restarted by its kubelet.
    pub fn heartbeat(&self) {
        self.lock().beat = Instant::now();
    }

    /// For how long a leader has begun no pass, where that is too long. A standby begins none.
    pub(super) fn stuck(&self, leading: bool) -> Option<Duration> {
        Some(self.lock().beat.elapsed()).filter(|since| leading && *since > STUCK_AFTER)
    }

    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        self.lock().facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_that_begins_no_pass_is_stuck() {
        let status = Status::default();
        tokio::time::advance(STUCK_AFTER).await;
        assert_eq!(status.stuck(true), None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(status.stuck(true), Some(STUCK_AFTER + Duration::from_secs(1)));
        assert_eq!(status.stuck(false), None);
        status.clone().heartbeat();
        assert_eq!(status.stuck(true), None);
    }

    #[test]
    fn facts_are_replaced_and_taken_back() {
        let status = Status::default();
        status.set("primary", "node-1");
        status.set("primary", "node-2");
        assert_eq!(status.facts(), BTreeMap::from([("primary".to_owned(), "node-2".to_owned())]));
        status.remove("primary");
        assert!(status.facts().is_empty());
    }
}
