//! What one pass costs: at rest, and when it removes routes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use common::api::routegc::ALLOW_ANNOTATION;
use e2e::fault_proxy::Recorded;
use e2e::program::Program;
use serde_json::json;

use super::stage::{POLICY, PORTS, Stage};
use crate::figures::{Figures, Unit};
use crate::machine::{peak_rss, processor_time};
use crate::process::{stop, until_ready};
use crate::report::Report;

/// Passes at rest.
const LOOKS: usize = 10;
/// Passes that remove.
const REMOVALS: usize = 3;

/// What one pass was.
struct Pass {
    /// From its begin to its end, by routegc's own histogram.
    wall: Duration,
    /// Of routegc, from before it was due until all was quiet.
    processor: Duration,
    /// Requests to OpenStack, and those to the API server but for Lease and watch.
    requests: usize,
    /// Those to the cloud, by method and resource.
    kinds: String,
    /// Writes to Neutron, and to the API server.
    writes: (usize, usize),
}

/// Passes on the router as it is, of whose routes `dead` then lose their machines.
///
/// # Errors
/// routegc fails, or does not do what it should.
pub(crate) async fn measure(stage: &mut Stage, dead: usize, report: &mut Report) -> Result<()> {
    let routes = stage.routes();
    stage.env.patch(POLICY, json!({ "spec": { "mode": "Audit" } })).await?;
    stage.forget();
    let (routegc, _) = until_ready(&stage.counted()).await?;
    stage.until_quiet().await?;
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        let look = pass(stage, &routegc).await?;
        ensure!(look.writes == (0, 0), "a pass at rest has written: {:?}, {}", look.writes, look.kinds);
        looks.push(look);
    }
    ensure!(stage.env.reason(POLICY, "Ready").await? == "NoOrphans", "some route is no living machine's");
    rows(&format!("A pass at rest, {routes} routes"), &looks, report)?;

    stage.change(json!({ "spec": { "mode": "Enforce" } })).await?;
    let mut removals = Vec::new();
    for _ in 0..REMOVALS {
        stage.kill(dead).await?;
        // They have to be found dead twice.
        pass(stage, &routegc).await?;
        removals.push(pass(stage, &routegc).await?);
        let left = stage.env.project.routes().await?.len();
        ensure!(left == routes - dead, "{left} of {routes} routes are left, and {dead} were dead");
        stage.revive(dead).await?;
    }
    rows(&format!("A pass that removes {dead} of {routes} routes"), &removals, report)?;
    report.row(
        format!("Peak memory (RSS), {routes} routes"),
        "",
        Figures::bytes([peak_rss(routegc.pid())?])?,
        format!("The most that this process ever had, in all these passes, with {PORTS} ports"),
    );
    stop(&routegc).await
}

/// Has one pass made: when a person may have let a list through the threshold, routegc looks at once. A change of the spec would
/// do as well, but its generation has to be written into the status.
async fn pass(stage: &Stage, routegc: &Program) -> Result<Pass> {
    let before = routegc.metrics().await?;
    let began = processor_time(routegc.pid())?;
    let list = format!("no list, {:?}", before.sum("controller_runtime_reconcile_total", &[]));
    stage.change(json!({ "metadata": { "annotations": { ALLOW_ANNOTATION: list } } })).await?;
    let processor = processor_time(routegc.pid())? - began;
    let after = routegc.metrics().await?;
    let difference = |name: &str| -> Result<f64> {
        Ok(after.sum(name, &[]).context("a metric")? - before.sum(name, &[]).unwrap_or_default())
    };
    let made = difference("controller_runtime_reconcile_time_seconds_count")?;
    ensure!(made == 1.0, "{made} passes instead of one");
    let neutron = stage.env.neutron.requests();
    // Two witnesses, of which the proxy does not see Keystone.
    let own = difference("cloud_api_requests_total")?;
    ensure!(own >= neutron.len() as f64, "routegc counts {own} requests, Neutron {}", neutron.len());
    let asked = stage.asked();
    let writes = |list: &[Recorded]| list.iter().filter(|one| one.method != "GET").count();
    Ok(Pass {
        wall: Duration::from_secs_f64(difference("controller_runtime_reconcile_time_seconds_sum")?),
        processor,
        requests: own as usize + asked.len(),
        kinds: kinds(&neutron, &asked),
        writes: (writes(&neutron), writes(&asked)),
    })
}

/// Which, and how many of each.
fn kinds(neutron: &[Recorded], kubernetes: &[Recorded]) -> String {
    let mut kinds = BTreeMap::<String, usize>::new();
    for one in neutron {
        // IDs are long, and differ.
        let path = one.path.trim_start_matches("/v2.0/").split('/').filter(|word| word.len() < 30);
        *kinds.entry(format!("{} {}", one.method, path.collect::<Vec<_>>().join("/"))).or_default() += 1;
    }
    let mut kinds: Vec<String> = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let mut own = BTreeMap::<String, usize>::new();
    for one in kubernetes {
        *own.entry(one.method.to_string()).or_default() += 1;
    }
    let own: Vec<String> = own.into_iter().map(|(method, count)| format!("{count} {method}")).collect();
    kinds.push(format!("to the API server {}", own.join(", ")));
    kinds.join(", ")
}

fn rows(what: &str, passes: &[Pass], report: &mut Report) -> Result<()> {
    let kinds = passes.last().map(|pass| pass.kinds.clone()).unwrap_or_default();
    report.row(
        format!("{what}: time"),
        "",
        Figures::milliseconds(passes.iter().map(|pass| pass.wall))?,
        format!("From its begin to its end: mostly Neutron's own work; {PORTS} ports on the network"),
    );
    report.row(
        format!("{what}: processor time"),
        "",
        Figures::milliseconds(passes.iter().map(|pass| pass.processor))?,
        "Of routegc, by the kernel's count",
    );
    report.row(
        format!("{what}: requests"),
        "",
        Figures::new(Unit::Count, passes.iter().map(|pass| pass.requests as f64))?,
        kinds,
    );
    Ok(())
}
