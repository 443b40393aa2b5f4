//! The only writer. A failed step is recorded and the others are tried nevertheless: one object that cannot be deleted must not
//! keep the rest of a cluster in the cloud.

pub mod block;
pub mod cloud;
pub mod object;
pub mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use common::api::deorbit::Deorbit;
use common::cloud::openstack::Cloud;
use common::events::Events;
use common::executor::{ActionError as _, Executor};
use common::plan::{Action as _, Plan, Step};
use common::runtime::Runtime;
use kube::Client;

use crate::error::Error;
use crate::metrics::Metrics;
use crate::plan::{Act, Action};

/// Events of one kind of action in one reconciliation; the rest is only in the log. A cluster may hold ten thousand claims, and each Event is a write.
const EVENTS: usize = 20;

/// How often the Deorbit is read again between two steps: the steps of a large cluster take minutes, and protecting or deleting the
/// Deorbit must stop them.
const RECHECK_INTERVAL: Duration = Duration::from_secs(5);

/// The results of the steps of one reconciliation.
#[derive(Debug, Default)]
pub struct Ran {
    /// The error of each action that was tried, by its key; None where it succeeded.
    pub results: BTreeMap<String, Option<String>>,
    /// Not all steps were tried.
    pub is_partial: bool,
    /// The longest `Retry-After` of OpenStack.
    pub retry_after: Option<Duration>,
}

/// Executes the steps of one reconciliation.
pub struct Apply<'a> {
    /// The cluster that the Deorbit is in.
    pub management: &'a Client,
    /// The cluster that is cleaned up, where there is a client for it.
    pub target: Option<&'a Client>,
    /// The project of that cluster.
    pub cloud: Option<&'a Cloud>,
    /// The Deorbit, as the plan was made from it.
    pub deorbit: &'a Deorbit,
    /// Asked before each step whether this process leads, and whether it was asked to end: the next process does the rest.
    pub runtime: &'a Runtime,
    /// Reports each step.
    pub events: &'a Events,
    /// Counts each step.
    pub metrics: &'a Metrics,
}

/// The server that executes an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Server {
    Management,
    Target,
    Cloud,
}

impl Server {
    fn of(act: &Act) -> Server {
        match act {
            Act::AddFinalizer | Act::RemoveFinalizer | Act::DeleteDeorbit => Server::Management,
            Act::Block { .. }
            | Act::Unblock { .. }
            | Act::DeleteObject { .. }
            | Act::SetDeletePolicy { .. } => Server::Target,
            Act::DeleteInCloud { .. }
            | Act::DeleteApplicationCredential { .. }
            | Act::RemoveRoutes { .. } => Server::Cloud,
        }
    }
}

impl<'a> Apply<'a> {
    /// Runs the steps until the Deorbit has changed. Those that failed in the last reconciliation (`failed`, by their keys) come last:
    /// steps that time out must not use up the time of the others. After a server did not respond once, its other steps are left
    /// out: each could wait as long.
    ///
    /// # Errors
    /// Only that this process does not lead any more.
    pub async fn run(&self, plan: &Plan<Action>, failed: &BTreeMap<String, String>) -> Result<Ran, Error> {
        let mut checked = Instant::now();
        let mut ran = Ran::default();
        let mut published = BTreeMap::<&'static str, usize>::new();
        let mut silent = BTreeSet::new();
        let mut steps: Vec<&Step<Action>> = plan.steps.iter().collect();
        steps.sort_by_key(|step| failed.contains_key(&step.action.act.key()));
        for step in steps {
            let server = Server::of(&step.action.act);
            if silent.contains(&server) {
                ran.is_partial = true;
                continue;
            }
            let is_due = checked.elapsed() >= RECHECK_INTERVAL;
            if self.runtime.shutdown.is_cancelled()
                || (is_due && !store::is_unchanged(self.management, self.deorbit).await)
            {
                ran.is_partial = true;
                break;
            }
            if is_due {
                checked = Instant::now();
            }
            let published = published.entry(step.action.name()).or_default();
            *published += 1;
            let result = self.step(step, *published <= EVENTS).await;
            if let Err(Error::NotLeading) = result {
                return result.map(|()| ran);
            }
            let retry_after = result.as_ref().err().and_then(Error::retry_after);
            ran.retry_after = ran.retry_after.max(retry_after);
            if retry_after.is_some() || result.as_ref().is_err_and(Error::is_no_response) {
                silent.insert(server);
            }
            // A change by another client is no failure: the next reconciliation decides on the new version.
            if !result.as_ref().is_err_and(Error::is_outdated) {
                ran.results.insert(step.action.act.key(), result.err().map(|error| error.to_string()));
            }
        }
        Ok(ran)
    }

