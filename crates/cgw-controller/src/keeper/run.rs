//! The process `cgw keeper`: its tasks, and their order at start and end.
//!
//! ```text
//!   start   lock → earlier keepalived and its addresses removed → configuration checked → heartbeat, record → keepalived
//!   run     keepalived ─ FIFO ─▶ vrrp ┐
//!           node ──── netlink ─▶ node ┴▶ notifications, status server, registration
//!   end     keepalived (SIGTERM: priority-0 advert) → addresses removed → record removed → entry of the store removed
//! ```

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use common::runtime::{ConfigError, Runtime};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::args::KeeperArgs;
use super::config::Router;
use super::keepalived_conf;
use super::metrics::KeeperMetrics;
use super::node::{Node, Observed};
use super::notify::{self, Controller};
use super::process::Process;
use super::register::Registration;
use super::report::Reporter;
use super::run_dir::{Heartbeats, Record, RunDir};
use super::status::{self, Source};
use super::supervise::Supervisor;
use super::sys;
use super::vrrp::Vrrp;
use crate::api::http::VrrpState;
use crate::monitor::Notifications;

/// Between two heartbeats: a tenth of the guard's default timeout.
const HEARTBEAT: Duration = Duration::from_millis(100);

/// Between two reads of the configuration. The kubelet needs up to a minute to project a changed ConfigMap.
const CONFIGURATION: Duration = Duration::from_secs(2);

/// Between two listings of the node's addresses, if no notification comes.
const LISTING: Duration = Duration::from_secs(10);

/// The same without notifications.
const POLL: Duration = Duration::from_millis(500);

/// Everything that the command line and the files determine.
#[derive(Debug)]
pub struct Setup {
    args: KeeperArgs,
    router: Router,
    controller: Controller,
    program: PathBuf,
}

impl Setup {
    /// Reads and checks the configuration. Nothing is touched.
    ///
    /// # Errors
    /// One line that names the flag or the file, and what is allowed.
    pub fn new(args: KeeperArgs) -> anyhow::Result<Setup> {
        let router = Router::load(&args.config, &args.node_name, args.node_ip)?;
        let program = std::env::current_exe().context("finding this program")?;
        for (name, path) in
            [("--run-dir", &args.run_dir), ("--keepalived", &args.keepalived), ("this program", &program)]
        {
            if !keepalived_conf::is_plain(path) {
                let path = path.display();
                let why = "an absolute path of letters, digits and \"/._-+\" is needed";
                return Err(ConfigError(format!("{name} {path}: {why}")).into());
            }
        }
        if args.hosts_service.is_empty() {
            return Err(ConfigError("--hosts-service: a name is needed".to_owned()).into());
        }
        let controller =
            Controller::new(&args.controller_url, args.controller_ca.clone(), args.token_file.clone())?;
        Ok(Setup { args, router, controller, program })
    }

    /// The text of keepalived.conf.
    #[must_use]
    pub fn render(&self) -> String {
        keepalived_conf::render(&self.router, &self.program, &RunDir::new(self.args.run_dir.clone()))
    }
}

