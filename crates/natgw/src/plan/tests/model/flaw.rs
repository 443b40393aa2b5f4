//! Flaws that are deliberately added to natgw: a model that does not catch each of them proves nothing.

use super::cluster::NOW;
use super::view::index;
use crate::config::{Config, HealthCheck, OnNoCandidate};
use crate::observe::health::{Health, Limits, Probes};
use crate::observe::snapshot::{Outcome, Snapshot};
use crate::plan::floating_ip::{Claim, assigned, claim};
use crate::plan::jobs::generation;
use crate::plan::tests::env::{config, config_with};
use crate::plan::{Action, Reason, plan};
use common::plan::{Plan, Step};

/// A flaw of the plan or of its execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// No flaw: natgw as it is.
    None,
    /// Tears a gateway down before its traffic has left it.
    RouteLast,
    /// Never writes the pending annotation.
    NoMarker,
    /// Writes the pending annotation after the Job was created.
    MarksAfterwards,
    /// Ignores a pending annotation for another floating IP than that of the label.
    ForgetsInterrupted,
    /// Treats a terminating Job as one that is not terminating.
    BelievesTerminating,
    /// Treats a terminating Job as gone, and creates a Job without a list from the API server.
    OverlooksTerminating,
    /// Treats a running Job as succeeded.
    SkipsRunning,
    /// Treats a failed Job as succeeded.
    Optimistic,
    /// Never retries.
    GivesUp,
    /// Never tears down.
    NoTeardown,
    /// Does not compare boot IDs.
    IgnoresReboots,
    /// Treats a Job from before the boot as one of the current boot.
    IgnoresGenerations,
    /// Routes to Nodes that are not Ready.
    IgnoresReadiness,
    /// Routes to cordoned Nodes.
    IgnoresCordons,
    /// Routes to Nodes with a pending annotation.
    IgnoresMarkers,
    /// Does not read the assignment of floating IPs.
    IgnoresTheCloud,
    /// Moves back to the oldest candidate.
    FailsBack,
    /// Never removes the role label.
    KeepsRoles,
    /// Never adds the role label.
    NoRole,
    /// Moves a foreign route against the configuration.
    TakesAll,
    /// Removes the route against the configuration.
    RemovesTheRoute,
    /// Moves the route without reading it first, although the settings forbid to move a foreign route.
    MovesBlindly,
    /// Leaves a gateway whose health checks fail although the third reference does not respond.
    IgnoresReference,
    /// Treats a gateway that responds again as one that has recovered.
    IgnoresRecovery,
    /// Leaves a gateway although no other one responds.
    IgnoresOthers,
    /// Does not use the health checks.
    IgnoresProbes,
    /// Removes the labels that the list of floating IPs denies.
    TrustsTheList,
    /// Runs nothing more after an action that was refused.
    SharedFate,
    /// Runs everything after an action that was refused.
    IgnoresFailures,
}

impl Flaw {
    /// All flaws; `None` is not one.
    pub const ALL: [Flaw; 29] = [
        Flaw::RouteLast,
        Flaw::NoMarker,
        Flaw::MarksAfterwards,
        Flaw::ForgetsInterrupted,
        Flaw::BelievesTerminating,
        Flaw::OverlooksTerminating,
        Flaw::SkipsRunning,
        Flaw::Optimistic,
        Flaw::GivesUp,
        Flaw::NoTeardown,
        Flaw::IgnoresReboots,
        Flaw::IgnoresGenerations,
        Flaw::IgnoresReadiness,
        Flaw::IgnoresCordons,
        Flaw::IgnoresMarkers,
        Flaw::IgnoresTheCloud,
        Flaw::FailsBack,
        Flaw::KeepsRoles,
        Flaw::NoRole,
        Flaw::TakesAll,
        Flaw::RemovesTheRoute,
        Flaw::MovesBlindly,
        Flaw::IgnoresReference,
        Flaw::IgnoresRecovery,
        Flaw::IgnoresOthers,
        Flaw::IgnoresProbes,
        Flaw::TrustsTheList,
        Flaw::SharedFate,
        Flaw::IgnoresFailures,
    ];

    /// The settings that the flaw violates.
    pub fn config(self) -> Config {
        match self {
            Flaw::TakesAll | Flaw::MovesBlindly => config_with("adoptForeignRoute: false"),
            Flaw::TrustsTheList => config_with("floatingIPs: {label: true}"),
            _ => config(),
        }
    }

    /// Whether it is about health checks.
    pub fn needs_probes(self) -> bool {
        matches!(
            self,
            Flaw::IgnoresReference | Flaw::IgnoresRecovery | Flaw::IgnoresOthers | Flaw::IgnoresProbes
        )
    }

    pub fn creates_blindly(self) -> bool {
        self == Flaw::OverlooksTerminating
    }

    pub fn moves_blindly(self) -> bool {
        self == Flaw::MovesBlindly
    }

    /// The plan of natgw with this flaw. `snapshot` has the cloud's floating IPs; `IgnoresTheCloud` removes them.
    pub fn plan(self, config: &Config, snapshot: &mut Snapshot) -> Plan<Action> {
        let mut config = config.clone();
        if self == Flaw::IgnoresTheCloud {
            snapshot.floating_ips = None;
        }
        match self {
            Flaw::TakesAll => config.settings.adopt_foreign_route = true,
            Flaw::RemovesTheRoute => config.settings.on_no_candidate = OnNoCandidate::Remove,
            _ => {}
        }
        let mut seen = snapshot.clone();
        self.blind(&mut seen);
        let mut plan = plan(&config, &seen, *NOW);
        self.bend(snapshot, &mut plan.steps);
        plan
    }

