//! Traces arrive as the component `otlp` sets them up: at an OTLP receiver of this process, and in the full tier at a real
//! OpenTelemetry collector. A collector that cannot be reached stops nothing.

mod collector;
mod receiver;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use collector::{Collector, Span};
use e2e::fault_proxy::{Fault, Matcher, Reply};
use e2e::kustomize;
use e2e::natgw::{TestEnv, wait_for};
use e2e::program::Program;
use nix::sys::signal::Signal;
use receiver::Receiver;
use serde_json::Value;
use tokio::net::TcpListener;

/// How often spans are sent: every five seconds by default.
const OFTEN: (&str, &str) = ("OTEL_BSP_SCHEDULE_DELAY", "200");

/// The variables that the component adds to a controller, in their order, with what a kubelet would put into them.
fn environment(endpoint: &str) -> Vec<(String, String)> {
    let variables = |components: &[&str]| -> Vec<Value> {
        let overlay = kustomize::overlay("natgw", components).unwrap();
        let objects = kustomize::objects(&kustomize::render(overlay.path()).unwrap()).unwrap();
        let pod = &kustomize::only(&objects, "Deployment").unwrap()["spec"]["template"]["spec"];
        pod["containers"][0]["env"].as_array().unwrap().clone()
    };
    let (base, with) = (variables(&[]), variables(&["otlp"]));
    assert_eq!(with[..base.len()], base[..], "nothing is changed but by additions");
    let mut known: Vec<(String, String)> = Vec::new();
    for variable in &with[base.len()..] {
        let name = variable["name"].as_str().unwrap();
        let mut value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("status.hostIP") => "127.0.0.1".to_owned(),
            Some("spec.nodeName") => "node-1".to_owned(),
            Some("metadata.name") => "natgw-0".to_owned(),
            Some("metadata.namespace") => "natgw".to_owned(),
            Some(other) => panic!("{name}: {other}"),
            None => variable["value"].as_str().unwrap().to_owned(),
        };
        for (name, known) in &known {
            value = value.replace(&format!("$({name})"), known);
        }
        assert!(!value.contains("$("), "{name}={value}: a variable must be set before it is used");
        known.push((name.to_owned(), value));
    }
    let at = known.iter_mut().find(|(name, _)| name == "OTEL_EXPORTER_OTLP_ENDPOINT").unwrap();
    assert_eq!(at.1, "http://127.0.0.1:4317", "the Node's own collector");
    at.1 = endpoint.to_owned();
    known
}

