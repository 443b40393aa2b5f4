//! Leader election through a `coordination.k8s.io/v1` Lease, with client-go's rules.
//!
//! ```text
//!   settings  names and times, and client-go's rules for them
//!   record    what the Lease says: holder, times, transitions
//!   machine   pure: every decision; no kube, no tokio, no clock
//!   lease     thin shell: GET, POST, PUT and timers around the machine
//! ```
//!
//! # What is guaranteed
//!
//! At no time does [`Leadership::is_leading`] return `true` in two processes, as long as
//!
//! * the clocks of any two processes run at rates whose ratio is at most `lease_duration / renew_deadline` (1.5 with the
//!   defaults). What a wall clock shows does not matter: a time in the Lease is written for people and never compared
//!   with a clock of ours, only a *change* of the record counts, from when it was seen here;
//! * no person deletes the Lease or clears its holder while its leader lives (the same is true for client-go);
//! * each process has an identity of its own ([`identity`]).
//!
//! client-go starts a leader's time when the answer to its renewal arrives, and gives it the wait before the next round on
//! top: 12 s and a round trip with the defaults. Here it ends [`Settings::renew_deadline`] after the last accepted renewal
//! was *sent*. The server cannot have accepted a renewal before it was sent, and no contender can have observed it before it was
//! accepted; so a contender that waits its `lease_duration` from then on starts after the old leader has ended, however late
//! responses are, and with no help from the old leader: it may be paused, cut off or slow.
//!
//! No lease can guarantee that a write reaches its server while the sender still leads: it may arrive later. Each write
//! of a controller therefore asks `is_leading` first, has a deadline, and is repeatable. A virtual machine that is
//! suspended stops its clock: that is a clock rate of zero, beyond the ratio above.
//!
//! # Where this differs from client-go
//!
//! Always on the safe side: the end of leadership as above; a leader that reads another's name in the Lease has lost at
//! once, not at its deadline; a release compares the record that it has just read, and never empties another's; after a
//! *lost* lease nothing is released, since work may be under way; a new resourceVersion counts as a change even where the
//! content is the same; durations that are no whole seconds are rounded up in the record, not down.
//!
//! client-go as the *other* contender compares records by whole seconds (`leaderelection.go`, `metav1.Time` in its raw record):
//! a renewal within the second of the last one that it saw is no change to it, so it may take over up to a second before
//! `lease_duration` is over. The five seconds between 15 s and 10 s cover that.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

mod lease;
pub mod machine;
pub mod record;
pub mod settings;

pub use settings::{Settings, identity};

/// How an election ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The lease was led and could not be renewed in time, or another took it. The process should end: what it was doing
    /// may already be done by its successor.
    Lost,
    /// Asked to stop; the lease was released if it was ours.
    Stopped,
}

/// The state of the election as its task last knew it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct View {
    /// identity of the holder as last observed; empty without a holder, and before the first read
    holder: String,
    /// leading until then
    until: Option<Instant>,
    ended: Option<Ended>,
}

impl View {
    fn is_leading(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() < until)
    }
}

/// Whether this process leads: asked before each reconciliation and each write.
///
/// A handle; clones read the same election. It only reads, and stays correct when the task that drives the election is stuck
/// or has ended: leadership ends by the clock, without any message.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// None: no election takes place, see [`Leadership::always`]
    view: Option<watch::Receiver<View>>,
    step_down: Option<mpsc::Sender<Duration>>,
}

impl Leadership {
    /// Leads without an election (`--leader-elect=false`).
    #[must_use]
    pub fn always() -> Leadership {
        Leadership { view: None, step_down: None }
    }

    /// Never leads: for tests.
    #[must_use]
    pub fn never() -> Leadership {
        Leadership { view: Some(watch::channel(View::default()).1), step_down: None }
    }

    /// True only while the last accepted renewal was sent less than `renew_deadline` ago. Reads a clock; never waits.
    #[must_use]
    pub fn is_leading(&self) -> bool {
        self.view.as_ref().is_none_or(|view| view.borrow().is_leading())
    }

    /// Identity in the Lease when it was last read or written; empty where it has no holder. For people.
    #[must_use]
    pub fn holder(&self) -> String {
        self.view
            .as_ref()
            .map_or_else(|| "none: leader election is off".to_owned(), |view| view.borrow().holder.clone())
    }

    /// Waits until this process leads; false where the election ends before that. Dropping the future is harmless.
    pub async fn acquired(&self) -> bool {
        let Some(view) = &self.view else { return true };
        let mut view = view.clone();
        match view.wait_for(|view| view.is_leading() || view.ended.is_some()).await {
            Ok(view) => view.is_leading(),
            Err(_) => false,
        }
    }

    /// Gives the lease up and takes part in the election again after `pause`: for a leader that cannot do its work where
    /// it runs, while another replica may be able to. Returns once this process no longer leads, and before the lease is
    /// released; [`Leadership::acquired`] then waits for the next time. Call it after all work that needs leadership is done. It
    /// does nothing where no election takes place.
    pub async fn step_down(&self, pause: Duration) {
        let (Some(view), Some(step_down)) = (&self.view, &self.step_down) else { return };
        if step_down.send(pause).await.is_ok() {
            // An error means that the election has ended, and the leadership with it.
            let mut view = view.clone();
            let _ended = view.wait_for(|view| view.until.is_none()).await;
        }
    }
}

/// Takes part in the election for the Lease that `settings` names.
///
/// `client` should make no retries of its own: a call that is repeated in silence only eats the time of the next one.
/// Nothing is sent before the returned future is polled; it ends by [`Ended::Lost`], or by [`Ended::Stopped`] after
/// `release` was cancelled. Cancel `release` **after** all work that needs leadership is done: the lease is renewed up
/// to then, and given up at once. Dropping the future instead stops renewing and releases nothing.
///
/// `on_change` is called with `false` at first, `true` on becoming leader, `false` when that ends.
///
/// # Errors
/// What is wrong with `settings`, see [`Settings::validate`].
pub fn run(
    client: kube::Client,
    settings: Settings,
    release: CancellationToken,
    on_change: impl Fn(bool) + Send + 'static,
) -> Result<(Leadership, impl Future<Output = Ended> + Send + 'static), String> {
    settings.validate()?;
    let (sender, receiver) = watch::channel(View::default());
    let (step_down, step_downs) = mpsc::channel(1);
    let election = lease::Election::new(client, Arc::new(settings), sender, on_change);
    Ok((Leadership { view: Some(receiver), step_down: Some(step_down) }, election.run(release, step_downs)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_election_everybody_leads() {
        assert!(Leadership::always().is_leading());
        assert_eq!(Leadership::always().holder(), "none: leader election is off");
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_by_the_clock_when_the_election_task_is_stuck() {
        let view =
            View { holder: "a".into(), until: Some(Instant::now() + Duration::from_secs(10)), ended: None };
        let (sender, receiver) = watch::channel(view);
        let leadership = Leadership { view: Some(receiver), step_down: None };
        assert!(leadership.acquired().await);
        drop(sender);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert!(leadership.is_leading(), "one millisecond is left");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(!leadership.is_leading());
        assert!(!leadership.acquired().await, "the task is gone: it will never lead again");
    }
}
