//! What the command line asks for, carried out.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _};
use common::args::LeaderArgs;
use common::cloud::hcloud::{Hcloud, Token};
use common::leader::settings::JITTER_FACTOR;
use common::runtime::{self, ConfigError, Runtime};
use jiff::Timestamp;

use crate::args::{Args, Command, Output};
use crate::config::{Config, Mode};
use crate::controller::{self, StepDown, Until};
use crate::{plan, status};

/// How many lease durations a leader may get no answer of the cloud's: a minute with the defaults, in which a Node that is dead
/// is known to be.
const LEASES_UNTIL_STEP_DOWN: u32 = 4;

/// Parses the command line and does what it says.
#[must_use]
pub fn run() -> ExitCode {
    let command_line = Args::command();
    let matches = command_line.clone().get_matches();
    let flags = common::args::in_force(&command_line, &matches);
    let mut args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    // Beside a natgw that is being scaled down, or on a workstation, the usual port may be taken; nobody scrapes it there.
    if args.command.is_some() && matches.value_source("admin_address") == Some(ValueSource::DefaultValue) {
        args.runtime.admin.admin_address = (Ipv4Addr::LOCALHOST, 0).into();
    }
    let program = common::program!();
    let (config, token) = match prepare(&args) {
        Ok(prepared) => prepared,
        Err(error) => return runtime::refuse(&program, &error),
    };
    match (&args.command, args.own.dry_run) {
        (Some(Command::Status), _) => command(args, config, token, show_status),
        (_, true) => command(args, config, token, show_plan),
        (Some(Command::Cleanup { timeout }), false) => {
            let until = Until::Clean(*timeout);
            keep(args, flags, config, token, until)
        }
        (None, false) => {
            let until = if args.own.once { Until::OneReconciliation } else { Until::Stopped };
            keep(args, flags, config, token, until)
        }
    }
}

/// Reads everything that can be wrong before anything is touched.
fn prepare(args: &Args) -> anyhow::Result<(Config, Token)> {
    if args.command.is_some() && args.own.once {
        anyhow::bail!("--once is for natgw without a command: status and cleanup end by themselves");
    }
    if args.own.output == Output::Json && !args.own.dry_run {
        anyhow::bail!("--output json is for --dry-run, which prints a plan");
    }
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

fn keep(
    args: Args,
    flags: BTreeMap<String, String>,
    mut config: Config,
    token: Token,
    until: Until,
) -> ExitCode {
    let program = common::program!();
    let leader = args.runtime.leader.clone();
    let elected = leader.leader_elect && until == Until::Stopped;
    let step_down = elected.then(|| StepDown {
        after: leader.leader_elect_lease_duration.saturating_mul(LEASES_UNTIL_STEP_DOWN),
        pause: takeover_time(&leader),
    });
    runtime::run(program, args.runtime, flags, async move |runtime| {
        let hcloud = connect(&runtime, &mut config, token)?;
        controller::run(runtime, config, hcloud, until, step_down).await
    })
}

/// In this time every standby has read the Lease, and one of them has acquired it if it was released.
fn takeover_time(leader: &LeaderArgs) -> Duration {
    leader.leader_elect_retry_period.mul_f64(2.0 + JITTER_FACTOR) + Duration::from_secs(1)
}

fn command(
    args: Args,
    mut config: Config,
    token: Token,
    show: fn(&Args, &Config, &crate::observe::snapshot::Snapshot) -> String,
) -> ExitCode {
    runtime::command(common::program!(), args.runtime.clone(), async move |runtime| {
        let hcloud = connect(&runtime, &mut config, token)?;
        let snapshot = controller::look(&runtime.client, &config, hcloud).await?;
        // A closed pipe (`| head`) is the reader's choice, no failure.
        let _ = std::io::stdout().write_all(show(&args, &config, &snapshot).as_bytes());
        Ok(())
    })
}

fn show_status(_: &Args, config: &Config, snapshot: &crate::observe::snapshot::Snapshot) -> String {
    status::render(config, snapshot, &plan::plan(config, snapshot, Timestamp::now()))
}

fn show_plan(args: &Args, config: &Config, snapshot: &crate::observe::snapshot::Snapshot) -> String {
    let plan = plan::plan(config, snapshot, Timestamp::now());
    match args.own.output {
        Output::Text => plan.to_string(),
        Output::Json => format!("{:#}\n", plan.to_json()),
    }
}
