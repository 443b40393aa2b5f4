//! A environment with machines, the natgws that act in it, and the invariants.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use e2e::fault_proxy::{Then, When, kill_process};
use e2e::hetzner::NewFloatingIp;
use e2e::hollow_node::HollowNode;
use e2e::natgw::{FLOATING_IP_LABEL, Gateway, TestEnv};
use e2e::program::{Launch, Program};
use natgw::names;
use serde_json::json;
use tokio::time::timeout;

use crate::natgw_sweep::invariants::{Course, InvariantChecker, Script};
use crate::natgw_sweep::observed::{End, ObservedState};

/// Longer than anything takes, with dozens of environments on a slow machine.
pub const TIMEOUT: Duration = Duration::from_secs(240);
/// How often the environment is looked at while nothing seems to change.
const POLL: Duration = Duration::from_millis(500);
/// A third of the grace that the control plane gives: dozens of Nodes share it.
const HEARTBEAT: Duration = Duration::from_secs(4);
/// How often natgw is asked how many reconciliations it has made.
const RECONCILE_POLL: Duration = Duration::from_millis(40);

/// The environment and who acts in it.
pub struct SweepEnv {
    pub env: Arc<TestEnv>,
    pub invariants: InvariantChecker,
    pub gateways: Vec<Arc<Gateway>>,
    course: Course,
    launch: Launch,
    programs: Arc<Mutex<Vec<Arc<Program>>>>,
}

impl SweepEnv {
    /// An empty one. `elects`: natgws contend for a Lease of a few seconds.
    pub async fn new(
        elects: bool,
        course: impl Fn(&str, &str) -> Script + Send + Sync + 'static,
    ) -> Result<SweepEnv> {
        let env = Arc::new(TestEnv::start().await?);
        // As in a cluster of its own: dozens of environments share this one, and each Node's news would wake every natgw.
        env.api_proxy.narrow("/api/v1/nodes", &format!("labelSelector=env%3D{}", env.namespace));
        let launch = env.natgw("")?;
        let launch = if elects {
            // As short as leaves room for a busy machine.
            launch
                .args(["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"])
                .arg("--leader-elect-retry-period=400ms")
        } else {
            launch.arg("--leader-elect=false")
        };
        let invariants = InvariantChecker::of(&env);
        let programs = Arc::new(Mutex::default());
        Ok(SweepEnv { env, invariants, gateways: Vec::new(), course: Arc::new(course), launch, programs })
    }

    /// A new Node with a floating IP on its server and in its label.
    pub async fn gateway(&mut self, ip: &str) -> Result<Arc<Gateway>> {
        let node = |name: &str, server| {
            HollowNode::builder(name).provider_id(format!("hcloud://{server}")).heartbeat(HEARTBEAT)
        };
        let gateway = Arc::new(self.env.node_as(Some(ip), node).await?);
        self.invariants.observe(&gateway, self.course.clone());
        self.gateways.push(gateway.clone());
        Ok(gateway)
    }

    /// The same, as natgw leaves it once it is set up: the end of the first scenario.
    pub async fn settled(&mut self, ip: &str, primary: bool) -> Result<Arc<Gateway>> {
        let gateway = self.gateway(ip).await?;
        self.invariants.was_set_up(&gateway, ip);
        let annotations =
            json!({ names::SETUP_ANNOTATION: ip, names::BOOT_ID_ANNOTATION: gateway.node.boot_id() });
        let labels = if primary { json!({ self.env.role_label(): "" }) } else { json!({}) };
        let body = json!({ "metadata": { "annotations": annotations, "labels": labels } });
        let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(self.env.client.clone());
        nodes.patch(&gateway.name, &Default::default(), &kube::api::Patch::Merge(body)).await?;
        if primary {
            self.env.hetzner.set_route(self.env.network, default_route(), Some(gateway.private_ip))?;
        }
        Ok(gateway)
    }

    /// Assigns another floating IP to the Node's server and writes its label.
    pub async fn relabel(&self, gateway: &Gateway, ip: &str) -> Result<()> {
        // All kinds of one project share their IDs: far from those of servers and of the first floating IPs.
        let floating = NewFloatingIp::new("another", ip).id(gateway.server + 700).server(&gateway.name);
        self.env.hetzner.add_floating_ip(floating)?;
        gateway.node.label(FLOATING_IP_LABEL, Some(ip)).await
    }

    /// Starts one natgw more.
    pub fn enter(&self) -> Result<()> {
        let program = Arc::new(self.launch.start()?);
        self.programs.lock().unwrap().push(program);
        Ok(())
    }

    /// The natgws that run, in the order of their entry.
    pub fn programs(&self) -> Vec<Arc<Program>> {
        self.programs.lock().unwrap().clone()
    }

    /// Kills the natgw that entered first of those that run, at its `n`th write from now, and lets another one enter. Then
    /// the next, at its first write, if `again`.
    pub fn kill_at(&self, n: u64, when: When, again: bool) -> Result<Killer> {
        let kills = Arc::new(Mutex::new(Vec::new()));
        arm(self.env.clone(), self.launch.clone(), self.programs.clone(), kills.clone(), (n, when, again))?;
        Ok(Killer(kills))
    }

