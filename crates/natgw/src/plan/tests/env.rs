//! A simulated environment in which plans are executed: API server, Job controller, kernels and cloud. It is as strict
//! as they are: a write with an outdated resourceVersion, a second Job or a wrong route fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use common::plan::{Plan, Reason as _};
use jiff::{SignedDuration, Timestamp};

use crate::config::Config;
use crate::observe::health::Health;
use crate::observe::snapshot::{Attached, Job, Network, Node, Outcome, Ready, Server, Snapshot};
use crate::plan::{Action, plan};
use crate::task::{Kind, Part, Role, Task};

pub fn fip(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, 100, n)
}

pub fn private(n: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, n)
}

pub fn config() -> Config {
    config_with("")
}

/// The settings `network: lan` and these further lines of YAML.
pub fn config_with(more: &str) -> Config {
    let settings = serde_yaml::from_str(&format!("network: lan\n{more}")).unwrap();
    Config { namespace: "natgw".into(), ..Config::new(settings).unwrap() }
}

#[derive(Clone, Debug)]
pub struct TestEnv {
    pub config: Config,
    pub snapshot: Snapshot,
    pub now: Timestamp,
    /// The parts that are set up in each Node's kernel, by the Node's name.
    pub kernel: BTreeMap<String, BTreeSet<Part>>,
    /// The ID of the server to which each floating IP is assigned; None: to no server.
    pub assigned: BTreeMap<Ipv4Addr, Option<u64>>,
    /// Whether the floating IPs can be listed.
    pub can_list: bool,
    /// The text of every step done.
    pub log: Vec<String>,
    version: u32,
}

impl TestEnv {
    pub fn new(config: Config) -> TestEnv {
        TestEnv {
            config,
            snapshot: Snapshot {
                nodes: Vec::new(),
                jobs: BTreeMap::new(),
                network: Network {
                    id: 1,
                    name: "lan".into(),
                    ip_range: "10.0.0.0/16".parse().unwrap(),
                    default_route: None,
                    servers: BTreeMap::new(),
                },
                floating_ips: None,
                floating_ip_polls: 1,
                floating_ips_error: None,
                health: Health::default(),
            },
            now: "2026-11-21T12:00:00Z".parse().unwrap(),
            kernel: BTreeMap::new(),
            assigned: BTreeMap::new(),
            can_list: true,
            log: Vec::new(),
            version: 1,
        }
    }

    /// A Ready Node `node-<n>` on server n at 10.0.0.<n+1>; a smaller n is older.
    pub fn node(mut self, n: u8, label: Option<Ipv4Addr>) -> TestEnv {
        let name = format!("node-{n}");
        let ip = private(n + 1);
        self.snapshot.nodes.push(Node {
            uid: format!("uid-{n}"),
            resource_version: "1".into(),
            created: self.now - SignedDuration::from_hours(24 - i64::from(n)),
            terminating: false,
            selected: true,
            ready: Ready::True,
            cordoned: false,
            boot_id: format!("boot-{n}-0"),
            label: label.map(|ip| ip.to_string()),
            setup: None,
            client: None,
            setup_boot_id: None,
            setup_private_ip: None,
            setup_hash: None,
            pending: None,
            failures: 0,
            retry_after: None,
            forget: false,
            role: false,
            server: Server::Cloud { id: n.into(), private_ip: Some(ip) },
            name,
        });
        let server = Attached { id: n.into(), name: format!("node-{n}") };
        self.snapshot.network.servers.insert(ip, server);
        if let Some(label) = label {
            self.assigned.entry(label).or_insert(Some(n.into()));
        }
        self
    }

    /// Two gateways, settled: the route is at node-1.
    pub fn two_gateways() -> TestEnv {
        let mut env = TestEnv::new(config()).node(1, Some(fip(1))).node(2, Some(fip(2)));
        env.settle();
        env.log.clear();
        // An hour later: the Jobs' TTL is over.
        env.snapshot.jobs.clear();
        assert_eq!(env.primary(), ["node-1"]);
        env
    }

    /// Changes a Node as another client does.
    pub fn edit(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        self.version += 1;
        let version = self.version.to_string();
        let node = self.node_mut(name);
        change(node);
        node.resource_version = version;
    }

    fn node_mut(&mut self, name: &str) -> &mut Node {
        self.snapshot.nodes.iter_mut().find(|node| node.name == name).unwrap()
    }

    pub fn get(&self, name: &str) -> &Node {
        self.snapshot.nodes.iter().find(|node| node.name == name).unwrap()
    }

    pub fn reboot(&mut self, name: &str) {
        self.kernel.remove(name);
        self.edit(name, |node| node.boot_id.push('1'));
    }

