//! The responses to health checks, counted in rounds. Pure: [`super::prober`] makes the rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::HealthCheck;

/// Kubelets renew their Lease every 10 s. Without two renewals in a row a kubelet has stopped, or cannot reach the API server.
const LEASE_TIMEOUT: Duration = Duration::from_secs(20);
/// A gateway that was unavailable has to respond for so long before the route may be moved to it: a machine that boots
/// responds before it is set up, and a bad link responds now and then.
const RECOVERY: Duration = Duration::from_secs(30);

/// The numbers of rounds that make a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    failures: u32,
    lease: u32,
    recovery: u32,
}

impl Limits {
    /// Those of the settings.
    #[must_use]
    pub fn new(settings: &HealthCheck) -> Limits {
        let interval = Duration::from(settings.interval).max(Duration::from_millis(1));
        let rounds = |time: Duration| {
            u32::try_from(time.as_millis().div_ceil(interval.as_millis()))
                .unwrap_or(u32::MAX)
                .max(settings.failures)
        };
        Limits { failures: settings.failures, lease: rounds(LEASE_TIMEOUT), recovery: rounds(RECOVERY) }
    }
}

/// The last rounds of all targets. Empty without health checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// By the name of the Node.
    pub nodes: BTreeMap<String, Probes>,
    /// The third reference. The API server is probed in rounds in which a Node did not respond, and only then.
    pub reference: Probes,
}

/// The last rounds of one target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// Rounds in a row with a response.
    responses: u32,
    /// Rounds in a row without a response, since the Lease was last renewed.
    silent: u32,
    /// It has responded before, and its Lease was not renewed in this silence: then its silence alone is enough.
    is_trusted: bool,
    /// It was unavailable, and has not recovered yet.
    is_lost: bool,
    /// When the Lease was last renewed, by the clock of the Node: it is only compared with itself.
    renewed: Option<Timestamp>,
}

impl Probes {
    /// Counts a round with a response.
    pub fn responded(&mut self, limits: Limits) {
        let responses = self.responses.saturating_add(1);
        let is_lost = self.is_lost && responses < limits.recovery;
        *self = Probes { responses, is_lost, is_trusted: true, silent: 0, renewed: None };
    }

    /// Counts a round without a response. `renewed`: the last renewal of the Lease, if it was read.
    pub fn failed(&mut self, renewed: Option<Timestamp>, limits: Limits) {
        let is_alive = renewed.is_some() && self.renewed.is_some() && renewed != self.renewed;
        if is_alive {
            (self.silent, self.is_trusted) = (0, false);
        }
        self.responses = 0;
        self.silent = self.silent.saturating_add(1);
        self.renewed = renewed.or(self.renewed);
        self.is_lost |= self.is_failing(limits);
    }

    /// Whether it is unavailable now.
    #[must_use]
    pub fn is_failing(&self, limits: Limits) -> bool {
        self.silent >= if self.is_trusted { limits.failures } else { limits.lease }
    }

    /// Whether it is unavailable, or has not responded for long enough since.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Whether it has responded in the last rounds, as many as make another target unavailable.
    #[must_use]
    pub fn is_responding(&self, limits: Limits) -> bool {
        !self.is_lost && self.responses >= limits.failures
    }
}

impl Health {
    /// Everything about the targets that a decision depends on.
    #[must_use]
    pub fn classes(&self, limits: Limits) -> Vec<[bool; 3]> {
        let class =
            |probes: &Probes| [probes.is_failing(limits), probes.is_lost(), probes.is_responding(limits)];
        self.nodes.values().chain([&self.reference]).map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits::new(&HealthCheck::default())
    }

    fn at(second: i64) -> Option<Timestamp> {
        Some(Timestamp::from_second(second).unwrap())
    }

    fn known() -> Probes {
        let mut probes = Probes::default();
        (0..3).for_each(|_| probes.responded(limits()));
        probes
    }

    #[test]
    fn three_rounds_in_a_row_without_a_response_make_a_target_unavailable() {
        let mut probes = known();
        assert!(probes.is_responding(limits()));
        for failing in [false, false, true, true] {
            probes.failed(at(1), limits());
            assert_eq!((probes.is_failing(limits()), probes.is_lost()), (failing, failing));
        }
        let mut flaky = known();
        for _ in 0..20 {
            flaky.failed(at(1), limits());
            flaky.failed(at(1), limits());
            flaky.responded(limits());
            assert!(!flaky.is_lost() && !flaky.is_responding(limits()));
        }
    }

    #[test]
    fn an_unavailable_target_recovers_after_thirty_rounds_in_a_row() {
        let mut probes = known();
        (0..3).for_each(|_| probes.failed(None, limits()));
        (0..29).for_each(|_| probes.responded(limits()));
        assert!(probes.is_lost() && !probes.is_failing(limits()));
        probes.failed(None, limits());
        (0..29).for_each(|_| probes.responded(limits()));
        assert!(probes.is_lost(), "one failed round, and the count begins at zero");
        probes.responded(limits());
        assert!(!probes.is_lost() && probes.is_responding(limits()));
    }

    #[test]
    fn a_lease_that_is_renewed_delays_the_verdict_until_two_renewals_are_missing() {
        let mut probes = known();
        probes.failed(at(1), limits());
        probes.failed(at(11), limits());
        (0..18).for_each(|_| probes.failed(at(11), limits()));
        assert!(!probes.is_failing(limits()), "the kubelet was alive 19 s ago");
        probes.failed(at(11), limits());
        assert!(probes.is_failing(limits()));
        let mut renewing = known();
        (0..100).for_each(|round| renewing.failed(at(1 + (round + 8) / 10), limits()));
        assert!(!renewing.is_lost(), "a kubelet that renews its Lease from the third round on is alive");
    }

    #[test]
    fn a_target_that_has_never_responded_is_unavailable_when_its_lease_has_expired() {
        let mut probes = Probes::default();
        (0..19).for_each(|_| probes.failed(at(1), limits()));
        assert!(!probes.is_failing(limits()));
        probes.failed(at(1), limits());
        assert!(probes.is_failing(limits()));
    }
}
