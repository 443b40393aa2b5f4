//! The only writer: runs the actions of a Plan in order.
//!
//! Failures are isolated: the route, the role label and each Node fail separately (see [`Failures`]), and so do their results. Each action is run only
//! while the process leads. Nodes on which nothing has started wait for the next reconciliation if this one has taken longer than
//! [`RECONCILE_BUDGET`].

pub mod job;
pub mod node;
pub mod route;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use common::cloud::hcloud::Hcloud;
use common::executor::Executor;
use common::plan::{Plan, Step};

use crate::config::Config;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::observe::snapshot::Snapshot;
use crate::plan::Action;
use crate::plan::action::{Failures, NodeRef};

/// After this time a reconciliation starts no further Node; the steps that others depend on come before. Sixty Jobs, each refused by
/// an admission webhook after ten seconds, would otherwise delay the next observation of the gateway by ten minutes. A Node that was
/// started is finished: with slow writes, it would otherwise be annotated in each reconciliation and never get its Job.
pub const RECONCILE_BUDGET: Duration = Duration::from_secs(5);

/// The settings, clients and metrics that a plan is executed with.
pub struct Apply<'a> {
    /// Settings in force.
    pub config: &'a Config,
    /// Kubernetes.
    pub client: &'a kube::Client,
    /// The cloud.
    pub hcloud: &'a Hcloud,
    /// Executes each step.
    pub executor: Executor<'a>,
    /// Measures each step that succeeded.
    pub metrics: &'a Metrics,
    /// The state that the plan was made for.
    pub snapshot: &'a Snapshot,
    /// [`RECONCILE_BUDGET`]; the longest time that there is where no reconciliation follows that could do the rest.
    pub longest: Duration,
}

/// After so many reconciliations in a row, a write that conflicts with another client's is a failure: the caches would have caught
/// up within two of them.
const CONFLICTS: u32 = 5;

/// The state that a reconciliation leaves to the next one.
#[derive(Debug, Default)]
pub struct Memory {
    /// The first Node that it did not reach. It comes first in the next one, so that each Node is reached.
    resume: Option<String>,
    /// The number of reconciliations in a row in which a write has conflicted, by the name of the Node; none for the route.
    conflicts: BTreeMap<Option<String>, u32>,
}

/// The failures of one plan: the first of each kind, where a fact that was outdated is one only if there is no other.
#[derive(Debug, Default)]
pub struct Applied {
    /// Of the default route.
    pub route: Option<Error>,
    /// Of Nodes and their Jobs.
    pub nodes: Option<Error>,
    /// The Nodes on which a write has failed, apart from outdated facts.
    pub failed_nodes: BTreeSet<String>,
}

impl Applied {
    /// The failure that decides when the next reconciliation begins.
    #[must_use]
    pub fn into_error(self) -> Option<Error> {
        match (self.route, self.nodes) {
            (Some(route), Some(nodes)) if route.is_outdated() => Some(nodes),
            (route, nodes) => route.or(nodes),
        }
    }

    fn failed(&mut self, action: &Action, error: Error) {
        let first = if is_route(action) { &mut self.route } else { &mut self.nodes };
        if !is_route(action) && !error.is_outdated() {
            self.failed_nodes.insert(action.node().name.clone());
        }
        if first.as_ref().is_none_or(|first| first.is_outdated() && !error.is_outdated()) {
            *first = Some(error);
        }
    }
}

/// Whether it writes to the cloud.
#[must_use]
pub fn is_route(action: &Action) -> bool {
    matches!(action, Action::MoveRoute { .. } | Action::RemoveRoute { .. })
}

