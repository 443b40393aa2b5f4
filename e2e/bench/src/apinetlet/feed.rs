//! A stand-in for the API servers of both clusters with more interfaces than an etcd takes in the time of a bench. It streams the
//! interfaces of a formula, all of them mapped already, and all other kinds are empty. It accepts one write, the status of a source
//! interface, and does not compare its resourceVersion.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use apinetlet::names::{Flavor, Kind};
use apinetlet::origin::{Keys, Layout, Origin};
use bytes::Bytes;
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
use serde_json::{Value, json};
use tempfile::NamedTempFile;
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};
use tokio::task::JoinHandle;

const FLAVOR: Flavor = Flavor::Ironcore;
/// Of the apinet objects.
const NAMESPACE: &str = "apinet";
/// Of the source objects.
const SOURCE: &str = "team";
/// `--source-cluster-id`
const CLUSTER: &str = "00000000-0000-4000-8000-00000000c1c1";
/// Of each object, as nothing reads it.
const API_VERSION: &str = "core.apinet.ironcore.dev/v1alpha1";
const KIND: &str = "NetworkInterface";
/// Objects in a frame of a watch.
const FRAME: usize = 64;
/// The version of all objects at first.
const FIRST_VERSION: u64 = 1000;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Serves while this exists.
pub(super) struct Feed {
    kubeconfig: NamedTempFile,
    state: Arc<State>,
    statuses: mpsc::UnboundedReceiver<Instant>,
    server: JoinHandle<()>,
}

struct State {
    count: usize,
    version: AtomicU64,
    writes: AtomicU64,
    /// Group and event.
    events: broadcast::Sender<(&'static str, Bytes)>,
    written: mpsc::UnboundedSender<Instant>,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Feed {
    pub(super) async fn start(count: usize) -> Result<Feed> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (written, statuses) = mpsc::unbounded_channel();
        let state = Arc::new(State {
            count,
            version: FIRST_VERSION.into(),
            writes: 0.into(),
            events: broadcast::channel(64).0,
            written,
        });
        let server = tokio::spawn(serve(listener, Arc::clone(&state)));
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "feed",
            "clusters": [{ "name": "feed", "cluster": { "server": format!("http://127.0.0.1:{port}") } }],
            "users": [{ "name": "feed", "user": {} }],
            "contexts": [{ "name": "feed", "context": { "cluster": "feed", "user": "feed" } }],
        });
        let file = NamedTempFile::new()?;
        // JSON is YAML.
        std::fs::write(file.path(), kubeconfig.to_string())?;
        Ok(Feed { kubeconfig: file, state, statuses, server })
    }

    pub(super) fn flags(&self) -> Vec<String> {
        let kubeconfig = self.kubeconfig.path().display();
        vec![
            format!("--kubeconfig={kubeconfig}"),
            format!("--api-net-kubeconfig={kubeconfig}"),
            format!("--api-net-namespace={NAMESPACE}"),
            format!("--source-cluster-id={CLUSTER}"),
        ]
    }

    /// How many writes there were.
    pub(super) fn writes(&self) -> u64 {
        self.state.writes.load(Ordering::Relaxed)
    }

    /// Sends an event with another state of an apinet interface; how long until the status of the source interface is written.
    pub(super) async fn change(&mut self, number: usize, apinet_state: &str) -> Result<Duration> {
        let object = apinet_interface(number, self.state.next(), apinet_state);
        let begun = Instant::now();
        self.state.events.send((FLAVOR.names().apinet, event("MODIFIED", &object)))?;
        let written = tokio::time::timeout(TIMEOUT, self.statuses.recv()).await.context("no write")?;
        Ok(written.context("the server ended")?.duration_since(begun))
    }
}

