//! The loop around the reconcile of the bindings: something changed, or some time went by → observe → plan → apply → status.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::Deorbit;
use common::api::deorbit_binding::{DeorbitBinding, DeorbitBindingStatus};
use common::conditions;
use common::events::Events;
use common::plan::{Action as _, Plan, Reason as _};
use common::runtime::Runtime;
use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::json;
use tokio::sync::Notify;

use super::action::Action;
use super::error::Error;
use super::metrics::Metrics;
use super::observe::{Observer, kind_of};
use super::plan::{self, Decision, Standing};
use super::watches::Watches;
use super::{apply, names};

/// Changes come in bursts; one reconcile serves them all.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// Without any change: a kind may have been installed, a right given, a namespace labelled.
const POLL: Duration = Duration::from_secs(20);
/// After a reconcile that failed, or that could not read all: long enough for an API server that restarts, short enough for a person who waits.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Keeps the bindings until the process is asked to end.
///
/// # Errors
/// A metric that cannot be registered, or a cache that ended.
pub async fn run(runtime: Runtime) -> anyhow::Result<()> {
    let metrics = Metrics::new(runtime.metrics.registry())?;
    let changed = Arc::new(Notify::new());
    let bindings = Api::<DeorbitBinding>::all(runtime.client.clone());
    let deorbits = Api::<Deorbit>::all(runtime.client.clone());
    let bindings = runtime.cache(bindings).start();
    let deorbits = runtime.cache(deorbits).named("deorbits-of-bindings").trim(slim).start();
    let (binding, deorbit) = (Arc::clone(&changed), Arc::clone(&changed));
    bindings.subscribe(move |_| binding.notify_one());
    deorbits.subscribe(move |_| deorbit.notify_one());
    let work = async {
        tokio::select! {
            biased;
            () = runtime.shutdown.cancelled() => return Ok(()),
            _ = async { tokio::join!(bindings.synced(), deorbits.synced()) } => {}
        }
        if !runtime.leading().await {
            return Ok(());
        }
        let watches = Watches::new(runtime.client.clone(), Arc::clone(&changed));
        let mut reconciler = Reconciler {
            observer: Observer::new(runtime.client.clone(), watches),
            // Of its own: what a pass of another loop does not find again would be told again.
            events: runtime.events.scoped(),
            runtime: &runtime,
            metrics: &metrics,
        };
        loop {
            let wait = match reconciler.reconcile(&bindings.list(), &deorbits.list()).await {
                Ok(()) if reconciler.observer.unread => RETRY_AFTER,
                Ok(()) => POLL,
                Err(error) => {
                    if !error.is_outdated() {
                        tracing::warn!(%error, "reconcile failed");
                    }
                    RETRY_AFTER
                }
            };
            tokio::select! {
                biased;
                () = runtime.shutdown.cancelled() => return Ok(()),
                () = async { changed.notified().await; tokio::time::sleep(DEBOUNCE).await } => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    };
    work.await
}

/// Takes from a Deorbit what a binding does not look at.
fn slim(deorbit: &mut Deorbit) {
    deorbit.metadata.managed_fields = None;
    deorbit.metadata.annotations = None;
    if let Some(status) = &mut deorbit.status {
        *status = common::api::deorbit::DeorbitStatus { phase: status.phase, ..Default::default() };
    }
}

struct Reconciler<'a> {
    runtime: &'a Runtime,
    metrics: &'a Metrics,
    events: Events,
    observer: Observer,
}

impl Reconciler<'_> {
    async fn reconcile(
        &mut self,
        bindings: &[Arc<DeorbitBinding>],
        deorbits: &[Arc<Deorbit>],
    ) -> Result<(), Error> {
        let snapshot = self.observer.observe(bindings, deorbits).await;
        let Decision { plan, standings } = plan::plan(&snapshot);
        self.metrics.observed(&standings);
        self.runtime.status.set("bindings", plan.to_string());
        self.events.found(&plan.problems);
        let applied = self.apply(bindings, &plan).await;
        for binding in bindings {
            if let Some(standing) = standings.get(&binding.name_any()) {
                self.report(binding, standing).await?;
            }
        }
        applied
    }

    /// Each step is about an object of its own: one that fails stops no other.
    async fn apply(&mut self, bindings: &[Arc<DeorbitBinding>], plan: &Plan<Action>) -> Result<(), Error> {
        let kinds: BTreeMap<String, _> =
            bindings.iter().map(|binding| (binding.name_any(), kind_of(binding))).collect();
        let generations: BTreeMap<String, Option<i64>> =
            bindings.iter().map(|binding| (binding.name_any(), binding.metadata.generation)).collect();
        let mut failure = None;
        for step in &plan.steps {
            if !self.runtime.leadership.is_leading() {
                return Err(Error::NotLeading);
            }
            let kind = match &step.action {
                Action::GuardBinding { .. } => None,
                Action::ReleaseBinding { binding, .. } => kinds.get(binding).cloned(),
                Action::Bind { target, .. }
                | Action::Release { target, .. }
                | Action::CreateDeorbit { target, .. }
                | Action::AbortDeorbit { target, .. } => {
                    Some((target.api_version.to_owned(), target.kind.to_owned()))
                }
            };
            let kind = kind.and_then(|kind| self.observer.watches.resource(&kind));
            let (action, reason) = (step.action.name(), step.because.code());
            match apply::act(&self.runtime.client, &step.action, kind).await {
                Ok(()) => {
                    self.runtime.metrics.action(action, reason, common::metrics::ActionResult::Done);
                    self.events.done(step);
                }
                Err(error) if error.is_outdated() => {
                    tracing::debug!(action, reason, %error, "not done: {}", step.action);
                    failure = failure.or(Some(error));
                }
                Err(error) => {
                    self.runtime.metrics.action(action, reason, common::metrics::ActionResult::Failed);
                    self.events.failed(step, &error);
                    if let (Action::CreateDeorbit { target, resource_version, binding, .. }, Some(why)) =
                        (&step.action, error.refusal())
                    {
                        let generation = generations.get(binding).copied().flatten();
                        self.observer.refused(&target.uid, resource_version, generation, why.to_owned());
                    }
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Writes the status where it differs.
    async fn report(&self, binding: &DeorbitBinding, standing: &Standing) -> Result<(), Error> {
        let old = binding.status.clone().unwrap_or_default();
        let mut conditions = old.conditions.clone();
        conditions::set(&mut conditions, standing.condition(binding.metadata.generation), Timestamp::now());
        let new = DeorbitBindingStatus {
            observed_generation: binding.metadata.generation,
            bound: standing.bound,
            deorbiting: standing.deorbiting,
            held: standing.held,
            conditions,
        };
        if new == old || !self.runtime.leadership.is_leading() {
            return Ok(());
        }
        let api = Api::<DeorbitBinding>::all(self.runtime.client.clone());
        let params = PatchParams { field_manager: Some(names::MANAGER.to_owned()), ..PatchParams::default() };
        let patch = Patch::Merge(json!({
            "apiVersion": DeorbitBinding::api_version(&()), "kind": DeorbitBinding::kind(&()),
            "metadata": { "uid": binding.metadata.uid }, "status": new,
        }));
        let name = binding.name_any();
        match api.patch_status(&name, &params, &patch).await {
            Ok(_) => Ok(()),
            // It is gone, or another of its name.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            Err(cause) => {
                Err(Error::Kubernetes { what: format!("write the status of DeorbitBinding {name}"), cause })
            }
        }
    }
}
