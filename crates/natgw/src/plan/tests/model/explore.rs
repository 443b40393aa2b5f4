//! Explores every order of events, breadth first: one act of natgw at a time, and any event of the environment in
//! between.
//!
//! A state is a cluster and the rest of natgw's reconciliation. Clusters are few and reconciliations are short, so both
//! are numbered, and each cluster is planned for once. Disturbances (actions of other clients, and failures) are
//! counted: all states with n disturbances are explored before those with n + 1, so "up to n disturbances" is complete.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use super::act::{Act, Outcome};
use super::bounds::{Bounds, Seen};
use super::cluster::Cluster;
use super::environment::Event;
use super::law;
use super::numbers::{Numbers, Quick};

/// The rest of a reconciliation: its remaining acts, and the Nodes that have changed since its observation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reconcile {
    pub acts: Vec<Act>,
    /// Nodes, as bits, whose object has changed since the observation: writes to them are refused.
    stale: u8,
    /// Nodes, as bits, of which anything has changed since the observation.
    touched: u8,
}

/// The number of the empty reconciliation: natgw is between two reconciliations.
pub const IDLE: u32 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    Begin(u32),
    Reconciles,
    Acts(Act),
    /// The reconciliation ends with this act, and the next one begins with an observation from before the act.
    ActsUnseen(Act),
    Crashes,
    Happens(Event),
}

/// The events of a cluster that are not disturbances, each with the number of the resulting cluster.
type Course = Rc<[(Event, u32)]>;

pub struct Explorer {
    pub bounds: Bounds,
    pub clusters: Numbers<Cluster>,
    pub reconciles: Numbers<Reconcile>,
    /// The number of the reconciliation that natgw plans in each cluster, by the cluster's number.
    plans: Vec<Option<u32>>,
    /// The events of each cluster that are not disturbances, by the cluster's number.
    courses: Vec<Option<Course>>,
    /// The number of each state: its index in `ways`, which has the move that led to it.
    states: HashMap<(u32, u32), u32, Quick>,
    pub ways: Vec<Way>,
    pub seen: Seen,
}

#[derive(Clone, Copy)]
pub struct Way {
    pub state: (u32, u32),
    from: u32,
    by: Move,
    depth: u32,
}

/// Explores all states within the bounds. The error is a violation, with the moves that lead to it.
pub fn explore(bounds: Bounds) -> Result<Seen, String> {
    let mut explorer = Explorer {
        clusters: Numbers::new(),
        reconciles: Numbers::new(),
        plans: Vec::new(),
        courses: Vec::new(),
        states: HashMap::default(),
        ways: Vec::new(),
        seen: Seen::default(),
        bounds,
    };
    explorer.reconciles.of(Reconcile::default());
    for first in explorer.bounds.start.clusters(explorer.bounds.nodes) {
        let first = explorer.clusters.of(first);
        explorer.reach((first, IDLE), 0, Move::Begin(first)).map_err(|(why, at)| explorer.tell(&why, at))?;
    }
    explorer.run().map_err(|(why, at)| explorer.tell(&why, at))?;
    let Explorer { clusters, states, ways, mut seen, .. } = explorer;
    seen.states = states.len();
    seen.clusters = clusters.all.len();
    seen.depth = ways.iter().map(|way| way.depth).max().unwrap();
    Ok(seen)
}

pub type Step<T> = Result<T, (String, u32)>;

impl Explorer {
    fn run(&mut self) -> Step<()> {
        // The range of the numbers of the states with one disturbance less.
        let mut layer = 0..0;
        for _ in 0..=self.bounds.disturbances.unwrap_or(usize::MAX) {
            for from in layer.clone() {
                self.disturb(from)?;
            }
            layer.start = layer.end;
            while (layer.end as usize) < self.ways.len() {
                self.leave(layer.end)?;
                layer.end += 1;
            }
            if layer.is_empty() {
                break;
            }
        }
        self.converge()
    }

