//! Which policy's turn it is. No clock of its own: times are passed in.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::error::Error;
use crate::home::Home;

/// After a Node has gone: the rest of a pool that is deleted goes within it, and so do most servers.
const SETTLE: Duration = Duration::from_secs(2);

/// Between a pass and the next one that Nodes ask for: a cluster that shrinks for an hour is no reason to ask the cloud more often
/// than any policy may.
const QUIET: Duration = Duration::from_secs(10);

/// After a failure; doubled with each further one. A cloud's API that restarts takes longer than this.
const FIRST_WAIT: Duration = Duration::from_secs(5);

/// The longest wait after a failure, however long the interval: RoutegcPassesFailing looks for failures in half an hour.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// What makes a policy another one: a pass is made at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Mark {
    pub uid: String,
    pub generation: Option<i64>,
    pub allow: Option<String>,
    pub conflict: Option<String>,
}

#[derive(Debug)]
struct Entry {
    mark: Mark,
    /// None while a pass runs, or when there is none to come.
    due: Option<Instant>,
    running: bool,
    /// It changed while its pass ran.
    again: bool,
    /// A Node went while its pass ran.
    woken: bool,
    /// When its last pass ended.
    ended: Option<Instant>,
    failures: u32,
}

impl Entry {
    fn due(mark: Mark, now: Instant) -> Entry {
        Entry { mark, due: Some(now), running: false, again: false, woken: false, ended: None, failures: 0 }
    }

    /// A Node has gone: the next pass is soon, unless it is sooner anyway, or the last one failed and is tried again in its time.
    fn wake(&mut self, now: Instant) {
        let quiet = self.ended.map_or(now, |ended| ended + QUIET);
        let soon = quiet.max(now + SETTLE);
        if self.failures == 0 {
            self.due = self.due.map(|due| due.min(soon));
        }
    }
}

/// The policies and when each is due.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: BTreeMap<Home, Entry>,
}

impl Schedule {
    /// Takes over which policies there are: new and changed ones are due now, others are forgotten.
    pub fn wanted(&mut self, wanted: BTreeMap<Home, Mark>, now: Instant) {
        self.entries.retain(|home, _| wanted.contains_key(home));
        for (home, mark) in wanted {
            match self.entries.get_mut(&home) {
                Some(entry) if entry.mark == mark => {}
                Some(entry) => {
                    entry.mark = mark;
                    entry.failures = 0;
                    if entry.running {
                        entry.again = true;
                    } else {
                        entry.due = Some(now);
                    }
                }
                None => {
                    self.entries.insert(home, Entry::due(mark, now));
                }
            }
        }
    }

    /// The policy that has been due for longest; its pass begins.
    pub fn next(&mut self, now: Instant) -> Option<Home> {
        let due = |entry: &Entry| entry.due.filter(|due| *due <= now);
        let (home, entry) = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| due(entry).is_some())
            .min_by_key(|(_, entry)| entry.due)?;
        entry.due = None;
        entry.running = true;
        Some(home.clone())
    }

    /// A Node of the policy's cluster has gone.
    pub fn wake(&mut self, home: &Home, now: Instant) {
        let Some(entry) = self.entries.get_mut(home) else { return };
        if entry.running {
            entry.woken = true;
        } else {
            entry.wake(now);
        }
    }

    /// Its pass has ended; `wait` until the next one, None: there is none to come.
    pub fn finished(&mut self, home: &Home, failed: bool, wait: Option<Duration>, now: Instant) {
        let Some(entry) = self.entries.get_mut(home) else { return };
        entry.running = false;
        entry.failures = if failed { entry.failures.saturating_add(1) } else { 0 };
        entry.due = wait.map(|wait| now + wait);
        entry.ended = Some(now);
        if std::mem::take(&mut entry.woken) {
            entry.wake(now);
        }
        if std::mem::take(&mut entry.again) {
            entry.due = entry.due.map(|due| due.min(now));
        }
    }

    /// When the next pass is due.
    pub fn due(&self) -> Option<Instant> {
        self.entries.values().filter_map(|entry| entry.due).min()
    }

    pub fn knows(&self, home: &Home) -> bool {
        self.entries.contains_key(home)
    }

    pub fn failures(&self, home: &Home) -> u32 {
        self.entries.get(home).map_or(0, |entry| entry.failures)
    }
}

