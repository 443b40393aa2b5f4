//! keepalived as a child process: start, reload, supervision, end.
//!
//! Whenever keepalived does not run, the node carries none of its addresses: they are removed before a start, after each end, and when
//! it makes no progress. A MASTER that is not scheduled for four advert intervals has lost the mastership to a peer already, so it
//! must not keep the VIPs.

mod program;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use common::backoff::Backoff;
use common::readiness::Check;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::act::Because;
use super::config::Router;
use super::keepalived_conf;
use super::node::Node;
use super::process::{self, Frozen, Process, Stat, Watchdog};
use super::report::Reporter;
use super::run_dir::{Record, RunDir};
use super::sys;
use super::vrrp::{self, Vrrp};
use crate::api::VipRange;
use crate::api::http::VrrpState;

/// Between two observations of keepalived's processes: a stopped one is detected within this time, for two reads of /proc.
const TICK: Duration = Duration::from_millis(100);

/// Adverts that a MASTER may miss. After three of them, a peer takes over.
const MISSED_ADVERTS: u32 = 4;

/// The shortest limit of a MASTER's silence: several ticks.
const LEAST_SILENCE: Duration = Duration::from_millis(500);

/// From the start of keepalived to the file with the ID of its VRRP process: tens of milliseconds on an idle machine.
const START: Duration = Duration::from_secs(10);

/// After SIGTERM keepalived sends a priority-0 advert, removes the addresses, and waits a second for its children.
const STOP: Duration = Duration::from_secs(3);

/// After a reload, until keepalived has certainly removed the addresses that the new configuration does not have: longer than the watchdog's
/// limits, so that it was scheduled in between.
const SETTLE: Duration = Duration::from_secs(30);

/// Until a changed configuration that was not used is checked again: the check also fails where it gets no memory or CPU time.
const RETRY: Duration = Duration::from_secs(30);

/// For the VRRP process after the unexpected end of its parent: it sends a priority-0 advert and removes its addresses by itself.
const GRACE: Duration = Duration::from_millis(150);

/// Delays between restarts. A keepalived that ran for [`STABLE`] starts with the first delay again.
const BACKOFF: Backoff = Backoff { base: Duration::from_millis(100), max: Duration::from_secs(10) };
const STABLE: Duration = Duration::from_secs(30);

/// Supervises keepalived.
#[derive(Debug)]
pub struct Supervisor {
    /// The program keepalived.
    pub keepalived: PathBuf,
    /// This program, for the check script.
    pub program: PathBuf,
    /// The folder.
    pub run_dir: RunDir,
    /// The configuration; a change is applied to a running keepalived.
    pub router: watch::Receiver<Arc<Router>>,
    /// The reported state.
    pub vrrp: watch::Sender<Vrrp>,
    /// The node.
    pub node: Node,
    /// Shared with the guard.
    pub record: Record,
    /// VIPs of the configuration that keepalived accepted last.
    pub accepted: Vec<VipRange>,
    /// When the changed configuration was checked last, if it is not used.
    pub refused: Option<Duration>,
    /// Events and metrics.
    pub reporter: Reporter,
    /// Ready while keepalived runs.
    pub readiness: Check,
}

/// Why keepalived does not run any more.
#[derive(Debug)]
enum End {
    /// The keeper ends.
    Stopped,
    Exited(io::Result<ExitStatus>),
    Frozen(String),
    NotStarted(String),
}

/// A running keepalived.
struct Running {
    child: Child,
    leader: Process,
    vrrp: Option<Process>,
    watchdog: Watchdog,
    fifo: Lines<BufReader<pipe::Receiver>>,
    started: Duration,
    /// When it was reloaded last, and the VIPs that it has since.
    reloaded: Option<(Duration, Vec<VipRange>)>,
}