    /// Makes every move from a state that is a disturbance.
    fn disturb(&mut self, from: u32) -> Step<()> {
        let (cluster, reconcile) = self.ways[from as usize].state;
        let here = *self.clusters.get(cluster);
        for event in self.bounds.alphabet.disturbances(&here) {
            let there = self.happen(&here, event);
            let reconcile = self.reconcile_after(reconcile, event, there);
            self.reach((there, reconcile), from, Move::Happens(event))?;
        }
        Ok(())
    }

    /// Makes every other move from a state.
    fn leave(&mut self, from: u32) -> Step<()> {
        let (cluster, reconcile) = self.ways[from as usize].state;
        let here = *self.clusters.get(cluster);
        if reconcile == IDLE {
            let plan = self.plan(cluster);
            if plan == IDLE {
                law::at_rest(&self.bounds.config, &here).map_err(|why| (why, from))?;
            } else {
                self.reach((cluster, plan), from, Move::Reconciles)?;
            }
        } else {
            self.reach((cluster, IDLE), from, Move::Crashes)?;
            self.seen.crashes += 1;
            self.act(from)?;
        }
        for (event, there) in self.course(cluster).iter() {
            let reconcile = self.reconcile_after(reconcile, *event, *there);
            self.reach((*there, reconcile), from, Move::Happens(*event))?;
        }
        Ok(())
    }

    fn course(&mut self, cluster: u32) -> Course {
        self.courses.resize(self.clusters.all.len(), None);
        if let Some(known) = &self.courses[cluster as usize] {
            return known.clone();
        }
        let here = *self.clusters.get(cluster);
        let events = self.bounds.alphabet.course(&here);
        let course: Rc<[_]> = events.into_iter().map(|event| (event, self.happen(&here, event))).collect();
        self.courses[cluster as usize] = Some(course.clone());
        course
    }

    fn happen(&mut self, here: &Cluster, event: Event) -> u32 {
        let mut there = *here;
        event.happen(&mut there);
        self.clusters.of(there)
    }

    /// Executes the next act of a reconciliation, and continues with the rest of the reconciliation.
    fn act(&mut self, from: u32) -> Step<()> {
        let (number, reconcile) = self.ways[from as usize].state;
        let here = *self.clusters.get(number);
        let Reconcile { mut acts, stale, touched } = self.reconciles.get(reconcile).clone();
        let act = acts.remove(0);
        let mut there = here;
        let outcome = if self.bounds.refuses(act) {
            Outcome::Refused
        } else {
            act.apply(&mut there, stale, self.bounds.flaw)
        };
        match outcome {
            Outcome::Outdated | Outcome::Refused => {
                self.seen.refused += 1;
                act.prune(&mut acts, outcome == Outcome::Outdated, self.bounds.flaw);
            }
            Outcome::Then(rest) => acts.insert(0, rest),
            Outcome::Done => {}
        }
        if !matches!(outcome, Outcome::Outdated | Outcome::Refused) {
            law::of_act(&self.bounds.config, &here, act, touched)
                .map_err(|why| (format!("{why} by {act:?}"), from))?;
            self.count(act, touched);
        }
        // The decision was made before this act, and does not know the candidate that the act makes.
        let made = if let Act::RecordSetup(node, ..) = act { here.touched(node) } else { 0 };
        let touched = touched | made;
        let there = self.clusters.of(there);
        let rest = self.reconcile(Reconcile { acts, stale, touched });
        self.reach((there, rest), from, Move::Acts(act))?;
        let unseen = !matches!(act, Act::MoveRoute { .. } | Act::AddRoute { .. } | Act::RemoveRoute { .. });
        if let (true, Some(node)) = (unseen && there != number, act.node()) {
            let plan = self.plan(number);
            let mut changed = self.reconciles.get(plan).clone();
            changed.stale |= 1 << node;
            changed.touched |= here.touched(node);
            let changed = self.reconcile(changed);
            self.reach((there, changed), from, Move::ActsUnseen(act))?;
        }
        Ok(())
    }

