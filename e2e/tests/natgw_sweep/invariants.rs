//! Checks the environment after each of natgw's writes (before the next one is forwarded), at the start and the end of each script
//! on a machine, and at rest. Each check reads the API server and the cloud and compares them with the state of the machines. Two
//! reads are compared only if no machine changed in between, so that a violation is certain.
//!
//! Forbidden:
//! 1. Two scripts run on one machine at a time.
//! 2. A Job exists next to a terminating Job with another task on the same Node.
//! 3. A teardown starts while the route points to its machine and another machine is set up.
//! 4. An annotation is wrong: it reports a setup for this boot, nothing is pending, and the kernel translates to something else,
//!    although no other program has changed it.
//! 5. A route is written to an address without a Node, to a Node that is no candidate, or to one whose kernel translates nothing.
//! 6. More than two Nodes have the role label at any time, or more than one at rest.
//! 7. At rest, the route does not point to a candidate although there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use e2e::fault_proxy::{Then, When};
use e2e::hollow_node::Outcome;
use e2e::natgw::{Gateway, TestEnv, task_of};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use natgw::names;
use tokio::sync::Notify;

use super::observed::ObservedState;

/// How long a script runs: long enough that a controller which does not wait for its end is seen.
const WORK: Duration = Duration::from_millis(150);
/// Exit code of a verification that has found a difference.
const DIFFERS: i32 = 5;
/// More writes than any run makes.
const WRITES: u64 = 150;

/// The behaviour of a Job's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Script {
    Succeeds,
    /// It ends when the default route points to another machine.
    SucceedsAfterMove,
    /// At once.
    Fails,
    /// It never ends.
    Hangs,
}

/// Decides the script of a Job by its type and its attempt.
pub type Scripts = Arc<dyn Fn(&str, &str) -> Script + Send + Sync>;

/// One machine: its kernel and its scripts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The floating IP: from the end of a setup to the start of a teardown, or to a reboot.
    pub translates_to: Option<String>,
    /// Its address in the network.
    ip: Option<Ipv4Addr>,
    /// The kernel is new, and the kubelet has not reported it yet.
    rebooting: bool,
    /// Another program has removed its rules, and no setup has run since.
    flushed: bool,
    /// The types of Jobs that have started here.
    pub started: BTreeSet<String>,
    /// The pods whose script runs.
    running: Vec<String>,
}

/// All machines of an environment, by the names of their Nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machines {
    /// Grows with each change.
    version: u64,
    pub all: BTreeMap<String, Machine>,
}

impl Machines {
    /// Changes a machine.
    pub fn change<R>(&mut self, name: &str, change: impl FnOnce(&mut Machine) -> R) -> R {
        self.version += 1;
        change(self.all.entry(name.to_owned()).or_default())
    }

    /// A Job's script starts; `runs` reports whether a pod's script still runs. Returns the violation.
    fn start(
        &mut self,
        name: &str,
        pod: &str,
        kind: &str,
        route: Option<Ipv4Addr>,
        runs: impl Fn(&str) -> bool,
    ) -> Option<String> {
        let another =
            self.all.iter().any(|(other, machine)| other != name && machine.translates_to.is_some());
        self.change(name, |machine| {
            machine.started.insert(kind.to_owned());
            machine.running.retain(|each| each != pod && runs(each));
            let others = machine.running.clone();
            machine.running.push(pod.to_owned());
            if kind == "teardown" {
                machine.translates_to = None;
                if another && machine.ip.is_some() && machine.ip == route {
                    return Some(format!(
                        "{name} is torn down while the route points to it, and another is set up"
                    ));
                }
            }
            (!others.is_empty()).then(|| format!("{pod} runs on {name} next to {others:?}"))
        })
    }
}

/// The invariant checker of one environment; clones are handles of the same one.
#[derive(Clone)]
pub struct InvariantChecker(Arc<Inner>);

struct Inner {
    env: Weak<TestEnv>,
    machines: Mutex<Machines>,
    violations: Mutex<BTreeSet<String>>,
    changed: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    /// natgw's write has just been done; no other is forwarded until the check is over.
    Write,
    Any,
    /// natgw has nothing left to do.
    Rest,
}

