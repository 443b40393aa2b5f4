//! The datapath of a node: how the packets of bound pods leave, and how packets to a VIP reach a pod.
//!
//! ```text
//!   Services, Pods, Nodes, store binds ── observe ── plan ── Datapath ── driver (vxlan or ovs) ── kernel, Open vSwitch
//! ```
//!
//! * [`observe`], [`snapshot`]: caches become a [`snapshot::Snapshot`].
//! * [`mod@plan`]: rules: `nodes` → `bindings` → `pods` → `ports`. [`trace`] explains them for one pod.
//! * [`datapath`]: the desired datapath, without anything of a driver.
//! * [`driver`]: what a driver promises. [`cni`] detects CNI plugins that it cannot work beside.
//! * [`vxlan`]: the driver for any cluster with an ordinary CNI. [`ovs`]: the driver for openshift-sdn.
//! * [`reconcile`], [`trigger`], [`addresses`]: when the agent reconciles. [`metrics`], [`render`]: its output.
//! * [`args`], [`prepare`], [`uninstall`]: command line and start.

pub mod addresses;
pub mod args;
pub mod cni;
pub mod datapath;
pub mod driver;
pub mod metrics;
pub mod observe;
pub mod ovs;
pub mod plan;
pub mod reconcile;
pub mod render;
pub mod snapshot;
pub mod trace;
pub mod trigger;
pub mod vxlan;

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::Context as _;
use common::{
    args::RuntimeArgs,
    command::{self, Output, Work},
    plan::Problem,
    runtime::{self, ConfigError, Runtime},
};

use self::{
    args::{Args, DriverName},
    driver::Driver,
    observe::Observer,
    ovs::Ovs,
    plan::{Decision, problem::node_regarding},
    reconcile::{Reconciler, Reports},
    trigger::Trigger,
    vxlan::Vxlan,
};

/// How long a command waits for the lists. An API server that streams lists needs a second for 100,000 objects; one that does not is
/// detected after 30 s.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

/// Checks the command line and returns the work of the role.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    args.check()?;
    let runtime_args = args.process.clone().into_runtime();
    let work = if args.plan.dry_run {
        Work::command(async move |runtime| dry_run(runtime, args).await)
    } else {
        Work::run(async move |runtime| run(runtime, args).await)
    };
    Ok((runtime_args, work))
}

/// Removes everything that the driver has programmed on this node. It needs no API server, so it has no runtime.
#[must_use]
pub fn uninstall(args: &Args) -> ExitCode {
    if let Err(error) = args.check() {
        return runtime::refuse(&common::program!(), &error);
    }
    match open(args).and_then(|mut driver| driver.uninstall()) {
        Ok(changes) => {
            changes.iter().for_each(|change| command::print(&format!("{change}\n")));
            command::print(&format!("{} changes\n", changes.len()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}: uninstalling: {error}", common::program!().name);
            ExitCode::FAILURE
        }
    }
}

/// Opens the driver that the command line names. It reads and writes nothing yet.
fn open(args: &Args) -> Result<Box<dyn Driver>, driver::Error> {
    Ok(match args.own.driver {
        DriverName::Vxlan => Box::new(Vxlan::new(args.vxlan.config())?),
        DriverName::Ovs => Box::new(Ovs::new(args.ovs.config())),
    })
}

async fn run(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    let (config, node) = (args.config(&runtime.namespace), args.own.node_name.clone().unwrap_or_default());
    if let Some(detected) = unsupported_cni(&args)? {
        let refusal = ConfigError(detected.to_string());
        let regarding = node_regarding(&node, Some(node.clone()));
        runtime.events.found(&[Problem { regarding, because: detected }]);
        return Err(refusal.into());
    }
    let trigger = Arc::new(Trigger::default());
    let fire = Arc::clone(&trigger);
    let observer = Observer::start(&runtime, &node, &config.store, move |urgency| fire.fire(urgency));
    let reports = Reports::new(&runtime).context("metrics")?;
    let resync_period = args.own.resync_period;
    let reconciler = Reconciler::new(config, Box::new(move || open(&args)), reports);
    tokio::select! {
        biased;
        () = runtime.shutdown.cancelled() => return Ok(()),
        () = observer.synced() => {}
    }
    let snapshot = || observer.snapshot(&node);
    tokio::select! {
        () = reconcile::run(reconciler, snapshot, &trigger, resync_period, &runtime) => Ok(()),
        never = addresses::watch(&trigger) => match never {},
    }
}

/// Prints the decision and the changes that the driver would make.
async fn dry_run(runtime: Runtime, args: Args) -> anyhow::Result<()> {
    let (config, node) = (args.config(&runtime.namespace), args.own.node_name.clone().unwrap_or_default());
    if let Some(detected) = unsupported_cni(&args)? {
        return Err(ConfigError(detected.to_string()).into());
    }
    let observer = Observer::start(&runtime, &node, &config.store, |_| {});
    observer.synced_within(LIST_TIMEOUT).await?;
    let decision = plan::plan(&config, &observer.snapshot(&node));
    let output = args.plan.output;
    let (decision, changes) = tokio::task::spawn_blocking(move || preview(&args, decision)).await??;
    command::print(&match output {
        Output::Text => render::text(&decision, &changes),
        Output::Json => format!("{:#}\n", render::json(&decision, &changes)),
    });
    Ok(())
}

fn preview(args: &Args, decision: Decision) -> Result<(Decision, Vec<driver::Change>), driver::Error> {
    let changes = match &decision.datapath {
        Some(datapath) => open(args)?.preview(datapath)?,
        None => Vec::new(),
    };
    Ok((decision, changes))
}

/// A CNI plugin that the driver cannot work beside.
fn unsupported_cni(args: &Args) -> anyhow::Result<Option<cni::Detected>> {
    match args.own.driver {
        DriverName::Vxlan => {
            cni::read(args.vxlan.cni_conf_dir.as_deref()).context("detecting the CNI plugin")
        }
        DriverName::Ovs => Ok(None),
    }
}
