//! Memory and time with 5,000 pods, from a stand-in for the API server that streams lists.

use std::{convert::Infallible, time::Instant};

use bytes::Bytes;
use common::metrics::Metrics;
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use http_body_util::StreamBody;
use hyper::body::Frame;
use kube::client::Body;
use serde_json::{Value, json};

use super::*;
use crate::{
    agent::plan::{self, tests::env},
    names,
};

const PODS: usize = 5_000;
const NODES: usize = 100;
/// Pods behind each Service; every second Service is bound.
const PODS_OF_SERVICE: usize = 10;

fn node(index: usize) -> Value {
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": format!("n{index}"), "uid": format!("uid-{index}"), "resourceVersion": "1",
            "labels": if index < 3 { json!({names::GATEWAY_LABEL: "", "kubernetes.io/hostname": "x"}) } else { json!({}) }},
        "spec": {"podCIDRs": [format!("10.244.{index}.0/24")]},
        "status": {"addresses": [{"type": "InternalIP", "address": format!("192.168.50.{}", 1 + index)}],
            "images": (0..50).map(|image| json!({"names": [format!("registry/image-{image}@sha256:{image:064}")]})).collect::<Vec<_>>()},
    })
}

fn vip(service: usize) -> String {
    format!("172.16.{}.{}", service / 200, 1 + service % 200)
}

fn address(pod: usize) -> String {
    format!("10.244.{}.{}", pod % NODES, 2 + pod / NODES)
}

fn pod(index: usize) -> Value {
    let service = index / PODS_OF_SERVICE;
    let owned: Vec<Value> =
        (0..20).map(|field| json!({format!("f:field-{field}"): {"f:value": {}}})).collect();
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": format!("web-{service}-5d8f7c9b4d-{index:05}"), "namespace": format!("team-{}", service % 50),
            "uid": format!("0b6b3c52-5a9a-4c62-b5b1-{index:012}"), "resourceVersion": "123456",
            "labels": {"app": format!("web-{service}"), "pod-template-hash": "5d8f7c9b4d", "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"checksum/config": "x".repeat(64)},
            "managedFields": [{"manager": "kubelet", "fieldsV1": owned}]},
        "spec": {"nodeName": format!("n{}", index % NODES), "containers": [{"name": "c", "image": "i",
            "env": (0..20).map(|one| json!({"name": format!("VARIABLE_{one}"), "value": "value"})).collect::<Vec<_>>()}]},
        "status": {"phase": "Running", "podIP": address(index), "podIPs": [{"ip": address(index)}],
            "conditions": [{"type": "Ready", "status": "True"}]},
    })
}

fn service(index: usize) -> Value {
    let annotations = if index.is_multiple_of(2) {
        json!({names::VIP: vip(index), names::TUN_ID: "0x00000001", names::EPOCH: "1",
            names::NODE_IP: "192.168.50.1", names::TUN_MAC: env::mac_of("192.168.50.1")})
    } else {
        json!({"other": "annotation"})
    };
    json!({
        "kind": "Service", "apiVersion": "v1",
        "metadata": {"name": format!("web-{index}"), "namespace": format!("team-{}", index % 50), "uid": format!("uid-{index}"),
            "resourceVersion": "1", "creationTimestamp": "2026-11-21T12:00:00Z", "annotations": annotations},
        "spec": {"selector": {"app": format!("web-{index}")}, "ports": [{"name": "http", "port": 80}]},
    })
}

fn store() -> Value {
    let binds = (0..PODS / PODS_OF_SERVICE).step_by(2).map(|index| {
        let bind = json!({"v": 1, "scope": "service", "namespace": format!("team-{}", index % 50),
            "service": format!("web-{index}"), "tunId": format!("{:#010x}", index + 1)});
        (format!("{}{}", names::BIND_PREFIX, vip(index)), json!(bind.to_string()))
    });
    json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": names::BINDS, "namespace": "cgw-system",
        "resourceVersion": "1", "annotations": binds.collect::<serde_json::Map<_, _>>()}})
}

