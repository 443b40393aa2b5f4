//! The state machine of one Node: which Job it needs now, if any.
//!
//! natgw cannot read the state of a Node's kernel. It is recorded on the Node instead: the setup annotation (the IP
//! that the Node is set up for), the boot ID of that setup, and the pending annotation (the marker), which is written
//! before a Job is created and removed when the Job has succeeded. While the marker exists, the state of the kernel
//! counts as unknown. A Job that contradicts the annotations counts as a marker too.

use std::time::Duration;

use common::backoff::Backoff;
use ipnet::Ipv4Net;
use jiff::{SignedDuration, Timestamp};

use super::action::{Action, JobSpec, NodeRef};
use super::reason::Reason;
use super::records::Records;
use super::{Output, floating_ip, regarding, verification};
use crate::config::{Config, Mode};
use crate::names::short_hash;
use crate::observe::snapshot::{Job, Node, Outcome, Ready, Server, Snapshot};
use crate::task::{Kind, Part, Role, Task};

/// Backoff after failed Jobs. A minute lets a user read the first Event; a repaired Node should not wait for hours.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(60), max: Duration::from_secs(30 * 60) };
/// The same in a cleanup, which ends after minutes: time to read the log, and for several attempts.
const CLEANUP_BACKOFF: SignedDuration = SignedDuration::from_secs(30);

/// Hash of the Node's UID and boot ID, of the setup of its role, and of the private address that a setup is for. The result of a Job of
/// another generation does not apply to the running kernel, or is that of another setup. `range` is the network's.
#[must_use]
pub fn generation(config: &Config, range: Ipv4Net, node: &Node, kind: Kind) -> String {
    let address = node.private_ip().filter(|_| kind.is_setup()).map(|ip| ip.to_string()).unwrap_or_default();
    short_hash([node.uid.as_str(), &node.boot_id, &setup_hash(config, range, kind.role()), &address])
}

/// Hash of the setup of a role: its script, environment and range. A range can be extended, and gateways then translate for more
/// Nodes; the rules of a client do not have it.
fn setup_hash(config: &Config, range: Ipv4Net, role: Role) -> String {
    let range = match role {
        Role::Gateway => range.to_string(),
        Role::Client => String::new(),
    };
    short_hash([config.setup_hash(role), &range])
}

/// Hash of a Node's name for a label value: names may be longer than the 63 characters of a label value.
#[must_use]
pub fn node_hash(name: &str) -> String {
    short_hash([name])
}

/// Job name: the same decision always makes the same name.
fn job_name(generation: &str, task: Task, attempt: u32) -> String {
    let attempt = attempt.to_string();
    let ip = task.ip.to_string();
    format!("natgw-{}-{}", task.kind, short_hash([generation, task.kind.word(), &ip, &attempt]))
}

/// Whether the Node, by its annotations and Jobs, is set up as a gateway for `ip` since its last boot, and with its private address.
#[must_use]
pub fn is_settled_gateway(config: &Config, snapshot: &Snapshot, node: &Node, ip: std::net::Ipv4Addr) -> bool {
    let gateway = Some(Part { role: Role::Gateway, ip });
    Records::read(config, snapshot, node)
        .is_ok_and(|records| records.gateway == gateway && is_settled(node, &records, gateway))
}

fn is_settled(node: &Node, records: &Records, desired: Option<Part>) -> bool {
    [records.gateway, records.client].iter().all(|part| part.is_none() || *part == desired)
        && records.pending.is_none()
        && (desired.is_none()
            || node.setup_boot_id.as_deref() == Some(&node.boot_id) && !has_other_address(node))
}

/// Whether the Node's private address is another than at its last setup. Without an address, as of a server that is unknown for a moment,
/// it is not.
fn has_other_address(node: &Node) -> bool {
    node.setup_private_ip.zip(node.private_ip()).is_some_and(|(then, now)| then != now)
}

