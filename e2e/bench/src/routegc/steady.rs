//! What routegc asks of others while nothing happens, and while dead routes are only reported.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::stage::{POLICY, Stage};
use crate::figures::{Figures, Unit};
use crate::process::{STEADY, stop, until_ready};
use crate::report::Report;

/// How long it is counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The shortest interval between two passes: many of them in a short time.
const INTERVAL: &str = "10s";
/// Passes an hour at the default interval of five minutes.
const PASSES_AN_HOUR: f64 = 12.0;
/// Routes that lead nowhere, in the second window.
const DEAD: usize = 10;

/// Two windows: all routes live, and some are dead and only reported.
///
/// # Errors
/// routegc fails, or makes no pass.
pub(crate) async fn count(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let spec = json!({ "spec": { "mode": "Audit", "interval": INTERVAL } });
    stage.env.patch(POLICY, spec).await?;
    let (routegc, _) = until_ready(&stage.counted()).await?;
    window(stage, "all routes alive", true, report).await?;
    stage.kill(DEAD).await?;
    stage.env.wait_for_reason(POLICY, "OrphansFound").await?;
    window(stage, &format!("{DEAD} dead routes reported"), false, report).await?;
    stop(&routegc).await
}

async fn window(stage: &Stage, what: &str, all: bool, report: &mut Report) -> Result<()> {
    tokio::time::sleep(STEADY).await;
    stage.forget();
    tokio::time::sleep(WINDOW).await;
    let (neutron, asked) = (stage.env.neutron.requests(), stage.asked());
    let lease = stage.env.api_proxy.requests();
    let lease = lease.iter().filter(|one| one.path.contains("/leases/") && one.method != "GET").count();
    ensure!(lease > 0, "routegc did not renew its Lease: it was not seen at all");
    // Each pass reads the router first.
    let router = format!("/v2.0/routers/{}", stage.env.project.router);
    let passes = neutron.iter().filter(|one| one.method == "GET" && one.path == router).count();
    ensure!(passes > 1, "{passes} passes in {WINDOW:?}, one each {INTERVAL}");
    let writes: Vec<_> = neutron.iter().chain(&asked).filter(|one| one.method != "GET").collect();
    let an_hour = |count: usize| -> Result<f64> {
        Ok(f64::from(u32::try_from(count).context("too many")?) * 3600.0 / WINDOW.as_secs_f64())
    };
    let count = |value: f64| Figures::new(Unit::Count, [value]);
    let seconds = WINDOW.as_secs();
    report.row(
        format!("Writes, {what}"),
        "0",
        count(writes.len() as f64)?,
        format!("To Neutron and to the API server, Events included, but for the Lease: in {passes} passes, one each {INTERVAL}, in {seconds} s"),
    );
    for write in &writes {
        report.note(format!("A write while {what}: {} {}", write.method, write.path));
    }
    if all {
        report.row(
            "Writes of the Lease, an hour",
            "",
            count(an_hour(lease)?)?,
            format!("{lease} in {seconds} s, extrapolated: one every 2 s, as client-go does"),
        );
        let each = neutron.len() as f64 / passes as f64;
        report.row(
            "Requests to Neutron, an hour",
            "",
            count(each * PASSES_AN_HOUR)?,
            format!("{} in {passes} passes, of which there are {PASSES_AN_HOUR} an hour at the default interval of 5 min", neutron.len()),
        );
    }
    Ok(())
}
