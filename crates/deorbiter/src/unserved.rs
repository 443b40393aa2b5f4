//! With `--watch-namespace`, DeorbitBindings are not served: they select objects of the whole cluster. A binding that no deorbiter serves
//! adds no finalizer, so it must not seem to protect anything: its condition Ready becomes False.

use std::time::Duration;

use common::api::deorbit_binding::{DeorbitBinding, DeorbitBindingStatus};
use common::backoff::Backoff;
use common::cache::{Builder, Cache, ObjectKey};
use common::conditions::{self, Seen, Status};
use common::controller::{Controller, Next, Reconciler};
use common::runtime::Runtime;
use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::error::Error;
use crate::names;
use crate::trigger::apply;
use crate::trigger::controller::CONTROLLER;

/// The reason of the condition Ready.
pub const REASON: &str = "NotWatched";

/// After a status that could not be written.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(2), max: Duration::from_secs(60) };

/// Reports each binding that no deorbiter serves, until the process is asked to end.
///
/// # Errors
/// A metric that cannot be registered.
pub async fn run(runtime: &Runtime, namespace: &str) -> anyhow::Result<()> {
    let message = format!(
        "no deorbiter serves it: the one that has found it has --watch-namespace {namespace}, and a binding selects objects of the whole cluster; run one without this flag, or create the Deorbits yourself"
    );
    runtime.status.set("bindings", format!("not served: --watch-namespace {namespace}"));
    // Without a readiness check: the Deorbits of the namespace do not depend on the right to list bindings.
    let api = Api::<DeorbitBinding>::all(runtime.client.clone());
    let bindings = Builder::new(api, &(), &runtime.metrics).start();
    let reconciler = Unserved { runtime: runtime.clone(), bindings: bindings.clone(), message };
    Controller::new(runtime, CONTROLLER, reconciler)
        .backoff(BACKOFF)
        .watches(&bindings, |change, queue| queue.add(change.key()))
        .run()
        .await
}

struct Unserved {
    runtime: Runtime,
    bindings: Cache<DeorbitBinding>,
    message: String,
}

impl Reconciler for Unserved {
    type Key = ObjectKey;
    /// Whether the binding was logged.
    type Memo = bool;
    type Error = Error;

    fn memo(&self, _: &ObjectKey) -> bool {
        false
    }

    async fn reconcile(&self, key: &ObjectKey, is_logged: &mut bool) -> Result<Next, Error> {
        let Some(binding) = self.bindings.get(key) else { return Ok(Next::Gone) };
        let Some(status) = refusal(&binding, &self.message, Timestamp::now()) else {
            return Ok(Next::OnChange);
        };
        if !std::mem::replace(is_logged, true) {
            tracing::warn!(binding = key.name(), "{}", self.message);
        }
        if !self.runtime.leadership.is_leading() {
            return Err(Error::NotLeading);
        }
        apply::write_status(&self.runtime.client, key.name(), status).await?;
        Ok(Next::OnChange)
    }
}

/// The patch of the status; None where the condition is there, or where another deorbiter has reported on the binding: that one serves
/// it.
fn refusal(binding: &DeorbitBinding, message: &str, now: Timestamp) -> Option<Value> {
    let DeorbitBindingStatus { mut conditions, .. } = binding.status.clone().unwrap_or_default();
    let generation = binding.metadata.generation;
    let ready = conditions.iter().find(|one| one.kind == "Ready");
    if ready.is_some_and(|one| one.reason != REASON || one.observed_generation == generation) {
        return None;
    }
    let seen = Seen {
        kind: "Ready",
        status: Status::False,
        observed_generation: generation,
        reason: REASON,
        message: message.to_owned(),
    };
    conditions::set(&mut conditions, seen, now);
    // With the resourceVersion: a deorbiter that serves the binding may have reported since it was read.
    let metadata = json!({ "uid": binding.uid(), "resourceVersion": binding.resource_version() });
    Some(json!({
        "apiVersion": names::API_VERSION, "kind": "DeorbitBinding",
        "metadata": metadata, "status": { "conditions": conditions },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(ready: Option<(&str, i64)>) -> DeorbitBinding {
        let conditions: Vec<Value> = ready
            .into_iter()
            .map(|(reason, generation)| {
                json!({ "type": "Ready", "status": "False", "reason": reason, "message": "",
                    "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z" })
            })
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "DeorbitBinding",
            "metadata": { "name": "klusters", "uid": "u", "resourceVersion": "7", "generation": 2 },
            "spec": { "targetRef": { "apiVersion": "kubernikus.sap.cc/v1", "kind": "Kluster" }, "template": { "spec": {} } },
            "status": { "conditions": conditions },
        }))
        .unwrap()
    }

    #[test]
    fn only_a_binding_that_no_deorbiter_has_reported_on_is_refused() {
        for (ready, refused) in [
            (None, true),
            (Some((REASON, 1)), true),
            (Some((REASON, 2)), false),
            (Some(("InForce", 1)), false),
            (Some(("Invalid", 2)), false),
        ] {
            let patch = refusal(&binding(ready), "why", Timestamp::UNIX_EPOCH);
            assert_eq!(patch.is_some(), refused, "{ready:?}");
            let Some(patch) = patch else { continue };
            assert_eq!(patch["metadata"], json!({ "uid": "u", "resourceVersion": "7" }));
            let conditions = patch["status"]["conditions"].as_array().unwrap();
            assert_eq!(conditions.len(), 1);
            assert_eq!(
                (&conditions[0]["reason"], &conditions[0]["status"]),
                (&json!(REASON), &json!("False"))
            );
            assert_eq!(conditions[0]["observedGeneration"], 2);
        }
    }
}
