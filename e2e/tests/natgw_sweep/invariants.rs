//! Sees everything at all times, and remembers what must never be.
//!
//! After each of natgw's writes (and before the next may go on), at each begin and end of a script on a machine, and at rest,
//! it asks the API server and the cloud themselves and holds the answers against the machines. It never judges by two
//! answers between which something may have changed: what it objects to was so, with no doubt.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use e2e::fault_proxy::{Then, When};
use e2e::hollow_node::Outcome;
use e2e::natgw::{Gateway, TestEnv, task_of};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use natgw::names;
use tokio::sync::Notify;

use crate::natgw_sweep::machines::Machines;
use crate::natgw_sweep::observed::ObservedState;

/// How long a script works: whoever does not wait for its end is seen.
const WORK: Duration = Duration::from_millis(150);
/// More writes than any run makes.
const WRITES: u64 = 150;

/// How a Job's script goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    /// It does its work.
    Works,
    /// It fails at once.
    Fails,
    /// It never ends by itself.
    Hangs,
}

/// Which scripts do not just work: told the Job's type and its attempt.
pub type Course = Arc<dyn Fn(&str, &str) -> Script + Send + Sync>;

/// The invariants of one environment.
#[derive(Clone)]
pub struct InvariantChecker(Arc<Inner>);

struct Inner {
    env: Weak<TestEnv>,
    machines: Mutex<Machines>,
    violations: Mutex<Vec<String>>,
    looks: AtomicU64,
    changed: Notify,
}

/// When a look is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// natgw's write has just been carried out; it writes nothing more until the look is over.
    Write,
    /// At any time.
    Any,
    /// natgw has nothing left to do.
    Rest,
}

impl InvariantChecker {
    /// Looks from now on.
    pub fn of(env: &Arc<TestEnv>) -> InvariantChecker {
        let invariants = InvariantChecker(Arc::new(Inner {
            env: Arc::downgrade(env),
            machines: Mutex::default(),
            violations: Mutex::default(),
            looks: AtomicU64::new(0),
            changed: Notify::new(),
        }));
        for n in 1..=WRITES {
            let invariants = invariants.clone();
            let action = move || async move {
                invariants.look(Moment::Write).await;
                Then::GoOn
            };
            // Fails for 0 only.
            let _ = env.writes.on_write(n, When::AfterServerActed, action);
        }
        invariants
    }

    /// Lets it see the Jobs of this machine.
    pub fn observe(&self, gateway: &Arc<Gateway>, course: Course) {
        self.machines().change(&gateway.name, |machine| machine.ip = Some(gateway.private_ip));
        let (invariants, machine) = (self.clone(), Arc::downgrade(gateway));
        gateway.node.on_pod(move |pod| {
            if let Some(machine) = machine.upgrade() {
                let script =
                    course(&pod.labels()[names::TYPE_LABEL], &pod.annotations()[names::ATTEMPT_ANNOTATION]);
                invariants.begins(&machine, pod, script);
            }
            // Ended below, once the kernel is as the script leaves it: nobody may hear of the end before.
            Outcome::Hang
        });
    }

    fn begins(&self, gateway: &Arc<Gateway>, pod: &Pod, script: Script) {
        let (name, task) = (pod.name_any(), task_of(pod));
        let (kind, ip) = task.split_once(':').unwrap_or_default();
        let works =
            |other: &str| gateway.node.pods().iter().any(|pod| pod.name_any() == other && is_at_work(pod));
        let route = self.env().and_then(|env| env.hetzner.default_gateway(env.network));
        let violations = self.machines().begin(&gateway.name, &name, kind, route, works);
        self.break_with(violations);
        let sets_up = (kind == "setup" && script == Script::Works).then(|| ip.to_owned());
        let (invariants, gateway) = (self.clone(), Arc::downgrade(gateway));
        tokio::spawn(async move {
            invariants.look(Moment::Any).await;
            if script == Script::Hangs {
                return;
            }
            tokio::time::sleep(WORK).await;
            let Some(gateway) = gateway.upgrade() else { return };
            let at_work = gateway.node.pods().iter().any(|pod| pod.name_any() == name && is_at_work(pod));
            invariants.machines().end(&gateway.name, &name, sets_up.filter(|_| at_work).as_deref());
            // Gone, if it was ended meanwhile.
            let _ = gateway.node.finish(&name, i32::from(script == Script::Fails));
            drop(gateway);
            invariants.look(Moment::Any).await;
        });
    }

    /// A machine that was set up before anybody looked.
    pub fn was_set_up(&self, gateway: &Gateway, ip: &str) {
        self.machines().change(&gateway.name, |machine| machine.translates_to = Some(ip.to_owned()));
    }

    /// Restarts a machine: its kernel is as new before anybody hears of it.
    pub async fn reboot(&self, gateway: &Gateway) -> anyhow::Result<()> {
        self.machines().change(&gateway.name, |machine| {
            machine.rebooting = true;
            machine.translates_to = None;
        });
        let told = gateway.node.reboot().await;
        self.machines().change(&gateway.name, |machine| machine.rebooting = false);
        told
    }

