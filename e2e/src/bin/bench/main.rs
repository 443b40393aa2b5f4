//! Measures a controller and prints a table in Markdown: `bench natgw`. Progress goes to standard error.
//!
//! It talks to loopback only, and leaves nothing behind. The figures are of the natgw beside this program, so both are to
//! be built alike: `make bench` does.

mod crowd;
mod figures;
mod machine;
mod moves;
mod report;
mod stage;
mod start;
mod steady;
mod walk;

use std::path::Path;
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
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Controller {
    /// The NAT gateway controller.
    Natgw,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Args { controller: Controller::Natgw } = Args::parse();
    match until_interrupted(natgw()).await {
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

async fn natgw() -> Result<Report> {
    let clock = Instant::now();
    let say = |what: &str| eprintln!("bench: {:3} s: {what}", clock.elapsed().as_secs());
    let binary = stage::natgw_binary()?;
    let mut report = Report::default();
    let load = machine::load()?;

    size(&binary, &mut report)?;
    say("observe and plan, 100 and 1000 Nodes");
    walk::measure(&mut report).await?;

    say("control plane");
    let control_plane = ControlPlane::builder().grace(GRACE).start().await.context("control plane")?;
    let mut stage = Stage::on(control_plane.clone(), &binary).await?;
    say("5 Nodes: start, idle memory");
    stage.grow(FEW).await?;
    start::measure(&stage, &mut report).await?;
    say("5 Nodes: label, cordon, NotReady");
    moves::measure(&stage, 0, &mut report).await?;
    say("100 Nodes: start, idle memory");
    stage.grow(MANY).await?;
    start::measure(&stage, &mut report).await?;

    // The steady state counts and takes no time: beside other work, the whole takes two minutes less.
    say("steady state for two minutes, and beside it");
    let steady = steady::count(control_plane.clone(), &binary);
    let rest = async {
        say("100 Nodes: label, cordon, NotReady");
        moves::measure(&stage, FEW, &mut report).await?;
        say("5000 Nodes: gathering");
        // They have no kubelet, and shall not be taken for lost meanwhile.
        let crowded = ControlPlane::builder().grace(crowd::GRACE).start().await;
        let crowded = crowded.context("second control plane")?;
        crowd::gather(&crowded).await?;
        say("5000 Nodes: memory");
        crowd::measure(&crowded, &binary, &mut report).await
    };
    let (steady, ()) = tokio::try_join!(steady, rest)?;
    steady.report(&mut report)?;
    say("done");

    let kubernetes = control_plane.client().apiserver_version().await?.git_version;
    report.circumstances = vec![
        format!("{} on {}", Timestamp::now().strftime("%F"), machine::hardware()?),
        format!(
            "{}; {} build; Kubernetes {kubernetes} (etcd without fsync), Hetzner stand-in with route actions of {} s",
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
        "Size of the stripped binary, which holds all but the C library",
    );
    Ok(())
}
