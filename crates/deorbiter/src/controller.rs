//! When each Deorbit is reconciled: when it changes, and at the time that its last reconciliation set. A reconciliation waits only for
//! responses, and each has a deadline: a cluster that does not respond occupies one worker for seconds and delays no other cluster.

pub mod memo;
pub mod reconcile;

use std::sync::Arc;
use std::time::Duration;

use common::api::deorbit::{ApplicationCredential, Deorbit, DeorbitStatus, Phase};
use common::api::identity::IdentityKind;
use common::backoff::Backoff;
use common::cache::{Cache, Change, ObjectKey};
use common::cloud::openstack;
use common::controller::{Controller, Next, Queue, Reconciler};
use common::runtime::Runtime;
use kube::Api;
use tokio::sync::OnceCell;

use self::memo::Memo;
use self::reconcile::reconcile;
use crate::error::Error;
use crate::metrics::Metrics;
use crate::observe::pages::Unreadable;
use crate::observe::snapshot::SameLogin;
use crate::observe::target;
use crate::settings::Settings;

/// The controller's name in metrics and on `/livez`: its kind, as controller-runtime names controllers.
pub const CONTROLLER: &str = "deorbit";

/// Only the management cluster makes a reconciliation fail, and it must not be asked by every Deorbit each second while it restarts.
/// A refusal by the target cluster or by OpenStack is a result of a reconciliation, and is paced there.
const BACKOFF: Backoff = Backoff { base: Duration::from_secs(2), max: Duration::from_secs(60) };

/// The index of the cached Deorbits by the Secret of their login.
const BY_SECRET: &str = "secret";

/// State of the process that all reconciliations share.
pub struct Context {
    /// The process.
    pub runtime: Runtime,
    /// Settings that apply to every Deorbit.
    pub settings: Settings,
    /// deorbiter's own metrics.
    pub metrics: Metrics,
    /// Those of the OpenStack client.
    pub openstack: openstack::Metrics,
    deorbits: Cache<Deorbit>,
    management: OnceCell<String>,
}

impl Context {
    /// Another Deorbit that needs the login of the same Secret.
    fn same_login(&self, deorbit: &Deorbit) -> Option<SameLogin> {
        let secret = secret_of_login(deorbit)?;
        same_login(deorbit, &self.deorbits.indexed(BY_SECRET, &secret))
    }

    /// The UID of the management cluster's namespace kube-system. It is read once.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn management_identity(&self) -> Result<&str, Unreadable> {
        let read = || target::identity(&self.runtime.client);
        self.management.get_or_try_init(read).await.map(String::as_str)
    }

    /// Removes what this process shows of a Deorbit that is gone.
    fn gone(&self, key: &ObjectKey) -> Next {
        self.metrics.forget(key.namespace(), key.name());
        self.runtime.status.remove(&page(key));
        Next::Gone
    }
}

/// The entry of a Deorbit on `/statusz`.
fn page(key: &ObjectKey) -> String {
    format!("deorbit {key}")
}

/// Starts the watch of Deorbits that both controllers of this program share: those of one namespace, or of all.
#[must_use]
pub fn deorbits(runtime: &Runtime, namespace: Option<&str>) -> Cache<Deorbit> {
    let client = runtime.client.clone();
    let api = match namespace {
        Some(namespace) => Api::<Deorbit>::namespaced(client, namespace),
        None => Api::<Deorbit>::all(client),
    };
    let by_secret = |deorbit: &Deorbit| secret_of_login(deorbit).into_iter().collect();
    runtime.cache(api).trim(trim).index(BY_SECRET, by_secret).start()
}

/// Namespace and name of the Secret that a Deorbit logs in with. None: it names none, or an OpenStackClusterIdentity.
fn secret_of_login(deorbit: &Deorbit) -> Option<String> {
    let identity = deorbit.spec.openstack.as_ref().map(|openstack| &openstack.identity_ref)?;
    let namespace = deorbit.metadata.namespace.as_deref().unwrap_or_default();
    (identity.kind == IdentityKind::Secret).then(|| format!("{namespace}/{}", identity.name))
}

/// The first of these that needs the login too; one that yields only if all of them do.
fn same_login(deorbit: &Deorbit, all: &[Arc<Deorbit>]) -> Option<SameLogin> {
    let others = all.iter().filter(|one| one.metadata.uid != deorbit.metadata.uid && needs_login(one));
    let others = others.map(|one| SameLogin {
        deorbit: ObjectKey::of(&**one).to_string(),
        yields: ends_with_credential(one) && one.metadata.name < deorbit.metadata.name,
    });
    others.min_by_key(|one| one.yields)
}

/// Whether a Deorbit deletes the application credential next, or leaves it to another one.
fn ends_with_credential(deorbit: &Deorbit) -> bool {
    let openstack = deorbit.spec.openstack.as_ref();
    let deletes = openstack.is_some_and(|one| one.application_credential == ApplicationCredential::Delete);
    deletes && deorbit.status.as_ref().is_some_and(|status| status.phase == Phase::Finishing)
}

