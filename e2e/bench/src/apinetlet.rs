//! apinetlet and the Go program v0.3.0, one after the other, between the API servers of ironcore and ironcore-net; and apinetlet alone
//! with more objects.

mod feed;
mod stage;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::assets;
use e2e::ironcore::Ironcore;
use e2e::program::{Launch, Program, Samples, free_port, metrics};
use nix::sys::signal::Signal;

use self::feed::Feed;
use self::stage::Stage;
use crate::Part;
use crate::machine::{Memory, peak_rss, processor_time};
use crate::report::{Bench, count, mebibytes, milliseconds};

/// Networks, NetworkInterfaces, and targets of one load balancer, for both programs.
const OBJECTS: usize = 1000;
/// The same for apinetlet alone: the Go program needs a quarter of an hour for them.
const MANY: usize = 5000;
/// NetworkInterfaces, on a stand-in for the API servers.
const CROWD: usize = 100_000;
/// Changes of the state of one NetworkInterface, and of a load balancer's targets.
const CHANGES: usize = 21;
/// Changes in the crowd: so many that their processor time can be measured.
const CROWD_CHANGES: u32 = 200;
/// The first synchronization of a slow program ends within it.
const LONGEST: Duration = Duration::from_secs(900);
/// Poll interval of a program that is becoming quiet, and how long nothing must happen.
const POLL: Duration = Duration::from_millis(50);
const QUIET: Duration = Duration::from_secs(5);

/// One of the two programs.
struct Subject {
    name: &'static str,
    launch: Launch,
    /// Its flag for the address that serves plain metrics.
    metrics: &'static [&'static str],
}

/// A started program and the address of its metrics.
struct Running {
    program: Program,
    port: u16,
    started: Instant,
}

pub(crate) async fn measure(bench: &mut Bench) -> Result<()> {
    let own = Subject {
        name: "apinetlet",
        launch: Program::at(&bench.program),
        metrics: &["--health-probe-bind-address"],
    };
    if bench.selects(Part::Crowd) {
        measure_crowd(&own, bench).await?;
    }
    bench.progress("control plane, API servers of ironcore and ironcore-net");
    let ironcore = Ironcore::start().await?;
    let go = Program::at(assets::ironcore()?.join("ironcore-net-apinetlet")).args([
        "--qps=5000",
        "--burst=5000",
        "--api-net-qps=5000",
        "--api-net-burst=5000",
    ]);
    let go =
        Subject { name: "Go", launch: go, metrics: &["--metrics-bind-address", "--metrics-secure=false"] };
    for subject in [&own, &go] {
        let stage = Stage::new(&ironcore).await?;
        if bench.selects(Part::Start) {
            measure_idle(subject, &stage, bench).await?;
        }
        if bench.selects(Part::Reconcile) {
            measure_with(OBJECTS, subject, &stage, bench).await?;
        }
    }
    if bench.selects(Part::Crowd) {
        measure_with(MANY, &own, &Stage::new(&ironcore).await?, bench).await?;
    }
    let kubernetes = ironcore.control_plane.client().apiserver_version().await?.git_version;
    bench.end(&format!(
        "Kubernetes {kubernetes} (etcd without fsync), ironcore v0.5.0, ironcore-net v0.3.0, all on this machine; the Go program \
         v0.3.0 with 5,000 requests a second allowed"
    ))
}

async fn measure_idle(subject: &Subject, stage: &Stage, bench: &mut Bench) -> Result<()> {
    let idle = subject.start(&stage.flags()).await?;
    idle.quiet().await?;
    let (name, memory) = (subject.name, Memory::of(idle.program.pid())?);
    bench
        .row(format!("{name}: idle memory (RSS)"), goal(subject, "≤ 8 MiB"), mebibytes([memory.rss]))
        .means("Without objects, once it is quiet");
    bench
        .row(format!("{name}: idle memory (anonymous)"), "", mebibytes([memory.anonymous]))
        .means("The part of it that is its data, heap and stacks");
    idle.stop().await
}

async fn measure_with(objects: usize, subject: &Subject, stage: &Stage, bench: &mut Bench) -> Result<()> {
    let name = subject.name;
    let is_many = objects > OBJECTS;
    bench.progress(&format!("{name}: {objects} Networks and NetworkInterfaces"));
    stage.fill(objects).await?;
    bench.progress(&format!("{name}: first synchronization"));
    let running = subject.start(&stage.flags()).await?;
    stage.wait_mapped(objects, LONGEST).await?;
    let took = running.started.elapsed();
    running.quiet().await?;
    let writes = running.writes().await?;
    let processor = processor_time(running.program.pid())?;
    let memory = Memory::of(running.program.pid())?;
    let goal_of = |text| if is_many { "" } else { goal(subject, text) };
    bench
        .row(format!("{name}: first synchronization, {objects}"), goal_of("≤ 8 s"), milliseconds([took]))
        .means(format!(
            "{objects} Networks and NetworkInterfaces, 1 LoadBalancer with {objects} targets, which exist before it is started: until \
             all are Available and the last target is routed"
        ));
    bench
        .row(format!("{name}: its processor time, {objects}"), goal_of("≤ 2 s"), milliseconds([processor]))
        .means("Until it is quiet");
    bench
        .row(format!("{name}: its writes, {objects}"), "", count([writes]))
        .means("To both API servers, until it is quiet");
    bench
        .row(format!("{name}: memory (RSS), {objects}"), "", mebibytes([memory.rss]))
        .means("Once it is quiet");
    bench.progress(&format!("{name}: changes"));
    let (mut changes, mut targets) = (Vec::new(), Vec::new());
    for change in 0..CHANGES {
        changes.push(stage.change_state(change).await?);
        targets.push(stage.remove_target().await?);
    }
    bench
        .row(
            format!("{name}: state of a NetworkInterface, {objects}"),
            goal(subject, "≤ 15 ms"),
            milliseconds(changes),
        )
        .means("From the response to a change of the apinet object to the event of the source object");
    bench
        .row(format!("{name}: targets of a LoadBalancer, {objects}"), goal(subject, "≤ 100 ms"), milliseconds(targets))
        .means("From the response to a change of the source routing, one target fewer, to the event of the apinet routing");
    running.stop().await?;
    bench.progress(&format!("{name}: restart"));
    let running = subject.start(&stage.flags()).await?;
    let took = running.quiet().await?;
    let writes = running.writes().await?;
    let longest = if is_many { "≤ 3 s" } else { "≤ 1 s" };
    bench
        .row(format!("{name}: restart in sync, {objects}"), goal(subject, longest), milliseconds([took]))
        .means("From the start to the last reconciliation");
    bench
        .row(format!("{name}: writes of a restart in sync, {objects}"), goal(subject, "0"), count([writes]))
        .means("To both API servers");
    // The objects stay: the next program has namespaces of its own.
    running.stop().await?;
    if is_many {
        let mut applies = Vec::new();
        for _ in 0..CHANGES {
            applies.push(stage.apply_without_target().await?);
        }
        bench
            .row(format!("API server alone: targets of a LoadBalancer, {objects}"), "", milliseconds(applies))
            .means("The apinet routing is applied with one target fewer, and apinetlet does not run: from the request to the event");
    }
    Ok(())
}

