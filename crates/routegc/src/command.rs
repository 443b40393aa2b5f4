//! What the command line asks for, carried out.

use std::process::ExitCode;

use common::api::routegc::RouteGC;
use common::cluster::error_chain;
use common::command::{self, Output, Work};
use common::runtime::Runtime;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::args::Args;
use crate::config::Config;
use crate::home::Home;
use crate::{controller, show};

/// Parses the command line and does what it says.
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

/// Prints what a pass of each policy would do now. Reads with the same code and the same rights as a pass, and writes nothing.
async fn dry_run(runtime: &Runtime, config: Config, output: Output) -> anyhow::Result<()> {
    let homes = match &config {
        Config::Single(_) => vec![Home::Flags],
        Config::Objects => {
            let api = Api::<RouteGC>::namespaced(runtime.client.clone(), &runtime.namespace);
            let list = api.list(&ListParams::default()).await;
            let list = list.map_err(|error| {
                let namespace = &runtime.namespace;
                anyhow::anyhow!("cannot list the RouteGCs of namespace {namespace}: {}", error_chain(&error))
            })?;
            list.items.iter().map(|object| Home::Object(object.name_any())).collect()
        }
    };
    let walker = controller::walker(runtime, config)?;
    let (mut text, mut all, mut failed) = (String::new(), Vec::new(), Vec::new());
    let conflicts = controller::conflicts_of(runtime, &homes).await?;
    for home in &homes {
        let document = walker.load(home).await?;
        let name = document.regarding.to_string();
        let (router, mode) = (&document.spec.router_id, document.spec.mode);
        let looked = match conflicts.get(home) {
            Some(conflict) => Err(crate::error::Error::Conflict(conflict.clone())),
            None => walker.look(home, &document).await,
        };
        match looked {
            Ok(looked) => {
                text.push_str(&show::text(&name, router, mode, &looked.decision, &looked.plan));
                all.push(show::json(&name, router, mode, &looked.decision, &looked.plan));
            }
            Err(error) => {
                text.push_str(&format!("{name}: router {router}: {error} ({})\n", error.code()));
                all.push(json!({ "policy": name, "router": router, "reason": error.code(), "error": error.to_string() }));
                failed.push(name);
            }
        }
        text.push('\n');
    }
    if homes.is_empty() {
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
