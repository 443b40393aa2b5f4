//! The environment of one run: machines, natgw processes, the invariant checker.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::hetzner::NewFloatingIp;
use e2e::natgw::{FLOATING_IP_LABEL, Gateway, TestEnv};
use e2e::program::{Launch, Program};
use e2e::sweep::Victim;
use e2e::wait::TIMEOUT;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::Patch;
use natgw::names;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::invariants::{InvariantChecker, Script, Scripts};
use super::observed::ObservedState;

/// How long a fault may occur after the end was reached: several polls of the cloud, and reports of a Node.
const AFTERWARDS: Duration = Duration::from_secs(30);
/// How often the environment is read while nothing seems to change.
const POLL: Duration = Duration::from_millis(500);
/// How often the number of reconciliations is read.
const RECONCILE_POLL: Duration = Duration::from_millis(40);

pub struct SweepEnv {
    pub env: Arc<TestEnv>,
    pub checker: InvariantChecker,
    pub gateways: Vec<Arc<Gateway>>,
    /// The natgw processes: one, or two that contend for a Lease.
    pub victims: Vec<Victim>,
    scripts: Scripts,
    launch: Launch,
}

impl SweepEnv {
    /// Without Nodes. `settings`: of natgw, beyond the environment's own. `elects`: two natgw processes contend for a Lease of a few seconds.
    pub fn new(
        env: TestEnv,
        settings: &str,
        elects: bool,
        scripts: impl Fn(&str, &str) -> Script + Send + Sync + 'static,
    ) -> Result<SweepEnv> {
        let env = Arc::new(env);
        let launch = env.natgw(settings)?;
        let launch = if elects {
            // As short as a busy machine allows.
            launch
                .args(["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"])
                .arg("--leader-elect-retry-period=400ms")
        } else {
            launch.arg("--leader-elect=false")
        };
        let checker = InvariantChecker::of(&env);
        let victims = (0..=u8::from(elects)).map(|_| Victim::default()).collect();
        Ok(SweepEnv { env, checker, gateways: Vec::new(), victims, scripts: Arc::new(scripts), launch })
    }

    /// A new Node with a floating IP on its server and in its label.
    pub async fn gateway(&mut self, ip: &str) -> Result<Arc<Gateway>> {
        let gateway = Arc::new(self.env.node(Some(ip)).await?);
        self.checker.run_jobs(&gateway, self.scripts.clone());
        self.gateways.push(gateway.clone());
        Ok(gateway)
    }

    /// The same, in the state in which natgw leaves it once it is set up.
    pub async fn settled(&mut self, ip: &str, primary: bool) -> Result<Arc<Gateway>> {
        let gateway = self.gateway(ip).await?;
        self.checker.machines().change(&gateway.name, |machine| machine.translates_to = Some(ip.to_owned()));
        let annotations =
            json!({ names::SETUP_ANNOTATION: ip, names::BOOT_ID_ANNOTATION: gateway.node.boot_id() });
        let labels = if primary { json!({ self.env.role_label(): "" }) } else { json!({}) };
        self.patch(&gateway, json!({ "metadata": { "annotations": annotations, "labels": labels } })).await?;
        if primary {
            self.env.hetzner.set_route(self.env.network, default_route(), Some(gateway.private_ip))?;
        }
        Ok(gateway)
    }

    /// Changes a Node as an administrator does.
    pub async fn patch(&self, gateway: &Gateway, body: Value) -> Result<()> {
        let nodes = Api::<Node>::all(self.env.client.clone());
        nodes.patch(&gateway.name, &Default::default(), &Patch::Merge(body)).await?;
        Ok(())
    }

    /// Assigns another floating IP to the Node's server and writes its label.
    pub async fn relabel(&self, gateway: &Gateway, ip: &str) -> Result<()> {
        // All kinds of one project share their IDs: far from those of servers and of the first floating IPs.
        let floating = NewFloatingIp::new("another", ip).id(gateway.server + 700).server(&gateway.name);
        self.env.hetzner.add_floating_ip(floating)?;
        gateway.node.label(FLOATING_IP_LABEL, Some(ip)).await
    }

    /// Starts the next natgw.
    pub fn start(&self) -> Result<()> {
        let next = self.victims.iter().find(|victim| victim.program().is_none());
        next.context("all are started")?.start(&self.launch)
    }

    /// The natgw processes that were started.
    pub fn programs(&self) -> Vec<Arc<Program>> {
        self.victims.iter().filter_map(Victim::program).collect()
    }

