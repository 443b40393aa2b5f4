//! Start-up and shutdown of a process, in one place.
//!
//! ```text
//!   start      args -> telemetry -> cluster -> admin server -> leader election -> controller
//!   shutdown   controller finishes its reconciliation -> lease is released, last Events are sent -> last traces are sent -> exit
//! ```
//!
//! | exit code | |
//! |---|---|
//! | 0 | the controller returned `Ok`: by itself, or after a signal |
//! | 1 | it failed, the lease was lost, or it did not end within the graceful shutdown timeout |
//! | 2 | bad flags or configuration; nothing was touched |
//!
//! A process has one thread, since a controller mostly waits. The controller must not block it.

use std::{collections::BTreeMap, fmt, future::Future, pin::Pin, process::ExitCode, time::Duration};

use anyhow::Context;
use kube::{Api, Client};
use tokio_util::sync::CancellationToken;

pub use crate::{admin::Status, config::ConfigError};
use crate::{
    admin::{self, Admin},
    args::{BindAddress, LeaderArgs, LogArgs, Program, RuntimeArgs},
    cache,
    cluster::{self, Clients, Cluster, ClusterArgs, ClusterName, error_chain},
    config,
    events::Events,
    leader::{self, Ended, Leadership},
    metrics::{Metrics, Reconciliation},
    readiness::Readiness,
    server, shutdown,
    telemetry::Telemetry,
};

/// How long a command such as `status` may take to end after the first signal: a person waits for it.
const COMMAND_SHUTDOWN: Duration = Duration::from_secs(5);

/// How long the release of the lease may take. It is one read and one write; without it the next leader only waits 15 s.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the last Events may take, beside the release: both have to fit between the graceful shutdown timeout of 25 s and the
/// kubelet's grace period of 30 s, with the last traces.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(2);

/// The parts of the process that a controller uses: client, metrics, Events, leadership and others.
#[derive(Clone)]
pub struct Runtime {
    /// Name and version of the program.
    pub program: Program,
    /// The cluster.
    pub client: Client,
    /// `--namespace`, else our own.
    pub namespace: String,
    /// The metrics of the process, with the registry for a controller's own metrics.
    pub metrics: Metrics,
    /// The checks of `/readyz`. A controller must add at least one: without any, `/readyz` always fails.
    pub readiness: Readiness,
    /// Log lines and Events of acts.
    pub events: Events,
    /// Asked before each write.
    pub leadership: Leadership,
    /// Cancelled when the controller has to finish its reconciliation and return.
    pub shutdown: CancellationToken,
    /// For `/statusz`, and the heartbeat for `/livez`.
    pub status: Status,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("program", &self.program)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// A process that acts at once, as without an election, until `shutdown` is cancelled; [`run`] adds the election. `pod` is the reporting
    /// instance of its Events.
    pub fn new(program: Program, client: Client, namespace: String, metrics: Metrics, pod: String) -> Self {
        Runtime {
            events: Events::new(client.clone(), &metrics, program.name, pod),
            readiness: Readiness::default(),
            leadership: Leadership::always(),
            shutdown: CancellationToken::new(),
            status: Status::default(),
            program,
            client,
            namespace,
            metrics,
        }
    }

    /// Waits until this process leads. False: the end was asked for first.
    ///
    /// Caches are started before, so that a standby is ready and takes over at once.
    pub async fn leading(&self) -> bool {
        let led = tokio::select! {
            biased;
            () = self.shutdown.cancelled() => false,
            led = self.leadership.acquired() => led,
        };
        // The time as a standby does not count as being stuck.
        self.status.leading();
        led
    }

    /// Begins a reconciliation of one controller of this process: its heartbeat for `/livez`, and its reconcile metrics. See
    /// [`Status::heartbeat`] for how often a leader has to do so.
    pub fn reconciliation(&self, controller: &'static str) -> Reconciliation {
        self.status.heartbeat(controller);
        self.metrics.reconciliation(controller)
    }

    /// Connects a further cluster; see [`Cluster`]. None: the end was asked for first. A certificate may have to be issued for it, which
    /// can take longer than the kubelet's grace period.
    ///
    /// # Errors
    /// [`ConfigError`] where its kubeconfig cannot be used; another error where the Secret of its kubeconfig cannot be read at
    /// present.
    pub async fn cluster<N: ClusterName>(&self, args: &ClusterArgs<N>) -> anyhow::Result<Option<Cluster<N>>> {
        let Runtime { program, metrics, readiness, client, namespace, .. } = self;
        let connect = Cluster::connect(args, program, metrics, readiness, client, namespace);
        self.shutdown.run_until_cancelled(connect).await.transpose()
    }