/// Runs the keeper until it has to end.
///
/// # Errors
/// Something that a keeper cannot do without: the run folder, netlink, a configuration that keepalived takes.
pub async fn run(runtime: Runtime, setup: Setup) -> anyhow::Result<()> {
    let Setup { args, router, controller, program } = setup;
    let readiness = &runtime.readiness;
    let [keepalived_ready, registered_ready, status_ready, configuration] =
        ["keepalived", "registration", "status-server", "configuration"].map(|name| readiness.check(name));
    let reporter = Reporter {
        node: router.node.clone(),
        vrid: router.vrid,
        events: runtime.events.clone(),
        metrics: KeeperMetrics::new(runtime.metrics.registry()).context("registering metrics")?,
        status: runtime.status.clone(),
        configuration,
        outdated: Arc::default(),
    };
    let run_dir = RunDir::new(args.run_dir);
    let _lock = run_dir.lock().with_context(|| format!("locking {}", run_dir.path().display()))?;
    let keeper = Process::current().context("reading /proc/self/stat")?;
    let mut node = Node::open()?;
    let vrid = router.vrid;
    let status_port = router.status_port;
    let record = Record::new(keeper, &router);
    let observed = node.observe(&router)?;
    let router = Arc::new(router);
    let (router_sender, router) = watch::channel(router);
    let (vrrp_sender, vrrp) = watch::channel(Vrrp::now(VrrpState::Init));
    let (observed_sender, observed) = watch::channel(observed);
    let mut supervisor = Supervisor {
        keepalived: args.keepalived,
        program,
        run_dir: run_dir.clone(),
        router: router.clone(),
        vrrp: vrrp_sender,
        node: Node::open()?,
        record,
        accepted: Vec::new(),
        refused: None,
        reporter: reporter.clone(),
        readiness: keepalived_ready,
    };
    let earlier = run_dir.record().unwrap_or_else(|error| {
        tracing::warn!("the record of an earlier keeper cannot be read: {error}");
        None
    });
    supervisor.take_over(earlier.as_ref());
    let heartbeats = run_dir.heartbeats(sys::monotonic()).context("writing the heartbeat")?;
    supervisor.configure().await.map_err(|error| ConfigError(format!("{error:#}")))?;
    reporter.applied_configuration(None);

    let boot = std::fs::read_to_string("/proc/sys/kernel/random/uuid").context("reading a random number")?;
    let services: Api<Service> = Api::namespaced(runtime.client.clone(), &runtime.namespace);
    let boot = boot.trim().to_owned();
    let mut registration =
        Registration { services, store: args.hosts_service, boot, written: BTreeSet::new() };
    let source = Source { vrid, vrrp: vrrp.clone(), observed: observed.clone() };
    {
        let background = async {
            tokio::join!(
                send_heartbeats(&heartbeats, &runtime),
                observe(node, router.clone(), observed_sender, reporter.clone()),
                notify::run(controller, vrrp.clone(), observed.clone(), reporter.clone()),
                report(vrrp.clone(), reporter.clone()),
                status::serve(source, status_port, status_ready),
                registration.run(router.clone(), observed.clone(), registered_ready, reporter.clone()),
                follow_configuration(&args.config, &router_sender, &reporter),
            )
        };
        tokio::select! {
            () = supervisor.run(&runtime.shutdown) => {}
            _ = background => {}
        }
    }
    run_dir.clear().context("removing the record for the guard")?;
    registration.remove().await;
    Ok(())
}

async fn send_heartbeats(heartbeats: &Heartbeats, runtime: &Runtime) {
    let mut ticks = interval(HEARTBEAT);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        runtime.status.heartbeat("keeper");
        if let Err(error) = heartbeats.write(sys::monotonic()) {
            tracing::error!("writing the heartbeat failed: {error}");
        }
    }
}

/// Follows the node's addresses and interfaces.
async fn observe(
    mut node: Node,
    mut router: watch::Receiver<Arc<Router>>,
    observed: watch::Sender<Observed>,
    reporter: Reporter,
) {
    let mut notifications = Notifications::open()
        .inspect_err(|error| {
            tracing::warn!(
                "the node is polled each {POLL:?}, since notifications cannot be received: {error:#}"
            );
        })
        .ok();
    reporter.observed(None, &observed.borrow());
    loop {
        let current = Arc::clone(&router.borrow_and_update());
        match node.observe(&current) {
            Ok(now) => {
                let before = observed.borrow().clone();
                if before != now {
                    reporter.observed(Some(&before), &now);
                    observed.send_replace(now);
                }
            }
            Err(error) => tracing::error!("observing the node failed: {error}"),
        }
        let changed = async {
            let Some(notifications) = &mut notifications else { return sleep(POLL).await };
            // The state is listed whatever has changed.
            if let Err(error) = notifications.next().await {
                tracing::warn!("{error:#}");
                sleep(POLL).await;
            }
        };
        tokio::select! {
            () = changed => {}
            () = sleep(LISTING) => {}
            changed = router.changed() => if changed.is_err() { return },
        }
    }
}

/// Events and metrics of state changes.
async fn report(mut vrrp: watch::Receiver<Vrrp>, reporter: Reporter) {
    let mut before = vrrp.borrow_and_update().state;
    while vrrp.changed().await.is_ok() {
        let now = *vrrp.borrow_and_update();
        reporter.entered(before, now);
        before = now.state;
    }
}

/// Applies a changed file.
async fn follow_configuration(path: &Path, router: &watch::Sender<Arc<Router>>, reporter: &Reporter) {
    loop {
        sleep(CONFIGURATION).await;
        read_configuration(path, router, reporter);
    }
}

/// Reads the file, and changes the configuration to it, if the process can do so without a restart.
pub(super) fn read_configuration(path: &Path, router: &watch::Sender<Arc<Router>>, reporter: &Reporter) {
    let current = Arc::clone(&router.borrow());
    let next = match Router::load(path, &current.node, current.node_ip) {
        Ok(next) => current.can_become(&next).map(|()| next),
        Err(error) => Err(error.to_string()),
    };
    match next {
        Ok(next) => {
            reporter.read_configuration(None);
            router.send_if_modified(|router| {
                let changed = **router != next;
                *router = Arc::new(next);
                changed
            });
        }
        Err(problem) => reporter.read_configuration(Some(problem)),
    }
}
