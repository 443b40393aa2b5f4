//! The only writer: runs a Plan's steps in their order.
//!
//! A failed step ends what is planned for its Node; a failed step that others rely on (the route, the new primary's role)
//! ends the walk. Before each step the process asks itself whether it still leads.

pub mod job;
pub mod node;
pub mod route;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use common::cloud::hcloud::Hcloud;
use common::events::Events;
use common::leader::Leadership;
use common::metrics::StepResult;
use common::plan::{Action as _, Plan, Reason as _, Step};

use crate::config::Config;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::plan::Action;
use crate::plan::action::NodeRef;

/// What acts are carried out with.
pub struct Apply<'a> {
    /// Settings in force.
    pub config: &'a Config,
    /// Kubernetes.
    pub client: &'a kube::Client,
    /// The cloud.
    pub hcloud: &'a Hcloud,
    /// Asked before each step.
    pub leadership: &'a Leadership,
    /// Told after each step.
    pub events: &'a Events,
    /// Counted after each step.
    pub metrics: &'a Metrics,
}

impl Apply<'_> {
    /// Runs the plan. Returns how many steps were done.
    ///
    /// # Errors
    /// The first failure that a person or a wait has to mend, else the first outdated fact.
    pub async fn run(&self, plan: &Plan<Action>) -> Result<usize, Error> {
        let mut versions = BTreeMap::new();
        let mut blocked = BTreeSet::new();
        let mut failure: Option<Error> = None;
        let mut done = 0;
        for step in &plan.steps {
            let node = step.action.node();
            if blocked.contains(&node.name) {
                if step.action.is_shared() {
                    break;
                }
                continue;
            }
            if !self.leadership.is_leading() {
                return Err(Error::NotLeading);
            }
            match self.step(step, &mut versions).await {
                Ok(()) => done += 1,
                Err(error) => {
                    blocked.insert(node.name.clone());
                    if failure.as_ref().is_none_or(Error::is_outdated) {
                        failure = Some(error);
                    }
                    if step.action.is_shared() {
                        break;
                    }
                }
            }
        }
        failure.map_or(Ok(done), Err)
    }

    async fn step(&self, step: &Step<Action>, versions: &mut BTreeMap<String, String>) -> Result<(), Error> {
        let (action, reason) = (step.action.name(), step.because.code());
        let started = Instant::now();
        let result = self.act(&step.action, versions).await;
        match &result {
            Ok(()) => {
                self.metrics.common.step(action, reason, StepResult::Done);
                self.metrics.acted(&step.action, started.elapsed());
                self.events.done(step).await;
            }
            Err(error) if error.is_outdated() => {
                tracing::debug!(action, reason, node = %step.action.node().name, %error, "not done: {}", step.action);
            }
            Err(error) => {
                self.metrics.common.step(action, reason, StepResult::Failed);
                self.events.failed(step, error).await;
            }
        }
        result
    }

    async fn act(&self, action: &Action, versions: &mut BTreeMap<String, String>) -> Result<(), Error> {
        match action {
            Action::MoveRoute { network, from, to, server, node } => {
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
            | Action::MarkPending { node, .. }
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
