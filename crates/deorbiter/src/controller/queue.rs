//! Which Deorbit is due when. Each is reconciled by one worker at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::api::deorbit::Deorbit;

use super::memo::Memo;
use super::reconcile::Key;

/// All Deorbits that are known.
#[derive(Default)]
pub struct Queue {
    entries: BTreeMap<Key, Entry>,
}

struct Entry {
    seen: Arc<Deorbit>,
    due: Option<Instant>,
    running: bool,
    memo: Option<Memo>,
}

impl Queue {
    /// Takes over what the cache has: what is new or has changed is due at once. Returns what is gone.
    pub fn follow(&mut self, all: &[Arc<Deorbit>], now: Instant) -> Vec<Key> {
        let mut gone: BTreeMap<Key, ()> = self.entries.keys().map(|key| (key.clone(), ())).collect();
        for deorbit in all {
            let key = (
                deorbit.metadata.namespace.clone().unwrap_or_default(),
                deorbit.metadata.name.clone().unwrap_or_default(),
            );
            gone.remove(&key);
            let entry = self.entries.entry(key).or_insert_with(|| Entry {
                seen: Arc::clone(deorbit),
                due: Some(now),
                running: false,
                memo: None,
            });
            if !is_same(&entry.seen, deorbit) {
                if entry.seen.metadata.uid != deorbit.metadata.uid {
                    entry.memo = None;
                }
                entry.due = Some(now);
                entry.memo.iter_mut().for_each(Memo::reconcile_next);
                entry.seen = Arc::clone(deorbit);
            }
        }
        let gone: Vec<Key> = gone
            .into_keys()
            .filter(|key| self.entries.get(key).is_some_and(|entry| !entry.running))
            .collect();
        for key in &gone {
            self.entries.remove(key);
        }
        gone
    }

    /// The one that is due for longest, for a worker.
    pub fn take(&mut self, now: Instant) -> Option<(Key, Option<Memo>)> {
        let waiting = self.entries.iter_mut().filter(|(_, entry)| !entry.running);
        let due = waiting.filter_map(|(key, entry)| Some((entry.due.filter(|due| *due <= now)?, key, entry)));
        let (_, key, entry) = due.min_by_key(|(due, _, _)| *due)?;
        entry.running = true;
        entry.due = None;
        Some((key.clone(), entry.memo.take()))
    }

    /// A worker is done with it.
    pub fn give_back(&mut self, key: Key, mut memo: Memo, requeue_after: Option<Duration>, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.running = false;
            // It may have changed meanwhile, and then it is due already.
            if entry.due.is_some() {
                memo.reconcile_next();
            }
            entry.memo = Some(memo);
            let requeue_after = requeue_after.map(|wait| now + wait);
            entry.due = match (entry.due, requeue_after) {
                (Some(due), Some(requeue_after)) => Some(due.min(requeue_after)),
                (due, requeue_after) => due.or(requeue_after),
            };
        }
    }

    /// When the next one is due that nobody works on.
    #[must_use]
    pub fn next_due(&self) -> Option<Instant> {
        self.entries.values().filter(|entry| !entry.running).filter_map(|entry| entry.due).min()
    }
}

/// Whether nothing changed that a reconcile looks at, but the status that it writes itself.
fn is_same(old: &Deorbit, new: &Deorbit) -> bool {
    let (a, b) = (&old.metadata, &new.metadata);
    a.uid == b.uid
        && a.generation == b.generation
        && a.deletion_timestamp == b.deletion_timestamp
        && a.annotations == b.annotations
        && a.finalizers == b.finalizers
}

#[cfg(test)]
mod tests {
    use common::api::deorbit::DeorbitSpec;

    use super::*;

    fn deorbit(name: &str, generation: i64) -> Arc<Deorbit> {
        let spec: DeorbitSpec = serde_json::from_value(serde_json::json!({"inCluster": true})).unwrap();
        let mut deorbit = Deorbit::new(name, spec);
        deorbit.metadata.namespace = Some("ns".into());
        deorbit.metadata.generation = Some(generation);
        Arc::new(deorbit)
    }

    #[test]
    fn one_is_walked_by_one_worker_and_a_change_meanwhile_is_not_lost() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        assert!(queue.follow(&[deorbit("a", 1), deorbit("b", 1)], now).is_empty());
        let (first, _) = queue.take(now).unwrap();
        let (second, _) = queue.take(now).unwrap();
        assert_ne!(first, second);
        assert!(queue.take(now).is_none(), "both are being reconciled");
        queue.follow(&[deorbit("a", 2), deorbit("b", 1)], now);
        assert!(queue.take(now).is_none(), "it changed, but it is still being reconciled");
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.follow(&[deorbit("a", 1)], now);
        assert_eq!(queue.follow(&[], now), [("ns".to_owned(), "a".to_owned())]);
        assert!(queue.take(now).is_none());
    }
}
