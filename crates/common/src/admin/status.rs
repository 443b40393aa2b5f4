//! The facts that the controllers of a process report on `/statusz`, and their heartbeats for `/livez`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Twice the slowest resync of any controller.
const STUCK_AFTER: Duration = Duration::from_secs(600);

/// The name on `/livez` until the first heartbeat of a controller.
const STARTING: &str = "start";

/// The text of `/statusz`, and the last heartbeat of each controller of this process. Clones share them.
#[derive(Clone, Debug)]
pub struct Status {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug)]
struct Inner {
    facts: BTreeMap<String, String>,
    heartbeats: BTreeMap<&'static str, Instant>,
}

impl Default for Status {
    fn default() -> Self {
        let heartbeats = BTreeMap::from([(STARTING, Instant::now())]);
        Status { inner: Arc::new(Mutex::new(Inner { facts: BTreeMap::new(), heartbeats })) }
    }
}

impl Status {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets one line; a later text for the same key replaces it.
    pub fn set(&self, key: impl Into<String>, text: impl Into<String>) {
        self.lock().facts.insert(key.into(), text.into());
    }

    /// Removes one line.
    pub fn remove(&self, key: &str) {
        self.lock().facts.remove(key);
    }

    /// Records that this controller of the process makes progress. While the process leads, each controller has to call
    /// it at least every five minutes, also when there is nothing to do: after ten minutes without a heartbeat `/livez`
    /// fails and names the controller.
    pub fn heartbeat(&self, controller: &'static str) {
        let mut inner = self.lock();
        inner.heartbeats.remove(STARTING);
        inner.heartbeats.insert(controller, Instant::now());
    }

    /// A controller has ended and sends no more heartbeats.
    pub fn ended(&self, controller: &'static str) {
        self.lock().heartbeats.remove(controller);
    }

    /// The process becomes the leader: every controller has its full time from now on.
    pub fn leading(&self) {
        let now = Instant::now();
        self.lock().heartbeats.values_mut().for_each(|last| *last = now);
    }

    /// For each controller the time since its last heartbeat where that is too long. A standby has none to send.
    pub(crate) fn heartbeats(&self, leading: bool) -> Vec<(&'static str, Option<Duration>)> {
        let stuck = |last: &Instant| Some(last.elapsed()).filter(|since| leading && *since > STUCK_AFTER);
        self.lock().heartbeats.iter().map(|(controller, last)| (*controller, stuck(last))).collect()
    }

    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        self.lock().facts.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LONG: Duration = STUCK_AFTER.saturating_add(Duration::from_secs(1));

    #[tokio::test(start_paused = true)]
    async fn only_a_leader_without_heartbeats_is_stuck() {
        let status = Status::default();
        tokio::time::advance(STUCK_AFTER).await;
        assert_eq!(status.heartbeats(true), [(STARTING, None)]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(status.heartbeats(true), [(STARTING, Some(TOO_LONG))]);
        assert_eq!(status.heartbeats(false), [(STARTING, None)]);
        status.leading();
        assert_eq!(status.heartbeats(true), [(STARTING, None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_controllers_the_stuck_one_is_named() {
        let status = Status::default();
        status.heartbeat("deorbit");
        status.clone().heartbeat("binding");
        tokio::time::advance(TOO_LONG).await;
        status.heartbeat("deorbit");
        assert_eq!(status.heartbeats(true), [("binding", Some(TOO_LONG)), ("deorbit", None)]);
        status.ended("binding");
        assert_eq!(status.heartbeats(true), [("deorbit", None)]);
    }

    #[test]
    fn facts_are_replaced_and_removed() {
        let status = Status::default();
        status.set("primary", "node-1");
        status.set("primary", "node-2");
        assert_eq!(status.facts(), BTreeMap::from([("primary".to_owned(), "node-2".to_owned())]));
        status.remove("primary");
        assert!(status.facts().is_empty());
    }
}