/// The part that the Node is set up for, if that was done with another script, environment or range than the present one, or the
/// Node differs from it.
pub(super) fn outdated(config: &Config, snapshot: &Snapshot, node: &Node) -> Option<Part> {
    let part = desired(config, snapshot, node).filter(|_| !node.terminating && !node.forget)?;
    let records = Records::read(config, snapshot, node).ok()?;
    let is_present = has_present_setup(config, snapshot, node, part.role)
        && !verification::differs(config, snapshot, node);
    (records.recorded(part) && is_settled(node, &records, Some(part)) && !is_present).then_some(part)
}

/// Whether the last setup of the Node was done with the present script, environment and range. True if that is not recorded.
pub(super) fn has_present_setup(config: &Config, snapshot: &Snapshot, node: &Node, role: Role) -> bool {
    let hash = node.setup_hash.as_ref();
    hash.is_none_or(|hash| *hash == setup_hash(config, snapshot.network.ip_range, role))
}

/// Whether the setup of the Node is run once more, after a reboot or in a rollout.
pub(super) fn is_set_up_again(node: &Node) -> bool {
    let pending = node.pending.as_ref().and_then(|text| text.parse::<Task>().ok());
    pending.is_some_and(|task| {
        let recorded = match task.kind.role() {
            Role::Gateway => &node.setup,
            Role::Client => &node.client,
        };
        task.kind.is_setup() && recorded.as_deref() == Some(&task.ip.to_string())
    })
}

/// The desired state of the Node.
fn desired(config: &Config, snapshot: &Snapshot, node: &Node) -> Option<Part> {
    if config.mode == Mode::Cleanup || !node.selected {
        return None;
    }
    let Server::Cloud { .. } = node.server else { return None };
    match floating_ip::assigned(node) {
        Some(ip) => Some(Part { role: Role::Gateway, ip }),
        None if config.clients.enabled => Some(Part { role: Role::Client, ip: snapshot.network.gateway() }),
        None => None,
    }
}

/// Whether a cleanup runs a teardown on the Node that may need the gateway with the traffic, to pull the image. A gateway has an uplink of
/// its own. A Node whose teardown cannot run needs none: the kubelet does not report, the Node is deleted or forgotten, or one of its
/// annotations is invalid.
pub(super) fn teardown_needs_gateway(config: &Config, snapshot: &Snapshot, node: &Node) -> bool {
    if node.setup.is_some() || node.terminating || node.forget || node.ready == Ready::Unknown {
        return false;
    }
    let records = Records::read(config, snapshot, node);
    records.is_ok_and(|records| next(config, snapshot, node, &records, None).is_some())
}

/// Plans the next step of one Node's state machine.
///
/// `in_rollout`: its setup is to run again, although it is set up.
pub(super) fn work(
    config: &Config,
    snapshot: &Snapshot,
    node: &Node,
    in_rollout: bool,
    now: Timestamp,
    out: &mut Output,
) {
    let jobs = snapshot.jobs_of(&node.name);
    if node.forget {
        return forget(node, jobs, out);
    }
    if node.terminating {
        return;
    }
    // The cloud does not know the server: the token is of another project, or the Node is just being created or
    // deleted. Such a Node is not changed.
    if node.server == Server::Unknown && config.mode != Mode::Cleanup {
        return;
    }
    let records = match Records::read(config, snapshot, node) {
        Ok(records) => records,
        Err(invalid) => return out.problem(regarding(node), invalid),
    };
    let desired = desired(config, snapshot, node);
    let rollout = || {
        let part = desired.filter(|_| in_rollout);
        part.map(|part| (part.setup(), changed(config, snapshot, node, part)))
    };
    let Some((task, because)) = next(config, snapshot, node, &records, desired).or_else(rollout) else {
        // No Job is to be left behind.
        for job in jobs.iter().filter(|job| job.task.is_none() && !job.terminating) {
            if config.mode == Mode::Cleanup {
                out.step(delete(node, job), Reason::CleanupRequested);
            }
        }
        if let Some(Part { role: Role::Gateway, ip }) = desired {
            verification::plan(config, snapshot, node, ip, now, out);
        }
        return;
    };
    // In a cleanup, the label may still name the IP that is torn down, so the reason is the cleanup.
    let because = if config.mode == Mode::Cleanup { Reason::CleanupRequested } else { because };
    Run { config, snapshot, node, task, because, now }.plan(jobs, out);
}

