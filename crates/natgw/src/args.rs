//! natgw's command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Group, Parser, Subcommand, ValueEnum};
use common::args::{RuntimeArgs, duration};

/// Keeps one primary NAT-gateway Node in a cluster on Hetzner Cloud; the private network's default route follows it.
#[derive(Parser, Clone, Debug)]
#[command(name = "natgw", version = common::program!().version_text())]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub own: OwnArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub runtime: RuntimeArgs,
    #[command(subcommand)]
    #[allow(missing_docs)]
    pub command: Option<Command>,
}

/// What only natgw takes.
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
    /// File that holds the Hetzner Cloud API token (Read & Write), read again when it changes; without it the variable
    /// HCLOUD_TOKEN
    #[arg(long, env = "HCLOUD_TOKEN_FILE", value_name = "FILE", global = true)]
    pub hcloud_token_file: Option<PathBuf>,
    /// Print what one walk would do, with the reason of each step, and do nothing
    #[arg(long, env = "PERIMETER_DRY_RUN", global = true)]
    pub dry_run: bool,
    /// How --dry-run prints
    #[arg(long, env = "PERIMETER_OUTPUT", value_enum, default_value_t = Output::Text, value_name = "FORMAT", global = true)]
    pub output: Output,
    /// Walk once, under the lease, and end
    #[arg(long, env = "PERIMETER_ONCE", conflicts_with = "dry_run")]
    pub once: bool,
}

/// What to do instead of keeping a gateway.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// Show the network, the route, each Node's standing and what natgw would do next
    Status,
    /// Take everything back: the route, the role label, every Node's setup, the annotations. Needs the lease: scale the
    /// Deployment to zero first
    Cleanup {
        /// Give up after this time
        #[arg(long, env = "PERIMETER_TIMEOUT", default_value = "5m", value_name = "DURATION", value_parser = duration::parse)]
        timeout: Duration,
    },
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For a person
    Text,
    /// One JSON object
    Json,
}
