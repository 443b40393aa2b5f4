//! Runs the command of the command line.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use common::args::LeaderArgs;
use common::cloud::hcloud::{Hcloud, Token};
use common::command::{self, Work};
use common::leader::settings::JITTER_FACTOR;
use common::plan::Plan;
use common::runtime::{ConfigError, Runtime};
use jiff::Timestamp;

use crate::args::{Args, Command};
use crate::config::{Config, Mode};
use crate::controller::{self, StepDown, Until};
use crate::observe::snapshot::Snapshot;
use crate::plan::{Action, plan};
use crate::status;

/// A leader without a response of the cloud for this number of lease durations steps down: a minute with the defaults, in which
/// Kubernetes reports a stopped Node as NotReady.
const LEASES_UNTIL_STEP_DOWN: u32 = 4;

/// Parses the command line and runs it.
#[must_use]
pub fn run() -> ExitCode {
    command::main(common::program!(), |args: Args| {
        let (config, token) = prepare(&args)?;
        let plan = args.plan;
        let work = match (&args.command, plan.dry_run) {
            (Some(Command::Status), _) => show(config, token, status::render),
            (_, true) => show(config, token, move |_, _, planned| plan.output.plan(planned)),
            (Some(Command::Cleanup { timeout }), false) => {
                let until = Until::Clean(*timeout);
                Work::run_to_end(async move |runtime| reconcile(runtime, config, token, until, None).await)
            }
            (None, false) => {
                let until = if args.own.once { Until::OneReconciliation } else { Until::Stopped };
                let elected = args.runtime.leader.leader_elect && until == Until::Stopped;
                let step_down = elected.then(|| step_down(&args.runtime.leader));
                Work::run(async move |runtime| reconcile(runtime, config, token, until, step_down).await)
            }
        };
        Ok((args.runtime, work))
    })
}

/// Reads everything that can be wrong before anything is touched.
fn prepare(args: &Args) -> anyhow::Result<(Config, Token)> {
    if args.command.is_some() && args.own.once {
        anyhow::bail!("--once is for natgw without a command: status and cleanup end by themselves");
    }
    args.plan.check()?;
    let mut config = Config::load(&args.own.config)?;
    if matches!(args.command, Some(Command::Cleanup { .. })) {
        config.mode = Mode::Cleanup;
    }
    let token = match &args.own.hcloud_token_file {
        Some(file) => Token::from_file(file)?,
        None => Token::from_env("HCLOUD_TOKEN").context("no --hcloud-token-file is given")?,
    };
    Ok((config, token))
}

fn connect(runtime: &Runtime, config: &mut Config, token: Token) -> anyhow::Result<Hcloud> {
    config.namespace.clone_from(&runtime.namespace);
    let agent = runtime.program.user_agent();
    Hcloud::new(&config.hetzner.endpoint, token, &agent, runtime.metrics.registry())
        .map_err(|error| ConfigError(format!("hetzner.endpoint: {error}")).into())
}

async fn reconcile(
    runtime: Runtime,
    mut config: Config,
    token: Token,
    until: Until,
    step_down: Option<StepDown>,
) -> anyhow::Result<()> {
    let hcloud = connect(&runtime, &mut config, token)?;
    controller::run(runtime, config, hcloud, until, step_down).await
}

fn step_down(leader: &LeaderArgs) -> StepDown {
    StepDown {
        after: leader.leader_elect_lease_duration.saturating_mul(LEASES_UNTIL_STEP_DOWN),
        pause: takeover_time(leader),
    }
}

/// In this time every standby has read the Lease, and one of them has acquired it if it was released.
fn takeover_time(leader: &LeaderArgs) -> Duration {
    leader.leader_elect_retry_period.mul_f64(2.0 + JITTER_FACTOR) + Duration::from_secs(1)
}

/// Observes once and prints what `render` makes of it.
fn show(
    mut config: Config,
    token: Token,
    render: impl FnOnce(&Config, &Snapshot, &Plan<Action>) -> String + 'static,
) -> Work {
    Work::command(async move |runtime| {
        let hcloud = connect(&runtime, &mut config, token)?;
        let snapshot = controller::observe_once(&runtime.client, &config, hcloud).await?;
        command::print(&render(&config, &snapshot, &plan(&config, &snapshot, Timestamp::now())));
        Ok(())
    })
}
