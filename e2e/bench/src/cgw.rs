//! cgw-controller. The controller with a thousand Services of one VIP, on a real control plane; an agent with thousands of pods, on a
//! stand-in for the API server; and the driver vxlan alone, in a network namespace.

mod feed;
mod flip;
mod stage;

use anyhow::{Result, ensure};
use e2e::control_plane::ControlPlane;

use self::feed::{BOUND, NODES, PODS};
use self::stage::{SERVICES, Stage};
use crate::Part;
use crate::machine::{Memory, peak_rss};
use crate::process::{STEADY, measure_start, stop, until_ready};
use crate::report::{Bench, count, mebibytes, milliseconds};

/// Promotions, each of which patches every Service.
const PROMOTIONS: usize = 7;
/// VIPs whose gateway changes at the same time.
const FLIPS: [(u32, &str); 2] = [(2, "≤ 10 ms"), (2000, "≤ 100 ms")];

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    if bench.selects(Part::Moves) {
        for (vips, goal) in FLIPS {
            bench.progress(&format!("flips of {vips} VIPs"));
            let flips = tokio::task::spawn_blocking(move || flip::measure(vips)).await??;
            bench
                .row(format!("Driver vxlan: another gateway of {vips} VIPs"), goal, milliseconds(flips))
                .means("On a candidate: from the call of the driver to its return, with the comparison of all that is programmed");
        }
    }
    if bench.selects(Part::Crowd) {
        measure_agent(bench).await?;
    }
    bench.progress("control plane");
    let control_plane = ControlPlane::builder().without_controllers().start().await?;
    let stage = Stage::on(&control_plane).await?;
    let launch = stage.controller(&bench.program);
    if bench.selects(Part::Start) {
        measure_start(&launch, "no bindings", bench).await?;
    }
    if bench.selects(Part::Moves) || bench.selects(Part::Crowd) {
        bench.progress(&format!("{SERVICES} Services of one VIP"));
        stage.fill().await?;
        measure_controller(&stage, bench).await?;
    }
    let kubernetes = control_plane.client().apiserver_version().await?.git_version;
    bench.end(&format!(
        "Kubernetes {kubernetes} (etcd without fsync); agent: a stand-in for the API server with {NODES} Nodes and {PODS} pods"
    ))
}

async fn measure_controller(stage: &Stage, bench: &mut Bench) -> Result<()> {
    let (controller, _) = until_ready(&stage.controller(&bench.program)).await?;
    let client = stage.keeper(&controller).await?;
    bench.progress(&format!("{PROMOTIONS} promotions"));
    let mut promotions = Vec::new();
    for number in 0..PROMOTIONS {
        promotions.push(stage.promote(&client, number).await?);
    }
    tokio::time::sleep(STEADY).await;
    let memory = Memory::of(controller.pid())?;
    let peak = peak_rss(controller.pid())?;
    let patches = async || {
        let samples = controller.metrics().await?;
        let patches = samples.sum("rest_client_requests_total", &[("method", "PATCH")]);
        anyhow::Ok(patches.unwrap_or_default())
    };
    let before = patches().await?;
    tokio::time::sleep(STEADY).await;
    let steady = patches().await? - before;
    stop(&controller).await?;
    bench
        .row(format!("Promotion, {SERVICES} Services"), "≤ 2000 ms", milliseconds(promotions))
        .means("From the notification of a keeper to its response: the last Service of the VIP is patched");
    bench
        .row(format!("Controller: memory (RSS), {SERVICES} Services"), "≤ 12 MiB", mebibytes([memory.rss]))
        .means(format!("{} s after the last promotion", STEADY.as_secs()));
    bench
        .row(format!("Controller: peak memory (RSS), {SERVICES} Services"), "", mebibytes([peak]))
        .means("The most until then; the limit of a container must be above it");
    bench
        .row("Controller: writes in steady state", "0", count([steady]))
        .means(format!("Patches in {} s without a change", STEADY.as_secs()));
    Ok(())
}

async fn measure_agent(bench: &mut Bench) -> Result<()> {
    bench.progress(&format!("agent with {PODS} pods"));
    let program = bench.program.clone();
    let agent = feed::Agent::start(&program).await?;
    let ready = agent.until_ready().await?;
    tokio::time::sleep(STEADY).await;
    let (memory, peak) = (Memory::of(agent.program.pid())?, peak_rss(agent.program.pid())?);
    ensure!(agent.writes() == 0, "{} writes of an agent without a problem", agent.writes());
    stop(&agent.program).await?;
    bench
        .row(format!("Agent: start to programmed, {PODS} pods"), "", milliseconds([ready]))
        .means(format!("On a candidate: {NODES} Nodes, {BOUND} of the pods behind bound Services"));
    bench
        .row(format!("Agent: memory (RSS), {PODS} pods"), "≤ 15 MiB", mebibytes([memory.rss]))
        .means(format!("{} s after that", STEADY.as_secs()));
    bench
        .row(format!("Agent: peak memory (RSS), {PODS} pods"), "", mebibytes([peak]))
        .means("The most until then; the limit of a container must be above it");
    Ok(())
}
