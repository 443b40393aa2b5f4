//! How the chapters are shown: commands, the events after them, and the wait for their end.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::program::Program;
use e2e::wait::TIMEOUT;
use jiff::Timestamp;
use tokio::time::sleep;

use super::environment::{Environment, NODES};
use super::timeline::{Event, State, Timeline, What, after, next_hop, timestamp};
use crate::screen::Screen;

/// A person notices a tenth of a second.
const POLL: Duration = Duration::from_millis(50);
/// An event is shown this late, because another source may still report an earlier one.
const SETTLE: Duration = Duration::from_millis(100);
/// Time for a person to read between two chapters.
pub(super) const READING: Duration = Duration::from_secs(1);
/// Lines of each natgw's log that are shown after a failure.
const LOG_LINES: usize = 15;

pub(super) struct Story<'a> {
    pub(super) screen: &'a Screen,
    pause: bool,
    began: Instant,
    /// When the last command was shown.
    pub(super) cause: Timestamp,
    /// The default route at that time.
    before: Option<Ipv4Addr>,
    /// The events since the last command, shown or not.
    events: Vec<Event>,
    shown: usize,
    /// Reasons that were explained since then.
    explained: BTreeSet<(String, String)>,
    /// Proven statements, each with its figure.
    proofs: Vec<(String, String)>,
    timeline: Timeline,
    /// The natgw processes that must not end.
    running: BTreeMap<String, Arc<Program>>,
    pub(super) env: Environment,
}

impl<'a> Story<'a> {
    pub(super) fn new(screen: &'a Screen, pause: bool, env: Environment) -> Self {
        Self {
            screen,
            pause,
            began: Instant::now(),
            cause: Timestamp::now(),
            before: None,
            events: Vec::new(),
            shown: 0,
            explained: BTreeSet::new(),
            proofs: Vec::new(),
            timeline: Timeline::new(&env),
            running: BTreeMap::new(),
            env,
        }
    }

    /// Shows the end of each natgw's log.
    pub(super) fn show_logs(&mut self) {
        let _ = self.collect(Duration::ZERO);
        for (name, lines) in self.timeline.logs(LOG_LINES) {
            self.screen.gap();
            self.screen.say(&format!("The last lines of {name}:"));
            lines.iter().for_each(|line| self.screen.line(line));
        }
    }

    /// Starts a chapter when the reader is ready.
    pub(super) async fn chapter(&mut self, title: &str) -> Result<()> {
        if self.pause {
            self.screen.pause().await;
        } else if self.screen.is_terminal() {
            self.linger(READING).await;
        }
        self.screen.title(title);
        Ok(())
    }

    /// Shows a command. Times count from now.
    pub(super) fn command(&mut self, text: &str) {
        self.before = self.collect(Duration::ZERO).route;
        self.screen.command(text);
        self.events.clear();
        self.shown = 0;
        self.explained.clear();
        self.cause = Timestamp::now();
    }

    /// How long ago the last command was shown.
    pub(super) fn elapsed(&self) -> Duration {
        after(self.cause, Timestamp::now())
    }

