//! The loop with a driver that records, and without an API server.

use std::{collections::BTreeSet, convert::Infallible};

use kube::client::Body;

use super::*;
use crate::agent::{
    datapath::VipRoute,
    observe::inventory::Urgency,
    plan::tests::env::{G2, N1, TestEnv, VIP_A, config, ip, node, service},
};

/// The programmed datapath of a fake node.
#[derive(Debug, Default)]
struct Kernel {
    datapath: Option<Datapath>,
    applied: usize,
    opened: usize,
    /// The error of the next runs.
    failing: Option<Error>,
}

struct Recorder(Arc<Mutex<Kernel>>);

impl Driver for Recorder {
    fn apply(&mut self, desired: &Datapath) -> Result<Vec<Change>, Error> {
        let mut kernel = self.0.lock().unwrap();
        kernel.applied += 1;
        if let Some(error) = kernel.failing.clone() {
            return Err(error);
        }
        let is_repair = kernel.datapath.is_none() && kernel.applied > 1;
        let is_same = kernel.datapath.as_ref() == Some(desired);
        kernel.datapath = Some(desired.clone());
        let change = Change { object: "route", description: "all".into(), is_repair };
        Ok(if is_same { Vec::new() } else { vec![change] })
    }

    fn preview(&mut self, _: &Datapath) -> Result<Vec<Change>, Error> {
        Ok(Vec::new())
    }

    fn uninstall(&mut self) -> Result<Vec<Change>, Error> {
        Ok(Vec::new())
    }
}

struct Setup {
    env: Arc<Mutex<TestEnv>>,
    kernel: Arc<Mutex<Kernel>>,
    runtime: Runtime,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Setup {
    fn new() -> Setup {
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let record = Arc::clone(&requests);
        let api = tower::service_fn(move |request: http::Request<Body>| {
            let record = Arc::clone(&record);
            async move {
                let body = http_body_util::BodyExt::collect(request.into_body()).await.unwrap().to_bytes();
                record.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
                Ok::<_, Infallible>(http::Response::new(Body::from(body.to_vec())))
            }
        });
        let client = kube::Client::new(api, "default");
        let metrics = common::metrics::Metrics::new("cgw-controller").unwrap();
        let runtime = Runtime::new(common::program!(), client, "cgw-system".into(), metrics, "test".into());
        Setup { env: Arc::new(Mutex::new(TestEnv::bound())), kernel: Arc::default(), runtime, requests }
    }

    fn reconciler(&self) -> Reconciler {
        let kernel = Arc::clone(&self.kernel);
        let open: Open = Box::new(move || {
            kernel.lock().unwrap().opened += 1;
            Ok(Box::new(Recorder(Arc::clone(&kernel))))
        });
        Reconciler::new(config(), open, Reports::new(&self.runtime).unwrap())
    }

    fn snapshot(&self) -> Snapshot {
        self.env.lock().unwrap().snapshot("n1")
    }

    fn applied(&self) -> usize {
        self.kernel.lock().unwrap().applied
    }

    fn route(&self) -> Option<VipRoute> {
        self.kernel.lock().unwrap().datapath.as_ref()?.vips.get(&ip(VIP_A)).map(|path| path.route)
    }

    fn metric(&self, line: &str) -> bool {
        let text = String::from_utf8(self.runtime.metrics.text().unwrap()).unwrap();
        text.lines().any(|one| one == line)
    }

    async fn events(&self) -> BTreeSet<(String, String)> {
        self.runtime.events.drain(Duration::from_secs(5)).await;
        let bodies = self.requests.lock().unwrap();
        let events = bodies.iter().map(|body| serde_json::from_str::<serde_json::Value>(body).unwrap());
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        events.map(|event| (text(&event["regarding"]["name"]), text(&event["reason"]))).collect()
    }
}

fn unusable() -> Error {
    Error { operation: "adding link cgw0".into(), cause: "no module".into(), is_permanent: true }
}

#[tokio::test]
async fn the_driver_runs_only_for_a_new_datapath_or_a_resync() {
    let setup = Setup::new();
    let mut reconciler = setup.reconciler();
    assert!(!setup.runtime.readiness.is_ready());
    reconciler.reconcile(&setup.snapshot(), false).await.unwrap();
    assert!(setup.runtime.readiness.is_ready());
    reconciler.reconcile(&setup.snapshot(), false).await.unwrap();
    assert_eq!(setup.applied(), 1);
    reconciler.reconcile(&setup.snapshot(), true).await.unwrap();
    assert_eq!(setup.applied(), 2);
    setup.kernel.lock().unwrap().datapath = None;
    reconciler.reconcile(&setup.snapshot(), true).await.unwrap();
    for line in [
        "cgw_agent_datapath_generation 1",
        "cgw_agent_changes_total{object=\"route\"} 2",
        "cgw_agent_repairs_total{object=\"route\"} 1",
        "cgw_agent_programmed_entries{object=\"bound_pod\"} 4",
        "cgw_agent_programmed_entries{object=\"local_bound_pod\"} 2",
        "cgw_agent_vips{gateway=\"remote\"} 2",
        "cgw_agent_problems{reason=\"PodConflict\"} 0",
    ] {
        assert!(setup.metric(line), "{line}");
    }
    setup.env.lock().unwrap().service(service("a/a", VIP_A, G2, "app=x"));
    reconciler.reconcile(&setup.snapshot(), false).await.unwrap();
    assert!(matches!(setup.route(), Some(VipRoute::Remote { node_ip, .. }) if node_ip == ip(G2)));
    assert_eq!(setup.kernel.lock().unwrap().opened, 1);
}

#[tokio::test]
async fn the_last_datapath_stays_when_the_store_or_the_node_is_gone() {
    let setup = Setup::new();
    let mut reconciler = setup.reconciler();
    setup.env.lock().unwrap().inventory.set_store(None);
    reconciler.reconcile(&setup.snapshot(), true).await.unwrap();
    assert_eq!((setup.applied(), setup.runtime.readiness.is_ready()), (0, false), "nothing is known yet");

    *setup.env.lock().unwrap() = TestEnv::bound();
    reconciler.reconcile(&setup.snapshot(), false).await.unwrap();
    let before = setup.kernel.lock().unwrap().datapath.clone();
    for is_store in [true, false] {
        let mut env = TestEnv::bound();
        if is_store {
            env.inventory.set_store(None);
        } else {
            env.inventory.set_node("n1", None);
        }
        env.inventory.set_service(&crate::agent::plan::tests::env::key("a/a"), None);
        *setup.env.lock().unwrap() = env;
        reconciler.reconcile(&setup.snapshot(), true).await.unwrap();
        assert_eq!(setup.kernel.lock().unwrap().datapath, before, "repaired with the last one");
    }
    assert_eq!(setup.applied(), 3);
    let expected = [("n1".to_owned(), "NoStore".to_owned()), ("n1".to_owned(), "NoNode".to_owned())];
    assert_eq!(setup.events().await, BTreeSet::from(expected));
}

#[tokio::test]
async fn a_failure_is_retried_and_a_permanent_one_is_an_event_of_the_node() {
    let setup = Setup::new();
    let mut reconciler = setup.reconciler();
    setup.kernel.lock().unwrap().failing = Some(unusable());
    for _ in 0..3 {
        assert_eq!(reconciler.reconcile(&setup.snapshot(), false).await, Err(unusable()));
    }
    assert_eq!(setup.applied(), 3, "also without a change");
    assert!(!setup.runtime.readiness.is_ready());
    let report = setup.runtime.readiness.report();
    assert_eq!(report[0].1.problem.as_deref(), Some("adding link cgw0 failed: no module"));
    assert_eq!(setup.events().await, BTreeSet::from([("n1".to_owned(), "DriverUnusable".to_owned())]));
    assert!(setup.metric("cgw_agent_apply_errors_total 3"));

    setup.kernel.lock().unwrap().failing = None;
    reconciler.reconcile(&setup.snapshot(), false).await.unwrap();
    assert!(setup.runtime.readiness.is_ready());
}

#[tokio::test]
async fn problems_of_services_are_events_of_the_candidates_only() {
    let setup = Setup::new();
    setup.env.lock().unwrap().service(service("c/forged", VIP_A, "", "app=x"));
    let mut reconciler = setup.reconciler();
    reconciler.reconcile(&setup.snapshot(), false).await.unwrap();
    assert_eq!(setup.events().await, BTreeSet::new());
    assert!(setup.metric("cgw_agent_problems{reason=\"NotAdmitted\"} 1"));
    setup.env.lock().unwrap().node(node("n1", N1, true));
    for _ in 0..2 {
        reconciler.reconcile(&setup.snapshot(), false).await.unwrap();
    }
    assert_eq!(setup.events().await, BTreeSet::from([("forged".to_owned(), "NotAdmitted".to_owned())]));
    assert_eq!(setup.requests.lock().unwrap().len(), 1, "once");
}

#[test]
fn one_node_publishes_where_there_is_no_candidate() {
    let mut env = TestEnv::bound();
    let publishers = |env: &TestEnv| -> Vec<&str> {
        ["n1", "g1", "g2"].into_iter().filter(|node| is_publisher(&env.snapshot(node))).collect()
    };
    assert_eq!(publishers(&env), ["g1", "g2"]);
    for (name, address) in [("g1", "192.168.50.21"), ("g2", G2)] {
        env.node(node(name, address, false));
    }
    assert_eq!(publishers(&env), ["g1"]);
}

/// Waits until the condition holds.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(300), wait).await.expect("the condition holds in time");
}