/// The task that a Node needs now, one at a time: first each teardown, then the setup.
fn next(
    config: &Config,
    snapshot: &Snapshot,
    node: &Node,
    records: &Records,
    desired: Option<Part>,
) -> Option<(Task, Reason)> {
    let pending = records.pending.filter(|pending| Some(pending.part()) != desired);
    // A marker of a part that no other annotation records comes first, because the next marker would overwrite it.
    if let Some(pending) = pending
        && !records.recorded(pending.part())
    {
        return Some((pending.part().teardown(), Reason::SetupInterrupted(pending)));
    }
    for part in [records.gateway, records.client].into_iter().flatten() {
        if Some(part) != desired {
            let because = match part.role {
                Role::Gateway => Reason::LabelChanged(part.setup()),
                Role::Client => Reason::ClientDisabled,
            };
            return Some((part.teardown(), because));
        }
    }
    let part = desired?;
    if is_settled(node, records, desired) {
        return None;
    }
    let because = match records.pending {
        Some(pending) if pending.kind.is_teardown() => Reason::LabelRestored,
        _ if !records.recorded(part) && part.role == Role::Client => Reason::ClientSetupMissing,
        _ if !records.recorded(part) => Reason::SetupMissing,
        _ if node.setup_boot_id.as_deref() != Some(&node.boot_id) => Reason::NodeRebooted,
        _ if has_other_address(node) => Reason::PrivateIPChanged,
        _ => changed(config, snapshot, node, part),
    };
    Some((part.setup(), because))
}

/// Why the setup of this part runs again although the Node has not been rebooted.
fn changed(config: &Config, snapshot: &Snapshot, node: &Node, part: Part) -> Reason {
    if has_present_setup(config, snapshot, node, part.role) {
        Reason::SetupDiffers
    } else {
        Reason::SetupChanged
    }
}

/// Removes every Job, then every annotation; no Job is run.
fn forget(node: &Node, jobs: &[Job], out: &mut Output) {
    for job in jobs.iter().filter(|job| !job.terminating) {
        out.step(delete(node, job), Reason::ForgetRequested);
    }
    if jobs.is_empty() {
        out.step(Action::Forget { node: NodeRef::from(node) }, Reason::ForgetRequested);
    }
}

pub(super) fn delete(node: &Node, job: &Job) -> Action {
    Action::DeleteJob {
        node: NodeRef::from(node),
        job: job.name.clone(),
        uid: job.uid.clone(),
        task: job.task,
    }
}

/// The Job of this task.
pub(super) fn job(snapshot: &Snapshot, node: &Node, task: Task, generation: String, attempt: u32) -> JobSpec {
    JobSpec {
        name: job_name(&generation, task, attempt),
        task,
        generation,
        attempt,
        private_ip: node.private_ip(),
        network_cidr: snapshot.network.ip_range,
        // A client teardown removes the route of its setup, also when the network has another first address since.
        network_gateway: match task.kind.role() {
            Role::Gateway => snapshot.network.gateway(),
            Role::Client => task.ip,
        },
    }
}

/// The current task of one Node, planned until its result is recorded.
struct Run<'a> {
    config: &'a Config,
    snapshot: &'a Snapshot,
    node: &'a Node,
    task: Task,
    because: Reason,
    now: Timestamp,
}

