//! Measures a program and prints tables in Markdown: `bench natgw`, `bench egress-router`, `bench routegc`, `bench deorbiter`,
//! `bench apinetlet`, `bench cgw`, `bench work-queue`. Progress goes to standard error.
//!
//! Everything runs on this machine and is removed afterwards. `make bench` measures what users get: the static release build.
//! Without the feature `controllers`, only the CNI plugin can be measured, and no controller is compiled.
#![cfg_attr(not(feature = "controllers"), allow(dead_code))]

#[cfg(feature = "controllers")]
mod apinetlet;
#[cfg(feature = "controllers")]
mod cgw;
#[cfg(feature = "controllers")]
mod deorbiter;
mod egress_router;
mod machine;
#[cfg(feature = "controllers")]
mod natgw;
mod process;
mod report;
#[cfg(feature = "controllers")]
mod routegc;
mod work_queue;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use e2e::program::built;
use tokio::signal::unix::{SignalKind, signal};

use crate::report::{Bench, mebibytes};

/// Measures a program and prints a table.
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Args {
    /// The component to measure
    subject: Subject,
    /// The program to measure [default: the one that was built with this program]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Only these parts, comma-separated [default: all parts of the subject]
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// natgw: processor time of observe and plan
    Plan,
    /// All controllers: start to ready, and idle memory
    Start,
    /// natgw: from a change of a Node to the route that follows; cgw: from a promotion to the last Service, and flips of the datapath
    Moves,
    /// All controllers: requests while nothing changes
    Steady,
    /// natgw: memory with thousands of Nodes; deorbiter: two hundred Deorbits at once; apinetlet: thousands of objects;
    /// cgw: a thousand bound Services, thousands of pods
    Crowd,
    /// routegc: reconciliations of few and many routes; apinetlet: synchronization and changes, with the Go program too
    Reconcile,
    /// deorbiter: how much longer a clean-up takes than the drivers' own deletion
    Providers,
    /// deorbiter: memory and time in clusters with thousands of claims
    Claims,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Subject {
    /// The NAT gateway controller
    Natgw,
    /// The CNI plugin, side by side with Debian's macvlan and static plugins
    EgressRouter,
    /// The controller that removes stale routes, on a real Neutron
    Routegc,
    /// The controller that cleans up clusters, on a real OpenStack
    Deorbiter,
    /// The mapping of networking APIs, with the Go program in the same run
    Apinetlet,
    /// The centralized SNAT gateway: controller, agent and driver vxlan
    Cgw,
    /// The work queue of the per-key controllers
    WorkQueue,
    /// The part of egress-router's bench that runs in the node's namespaces
    #[value(hide = true)]
    EgressRouterDriver,
}

fn main() -> ExitCode {
    match measured(Args::parse()) {
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

fn measured(args: Args) -> Result<String> {
    let parts: &[Part] = match args.subject {
        Subject::Natgw => &[Part::Plan, Part::Start, Part::Moves, Part::Steady, Part::Crowd],
        Subject::Routegc => &[Part::Start, Part::Reconcile, Part::Steady],
        Subject::Deorbiter => &[Part::Start, Part::Steady, Part::Providers, Part::Crowd, Part::Claims],
        Subject::Apinetlet => &[Part::Start, Part::Reconcile, Part::Crowd],
        Subject::Cgw => &[Part::Start, Part::Moves, Part::Crowd],
        Subject::EgressRouter | Subject::WorkQueue | Subject::EgressRouterDriver => &[],
    };
    let unknown = args.only.iter().find(|part| !parts.contains(part));
    ensure!(unknown.is_none(), "{:?} has no part {unknown:?}, only {parts:?}", args.subject);
    let program = |name: &str| match &args.program {
        // Some are started in another folder.
        Some(path) => path.canonicalize().with_context(|| path.display().to_string()),
        None => built(name),
    };
    match args.subject {
        Subject::EgressRouter => egress_router::measure(&program("egress-router")?),
        Subject::EgressRouterDriver => egress_router::driver::run().map(|()| String::new()),
        Subject::WorkQueue => work_queue::measure(),
        subject => {
            let name = format!("{subject:?}").to_lowercase();
            let mut bench = Bench::begin(program(&name)?, args.only)?;
            let size = std::fs::metadata(&bench.program)?.len();
            let meaning = "Size of the stripped binary; a static one contains everything that it needs";
            bench.row("Program file", "", mebibytes([size])).means(meaning);
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let measured = runtime.block_on(async {
                let mut interrupt = signal(SignalKind::interrupt())?;
                let mut terminate = signal(SignalKind::terminate())?;
                // A signal drops the measurement, and with it all processes and files.
                tokio::select! {
                    measured = controller(subject, &mut bench) => measured,
                    _ = interrupt.recv() => bail!("interrupted"),
                    _ = terminate.recv() => bail!("terminated"),
                }
            });
            if measured.is_err() {
                // Measuring them again would take minutes.
                eprintln!("bench: the rows before the failure:\n{bench}");
            }
            measured.map(|()| bench.to_string())
        }
    }
}

#[cfg(feature = "controllers")]
async fn controller(subject: Subject, bench: &mut Bench) -> Result<()> {
    match subject {
        Subject::Natgw => natgw::measure(bench).await,
        Subject::Routegc => routegc::measure(bench).await,
        Subject::Apinetlet => apinetlet::measure(bench).await,
        Subject::Cgw => cgw::measure(bench).await,
        _ => deorbiter::measure(bench).await,
    }
}

#[cfg(not(feature = "controllers"))]
async fn controller(subject: Subject, _: &mut Bench) -> Result<()> {
    bail!("{subject:?} needs a bench that was built with the feature `controllers`")
}