impl InvariantChecker {
    /// Checks from now on.
    pub fn of(env: &Arc<TestEnv>) -> InvariantChecker {
        let checker = InvariantChecker(Arc::new(Inner {
            env: Arc::downgrade(env),
            machines: Mutex::default(),
            violations: Mutex::default(),
            changed: Notify::new(),
        }));
        for n in 1..=WRITES {
            let checker = checker.clone();
            let check = move || async move {
                checker.check(Moment::Write).await;
                Then::GoOn
            };
            // Fails for 0 only.
            let _ = env.writes.on_write(n, When::AfterServerActed, check);
        }
        checker
    }

    /// Runs the scripts of the Jobs on this machine, as `scripts` decides.
    pub fn run_jobs(&self, gateway: &Arc<Gateway>, scripts: Scripts) {
        self.machines().change(&gateway.name, |machine| machine.ip = Some(gateway.private_ip));
        let (checker, machine) = (self.clone(), Arc::downgrade(gateway));
        gateway.node.on_pod(move |pod| {
            if let Some(machine) = machine.upgrade() {
                let script =
                    scripts(&pod.labels()[names::TYPE_LABEL], &pod.annotations()[names::ATTEMPT_ANNOTATION]);
                checker.run(&machine, pod, script);
            }
            // The pod ends in `run`, after the kernel has changed.
            Outcome::Hang
        });
    }

    fn run(&self, gateway: &Arc<Gateway>, pod: &Pod, script: Script) {
        let (name, task) = (pod.name_any(), task_of(pod));
        let (kind, ip) = task.split_once(':').unwrap_or_default();
        let runs = |gateway: &Gateway, name: &str| {
            gateway.node.pods().iter().any(|pod| pod.name_any() == name && script_runs(pod))
        };
        let route = self.route();
        let violation =
            self.machines().start(&gateway.name, &name, kind, route, |other| runs(gateway, other));
        self.report(violation);
        let sets_up = (kind == "setup" && script != Script::Fails).then(|| ip.to_owned());
        let is_verification = kind == "verify";
        let (checker, gateway) = (self.clone(), Arc::downgrade(gateway));
        tokio::spawn(async move {
            checker.check(Moment::Any).await;
            if script == Script::Hangs {
                return;
            }
            let gateway = loop {
                tokio::time::sleep(WORK).await;
                let Some(gateway) = gateway.upgrade() else { return };
                let has_moved = || checker.route().is_some_and(|next_hop| next_hop != gateway.private_ip);
                if script != Script::SucceedsAfterMove || has_moved() {
                    break gateway;
                }
            };
            // A pod that was deleted meanwhile has set up nothing for sure.
            let sets_up = sets_up.filter(|_| runs(&gateway, &name));
            let exit = checker.machines().change(&gateway.name, |machine| {
                machine.running.retain(|each| *each != name);
                if sets_up.is_some() {
                    machine.translates_to = sets_up;
                    machine.flushed = false;
                }
                match machine.translates_to {
                    None if is_verification => DIFFERS,
                    _ => i32::from(script == Script::Fails),
                }
            });
            let _ = gateway.node.finish(&name, exit);
            drop(gateway);
            checker.check(Moment::Any).await;
        });
    }

    /// The next hop of the default route.
    fn route(&self) -> Option<Ipv4Addr> {
        self.0.env.upgrade().and_then(|env| env.hetzner.default_gateway(env.network))
    }

    /// Restarts a machine: its kernel is new before the kubelet reports it.
    pub async fn reboot(&self, gateway: &Gateway) -> anyhow::Result<()> {
        self.machines().change(&gateway.name, |machine| {
            machine.rebooting = true;
            machine.translates_to = None;
        });
        let rebooted = gateway.node.reboot().await;
        self.machines().change(&gateway.name, |machine| machine.rebooting = false);
        rebooted
    }

    /// Removes the rules of a machine, as another program does.
    pub fn flush(&self, gateway: &Gateway) {
        self.machines().change(&gateway.name, |machine| {
            machine.translates_to = None;
            machine.flushed = true;
        });
    }