impl Run<'_> {
    /// Deletes every other Job of the Node and waits until they are gone. Then writes the pending annotation, creates
    /// the Job, and records its result.
    fn plan(self, jobs: &[Job], out: &mut Output) {
        let range = self.snapshot.network.ip_range;
        let generation = generation(self.config, range, self.node, self.task.kind);
        let is_desired = |job: &&Job| job.task == Some(self.task) && job.generation == generation;
        let others: Vec<&Job> = jobs.iter().filter(|job| !is_desired(job)).collect();
        if !others.is_empty() {
            // The Job may be the only record of the kernel's state: the pending annotation is written before its deletion.
            if !self.has_records() {
                out.step(self.mark(), self.because.clone());
            }
            for job in others.into_iter().filter(|job| !job.terminating) {
                out.step(delete(self.node, job), Reason::JobSuperseded(self.task));
            }
            return;
        }
        if jobs.iter().any(|job| job.terminating) {
            return;
        }
        // Of several attempts the latest counts; earlier ones are deleted before a new one is made.
        match jobs.iter().max_by_key(|job| job.attempt) {
            None => self.create(generation, out),
            Some(job) => match &job.outcome {
                Outcome::Succeeded { .. } => self.record(out),
                // The task was started, replaced by another one that did not start, and is desired again.
                _ if !self.has_records() => out.step(self.mark(), self.because.clone()),
                // Only a verification has the second outcome, and none is ever pending.
                Outcome::Running | Outcome::Differs { .. } => {}
                Outcome::Failed { at, message } => self.failed(job, *at, message, out),
            },
        }
    }

    fn node_ref(&self) -> NodeRef {
        NodeRef::from(self.node)
    }

    /// Number of failed Jobs of this task; those of another task do not count.
    fn failures(&self) -> u32 {
        if self.has_records() { self.node.failures } else { 0 }
    }

    fn has_records(&self) -> bool {
        self.node.pending.as_deref() == Some(&self.task.to_string())
    }

    fn mark(&self) -> Action {
        Action::RecordPending { node: self.node_ref(), task: self.task, failures: self.failures() }
    }

    fn create(self, generation: String, out: &mut Output) {
        let failures = self.failures();
        // In a cleanup, the failed Job stays until its backoff is over, and the next one follows at once.
        if failures > 0 && self.config.mode == Mode::Run && self.must_wait() {
            return;
        }
        // The kubelet does not report: the pod would neither start nor end, and the Job would fail by its deadline.
        if self.node.ready == Ready::Unknown {
            return;
        }
        // Without the Node's private address, a setup script could only guess the private interface.
        if self.task.kind.is_setup() && self.node.private_ip().is_none() {
            return;
        }
        let attempt = failures.saturating_add(1);
        out.step(self.mark(), self.because.clone());
        let job = job(self.snapshot, self.node, self.task, generation, attempt);
        out.step(Action::CreateJob { node: self.node_ref(), job }, self.because);
    }

    fn record(self, out: &mut Output) {
        let (node, task) = (self.node_ref(), self.task);
        let action = if task.kind.is_setup() {
            let hash = setup_hash(self.config, self.snapshot.network.ip_range, task.kind.role());
            let (boot_id, private_ip) = (self.node.boot_id.clone(), self.node.private_ip());
            Action::RecordSetup { node, task, boot_id, private_ip, hash }
        } else {
            Action::RecordTeardown { node, task }
        };
        out.step(action, Reason::JobSucceeded);
    }

    /// Whether the backoff after a Job that failed `at` this time has expired.
    fn is_due(&self, at: Timestamp) -> bool {
        let in_cleanup = || at.saturating_add(CLEANUP_BACKOFF).is_ok_and(|due| self.now >= due);
        !self.must_wait() || self.config.mode == Mode::Cleanup && in_cleanup()
    }

    fn must_wait(&self) -> bool {
        self.node.retry_after.is_some_and(|time| self.now < time)
    }

    fn failed(self, job: &Job, at: Timestamp, message: &str, out: &mut Output) {
        let failures = self.failures();
        if failures < job.attempt {
            // It is a time of the Job controller, whose clock may be ahead of natgw's: the backoff would be longer by as much.
            let at = at.min(self.now);
            let retry_after = at.saturating_add(BACKOFF.delay(job.attempt)).unwrap_or(at);
            out.step(
                Action::RecordFailure {
                    node: self.node_ref(),
                    task: self.task,
                    failures: job.attempt,
                    retry_after,
                },
                Reason::JobFailed { attempt: job.attempt, message: message.to_owned() },
            );
        } else if self.is_due(at) {
            out.step(delete(self.node, job), Reason::BackoffExpired(failures));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_an_hour() {
        let minutes = [1, 2, 3, 4, 5, 6, 7, 40].map(|failures| BACKOFF.delay(failures).as_secs() / 60);
        assert_eq!(minutes, [1, 2, 4, 8, 16, 30, 30, 30]);
    }
}
