//! The cost of a reconciliation: without stale routes, and when it removes some.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use common::api::routegc::ALLOW_ANNOTATION;
use e2e::fault_proxy::Recorded;
use e2e::program::Program;
use serde_json::json;

use super::stage::{POLICY, PORTS, Stage};
use crate::machine::{peak_rss, processor_time};
use crate::process::{Requests, stop, until_ready, writes};
use crate::report::{Bench, count, mebibytes, milliseconds};

/// Reconciliations without stale routes.
const IDLE: usize = 10;
/// Reconciliations that remove routes.
const REMOVALS: usize = 3;

struct Reconciliation {
    /// By routegc's own histogram.
    wall: Duration,
    /// From before it was due until the last request.
    processor: Duration,
    /// To OpenStack, and to the API server except for Lease and watches.
    requests: usize,
    /// Their methods and resources.
    kinds: String,
    /// Writes to Neutron and to the API server.
    writes: usize,
}

/// Reconciliations of the router, of which `stale` routes then become stale.
pub(crate) async fn measure(stage: &mut Stage, stale: usize, bench: &mut Bench) -> Result<()> {
    let routes = stage.routes();
    stage.env.patch(POLICY, json!({ "spec": { "mode": "Audit" } })).await?;
    stage.clear_requests();
    let (routegc, _) = until_ready(&stage.counted()).await?;
    stage.until_quiet().await?;
    let mut idle = Vec::new();
    for _ in 0..IDLE {
        let one = reconcile(stage, &routegc).await?;
        ensure!(one.writes == 0, "a reconciliation without stale routes wrote: {}", one.kinds);
        idle.push(one);
    }
    ensure!(stage.env.reason(POLICY, "Ready").await? == "NoOrphans", "a route of a server is stale");
    rows(&format!("A reconciliation without stale routes, {routes} routes"), &idle, bench);

    stage.change(json!({ "spec": { "mode": "Enforce" } })).await?;
    let mut removals = Vec::new();
    for _ in 0..REMOVALS {
        stage.make_stale(stale).await?;
        // A route is removed when it was stale twice.
        reconcile(stage, &routegc).await?;
        removals.push(reconcile(stage, &routegc).await?);
        let left = stage.env.project.routes().await?.len();
        ensure!(left == routes - stale, "{left} of {routes} routes are left, and {stale} were stale");
        stage.restore(stale).await?;
    }
    rows(&format!("A reconciliation that removes {stale} of {routes} routes"), &removals, bench);
    bench
        .row(format!("Peak memory (RSS), {routes} routes"), "", mebibytes([peak_rss(routegc.pid())?]))
        .means(format!(
            "The most that this process ever had, in all these reconciliations, with {PORTS} ports"
        ));
    stop(&routegc).await
}

/// Starts a reconciliation with an annotation that allows the removal of no list. A change of the spec would do, but routegc
/// writes its generation into the status.
async fn reconcile(stage: &Stage, routegc: &Program) -> Result<Reconciliation> {
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
    ensure!(made == 1.0, "{made} reconciliations instead of one");
    let (neutron, kubernetes) = (stage.env.neutron.requests(), Requests::through(&stage.env.api_proxy).all);
    // routegc also counts requests to Keystone, which has no proxy.
    let counted = difference("cloud_api_requests_total")?;
    ensure!(counted >= neutron.len() as f64, "routegc counts {counted} requests, Neutron {}", neutron.len());
    Ok(Reconciliation {
        wall: Duration::from_secs_f64(difference("controller_runtime_reconcile_time_seconds_sum")?),
        processor,
        requests: counted as usize + kubernetes.len(),
        kinds: format!("{}, to the API server {}", kinds(&neutron, true), kinds(&kubernetes, false)),
        writes: writes(neutron.iter().chain(&kubernetes)).count(),
    })
}

/// Requests by method and, if `resources`, by resource.
fn kinds(requests: &[Recorded], resources: bool) -> String {
    let mut kinds = BTreeMap::<String, usize>::new();
    for one in requests {
        // IDs are long, and differ.
        let path = one.path.trim_start_matches("/v2.0/").split('/').filter(|word| word.len() < 30);
        let path = path.collect::<Vec<_>>().join("/");
        let kind = if resources { format!("{} {path}", one.method) } else { one.method.to_string() };
        *kinds.entry(kind).or_default() += 1;
    }
    let kinds = kinds.into_iter().map(|(kind, count)| format!("{count} {kind}"));
    kinds.collect::<Vec<_>>().join(", ")
}

fn rows(what: &str, reconciliations: &[Reconciliation], bench: &mut Bench) {
    let all = || reconciliations.iter();
    bench
        .row(format!("{what}: time"), "", milliseconds(all().map(|one| one.wall)))
        .means(format!("From its begin to its end: mostly Neutron's own work; {PORTS} ports on the network"));
    bench
        .row(format!("{what}: processor time"), "", milliseconds(all().map(|one| one.processor)))
        .means("Of routegc, as the kernel counts it");
    bench
        .row(format!("{what}: requests"), "", count(all().map(|one| one.requests as f64)))
        .means(all().last().map(|one| one.kinds.clone()).unwrap_or_default());
}