    /// The state of the machines.
    pub fn machines(&self) -> MutexGuard<'_, Machines> {
        self.0.machines.lock().unwrap()
    }

    /// Checks an environment in which natgw has nothing left to do.
    pub async fn at_rest(&self) -> Option<ObservedState> {
        self.check(Moment::Rest).await
    }

    /// Checks now.
    pub async fn now(&self) -> Option<ObservedState> {
        self.check(Moment::Any).await
    }

    /// Waits for a check: after a write of natgw, or the start or end of a script.
    pub async fn changed(&self) {
        self.0.changed.notified().await;
    }

    /// The forbidden states that were seen.
    pub fn violations(&self) -> BTreeSet<String> {
        self.0.violations.lock().unwrap().clone()
    }

    async fn check(&self, moment: Moment) -> Option<ObservedState> {
        let env = self.0.env.upgrade()?;
        let before = self.machines().version;
        // After an error, the next check reads again: a busy API server responds late at times.
        let observed = ObservedState::of(&env).await.ok()?;
        let machines = self.machines().clone();
        self.report(next_to_terminating(&observed));
        let roles = observed.roles();
        self.report((roles.len() > 2).then(|| format!("more than two role labels: {roles:?}")));
        if before == machines.version {
            self.report(wrong_annotations(&observed, &machines));
        }
        match moment {
            Moment::Write => self.report(written_route(&env, &observed, &machines)),
            Moment::Rest => self.report(unsettled(&observed)),
            Moment::Any => {}
        }
        self.0.changed.notify_one();
        Some(observed)
    }

    fn report(&self, violations: impl IntoIterator<Item = String>) {
        self.0.violations.lock().unwrap().extend(violations);
    }
}

fn script_runs(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn next_to_terminating(observed: &ObservedState) -> Vec<String> {
    let with_both = observed.nodes.iter().filter(|(_, node)| {
        let mut pairs = node.jobs.iter().flat_map(|one| node.jobs.iter().map(move |other| (one, other)));
        pairs.any(|(one, other)| !one.terminating && other.terminating && other.task != one.task)
    });
    with_both
        .map(|(name, node)| format!("a Job next to a terminating one on {name}: {:?}", node.jobs))
        .collect()
}

fn wrong_annotations(observed: &ObservedState, machines: &Machines) -> Vec<String> {
    let wrong = observed.nodes.iter().filter_map(|(name, node)| {
        let (setup, machine) = (node.setup()?, machines.all.get(name)?);
        let current = !node.pending() && node.this_boot && !machine.rebooting && !machine.flushed;
        let kernel = &machine.translates_to;
        (current && kernel.as_ref() != Some(setup))
            .then(|| format!("the annotation of {name} reports {setup}, its kernel has {kernel:?}"))
    });
    wrong.collect()
}

fn written_route(env: &TestEnv, observed: &ObservedState, machines: &Machines) -> Option<String> {
    let last = env.writes.count();
    let calls = env.cloud_proxy.requests();
    let call = calls.iter().rev().find(|call| call.write == Some(last))?;
    if !call.is_accepted() || !call.path.ends_with("/actions/add_route") {
        return None;
    }
    let gateway = call.json()?["gateway"].as_str()?.to_owned();
    let to = observed.nodes.iter().find(|(_, node)| node.ip.is_some_and(|ip| ip.to_string() == gateway));
    let Some((name, node)) = to else {
        return Some(format!("a route was written to {gateway}, which is no Node"));
    };
    if !node.is_candidate() {
        let candidates = observed.candidates();
        return Some(format!(
            "a route was written to {name}, which is no candidate; candidates are {candidates:?}"
        ));
    }
    let kernel = machines.all.get(name).and_then(|machine| machine.translates_to.as_ref());
    kernel.is_none().then(|| format!("a route was written to {name}, whose kernel translates nothing"))
}

fn unsettled(observed: &ObservedState) -> Vec<String> {
    let (roles, candidates) = (observed.roles(), observed.candidates());
    let two = (roles.len() > 1).then(|| format!("two role labels at rest: {roles:?}"));
    let next_hop = observed.next_hop();
    let lost = !candidates.is_empty() && !next_hop.is_some_and(|(_, node)| node.is_candidate());
    let lost = lost.then(|| {
        let (route, name) = (observed.route, next_hop.map(|(name, _)| name));
        format!(
            "at rest the route points to {route:?} ({name:?}), no candidate; candidates are {candidates:?}"
        )
    });
    two.into_iter().chain(lost).collect()
}
