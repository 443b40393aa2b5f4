//! routegc's requests while nothing changes, and while it only reports stale routes.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::stage::{POLICY, Stage};
use crate::process::{Requests, STEADY, stop, until_ready, writes};
use crate::report::{Bench, an_hour, count};

const WINDOW: Duration = Duration::from_secs(60);
/// The shortest interval: many reconciliations in the window.
const INTERVAL: &str = "10s";
/// Reconciliations an hour at the default interval of five minutes.
const RECONCILIATIONS_AN_HOUR: f64 = 12.0;
/// Stale routes in the second window.
const STALE: usize = 10;

/// Two windows: no route is stale, and some are.
pub(crate) async fn measure(stage: &mut Stage, bench: &mut Bench) -> Result<()> {
    stage.env.patch(POLICY, json!({ "spec": { "mode": "Audit", "interval": INTERVAL } })).await?;
    let (routegc, _) = until_ready(&stage.counted()).await?;
    window(stage, "no stale routes", true, bench).await?;
    stage.make_stale(STALE).await?;
    stage.env.wait_for_reason(POLICY, "OrphansFound").await?;
    window(stage, &format!("{STALE} stale routes reported"), false, bench).await?;
    stop(&routegc).await
}

async fn window(stage: &Stage, what: &str, all: bool, bench: &mut Bench) -> Result<()> {
    tokio::time::sleep(STEADY).await;
    stage.clear_requests();
    tokio::time::sleep(WINDOW).await;
    let (neutron, kubernetes) = (stage.env.neutron.requests(), Requests::through(&stage.env.api_proxy));
    kubernetes.ensure_leader()?;
    // Each reconciliation reads the router first.
    let router = format!("/v2.0/routers/{}", stage.env.project.router);
    let made = neutron.iter().filter(|one| one.method == "GET" && one.path == router).count();
    ensure!(made > 1, "{made} reconciliations in {WINDOW:?}, at an interval of {INTERVAL}");
    let writes: Vec<_> = writes(neutron.iter().chain(&kubernetes.all)).collect();
    let seconds = WINDOW.as_secs();
    bench.row(format!("Writes, {what}"), "0", count([writes.len() as f64])).means(format!(
        "To Neutron and to the API server, Events included, except for the Lease: in {made} reconciliations, one each \
         {INTERVAL}, in {seconds} s"
    ));
    for write in &writes {
        bench.note(format!("A write with {what}: {} {}", write.method, write.path));
    }
    if all {
        bench.row("Writes of the Lease, an hour", "", an_hour(kubernetes.lease as f64, WINDOW)).means(
            format!("{} in {seconds} s, extrapolated: one every 2 s, as client-go does", kubernetes.lease),
        );
        let each = neutron.len() as f64 / made as f64;
        bench.row("Requests to Neutron, an hour", "", count([each * RECONCILIATIONS_AN_HOUR])).means(format!(
            "{} in {made} reconciliations, of which there are {RECONCILIATIONS_AN_HOUR} an hour at the default interval of 5 min",
            neutron.len()
        ));
    }
    Ok(())
}