#[tokio::test]
async fn the_loop_follows_changes_repairs_and_ends_with_the_process() {
    let setup = Setup::new();
    let trigger = Trigger::default();
    let observe = || setup.snapshot();
    // Long enough that only changes and one shortened resync cause a run.
    let period = Duration::from_millis(300);
    let looping = run(setup.reconciler(), observe, &trigger, period, &setup.runtime);
    let test = async {
        until(|| setup.applied() == 1).await;
        setup.env.lock().unwrap().service(service("a/a", VIP_A, G2, "app=x"));
        trigger.fire(Urgency::Now);
        until(|| matches!(setup.route(), Some(VipRoute::Remote { node_ip, .. }) if node_ip == ip(G2))).await;
        // Another program removes the datapath; nothing triggers.
        setup.kernel.lock().unwrap().datapath = None;
        until(|| setup.route().is_some()).await;
        // A failure is retried without a change.
        setup.kernel.lock().unwrap().failing = Some(unusable());
        setup.env.lock().unwrap().service(service("a/a", VIP_A, "", "app=x"));
        trigger.fire(Urgency::Soon);
        let before = setup.applied();
        until(|| setup.applied() >= before + 2).await;
        setup.kernel.lock().unwrap().failing = None;
        until(|| setup.route() == Some(VipRoute::Drop)).await;
        setup.runtime.shutdown.cancel();
    };
    tokio::join!(looping, test);
    assert!(setup.kernel.lock().unwrap().datapath.is_some(), "the end of the process removes nothing");
}
