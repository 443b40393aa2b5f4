//! What a controller says of itself on `/statusz`, and its heartbeat for `/livez`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

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
    pub fn beat(&self) {
        self.lock().beat = Instant::now();
    }

    pub(super) fn since_beat(&self) -> Duration {
        self.lock().beat.elapsed()
    }

    pub(super) fn facts(&self) -> BTreeMap<String, String> {
        self.lock().facts.clone()
    }
}
