//! What natgw asks of others while nothing happens.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::natgw::FLOATING_IP_LABEL;

use super::stage::Stage;
use crate::figures::{Figures, Unit};
use crate::process::{STEADY, stop};
use crate::report::Report;

/// How long it is counted: four poll intervals of the default 30 s, and some room for their jitter of up to a tenth.
const WINDOW: Duration = Duration::from_secs(130);
/// Nodes of the stage: two gateways and others.
const NODES: usize = 5;
/// The list of servers is read every 15 minutes (`observe::network`): once at the start, then outside of any window that
/// a benchmark can wait for. 50 servers are a page, and a page is a request.
const SERVER_LISTS_AN_HOUR: f64 = 4.0;

/// What was counted.
pub(crate) struct Steady {
    /// Writes to the API server but those of the Lease, Events included.
    writes: Vec<String>,
    /// Writes of the Lease.
    lease: usize,
    /// When each request to the cloud arrived.
    cloud: Vec<Instant>,
}

/// A settled stage of its own, counted for [`WINDOW`] by the fault proxy and the stand-in.
///
/// # Errors
/// natgw fails, or the stage does not settle.
pub(crate) async fn count(control_plane: ControlPlane, binary: &Path) -> Result<Steady> {
    let mut stage = Stage::on(control_plane, binary).await?;
    stage.grow(NODES).await?;
    let natgw = stage.lead(true).await?;
    let env = &stage.env;
    for gateway in stage.nodes.iter().take(2) {
        gateway.node.label(FLOATING_IP_LABEL, gateway.floating_ip.as_deref()).await?;
        let set_up = || async {
            let annotation = env.annotation(&gateway.name, natgw::names::SETUP_ANNOTATION).await?;
            Ok(annotation.is_some() && env.route().is_some())
        };
        env.wait("a gateway", set_up).await?;
    }
    tokio::time::sleep(STEADY).await;

    env.api_proxy.clear_requests();
    env.hetzner.clear_requests();
    tokio::time::sleep(WINDOW).await;
    let (api, cloud) = (env.api_proxy.requests(), env.hetzner.requests());
    ensure!(natgw.exited()?.is_none(), "natgw ended:\n{}", natgw.output().lines().join("\n"));
    let (lease, writes): (Vec<_>, Vec<_>) = api
        .iter()
        .filter(|request| request.method != "GET")
        .partition(|request| request.path.contains("/leases/"));
    ensure!(!lease.is_empty(), "natgw did not renew its Lease: it was not seen at all");
    let writes = writes.iter().map(|write| format!("{} {}", write.method, write.path)).collect();
    stop(&natgw).await?;
    let cloud: Vec<_> = cloud.iter().map(|request| request.at).collect();
    ensure!(
        cloud.len() > 1,
        "natgw asked the cloud {} times in {WINDOW:?}: too seldom to see a change",
        cloud.len()
    );
    Ok(Steady { writes, lease: lease.len(), cloud })
}

impl Steady {
    /// Adds its rows.
    ///
    /// # Errors
    /// The numbers are beyond all reason.
    pub(crate) fn report(&self, report: &mut Report) -> Result<()> {
        let seconds = WINDOW.as_secs();
        let an_hour = |count: usize| -> Result<f64> {
            Ok(f64::from(u32::try_from(count).context("too many")?) * 3600.0 / WINDOW.as_secs_f64())
        };
        let count = |value: f64| Figures::new(Unit::Count, [value]);
        report.row(
            "Writes besides the Lease, steady, an hour",
            "0",
            count(an_hour(self.writes.len())?)?,
            format!(
                "{} counted at the API server in {seconds} s, Events included, extrapolated",
                self.writes.len()
            ),
        );
        report.row(
            "Writes of the Lease, steady, an hour",
            "",
            count(an_hour(self.lease)?)?,
            format!("{} in {seconds} s, extrapolated: one every 2 s, as client-go does", self.lease),
        );
        report.row(
            "Cloud requests, steady, an hour",
            "≤ 120",
            count(self.cloud_requests_an_hour()? + SERVER_LISTS_AN_HOUR)?,
            format!(
                "{} in {seconds} s at the default poll interval of 30 s, extrapolated from their distance, and the list of \
                 servers four times (once for each 50 servers)",
                self.cloud.len()
            ),
        );
        for write in &self.writes {
            report.note(format!("A write besides the Lease in the steady state: {write}"));
        }
        Ok(())
    }

    /// From the first to the last: where the window begins and ends in a poll interval shall not count.
    fn cloud_requests_an_hour(&self) -> Result<f64> {
        let (Some(first), Some(last)) = (self.cloud.first(), self.cloud.last()) else { return Ok(0.0) };
        let intervals = f64::from(u32::try_from(self.cloud.len().saturating_sub(1)).context("too many")?);
        Ok(intervals * 3600.0 / last.saturating_duration_since(*first).as_secs_f64())
    }
}
