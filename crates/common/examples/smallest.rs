//! The smallest complete controller: it waits until it leads, and then reconciles once a second until the shutdown.
//!
//! The tests of the runtime start it; `--then` makes it behave as a broken controller would.

use std::{future::Future, process::ExitCode, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser, ValueEnum};
use common::{
    args::{self, KubeconfigSecret, Program, RuntimeArgs},
    runtime::{self, ConfigError, Runtime},
};
use tracing::Instrument;

const PROGRAM: Program = Program { name: "smallest", ..common::program!() };

/// A controller without any work, for the tests of the runtime
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    runtime: RuntimeArgs,
    /// Behaviour of the controller once it leads
    #[arg(long, value_enum, default_value = "reconcile", env = "PERIMETER_THEN")]
    then: Then,
    /// How long a reconciliation takes
    #[arg(long, default_value = "0s", env = "PERIMETER_RECONCILE_TIME", value_parser = args::duration::parse)]
    reconcile_time: Duration,
    /// Secret with the kubeconfig of the cluster
    #[arg(long, env = "PERIMETER_KUBECONFIG_SECRET_NAME")]
    kubeconfig_secret_name: Option<String>,
    /// Run as a command beside the controller: no admin server, no lease
    #[arg(long, env = "PERIMETER_COMMAND")]
    command: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Then {
    /// Reconciles once a second; at the shutdown it finishes the reconciliation that runs
    Reconcile,
    /// Reconciles once and returns
    Return,
    /// Fails
    Fail,
    /// Reports an error of its configuration
    Misconfigured,
    /// Steps down for an hour, and reconciles when it leads again
    StepDown,
    /// Ignores the shutdown and never returns
    Deaf,
}

fn main() -> ExitCode {
    let command = Args::command().name(PROGRAM.name).version(PROGRAM.version_text());
    let matches = command.clone().get_matches();
    let mut args = match Args::from_arg_matches(&matches) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let secret = args.kubeconfig_secret_name.map(|name| KubeconfigSecret { name, namespace: None });
    args.runtime.client.secret = secret;
    let control = |runtime| control(runtime, args.then, args.reconcile_time);
    if args.command {
        runtime::command(PROGRAM, args.runtime, control)
    } else {
        runtime::run(PROGRAM, args.runtime, args::in_force(&command, &matches), control)
    }
}

async fn control(runtime: Runtime, then: Then, takes: Duration) -> anyhow::Result<()> {
    // A real one fills caches here: a standby fills them too.
    runtime.readiness.check("caches").ready();
    if !runtime.leading().await {
        return Ok(());
    }
    tracing::info!("leading");
    match then {
        Then::Reconcile => {
            while unless_shut_down(&runtime, tokio::time::sleep(Duration::from_secs(1))).await {
                reconcile(&runtime, takes).await;
            }
            reconcile(&runtime, takes).await;
        }
        Then::Return => reconcile(&runtime, takes).await,
        Then::Fail => anyhow::bail!("this controller always fails"),
        Then::Misconfigured => {
            return Err(ConfigError("smallest.yaml:1: unknown field \"x\"".to_owned()).into());
        }
        Then::StepDown => {
            runtime.leadership.step_down(Duration::from_secs(3600)).await;
            if runtime.leading().await {
                reconcile(&runtime, takes).await;
            }
        }
        Then::Deaf => std::future::pending().await,
    }
    Ok(())
}

async fn unless_shut_down(runtime: &Runtime, wait: impl Future<Output = ()>) -> bool {
    tokio::select! {
        () = runtime.shutdown.cancelled() => false,
        () = wait => true,
    }
}

async fn reconcile(runtime: &Runtime, takes: Duration) {
    let clock = runtime.reconciliation(PROGRAM.name);
    let work = async {
        tokio::time::sleep(takes).await;
        tracing::info!("nothing to do");
    };
    work.instrument(tracing::info_span!("reconcile")).await;
    runtime.status.set("last reconciliation", "nothing to do");
    clock.succeeded();
}
