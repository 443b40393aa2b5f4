//! natgw's command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Group, Parser, Subcommand};
use common::args::{RuntimeArgs, duration};
use common::command::PlanArgs;

/// Keeps one primary NAT-gateway Node in a cluster on Hetzner Cloud, and points the private network's default route to it.
#[derive(Parser, Clone, Debug)]
#[command(name = "natgw", version = common::program!().version_text())]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub own: OwnArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub plan: PlanArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub runtime: RuntimeArgs,
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Option<Command>,
}

/// Flags that only natgw has.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "NAT gateway")]
pub struct OwnArgs {
    /// Settings file (YAML)
    #[arg(
        long,
        env = "PERIMETER_CONFIG",
        default_value = "/etc/natgw/natgw.yaml",
        value_name = "FILE",
        global = true
    )]
    pub config: PathBuf,
    /// File with the Hetzner Cloud API token (Read & Write), reloaded when it changes. Default: the variable HCLOUD_TOKEN
    #[arg(long, env = "HCLOUD_TOKEN_FILE", value_name = "FILE", global = true)]
    pub hcloud_token_file: Option<PathBuf>,
    /// Reconcile once, holding the lease, and exit
    #[arg(long, env = "PERIMETER_ONCE", conflicts_with = "dry_run")]
    pub once: bool,
}

/// Commands other than running the controller.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show the network, the route, the state of each Node and the planned actions
    Status,
    /// Remove everything that natgw made: the route, the role label, the setup of every Node, the annotations. It needs the
    /// lease: scale the Deployment to zero first
    Cleanup {
        /// Give up after this time
        #[arg(long, env = "PERIMETER_TIMEOUT", default_value = "5m", value_name = "DURATION", value_parser = duration::parse)]
        timeout: Duration,
    },
}