fn slice(index: usize) -> Value {
    let endpoints: Vec<Value> = (0..PODS_OF_SERVICE)
        .map(|one| {
            json!({"addresses": [address(index * PODS_OF_SERVICE + one)], "conditions": {"ready": true},
            "targetRef": {"kind": "Pod", "name": "x"}, "nodeName": "n"})
        })
        .collect();
    json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1", "addressType": "IPv4",
        "metadata": {"name": format!("web-{index}-x"), "namespace": format!("team-{}", index % 50), "resourceVersion": "1",
            "labels": {read::SERVICE_NAME: format!("web-{index}")}},
        "endpoints": endpoints, "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    })
}

type Events = StreamBody<BoxStream<'static, Result<Frame<Bytes>, Infallible>>>;

/// A watch that begins with all objects and then stays open.
fn watch(path: &str) -> Events {
    let services = PODS / PODS_OF_SERVICE;
    let (kind, objects): (&str, Box<dyn Iterator<Item = Value> + Send>) = match path {
        "/api/v1/nodes" => ("Node", Box::new((0..NODES).map(node))),
        "/api/v1/pods" => ("Pod", Box::new((0..PODS).map(pod))),
        "/api/v1/services" => ("Service", Box::new((0..services).map(service).chain([store()]))),
        "/apis/discovery.k8s.io/v1/endpointslices" => ("EndpointSlice", Box::new((0..services).map(slice))),
        other => panic!("{other} is not served"),
    };
    let end = json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": "v1",
        "metadata": {"resourceVersion": "2", "annotations": {"k8s.io/initial-events-end": "true"}}}});
    let events = objects.map(|object| json!({"type": "ADDED", "object": object})).chain([end]);
    let lines = events.map(|event| Ok::<_, Infallible>(Frame::data(format!("{event}\n").into())));
    StreamBody::new(stream::iter(lines).chain(stream::pending()).boxed())
}

/// Anonymous memory in KiB: without the program's own pages, of which an unoptimized one has many.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Run alone: `cargo test -p cgw-controller --release --lib scale -- --ignored --nocapture`
#[tokio::test]
#[ignore = "a measurement"]
async fn memory_and_time_with_5000_pods() {
    let api = tower::service_fn(async |request: http::Request<Body>| {
        Ok::<_, Infallible>(http::Response::new(watch(request.uri().path())))
    });
    let client = kube::Client::new(api, "default");
    let metrics = Metrics::new("cgw-controller").unwrap();
    let runtime = Runtime::new(common::program!(), client, "cgw-system".into(), metrics, "test".into());
    let store = ObjectKey::new("cgw-system", names::BINDS);
    let before = resident();
    let start = Instant::now();
    let observer = Observer::start(&runtime, "n0", &store, |_| {});
    observer.synced_within(Duration::from_secs(120)).await.unwrap();
    let (synced, listed) = (start.elapsed(), resident());
    let start = Instant::now();
    let snapshot = observer.snapshot("n0");
    let taken = start.elapsed();
    // The shortest of several: other programs use the processor too.
    let time = || {
        let start = Instant::now();
        let _decision = plan::plan(&env::config(), &snapshot);
        start.elapsed()
    };
    let planned = (0..20).map(|_| time()).min().unwrap_or_default();
    let decision = plan::plan(&env::config(), &snapshot);
    let datapath = decision.datapath.unwrap();
    let bound: usize = datapath.vips.values().map(|path| path.pods.len()).sum();
    let backends: usize =
        datapath.vips.values().flat_map(|path| &path.ports).map(|port| port.backends.len()).sum();
    assert_eq!((bound, backends, decision.problems.len()), (PODS / 2, PODS / 2, 0));
    assert_eq!(snapshot.local_pods.len(), PODS / NODES);
    println!("before {before} KiB, with the caches {listed} KiB, with a datapath {} KiB", resident());
    println!("synced in {synced:?}, snapshot in {taken:?}, plan in {planned:?}");
}