    /// Waits until the observed state is as `desired`.
    pub async fn wait_until(
        &self,
        what: &str,
        desired: impl Fn(&ObservedState) -> bool,
    ) -> Result<ObservedState> {
        let waits = async {
            loop {
                self.restart_exited()?;
                if let Some(observed) = self.checker.now().await.filter(|observed| desired(observed)) {
                    return Ok(observed);
                }
                // The check above has notified too.
                self.checker.changed().await;
                let _ = timeout(POLL, self.checker.changed()).await;
            }
        };
        match timeout(TIMEOUT, waits).await {
            Ok(observed) => observed,
            Err(_) => bail!("still waiting for {what}; there is {:#?}", self.checker.now().await),
        }
    }

    /// Starts natgw again where it was stopped or has lost its Lease, as a kubelet does.
    pub fn restart_exited(&self) -> Result<()> {
        for victim in self.victims.iter().filter(|victim| victim.program().is_some()) {
            if victim.ended()?.is_some() {
                victim.start(&self.launch)?;
            }
        }
        Ok(())
    }

    /// Waits until two reconciliations in a row, each triggered, have written nothing.
    pub async fn rest(&self) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        while Instant::now() < until {
            let before = self.env.writes.count();
            self.trigger_reconcile().await?;
            self.trigger_reconcile().await?;
            if self.env.writes.count() == before {
                return Ok(());
            }
        }
        bail!("natgw does not come to rest; it has written {} times", self.env.writes.count())
    }

    /// Waits for a short time until the condition holds.
    pub async fn wait_while_running(&self, condition: impl Fn() -> bool) {
        let until = Instant::now() + AFTERWARDS;
        while !condition() && Instant::now() < until {
            tokio::time::sleep(RECONCILE_POLL).await;
        }
    }

    /// Triggers a reconciliation by a change of a Node, and waits for it.
    pub async fn trigger_reconcile(&self) -> Result<()> {
        let gateway = self.gateways.first().context("no Node")?;
        let (processes, before) = self.reconciles().await;
        gateway.node.annotate("env/poke", Some(&format!("{:?}", Instant::now()))).await?;
        self.wait_for_reconciles(|now, reconciles| reconciles > if now == processes { before } else { 0.0 })
            .await
    }

    /// Waits for the first reconciliation.
    pub async fn first_reconcile(&self) -> Result<()> {
        self.wait_for_reconciles(|_, reconciles| reconciles > 0.0).await
    }

    /// Waits until the processes, and the number of their reconciliations, are as `desired`.
    pub async fn wait_for_reconciles(&self, desired: impl Fn(Vec<u32>, f64) -> bool) -> Result<()> {
        let until = Instant::now() + TIMEOUT;
        loop {
            self.restart_exited()?;
            let (processes, reconciles) = self.reconciles().await;
            if desired(processes, reconciles) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "natgw does not reconcile");
            tokio::time::sleep(RECONCILE_POLL).await;
        }
    }

    /// The process IDs, and the number of reconciliations so far.
    pub async fn reconciles(&self) -> (Vec<u32>, f64) {
        let (mut processes, mut sum) = (Vec::new(), 0.0);
        for program in self.programs() {
            processes.push(program.pid());
            // An error: it was stopped, or it starts.
            if let Ok(metrics) = program.metrics().await {
                let reconciles =
                    |result| metrics.sum("controller_runtime_reconcile_total", &[("result", result)]);
                sum += reconciles("success").unwrap_or(0.0) + reconciles("error").unwrap_or(0.0);
            }
        }
        (processes, sum)
    }

    /// The last lines of each natgw's output.
    pub fn log_tail(&self) -> String {
        let tail = |victim: &Victim| {
            let lines = victim.lines();
            lines[lines.len().saturating_sub(40)..].join("\n")
        };
        self.victims.iter().map(tail).collect::<Vec<_>>().join("\n")
    }

    /// Stops natgw and removes the Nodes, which would keep the control plane busy.
    pub async fn close(self) -> Result<()> {
        self.env.writes.forget_actions();
        for victim in &self.victims {
            victim.kill()?;
        }
        for gateway in self.gateways {
            gateway.node.silence().await;
            let nodes = Api::<Node>::all(self.env.client.clone());
            nodes.delete(&gateway.name, &Default::default()).await?;
        }
        Ok(())
    }
}

/// 0.0.0.0/0
pub fn default_route() -> ipnet::Ipv4Net {
    ipnet::Ipv4Net::default()
}
