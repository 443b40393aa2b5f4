//! The clients and errors of one Deorbit that a process keeps between two reconciliations. All of it can be lost: it is made or
//! tried again.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::api::SecretKeyRef;
use common::api::deorbit::DeorbitSpec;
use common::cloud::openstack::{Cloud, Credentials};
use common::events::Events;
use common::secret::{Kept, KubeconfigClient, SecretData, SecretError};
use kube::Client;

use super::Context;
use crate::apply::Ran;
use crate::error::NoClient;
use crate::observe::identity::secret_of;
use crate::observe::snapshot::Unread;

/// See the module.
pub struct Memo {
    /// Reports each problem of this Deorbit once.
    pub events: Events,
    /// UID of the Deorbit that all of this is about.
    pub uid: String,
    /// The error of the last try of each action that failed, by the action's key.
    pub failures: BTreeMap<String, String>,
    /// Reconciliations in a row in which an action failed.
    pub failures_in_a_row: u32,
    /// The longest `Retry-After` of OpenStack in this reconciliation.
    pub retry_after: Option<Duration>,
    /// When a reconciliation last wrote or did something.
    pub changed_at: Instant,
    target: KubeconfigClient,
    cloud: Kept<Cloud>,
}

impl Memo {
    /// An empty one.
    #[must_use]
    pub fn new(events: Events) -> Memo {
        Memo {
            events,
            uid: String::new(),
            failures: BTreeMap::new(),
            failures_in_a_row: 0,
            retry_after: None,
            changed_at: Instant::now(),
            target: KubeconfigClient::default(),
            cloud: Kept::default(),
        }
    }

    /// The client of the target; the same one until the kubeconfig in its Secret changes.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn target(
        &mut self,
        context: &Context,
        namespace: &str,
        spec: &DeorbitSpec,
    ) -> Result<Client, NoClient> {
        let Some(source) = &spec.kubeconfig else { return Ok(context.runtime.client.clone()) };
        let SecretKeyRef { name, key } = &source.secret_ref;
        let client = self.target.get(&context.runtime, namespace, name, key, source.server.as_deref()).await;
        client.map_err(|error| match error {
            SecretError::Missing(_) => NoClient::Unread(Unread::NoSecret(error.to_string())),
            error => error.into(),
        })
    }

    /// The client of the project; the same one until its Secret changes. None where no credentials are named.
    ///
    /// # Errors
    /// Why there is none although credentials are named.
    pub async fn cloud(
        &mut self,
        context: &Context,
        namespace: &str,
        spec: &DeorbitSpec,
    ) -> Result<Option<Cloud>, NoClient> {
        let Some(identity) = spec.openstack.as_ref().map(|openstack| &openstack.identity_ref) else {
            return Ok(None);
        };
        let management = &context.runtime.client;
        let (namespace, name) = secret_of(management, namespace, identity).await?;
        let secret = SecretData::read(management, &namespace, &name).await?;
        if let Some(cloud) = self.cloud.get(secret.digest()) {
            return Ok(Some(cloud));
        }
        let refuse =
            |why: String| NoClient::Unread(Unread::Refused(format!("Secret {namespace}/{name}: {why}")));
        let region = identity.region.as_deref().filter(|region| !region.is_empty());
        let credentials = Credentials::from_secret(secret.data(), &identity.cloud_name, region)
            .map_err(|error| refuse(error.to_string()))?;
        let cloud = Cloud::new(&credentials, &context.runtime.program.user_agent(), &context.openstack)
            .map_err(|error| refuse(error.to_string()))?;
        Ok(Some(self.cloud.set(secret.digest(), cloud)))
    }

    /// The next login asks Keystone whether the credential exists: a token that was issued before does not show that.
    pub fn forget_login(&mut self) {
        self.cloud = Kept::default();
    }

    /// Records the results of a reconciliation's actions.
    pub fn record(&mut self, ran: Ran) {
        let failed = ran.results.values().filter(|result| result.is_some()).count();
        self.failures_in_a_row = match failed {
            0 => 0,
            // The others must not wait long because of those that fail.
            _ if failed < ran.results.len() => 1,
            _ => self.failures_in_a_row.saturating_add(1),
        };
        self.retry_after = self.retry_after.max(ran.retry_after);
        for (key, result) in ran.results {
            match result {
                Some(error) => drop(self.failures.insert(key, error)),
                None => drop(self.failures.remove(&key)),
            }
        }
    }
}