    /// A cache with the metrics and a readiness check of this process; see [`cache::Builder`].
    pub fn cache<K: cache::Cacheable>(&self, api: Api<K>) -> cache::Builder<K> {
        cache::Builder::new(api, &(), &self.metrics).readiness(&self.readiness)
    }
}

/// Runs a controller until it returns, is asked to end, or loses its lease; `flags` are shown on `/flagz`.
///
/// The controller is started at once and awaits [`Runtime::leading`] before it acts. When the lease is lost its future is
/// dropped where it stands: what it was doing may already be done by its successor.
pub fn run<F, Fut>(
    program: Program,
    args: RuntimeArgs,
    flags: BTreeMap<String, String>,
    controller: F,
) -> ExitCode
where
    F: FnOnce(Runtime) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    process(program, &args.log.clone(), async |telemetry| {
        let shutdown = shutdown::on_signals().context("signal handlers")?;
        let metrics = Metrics::new(program.name).context("metrics")?;
        let connect = cluster::connect(&args.client, &program, &metrics);
        let Some(connected) = shutdown.run_until_cancelled(connect).await else { return Ok(()) };
        let Clients { client, lease, default_namespace } = connected?;
        let namespace = args.client.own_namespace(default_namespace);

        let release = CancellationToken::new();
        let (leadership, election) = elect(&args.leader, &program, &namespace, lease, &metrics, &release)?;
        let mut runtime = Runtime::new(program, client, namespace, metrics, instance(&program));
        runtime.leadership = leadership;
        runtime.shutdown = shutdown.clone();
        let admin = Admin {
            program,
            flags,
            readiness: runtime.readiness.clone(),
            metrics: runtime.metrics.clone(),
            status: runtime.status.clone(),
            leadership: runtime.leadership.clone(),
            log_level: telemetry.level(),
        };
        if let BindAddress(Some(address)) = args.admin.admin_address {
            let server = server::Builder::new("admin", admin::LIMITS).bind(address).await;
            tokio::spawn(admin.serve(server.with_context(|| format!("admin server on {address}"))?));
        }

        tracing::info!(version = program.version, revision = program.revision, "started");
        let (events, timeout) = (runtime.events.clone(), args.graceful_shutdown_timeout);
        let process = Process { release, shutdown, events, timeout };
        process.supervise(controller(runtime), election).await
    })
}

/// Runs a command that stands beside the controller (`status`, `--dry-run`): client, logs, traces and Events, but no admin
/// server and no lease. It acts without leading, so its writes must be right for any leader.
pub fn command<F, Fut>(program: Program, args: RuntimeArgs, work: F) -> ExitCode
where
    F: FnOnce(Runtime) -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    process(program, &args.log, async |_| {
        let shutdown = shutdown::on_signals().context("signal handlers")?;
        let metrics = Metrics::new(program.name).context("metrics")?;
        let connect = cluster::connect(&args.client, &program, &metrics);
        let connected = shutdown.run_until_cancelled(connect).await;
        let Clients { client, default_namespace, .. } =
            connected.context("a signal ended the command before it was connected to the cluster")??;
        let namespace = args.client.own_namespace(default_namespace);
        let mut runtime = Runtime::new(program, client, namespace, metrics, instance(&program));
        runtime.shutdown = shutdown.clone();
        let release = CancellationToken::new();
        let election = without_election(&release);
        let process =
            Process { release, shutdown, events: runtime.events.clone(), timeout: COMMAND_SHUTDOWN };
        process.supervise(work(runtime), election).await
    })
}

/// Says why nothing was begun, in one line on stderr, and gives exit code 2. For what a `main` finds out before [`run`].
pub fn refuse(program: &Program, why: &dyn fmt::Display) -> ExitCode {
    eprintln!("{}: {}", program.name, format!("{why:#}").replace('\n', " "));
    ExitCode::from(2)
}