impl State {
    fn next(&self) -> u64 {
        self.version.fetch_add(1, Ordering::Relaxed) + 1
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request| respond(Arc::clone(&state), request));
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

async fn respond(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>> {
    let (head, body) = request.into_parts();
    // /apis/GROUP/VERSION[/namespaces/NAMESPACE]/PLURAL[/NAME[/status]]
    let mut parts: Vec<&str> = head.uri.path().split('/').skip(2).collect();
    if parts.get(2) == Some(&"namespaces") {
        parts.drain(2..4);
    }
    let names = FLAVOR.names();
    match (head.method, &parts[..]) {
        (Method::GET, [group, _, plural]) => {
            let group = [names.networking, names.apinet].into_iter().find(|one| one == group);
            Ok(Response::new(watch(&state, group.filter(|_| *plural == "networkinterfaces"))))
        }
        (Method::PATCH, ["networking.ironcore.dev", _, "networkinterfaces", name, "status"]) => {
            state.writes.fetch_add(1, Ordering::Relaxed);
            let patch: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
            let number = name.trim_start_matches("nic-").parse()?;
            let status = patch.pointer("/status/state").and_then(Value::as_str).context("a state")?;
            let object = source_interface(number, state.next(), status);
            state.events.send((names.networking, event("MODIFIED", &object)))?;
            state.written.send(Instant::now())?;
            Ok(Response::new(whole(object.to_string())))
        }
        (method, _) => {
            if method != Method::GET {
                state.writes.fetch_add(1, Ordering::Relaxed);
            }
            let status = json!({ "kind": "Status", "status": "Failure", "message": "not here", "reason": "NotFound", "code": 404 });
            Ok(Response::builder().status(404).body(whole(status.to_string()))?)
        }
    }
}

fn whole(text: String) -> Body {
    Full::new(Bytes::from(text)).boxed_unsync()
}

/// A streamed list, and then the events of this group; nothing if it is None.
fn watch(state: &Arc<State>, group: Option<&'static str>) -> Body {
    let names = FLAVOR.names();
    let count = group.map_or(0, |_| state.count);
    let list = stream::iter((0..count).step_by(FRAME)).map(move |first| {
        let objects = (first..count.min(first + FRAME)).map(|number| {
            let is_source = group == Some(names.networking);
            let object = if is_source {
                source_interface(number, FIRST_VERSION, "Available")
            } else {
                apinet_interface(number, FIRST_VERSION, "Ready")
            };
            event("ADDED", &object)
        });
        Bytes::from(objects.collect::<Vec<_>>().concat())
    });
    let end = json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": { "resourceVersion": FIRST_VERSION.to_string(), "annotations": { "k8s.io/initial-events-end": "true" } },
    });
    let end = stream::iter([event("BOOKMARK", &end)]);
    let events = stream::unfold(state.events.subscribe(), move |mut events| async move {
        loop {
            match events.recv().await.ok()? {
                (of, event) if Some(of) == group => return Some((event, events)),
                _ => {}
            }
        }
    });
    StreamBody::new(list.chain(end).chain(events).map(|bytes| Ok(Frame::data(bytes)))).boxed_unsync()
}

fn event(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })))
}

fn uid(kind: u8, number: usize) -> String {
    format!("{kind:08x}-0000-4000-8000-{number:012x}")
}

fn address(number: usize) -> String {
    format!("10.{}.{}.{}", number / 65536, number / 256 % 256, number % 256)
}

/// As long as those of a real server: an entry for each of three managers.
fn managed_fields() -> Value {
    let entry = |manager: &str| {
        json!({
            "manager": manager, "operation": "Apply", "apiVersion": "v1alpha1", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
            "fieldsV1": { "f:metadata": { "f:labels": { "f:a": {} } }, "f:spec": { "f:networkRef": {}, "f:ips": {}, "f:prefixes": {} } },
        })
    };
    json!([entry("machinepoollet"), entry("apinetlet"), entry("metalnetlet")])
}

fn source_interface(number: usize, version: u64, state: &str) -> Value {
    let name = format!("nic-{number}");
    let id = format!("ironcore-net://{NAMESPACE}/{name}/node-{}/{}", number % 500, uid(2, number));
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {
            "name": name, "namespace": SOURCE, "uid": uid(1, number), "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "finalizers": [FLAVOR.finalizer(Kind::NetworkInterface)],
            "managedFields": managed_fields(),
        },
        "spec": {
            "providerID": id, "networkRef": { "name": format!("net-{}", number % 100) }, "ipFamilies": ["IPv4"],
            "ips": [{ "value": address(number) }], "machineRef": { "name": format!("machine-{number}"), "uid": uid(3, number) },
        },
        "status": { "state": state, "lastStateTransitionTime": "2026-01-01T00:00:00Z", "ips": [address(number)] },
    })
}

fn apinet_interface(number: usize, version: u64, state: &str) -> Value {
    let name = format!("nic-{number}");
    let origin = Origin { uid: uid(1, number), namespace: SOURCE.to_owned(), name: name.clone() };
    let mut metadata = Keys::of(FLAVOR, Kind::NetworkInterface).write(&origin, Layout::Annotated);
    metadata.labels.insert(FLAVOR.source_cluster_label(), CLUSTER.to_owned());
    json!({
        "apiVersion": API_VERSION, "kind": KIND,
        "metadata": {
            "name": name, "namespace": NAMESPACE, "uid": uid(2, number), "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z", "labels": metadata.labels, "annotations": metadata.annotations,
            "managedFields": managed_fields(),
        },
        "spec": {
            "nodeRef": { "name": format!("node-{}", number % 500) }, "networkRef": { "name": uid(4, number % 100) },
            "ips": [address(number)],
        },
        "status": { "state": state },
    })
}
