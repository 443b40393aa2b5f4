//! Executes the command line.

use std::process::ExitCode;

use clap::Parser;
use common::command;

use crate::args::{Args, Role};
use crate::{agent, controller, ctl, keeper};

/// Parses the command line and runs the role.
#[must_use]
pub fn run() -> ExitCode {
    // These run each second on a gateway node, beside a keeper that is stopped, or when the cluster is gone: they have no runtime and
    // no API server.
    match Args::try_parse() {
        Ok(Args { role: Role::KeeperGuard(args) }) => return keeper::guard::run(args),
        Ok(Args { role: Role::KeeperCheck(args) }) => return keeper::check::run(args),
        // keepalived's configuration depends on the command line and its files only.
        Ok(Args { role: Role::Keeper(args) }) if args.plan.dry_run => return keeper::render(*args),
        Ok(Args { role: Role::Agent(args) }) if args.own.uninstall => return agent::uninstall(&args),
        _ => {}
    }
    command::main(common::program!(), |args: Args| match args.role {
        Role::Controller(args) => controller::prepare(args),
        Role::Keeper(args) => keeper::prepare(*args),
        Role::Agent(args) => agent::prepare(args),
        Role::Ctl(args) => ctl::prepare(args),
        Role::KeeperGuard(_) | Role::KeeperCheck(_) => anyhow::bail!("this role has no runtime"),
    })
}