/// Telemetry around `work`, and its result as an exit code.
fn process(
    program: Program,
    log: &LogArgs,
    work: impl AsyncFnOnce(&Telemetry) -> anyhow::Result<()>,
) -> ExitCode {
    let tokio = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(tokio) => tokio,
        Err(error) => {
            eprintln!("{}: cannot start: {error}", program.name);
            return ExitCode::FAILURE;
        }
    };
    let code = tokio.block_on(async {
        let telemetry = match Telemetry::start(&program, log) {
            Ok(telemetry) => telemetry,
            Err(error) => return verdict(&program, Err(error)),
        };
        let code = verdict(&program, work(&telemetry).await);
        telemetry.end().await;
        code
    });
    // A name lookup that hangs must not hold up the exit.
    tokio.shutdown_background();
    code
}

fn verdict(program: &Program, result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => {
            tracing::debug!("ended");
            ExitCode::SUCCESS
        }
        Err(error) if error.chain().any(|cause| cause.is::<ConfigError>() || cause.is::<config::Error>()) => {
            refuse(program, &error_chain(&*error))
        }
        Err(error) => {
            tracing::error!(error = error_chain(&*error), "exiting");
            ExitCode::FAILURE
        }
    }
}

type Election = Pin<Box<dyn Future<Output = Ended>>>;

/// Leads from the start; ends when it is released.
fn without_election(release: &CancellationToken) -> Election {
    let release = release.clone();
    Box::pin(async move {
        release.cancelled().await;
        Ended::Stopped
    })
}

fn elect(
    args: &LeaderArgs,
    program: &Program,
    namespace: &str,
    client: Client,
    metrics: &Metrics,
    release: &CancellationToken,
) -> anyhow::Result<(Leadership, Election)> {
    if !args.leader_elect {
        return Ok((Leadership::always(), without_election(release)));
    }
    // What a template has left empty is not given.
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let settings = leader::Settings {
        lease_duration: args.leader_elect_lease_duration,
        renew_deadline: args.leader_elect_renew_deadline,
        retry_period: args.leader_elect_retry_period,
        namespace: given(&args.leader_elect_resource_namespace).unwrap_or_else(|| namespace.to_owned()),
        name: given(&args.leader_elect_resource_name).unwrap_or_else(|| program.name.to_owned()),
        identity: leader::identity(&instance(program)),
    };
    let gauge = metrics.leading(&settings.name);
    let (leadership, election) =
        leader::run(client, settings, release.clone(), move |leads| gauge.set(i64::from(leads)))
            .map_err(|problem| ConfigError(format!("--leader-elect-*: {problem}")))?;
    Ok((leadership, Box::pin(election)))
}

/// The parts of a process that its shutdown needs.
struct Process {
    /// Ends the election: the lease is released.
    release: CancellationToken,
    shutdown: CancellationToken,
    events: Events,
    /// For the controller, after the first signal.
    timeout: Duration,
}

impl Process {
    /// Runs the controller beside the election until one of them ends or the shutdown takes too long.
    async fn supervise(
        &self,
        controller: impl Future<Output = anyhow::Result<()>>,
        mut election: Election,
    ) -> anyhow::Result<()> {
        let mut controller = Box::pin(controller);
        let overdue = async {
            self.shutdown.cancelled().await;
            tokio::time::sleep(self.timeout).await;
        };
        let result = tokio::select! {
            biased;
            ended = &mut election => {
                drop(controller);
                Err(match ended {
                    Ended::Lost => anyhow::anyhow!("the lease was lost; exiting so that two replicas never act at once"),
                    Ended::Stopped => anyhow::anyhow!("the leader election ended by itself"),
                })
            }
            result = &mut controller => {
                self.shutdown.cancel();
                self.release.cancel();
                let (released, ()) = tokio::join!(
                    tokio::time::timeout(RELEASE_TIMEOUT, election),
                    self.events.drain(EVENTS_TIMEOUT),
                );
                if released.is_err() {
                    tracing::warn!("the lease could not be released; it expires by itself");
                }
                return result;
            }
            () = overdue => {
                // Not released: a write may still be in flight, and a successor that waits for the lease to expire comes after it.
                drop(controller);
                Err(anyhow::anyhow!("did not end within the graceful shutdown timeout of {:?}", self.timeout))
            }
        };
        self.events.drain(EVENTS_TIMEOUT).await;
        result
    }
}

/// The name of this replica: `POD_NAME`, else the host name (by default the Pod's name), else the program's name.
fn instance(program: &Program) -> String {
    let host = || std::fs::read_to_string("/proc/sys/kernel/hostname").ok();
    std::env::var("POD_NAME")
        .ok()
        .or_else(host)
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| program.name.to_owned())
}
