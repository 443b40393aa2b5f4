//! The stories: how each begins, what happens, and when it is over.

use std::time::{Duration, Instant};

use anyhow::Result;
use e2e::fault_proxy::{Fault, Matcher};
use e2e::hetzner::NewServer;
use e2e::natgw::FLOATING_IP_LABEL;
use jiff::Timestamp;
use kube::ResourceExt as _;
use natgw::names;
use serde_json::json;

use crate::natgw_sweep::invariants::Script;
use crate::natgw_sweep::observed::ObservedState;
use crate::natgw_sweep::sweep_env::{SweepEnv, TIMEOUT, default_route};

const FIRST: &str = "198.51.100.1";
const SECOND: &str = "198.51.100.2";
const THIRD: &str = "198.51.100.3";

/// A story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scenario {
    FirstGateway,
    Cordon,
    NotReady,
    IpChanged,
    LabelLost,
    LabelFlap,
    Reboot,
    JobFailed,
    StaleCache,
    TwoLeaders,
    ForeignRoute,
}

impl Scenario {
    pub const ALL: [Scenario; 11] = [
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
    ];

    /// As the summary calls it.
    pub fn name(self) -> &'static str {
        match self {
            Scenario::FirstGateway => "first gateway",
            Scenario::Cordon => "cordon",
            Scenario::NotReady => "NotReady",
            Scenario::IpChanged => "IP changed",
            Scenario::LabelLost => "label lost",
            Scenario::LabelFlap => "label flap during teardown",
            Scenario::Reboot => "reboot",
            Scenario::JobFailed => "Job failed",
            Scenario::StaleCache => "stale cache",
            Scenario::TwoLeaders => "two leaders in a row",
            Scenario::ForeignRoute => "route of a stranger",
        }
    }

    /// Whether natgw's start is part of what is disturbed; in the other stories it has made its first reconciliation before.
    pub fn starts_disturbed(self) -> bool {
        matches!(self, Scenario::FirstGateway | Scenario::ForeignRoute)
    }

    /// Whether natgws contend for a Lease.
    pub fn elects(self) -> bool {
        self == Scenario::TwoLeaders
    }

    /// Nodes, route and servers before natgw starts.
    pub async fn set(self) -> Result<SweepEnv> {
        let course = move |kind: &str, attempt: &str| match (self, kind, attempt) {
            (Scenario::JobFailed, "setup", "1") => Script::Fails,
            (Scenario::LabelFlap, "teardown", _) => Script::Hangs,
            _ => Script::Works,
        };
        let mut sweep_env = SweepEnv::new(self.elects(), course).await?;
        match self {
            Scenario::FirstGateway | Scenario::JobFailed => {
                sweep_env.gateway(FIRST).await?;
            }
            Scenario::ForeignRoute => {
                sweep_env.settled(FIRST, false).await?;
                let stranger = [10, 0, 7, 7].into();
                sweep_env.env.hetzner.add_server(NewServer::new("stranger").attached("lan", stranger))?;
                sweep_env.env.hetzner.set_route(sweep_env.env.network, default_route(), Some(stranger))?;
            }
            _ => {
                sweep_env.settled(FIRST, true).await?;
                sweep_env.settled(SECOND, false).await?;
            }
        }
        if self == Scenario::JobFailed {
            // Its label comes when natgw already reconciliations.
            sweep_env.gateways[0].node.label(FLOATING_IP_LABEL, None).await?;
        }
        Ok(sweep_env)
    }

    /// What happens.
    pub async fn happen(self, sweep_env: &SweepEnv) -> Result<()> {
        let first = &sweep_env.gateways[0];
        match self {
            Scenario::FirstGateway | Scenario::ForeignRoute => Ok(()),
            Scenario::Cordon | Scenario::TwoLeaders => first.node.cordon(true).await,
            Scenario::NotReady => first.node.set_ready(false).await,
            Scenario::IpChanged => sweep_env.relabel(first, THIRD).await,
            Scenario::LabelLost => first.node.label(FLOATING_IP_LABEL, None).await,
            Scenario::LabelFlap => {
                first.node.label(FLOATING_IP_LABEL, None).await?;
                sweep_env
                    .wait_until("a teardown that has begun", |_| {
                        let machines = sweep_env.invariants.machines();
                        machines
                            .all
                            .get(&first.name)
                            .is_some_and(|machine| machine.runs.contains_key("teardown"))
                    })
                    .await?;
                first.node.label(FLOATING_IP_LABEL, Some(FIRST)).await
            }
            Scenario::Reboot => sweep_env.invariants.reboot(first).await,
            Scenario::JobFailed => {
                first.node.label(FLOATING_IP_LABEL, Some(FIRST)).await?;
                fail_once(sweep_env).await
            }
            Scenario::StaleCache => act_behind_its_back(sweep_env).await,
        }
    }

    /// Whether the story is over, where its end is not known yet.
    pub fn is_over(self, sweep_env: &SweepEnv, observed: &ObservedState) -> bool {
        let name = |number: usize| sweep_env.gateways.get(number).map(|gateway| gateway.name.as_str());
        let settled = |number: usize, ip: Option<&str>| {
            name(number).and_then(|name| observed.nodes.get(name)).is_some_and(|node| {
                node.setup.as_deref() == ip && node.pending.is_none() && (ip.is_none() || node.this_boot)
            })
        };
        let primary = |number| name(number).is_some_and(|name| observed.has_primary(name));
        match self {
            Scenario::FirstGateway | Scenario::ForeignRoute | Scenario::JobFailed => {
                primary(0) && settled(0, Some(FIRST))
            }
            Scenario::IpChanged => primary(1) && settled(0, Some(THIRD)),
            Scenario::LabelLost => primary(1) && settled(0, None),
            _ => primary(1) && settled(0, Some(FIRST)),
        }
    }
}