/// How long until the next pass: the interval, give or take a tenth so that many policies do not march in step; after a failure
/// sooner, and after five minutes at the latest, but never sooner than the cloud asks for.
pub(super) fn wait(error: Option<&Error>, interval: Duration, failures: u32) -> Duration {
    let Some(error) = error else { return interval.mul_f64(0.9 + fastrand::f64() / 5.0) };
    let doubled = FIRST_WAIT.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX));
    let wait = doubled.min(interval.clamp(FIRST_WAIT, LONGEST_WAIT));
    if error.is_outdated() {
        return Duration::from_millis(200);
    }
    error.retry_after().map_or(wait, |asked| wait.max(asked.min(Duration::from_secs(600))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(name: &str) -> Home {
        Home::Object(name.to_owned())
    }

    fn marks(list: &[(&str, i64)]) -> BTreeMap<Home, Mark> {
        let mark = |generation| Mark { generation: Some(generation), ..Mark::default() };
        list.iter().map(|(name, generation)| (home(name), mark(*generation))).collect()
    }

    #[test]
    fn a_policy_is_due_when_it_is_new_changed_or_its_time_has_come() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.wanted(marks(&[("a", 1), ("b", 1)]), start);
        assert_eq!(schedule.next(start), Some(home("a")));
        assert_eq!(schedule.next(start), Some(home("b")));
        assert_eq!((schedule.next(start), schedule.due()), (None, None), "both run");
        let minutes = Duration::from_secs(300);
        let later = start + minutes;
        schedule.finished(&home("a"), false, Some(minutes), start);
        schedule.finished(&home("b"), false, Some(minutes), start);
        schedule.wanted(marks(&[("a", 1), ("b", 2)]), start);
        assert_eq!(schedule.next(start), Some(home("b")), "changed");
        assert_eq!(schedule.next(start), None);
        assert_eq!(schedule.next(later), Some(home("a")));
        schedule.wanted(marks(&[("b", 2)]), start);
        assert!(!schedule.knows(&home("a")));
    }

    #[test]
    fn a_change_during_a_pass_is_followed_by_another_pass_and_never_by_two_at_once() {
        let start = Instant::now();
        let mut schedule = Schedule::default();
        schedule.wanted(marks(&[("a", 1)]), start);
        assert!(schedule.next(start).is_some());
        schedule.wanted(marks(&[("a", 2)]), start);
        assert_eq!(schedule.next(start), None, "it runs");
        schedule.finished(&home("a"), false, Some(Duration::from_secs(300)), start);
        assert_eq!(schedule.next(start), Some(home("a")));
    }

    #[test]
    fn a_node_that_goes_hastens_the_next_pass_but_no_crowd_of_passes() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let hour = Some(Duration::from_secs(3600));
        let mut schedule = Schedule::default();
        schedule.wanted(marks(&[("a", 1)]), start);
        schedule.wake(&home("a"), start);
        assert_eq!(schedule.due(), Some(start), "a pass that is due anyway does not wait");
        assert!(schedule.next(start).is_some());
        schedule.wake(&home("a"), after(1));
        assert_eq!(schedule.next(after(1)), None, "it runs");
        schedule.finished(&home("a"), false, hour, after(5));
        assert_eq!(schedule.due(), Some(after(15)), "one that went meanwhile is seen in a pass of its own");
        assert!(schedule.next(after(15)).is_some());
        schedule.finished(&home("a"), false, hour, after(20));
        schedule.wake(&home("a"), after(100));
        schedule.wake(&home("a"), after(101));
        assert_eq!(schedule.due(), Some(after(102)), "a pool that goes is one pass");
        assert!(schedule.next(after(102)).is_some());
        schedule.finished(&home("a"), true, Some(Duration::from_secs(600)), after(103));
        schedule.wake(&home("a"), after(104));
        assert_eq!(schedule.due(), Some(after(703)), "a cloud that asks for patience gets it");
        schedule.wake(&home("b"), after(104));
    }

    #[test]
    fn failures_are_tried_again_sooner_and_ever_later() {
        let minutes = Duration::from_secs(300);
        let error = Error::Login("no".to_owned());
        let waits = |interval| -> Vec<u64> {
            (0..8).map(|failures| wait(Some(&error), interval, failures).as_secs()).collect()
        };
        assert_eq!(waits(minutes), [5, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(waits(minutes * 12), waits(minutes), "failures in half an hour are an alert");
        assert_eq!(waits(Duration::from_secs(10)), [5, 10, 10, 10, 10, 10, 10, 10]);
        assert!((270..=330).contains(&wait(None, minutes, 0).as_secs()));
        assert!((3240..=3960).contains(&wait(None, minutes * 12, 0).as_secs()));
    }
}
