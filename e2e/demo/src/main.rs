//! Shows a controller at work: `demo natgw`, `demo natgw-cluster`, `demo egress-router`, `demo routegc`, `demo deorbiter`,
//! `demo apinetlet`, `demo cgw`.
//!
//! ```text
//!   natgw          on a real control plane, with simulated Nodes and a simulated Hetzner Cloud
//!   natgw_cluster  the same on real nodes, with packets
//!   egress_router  a pod with an egress address of its own, in network namespaces
//!   routegc        an orphaned route on a real Neutron
//!   deorbiter      a cluster's clean-up on a real OpenStack
//!   apinetlet      a tenant's network, on the real API servers of ironcore and ironcore-net
//!   cgw            a Service's VIP as its ingress and egress address, on real nodes, with packets
//!   tenant         what the two on OpenStack share: custom resource, credentials, program
//!   screen         output
//! ```

mod apinetlet;
mod cgw;
mod deorbiter;
mod egress_router;
mod natgw;
mod natgw_cluster;
mod routegc;
mod screen;
mod tenant;

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use screen::Screen;

/// The exit code that a shell reports for a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

/// Shows a controller of Perimeter at work. Needs no cloud account and no cluster of yours
///
/// Exit code: 0 if every step succeeded, 1 if a step failed or took too long, 130 after Ctrl-C. Everything that a demo starts is
/// removed when it ends.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    demo: Demo,
}

#[derive(Debug, Subcommand)]
enum Demo {
    /// natgw sets up a NAT gateway and keeps it working (about a minute)
    ///
    /// Starts a real control plane (etcd, kube-apiserver, kube-controller-manager), a simulated Hetzner Cloud API whose
    /// actions take a second as the real ones do, three simulated Nodes, and natgw. Each chapter shows the command of an
    /// administrator, what natgw does in response, why, and how long it takes.
    Natgw(Options),
    /// The same on real nodes, with the source address that the internet sees; needs root (about three minutes)
    ///
    /// Starts a cluster of three nodes (kubelet, containerd, kube-proxy) without Docker, builds natgw's image and installs it
    /// with `kubectl apply -k`. Then gateways are cordoned, disconnected and rebooted.
    NatgwCluster(Options),
    /// A pod leaves the cluster through an address of its own, with packets (half a minute)
    ///
    /// Builds a node with a pod, a second node and a LAN from network namespaces, and calls egress-router as a container
    /// runtime does. Every peer reports the source address that it sees. Needs no root where users may create namespaces.
    EgressRouter,
    /// routegc reports an orphaned route of a router, then removes it, on a real Neutron (a minute and a half)
    ///
    /// Starts Keystone, Neutron, etcd and kube-apiserver. A router gets routes as OpenStack's cloud controller manager writes
    /// them, a node is deleted, and a RouteGC reports and removes the route to it.
    Routegc,
    /// deorbiter deletes what a cluster created in its cloud, and verifies that it is gone (three minutes)
    ///
    /// Starts Keystone, Neutron, Nova, Cinder and Octavia, and a Kubernetes control plane with OpenStack's own cloud
    /// controller manager and Cinder CSI driver. Volumes, a snapshot and a load balancer are created, then a Deorbit.
    Deorbiter,
    /// apinetlet maps a tenant's network onto ironcore-net, and writes IDs and addresses back (half a minute)
    ///
    /// Starts the API servers and controllers of ironcore and ironcore-net at one control plane. A network with a load balancer, a NAT
    /// gateway, a public address and a policy is created, gets interfaces, and is deleted.
    Apinetlet,
    /// A Service's VIP is the address of its clients and of its pods, on real nodes; needs root (about three minutes)
    ///
    /// Starts a cluster of three nodes (kubelet, containerd, kube-proxy) without Docker, and installs controller, keeper and agent with
    /// `kubectl apply -k`. A pod leaves with the VIP, is reached by it, and the gateway that carries it is powered off.
    Cgw(Options),
}

#[derive(Debug, Clone, Copy, clap::Args)]
struct Options {
    /// Wait for Enter between the chapters
    #[arg(long)]
    pause: bool,
    /// At the end, keep the cluster and its programs running until Ctrl-C, and show how to reach them
    #[arg(long)]
    keep: bool,
}

/// Ctrl-C, SIGTERM, or the end of the terminal.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
struct Interrupted;

fn main() -> ExitCode {
    let Args { demo } = Args::parse();
    let screen = Screen::new();
    match run(demo, &screen) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => {
            screen.gap();
            screen.say("Stopped. Everything that the demo started is removed.");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            screen.error(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(demo: Demo, screen: &Screen) -> Result<()> {
    if std::env::var_os("E2E_EXISTING_CLUSTER").is_some_and(|value| value == "1") {
        bail!("E2E_EXISTING_CLUSTER=1 is set, but a demo never uses a cluster of yours: unset it");
    }
    if let Demo::EgressRouter = demo {
        // Needs no runtime. The kernel removes its namespaces with this process, so a signal may end it.
        return egress_router::run(screen);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let shown = runtime.block_on(async {
        tokio::select! {
            // Ctrl-C on a terminal ends the controllers too, which is not their failure then.
            biased;
            interrupted = interrupted() => interrupted.and(Err(Interrupted.into())),
            shown = async {
                match demo {
                    Demo::Natgw(options) => natgw::run(screen, options).await,
                    Demo::NatgwCluster(options) => natgw_cluster::run(screen, options).await,
                    Demo::Routegc => routegc::run(screen).await,
                    Demo::Deorbiter => deorbiter::run(screen).await,
                    Demo::Apinetlet => apinetlet::run(screen).await,
                    Demo::Cgw(options) => cgw::run(screen, options).await,
                    Demo::EgressRouter => Ok(()),
                }
            } => shown,
        }
    });
    // A thread that reads standard input would block the end for ever.
    runtime.shutdown_background();
    shown
}

async fn interrupted() -> Result<()> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let mut signals = kinds.into_iter().map(signal).collect::<std::io::Result<Vec<_>>>()?;
    let received = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    let (received, ..) = futures::future::select_all(received).await;
    ensure!(received.is_some(), "signals cannot be received");
    Ok(())
}
