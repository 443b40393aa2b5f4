//! An agent on a candidate with thousands of pods: a network namespace, and a stand-in for the API server that streams the objects of a
//! formula and accepts no write.

use std::convert::Infallible;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use bytes::Bytes;
use cgw_controller::agent::vxlan::plan::mac_of;
use cgw_controller::api::TunMac;
use cgw_controller::names;
use e2e::netns::{Lab, Node, Port};
use e2e::program::Program;
use e2e::wait::TIMEOUT;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use nix::sched::{CloneFlags, setns};
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::task::JoinHandle;

/// Pods of the cluster.
pub(super) const PODS: usize = 5000;
/// Pods behind bound Services: every second Service is bound.
pub(super) const BOUND: usize = PODS / 2;
/// Nodes of the cluster. The first one is a candidate, and has the agent.
pub(super) const NODES: usize = 100;
const PODS_OF_SERVICE: usize = 10;
const OWN: Ipv4Addr = Ipv4Addr::new(192, 168, 50, 1);
const NAMESPACE: &str = "cgw-controller";
const API_SERVER: u16 = 8001;
const ADMIN: u16 = 8080;
/// Poll interval of the readiness.
const POLL: Duration = Duration::from_millis(5);

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A running agent.
pub(super) struct Agent {
    pub(super) program: Program,
    started: Instant,
    writes: Arc<AtomicU64>,
    server: JoinHandle<()>,
    node: Node,
    _kubeconfig: NamedTempFile,
    _lan: Node,
    _lab: Lab,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Agent {
    pub(super) async fn start(program: &Path) -> Result<Agent> {
        let (lab, lan, node) = tokio::task::spawn_blocking(|| {
            let lab = Lab::new()?;
            let (lan, node) = (lab.node("lan")?, lab.node("n0")?);
            let address = format!("{OWN}/24");
            lab.link(Port::new(&lan, "n0", &[]), Port::new(&node, "eth0", &[&address]))?;
            anyhow::Ok((lab, lan, node))
        })
        .await??;
        let listener = within(&node, || Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, API_SERVER))?))?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let writes = Arc::new(AtomicU64::new(0));
        let server = tokio::spawn(serve(listener, Arc::clone(&writes)));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "feed",
            "clusters": [{ "name": "feed", "cluster": { "server": format!("http://127.0.0.1:{API_SERVER}") } }],
            "users": [{ "name": "feed", "user": {} }],
            "contexts": [{ "name": "feed", "context": { "cluster": "feed", "user": "feed" } }],
        });
        let file = NamedTempFile::new()?;
        // JSON is YAML.
        std::fs::write(file.path(), kubeconfig.to_string())?;
        // nsenter becomes the program.
        let launch = Program::at("/usr/bin/nsenter").name("agent").args([
            format!("--net=/proc/{}/ns/net", node.pid()),
            "--".to_owned(),
            program.display().to_string(),
            "agent".to_owned(),
            format!("--kubeconfig={}", file.path().display()),
            format!("--namespace={NAMESPACE}"),
            format!("--admin-address=127.0.0.1:{ADMIN}"),
            "--node-name=n0".to_owned(),
            "--service-cidr=10.96.0.0/12".to_owned(),
            "--log-format=json".to_owned(),
        ]);
        let started = Instant::now();
        let program = launch.start()?;
        Ok(Agent { program, started, writes, server, node, _kubeconfig: file, _lan: lan, _lab: lab })
    }

    /// Waits until the datapath is programmed; how long it took from the start.
    pub(super) async fn until_ready(&self) -> Result<Duration> {
        while self.started.elapsed() < TIMEOUT {
            if let Some(status) = self.program.exited()? {
                bail!("it ended before it was ready: {status}\n{}", self.program.output().lines().join("\n"));
            }
            let node = self.node.clone();
            if tokio::task::spawn_blocking(move || within(&node, is_ready)).await?.unwrap_or(false) {
                return Ok(self.started.elapsed());
            }
            tokio::time::sleep(POLL).await;
        }
        bail!("it is not ready after {TIMEOUT:?}:\n{}", self.program.output().lines().join("\n"))
    }

    /// How many writes the stand-in has refused.
    pub(super) fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }
}