    /// What is true of the machines now.
    pub fn machines(&self) -> MutexGuard<'_, Machines> {
        self.0.machines.lock().unwrap()
    }

    /// Looks at a environment in which natgw has nothing left to do.
    pub async fn at_rest(&self) -> Option<ObservedState> {
        self.look(Moment::Rest).await
    }

    /// Looks now.
    pub async fn now(&self) -> Option<ObservedState> {
        self.look(Moment::Any).await
    }

    /// Waits until something may have changed: a write of natgw, a script that began or ended.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// What was seen that must never be.
    pub fn violations(&self) -> Vec<String> {
        self.0.violations.lock().unwrap().clone()
    }

    /// How often it looked.
    pub fn looks(&self) -> u64 {
        self.0.looks.load(Ordering::Relaxed)
    }

    async fn look(&self, moment: Moment) -> Option<ObservedState> {
        let env = self.env()?;
        let before = self.machines().clone();
        // An error is mended by the next look: the API server of a busy machine is late at times.
        let observed = ObservedState::of(&env).await.ok()?;
        let after = self.machines().clone();
        self.0.looks.fetch_add(1, Ordering::Relaxed);
        for violations in jobs_beside(&observed) {
            self.break_with(Some(violations));
        }
        if before.version == after.version {
            for violations in lies(&observed, &after) {
                self.break_with(Some(violations));
            }
        }
        match moment {
            Moment::Write => self.break_with(fresh_route(&env, &observed, &after)),
            Moment::Rest => {
                restless(&observed).into_iter().for_each(|violations| self.break_with(Some(violations)))
            }
            Moment::Any => {}
        }
        self.0.changed.notify_one();
        Some(observed)
    }

    fn env(&self) -> Option<Arc<TestEnv>> {
        self.0.env.upgrade()
    }

    fn break_with(&self, violations: Option<String>) {
        let mut all = self.0.violations.lock().unwrap();
        if let Some(violations) = violations.filter(|violations| !all.contains(violations)) {
            all.push(violations);
        }
    }
}

fn is_at_work(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// A Job beside one of another kind on the same Node: a setup beside a teardown that is still going, first of all.
fn jobs_beside(observed: &ObservedState) -> Vec<String> {
    let with_two = observed.nodes.iter().filter(|(_, node)| {
        node.jobs.iter().any(|one| {
            !one.terminating && node.jobs.iter().any(|other| other.terminating && other.task != one.task)
        })
    });
    with_two
        .map(|(name, node)| format!("a Job beside a terminating one on {name}: {:?}", node.jobs))
        .collect()
}

/// An annotation that is not true: nothing is pending, the boot is the present one, and the kernel holds something else.
fn lies(observed: &ObservedState, machines: &Machines) -> Vec<String> {
    let mut lies = Vec::new();
    for (name, node) in &observed.nodes {
        let (Some(said), Some(machine)) = (&node.setup, machines.all.get(name)) else { continue };
        let claims = node.pending.is_none() && node.this_boot && !machine.rebooting;
        if claims && machine.translates_to.as_ref() != Some(said) {
            lies.push(format!(
                "the annotation of {name} says {said}, its kernel {:?}",
                machine.translates_to
            ));
        }
    }
    lies
}

/// A route that was just written to a Node which is no candidate, or to none.
fn fresh_route(env: &TestEnv, observed: &ObservedState, machines: &Machines) -> Option<String> {
    let last = env.writes.count();
    let calls = env.cloud_proxy.requests();
    let call = calls.iter().rev().find(|call| call.write == Some(last))?;
    let accepted = call.upstream_status.is_some_and(|status| status < 300);
    if !accepted || !call.path.ends_with("/actions/add_route") {
        return None;
    }
    let gateway = call.json()?["gateway"].as_str()?.to_owned();
    let to = observed.nodes.iter().find(|(_, node)| node.ip.is_some_and(|ip| ip.to_string() == gateway));
    let Some((name, node)) = to else {
        return Some(format!("a route was written to {gateway}, which is no Node"));
    };
    if !node.is_candidate() {
        return Some(format!(
            "a route was written to {name}, which is no candidate; candidates are {:?}",
            observed.candidates()
        ));
    }
    let kernel = machines.all.get(name).and_then(|machine| machine.translates_to.clone());
    (kernel.is_none()).then(|| format!("a route was written to {name}, whose kernel translates nothing"))
}

/// What must not be when nothing is left to do.
fn restless(observed: &ObservedState) -> Vec<String> {
    let mut violations = Vec::new();
    let (roles, candidates) = (observed.roles(), observed.candidates());
    if roles.len() > 1 {
        violations.push(format!("two role labels at rest: {roles:?}"));
    }
    if !candidates.is_empty() && !observed.holder().is_some_and(|(_, node)| node.is_candidate()) {
        violations.push(format!(
            "at rest the route points to {:?} ({:?}), which is no candidate; candidates are {candidates:?}",
            observed.route,
            observed.holder().map(|(name, _)| name)
        ));
    }
    violations
}
