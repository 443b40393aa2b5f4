//! The scenarios: how each starts, what happens, and when it is over.

use std::time::Duration;

use anyhow::Result;
use e2e::fault_proxy::{Fault, Matcher};
use e2e::hetzner::NewServer;
use e2e::natgw::{FLOATING_IP_LABEL, TIMEOUT, TestEnv};
use jiff::Timestamp;
use kube::ResourceExt as _;
use natgw::names;
use serde_json::json;

use super::env::{SweepEnv, default_route};
use super::invariants::Script;
use super::observed::ObservedState;

pub const FIRST: &str = "198.51.100.1";
pub const SECOND: &str = "198.51.100.2";
const THIRD: &str = "198.51.100.3";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    /// A Node gets its first setup and becomes the primary.
    FirstGateway,
    /// The primary is cordoned.
    Cordon,
    /// The primary becomes NotReady.
    NotReady,
    /// The primary's label names another floating IP.
    IpChanged,
    /// The primary loses its label.
    LabelLost,
    /// The primary's label is back before the end of its teardown, which hangs.
    LabelFlap,
    /// The primary reboots.
    Reboot,
    /// The first setup Job fails.
    JobFailed,
    /// The primary is cordoned and the route is lost while no event of a Node arrives.
    StaleCache,
    /// The primary is cordoned, two natgw processes contend for the Lease, and a stop hits both in a row.
    TwoLeaders,
    /// The route points to a server without a Node.
    ForeignRoute,
    /// Another program has removed the primary's rules, and a verification finds it.
    Flushed,
}

impl Scenario {
    pub const ALL: [Scenario; 12] = [
        Scenario::FirstGateway,
        Scenario::Cordon,
        Scenario::NotReady,
        Scenario::IpChanged,
        Scenario::LabelLost,
        Scenario::LabelFlap,
        Scenario::Reboot,
        Scenario::JobFailed,
        Scenario::StaleCache,
        Scenario::TwoLeaders,
        Scenario::ForeignRoute,
        Scenario::Flushed,
    ];

    /// Whether natgw starts under the fault; in the other scenarios it has reconciled before.
    pub fn starts_disturbed(self) -> bool {
        matches!(self, Scenario::FirstGateway | Scenario::ForeignRoute | Scenario::Flushed)
    }

