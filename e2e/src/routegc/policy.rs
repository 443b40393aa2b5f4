//! The RouteGCs of an environment, their status and their Events.

use anyhow::{Context, Result};
use common::api::routegc::{ALLOW_ANNOTATION, RouteGC, RouteGCStatus};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{PODS, TestEnv};
use crate::natgw::wait_for;

impl TestEnv {
    /// A RouteGC of the environment's router that confirms in two reconciliations without a minimum age; `more` is merged into its spec.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn policy(&self, name: &str, more: Value) -> Result<RouteGC> {
        let mut spec = json!({
            "identityRef": { "name": "cloud-config" },
            "routerID": self.project.router,
            "podCIDRs": [PODS],
            "mode": "Enforce",
            "interval": "1h",
            "safety": { "minAge": "0s", "allNextHopsArePorts": true },
        });
        merge(&mut spec, more);
        let object = json!({
            "apiVersion": "routegc.perimeter.dev/v1alpha1", "kind": "RouteGC",
            "metadata": { "name": name, "namespace": self.namespace }, "spec": spec,
        });
        let object: RouteGC = serde_json::from_value(object)?;
        Ok(self.policies().create(&PostParams::default(), &object).await?)
    }

    /// The RouteGCs of the environment.
    #[must_use]
    pub fn policies(&self) -> Api<RouteGC> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Merges `patch` into a RouteGC.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<()> {
        self.policies().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Approves one list that exceeds the threshold.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn allow(&self, name: &str, hash: &str) -> Result<()> {
        self.patch(name, json!({ "metadata": { "annotations": { ALLOW_ANNOTATION: hash } } })).await
    }

    /// The status of a RouteGC.
    ///
    /// # Errors
    /// It is not there.
    pub async fn status(&self, name: &str) -> Result<RouteGCStatus> {
        Ok(self.policies().get(name).await?.status.unwrap_or_default())
    }

    /// Reason of one of its conditions, with a `!` before it if the condition is not True.
    ///
    /// # Errors
    /// There is no such RouteGC or condition.
    pub async fn reason(&self, name: &str, kind: &str) -> Result<String> {
        let status = self.status(name).await?;
        let condition = status.conditions.iter().find(|one| one.kind == kind);
        let condition = condition.with_context(|| format!("no condition {kind}"))?;
        let sign = if condition.status == common::conditions::Status::True { "" } else { "!" };
        Ok(format!("{sign}{}", condition.reason))
    }

    /// Waits until a RouteGC's Ready has this reason.
    ///
    /// # Errors
    /// The deadline has passed.
    pub async fn wait_for_reason(&self, name: &str, reason: &str) -> Result<()> {
        wait_for(&format!("{name} is {reason}"), || async {
            Ok(self.reason(name, "Ready").await.is_ok_and(|now| now == reason))
        })
        .await
    }

    /// Reasons and notes of the Events of the environment.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn events(&self) -> Result<Vec<(String, String)>> {
        let api = Api::<Event>::namespaced(self.client.clone(), &self.namespace);
        let events = api.list(&ListParams::default()).await?.items;
        let text = |event: Event| (event.reason.unwrap_or_default(), event.note.unwrap_or_default());
        Ok(events.into_iter().map(text).collect())
    }
}

fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more,
    }
}
