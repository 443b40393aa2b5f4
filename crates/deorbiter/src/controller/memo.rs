//! The state of one Deorbit that a process keeps between two reconciliations. All of it can be lost: it is read or
//! tried again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::api::SecretKeyRef;
use common::api::deorbit::{Deorbit, DeorbitSpec, Recorded};
use common::cloud::openstack::{self, Cloud, Credentials};
use common::events::Events;
use common::secret::{Kept, KubeconfigClient, SecretData};
use kube::Client;

use super::Context;
use super::sample::Sample;
use crate::apply::{Place, Ran};
use crate::observe::snapshot::Unread;

/// See the module.
pub struct Memo {
    /// Reports each problem of this Deorbit once.
    pub events: Events,
    /// The error of the last try of each action that failed, by the action's key.
    pub failures: BTreeMap<String, String>,
    /// The first step that the last reconciliation did not try.
    pub next: Option<Place>,
    /// Reconciliations in a row in which an action failed.
    pub failures_in_a_row: u32,
    /// The longest `Retry-After` of OpenStack in this reconciliation.
    pub retry_after: Option<Duration>,
    /// When a reconciliation last wrote or did something.
    pub changed_at: Instant,
    /// The records as stored with this resourceVersion.
    pub records: Option<(String, Vec<Arc<Recorded>>)>,
    /// The Deorbit as it was cached when the last reconciliation began.
    pub observed: Option<Arc<Deorbit>>,
    /// The resources in OpenStack that are polled until the next reconciliation.
    pub sample: Option<Sample>,
    target: KubeconfigClient,
    cloud: Kept<Cloud>,
}

impl Memo {
    /// An empty one.
    #[must_use]
    pub fn new(events: Events) -> Memo {
        Memo {
            events,
            failures: BTreeMap::new(),
            next: None,
            failures_in_a_row: 0,
            retry_after: None,
            changed_at: Instant::now(),
            records: None,
            observed: None,
            sample: None,
            target: KubeconfigClient::default(),
            cloud: Kept::default(),
        }
    }

    /// The client of the target; the same one until the kubeconfig in its Secret changes.
    ///
    /// # Errors
    /// Why there is none, for a person. Also where the management cluster does not respond: that is no outage of the target.
    pub async fn target(
        &mut self,
        context: &Context,
        namespace: &str,
        spec: &DeorbitSpec,
    ) -> Result<Client, Unread> {
        let Some(source) = &spec.kubeconfig else { return Ok(context.runtime.client.clone()) };
        let SecretKeyRef { name, key } = &source.secret_ref;
        let client = self.target.get(&context.runtime, namespace, name, key).await;
        client.map_err(|error| Unread::Refused(error.to_string()))
    }

    /// The client of the project; the same one until its Secret changes. None where no credentials are named.
    ///
    /// # Errors
    /// Why there is none although credentials are named, for a person. Also where the management cluster does not respond: that
    /// is no outage of OpenStack.
    pub async fn cloud(
        &mut self,
        context: &Context,
        namespace: &str,
        spec: &DeorbitSpec,
    ) -> Result<Option<Cloud>, Unread> {
        let Some(identity) = spec.openstack.as_ref().map(|openstack| &openstack.identity_ref) else {
            return Ok(None);
        };
        let name = &identity.name;
        let secret = SecretData::read(&context.runtime.client, namespace, name).await;
        let secret = secret.map_err(|error| Unread::Refused(error.to_string()))?;
        if let Some(cloud) = self.cloud.get(secret.digest()) {
            return Ok(Some(cloud));
        }
        let refuse = |why: String| Unread::Refused(format!("Secret {namespace}/{name}: {why}"));
        let region = identity.region.as_deref().filter(|region| !region.is_empty());
        let credentials = Credentials::from_secret(secret.data(), &identity.cloud_name, region)
            .map_err(|error| refuse(error.to_string()))?;
        let cloud = connect(context, &credentials).map_err(|error| refuse(error.to_string()))?;
        Ok(Some(self.cloud.set(secret.digest(), cloud)))
    }

    /// Records the results of a reconciliation's actions.
    pub fn record(&mut self, ran: Ran) {
        self.failures_in_a_row = failures_in_a_row(self.failures_in_a_row, &ran);
        self.next = ran.next;
        self.retry_after = self.retry_after.max(ran.retry_after);
        for (key, result) in ran.results {
            match result {
                Some(error) => drop(self.failures.insert(key, error)),
                None => drop(self.failures.remove(&key)),
            }
        }
    }
}

/// Reconciliations in a row in which an action failed.
fn failures_in_a_row(before: u32, ran: &Ran) -> u32 {
    let failed = ran.results.values().filter(|result| result.is_some()).count();
    match ran.next {
        _ if failed == 0 => 0,
        // Only some of the steps were tried. The others must not wait long because of those that fail.
        Some(_) if failed < ran.results.len() => 1,
        _ => before.saturating_add(1),
    }
}

fn connect(context: &Context, credentials: &Credentials) -> Result<Cloud, openstack::Error> {
    Cloud::new(credentials, &context.runtime.program.user_agent(), &context.openstack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backoff_grows_only_where_every_step_that_was_tried_fails() {
        let ran = |failures: &[bool], more: bool| Ran {
            results: failures
                .iter()
                .enumerate()
                .map(|(key, failed)| (key.to_string(), failed.then(|| "no".to_owned())))
                .collect(),
            next: more.then(|| ("DeleteObject", "x".to_owned())),
            retry_after: None,
        };
        let both = [true, false];
        for (before, ran, after) in [
            (3, ran(&[false], false), 0),
            (3, ran(&[false], true), 0),
            (3, ran(&[], false), 0),
            (3, ran(&both, false), 4),
            (3, ran(&both, true), 1),
            (3, ran(&[true], true), 4),
        ] {
            assert_eq!(failures_in_a_row(before, &ran), after, "{ran:?}");
        }
    }
}