    fn count(&mut self, act: Act, touched: u8) {
        match act {
            Act::MoveRoute { to, .. } => {
                self.seen.route_moves += 1;
                self.seen.overtaken += usize::from(touched & (1 << to) != 0);
            }
            Act::RecordTeardown(..) => self.seen.teardowns += 1,
            Act::RecordFailure(..) => self.seen.failures += 1,
            _ => {}
        }
    }

    /// The number of a reconciliation, reduced to the facts that have an effect on its remaining acts.
    fn reconcile(&mut self, mut reconcile: Reconcile) -> u32 {
        if reconcile.acts.is_empty() {
            return IDLE;
        }
        let written =
            reconcile.acts.iter().filter_map(|act| act.node()).fold(0, |bits, node| bits | 1 << node);
        reconcile.stale &= written;
        if !reconcile.acts.iter().any(|act| act.needs_candidates()) {
            reconcile.touched = 0;
        }
        self.reconciles.of(reconcile)
    }

    /// The number of a reconciliation after an event that occurs during it. `cluster` is the one after the event.
    fn reconcile_after(&mut self, reconcile: u32, event: Event, cluster: u32) -> u32 {
        if reconcile == IDLE {
            return IDLE;
        }
        let mut reconcile = self.reconciles.get(reconcile).clone();
        reconcile.touched |= event.touches(self.clusters.get(cluster));
        reconcile.stale |= event.changes_node().map_or(0, |node| 1 << node);
        if let Event::Reboot(node) = event {
            reconcile.acts.iter_mut().for_each(|act| *act = act.after_reboot(node));
        }
        self.reconcile(reconcile)
    }

    /// The number of the reconciliation that natgw begins in this cluster; [`IDLE`] if its plan is empty.
    pub fn plan(&mut self, cluster: u32) -> u32 {
        self.plans.resize(self.clusters.all.len(), None);
        if let Some(known) = self.plans[cluster as usize] {
            return known;
        }
        let here = *self.clusters.get(cluster);
        let mut snapshot = here.snapshot();
        let plan = self.bounds.flaw.plan(&self.bounds.config, &mut snapshot);
        let acts = plan.steps.iter().map(|step| Act::of(&step.action, &snapshot, &here)).collect();
        let reconcile = self.reconcile(Reconcile { acts, ..Reconcile::default() });
        self.plans[cluster as usize] = Some(reconcile);
        reconcile
    }

    /// Records a state. If it is new and between two reconciliations, its cluster is checked against the laws. A
    /// reconciliation may crash at any time, so each cluster is checked.
    fn reach(&mut self, state: (u32, u32), from: u32, by: Move) -> Step<u32> {
        self.seen.transitions += 1;
        let number = self.ways.len() as u32;
        if let Some(known) = self.states.get(&state) {
            return Ok(*known);
        }
        self.states.insert(state, number);
        let depth = if matches!(by, Move::Begin(_)) { 0 } else { self.ways[from as usize].depth + 1 };
        self.ways.push(Way { state, from, by, depth });
        if state.1 == IDLE {
            law::always(self.clusters.get(state.0)).map_err(|why| (why, number))?;
        }
        Ok(number)
    }

    fn tell(&self, why: &str, mut at: u32) -> String {
        let last = self.clusters.get(self.ways[at as usize].state.0);
        let mut steps = Vec::new();
        let labels = loop {
            let Way { from, by, .. } = self.ways[at as usize];
            match by {
                Move::Begin(first) => break self.clusters.get(first).nodes().iter().map(|node| node.label),
                _ => steps.push(by),
            }
            at = from;
        };
        let labels: Vec<_> = labels.collect();
        let mut text = format!("{why}, after {} moves from labels {labels:?}:", steps.len());
        for step in steps.iter().rev() {
            write!(text, "\n  {step:?}").unwrap();
        }
        write!(text, "\n{:#?} {:?}", last.nodes(), last.route).unwrap();
        text
    }
}
