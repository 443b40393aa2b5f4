//! natgw's settings: one YAML file, every field checked before anything is touched.

mod settings;

use std::ops::{Deref, RangeInclusive};
use std::path::Path;
use std::time::Duration;

pub use self::settings::{
    Clients, FloatingIPs, HealthCheck, Hetzner, Jobs, NetworkName, OnNoCandidate, Settings, Verification,
};
use crate::names::{self, short_hash};
use crate::selector;
use crate::task::Role;

/// The mode of a run: keep a gateway, or remove everything that natgw made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Keep a gateway.
    #[default]
    Run,
    /// Take everything back: route, role label, setups, annotations.
    Cleanup,
}

/// The settings in force, checked, and what is not in the file. It dereferences to the settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// Keep a gateway, or clean up.
    pub mode: Mode,
    /// Namespace of Jobs and of Events about no single Node; no setting, but where the process runs.
    pub namespace: String,
    /// Hashes of the setup script of a gateway and of a client, each with the environment.
    pub setup_hashes: [String; 2],
    /// The settings, checked.
    pub settings: Settings,
}

impl Deref for Config {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}

/// A setting that cannot be meant, with its field and what is allowed.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{field}: {problem}")]
pub struct Invalid {
    field: &'static str,
    problem: String,
}

fn invalid<T>(field: &'static str, problem: impl Into<String>) -> Result<T, Invalid> {
    Err(Invalid { field, problem: problem.into() })
}

/// The least time that a finished Job stays: natgw must see its end before the TTL controller removes it, also across a
/// change of leader (15 s lease) and an API server that is away for a moment.
const TTL_MIN: Duration = Duration::from_secs(60);
/// A shorter interval would take more than a third of a project's 3,600 requests an hour.
const POLL_MIN: Duration = Duration::from_secs(3);
/// A leader that begins no reconciliation for ten minutes counts as stuck, and its liveness probe fails.
const POLL_MAX: Duration = Duration::from_secs(300);

/// A Job takes seconds, and its pod's image may have to be pulled.
const VERIFICATION_MIN: Duration = Duration::from_secs(60);

/// A response may take 600 ms on a slow network. After 10 s three times, Kubernetes reports a stopped Node about as soon.
const PROBE_INTERVAL: RangeInclusive<Duration> = Duration::from_millis(500)..=Duration::from_secs(10);
/// One probe without a response says nothing.
const PROBE_FAILURES: RangeInclusive<u32> = 2..=10;

impl Config {
    /// Checks the settings.
    ///
    /// # Errors
    /// The first field that cannot be meant.
    pub fn new(mut settings: Settings) -> Result<Config, Invalid> {
        label_key("floatingIPLabel", &settings.floating_ip_label)?;
        label_key("setupAnnotation", &settings.setup_annotation)?;
        label_key("roleLabel", &settings.role_label)?;
        if settings.floating_ip_label == settings.role_label {
            return invalid(
                "roleLabel",
                format!("{:?} is the floatingIPLabel too; the two must differ", settings.role_label),
            );
        }
        if names::NODE_ANNOTATIONS.contains(&settings.setup_annotation.as_str()) {
            return invalid(
                "setupAnnotation",
                format!("{:?} has another meaning to natgw", settings.setup_annotation),
            );
        }
        settings.network = match settings.network {
            NetworkName::Name(name) if name.is_empty() => {
                return invalid("network", "a name or an ID is needed");
            }
            NetworkName::Name(name) => name.parse().map_or(NetworkName::Name(name), NetworkName::Id),
            id => id,
        };
        check_jobs(&settings.jobs)?;
        check_health(&settings.health_check)?;
        check_verification(&settings.verification, &settings.jobs)?;
        let poll = settings.hetzner.poll_interval;
        if poll.is_negative() || !(POLL_MIN..=POLL_MAX).contains(&std::time::Duration::from(poll)) {
            return invalid("hetzner.pollInterval", "must be between 3s and 5m");
        }
        if !settings.floating_ips.label && !settings.floating_ips.selector.is_empty() {
            return invalid("floatingIPs.selector", "has no effect without floatingIPs.label: true");
        }
        let hash = |script: &str| {
            let variables =
                settings.jobs.env.iter().flat_map(|(name, value)| [name.as_str(), value.as_str()]);
            short_hash([script].into_iter().chain(variables))
        };
        let setup_hashes =
            [&settings.jobs.setup_script, &settings.jobs.client_setup_script].map(|it| hash(it));
        Ok(Config { mode: Mode::Run, namespace: String::new(), setup_hashes, settings })
    }