/// An error also while the port is closed.
fn is_ready() -> Result<bool> {
    let mut stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, ADMIN)))?;
    stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response.starts_with("HTTP/1.1 200 "))
}

/// Runs `act` in the network of `node`. Its sockets stay there.
fn within<T: Send + 'static>(node: &Node, act: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let network = File::open(format!("/proc/{}/ns/net", node.pid()))?;
    let thread = std::thread::spawn(move || {
        setns(&network, CloneFlags::CLONE_NEWNET)?;
        act()
    });
    thread.join().map_err(|_| anyhow!("a panic"))?
}

async fn serve(listener: tokio::net::TcpListener, writes: Arc<AtomicU64>) {
    while let Ok((stream, _)) = listener.accept().await {
        let writes = Arc::clone(&writes);
        let service = service_fn(move |request| respond(Arc::clone(&writes), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn respond(writes: Arc<AtomicU64>, request: Request<Incoming>) -> Result<Response<Body>> {
    if request.method() == Method::GET
        && let Ok(body) = watch(request.uri().path())
    {
        return Ok(Response::new(body));
    }
    if request.method() != Method::GET {
        writes.fetch_add(1, Ordering::Relaxed);
    }
    let status = json!({ "kind": "Status", "status": "Failure", "message": "not here", "reason": "NotFound", "code": 404 });
    Ok(Response::builder().status(404).body(Full::new(Bytes::from(status.to_string())).boxed_unsync())?)
}

/// A streamed list that stays open.
fn watch(path: &str) -> Result<Body> {
    let services = PODS / PODS_OF_SERVICE;
    let (version, kind, objects): (_, _, Box<dyn Iterator<Item = Value> + Send>) = match path {
        "/api/v1/nodes" => ("v1", "Node", Box::new((0..NODES).map(node))),
        "/api/v1/pods" => ("v1", "Pod", Box::new((0..PODS).map(pod))),
        "/api/v1/services" => ("v1", "Service", Box::new((0..services).map(service).chain([store()]))),
        "/apis/discovery.k8s.io/v1/endpointslices" => {
            ("discovery.k8s.io/v1", "EndpointSlice", Box::new((0..services).map(slice)))
        }
        other => bail!("{other} is not served"),
    };
    let typed = move |mut object: Value| {
        if let Some(fields) = object.as_object_mut() {
            fields.insert("apiVersion".to_owned(), json!(version));
            fields.insert("kind".to_owned(), json!(kind));
        }
        object
    };
    let end = json!({ "metadata": { "resourceVersion": "2", "annotations": { "k8s.io/initial-events-end": "true" } } });
    let events = objects
        .map(move |object| json!({ "type": "ADDED", "object": typed(object) }))
        .chain([json!({ "type": "BOOKMARK", "object": typed(end) })]);
    let lines = events.map(|event| Ok::<_, Infallible>(Frame::data(format!("{event}\n").into())));
    Ok(StreamBody::new(stream::iter(lines).chain(stream::pending())).boxed_unsync())
}

fn node(index: usize) -> Value {
    let images: Vec<Value> = (0..50)
        .map(|image| json!({ "names": [format!("registry/image-{image}@sha256:{image:064}")] }))
        .collect();
    json!({
        "metadata": {
            "name": format!("n{index}"), "uid": format!("uid-{index}"), "resourceVersion": "1",
            "labels": if index < 2 { json!({ names::GATEWAY_LABEL: "" }) } else { json!({}) },
        },
        "spec": { "podCIDRs": [format!("10.244.{index}.0/24")] },
        "status": { "addresses": [{ "type": "InternalIP", "address": format!("192.168.50.{}", 1 + index) }], "images": images },
    })
}

fn vip(service: usize) -> String {
    format!("172.16.{}.{}", service / 200, 1 + service % 200)
}

fn address(pod: usize) -> String {
    format!("10.244.{}.{}", pod % NODES, 2 + pod / NODES)
}

fn team(service: usize) -> String {
    format!("team-{}", service % 50)
}

fn pod(index: usize) -> Value {
    let service = index / PODS_OF_SERVICE;
    let owned: Vec<Value> =
        (0..20).map(|field| json!({ format!("f:field-{field}"): { "f:value": {} } })).collect();
    let env: Vec<Value> =
        (0..20).map(|one| json!({ "name": format!("VARIABLE_{one}"), "value": "value" })).collect();
    json!({
        "metadata": {
            "name": format!("web-{service}-5d8f7c9b4d-{index:05}"), "namespace": team(service),
            "uid": format!("0b6b3c52-5a9a-4c62-b5b1-{index:012}"), "resourceVersion": "1",
            "labels": { "app": format!("web-{service}"), "pod-template-hash": "5d8f7c9b4d" },
            "managedFields": [{ "manager": "kubelet", "fieldsV1": owned }],
        },
        "spec": { "nodeName": format!("n{}", index % NODES), "containers": [{ "name": "c", "image": "i", "env": env }] },
        "status": {
            "phase": "Running", "podIP": address(index), "podIPs": [{ "ip": address(index) }],
            "conditions": [{ "type": "Ready", "status": "True" }],
        },
    })
}

fn is_bound(service: usize) -> bool {
    service.is_multiple_of(2)
}

fn service(index: usize) -> Value {
    let mac = TunMac::new(mac_of(OWN)).map(|mac| mac.to_string()).unwrap_or_default();
    let annotations = match is_bound(index) {
        true => json!({
            names::VIP: vip(index), names::TUN_ID: format!("{:#010x}", index + 1), names::EPOCH: "1",
            names::NODE_IP: OWN.to_string(), names::TUN_MAC: mac,
        }),
        false => json!({ "other": "annotation" }),
    };
    json!({
        "metadata": {
            "name": format!("web-{index}"), "namespace": team(index), "uid": format!("uid-{index}"), "resourceVersion": "1",
            "creationTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations,
        },
        "spec": { "selector": { "app": format!("web-{index}") }, "ports": [{ "name": "http", "port": 80 }] },
    })
}

fn store() -> Value {
    let bound = (0..PODS / PODS_OF_SERVICE).filter(|index| is_bound(*index));
    let entries = bound.map(|index| {
        let bind = json!({
            "v": 1, "scope": "service", "namespace": team(index), "service": format!("web-{index}"),
            "tunId": format!("{:#010x}", index + 1),
        });
        (format!("{}{}", names::BIND_PREFIX, vip(index)), json!(bind.to_string()))
    });
    let annotations: serde_json::Map<_, _> = entries.collect();
    json!({ "metadata": {
        "name": names::BINDS, "namespace": NAMESPACE, "resourceVersion": "1", "annotations": annotations,
    } })
}

fn slice(index: usize) -> Value {
    let endpoint = |one| {
        let address = address(index * PODS_OF_SERVICE + one);
        json!({ "addresses": [address], "conditions": { "ready": true }, "targetRef": { "kind": "Pod", "name": "x" }, "nodeName": "n" })
    };
    let endpoints: Vec<Value> = (0..PODS_OF_SERVICE).map(endpoint).collect();
    json!({
        "addressType": "IPv4", "endpoints": endpoints,
        "metadata": {
            "name": format!("web-{index}-x"), "namespace": team(index), "resourceVersion": "1",
            "labels": { "kubernetes.io/service-name": format!("web-{index}") },
        },
        "ports": [{ "name": "http", "port": 8080, "protocol": "TCP" }],
    })
}