/// Starts apinetlet among interfaces that are mapped already, and changes some of them.
async fn measure_crowd(subject: &Subject, bench: &mut Bench) -> Result<()> {
    let name = subject.name;
    bench.progress(&format!("{name}: {CROWD} NetworkInterfaces"));
    let mut feed = Feed::start(CROWD).await?;
    let running = subject.start(&feed.flags()).await?;
    let took = running.quiet_after(CROWD).await?;
    let (memory, peak) = (Memory::of(running.program.pid())?, peak_rss(running.program.pid())?);
    ensure!(feed.writes() == 0, "{} writes, although all is mapped", feed.writes());
    let before = processor_time(running.program.pid())?;
    let mut changes = Vec::new();
    for change in 0..CROWD_CHANGES {
        changes.push(feed.change(change as usize, "Error").await?);
    }
    let processor = (processor_time(running.program.pid())? - before) / CROWD_CHANGES;
    ensure!(feed.writes() == u64::from(CROWD_CHANGES), "{} writes of {CROWD_CHANGES} changes", feed.writes());
    running.stop().await?;
    bench.row(format!("{name}: memory (RSS), {CROWD}"), "≤ 250 MiB", mebibytes([memory.rss])).means(format!(
        "{CROWD} NetworkInterfaces in each cluster, on a stand-in for the API servers; once it is quiet"
    ));
    bench
        .row(format!("{name}: peak memory (RSS), {CROWD}"), "", mebibytes([peak]))
        .means("The most until then; the limit of a container must be above it");
    bench
        .row(format!("{name}: restart in sync, {CROWD}"), "", milliseconds([took]))
        .means("From the start to the last reconciliation, without a write");
    bench
        .row(format!("{name}: processor time of a change, {CROWD}"), "≤ 5 ms", milliseconds([processor]))
        .means(
            "Event of an apinet NetworkInterface, reconciliation, status of the source object, and its event",
        );
    bench
        .row(format!("{name}: state of a NetworkInterface, {CROWD}"), "", milliseconds(changes))
        .means("From the event of the apinet object to the write of the source object's status");
    Ok(())
}

/// A goal is set for our program only.
fn goal(subject: &Subject, goal: &'static str) -> &'static str {
    if subject.name == "Go" { "" } else { goal }
}

impl Subject {
    async fn start(&self, flags: &[String]) -> Result<Running> {
        let port = free_port()?;
        let mut metrics = self.metrics.iter().map(|flag| (*flag).to_owned());
        let address = metrics.next().map(|flag| format!("{flag}=127.0.0.1:{port}"));
        let launch = self.launch.clone().args(flags).args(address).args(metrics);
        let started = Instant::now();
        Ok(Running { program: launch.start()?, port, started })
    }
}

impl Running {
    /// As [`Running::quiet_after`], of as many as there happen to be.
    async fn quiet(&self) -> Result<Duration> {
        self.quiet_after(0).await
    }

    /// Waits until so many reconciliations have ended, and no other one follows; when the last one ended, counted from the start.
    async fn quiet_after(&self, reconciliations: usize) -> Result<Duration> {
        let mut last = (-1.0, Instant::now());
        loop {
            ensure!(self.started.elapsed() < LONGEST, "it is not quiet after {LONGEST:?}");
            if let Ok(samples) = self.samples().await {
                let now = samples.sum("controller_runtime_reconcile_total", &[]).unwrap_or_default();
                if now != last.0 {
                    last = (now, Instant::now());
                } else if last.1.elapsed() > QUIET && now >= reconciliations as f64 {
                    return Ok(last.1.duration_since(self.started));
                }
            }
            tokio::time::sleep(POLL).await;
        }
    }

    async fn samples(&self) -> Result<Samples> {
        metrics((Ipv4Addr::LOCALHOST, self.port).into()).await
    }

    async fn writes(&self) -> Result<f64> {
        let samples = self.samples().await?;
        let of =
            |method| samples.sum("rest_client_requests_total", &[("method", method)]).unwrap_or_default();
        Ok(["POST", "PUT", "PATCH", "DELETE"].into_iter().map(of).sum())
    }

    async fn stop(self) -> Result<()> {
        self.program.signal(Signal::SIGTERM)?;
        self.program.wait_exit().await.map(drop)
    }
}