/// Whether a Deorbit needs its login, now or after a change of its spec: a planned one may be run, and a failed one may get other limits.
fn needs_login(deorbit: &Deorbit) -> bool {
    let phase = deorbit.status.as_ref().map(|status| status.phase).unwrap_or_default();
    deorbit.metadata.deletion_timestamp.is_none() && phase != Phase::Succeeded
}

/// Keeps of the status what a binding reads. A status may be large, and each reconciliation reads its Deorbit itself.
fn trim(deorbit: &mut Deorbit) {
    if let Some(status) = &mut deorbit.status {
        let (phase, debris_count) = (status.phase, status.debris_count);
        *status = DeorbitStatus { phase, debris_count, ..DeorbitStatus::default() };
    }
}

/// Reconciles Deorbits, at most `max_concurrent` at a time, until the process is asked to end.
///
/// # Errors
/// Metrics that cannot be registered.
pub async fn run(
    runtime: Runtime,
    settings: Settings,
    max_concurrent: usize,
    deorbits: Cache<Deorbit>,
) -> anyhow::Result<()> {
    let context = Context {
        metrics: Metrics::new(runtime.metrics.clone())?,
        openstack: openstack::Metrics::register(runtime.metrics.registry())?,
        management: OnceCell::new(),
        deorbits: deorbits.clone(),
        settings,
        runtime: runtime.clone(),
    };
    Controller::new(&runtime, CONTROLLER, context)
        .backoff(BACKOFF)
        .max_concurrent_reconciles(max_concurrent)
        .watches(&deorbits, enqueue)
        .run()
        .await
}

/// The status is written by the reconciliation itself, which knows when the next one is due.
fn enqueue(change: &Change<Deorbit>, queue: &Queue<ObjectKey>) {
    if !matches!(change, Change::Updated { old, new } if is_same(old, new)) {
        queue.add(change.key());
    }
}

/// Whether all is equal that a reconciliation reads and does not write with the status.
fn is_same(old: &Deorbit, new: &Deorbit) -> bool {
    let (a, b) = (&old.metadata, &new.metadata);
    a.uid == b.uid
        && a.generation == b.generation
        && a.deletion_timestamp == b.deletion_timestamp
        && a.annotations == b.annotations
        && a.finalizers == b.finalizers
}

impl Reconciler for Context {
    type Key = ObjectKey;
    type Memo = Memo;
    type Error = Error;

    fn memo(&self, _: &ObjectKey) -> Memo {
        Memo::new(self.runtime.events.scoped())
    }

    async fn reconcile(&self, key: &ObjectKey, memo: &mut Memo) -> Result<Next, Error> {
        reconcile(self, key, memo).await
    }