    /// The hash of the setup script for this role, with its environment.
    #[must_use]
    pub fn setup_hash(&self, role: Role) -> &str {
        let [gateway, client] = &self.setup_hashes;
        match role {
            Role::Gateway => gateway,
            Role::Client => client,
        }
    }

    /// Whether floating-IP labels are written: a cleanup leaves them as they are.
    #[must_use]
    pub fn keeps_labels(&self) -> bool {
        self.floating_ips.label && self.mode == Mode::Run
    }

    /// Reads and checks a settings file.
    ///
    /// # Errors
    /// One line: the file, the line or the field, and what is allowed.
    pub fn load(path: &Path) -> Result<Config, common::config::Error> {
        let settings = common::config::load::<Settings>(path)?;
        Config::new(settings).map_err(|error| common::config::Error::invalid(path, error.to_string()))
    }
}

fn check_health(health: &HealthCheck) -> Result<(), Invalid> {
    let interval = health.interval;
    if interval.is_negative() || !PROBE_INTERVAL.contains(&Duration::from(interval)) {
        return invalid("healthCheck.interval", "must be between 500ms and 10s");
    }
    if !PROBE_FAILURES.contains(&health.failures) {
        return invalid("healthCheck.failures", "must be between 2 and 10");
    }
    if health.port == 0 {
        return invalid("healthCheck.port", "must be between 1 and 65535");
    }
    Ok(())
}

fn check_verification(verification: &Verification, jobs: &Jobs) -> Result<(), Invalid> {
    let interval = verification.interval;
    if interval.is_negative() || Duration::from(interval) < VERIFICATION_MIN {
        return invalid("verification.interval", "must be 1m or more");
    }
    if !verification.enabled {
        return Ok(());
    }
    if Duration::from(interval) > Duration::from(jobs.ttl_after_finished) {
        return invalid(
            "verification.interval",
            "must not be longer than jobs.ttlAfterFinished: the finished Job records the time",
        );
    }
    let built_in = Jobs::default();
    if jobs.setup_script != built_in.setup_script && jobs.verify_script == built_in.verify_script {
        return invalid("jobs.verifyScript", "is needed to verify what a jobs.setupScript of your own makes");
    }
    Ok(())
}

fn check_jobs(jobs: &Jobs) -> Result<(), Invalid> {
    let ttl = jobs.ttl_after_finished;
    if ttl.is_negative() || Duration::from(ttl) < TTL_MIN {
        return invalid("jobs.ttlAfterFinished", format!("{ttl} is too short; 60s or more is needed"));
    }
    if jobs.image.trim().is_empty() {
        return invalid("jobs.image", "an image reference is needed");
    }
    for (field, script) in [
        ("jobs.setupScript", &jobs.setup_script),
        ("jobs.teardownScript", &jobs.teardown_script),
        ("jobs.clientSetupScript", &jobs.client_setup_script),
        ("jobs.clientTeardownScript", &jobs.client_teardown_script),
        ("jobs.verifyScript", &jobs.verify_script),
    ] {
        if script.trim().is_empty() {
            return invalid(field, "a script is needed; leave the field out for the default");
        }
    }
    for name in jobs.env.keys() {
        if names::OWN_ENV.contains(&name.as_str()) {
            return invalid("jobs.env", format!("{name} is set by natgw itself"));
        }
        let mut characters = name.chars();
        let starts_well = characters.next().is_some_and(|first| first == '_' || first.is_ascii_alphabetic());
        if !starts_well || !characters.all(|other| other == '_' || other.is_ascii_alphanumeric()) {
            return invalid("jobs.env", format!("{name:?} is no name of an environment variable"));
        }
    }
    Ok(())
}

fn label_key(field: &'static str, key: &str) -> Result<(), Invalid> {
    if selector::is_label_key(key) {
        return Ok(());
    }
    invalid(field, format!("{key:?} is no valid key; an example is \"example.org/floating-ip\""))
}

#[cfg(test)]
mod tests;
