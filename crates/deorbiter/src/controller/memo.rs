//! What a process remembers of one Deorbit between two reconciles. All of it can be lost: it is found out or tried again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::api::deorbit::{Deorbit, DeorbitSpec, Recorded};
use common::cloud::openstack::{self, Cloud, Credentials};
use common::cluster::error_chain;
use common::events::Events;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use sha2::{Digest as _, Sha256};

use super::Context;
use super::sample::Sample;
use crate::apply::{Place, Ran};
use crate::observe::snapshot::Unread;

/// See the module.
pub struct Memo {
    /// Tells what is found once for this Deorbit.
    pub events: Events,
    /// What the last try of an act failed with, by the act's key.
    pub failures: BTreeMap<String, String>,
    /// The step that the last reconcile had no time for.
    pub next: Option<Place>,
    /// Reconciles in a row in which something failed.
    pub failures_in_a_row: u32,
    /// The wait that OpenStack asked for in this reconcile (`Retry-After`).
    pub retry_after: Option<Duration>,
    /// When a reconcile last wrote or did something.
    pub changed_at: Instant,
    /// The records as stored with this resourceVersion.
    pub records: Option<(String, Vec<Arc<Recorded>>)>,
    /// The Deorbit as it was cached when the last reconciliation began.
    pub observed: Option<Arc<Deorbit>>,
    /// What is polled until the next reconciliation.
    pub sample: Option<Sample>,
    target: Option<(Vec<u8>, Client)>,
    cloud: Option<(Vec<u8>, Cloud)>,
}

impl Memo {
    /// Nothing is known yet.
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
            target: None,
            cloud: None,
        }
    }

    /// The client of the target; made anew when its Secret changes.
    ///
    /// # Errors
    /// Why there is none, for a person.
    pub async fn target(
        &mut self,
        context: &Context,
        namespace: &str,
        spec: &DeorbitSpec,
    ) -> Result<Client, Unread> {
        let Some(source) = &spec.kubeconfig else { return Ok(context.runtime.client.clone()) };
        let (name, key) = (&source.secret_ref.name, &source.secret_ref.key);
        let data = read(&context.runtime.client, namespace, name).await?;
        let bytes = data
            .get(key)
            .ok_or_else(|| Unread::Refused(format!("Secret {namespace}/{name} has no key {key}")))?;
        let print = Sha256::digest(bytes).to_vec();
        if let Some((known, client)) = &self.target
            && *known == print
        {
            return Ok(client.clone());
        }
        let refuse = |why: String| Unread::Refused(format!("Secret {namespace}/{name}, key {key}: {why}"));
        let text = std::str::from_utf8(bytes).map_err(|_| refuse("no text".to_owned()))?;
        let program = &context.runtime.program;
        let client = common::cluster::of_kubeconfig(text, program, &context.runtime.metrics)
            .await
            .map_err(|error| refuse(error_chain(&*error)))?;
        self.target = Some((print, client.clone()));
        Ok(client)
    }

    /// The client of the project; made anew when its Secret changes. None where no credentials are named.
    ///
    /// # Errors
    /// Why there is none although credentials are named, for a person.
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
        let data = read(&context.runtime.client, namespace, name).await?;
        let mut digest = Sha256::new();
        for (key, value) in &data {
            digest.update(format!("{key}\0{}\0", value.len()));
            digest.update(value);
        }
        let print = digest.finalize().to_vec();
        if let Some((known, cloud)) = &self.cloud
            && *known == print
        {
            return Ok(Some(cloud.clone()));
        }
        let refuse = |why: String| Unread::Refused(format!("Secret {namespace}/{name}: {why}"));
        let region = identity.region.as_deref().filter(|region| !region.is_empty());
        let credentials = Credentials::from_secret(&data, &identity.cloud_name, region)
            .map_err(|error| refuse(error.to_string()))?;
        let cloud = connect(context, &credentials).map_err(|error| refuse(error.to_string()))?;
        self.cloud = Some((print, cloud.clone()));
        Ok(Some(cloud))
    }

    /// Takes over how the acts of a reconcile went.
    pub fn learn(&mut self, ran: Ran) {
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

/// Reconciles in a row in which something failed.
fn failures_in_a_row(before: u32, ran: &Ran) -> u32 {
    let failed = ran.results.values().filter(|result| result.is_some()).count();
    match ran.next {
        _ if failed == 0 => 0,
        // Only a part of the same steps was tried, and the others do not wait long for those that fail.
        Some(_) if failed < ran.results.len() => 1,
        _ => before.saturating_add(1),
    }
}

fn connect(context: &Context, credentials: &Credentials) -> Result<Cloud, openstack::Error> {
    Cloud::new(credentials, &context.runtime.program.user_agent(), &context.openstack)
}

async fn read(client: &Client, namespace: &str, name: &str) -> Result<BTreeMap<String, Vec<u8>>, Unread> {
    let secret = Api::<Secret>::namespaced(client.clone(), namespace).get(name).await;
    // Also where the management cluster does not respond: that is no outage of the target or of OpenStack.
    let secret = secret.map_err(|error| {
        Unread::Refused(format!("Secret {namespace}/{name} cannot be read: {}", error_chain(&error)))
    })?;
    Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_whole_waits_ever_longer_and_one_of_many_does_not() {
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
