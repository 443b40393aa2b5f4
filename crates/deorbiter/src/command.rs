//! What the command line asks for, carried out.

use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};
use common::api::deorbit::{DeorbitSpec, DeorbitStatus, Phase};
use common::cloud::openstack::{self, Cloud, Credentials};
use common::runtime::{self, ConfigError, Runtime};
use jiff::Timestamp;
use serde_json::json;

use crate::args::{Args, Output, OwnArgs};
use crate::controller;
use crate::observe::snapshot::{Run, Snapshot};
use crate::observe::{cloud, target};
use crate::plan::preview;
use crate::settings::Settings;
use crate::{routes, trigger};

/// Parses the command line and does what it says.
#[must_use]
pub fn run() -> ExitCode {
    let command_line = Args::command();
    let matches = command_line.clone().get_matches();
    let flags = common::args::in_force(&command_line, &matches);
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let program = common::program!();
    let settings = Settings {
        drivers: args.own.cinder_driver.clone(),
        load_balancer_classes: args.own.load_balancer_class.clone(),
    };
    if !args.own.dry_run {
        let max_concurrent = usize::from(args.own.max_concurrent_reconciles);
        return runtime::run(program, args.runtime, flags, async move |runtime| {
            let triggers = trigger::run(runtime.clone(), &args.hook);
            tokio::try_join!(controller::run(runtime, settings, max_concurrent), triggers).map(|_| ())
        });
    }
    let spec = match spec(&args.own) {
        Ok(spec) => spec,
        Err(error) => return runtime::refuse(&program, &error),
    };
    runtime::command(program, args.runtime, async move |runtime| {
        let text = show(&runtime, &settings, &args.own, spec).await?;
        // A closed pipe (`| head`) is the reader's choice, no failure.
        let _ = std::io::stdout().write_all(text.as_bytes());
        Ok(())
    })
}

fn spec(own: &OwnArgs) -> anyhow::Result<DeorbitSpec> {
    match &own.spec {
        Some(file) => Ok(common::config::load(file)?),
        None => Ok(serde_json::from_value(json!({"inCluster": true}))?),
    }
}

/// What a run would do, by the same rules.
async fn show(
    runtime: &Runtime,
    settings: &Settings,
    own: &OwnArgs,
    spec: DeorbitSpec,
) -> anyhow::Result<String> {
    let mut run = Run {
        namespace: runtime.namespace.clone(),
        name: "dry-run".to_owned(),
        uid: "dry-run".to_owned(),
        generation: None,
        deleting: false,
        held: true,
        protected: false,
        spec,
        // The phase that lists a whole project, if the spec asks for that.
        status: DeorbitStatus { phase: Phase::Sweep, ..DeorbitStatus::default() },
        records: Vec::new(),
    };
    let cluster = target::read(&runtime.client, settings, &run.uid, false).await?;
    let seen = match &own.cloud {
        None => None,
        Some(name) => {
            let credentials =
                Credentials::find(Some(name)).map_err(|error| ConfigError(error.to_string()))?;
            let metrics = openstack::Metrics::register(runtime.metrics.registry())?;
            let project = Cloud::new(&credentials, &runtime.program.user_agent(), &metrics)?;
            let mut seen = cloud::read(&project, &run, Some(&cluster)).await?;
            if let Some(asked) = &run.spec.resources.routes {
                routes::add_to(&project, asked, &mut seen).await;
            }
            Some(Ok(seen))
        }
    };
    run.status = DeorbitStatus::default();
    let snapshot = Snapshot { run, cluster: Ok(cluster), cloud: seen, failures: Default::default() };
    let plan = preview::preview(settings, &snapshot, Timestamp::now());
    Ok(match own.output {
        Output::Text => plan.to_string(),
        Output::Json => format!("{:#}\n", plan.to_json()),
    })
}
