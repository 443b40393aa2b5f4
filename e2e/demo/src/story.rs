//! The story: its chapters are in [`chapters`]; here is how one is told and how its end is awaited.

mod chapters;

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use e2e::program::Program;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::screen::Screen;
use crate::stage::{NAMESPACE, NODES, Stage};
use crate::tape::{Entry, Now, Seen, Tape, What, after};

/// How many [`chapters`] there are.
const CHAPTERS: usize = 11;
/// How often the environment is looked at: short against the hundred milliseconds that a person notices.
const LOOK: Duration = Duration::from_millis(20);
/// A line waits this long before it is shown: another source may still tell of something earlier.
const SETTLE: Duration = Duration::from_millis(100);
/// Time to read between two chapters, for a person only.
const BREATH: Duration = Duration::from_secs(1);
/// Nothing here takes so long, on a busy machine either.
const TIMEOUT: Duration = Duration::from_secs(45);
/// Lines of natgw's log that a failure shows.
const TAIL: usize = 15;

/// The demo as it goes on.
pub(crate) struct Story {
    screen: Screen,
    pause: bool,
    begun: Instant,
    chapter: usize,
    /// When the last command was given: times count from here.
    cause: Instant,
    /// The route as it was then.
    before: Option<Ipv4Addr>,
    /// Everything that happened since, shown or not.
    since: Vec<Entry>,
    shown: usize,
    /// Reasons that were explained since: once is enough.
    explained: BTreeSet<String>,
    /// What was to be seen and was, with its figure.
    proofs: Vec<(String, String)>,
    tape: Option<Tape>,
    /// The natgw that should run now.
    running: BTreeMap<String, Arc<Program>>,
    stage: Option<Stage>,
}

impl Story {
    pub(crate) fn new(screen: Screen, pause: bool) -> Self {
        Story {
            screen,
            pause,
            begun: Instant::now(),
            chapter: 0,
            cause: Instant::now(),
            before: None,
            since: Vec::new(),
            shown: 0,
            explained: BTreeSet::new(),
            proofs: Vec::new(),
            tape: None,
            running: BTreeMap::new(),
            stage: None,
        }
    }

    /// Says what natgw said last, as it is, and what did not happen.
    pub(crate) fn failed(&mut self, error: &anyhow::Error) {
        let _ = self.collect(Duration::ZERO);
        for (who, lines) in self.tape.iter().flat_map(|tape| tape.tails(TAIL)) {
            self.screen.gap();
            self.screen.say(&format!("The last lines of {who}:"));
            lines.iter().for_each(|line| self.screen.line(line));
        }
        self.screen.wrong(&format!("{error:#}"));
    }

    /// Says that a person had enough.
    pub(crate) fn interrupted(&self) {
        self.screen.gap();
        self.screen.say("Stopped. Everything that was started is gone.");
    }

    /// Begins a chapter, when the reader is ready.
    async fn turn(&mut self, title: &str) -> Result<()> {
        if self.pause && self.chapter > 0 {
            self.screen.gap();
            self.screen.part("  Enter: next chapter ");
            enter().await;
        } else if self.screen.is_live() && self.chapter > 0 {
            self.linger(BREATH).await?;
        }
        self.chapter += 1;
        self.screen.title(&format!("{}/{CHAPTERS} ── {title}", self.chapter));
        Ok(())
    }

    /// Shows a command; times count from now.
    fn command(&mut self, text: &str) -> Result<()> {
        self.before = self.collect(Duration::ZERO)?.route;
        self.screen.command(text);
        self.since.clear();
        self.shown = 0;
        self.explained.clear();
        self.cause = Instant::now();
        Ok(())
    }