    /// Shows what happens until `done`. Fails if it takes too long, or if a natgw ends that should run.
    pub(super) async fn until(
        &mut self,
        what: &str,
        done: impl AsyncFn(&State, &[Event]) -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let state = self.collect(SETTLE);
            for (name, program) in &self.running {
                if let Some(status) = program.exited()? {
                    bail!("{name} ended ({status}) during the wait for: {what}");
                }
            }
            if done(&state, &self.events).await? {
                // More events of the same change may be on their way.
                self.linger(SETTLE * 2).await;
                return Ok(());
            }
            ensure!(Instant::now() < end, "timed out after {TIMEOUT:?}: {what}");
            sleep(POLL).await;
        }
    }

    /// Shows what happens for some time.
    pub(super) async fn linger(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.collect(SETTLE);
            sleep(POLL).await;
        }
    }

    /// Shows what happened, except for the most recent moments.
    pub(super) fn collect(&mut self, except: Duration) -> State {
        self.events.extend(self.timeline.collect());
        if let Some(new) = self.events.get_mut(self.shown..) {
            new.sort_by_key(|event| event.at);
        }
        while let Some(event) = self.events.get(self.shown) {
            if after(event.at, Timestamp::now()) < except {
                break;
            }
            let show = |text: &str| self.screen.event(after(self.cause, event.at), &event.source, text);
            match &event.because {
                None => show(&event.text),
                Some(because) if self.explained.insert(because.clone()) => {
                    show(&event.text);
                    self.screen.because(&format!("{}: {}", because.0, because.1));
                }
                Some((reason, _)) => show(&format!("{} ({reason})", event.text)),
            }
            self.shown += 1;
        }
        self.timeline.state()
    }

    /// When something happened after the last command.
    pub(super) fn when(&self, what: &What) -> Result<Duration> {
        let event = self.events.iter().find(|event| &event.what == what);
        Ok(after(self.cause, event.with_context(|| format!("{what:?} did not happen"))?.at))
    }

    /// When the default route was moved after the last command. Fails if it was anywhere else in between.
    pub(super) fn moved(&self, to: Ipv4Addr) -> Result<Duration> {
        let routes: Vec<_> = self
            .events
            .iter()
            .filter_map(|event| if let What::Route(route) = event.what { Some(route) } else { None })
            .collect();
        ensure!(routes == [None, Some(to)], "the route had other next hops: {routes:?}");
        self.when(&What::Route(Some(to)))
    }

    /// When natgw sent its first change to Hetzner after the last command.
    pub(super) fn requested(&self) -> Result<Duration> {
        let writes = self.env.hetzner.writes();
        let first = writes.iter().map(|write| timestamp(write.at)).find(|at| *at >= self.cause);
        Ok(after(self.cause, first.context("natgw sent no change to Hetzner")?))
    }

    /// Records a result for the last chapter.
    pub(super) fn proved(&mut self, text: &str, figure: impl Into<String>) {
        self.proofs.push((text.to_owned(), figure.into()));
    }

    /// Shows all results, and how long everything took.
    pub(super) fn show_proofs(&self) -> Duration {
        self.proofs.iter().for_each(|(text, figure)| self.screen.success(text, figure));
        self.began.elapsed()
    }

    /// Shows the Nodes and the route.
    pub(super) fn show_state(&mut self) {
        let state = self.collect(Duration::ZERO);
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let rows = NODES.iter().filter_map(|(name, ip, _)| {
            let node = state.nodes.get(*name)?;
            let ready = if node.ready { "Ready" } else { "NotReady" };
            let cordoned = if node.cordoned { ",SchedulingDisabled" } else { "" };
            Some([
                name.to_string(),
                format!("{ready}{cordoned}"),
                if node.role { "nat-gateway" } else { "-" }.to_owned(),
                ip.to_string(),
                or_none(&node.label),
                if node.client { "client".to_owned() } else { or_none(&node.setup) },
            ])
        });
        let head = ["NODE", "STATUS", "ROLE", "PRIVATE IP", "FLOATING IP", "SET UP FOR"];
        self.screen.gap();
        self.screen.table(head, &rows.collect::<Vec<_>>());
        let before = format!("; before: {}", next_hop(self.before));
        let before = if self.before == state.route { "" } else { &before };
        self.screen.fact("default route", &format!("{}{before}", next_hop(state.route)));
        self.screen.gap();
    }

    /// Starts a natgw whose log is shown.
    pub(super) fn start(&mut self, name: &str, arguments: &[&str]) -> Result<Arc<Program>> {
        let program = self.env.controller(arguments)?;
        self.timeline.add(name, program.clone());
        Ok(program)
    }

    /// Starts a natgw that must not end before [`Story::release`].
    pub(super) fn keep_running(&mut self, name: &str) -> Result<Arc<Program>> {
        let program = self.start(name, &[])?;
        self.running.insert(name.to_owned(), program.clone());
        Ok(program)
    }

    /// A natgw that may end from now on.
    pub(super) fn release(&mut self, name: &str) -> Result<Arc<Program>> {
        self.running.remove(name).with_context(|| format!("{name} does not run"))
    }

    /// Waits until a natgw has completed two more reconciliations, and verifies that the route was not changed since there
    /// were `changes`.
    pub(super) async fn route_stays(&mut self, name: &str, changes: usize) -> Result<()> {
        let program = self.running.get(name).with_context(|| format!("{name} does not run"))?.clone();
        let count = async || {
            let metrics = program.metrics().await?;
            let success = [("result", "success")];
            anyhow::Ok(metrics.sum("controller_runtime_reconcile_total", &success).unwrap_or_default())
        };
        let first = count().await?;
        self.until("two reconciliations", async |_, _| Ok(count().await? >= first + 2.0)).await?;
        ensure!(self.route_changes() == changes, "natgw changed the route although its gateway works");
        Ok(())
    }

    /// How often the route was changed since the network was created.
    pub(super) fn route_changes(&self) -> usize {
        self.env.hetzner.route_history(self.env.network).len()
    }
}