impl Supervisor {
    /// Renders the configuration, and has keepalived check it.
    ///
    /// # Errors
    /// keepalived refuses it, or cannot be run.
    pub async fn configure(&mut self) -> anyhow::Result<()> {
        let router = Arc::clone(&self.router.borrow_and_update());
        let next = self.run_dir.next_configuration();
        let text = keepalived_conf::render(&router, &self.program, &self.run_dir);
        std::fs::write(&next, text).with_context(|| format!("writing {}", next.display()))?;
        program::check(&self.keepalived, &next).await?;
        let current = self.run_dir.configuration();
        std::fs::rename(&next, &current).with_context(|| format!("replacing {}", current.display()))?;
        self.accepted.clone_from(&router.vips);
        // Addresses that keepalived may still have from the earlier configuration stay in the record.
        let added: Vec<_> =
            router.vips.iter().filter(|vips| !self.record.vips.contains(vips)).copied().collect();
        self.record.vips.extend(added);
        self.record.tunnel_interface.clone_from(&router.tunnel_interface);
        self.record.interface.clone_from(&router.interface);
        self.write_record()
    }

    /// Runs keepalived until `stop` is cancelled. Then it is ended so that a peer takes over at once.
    pub async fn run(&mut self, stop: &CancellationToken) {
        let mut failures = 0;
        loop {
            let begin = sys::monotonic();
            let end = match self.start().await {
                Ok(mut running) => {
                    let end = self.watch(&mut running, stop).await;
                    self.end(running, &end).await;
                    end
                }
                Err(error) => End::NotStarted(format!("{error:#}")),
            };
            self.record.keepalived = None;
            if let Err(error) = self.write_record() {
                tracing::error!("{error:#}");
            }
            let (because, word) = match end {
                End::Stopped => return,
                End::Exited(status) => {
                    let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                    (Because::KeepalivedExited(status), "exited")
                }
                End::Frozen(why) => (Because::KeepalivedFrozen(why), "frozen"),
                End::NotStarted(why) => (Because::KeepalivedExited(why), "not_started"),
            };
            self.readiness.failing(because.to_string());
            self.reporter.restarted(because, word);
            let ran = sys::monotonic().saturating_sub(begin);
            failures = if ran >= STABLE { 1 } else { failures + 1 };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(BACKOFF.delay(failures)) => {}
            }
        }
    }

    async fn start(&mut self) -> anyhow::Result<Running> {
        self.strip(Because::VipsStale);
        // A configuration that changed while keepalived did not run.
        if self.router.has_changed().unwrap_or(false) {
            match self.configure().await {
                Ok(()) => self.used(),
                Err(error) => self.not_used(&error),
            }
        }
        // No keepalived runs, so nothing is left of an earlier configuration. One that keepalived refused is not used.
        self.record.vips.clone_from(&self.accepted);
        let fifo = self.open_fifo().context("creating the notify FIFO")?;
        for file in [self.run_dir.pid(), self.run_dir.vrrp_pid()] {
            // It may not exist.
            let _ = std::fs::remove_file(file);
        }
        let mut command = Command::new(&self.keepalived);
        command
            .args(["--dont-fork", "--vrrp", "--dont-respawn", "--log-console", "--no-syslog"])
            .arg("--use-file")
            .arg(self.run_dir.configuration())
            .arg("--pid")
            .arg(self.run_dir.pid())
            .arg("--vrrp_pid")
            .arg(self.run_dir.vrrp_pid())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        sys::end_with_parent(&mut command);
        let mut child = command.spawn().with_context(|| format!("starting {}", self.keepalived.display()))?;
        let leader = child.id().and_then(Stat::of).map(|stat| stat.process);
        let leader = leader.context("keepalived ended at once")?;
        self.record.keepalived = Some(leader);
        self.write_record()?;
        if let Some(output) = child.stdout.take() {
            tokio::spawn(program::forward(output));
        }
        if let Some(output) = child.stderr.take() {
            tokio::spawn(program::forward(output));
        }
        tracing::info!(pid = leader.pid, "keepalived is started");
        Ok(Running {
            child,
            leader,
            vrrp: None,
            watchdog: Watchdog::default(),
            fifo,
            started: sys::monotonic(),
            reloaded: None,
        })
    }

    /// A new FIFO, since the old one may contain lines of a keepalived that was killed.
    fn open_fifo(&self) -> io::Result<Lines<BufReader<pipe::Receiver>>> {
        let path = self.run_dir.fifo();
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        sys::create_fifo(&path)?;
        // Also open for writing, so that there is no end of file when keepalived closes it.
        let receiver = pipe::OpenOptions::new().read_write(true).open_receiver(&path)?;
        Ok(BufReader::new(receiver).lines())
    }

    /// Until keepalived ends, makes no progress, or has to end.
    async fn watch(&mut self, running: &mut Running, stop: &CancellationToken) -> End {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let instance = keepalived_conf::instance(self.router.borrow().vrid);
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                status = running.child.wait() => return End::Exited(status),
                line = running.fifo.next_line() => match line {
                    Ok(Some(line)) => {
                        if let Some(state) = vrrp::parse(&line, &instance) {
                            self.enter(state);
                        }
                    }
                    Ok(None) => return End::NotStarted("the notify FIFO is closed".to_owned()),
                    Err(error) => return End::NotStarted(format!("reading the notify FIFO failed: {error}")),
                },
                _ = ticks.tick() => {
                    if let Some(end) = self.observe(running) {
                        return end;
                    }
                    self.settle(running);
                    if self.is_retry_due(sys::monotonic()) {
                        self.reload(running).await;
                    }
                }
                changed = self.router.changed() => {
                    if changed.is_err() {
                        return End::Stopped;
                    }
                    self.reload(running).await;
                }
            }
        }
    }

    /// Applies a changed configuration without losing the mastership.
    async fn reload(&mut self, running: &mut Running) {
        let reloaded = self.configure().await.and_then(|()| {
            sys::send(running.leader.pid, libc::SIGHUP).context("sending SIGHUP to keepalived")
        });
        match reloaded {
            Ok(()) => {
                running.reloaded = Some((sys::monotonic(), self.accepted.clone()));
                self.used();
                tracing::info!("keepalived is reloaded with the changed configuration");
            }
            Err(error) => self.not_used(&error),
        }
    }

    fn used(&mut self) {
        self.refused = None;
        self.reporter.applied_configuration(None);
    }

    fn is_retry_due(&self, now: Duration) -> bool {
        self.refused.is_some_and(|at| now.saturating_sub(at) >= RETRY)
    }

    fn not_used(&mut self, error: &anyhow::Error) {
        self.refused = Some(sys::monotonic());
        self.reporter.applied_configuration(Some(format!("{error:#}")));
    }

    /// After a while the record has only the VIPs of the present configuration: another virtual router of this node may have the others by
    /// now, and this keeper must not remove them.
    fn settle(&mut self, running: &mut Running) {
        let now = sys::monotonic();
        let settled = running.reloaded.take_if(|(at, _)| now.saturating_sub(*at) >= SETTLE);
        let Some((_, vips)) = settled else { return };
        self.record.vips = vips;
        if let Err(error) = self.write_record() {
            tracing::error!("{error:#}");
        }
    }

    /// Whether both processes make progress.
    fn observe(&mut self, running: &mut Running) -> Option<End> {
        let now = sys::monotonic();
        if running.leader.stat().is_some_and(|stat| stat.is_stopped()) {
            return Some(End::Frozen("its main process is stopped".to_owned()));
        }
        let stat = running.vrrp.and_then(Process::stat);
        let Some(stat) = stat.or_else(|| program::vrrp_process(&self.run_dir.vrrp_pid(), running.leader))
        else {
            let silent = now.saturating_sub(running.started) >= START;
            return silent.then(|| End::NotStarted(format!("it has no VRRP process after {START:?}")));
        };
        if running.vrrp.replace(stat.process).is_none() {
            self.readiness.ready();
        }
        let router = self.router.borrow();
        let limit = match self.vrrp.borrow().state {
            VrrpState::Master => router.advert_interval.saturating_mul(MISSED_ADVERTS).max(LEAST_SILENCE),
            // Without adverts of a MASTER, only the check script wakes it up.
            _ => router.check_interval.saturating_mul(3).max(START),
        };
        let switches = stat.process.switches()?;
        running.watchdog.observe(now, &stat, switches, limit).map(|frozen| {
            End::Frozen(match frozen {
                Frozen::Stopped => "its VRRP process is stopped".to_owned(),
                Frozen::Stalled(time) => format!("its VRRP process was not scheduled for {time:?}"),
            })
        })
    }

    /// Nothing of keepalived runs, and none of its addresses is on the node, after this.
    async fn end(&mut self, mut running: Running, end: &End) {
        let leader = running.leader;
        match end {
            // A frozen one would keep the addresses: it is killed below.
            End::Stopped if self.observe(&mut running).is_some() => self.enter(VrrpState::Init),
            End::Stopped => {
                // It may have ended.
                let _ = sys::send(leader.pid, libc::SIGTERM);
                let ended = async {
                    let _ = running.child.wait().await;
                };
                if timeout(STOP, ended).await.is_err() {
                    tracing::warn!("keepalived did not end within {STOP:?} after SIGTERM");
                }
                self.enter(VrrpState::Init);
            }
            End::Exited(_) => {
                self.enter(VrrpState::Init);
                self.strip(Because::KeepalivedExited("its addresses were left".to_owned()));
                let begin = sys::monotonic();
                while !process::keepalived_of(leader).is_empty()
                    && sys::monotonic().saturating_sub(begin) < GRACE
                {
                    sleep(Duration::from_millis(10)).await;
                }
            }
            End::Frozen(why) => {
                process::kill_keepalived(leader);
                self.enter(VrrpState::Init);
                self.strip(Because::KeepalivedFrozen(why.clone()));
            }
            End::NotStarted(_) => self.enter(VrrpState::Init),
        }
        let begin = sys::monotonic();
        while process::kill_keepalived(leader) > 0 {
            if sys::monotonic().saturating_sub(begin) > STOP {
                tracing::error!(pid = leader.pid, "processes of keepalived do not end after SIGKILL");
                break;
            }
            sleep(Duration::from_millis(5)).await;
        }
        let _ = timeout(STOP, running.child.wait()).await;
        // Again: a process that was killed may have added an address in between.
        self.strip(Because::VipsStale);
    }

    fn enter(&self, state: VrrpState) {
        if self.vrrp.borrow().state == state && state == VrrpState::Init {
            return;
        }
        self.vrrp.send_replace(Vrrp::now(state));
    }

    fn strip(&mut self, because: Because) {
        match self.run_dir.take_stripped() {
            Ok(0) => {}
            Ok(count) => self.reporter.stripped(count, Because::KeeperStopped),
            Err(error) => {
                tracing::warn!("reading the number of addresses that the guard removed failed: {error}");
            }
        }
        match self.node.strip(&self.record) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => self.reporter.stripped(removed.len(), because),
            Err(error) => tracing::error!("removing the VIPs of the node failed: {error}"),
        }
    }

    fn write_record(&self) -> anyhow::Result<()> {
        self.run_dir.write_record(&self.record).context("writing the record for the guard")
    }

    /// Ends a keepalived of an earlier keeper, and removes its addresses.
    pub fn take_over(&mut self, earlier: Option<&Record>) {
        let Some(earlier) = earlier else { return };
        if let Some(leader) = earlier.keepalived {
            let killed = process::kill_keepalived(leader);
            if killed > 0 {
                tracing::warn!(pid = leader.pid, "keepalived of an earlier keeper is killed");
            }
        }
        match self.node.strip(earlier) {
            Ok(removed) if removed.is_empty() => {}
            Ok(removed) => self.reporter.stripped(removed.len(), Because::VipsStale),
            Err(error) => tracing::error!("removing the VIPs of an earlier keeper failed: {error}"),
        }
    }
}