    /// Shows what happens until it is so. Fails if it is not, or if a natgw ends that should run.
    async fn until(&mut self, what: &str, so: impl Fn(&Now, &[Entry]) -> bool) -> Result<()> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let now = self.collect(SETTLE)?;
            if so(&now, &self.since) {
                // What belongs to it may be on its way yet.
                return self.linger(SETTLE * 2).await;
            }
            ensure!(Instant::now() < end, "waited {} s in vain for: {what}", TIMEOUT.as_secs());
            self.all_run().with_context(|| format!("while this was awaited: {what}"))?;
            sleep(LOOK).await;
        }
    }

    /// Shows what happens meanwhile.
    async fn linger(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.tape.is_some() {
                self.collect(SETTLE)?;
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Shows what happened, but for the last moments of it, and tells how things are.
    fn collect(&mut self, but: Duration) -> Result<Now> {
        let tape = self.tape.as_mut().context("the env is not there yet")?;
        self.since.extend(tape.collect());
        let now = tape.now();
        if let Some(new) = self.since.get_mut(self.shown..) {
            new.sort_by_key(|entry| entry.at);
        }
        while let Some(entry) = self.since.get(self.shown) {
            if entry.at.elapsed() < but {
                break;
            }
            let time = after(self.cause, entry.at);
            match &entry.because {
                None => self.screen.event(time, &entry.who, &entry.text),
                Some((word, why)) if self.explained.insert(word.clone() + why) => {
                    self.screen.event(time, &entry.who, &entry.text);
                    self.screen.because(&format!("{word}: {why}"));
                }
                Some((word, _)) => self.screen.event(time, &entry.who, &format!("{} ({word})", entry.text)),
            }
            self.shown += 1;
        }
        Ok(now)
    }

    /// When something happened, counted from the last command. Fails if it did not.
    fn when(&self, what: &What) -> Result<Duration> {
        let entry = self.since.iter().find(|entry| &entry.what == what);
        Ok(after(self.cause, entry.with_context(|| format!("nothing was heard of {what:?}"))?.at))
    }

    /// Keeps for the end what was seen.
    fn proved(&mut self, text: impl Into<String>, figure: impl Into<String>) {
        self.proofs.push((text.into(), figure.into()));
    }

    /// The Nodes and the route.
    fn show(&mut self) -> Result<()> {
        let now = self.collect(Duration::ZERO)?;
        let rows: Vec<[String; 6]> = NODES
            .iter()
            .filter_map(|(name, ip, _)| Some((name, ip, now.nodes.get(*name)?)))
            .map(|(name, ip, node)| {
                let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
                let setup = if node.client { "client".to_owned() } else { or_none(&node.setup) };
                let role = if node.role { "nat-gateway" } else { "-" };
                [name.to_string(), status(node), role.to_owned(), ip.to_string(), or_none(&node.label), setup]
            })
            .collect();
        self.screen.gap();
        self.screen.table(["NODE", "STATUS", "ROLE", "PRIVATE IP", "FLOATING IP", "SET UP FOR"], &rows);
        let (before, route) = (self.route_text(self.before)?, self.route_text(now.route)?);
        let text = if self.before == now.route { route } else { format!("{route}; before: {before}") };
        self.screen.fact("default route", &text);
        self.screen.gap();
        Ok(())
    }

    fn route_text(&self, route: Option<Ipv4Addr>) -> Result<String> {
        Ok(match route {
            Some(ip) => format!("{ip} ({})", self.tape()?.name_of(ip)),
            None => "none".to_owned(),
        })
    }

    /// Starts a natgw that is meant to go on.
    fn start(&mut self, who: &str) -> Result<Arc<Program>> {
        let program = self.stage()?.controller(&[])?;
        self.tape.as_mut().context("no tape")?.listen(who, program.clone());
        self.running.insert(who.to_owned(), program.clone());
        Ok(program)
    }

    /// Fails if a natgw has ended that was not to.
    fn all_run(&self) -> Result<()> {
        for (who, program) in &self.running {
            if let Some(status) = program.exited()? {
                bail!("{who} has ended by itself ({status})");
            }
        }
        Ok(())
    }

    /// The natgw that will be ended on purpose.
    fn release(&mut self, who: &str) -> Result<Arc<Program>> {
        self.running.remove(who).with_context(|| format!("{who} does not run"))
    }

    /// Waits until a natgw has looked at the whole environment twice more.
    async fn two_walks(&mut self, who: &str) -> Result<()> {
        let program = self.running.get(who).with_context(|| format!("{who} does not run"))?.clone();
        let begun = walks(&program).await?;
        let end = Instant::now() + TIMEOUT;
        loop {
            match walks(&program).await {
                Ok(done) if done >= begun + 2.0 => return Ok(()),
                Ok(_) => {}
                // If it has ended, that is the better message.
                Err(error) => return self.all_run().and(Err(error)),
            }
            ensure!(Instant::now() < end, "waited {} s in vain for: two walks of {who}", TIMEOUT.as_secs());
            self.linger(SETTLE).await?;
            self.all_run()?;
        }
    }

    fn stage(&self) -> Result<&Stage> {
        self.stage.as_ref().context("the env is not there yet")
    }

    fn tape(&self) -> Result<&Tape> {
        self.tape.as_ref().context("the env is not there yet")
    }

    /// How often the route was changed since the network was made.
    fn route_changes(&self) -> Result<usize> {
        let stage = self.stage()?;
        Ok(stage.hetzner.route_history(stage.network).len())
    }

    /// When natgw first asked Hetzner for a change, counted from the last command.
    fn asked(&self) -> Result<Duration> {
        let writes = self.stage()?.hetzner.writes();
        let first = writes.iter().find(|request| request.at >= self.cause);
        Ok(after(self.cause, first.context("natgw has asked Hetzner for no change")?.at))
    }

    /// Raises the curtain: the control plane, then the rest.
    async fn raise(&mut self) -> Result<()> {
        let control_plane = self
            .screen
            .progress("etcd, kube-apiserver, kube-controller-manager", Stage::cluster())
            .await
            .context("the control plane did not start")?;
        let stage = self
            .screen
            .progress("Hetzner Cloud stand-in, three nodes", Stage::on(control_plane))
            .await
            .context("the nodes did not start")?;
        let names = NODES.iter().map(|(name, ip, _)| (*ip, (*name).to_owned())).collect();
        let client = stage.control_plane.client();
        let version = client.apiserver_version().await?.git_version;
        self.screen.fact("Kubernetes", &format!("{version} at {}", stage.control_plane.url()));
        self.screen.fact("Hetzner", &format!("at {}", stage.hetzner.url()));
        self.tape = Some(Tape::new(&client, NAMESPACE, stage.hetzner.clone(), stage.network, names));
        self.stage = Some(stage);
        Ok(())
    }
}

/// As `kubectl get nodes` has it.
fn status(node: &Seen) -> String {
    let ready = if node.ready { "Ready" } else { "NotReady" };
    let cordoned = if node.cordoned { ",SchedulingDisabled" } else { "" };
    format!("{ready}{cordoned}")
}

/// How often this natgw has looked at the whole environment with success.
async fn walks(program: &Program) -> Result<f64> {
    let done = program.metrics().await?.sum("controller_runtime_reconcile_total", &[("result", "success")]);
    Ok(done.unwrap_or_default())
}

/// Returns with Enter, or if nobody can press it.
async fn enter() {
    let (pressed, wait) = oneshot::channel();
    // Not a task of the runtime: nothing can end it but Enter.
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        let _ = pressed.send(());
    });
    let _ = wait.await;
}