    /// Nodes with the role label.
    pub fn primary(&self) -> Vec<&str> {
        self.snapshot.nodes.iter().filter(|node| node.role).map(|node| node.name.as_str()).collect()
    }

    pub fn jobs(&self, name: &str) -> Vec<String> {
        self.snapshot.jobs_of(name).iter().filter_map(|job| job.task).map(|task| task.to_string()).collect()
    }

    pub fn observe(&self) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        if self.can_list {
            snapshot.floating_ips = Some(self.assigned.clone());
        }
        snapshot
    }

    pub fn plan(&self) -> Plan<Action> {
        plan(&self.config, &self.observe(), self.now)
    }

    pub fn steps(&self) -> Vec<String> {
        self.plan().steps.iter().map(|step| step.action.to_string()).collect()
    }

    pub fn problems(&self) -> Vec<&'static str> {
        self.plan().problems.iter().map(|problem| problem.because.code()).collect()
    }

    /// One reconciliation. Returns how many steps were done.
    pub fn reconcile(&mut self) -> usize {
        self.reconcile_up_to(usize::MAX)
    }

    /// A reconciliation that is stopped after `limit` steps, as by a crash.
    pub fn reconcile_up_to(&mut self, limit: usize) -> usize {
        let plan = self.plan();
        // Within one plan, later steps carry the version that earlier ones made.
        let mut versions = BTreeMap::new();
        for step in plan.steps.iter().take(limit) {
            self.act(&step.action, &mut versions);
            self.log.push(step.action.to_string());
        }
        plan.steps.len().min(limit)
    }

    /// Reconciliations until nothing is left to do; Jobs succeed.
    pub fn settle(&mut self) {
        self.settle_with(|_| true);
    }

    /// Reconciles until nothing is left to do; `succeeds` decides the outcome of each Job.
    pub fn settle_with(&mut self, succeeds: impl Fn(Task) -> bool) {
        for _ in 0..200 {
            let acted = self.reconcile() > 0;
            let ended = self.end_jobs(&succeeds);
            if !acted && !ended {
                return;
            }
        }
        panic!("no end in sight:\n{}", self.log.join("\n"));
    }

    /// Ends every running Job and removes every deleted Job. Returns whether anything has changed.
    pub fn end_jobs(&mut self, succeeds: &impl Fn(Task) -> bool) -> bool {
        let mut happened = false;
        let now = self.now;
        for (name, jobs) in &mut self.snapshot.jobs {
            let node = self.snapshot.nodes.iter().find(|node| &node.name == name);
            // Without a kubelet pods neither run nor end.
            if node.is_none_or(|node| node.ready == Ready::Unknown) {
                continue;
            }
            let before = jobs.len();
            jobs.retain(|job| !job.terminating);
            happened |= jobs.len() != before;
            for job in jobs.iter_mut().filter(|job| job.outcome == Outcome::Running) {
                let Some(task) = job.task else { continue };
                happened = true;
                let kernel = self.kernel.entry(name.clone()).or_default();
                if task.kind == Kind::Verify && succeeds(task) {
                    let is_set_up = kernel.contains(&task.part());
                    job.outcome =
                        if is_set_up { Outcome::Succeeded { at: now } } else { Outcome::Differs { at: now } };
                } else if succeeds(task) {
                    if task.kind.is_setup() {
                        kernel.insert(task.part());
                    } else {
                        kernel.remove(&task.part());
                    }
                    job.outcome = Outcome::Succeeded { at: now };
                } else {
                    // A script that failed may have done half of its work.
                    if task.kind.is_setup() {
                        kernel.insert(task.part());
                    }
                    job.outcome = Outcome::Failed { at: now, message: "BackoffLimitExceeded".into() };
                }
            }
        }
        happened
    }

    fn act(&mut self, action: &Action, versions: &mut BTreeMap<String, String>) {
        match action {
            Action::MoveRoute { from, to, .. } => {
                assert_eq!(self.snapshot.network.default_route, *from);
                self.snapshot.network.default_route = Some(*to);
            }
            Action::RemoveRoute { gateway, .. } => {
                assert_eq!(self.snapshot.network.default_route, Some(*gateway));
                self.snapshot.network.default_route = None;
            }
            Action::CreateJob { node, job } => {
                let jobs = self.snapshot.jobs.entry(node.name.clone()).or_default();
                assert!(jobs.is_empty(), "a second Job on {}: {jobs:?} and {job:?}", node.name);
                let node = self.snapshot.nodes.iter().find(|one| one.name == node.name).unwrap();
                if job.task.kind != Kind::Verify {
                    assert_eq!(node.pending, Some(job.task.to_string()), "a Job without a marker");
                }
                jobs.push(Job {
                    name: job.name.clone(),
                    uid: format!("{}-uid", job.name),
                    task: Some(job.task),
                    generation: job.generation.clone(),
                    attempt: job.attempt,
                    terminating: false,
                    outcome: Outcome::Running,
                });
            }
            Action::DeleteJob { node, uid, .. } => {
                let job =
                    self.snapshot.jobs.get_mut(&node.name).unwrap().iter_mut().find(|job| &job.uid == uid);
                job.unwrap().terminating = true;
            }
            _ => self.patch(action, versions),
        }
    }

    fn patch(&mut self, action: &Action, versions: &mut BTreeMap<String, String>) {
        let reference = action.node().clone();
        let expected = versions.get(&reference.name).unwrap_or(&reference.resource_version).clone();
        self.version += 1;
        let version = self.version.to_string();
        let node = self.node_mut(&reference.name);
        assert_eq!(node.resource_version, expected, "an outdated write: {action}");
        node.resource_version.clone_from(&version);
        versions.insert(reference.name, version);
        let set = |node: &mut Node, task: &Task, value: Option<String>| match task.kind.role() {
            Role::Gateway => node.setup = value,
            Role::Client => node.client = value,
        };
        let settle = |node: &mut Node| {
            node.pending = None;
            node.failures = 0;
            node.retry_after = None;
        };
        match action {
            Action::SetRole { .. } => node.role = true,
            Action::ClearRole { .. } => node.role = false,
            Action::LabelFloatingIP { ip, .. } => node.label = ip.map(|ip| ip.to_string()),
            Action::RecordPending { task, failures, .. } => {
                node.pending = Some(task.to_string());
                node.failures = *failures;
                node.retry_after = None;
            }
            Action::RecordSetup { task, boot_id, private_ip, hash, .. } => {
                node.setup_private_ip = *private_ip;
                node.setup_hash = Some(hash.clone());
                settle(node);
                set(node, task, Some(task.ip.to_string()));
                node.setup_boot_id = Some(boot_id.clone());
            }
            Action::RecordTeardown { task, .. } => {
                settle(node);
                set(node, task, None);
                (node.setup_boot_id, node.setup_private_ip, node.setup_hash) = (None, None, None);
            }
            Action::RecordFailure { failures, retry_after, .. } => {
                node.failures = *failures;
                node.retry_after = Some(*retry_after);
            }
            Action::Forget { .. } => {
                settle(node);
                node.setup = None;
                node.client = None;
                (node.setup_boot_id, node.setup_private_ip, node.setup_hash) = (None, None, None);
                node.forget = false;
            }
            other => panic!("{other} writes to no Node"),
        }
    }

    /// Asserts the invariants of every state, also in the middle of a reconciliation.
    pub fn assert_safe(&self) {
        for node in &self.snapshot.nodes {
            let kernel = self.kernel.get(&node.name).cloned().unwrap_or_default();
            if let Some(ip) = node.setup.as_ref().filter(|_| node.pending.is_none() && !node.forget)
                && node.setup_boot_id.as_deref() == Some(&node.boot_id)
            {
                let part = Part { role: Role::Gateway, ip: ip.parse().unwrap() };
                assert!(
                    kernel.contains(&part),
                    "{}: the annotation tells a lie\n{}",
                    node.name,
                    self.log.join("\n")
                );
            }
            let active: Vec<&Job> = self
                .snapshot
                .jobs_of(&node.name)
                .iter()
                .filter(|job| job.outcome == Outcome::Running)
                .collect();
            assert!(active.len() < 2, "{}: {active:?}", node.name);
        }
    }

    /// Asserts the invariants of a state in which nothing is left to do.
    pub fn assert_settled(&self) {
        let roles = self.primary();
        assert!(roles.len() < 2, "{roles:?}");
        for node in &self.snapshot.nodes {
            let label = node.label.as_ref().and_then(|label| label.parse().ok()).filter(|_| node.selected);
            let usable = matches!(node.server, Server::Cloud { private_ip: Some(_), .. })
                && node.ready != Ready::Unknown;
            if usable && !node.terminating && node.retry_after.is_none() {
                let desired: BTreeSet<Part> =
                    label.map(|ip| Part { role: Role::Gateway, ip }).into_iter().collect();
                let kernel = self.kernel.get(&node.name).cloned().unwrap_or_default();
                assert_eq!(kernel, desired, "{}\n{}", node.name, self.log.join("\n"));
                assert_eq!(node.pending, None, "{}", node.name);
            }
        }
    }
}
