//! `demo natgw`: natgw makes a gateway while a person watches, on a real control plane and a stand-in for Hetzner Cloud.
//!
//! ```text
//!   cluster  `demo natgw-cluster`: the same on real nodes, with packets
//!   deorbiter  `demo deorbiter`: a cluster is cleaned up before it dies, on a real OpenStack with the real providers
//!   routegc  `demo routegc`: a router's route to a dead node goes, on a real Neutron
//!   egress_router   `demo egress-router`: a pod that leaves by an address of its own
//!   story    the chapters: what is done, what is awaited, how long it took
//!   stage    what it is played on: control plane, cloud, nodes, natgw as programs
//!   tape     what happened when: natgw's own log, the cluster, the cloud, as one list in the order of time
//!   tenant   what the demos on OpenStack have in common: the kind, the project's credentials, the program
//!   screen   how it looks
//!   prerequisite   what has to hold before one begins
//! ```

mod cluster;
mod deorbiter;
mod egress_router;
mod prerequisite;
mod routegc;
mod screen;
mod stage;
mod story;
mod tape;
mod tenant;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use screen::Screen;
use story::Story;

/// What a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Watch a controller of Perimeter at work. Needs no cloud account and no cluster of yours.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    controller: Controller,
}

/// Which controller is shown.
#[derive(Debug, Subcommand)]
enum Controller {
    /// natgw makes a NAT gateway and keeps it, in short chapters (about a minute)
    ///
    /// Starts a real control plane (etcd, kube-apiserver, kube-controller-manager), a stand-in for the Hetzner Cloud API
    /// whose actions take a second as the real ones do, three nodes without machines, and natgw as the program that it is.
    /// Then it does what an administrator would do, says which command that is, and shows what natgw does about it and how
    /// long it takes. Everything is gone afterwards.
    ///
    /// Exit code: 0 if everything was seen, 1 if something did not happen in time, 130 after Ctrl-C.
    Natgw(Wishes),
    /// The same on a cluster of real nodes, with a live view of the source address that the Internet sees; needs root
    ///
    /// Starts a cluster of three nodes (kubelet, containerd, kube-proxy) without Docker, gives it natgw's own image, installs
    /// it with kubectl apply -k, and then cordons, cuts and reboots gateways. Everything is gone afterwards.
    ///
    /// Exit code: 0 if everything was seen, 1 if something did not happen in time, 130 after Ctrl-C.
    NatgwCluster(Wishes),
    /// A pod leaves through a static address of its own, with packets (half a minute)
    ///
    /// Makes a node with a pod, another node and a LAN of network namespaces, calls egress-router as a container runtime
    /// does, and asks every side whom it sees. Needs no root where the kernel lets users make namespaces. Everything is gone
    /// afterwards.
    ///
    /// Exit code: 0 if everything was seen, 1 if something was not.
    EgressRouter,
    /// A router's route whose node is gone is reported, then removed, on a real Neutron (a minute and a half)
    ///
    /// Starts Keystone and Neutron, etcd and kube-apiserver, makes a router with routes as a cluster's cloud controller manager
    /// writes them, takes a node away, and shows what routegc finds and does. Everything is gone afterwards.
    ///
    /// Exit code: 0 if everything was seen, 1 if something was not, 130 after Ctrl-C.
    Routegc,
    /// What a cluster made in its cloud is deleted, and proven to be gone, before the cluster dies (three minutes)
    ///
    /// Starts Keystone, Neutron, Nova, Cinder and Octavia, a Kubernetes control plane with OpenStack's own cloud controller
    /// manager and Cinder CSI driver, makes volumes, a snapshot and a load balancer as users do, and creates a Deorbit.
    /// Everything is gone afterwards.
    ///
    /// Exit code: 0 if everything was seen, 1 if something was not, 130 after Ctrl-C.
    Deorbiter,
}

/// How it is shown.
#[derive(Debug, Clone, Copy, clap::Args)]
struct Wishes {
    /// Wait for Enter between the chapters
    #[arg(long)]
    pause: bool,
    /// Keep the cluster, the cloud and a running natgw until Ctrl-C, and say how to reach them
    #[arg(long)]
    keep: bool,
}

fn main() -> ExitCode {
    let Args { controller } = Args::parse();
    if let Controller::EgressRouter = controller {
        return show_egress_router();
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("demo: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = match controller {
        Controller::Natgw(wishes) => runtime.block_on(show(wishes)),
        Controller::NatgwCluster(wishes) => {
            let screen = Screen::new();
            runtime.block_on(until_interrupted(&screen, cluster::play(&screen, wishes)))
        }
        Controller::Routegc => {
            let screen = Screen::new();
            runtime.block_on(until_interrupted(&screen, routegc::play(&screen)))
        }
        Controller::Deorbiter => {
            let screen = Screen::new();
            runtime.block_on(until_interrupted(&screen, deorbiter::play(&screen)))
        }
        Controller::EgressRouter => ExitCode::SUCCESS, // Shown above: it needs no runtime.
    };
    // A thread that waits for Enter waits for ever.
    runtime.shutdown_background();
    code
}

/// Ctrl-C simply ends it: a lab does not outlive its process, however that ended.
fn show_egress_router() -> ExitCode {
    let screen = Screen::new();
    match egress_router::play(&screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen.wrong(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn show(wishes: Wishes) -> ExitCode {
    let mut story = Story::new(Screen::new(), wishes.pause);
    let played = tokio::select! {
        // Ctrl-C on a terminal ends natgw too: that is no failure then.
        biased;
        interrupted = interrupted() => {
            story.interrupted();
            return if interrupted.is_ok() { ExitCode::from(INTERRUPTED) } else { ExitCode::FAILURE };
        }
        played = async {
            story.play().await?;
            if wishes.keep { story.keep().await } else { Ok(()) }
        } => played,
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            story.failed(&error);
            ExitCode::FAILURE
        }
    }
}

/// Ctrl-C drops what is played, and with it all that it has started.
async fn until_interrupted(screen: &Screen, play: impl Future<Output = Result<()>>) -> ExitCode {
    let played = tokio::select! {
        biased;
        interrupted = interrupted() => {
            screen.gap();
            screen.say("Stopped. Everything that was started is being removed.");
            return if interrupted.is_ok() { ExitCode::from(INTERRUPTED) } else { ExitCode::FAILURE };
        }
        played = play => played,
    };
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            screen.wrong(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// Returns with Ctrl-C, SIGTERM, or when the terminal is closed.
async fn interrupted() -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