    fn is_outdated(error: &Error) -> bool {
        error.is_conflict()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::convert::Infallible;

    use kube::Client;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// A leader that talks to this API server.
    pub(crate) fn runtime(client: Client) -> Runtime {
        let metrics = common::metrics::Metrics::new("deorbiter").unwrap();
        Runtime::new(common::program!(), client, "team".into(), metrics, "test".into())
    }

    fn deorbit(metadata: Value, status: Value) -> Deorbit {
        serde_json::from_value(json!({
            "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit",
            "metadata": metadata, "spec": {"inCluster": true}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn a_written_status_is_no_change_and_an_annotation_is_one() {
        let base = || deorbit(json!({"name": "prod", "generation": 1}), json!({}));
        let with_status = deorbit(json!({"name": "prod", "generation": 1}), json!({"remaining": 3}));
        assert!(is_same(&base(), &with_status));
        for change in [
            json!({"name": "prod", "generation": 2}),
            json!({"name": "prod", "generation": 1, "uid": "other"}),
            json!({"name": "prod", "generation": 1, "annotations": {"deorbiter.perimeter.dev/protect": "true"}}),
            json!({"name": "prod", "generation": 1, "finalizers": ["a/b"]}),
            json!({"name": "prod", "generation": 1, "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        ] {
            assert!(!is_same(&base(), &deorbit(change.clone(), json!({}))), "{change}");
        }
    }

    fn failure(code: u16, reason: &str) -> (u16, Value) {
        let body =
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": ""});
        (code, body)
    }

    /// An API server that responds with this code to a request for the Deorbit, and with no list.
    fn context(code: u16, reason: &'static str) -> Context {
        context_of(move |request| {
            request.uri().path().ends_with("/deorbits/prod").then(|| failure(code, reason))
        })
    }

    /// An API server with these responses to requests, each of which has its JSON body; None: it does not respond.
    pub(crate) fn server(
        respond: impl Fn(&http::Request<Value>) -> Option<(u16, Value)> + Send + Sync + 'static,
    ) -> Client {
        let respond = Arc::new(respond);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let respond = Arc::clone(&respond);
            async move {
                let (head, body) = request.into_parts();
                let body = body.collect_bytes().await.unwrap();
                let body = serde_json::from_slice(&body).unwrap_or_default();
                let response = respond(&http::Request::from_parts(head, body));
                let Some((code, body)) = response else { return std::future::pending().await };
                let response =
                    http::Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
                Ok::<_, Infallible>(response.unwrap())
            }
        });
        Client::new(service, "default")
    }

    fn context_of(
        respond: impl Fn(&http::Request<Value>) -> Option<(u16, Value)> + Send + Sync + 'static,
    ) -> Context {
        let runtime = runtime(server(respond));
        Context {
            metrics: Metrics::new(runtime.metrics.clone()).unwrap(),
            openstack: openstack::Metrics::register(runtime.metrics.registry()).unwrap(),
            management: OnceCell::new(),
            deorbits: deorbits(&runtime, None),
            settings: Settings::default(),
            runtime,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_conflict_is_no_failure_until_it_has_lasted() {
        let context = context(409, "Conflict");
        let runtime = context.runtime.clone();
        let controller = Controller::new(&runtime, CONTROLLER, context);
        controller.queue().add(ObjectKey::new("team", "prod"));
        let run = tokio::spawn(controller.run());
        let count = |result: &str| {
            let text = String::from_utf8(runtime.metrics.text().unwrap()).unwrap();
            let series =
                format!("controller_runtime_reconcile_total{{controller=\"deorbit\",result=\"{result}\"}} ");
            text.lines().find_map(|line| line.strip_prefix(&series)?.parse::<u32>().ok()).unwrap_or_default()
        };
        let failed = async {
            while count("error") == 0 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(600), failed).await.expect("an error");
        assert_eq!((count("success"), count("error")), (9, 1));
        runtime.shutdown.cancel();
        run.await.unwrap().unwrap();
    }

    #[test]
    fn of_two_deorbits_that_delete_the_same_credential_at_the_end_exactly_one_yields() {
        let one = |name: &str, phase: &str| {
            let openstack = json!({"identityRef": {"name": "login"}, "applicationCredential": "Delete"});
            let spec = json!({"inCluster": true, "openstack": openstack});
            let deorbit: Deorbit = serde_json::from_value(json!({
                "apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit",
                "metadata": {"name": name, "namespace": "team", "uid": name}, "spec": spec, "status": {"phase": phase},
            }))
            .unwrap();
            Arc::new(deorbit)
        };
        for (phases, yields) in [
            (["Finishing", "Finishing"], [Some(false), Some(true)]),
            (["Finishing", "Verifying"], [Some(false), Some(true)]),
            (["Verifying", "Finishing"], [Some(false), Some(false)]),
            (["Succeeded", "Finishing"], [Some(false), None]),
            (["Finishing", "Succeeded"], [None, Some(true)]),
        ] {
            let all = [one("a", phases[0]), one("b", phases[1])];
            let seen = all.each_ref().map(|one| same_login(one, &all).map(|other| other.yields));
            assert_eq!(seen, yields, "{phases:?}");
        }
        let all = ["a", "b", "c"].map(|name| one(name, "Finishing"));
        let seen = all.each_ref().map(|one| same_login(one, &all).map(|other| other.yields));
        assert_eq!(seen, [Some(false), Some(false), Some(true)]);
    }

    /// After a refusal all limits of the run restart.
    #[tokio::test]
    async fn a_secret_that_the_management_cluster_cannot_show_now_is_no_refusal() {
        for spec in [
            json!({"kubeconfig": {"secretRef": {"name": "login"}}}),
            json!({"clusterGone": {"projectID": "p"}, "clusterName": "prod", "openstack": {"identityRef": {"name": "login"}}}),
        ] {
            let context = context_of(move |request| match request.uri().path() {
                _ if request.method() != http::Method::GET => Some(failure(500, "InternalError")),
                path if path.ends_with("/deorbits/prod") => {
                    let deorbit = json!({"apiVersion": "deorbiter.perimeter.dev/v1alpha1", "kind": "Deorbit",
                        "metadata": {"name": "prod", "namespace": "team", "uid": "d"}, "spec": spec});
                    Some((200, deorbit))
                }
                path if path.ends_with("/secrets/login") => Some(failure(503, "ServiceUnavailable")),
                path if path.contains("/configmaps/") => Some(failure(404, "NotFound")),
                _ => None,
            });
            let key = ObjectKey::new("team", "prod");
            let result = context.reconcile(&key, &mut context.memo(&key)).await;
            assert!(matches!(result, Err(Error::Unreadable(_))), "{result:?}");
        }
    }

    #[tokio::test]
    async fn a_deorbit_that_is_gone_leaves_no_series_and_no_entry_on_statusz() {
        let context = context(404, "NotFound");
        let runtime = &context.runtime;
        let key = ObjectKey::new("team", "prod");
        let status = DeorbitStatus::default();
        context.metrics.stored(("team", "prod"), Phase::Pending, &status, &Default::default());
        runtime.status.set(page(&key), "phase      Deleting");
        let shown = || {
            let metrics = String::from_utf8(runtime.metrics.text().unwrap()).unwrap();
            (metrics.contains("name=\"prod\""), format!("{:?}", runtime.status).contains("team/prod"))
        };
        assert_eq!(shown(), (true, true));
        let next = context.reconcile(&key, &mut context.memo(&key)).await.unwrap();
        assert_eq!((next, shown()), (Next::Gone, (false, false)));
    }
}
