//! Semaphores for scarce resources, so that any number of tests can be started at the same time.
//!
//! Most tests wait for a cluster or a cloud, so the test program runs many more of them at a time than there are processors. A test that needs
//! a processor or memory takes a slot first, before its deadlines begin.

use std::sync::{Condvar, Mutex, PoisonError};

/// A number of slots.
#[derive(Debug)]
pub struct Slots {
    count: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

/// A slot, released when dropped.
#[must_use = "the slot is free again when this is dropped"]
#[derive(Debug)]
pub struct Slot(&'static Slots);

/// Concurrent starts of control planes: each takes seconds of every processor, and eight of them take minutes.
pub static STARTING_CONTROL_PLANES: Slots = Slots::new(2);
/// natgw's environments on a shared control plane: two hollow nodes, two proxies and natgw each.
pub static NATGW: Slots = Slots::new(16);
/// routegc's environments, which share one Neutron.
pub static ROUTEGC: Slots = Slots::new(6);
/// Elections on a shared control plane: contenders that have to renew a Lease in time.
pub static ELECTIONS: Slots = Slots::new(4);
/// Network-namespace labs: their tests are shell commands one after the other, which need a processor.
pub static LABS: Slots = Slots::new(3);
/// Python programs that a test drives.
pub static PYTHON: Slots = Slots::new(1);

impl Slots {
    /// A number of free slots.
    #[must_use]
    pub const fn new(count: usize) -> Slots {
        Slots { count, free: Mutex::new(count), freed: Condvar::new() }
    }

    /// How many there are, free or not.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Takes a slot; blocks the thread until one is free.
    pub fn take(&'static self) -> Slot {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(PoisonError::into_inner);
        }
        *free -= 1;
        Slot(self)
    }

    /// Takes a slot; waits until one is free.
    ///
    /// # Errors
    /// The runtime is shutting down.
    pub async fn wait(&'static self) -> anyhow::Result<Slot> {
        Ok(tokio::task::spawn_blocking(|| self.take()).await?)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn no_more_are_taken_than_there_are_and_each_is_given_back() {
        static TWO: Slots = Slots::new(2);
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let one = || async {
            let slot = TWO.wait().await.unwrap();
            let taken = TAKEN.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::task::yield_now().await;
            TAKEN.fetch_sub(1, Ordering::SeqCst);
            drop(slot);
            taken
        };
        let most = futures::future::join_all((0..100).map(|_| one())).await.into_iter().max();
        assert!(most <= Some(2), "{most:?}");
        let _both = (TWO.take(), TWO.take());
        assert_eq!(*TWO.free.lock().unwrap(), 0);
    }
}