    /// Settings of natgw.
    fn settings(self) -> &'static str {
        // No second verification within a run.
        if self == Scenario::Flushed { "verification: {enabled: true, interval: 1h}" } else { "" }
    }

    /// Whether two natgw processes contend for the Lease.
    pub fn elects(self) -> bool {
        self == Scenario::TwoLeaders
    }

    /// The fewest writes: with fewer, the run would be another scenario.
    pub fn least_writes(self) -> u64 {
        match self {
            // new route, role on, role off
            Scenario::StaleCache | Scenario::ForeignRoute => 3,
            // old route away, new route, role on, role off
            Scenario::Cordon | Scenario::NotReady | Scenario::TwoLeaders => 4,
            // pending, Job, setup, route, role
            Scenario::FirstGateway => 5,
            // as a cordon, and pending, Job, setup
            Scenario::LabelLost | Scenario::Reboot => 7,
            // as the first gateway, and failure, Job away, pending, Job
            Scenario::JobFailed => 9,
            // as a cordon, and twice pending, Job, setup, with the first Job away in between
            // or two verifications, and as a cordon, and pending, Job away, Job, setup
            Scenario::IpChanged | Scenario::LabelFlap | Scenario::Flushed => 10,
        }
    }

    /// Nodes, route and servers before natgw starts.
    pub async fn prepare(self, env: TestEnv) -> Result<SweepEnv> {
        let scripts = move |kind: &str, attempt: &str| match (self, kind, attempt) {
            (Scenario::JobFailed, "setup", "1") => Script::Fails,
            (Scenario::LabelFlap, "teardown", _) => Script::Hangs,
            // With a setup before the move, as where a cloud refuses the move several times, the primary rightly stays.
            (Scenario::Reboot, "setup", _) => Script::SucceedsAfterMove,
            _ => Script::Succeeds,
        };
        let mut env = SweepEnv::new(env, self.settings(), self.elects(), scripts)?;
        match self {
            Scenario::FirstGateway => drop(env.gateway(FIRST).await?),
            // The label is added when natgw runs.
            Scenario::JobFailed => env.gateway(FIRST).await?.node.label(FLOATING_IP_LABEL, None).await?,
            Scenario::ForeignRoute => {
                env.settled(FIRST, false).await?;
                let foreign = [10, 0, 7, 7].into();
                env.env.hetzner.add_server(NewServer::new("foreign").attached("lan", foreign))?;
                env.env.hetzner.set_route(env.env.network, default_route(), Some(foreign))?;
            }
            _ => {
                env.settled(FIRST, true).await?;
                env.settled(SECOND, false).await?;
            }
        }
        if self == Scenario::Flushed {
            env.checker.flush(&env.gateways[0]);
        }
        Ok(env)
    }

    /// Triggers the events of the scenario in the prepared environment.
    pub async fn happen(self, env: &SweepEnv) -> Result<()> {
        let first = &env.gateways[0];
        match self {
            Scenario::FirstGateway | Scenario::ForeignRoute | Scenario::Flushed => Ok(()),
            Scenario::Cordon | Scenario::TwoLeaders => first.node.cordon(true).await,
            Scenario::NotReady => first.node.set_ready(false).await,
            Scenario::IpChanged => env.relabel(first, THIRD).await,
            Scenario::LabelLost => first.node.label(FLOATING_IP_LABEL, None).await,
            Scenario::LabelFlap => {
                first.node.label(FLOATING_IP_LABEL, None).await?;
                let torn_down = |_: &_| {
                    let machines = env.checker.machines();
                    machines.all.get(&first.name).is_some_and(|machine| machine.started.contains("teardown"))
                };
                env.wait_until("a teardown that has started", torn_down).await?;
                first.node.label(FLOATING_IP_LABEL, Some(FIRST)).await
            }
            Scenario::Reboot => env.checker.reboot(first).await,
            Scenario::JobFailed => {
                first.node.label(FLOATING_IP_LABEL, Some(FIRST)).await?;
                fail_once(env).await
            }
            Scenario::StaleCache => cordon_unseen(env).await,
        }
    }

    /// Whether the undisturbed run is over.
    pub fn is_over(self, env: &SweepEnv, observed: &ObservedState) -> bool {
        let name = |number: usize| env.gateways.get(number).map(|gateway| gateway.name.as_str());
        let first = name(0).and_then(|name| observed.nodes.get(name));
        let settled = |ip: Option<&str>| {
            first.is_some_and(|node| {
                node.setup().map(String::as_str) == ip && !node.pending() && (ip.is_none() || node.this_boot)
            })
        };
        let primary = |number| name(number).is_some_and(|name| observed.has_primary(name));
        match self {
            Scenario::FirstGateway | Scenario::ForeignRoute | Scenario::JobFailed => {
                primary(0) && settled(Some(FIRST))
            }
            Scenario::IpChanged => primary(1) && settled(Some(THIRD)),
            Scenario::LabelLost => primary(1) && settled(None),
            Scenario::Flushed => {
                let is_repaired = |name| env.checker.machines().all[name].translates_to.is_some();
                primary(1) && settled(Some(FIRST)) && name(0).is_some_and(is_repaired)
            }
            _ => primary(1) && settled(Some(FIRST)),
        }
    }
}

/// The first Job fails, and the minute until the next attempt is skipped: the recorded time is changed, and nothing in natgw.
async fn fail_once(env: &SweepEnv) -> Result<()> {
    let first = &env.gateways[0];
    let until = tokio::time::Instant::now() + TIMEOUT;
    let mut limited = false;
    while tokio::time::Instant::now() < until {
        env.restart_exited()?;
        let jobs = env.env.jobs_of(first).await?;
        if jobs.iter().any(|job| job.annotations()[names::ATTEMPT_ANNOTATION] == "2") {
            return Ok(());
        }
        if let Some(job) = jobs.first().filter(|_| !limited) {
            // Three retries take the Job controller more than a minute; the fourth failure is like the first.
            env.env.patch_job(&job.name_any(), json!({"spec": {"backoffLimit": 0}})).await?;
            limited = true;
        }
        let retry_after = env.env.annotation(&first.name, names::RETRY_AFTER_ANNOTATION).await?;
        let due = retry_after.and_then(|time| time.parse::<Timestamp>().ok());
        if due.is_some_and(|due| due > Timestamp::now()) {
            let now = Timestamp::now().to_string();
            first.node.annotate(names::RETRY_AFTER_ANNOTATION, Some(&now)).await?;
        }
        let _ = tokio::time::timeout(Duration::from_millis(300), env.checker.changed()).await;
    }
    anyhow::bail!("no second attempt")
}

/// No event of a Node arrives: the primary is cordoned and the route is lost, and natgw sees the lost route only.
async fn cordon_unseen(env: &SweepEnv) -> Result<()> {
    let proxy = &env.env.api_proxy;
    let held = proxy.rule(Matcher::watches().resource("nodes"), Fault::hold_events());
    env.gateways[0].node.cordon(true).await?;
    env.env.hetzner.set_route(env.env.network, default_route(), None)?;
    // Two reconciliations with the lost route, or a natgw that was restarted. A failed list of the cloud counts too.
    let (processes, before) = env.reconciles().await;
    env.wait_for_reconciles(|now, reconciles| now != processes || reconciles >= before + 2.0).await?;
    proxy.remove(held);
    Ok(())
}
