//! Measures a controller and prints a table in Markdown: `bench natgw`, `bench egress-router`. Progress goes to standard error.
//!
//! It talks to loopback only, and leaves nothing behind. What is measured should be what users get, the static release
//! build: `make bench` does so.

mod crowd;
mod egress_router;
mod figures;
mod machine;
mod moves;
mod report;
mod stage;
mod start;
mod steady;
mod walk;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use e2e::control_plane::ControlPlane;
use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use crate::figures::Figures;
use crate::report::Report;
use crate::stage::Stage;

/// Few Nodes and many: a network of Hetzner's takes 100 servers.
const FEW: usize = 5;
const MANY: usize = 100;
/// A real cluster's patience with its Nodes: hollow kubelets beat as seldom as real ones here.
const GRACE: Duration = Duration::from_secs(40);

/// Measures a controller and prints a table.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// What is measured.
    controller: Controller,
    /// The program to measure; without it, the one beside this program.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Only these parts, comma-separated; without it, all.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Processor time of observe and plan.
    Walk,
    /// Start to ready and idle memory, with few Nodes and with many.
    Start,
    /// From what happens to a Node to the route that follows.
    Moves,
    /// What is asked of others while nothing happens.
    Steady,
    /// Memory among thousands of Nodes.
    Crowd,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Controller {
    /// The NAT gateway controller.
    Natgw,
    /// The CNI plugin, against Debian's macvlan and static plugins.
    EgressRouter,
    /// Its part within the node's namespaces.
    #[value(hide = true)]
    EgressRouterDriver,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let measured = match args.controller {
        Controller::Natgw => tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(anyhow::Error::from)
            .and_then(|runtime| runtime.block_on(until_interrupted(natgw(&args))))
            .map(|report| report.to_string()),
        // Its processes end with this one, however that ends.
        Controller::EgressRouter => egress_router::measure(args.program.as_deref()),
        Controller::EgressRouterDriver => egress_router::driver::run().map(|()| String::new()),
    };
    match measured {
        Ok(report) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A signal drops what is measured, and with it all processes and files.
async fn until_interrupted(measure: impl Future<Output = Result<Report>>) -> Result<Report> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        report = measure => report,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}

async fn natgw(args: &Args) -> Result<Report> {
    let Args { program, only, .. } = args;
    let wanted = |part: Part| only.is_empty() || only.contains(&part);
    let clock = Instant::now();
    let say = |what: &str| eprintln!("bench: {:3} s: {what}", clock.elapsed().as_secs());
    let binary = program.clone().map_or_else(stage::natgw_binary, Ok)?;
    let mut report = Report::default();
    let load = machine::load()?;

    size(&binary, &mut report)?;
    if wanted(Part::Walk) {
        say("observe and plan, 100 and 1000 Nodes");
        walk::measure(&mut report).await?;
    }
    say("control plane");
    let control_plane = ControlPlane::builder().grace(GRACE).start().await.context("control plane")?;
    let mut stage = Stage::on(control_plane.clone(), &binary).await?;
    let (start, moves) = (wanted(Part::Start), wanted(Part::Moves));
    if start || moves {
        stage.grow(FEW).await?;
    }
    if start {
        say("5 Nodes: start, idle memory");
        start::measure(&stage, &mut report).await?;
    }
    if moves {
        say("5 Nodes: label, cordon, NotReady");
        moves::measure(&stage, 0, &mut report).await?;
    }
    if start || moves {
        stage.grow(MANY).await?;
    }
    if start {
        say("100 Nodes: start, idle memory");
        start::measure(&stage, &mut report).await?;
    }

    // The steady state counts and takes no time: beside other work, the whole takes two minutes less.
    let steady = async {
        if !wanted(Part::Steady) {
            return Ok(None);
        }
        say("steady state for two minutes, and what follows beside it");
        steady::count(control_plane.clone(), &binary).await.map(Some)
    };
    let rest = async {
        if moves {
            say("100 Nodes: label, cordon, NotReady");
            moves::measure(&stage, FEW, &mut report).await?;
        }
        if wanted(Part::Crowd) {
            say("5000 Nodes: gathering");
            // They have no kubelet, and shall not be taken for lost meanwhile.
            let crowded = ControlPlane::builder().grace(crowd::GRACE).start().await;
            let crowded = crowded.context("second control plane")?;
            crowd::gather(&crowded).await?;
            say("5000 Nodes: memory");
            crowd::measure(&crowded, &binary, &mut report).await?;
        }
        anyhow::Ok(())
    };
    let (steady, ()) = tokio::try_join!(steady, rest)?;
    if let Some(steady) = steady {
        steady.report(&mut report)?;
    }
    say("done");

    let kubernetes = control_plane.client().apiserver_version().await?.git_version;
    report.circumstances = vec![
        format!("{} on {}", Timestamp::now().strftime("%F"), machine::hardware()?),
        format!(
            "{}; bench: {} build; Kubernetes {kubernetes} (etcd without fsync), Hetzner stand-in with route actions of {} s",
            machine::version(&binary)?,
            if cfg!(debug_assertions) { "DEBUG" } else { "release" },
            stage::ACTION.as_secs()
        ),
        format!(
            "Load average (1, 5, 15 minutes) at the start {load}, at the end {}; {} s in all",
            machine::load()?,
            clock.elapsed().as_secs()
        ),
    ];
    Ok(report)
}

fn size(binary: &Path, report: &mut Report) -> Result<()> {
    let bytes = std::fs::metadata(binary)?.len();
    report.row(
        "Program file",
        "",
        Figures::bytes([bytes])?,
        "Size of the stripped binary; a static one holds all that it needs",
    );
    Ok(())
}