impl Apply<'_> {
    /// Runs the plan.
    ///
    /// # Errors
    /// [`Error::NotLeading`]. Other failures are part of the result; a plan that was not finished because of [`RECONCILE_BUDGET`] is
    /// outdated.
    pub async fn run(&self, plan: &Plan<Action>, memory: &mut Memory) -> Result<Applied, Error> {
        let started = Instant::now();
        let mut versions = BTreeMap::new();
        let (mut failures, mut begun) = (Failures::default(), BTreeSet::new());
        let mut applied = Applied::default();
        let Memory { resume, conflicts: before } = std::mem::take(memory);
        let any_shared = plan.steps.iter().any(|step| step.action.is_shared());
        let mut tried = 0;
        let (shared, single) = from_resumed(&plan.steps, resume.as_deref());
        let single = single.into_iter().map(|step| (true, step));
        for (single, step) in shared.iter().map(|step| (false, step)).chain(single) {
            let node = step.action.node();
            if failures.prevent(&step.action) {
                continue;
            }
            let late = started.elapsed() >= self.longest;
            // No other step depends on these labels. The next reconciliation plans the rest, in the same order.
            if late && tried > 0 && !any_shared && is_label(&step.action) {
                applied.failed(
                    &step.action,
                    Error::Outdated("labels are left for the next reconcile".to_owned()),
                );
                continue;
            }
            if single && !begun.contains(&node.name) {
                // One Node a reconciliation, whatever came before it.
                if late && !begun.is_empty() {
                    if memory.resume.is_none() {
                        memory.resume = Some(node.name.clone());
                        let taken = self.longest.as_secs();
                        let left = format!(
                            "the reconcile has taken {taken} s, and Node {} is for the next one",
                            node.name
                        );
                        applied.failed(&step.action, Error::Outdated(left));
                    }
                    continue;
                }
                begun.insert(node.name.clone());
            }
            tried += 1;
            let scope = (!is_route(&step.action)).then(|| node.name.clone());
            let conflicts = before.get(&scope).copied().unwrap_or(0);
            match self.step(step, &mut versions, conflicts).await {
                Ok(()) => {}
                Err(Error::NotLeading) => return Err(Error::NotLeading),
                Err(error) => {
                    let is_conflict = error.is_conflict();
                    failures.record(&step.action, is_conflict);
                    if is_conflict {
                        memory.conflicts.insert(scope, conflicts.saturating_add(1));
                    }
                    applied.failed(&step.action, error);
                }
            }
        }
        Ok(applied)
    }

    /// `conflicts`: in how many reconciliations before this one the step's Node, or the route, has conflicted.
    async fn step(
        &self,
        step: &Step<Action>,
        versions: &mut BTreeMap<String, String>,
        conflicts: u32,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let act = async {
            match self.act(&step.action, versions).await {
                Err(Error::Outdated(fact)) if conflicts + 1 >= CONFLICTS => Err(Error::Conflict(fact)),
                result => result,
            }
        };
        let result = self.executor.execute(step, act).await;
        if result.is_ok() {
            self.metrics.acted(&step.action, started.elapsed());
        }
        result
    }

    async fn act(&self, action: &Action, versions: &mut BTreeMap<String, String>) -> Result<(), Error> {
        match action {
            Action::MoveRoute { network, from, to, server, node, .. } => {
                self.check(node, versions).await?;
                route::move_to(self.hcloud, *network, *from, *to, *server).await
            }
            Action::RemoveRoute { network, gateway, node } => {
                self.check(node, versions).await?;
                route::remove(self.hcloud, *network, *gateway).await
            }
            Action::CreateJob { node, job } => job::create(self.client, self.config, node, job).await,
            Action::DeleteJob { job, uid, .. } => job::delete(self.client, self.config, job, uid).await,
            Action::SetRole { node }
            | Action::ClearRole { node }
            | Action::LabelFloatingIP { node, .. }
            | Action::RecordPending { node, .. }
            | Action::RecordSetup { node, .. }
            | Action::RecordTeardown { node, .. }
            | Action::RecordFailure { node, .. }
            | Action::Forget { node } => self.patch(action, node, versions).await,
        }
    }

    /// Checks that the Node is as the decision had it, for a write that has no precondition. Later steps carry its newest version.
    async fn check(&self, node: &NodeRef, versions: &mut BTreeMap<String, String>) -> Result<(), Error> {
        let seen = self.snapshot.nodes.iter().find(|seen| seen.uid == node.uid);
        let version = node::check(self.client, self.config, node, seen, version_of(node, versions)).await?;
        versions.insert(node.name.clone(), version);
        Ok(())
    }

    async fn patch(
        &self,
        action: &Action,
        node: &NodeRef,
        versions: &mut BTreeMap<String, String>,
    ) -> Result<(), Error> {
        let version = version_of(node, versions);
        let patched = node::patch(self.client, self.config, action, node, version).await?;
        versions.insert(node.name.clone(), patched);
        Ok(())
    }
}

/// Several steps of one plan may be about one Node: each after its first patch carries the version that the last one made.
fn version_of<'a>(node: &'a NodeRef, versions: &'a BTreeMap<String, String>) -> &'a str {
    versions.get(&node.name).unwrap_or(&node.resource_version)
}

fn is_label(action: &Action) -> bool {
    matches!(action, Action::LabelFloatingIP { .. })
}

/// The steps up to the last one that others rely on, as they were planned, and those of single Nodes after it: first those of
/// `resume` and of the Nodes behind it. What is planned for one Node keeps its order, and so do the labels of floating IPs, of which
/// a new holder gets its own before the old one loses it.
fn from_resumed<'a>(
    steps: &'a [Step<Action>],
    resume: Option<&str>,
) -> (&'a [Step<Action>], Vec<&'a Step<Action>>) {
    // The role label leaves the former primary right after the new one has it: it does not wait for the former one's turn.
    let keeps_order = |action: &Action| !action.is_job_work() || is_label(action);
    let end = steps.iter().rposition(|step| keeps_order(&step.action)).map_or(0, |last| last + 1);
    let (shared, single) = steps.split_at(end);
    let name = |step: &Step<Action>| step.action.node().name.clone();
    let before: BTreeSet<String> =
        single.iter().map(name).take_while(|node| Some(node.as_str()) != resume).collect();
    let (late, mut first): (Vec<_>, Vec<_>) =
        single.iter().partition(|step| before.contains(&step.action.node().name));
    first.extend(late);
    (shared, first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Reason;

    fn node(name: &str) -> NodeRef {
        NodeRef { name: name.into(), uid: "uid".into(), resource_version: "1".into() }
    }

    #[test]
    fn role_labels_come_before_the_work_of_single_nodes_which_begins_at_the_resumed_one() {
        let steps = [
            Action::SetRole { node: node("b") },
            Action::ClearRole { node: node("a") },
            Action::Forget { node: node("a") },
            Action::Forget { node: node("b") },
            Action::Forget { node: node("c") },
        ]
        .map(|action| Step { action, because: Reason::CleanupRequested });
        for (resume, order) in
            [(Some("b"), ["b", "c", "a"]), (None, ["a", "b", "c"]), (Some("gone"), ["a", "b", "c"])]
        {
            let (shared, single) = from_resumed(&steps, resume);
            assert_eq!(
                shared.iter().map(|step| &step.action).collect::<Vec<_>>(),
                [&steps[0].action, &steps[1].action]
            );
            let names: Vec<&str> = single.iter().map(|step| step.action.node().name.as_str()).collect();
            assert_eq!(names, order, "{resume:?}");
        }
    }
}
