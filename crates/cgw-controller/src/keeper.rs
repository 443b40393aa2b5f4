//! The role `keeper`: keepalived on a gateway node, one process for each virtual router.
//!
//! * [`config`], [`keepalived_conf`]: the virtual router, and keepalived's configuration.
//! * [`supervise`], [`process`], [`vrrp`]: keepalived as a child process.
//! * [`node`]: VIPs, main address and tunnel interface of the node.
//! * [`plan`], [`notify`]: notifications of the controller.
//! * [`register`], [`status`]: how the controller finds and polls the keeper.
//! * [`run_dir`], [`guard`], [`check`]: what protects the node when the keeper does not run.

pub mod act;
pub mod args;
pub mod check;
pub mod config;
pub mod guard;
pub mod keepalived_conf;
pub mod metrics;
pub mod node;
pub mod notify;
pub mod plan;
pub mod process;
pub mod register;
pub mod report;
pub mod resolve;
pub mod run;
pub mod run_dir;
pub mod status;
pub mod supervise;
pub mod sys;
pub mod vrrp;

use std::process::ExitCode;

use common::args::RuntimeArgs;
use common::command::{self, Output, Work};
use serde_json::json;

/// Checks the command line and returns the work of the role.
///
/// # Errors
/// A flag or the configuration cannot be used.
pub fn prepare(args: args::Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    args.plan.check()?;
    let setup = run::Setup::new(args.keeper)?;
    Ok((args.process.into_runtime(), Work::run(async move |runtime| run::run(runtime, setup).await)))
}

/// Runs `cgw keeper --dry-run`: prints keepalived.conf. Neither a cluster nor keepalived is needed.
#[must_use]
pub fn render(args: args::Args) -> ExitCode {
    match run::Setup::new(args.keeper) {
        Ok(setup) => {
            let text = setup.render();
            command::print(&match args.plan.output {
                Output::Text => text,
                Output::Json => format!("{:#}\n", json!({ "keepalived.conf": text })),
            });
            ExitCode::SUCCESS
        }
        Err(error) => common::runtime::refuse(&common::program!(), &error),
    }
}