    async fn step(&self, step: &Step<Action>, publish: bool) -> Result<(), Error> {
        let action = async {
            let started = Instant::now();
            let result = self.act(&step.action.act).await;
            let failed = result.as_ref().err().filter(|error| !error.is_outdated());
            self.metrics.acted(step.action.name(), started.elapsed(), failed);
            result
        };
        let events = if publish { self.events.clone() } else { self.events.log_only() };
        Executor { events: &events, ..Executor::from(self.runtime) }.execute(step, action).await
    }

    async fn act(&self, act: &Act) -> Result<(), Error> {
        let target = || self.target.ok_or(Error::NoTarget);
        let cloud = || self.cloud.ok_or(Error::NoCloud);
        let metadata = &self.deorbit.metadata;
        let text = |field: &'a Option<String>| field.as_deref().unwrap_or_default();
        let (namespace, name, uid) = (text(&metadata.namespace), text(&metadata.name), text(&metadata.uid));
        match act {
            Act::AddFinalizer => store::set_finalizer(self.management, namespace, name, uid, true).await,
            Act::RemoveFinalizer => store::set_finalizer(self.management, namespace, name, uid, false).await,
            Act::DeleteDeorbit => store::delete(self.management, namespace, name, uid).await,
            Act::Block { form } => block::create(target()?, *form, uid).await,
            Act::Unblock { name, seen } => block::remove(target()?, name, seen).await,
            Act::DeleteObject { object, .. } => object::delete(target()?, object).await,
            Act::SetDeletePolicy { object } => object::release(target()?, object).await,
            Act::DeleteInCloud { kind, id, .. } => cloud::delete(cloud()?, *kind, id).await,
            Act::DeleteApplicationCredential { id, user } => {
                // Nothing can be done without it afterwards: a Deorbit that was stopped meanwhile keeps it.
                if !store::is_unchanged(self.management, self.deorbit).await {
                    return Err(Error::Changed { what: format!("delete the application credential {id}") });
                }
                cloud::delete_credential(cloud()?, user, id).await
            }
            Act::RemoveRoutes { asked, recorded, stale } => {
                cloud::remove_routes(cloud()?, asked, recorded, stale).await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::client::Body;

    use super::*;
    use crate::plan::action::{Object, ObjectKind};
    use crate::plan::{Reason, action};

    #[tokio::test]
    async fn a_step_without_a_response_is_tried_last_next_time() {
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let deleted = request.method() == http::Method::DELETE;
            let name = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let slow = deleted && name == "slow";
            if deleted {
                seen.lock().unwrap().push(name);
            }
            let text = r#"{"kind": "Status", "status": "Success"}"#;
            let response = http::Response::new(Body::from(text.as_bytes().to_vec()));
            std::future::ready(if slow {
                Err(std::io::Error::from(std::io::ErrorKind::TimedOut))
            } else {
                Ok(response)
            })
        });
        let client = Client::new(service, "default");
        let runtime = crate::controller::tests::runtime(client.clone());
        let own = Metrics::new(runtime.metrics.clone()).unwrap();
        let spec = serde_json::from_value(serde_json::json!({"inCluster": true})).unwrap();
        let deorbit = Deorbit::new("prod", spec);
        let run = Arc::new(action::about("team", "prod", None));
        let mut plan = Plan::default();
        for name in ["slow", "b", "c"] {
            let object = Object {
                kind: ObjectKind::Pod,
                namespace: "a".into(),
                name: name.into(),
                uid: name.into(),
                version: "1".into(),
            };
            let act = Act::DeleteObject { object, id: None };
            plan.step(Action { run: Arc::clone(&run), act }, Reason::Requested);
        }
        let apply = Apply {
            management: &client,
            target: Some(&client),
            cloud: None,
            deorbit: &deorbit,
            runtime: &runtime,
            events: &runtime.events,
            metrics: &own,
        };
        let first = apply.run(&plan, &BTreeMap::new()).await.unwrap();
        assert_eq!(
            *requests.lock().unwrap(),
            ["slow"],
            "after one request without a response no other is sent"
        );
        requests.lock().unwrap().clear();
        let failed = first.results.into_iter().filter_map(|(key, error)| Some((key, error?))).collect();
        apply.run(&plan, &failed).await.unwrap();
        assert_eq!(*requests.lock().unwrap(), ["b", "c", "slow"]);
    }
}