    /// Waits until the environment is as `desired` says.
    pub async fn wait_until(
        &self,
        what: &str,
        desired: impl Fn(&ObservedState) -> bool,
    ) -> Result<ObservedState> {
        let waits = async {
            loop {
                self.restart_exited()?;
                if let Some(observed) = self.invariants.now().await.filter(|observed| desired(observed)) {
                    return Ok(observed);
                }
                // The look itself has said that something changed; a second one is not needed for that.
                self.invariants.changed().await;
                let _ = timeout(POLL, self.invariants.changed()).await;
            }
        };
        match timeout(TIMEOUT, waits).await {
            Ok(observed) => observed,
            Err(_) => bail!("still waiting for {what}; there is {:#?}", self.invariants.now().await),
        }
    }

    /// Who ended by itself (a lost lease) is started again, as a kubelet does.
    fn restart_exited(&self) -> Result<()> {
        let mut programs = self.programs.lock().unwrap();
        for program in programs.iter_mut() {
            if program.exited()?.is_some() {
                *program = Arc::new(self.launch.start()?);
            }
        }
        Ok(())
    }

    /// Waits until two reconciliations in a row, each called for, have written nothing.
    pub async fn rest(&self) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            let before = self.env.writes.count();
            for _ in 0..2 {
                self.trigger_reconcile(until).await?;
            }
            if self.env.writes.count() == before {
                return Ok(());
            }
        }
        bail!("natgw never rests; its writes: {:?}", self.env.writes.count())
    }

    /// Calls for a reconciliation and waits for one.
    pub async fn trigger_reconcile(&self, until: Instant) -> Result<()> {
        let gateway = self.gateways.first().context("no Node")?;
        let (programs, before) = self.reconciles().await;
        gateway.node.annotate("env/poke", Some(&format!("{:?}", Instant::now()))).await?;
        while Instant::now() < until {
            self.restart_exited()?;
            let (now, reconciles) = self.reconciles().await;
            if reconciles > if now == programs { before } else { 0.0 } {
                return Ok(());
            }
            tokio::time::sleep(RECONCILE_POLL).await;
        }
        bail!("natgw reconciles no more")
    }

    /// Who runs, and how many reconciliations they have made.
    pub async fn reconciles(&self) -> (Vec<u32>, f64) {
        let (mut who, mut sum) = (Vec::new(), 0.0);
        for program in self.programs() {
            who.push(program.pid());
            // No answer: it is dead or is being born.
            if let Ok(metrics) = program.metrics().await {
                let reconciles =
                    |result| metrics.sum("controller_runtime_reconcile_total", &[("result", result)]);
                sum += reconciles("success").unwrap_or(0.0) + reconciles("error").unwrap_or(0.0);
            }
        }
        (who, sum)
    }

    /// Waits until somebody has made a reconciliation.
    pub async fn first_reconcile(&self) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while self.reconciles().await.1 == 0.0 {
            self.restart_exited()?;
            anyhow::ensure!(Instant::now() < until, "natgw never reconciles");
            tokio::time::sleep(RECONCILE_POLL).await;
        }
        Ok(())
    }

    /// The end of the story as `observed` has it.
    pub fn end(&self, observed: &ObservedState) -> End {
        let order: Vec<String> = self.gateways.iter().map(|gateway| gateway.name.clone()).collect();
        End::of(observed, &self.invariants.machines(), &order)
    }

    /// The last lines that the natgws wrote, for the report of a failure.
    pub fn log_tail(&self) -> String {
        let lines = self.programs().into_iter().flat_map(|program| {
            let lines = program.output().lines();
            let skip = lines.len().saturating_sub(40);
            lines.into_iter().skip(skip)
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Everybody leaves, and the Nodes go: dead ones would keep the control plane busy.
    pub async fn close(self) -> Result<()> {
        self.env.writes.forget_actions();
        for program in self.programs.lock().unwrap().drain(..) {
            // One that is gone already is as good.
            let _ = program.kill();
        }
        for gateway in self.gateways {
            gateway.node.silence().await;
            let nodes = kube::Api::<k8s_openapi::api::core::v1::Node>::all(self.env.client.clone());
            nodes.delete(&gateway.name, &Default::default()).await?;
        }
        Ok(())
    }
}

/// 0.0.0.0/0
pub fn default_route() -> ipnet::Ipv4Net {
    ipnet::Ipv4Net::default()
}

/// Who was killed, and when.
pub struct Killer(Arc<Mutex<Vec<String>>>);

impl Killer {
    /// The writes at which somebody was killed.
    pub fn kills(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

fn arm(
    env: Arc<TestEnv>,
    launch: Launch,
    programs: Arc<Mutex<Vec<Arc<Program>>>>,
    kills: Arc<Mutex<Vec<String>>>,
    (n, when, again): (u64, When, bool),
) -> Result<()> {
    let victim = programs.clone();
    let fired = env.writes.on_write(n, when, move || async move {
        let pid = victim.lock().unwrap().first().map(|program| program.pid());
        if let Some(pid) = pid {
            // A pid of our own child, which is not collected before it leaves the programs: it is nobody else's.
            kill_process(pid).await.unwrap();
        }
        Then::Cut
    })?;
    tokio::spawn(async move {
        let Ok(write) = fired.wait(TIMEOUT).await else { return };
        kills.lock().unwrap().push(format!("{} {}", write.method, write.target));
        let Ok(next) = launch.start() else { return };
        {
            let mut programs = programs.lock().unwrap();
            programs.remove(0);
            programs.push(Arc::new(next));
        }
        if again {
            let _ = arm(env, launch, programs, kills, (1, when, false));
        }
    });
    Ok(())
}