async fn stop(natgw: &Program) {
    natgw.signal(Signal::SIGTERM).unwrap();
    assert_eq!(natgw.wait_exit().await.unwrap().code(), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reconciliation_and_its_requests_are_one_trace() {
    let receiver = Receiver::start().await.unwrap();
    arrive(&receiver.endpoint(), || receiver.spans()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "full: a real collector"]
async fn a_real_collector_receives_the_same() {
    let collector = Collector::start().await.unwrap();
    arrive(&collector.endpoint(), || collector.spans()).await;
}

/// Asserts the content of the trace of the reconciliation that adds the route.
async fn arrive(endpoint: &str, received: impl Fn() -> Vec<Span>) {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some("198.51.100.1")).await.unwrap();
    let mut launch = env.natgw("").unwrap().env(OFTEN.0, OFTEN.1);
    for (name, value) in environment(endpoint) {
        launch = launch.env(name, value);
    }
    let natgw = launch.start().unwrap();
    env.wait_for_primary(&gateway).await.unwrap();

    let moved = |span: &Span| span.name == "reconcile" && span.has_attribute("action", "MoveRoute");
    let arrived = || async {
        let spans = received();
        let Some(reconciliation) = spans.iter().find(|span| moved(span)) else { return Ok(false) };
        Ok(spans.iter().any(|span| span.parent == reconciliation.id && span.name == "hcloud POST"))
    };
    env.wait("the reconciliation that added the route", arrived).await.unwrap();
    let spans = received();
    let reconciliation = spans.iter().find(|span| moved(span)).unwrap();
    assert_eq!((reconciliation.kind.as_str(), reconciliation.parent.as_str()), ("Internal", ""));
    for (key, value) in [
        ("service.name", "natgw"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("k8s.namespace.name", "natgw"),
        ("k8s.pod.name", "natgw-0"),
        ("k8s.node.name", "node-1"),
    ] {
        assert_eq!(
            reconciliation.resource.get(key).map(String::as_str),
            Some(value),
            "{key}: {:?}",
            reconciliation.resource
        );
    }
    assert!(reconciliation.resource.contains_key("vcs.ref.head.revision"), "{:?}", reconciliation.resource);

    let inside: Vec<&Span> = spans
        .iter()
        .filter(|span| span.trace == reconciliation.trace && span.id != reconciliation.id)
        .collect();
    let added = inside.iter().find(|span| span.name == "hcloud POST").unwrap();
    assert_eq!((added.kind.as_str(), added.parent.as_str()), ("Client", reconciliation.id.as_str()));
    let expected = BTreeMap::from([
        ("http.request.method", "POST".to_owned()),
        ("url.path", format!("/networks/{}/actions/add_route", env.network)),
        ("http.response.status_code", "201".to_owned()),
        ("cloud", "hcloud".to_owned()),
    ]);
    for (key, value) in expected {
        assert_eq!(added.attributes.get(key), Some(&value), "{key}: {:?}", added.attributes);
    }
    assert!(
        inside.iter().any(|span| span.name.starts_with("kubernetes ")
            && span.attributes["http.response.status_code"] == "200"),
        "{inside:?}"
    );
    let text = format!("{spans:?}");
    assert!(!text.contains(env.hetzner.token().as_str()), "the token is in a trace");

    assert!(
        reconciliation.has_attribute("reason", "NoDefaultRoute")
            && reconciliation.has_attribute("because", "the network has no default route"),
        "{reconciliation:?}"
    );
    let leases: Vec<&Span> = spans.iter().filter(|span| format!("{span:?}").contains("/leases/")).collect();
    assert!(leases.is_empty(), "renewals would be most of all traces: {leases:?}");

    // The last spans leave with the process, however long it would have collected them.
    stop(&natgw).await;
    let reconciliations = || received().iter().filter(|span| span.name == "reconcile").count();
    let before = reconciliations();
    let once = launch.env(OFTEN.0, "600000").arg("--once").start().unwrap();
    assert_eq!(once.wait_exit().await.unwrap().code(), Some(0));
    env.wait("the reconciliation of the process that has ended", || async { Ok(reconciliations() > before) })
        .await
        .unwrap();
    println!(
        "{} spans, {} of them in the reconciliation that added the route",
        spans.len(),
        inside.len() + 1
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_reconciliation_has_the_status_error_in_its_trace() {
    let (collector, env) = tokio::join!(Receiver::start(), TestEnv::start());
    let (collector, env) = (collector.unwrap(), env.unwrap());
    env.cloud_proxy.rule(Matcher::any(), Fault::Reject(Reply::status(http::StatusCode::UNAUTHORIZED)));
    let launch = env.natgw("").unwrap().env(OFTEN.0, OFTEN.1);
    let _natgw = launch.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint()).start().unwrap();
    let failed =
        |spans: &[Span], name: &str| spans.iter().any(|span| span.name == name && span.status == "Error");
    env.wait("a failed reconciliation and its failed request", || async {
        let spans = collector.spans();
        Ok(failed(&spans, "reconcile") && failed(&spans, "hcloud GET"))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_collector_is_logged_once_and_delays_nothing() {
    let env = TestEnv::start().await.unwrap();
    let gateway = env.node(Some("198.51.100.1")).await.unwrap();
    // It closes each connection, and counts them.
    let away = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let endpoint = format!("http://{}", away.local_addr().unwrap());
    let tries = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tries);
    let refuse = tokio::spawn(async move {
        while away.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    let natgw = env
        .natgw("")
        .unwrap()
        .env(OFTEN.0, OFTEN.1)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
        .start()
        .unwrap();
    env.wait_for_primary(&gateway).await.unwrap();
    wait_for("many failed tries", || async { Ok(tries.load(Ordering::Relaxed) >= 10) }).await.unwrap();
    let second = env.node(Some("198.51.100.2")).await.unwrap();
    gateway.node.cordon(true).await.unwrap();
    env.wait_for_primary(&second).await.unwrap();

    let lines = natgw.output().matching(|line| line.contains("\"target\":\"opentelemetry"));
    assert!((1..=3).contains(&lines.len()), "{}: {lines:#?}", lines.len());
    stop(&natgw).await;
    println!("{} tries, {} lines in the log", tries.load(Ordering::Relaxed), lines.len());
    refuse.abort();
}