    /// Applies the flaw to the observation, before the plan is made.
    fn blind(self, snapshot: &mut Snapshot) {
        self.misjudge(&mut snapshot.health);
        for (node, jobs) in &mut snapshot.jobs {
            match self {
                Flaw::OverlooksTerminating => jobs.retain(|job| !job.terminating),
                Flaw::BelievesTerminating => jobs.iter_mut().for_each(|job| job.terminating = false),
                Flaw::IgnoresGenerations => {
                    let node = &snapshot.nodes[usize::from(index(node))];
                    for job in jobs {
                        let kind = job.task.unwrap().kind;
                        job.generation = generation(&config(), snapshot.network.ip_range, node, kind);
                    }
                }
                Flaw::SkipsRunning | Flaw::Optimistic => {
                    let bad = |outcome: &Outcome| match outcome {
                        Outcome::Running => self == Flaw::SkipsRunning,
                        Outcome::Failed { .. } => self == Flaw::Optimistic,
                        Outcome::Succeeded { .. } | Outcome::Differs { .. } => false,
                    };
                    for job in jobs.iter_mut().filter(|job| bad(&job.outcome)) {
                        job.outcome = Outcome::Succeeded { at: *NOW };
                    }
                }
                _ => {}
            }
        }
        for node in &mut snapshot.nodes {
            match self {
                Flaw::IgnoresReboots if node.setup.is_some() => {
                    node.setup_boot_id = Some(node.boot_id.clone());
                }
                Flaw::IgnoresReadiness => node.ready = crate::observe::snapshot::Ready::True,
                Flaw::IgnoresCordons => node.cordoned = false,
                Flaw::IgnoresMarkers if node.setup == node.label => node.pending = None,
                Flaw::ForgetsInterrupted => {
                    let label = node.label.clone().unwrap_or_default();
                    node.pending.take_if(|pending| !pending.ends_with(&format!(":{label}")));
                }
                _ => {}
            }
        }
    }

    /// Applies the flaw to the health checks.
    fn misjudge(self, health: &mut Health) {
        let limits = Limits::new(&HealthCheck::default());
        let respond = |probes: &mut Probes| (0..30).for_each(|_| probes.responded(limits));
        match self {
            Flaw::IgnoresProbes => *health = Health::default(),
            Flaw::IgnoresReference => respond(&mut health.reference),
            Flaw::IgnoresRecovery => {
                health.nodes.values_mut().filter(|probes| !probes.is_failing(limits)).for_each(respond);
            }
            // The first that fails is left, if all others count as responding.
            Flaw::IgnoresOthers => {
                let failing = health.nodes.values().position(|probes| probes.is_failing(limits));
                let others = health.nodes.values_mut().enumerate();
                others.filter(|(place, _)| Some(*place) != failing).for_each(|(_, probes)| respond(probes));
            }
            _ => {}
        }
    }

    /// Applies the flaw to the steps of the plan.
    fn bend(self, snapshot: &Snapshot, steps: &mut Vec<Step<Action>>) {
        let is_route = |step: &Step<Action>| matches!(step.action, Action::MoveRoute { .. });
        let is_mark = |step: &Step<Action>| matches!(step.action, Action::RecordPending { .. });
        match self {
            Flaw::RouteLast => steps.sort_by_key(is_route),
            Flaw::NoMarker => steps.retain(|step| !is_mark(step)),
            Flaw::MarksAfterwards => {
                for place in 1..steps.len() {
                    if is_mark(&steps[place - 1]) && matches!(steps[place].action, Action::CreateJob { .. }) {
                        steps.swap(place - 1, place);
                    }
                }
            }
            Flaw::GivesUp => steps.retain(|step| !matches!(step.because, Reason::BackoffExpired(_))),
            Flaw::NoTeardown => steps.retain(|step| match &step.action {
                Action::RecordPending { task, .. } => task.kind.is_setup(),
                Action::CreateJob { job, .. } => job.task.kind.is_setup(),
                _ => true,
            }),
            Flaw::KeepsRoles => steps.retain(|step| !matches!(step.action, Action::ClearRole { .. })),
            Flaw::NoRole => steps.retain(|step| !matches!(step.action, Action::SetRole { .. })),
            Flaw::FailsBack => fail_back(snapshot, steps),
            Flaw::TrustsTheList => {
                let denied = snapshot.nodes.iter().filter(|node| {
                    assigned(node).is_some_and(|ip| claim(snapshot, node, ip) != Claim::Confirmed)
                });
                steps.extend(denied.map(|node| Step {
                    action: Action::LabelFloatingIP { node: node.into(), ip: None },
                    because: Reason::FloatingIPUnassigned,
                }));
            }
            _ => {}
        }
    }
}

/// Replaces the move of the route by one from any current next hop to the oldest candidate.
fn fail_back(snapshot: &Snapshot, steps: &mut Vec<Step<Action>>) {
    let mut elsewhere = snapshot.clone();
    let here = elsewhere.network.default_route.take();
    elsewhere.nodes.iter_mut().for_each(|node| node.role = false);
    let mut fresh = plan(&config(), &elsewhere, *NOW).steps.into_iter();
    let found = fresh.find_map(|step| match step.action {
        Action::MoveRoute { to, network, server, node, .. } if here != Some(to) => {
            Some(Action::MoveRoute { network, from: here, from_node: None, to, server, node })
        }
        _ => None,
    });
    steps.retain(|step| !matches!(step.action, Action::MoveRoute { .. }));
    if let Some(action) = found {
        steps.insert(0, Step { action, because: Reason::NoDefaultRoute });
    }
}
