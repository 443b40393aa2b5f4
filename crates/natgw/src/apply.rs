//! The only writer: runs the actions of a Plan in order.
//!
//! Failures are isolated: the route, the role label and each Node fail separately (see [`Failures`]). Each action is run only
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
    /// [`RECONCILE_BUDGET`]; the longest time that there is where no reconciliation follows that could do the rest.
    pub longest: Duration,
}

impl Apply<'_> {
    /// Runs the plan. Returns the number of actions that were executed. `resume` is the first Node that the last reconciliation did not
    /// reach. It comes first, so that each Node is reached. It becomes the first Node that this reconciliation does not reach.
    ///
    /// # Errors
    /// The first failure, else the first outdated fact. A plan that was not finished because of [`RECONCILE_BUDGET`] is outdated.
    pub async fn run(&self, plan: &Plan<Action>, resume: &mut Option<String>) -> Result<usize, Error> {
        let started = Instant::now();
        let mut versions = BTreeMap::new();
        let (mut failures, mut begun) = (Failures::default(), BTreeSet::new());
        let mut failure: Option<Error> = None;
        let mut done = 0;
        let any_shared = plan.steps.iter().any(|step| step.action.is_shared());
        let mut tried = 0;
        let (shared, single) = from_resumed(&plan.steps, resume.take().as_deref());
        let single = single.into_iter().map(|step| (true, step));
        for (single, step) in shared.iter().map(|step| (false, step)).chain(single) {
            let node = step.action.node();
            if failures.prevent(&step.action) {
                continue;
            }
            let late = started.elapsed() >= self.longest;
            // No other step depends on these labels. The next reconciliation plans the rest, in the same order.
            if late && tried > 0 && !any_shared && is_label(&step.action) {
                failure.get_or_insert(Error::Outdated("labels are left for the next reconcile".to_owned()));
                continue;
            }
            if single && !begun.contains(&node.name) {
                // One Node a reconciliation, whatever came before it.
                if late && !begun.is_empty() {
                    if resume.is_none() {
                        *resume = Some(node.name.clone());
                        let taken = self.longest.as_secs();
                        let left = format!(
                            "the reconcile has taken {taken} s, and Node {} is for the next one",
                            node.name
                        );
                        failure.get_or_insert(Error::Outdated(left));
                    }
                    continue;
                }
                begun.insert(node.name.clone());
            }
            tried += 1;
            match self.step(step, &mut versions).await {
                Ok(()) => done += 1,
                Err(Error::NotLeading) => return Err(Error::NotLeading),
                Err(error) => {
                    failures.record(&step.action, error.is_outdated());
                    if failure.as_ref().is_none_or(Error::is_outdated) {
                        failure = Some(error);
                    }
                }
            }
        }
        failure.map_or(Ok(done), Err)
    }

    async fn step(&self, step: &Step<Action>, versions: &mut BTreeMap<String, String>) -> Result<(), Error> {
        let started = Instant::now();
        let result = self.executor.execute(step, self.act(&step.action, versions)).await;
        if result.is_ok() {
            self.metrics.acted(&step.action, started.elapsed());
        }
        result
    }

    async fn act(&self, action: &Action, versions: &mut BTreeMap<String, String>) -> Result<(), Error> {
        match action {
            Action::MoveRoute { network, from, to, server, node, .. } => {
                node::unchanged(self.client, node, version_of(node, versions)).await?;
                route::move_to(self.hcloud, *network, *from, *to, *server).await
            }
            Action::RemoveRoute { network, gateway, node } => {
                node::unchanged(self.client, node, version_of(node, versions)).await?;
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
