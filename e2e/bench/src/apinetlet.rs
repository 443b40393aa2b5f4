//! apinetlet and the Go program v0.3.0, one after the other, between the API servers of ironcore and ironcore-net.

mod stage;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::assets;
use e2e::ironcore::Ironcore;
use e2e::program::{Launch, Program, Samples, free_port, metrics};
use nix::sys::signal::Signal;

use self::stage::Stage;
use crate::Part;
use crate::machine::{Memory, processor_time};
use crate::report::{Bench, count, mebibytes, milliseconds};

/// Networks, NetworkInterfaces, and targets of one load balancer.
const OBJECTS: usize = 1000;
/// Changes of the state of one NetworkInterface.
const CHANGES: usize = 21;
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
    bench.progress("control plane, API servers of ironcore and ironcore-net");
    let ironcore = Ironcore::start().await?;
    let go = Program::at(assets::ironcore()?.join("ironcore-net-apinetlet")).args([
        "--qps=5000",
        "--burst=5000",
        "--api-net-qps=5000",
        "--api-net-burst=5000",
    ]);
    let subjects = [
        Subject {
            name: "apinetlet",
            launch: Program::at(&bench.program),
            metrics: &["--health-probe-bind-address"],
        },
        Subject { name: "Go", launch: go, metrics: &["--metrics-bind-address", "--metrics-secure=false"] },
    ];
    for subject in subjects {
        measure_one(&ironcore, &subject, bench).await?;
    }
    let kubernetes = ironcore.control_plane.client().apiserver_version().await?.git_version;
    bench.end(&format!(
        "Kubernetes {kubernetes} (etcd without fsync), ironcore v0.5.0, ironcore-net v0.3.0, all on this machine; the Go program \
         v0.3.0 with 5,000 requests a second allowed"
    ))
}

async fn measure_one(ironcore: &Ironcore, subject: &Subject, bench: &mut Bench) -> Result<()> {
    let name = subject.name;
    let stage = Stage::new(ironcore).await?;
    if bench.selects(Part::Start) {
        let idle = subject.start(&stage).await?;
        idle.quiet().await?;
        let memory = Memory::of(idle.program.pid())?;
        bench
            .row(format!("{name}: idle memory (RSS)"), goal(subject, "≤ 8 MiB"), mebibytes([memory.rss]))
            .means("Without objects, once it is quiet");
        idle.stop().await?;
    }
    bench.progress(&format!("{name}: {OBJECTS} Networks and NetworkInterfaces"));
    stage.fill(OBJECTS).await?;
    bench.progress(&format!("{name}: first synchronization"));
    let running = subject.start(&stage).await?;
    stage.wait_mapped(OBJECTS, LONGEST).await?;
    let took = running.started.elapsed();
    running.quiet().await?;
    let writes = running.writes().await?;
    let processor = processor_time(running.program.pid())?;
    let memory = Memory::of(running.program.pid())?;
    let among = format!("{OBJECTS} Networks and NetworkInterfaces, 1 LoadBalancer with {OBJECTS} targets");
    bench.row(format!("{name}: first synchronization"), goal(subject, "≤ 8 s"), milliseconds([took])).means(
        format!(
            "{among}, which exist before it is started: until all are Available and the last target is routed"
        ),
    );
    bench
        .row(format!("{name}: its processor time"), goal(subject, "≤ 2 s"), milliseconds([processor]))
        .means("Until it is quiet");
    bench
        .row(format!("{name}: its writes"), "", count([writes]))
        .means("To both API servers, until it is quiet");
    bench
        .row(format!("{name}: memory (RSS) with {OBJECTS}"), "", mebibytes([memory.rss]))
        .means("Once it is quiet");
    bench.progress(&format!("{name}: changes"));
    let mut changes = Vec::new();
    for change in 0..CHANGES {
        changes.push(stage.change_state(change).await?);
    }
    bench
        .row(format!("{name}: state of a NetworkInterface"), goal(subject, "≤ 15 ms"), milliseconds(changes))
        .means(format!("From the response to a change of the apinet object to the event of the source object, with {OBJECTS}"));
    running.stop().await?;
    bench.progress(&format!("{name}: restart"));
    let running = subject.start(&stage).await?;
    let took = running.quiet().await?;
    let writes = running.writes().await?;
    bench
        .row(format!("{name}: restart in sync"), goal(subject, "≤ 1 s"), milliseconds([took]))
        .means(format!("From the start to the last reconciliation, with {OBJECTS}"));
    bench
        .row(format!("{name}: writes of a restart in sync"), goal(subject, "0"), count([writes]))
        .means(format!("With {OBJECTS}"));
    // The objects stay: the next program has namespaces of its own.
    running.stop().await
}

/// A goal is set for our program only.
fn goal(subject: &Subject, goal: &'static str) -> &'static str {
    if subject.name == "Go" { "" } else { goal }
}

impl Subject {
    async fn start(&self, stage: &Stage) -> Result<Running> {
        let port = free_port()?;
        let mut metrics = self.metrics.iter().map(|flag| (*flag).to_owned());
        let address = metrics.next().map(|flag| format!("{flag}=127.0.0.1:{port}"));
        let launch = self.launch.clone().args(stage.flags()).args(address).args(metrics);
        let started = Instant::now();
        Ok(Running { program: launch.start()?, port, started })
    }
}

impl Running {
    /// Waits until nothing is reconciled any more; when the last reconciliation ended, counted from the start.
    async fn quiet(&self) -> Result<Duration> {
        let mut last = (-1.0, Instant::now());
        loop {
            ensure!(self.started.elapsed() < LONGEST, "it is not quiet after {LONGEST:?}");
            if let Ok(samples) = self.samples().await {
                let now = samples.sum("controller_runtime_reconcile_total", &[]).unwrap_or_default();
                if now != last.0 {
                    last = (now, Instant::now());
                } else if last.1.elapsed() > QUIET {
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
