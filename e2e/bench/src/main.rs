//! Measures a program and prints tables in Markdown: `bench natgw`, `bench egress-router`, `bench routegc`, `bench deorbiter`.
//! Progress goes to standard error.
//!
//! It talks to loopback only, and leaves nothing behind. What is measured should be what users get, the static release
//! build: `make bench` does so. Built without its feature `controllers` it measures the CNI plugin alone, and compiles no controller.
#![cfg_attr(not(feature = "controllers"), allow(dead_code))]

#[cfg(feature = "controllers")]
mod deorbiter;
mod egress_router;
mod figures;
mod machine;
#[cfg(feature = "controllers")]
mod natgw;
#[cfg(feature = "controllers")]
mod process;
mod report;
#[cfg(feature = "controllers")]
mod routegc;
#[cfg(feature = "controllers")]
mod run;
#[cfg(feature = "controllers")]
mod start;

use std::path::PathBuf;
use std::process::ExitCode;

#[cfg(feature = "controllers")]
use anyhow::bail;
use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
#[cfg(feature = "controllers")]
use tokio::signal::unix::{SignalKind, signal};

#[cfg(feature = "controllers")]
use crate::report::Report;

/// Measures a program and prints a table.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Args {
    /// What is measured.
    controller: Controller,
    /// The program to measure; without it, the one beside this program.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Only these parts, comma-separated; without it, all that this controller has.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// natgw: processor time of observe and plan.
    Walk,
    /// All controllers: start to ready and idle memory.
    Start,
    /// natgw: from what happens to a Node to the route that follows.
    Moves,
    /// All controllers: what is asked of others while nothing happens.
    Steady,
    /// natgw: memory among thousands of Nodes; deorbiter: two hundred Deorbits at once.
    Crowd,
    /// routegc: passes over few and many routes.
    Passes,
    /// deorbiter: how much longer a clean-up takes than the providers' own deletion.
    Providers,
    /// deorbiter: memory and time in clusters with thousands of claims.
    Claims,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Controller {
    /// The NAT gateway controller.
    #[cfg(feature = "controllers")]
    Natgw,
    /// The CNI plugin, against Debian's macvlan and static plugins.
    EgressRouter,
    /// The remover of dead routes, on a real Neutron.
    #[cfg(feature = "controllers")]
    Routegc,
    /// The cleaner of dying clusters, on a real OpenStack.
    #[cfg(feature = "controllers")]
    Deorbiter,
    /// The part of egress-router within the node's namespaces.
    #[value(hide = true)]
    EgressRouterDriver,
}

fn main() -> ExitCode {
    match measured(&Args::parse()) {
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

fn measured(args: &Args) -> Result<String> {
    let parts: &[Part] = match args.controller {
        #[cfg(feature = "controllers")]
        Controller::Natgw => &natgw::PARTS,
        #[cfg(feature = "controllers")]
        Controller::Routegc => &routegc::PARTS,
        #[cfg(feature = "controllers")]
        Controller::Deorbiter => &deorbiter::PARTS,
        Controller::EgressRouter | Controller::EgressRouterDriver => &[],
    };
    for only in &args.only {
        ensure!(parts.contains(only), "it has no part {only:?}; its parts: {parts:?}");
    }
    // Some are started in another folder.
    let program = args.program.as_deref().map(|path| {
        path.canonicalize().with_context(|| format!("the program to measure, {}", path.display()))
    });
    let program = program.transpose()?;
    let (program, wanted) =
        (program.as_deref(), |part: Part| args.only.is_empty() || args.only.contains(&part));
    match args.controller {
        #[cfg(feature = "controllers")]
        Controller::Natgw => run_through(async |report| natgw::measure(program, wanted, report).await),
        #[cfg(feature = "controllers")]
        Controller::Routegc => run_through(async |report| routegc::measure(program, wanted, report).await),
        #[cfg(feature = "controllers")]
        Controller::Deorbiter => {
            run_through(async |report| deorbiter::measure(program, wanted, report).await)
        }
        // Its processes end with this one, however that ends.
        Controller::EgressRouter => egress_router::measure(program),
        Controller::EgressRouterDriver => egress_router::driver::run().map(|()| String::new()),
    }
}

#[cfg(feature = "controllers")]
fn run_through(measure: impl AsyncFnOnce(&mut Report) -> Result<()>) -> Result<String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report::default();
    let measured = runtime.block_on(until_interrupted(measure(&mut report)));
    if measured.is_err() && !report.rows.is_empty() {
        // Minutes of work.
        eprintln!("bench: this was measured before it failed:\n{report}");
    }
    measured.map(|()| report.to_string())
}

/// A signal drops what is measured, and with it all processes and files.
#[cfg(feature = "controllers")]
async fn until_interrupted(measure: impl Future<Output = Result<()>>) -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        measured = measure => measured,
        _ = interrupt.recv() => bail!("interrupted"),
        _ = terminate.recv() => bail!("terminated"),
    }
}
