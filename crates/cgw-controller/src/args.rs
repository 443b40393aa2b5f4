//! The command line: one subcommand for each role.

use std::time::Duration;

use clap::{Parser, Subcommand};
use common::args::{AdminArgs, ClientArgs, LeaderArgs, LogArgs, RuntimeArgs, duration};

use crate::{agent, controller, ctl, keeper};

/// Centralized SNAT gateway: the VIP of a Service is the address that its clients use and the address that its pods leave with.
#[derive(Parser, Clone, Debug)]
#[command(name = "cgw", version = common::program!().version_text())]
pub struct Args {
    /// The role
    #[command(subcommand)]
    pub role: Role,
}

/// A role, or a command.
#[derive(Subcommand, Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one value in a process")]
pub enum Role {
    #[allow(missing_docs)]
    Controller(controller::args::Args),
    #[allow(missing_docs)]
    Keeper(Box<keeper::args::Args>),
    /// Removes the VIPs of the node when the keeper does not run
    KeeperGuard(keeper::args::HeartbeatArgs),
    /// keepalived's check script: exits with 0 if this node may carry the VIPs
    KeeperCheck(keeper::args::HeartbeatArgs),
    #[allow(missing_docs)]
    Agent(agent::args::Args),
    #[allow(missing_docs)]
    Ctl(ctl::args::Args),
}

/// Flags of every process: all of [`RuntimeArgs`] but leader election, since every replica of each role is active.
#[derive(clap::Args, Clone, Debug)]
pub struct ProcessArgs {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub client: ClientArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub log: LogArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub admin: AdminArgs,
    /// How long the process may take to end after SIGTERM, before it is cut off
    #[arg(long, env = "PERIMETER_GRACEFUL_SHUTDOWN_TIMEOUT", default_value = "25s", value_name = "DURATION",
        value_parser = duration::parse, help_heading = "Process")]
    pub graceful_shutdown_timeout: Duration,
}

impl ProcessArgs {
    /// As the runtime takes them.
    #[must_use]
    pub fn into_runtime(self) -> RuntimeArgs {
        let ProcessArgs { client, log, admin, graceful_shutdown_timeout } = self;
        RuntimeArgs { client, log, admin, leader: LeaderArgs::disabled(), graceful_shutdown_timeout }
    }
}
