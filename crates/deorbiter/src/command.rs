//! Runs what the command line selects: the controllers, or a dry run.

use std::process::ExitCode;

use common::api::deorbit::{ApplicationCredential, Deorbit, DeorbitSpec, Provider};
use common::cloud::openstack::{self, Cloud, Credentials};
use common::command::{self, Output, Work};
use common::runtime::{ConfigError, Runtime};
use jiff::Timestamp;
use serde_json::json;

use crate::args::{Args, OwnArgs};
use crate::controller;
use crate::observe::snapshot::{Cluster, Run, Snapshot};
use crate::observe::{cloud, target};
use crate::plan::preview;
use crate::record::Book;
use crate::{routes, trigger, unserved};

/// Parses the command line and runs the command.
#[must_use]
pub fn run() -> ExitCode {
    command::main(common::program!(), |args: Args| {
        args.plan.check()?;
        let watched = args.watched()?;
        let (own, hook, output) = (args.own, args.hook, args.plan.output);
        let work = if args.plan.dry_run {
            let spec = spec(&own)?;
            Work::command(async move |runtime| {
                command::print(&show(&runtime, &own, spec, output).await?);
                Ok(())
            })
        } else {
            let max_concurrent = usize::from(own.max_concurrent_reconciles);
            Work::run(async move |runtime| {
                let deorbits = controller::deorbits(&runtime, watched.as_deref());
                let triggers = async {
                    match &watched {
                        None => trigger::run(runtime.clone(), &hook, deorbits.clone()).await,
                        Some(namespace) => unserved::run(&runtime, namespace).await,
                    }
                };
                let runs = controller::run(runtime.clone(), own.settings, max_concurrent, deorbits.clone());
                tokio::try_join!(runs, triggers).map(|_| ())
            })
        };
        Ok((args.runtime, work))
    })
}

fn spec(own: &OwnArgs) -> anyhow::Result<DeorbitSpec> {
    match &own.spec {
        Some(file) => {
            let spec: DeorbitSpec = common::config::load(file)?;
            let reads_cloud = own.cloud.is_some() && spec.provider == Provider::Any;
            anyhow::ensure!(!reads_cloud, "--cloud: the spec has provider: Any, which reads no cloud");
            Ok(spec)
        }
        None => Ok(serde_json::from_value(json!({"inCluster": true}))?),
    }
}

/// Renders the actions that a run would take, by the same rules.
async fn show(runtime: &Runtime, own: &OwnArgs, spec: DeorbitSpec, output: Output) -> anyhow::Result<String> {
    let run = preview_of(runtime.namespace.clone(), spec);
    let cluster = match run.spec.cluster_gone {
        Some(_) => Cluster::gone(),
        None => target::read(&runtime.client, &own.settings, run.spec.provider, &run.uid, false).await?,
    };
    let seen = match &own.cloud {
        None => None,
        Some(name) => {
            let credentials =
                Credentials::find(Some(name)).map_err(|error| ConfigError(error.to_string()))?;
            let metrics = openstack::Metrics::register(runtime.metrics.registry())?;
            let project = Cloud::new(&credentials, &runtime.program.user_agent(), &metrics)?;
            let mut seen = cloud::read(&project, &with_this_login(&run), Some(&cluster)).await?;
            if let Some(asked) = &run.spec.resources.routes {
                seen.routes = Some(routes::read(&project, asked, Some(&cluster)).await);
            }
            // The run logs in with its Secret.
            seen.credential = None;
            Some(Ok(seen))
        }
    };
    let snapshot = Snapshot { run, cluster: Ok(cluster), cloud: seen, failures: Default::default() };
    let plan = preview::preview(&own.settings, &snapshot, Timestamp::now());
    Ok(output.plan(&plan))
}

/// A run with this spec that has not begun.
fn preview_of(namespace: String, spec: DeorbitSpec) -> Run {
    Run {
        namespace,
        uid: "dry-run".to_owned(),
        held: true,
        // The whole project is listed, if the spec asks for that.
        book: Book { discovering: spec.discover_by_cluster_name, ..Book::default() },
        ..Run::new(&Deorbit::new("dry-run", spec))
    }
}

/// The run for the login of the command line. It deletes no application credential, so that nothing depends on the kind of this login.
fn with_this_login(run: &Run) -> Run {
    let mut run = run.clone();
    if let Some(openstack) = &mut run.spec.openstack {
        openstack.application_credential = ApplicationCredential::Keep;
    }
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without one, nothing of the project would be read, and the preview would report another project.
    #[test]
    fn a_preview_of_a_run_that_deletes_its_application_credential_needs_none() {
        let openstack = json!({"identityRef": {"name": "c"}, "applicationCredential": "Delete"});
        let spec = json!({"inCluster": true, "openstack": openstack});
        let run = preview_of("team".to_owned(), serde_json::from_value(spec).unwrap());
        let with_password = crate::observe::snapshot::Cloud::default();
        assert!(run.verify_credential(with_password.clone()).is_err());
        assert!(with_this_login(&run).verify_credential(with_password).is_ok());
    }
}
