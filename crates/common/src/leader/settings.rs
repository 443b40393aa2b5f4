//! Names and times of an election.

use std::time::Duration;

/// How long others leave an unchanged record alone: client-go's default.
pub const LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long a leader leads on one renewal: client-go's default.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// Wait between two tries: client-go's default.
pub const RETRY_PERIOD: Duration = Duration::from_secs(2);
/// A candidate waits between one and 1 + 1.2 retry periods, so that candidates do not move in step: client-go's number.
pub const JITTER_FACTOR: f64 = 1.2;

/// The Lease, the identity and the times of a leader election.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Others take the lease over when they have seen no change of it for so long. Written into the Lease in whole seconds,
    /// rounded up.
    pub lease_duration: Duration,
    /// A leader ends so long after its last accepted renewal was sent. `lease_duration / renew_deadline` is the ratio
    /// of clock rates that is tolerated.
    pub renew_deadline: Duration,
    /// The interval of a leader's renewals, and of a candidate's reads of the Lease.
    pub retry_period: Duration,
    /// Of the Lease. It must exist; the Lease is created.
    pub namespace: String,
    /// Of the Lease.
    pub name: String,
    /// Of this process, and of no other: see [`identity`].
    pub identity: String,
}

impl Settings {
    /// Settings with client-go's times: 15 s, 10 s, 2 s.
    #[must_use]
    pub fn new(
        namespace: impl Into<String>,
        name: impl Into<String>,
        identity: impl Into<String>,
    ) -> Settings {
        Settings {
            lease_duration: LEASE_DURATION,
            renew_deadline: RENEW_DEADLINE,
            retry_period: RETRY_PERIOD,
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
        }
    }

    /// client-go's rules.
    ///
    /// # Errors
    /// One line that names the setting.
    pub fn validate(&self) -> Result<(), String> {
        if self.lease_duration <= self.renew_deadline {
            return Err("lease duration must be greater than renew deadline".to_owned());
        }
        if self.renew_deadline <= self.retry_period.mul_f64(JITTER_FACTOR) {
            return Err(format!(
                "renew deadline must be greater than {JITTER_FACTOR} times the retry period"
            ));
        }
        if self.retry_period.is_zero() {
            return Err("retry period must be greater than zero".to_owned());
        }
        for (value, what) in
            [(&self.identity, "identity"), (&self.namespace, "namespace"), (&self.name, "name")]
        {
            if value.is_empty() {
                return Err(format!("{what} of the leader election must not be empty"));
            }
        }
        Ok(())
    }

    /// How long one call may take: half of the renew deadline, so that a hung one leaves time for a second, and no less
    /// than a second unless the deadline is shorter. client-go's heuristic.
    pub(super) fn call_timeout(&self) -> Duration {
        (self.renew_deadline / 2).max(Duration::from_secs(1)).min(self.renew_deadline)
    }

    /// `leaseDurationSeconds`: rounded up, so that no contender waits for less than was configured.
    pub(super) fn lease_duration_seconds(&self) -> i32 {
        let rounded = self.lease_duration.as_secs() + u64::from(self.lease_duration.subsec_nanos() > 0);
        i32::try_from(rounded).unwrap_or(i32::MAX)
    }
}

/// An identity for this process: `host` for people, and a random part, so that a restart of the same pod is another contender.
#[must_use]
pub fn identity(host: &str) -> String {
    format!("{host}_{:032x}", fastrand::u128(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lease: u64, renew: u64, retry: u64) -> Settings {
        let [lease_duration, renew_deadline, retry_period] = [lease, renew, retry].map(Duration::from_millis);
        Settings { lease_duration, renew_deadline, retry_period, ..Settings::new("ns", "name", "me") }
    }

    #[test]
    fn the_defaults_are_those_of_client_go() {
        assert_eq!(Settings::new("ns", "name", "me"), settings(15_000, 10_000, 2_000));
        assert_eq!(Settings::new("ns", "name", "me").validate(), Ok(()));
    }

    #[test]
    fn times_must_leave_room_for_each_other() {
        let refused = |lease, renew, retry| settings(lease, renew, retry).validate().unwrap_err();
        assert!(refused(10_000, 10_000, 2_000).contains("lease duration"));
        assert!(refused(15_000, 2_400, 2_000).contains("1.2 times the retry period"));
        assert_eq!(settings(15_000, 2_401, 2_000).validate(), Ok(()));
        assert!(refused(15_000, 10_000, 0).contains("retry period"));
        assert!(refused(0, 0, 0).contains("lease duration"));
        assert!(refused(1, 0, 0).contains("renew deadline"));
    }

    #[test]
    fn nothing_may_be_nameless() {
        for (settings, what) in [
            (Settings::new("ns", "name", ""), "identity"),
            (Settings::new("", "name", "me"), "namespace"),
            (Settings::new("ns", "", "me"), "name "),
        ] {
            assert!(settings.validate().unwrap_err().starts_with(what));
        }
    }

    #[test]
    fn seconds_in_the_record_are_never_less_than_configured() {
        assert_eq!(settings(15_000, 0, 0).lease_duration_seconds(), 15);
        assert_eq!(settings(15_001, 0, 0).lease_duration_seconds(), 16);
        assert_eq!(settings(300, 0, 0).lease_duration_seconds(), 1);
    }

    #[test]
    fn one_hung_call_does_not_cost_the_lease() {
        assert_eq!(settings(0, 10_000, 0).call_timeout(), Duration::from_secs(5));
        assert_eq!(settings(0, 1_500, 0).call_timeout(), Duration::from_secs(1));
        assert_eq!(settings(0, 700, 0).call_timeout(), Duration::from_millis(700));
    }

    #[test]
    fn a_restart_is_another_contender() {
        let (one, two) = (identity("pod-1"), identity("pod-1"));
        assert!(one.starts_with("pod-1_") && one != two);
    }
}