/// The first Job fails for good; then the minute until the next try goes by.
async fn fail_once(sweep_env: &SweepEnv) -> Result<()> {
    let first = &sweep_env.gateways[0];
    let until = Instant::now() + TIMEOUT;
    let mut given_up = false;
    while Instant::now() < until {
        let jobs = sweep_env.env.jobs_of(first).await?;
        if jobs.iter().any(|job| job.annotations()[names::ATTEMPT_ANNOTATION] == "2") {
            return Ok(());
        }
        if let Some(job) = jobs.first().filter(|_| !given_up) {
            // Three retries take the Job controller more than a minute; the fourth failure is no other than the first.
            sweep_env.env.patch_job(&job.name_any(), json!({"spec": {"backoffLimit": 0}})).await?;
            given_up = true;
        }
        let retry_after = sweep_env.env.annotation(&first.name, names::RETRY_AFTER_ANNOTATION).await?;
        let due = retry_after.and_then(|time| time.parse::<Timestamp>().ok());
        if due.is_some_and(|due| due > Timestamp::now()) {
            // The minute is over: the time that natgw has written down is moved, and nothing in natgw.
            let now = Timestamp::now().to_string();
            first.node.annotate(names::RETRY_AFTER_ANNOTATION, Some(&now)).await?;
        }
        let _ = tokio::time::timeout(Duration::from_millis(300), sweep_env.invariants.changed()).await;
    }
    anyhow::bail!("the second try never came")
}

/// natgw hears nothing more of Nodes: the primary is cordoned and the route is lost, and it sees the second alone.
async fn act_behind_its_back(sweep_env: &SweepEnv) -> Result<()> {
    let first = &sweep_env.gateways[0];
    let env = &sweep_env.env;
    let held = env.api_proxy.rule(Matcher::watches().resource("nodes"), Fault::hold_events());
    first.node.cordon(true).await?;
    env.hetzner.set_route(env.network, default_route(), None)?;
    // Two reconciliations that know of the lost route, or a natgw that hears nothing at all since it was started again.
    let (who, before) = sweep_env.reconciles().await;
    let until = Instant::now() + Duration::from_secs(15);
    while Instant::now() < until {
        let (now, reconciles) = sweep_env.reconciles().await;
        if now != who || reconciles >= before + 2.0 {
            break;
        }
        let _ = tokio::time::timeout(Duration::from_millis(300), sweep_env.invariants.changed()).await;
    }
    env.api_proxy.remove(held);
    Ok(())
}
