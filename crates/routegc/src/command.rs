//! Executes the command line.

use std::collections::BTreeMap;
use std::process::ExitCode;

use common::api::routegc::RouteGC;
use common::cluster::error_chain;
use common::command::{self, Output, Work};
use common::controller::Reconciler as _;
use common::runtime::Runtime;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::args::Args;
use crate::config::Config;
use crate::conflict::conflicts;
use crate::source::PolicySource;
use crate::{controller, show};

/// Parses the command line and runs the controller or the command.
#[must_use]
pub fn run() -> ExitCode {
    command::main(common::program!(), |args: Args| {
        args.plan.check()?;
        let config = Config::new(&args.single)?;
        let (plan, once) = (args.plan, args.own.once);
        let work = if plan.dry_run {
            Work::command(async move |runtime| dry_run(&runtime, config, plan.output).await)
        } else {
            Work::run(async move |runtime| controller::run(runtime, config, once).await)
        };
        Ok((args.runtime, work))
    })
}

/// Prints the plan of each policy. It reads with the code and permissions of a reconciliation, and writes nothing.
async fn dry_run(runtime: &Runtime, config: Config, output: Output) -> anyhow::Result<()> {
    let (sources, conflicts) = match &config {
        Config::Single(_) => (vec![PolicySource::Flags], BTreeMap::new()),
        Config::Objects => {
            let api = Api::<RouteGC>::namespaced(runtime.client.clone(), &runtime.namespace);
            let list = api.list(&ListParams::default()).await;
            let list = list.map_err(|error| {
                let namespace = &runtime.namespace;
                anyhow::anyhow!("cannot list the RouteGCs of namespace {namespace}: {}", error_chain(&error))
            })?;
            let name = |object: &RouteGC| PolicySource::Object(object.name_any());
            (list.items.iter().map(name).collect(), conflicts(&list.items))
        }
    };
    let reconciler = controller::reconciler(runtime, config)?;
    let (mut text, mut all, mut failed) = (String::new(), Vec::new(), Vec::new());
    for source in &sources {
        let mut document = reconciler.load(source).await?;
        let (name, mode) = (document.regarding.to_string(), document.spec.mode);
        let observed = match conflicts.get(source) {
            Some(conflict) => Err(crate::error::Error::Conflict(conflict.clone())),
            None => reconciler.observe(source, &mut reconciler.memo(source), &mut document).await,
        };
        let router = document.router.as_deref();
        match observed {
            Ok(observed) => {
                let router = router.unwrap_or_default();
                text.push_str(&show::text(&name, router, mode, &observed.decision, &observed.plan));
                all.push(show::json(&name, router, mode, &observed.decision, &observed.plan));
            }
            Err(error) => {
                let of = router.map_or_else(String::new, |router| format!("router {router}: "));
                text.push_str(&format!("{name}: {of}{error} ({})\n", error.code()));
                all.push(json!({ "policy": name, "router": router, "reason": error.code(), "error": error.to_string() }));
                failed.push(name);
            }
        }
        text.push('\n');
    }
    if sources.is_empty() {
        text = format!("no RouteGC in namespace {}\n", runtime.namespace);
    }
    let printed = match output {
        Output::Text => text,
        Output::Json => format!("{:#}\n", json!({ "policies": all })),
    };
    command::print(&printed);
    if failed.is_empty() {
        Ok(())
    } else {
        anyhow::bail!("nothing could be decided for {}", failed.join(", "))
    }
}
