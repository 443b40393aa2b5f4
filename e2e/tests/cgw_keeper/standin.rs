//! A stand-in for the API server and for the controller. Both refuse every call that a keeper has no reason for.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use common::metrics::Metrics;
use common::server::{Builder, Caller, ClientCertificates, Limits, Tls, TlsFiles};
use e2e::netns::Node;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::lab::within;

/// Address of the controller.
pub const CONTROLLER: &str = "10.9.0.254:8443";
const API_SERVER: &str = "10.9.0.254:8001";

const STORE: &str = "/api/v1/namespaces/cgw-system/services/cgw-hosts";
const PREFIX: &str = "cgw-controller.perimeter.dev/host.";

const LIMITS: Limits = Limits {
    connections: 64,
    head_time: Duration::from_secs(60),
    head_bytes: 16 * 1024,
    body_time: Duration::from_secs(60),
    body_bytes: 1 << 20,
};

/// A notification and the controller's response.
#[derive(Clone, Debug)]
pub struct Notification {
    pub body: Value,
    pub confirmed: bool,
}

#[derive(Debug, Default)]
struct State {
    hosts: BTreeMap<String, String>,
    version: u64,
    notifications: Vec<Notification>,
    refuses: bool,
    problems: Vec<String>,
    kill: Option<Kill>,
}

/// The end of a keeper.
#[derive(Debug)]
struct Kill {
    node: IpAddr,
    /// Writes that remain.
    writes: u64,
    pid: Pid,
}

/// The running stand-in.
pub struct Standin {
    state: Arc<Mutex<State>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

type Reply = Response<Full<Bytes>>;

fn reply(code: StatusCode, body: &Value) -> Reply {
    let mut response = Response::new(Full::from(body.to_string()));
    *response.status_mut() = code;
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

fn refused(code: StatusCode, reason: &str) -> Reply {
    let (message, code_number) = (reason.to_owned(), code.as_u16());
    reply(
        code,
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code_number}),
    )
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn store(&self) -> Value {
        json!({
            "apiVersion": "meta.k8s.io/v1",
            "kind": "PartialObjectMetadata",
            "metadata": {
                "name": "cgw-hosts",
                "namespace": "cgw-system",
                "resourceVersion": self.version.to_string(),
                "annotations": self.hosts,
            },
        })
    }

    fn api_server(&mut self, request: &Request<Bytes>) -> Reply {
        let path = request.uri().path();
        match (request.method(), path) {
            (&Method::GET, STORE) => reply(StatusCode::OK, &self.store()),
            (&Method::PATCH, STORE) => self.patch(request),
            (&Method::POST | &Method::PATCH, path)
                if path.starts_with("/apis/events.k8s.io/v1/namespaces/default/events") =>
            {
                match serde_json::from_slice(request.body()) {
                    Ok(event) => reply(StatusCode::OK, &event),
                    Err(error) => self.problem(&format!("Event: {error}")),
                }
            }
            (method, path) => {
                let problem = format!("{method} {path}");
                self.problem(&problem)
            }
        }
    }

    /// A merge patch of annotations, as the API server applies it.
    fn patch(&mut self, request: &Request<Bytes>) -> Reply {
        let kind = request.headers().get("content-type").and_then(|kind| kind.to_str().ok());
        if kind != Some("application/merge-patch+json") {
            return self.problem(&format!("a patch of type {kind:?}"));
        }
        let Ok(patch) = serde_json::from_slice::<Value>(request.body()) else {
            return self.problem("a patch without JSON");
        };
        let version = &patch["metadata"]["resourceVersion"];
        if version.is_string() && version.as_str() != Some(self.version.to_string().as_str()) {
            return refused(StatusCode::CONFLICT, "Conflict");
        }
        let Some(annotations) = patch["metadata"]["annotations"].as_object() else {
            return self.problem("a patch without annotations");
        };
        for (key, value) in annotations {
            match value {
                Value::Null => drop(self.hosts.remove(key)),
                Value::String(text) if key.starts_with(PREFIX) => {
                    drop(self.hosts.insert(key.clone(), text.clone()))
                }
                _ => return self.problem(&format!("annotation {key}: {value}")),
            }
        }
        self.version += 1;
        reply(StatusCode::OK, &self.store())
    }

    fn controller(&mut self, peer: IpAddr, request: &Request<Bytes>) -> Reply {
        if (request.method(), request.uri().path()) != (&Method::POST, "/master_notify") {
            let problem = format!("{} {}", request.method(), request.uri().path());
            return self.problem(&problem);
        }
        let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
        if header("authorization") != Some("Bearer secret-token")
            || header("content-type") != Some("application/json")
        {
            return self.problem("a notification without token or type");
        }
        let Ok(body) = serde_json::from_slice::<Value>(request.body()) else {
            return self.problem("a notification without JSON");
        };
        let mut keys: Vec<&str> =
            body.as_object().map(|body| body.keys().map(String::as_str).collect()).unwrap_or_default();
        // A BACKUP has none.
        keys.retain(|key| *key != "since");
        if keys != ["node", "node_ip", "tun_mac", "vips", "vrid"] || body["node_ip"] != peer.to_string() {
            return self.problem(&format!("a notification from {peer}: {body}"));
        }
        let registered = self.hosts.contains_key(&format!("{PREFIX}{peer}-63051"));
        let confirmed = registered && !self.refuses;
        self.notifications.push(Notification { body, confirmed });
        match (registered, confirmed) {
            (false, _) => refused(StatusCode::FORBIDDEN, "not registered"),
            (_, false) => refused(StatusCode::SERVICE_UNAVAILABLE, "a Service could not be written"),
            _ => reply(StatusCode::OK, &json!({"message": "updated"})),
        }
    }

    /// A client has written something else than an Event.
    fn written(&mut self, client: IpAddr) {
        let Some(kill) = self.kill.as_mut().filter(|kill| kill.node == client && kill.writes > 0) else {
            return;
        };
        kill.writes -= 1;
        if kill.writes == 0 {
            // It may have ended by itself.
            let _gone = nix::sys::signal::kill(kill.pid, Signal::SIGKILL);
        }
    }

    fn problem(&mut self, problem: &str) -> Reply {
        self.problems.push(problem.to_owned());
        refused(StatusCode::BAD_REQUEST, problem)
    }
}

impl Standin {
    /// Starts both servers on `node`, and writes what a keeper needs to `folder`.
    pub fn start(node: &Node, folder: &Path) -> Standin {
        let controller: SocketAddr = CONTROLLER.parse().unwrap();
        let pair = rcgen::generate_simple_self_signed(vec![controller.ip().to_string()]).unwrap();
        let [certificate, key] = ["ca.crt", "tls.key"].map(|name| folder.join(name));
        std::fs::write(&certificate, pair.cert.pem()).unwrap();
        std::fs::write(&key, pair.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.join("token"), "secret-token\n").unwrap();
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{API_SERVER}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "cgw-system"}}],
            "current-context": "c",
        });
        std::fs::write(folder.join("kubeconfig"), kubeconfig.to_string()).unwrap();

        let tls = Tls::read(TlsFiles { certificate, key, clients: ClientCertificates::Ignored }).unwrap();
        let (state, stop) = (Arc::new(Mutex::new(State::default())), CancellationToken::new());
        let (served, stopped) = (Arc::clone(&state), stop.clone());
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = within(node, move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let metrics = Metrics::new("stand-in").unwrap();
                let api_server =
                    Builder::new("api-server", LIMITS).bind(API_SERVER.parse().unwrap()).await.unwrap();
                let secure = Builder::new("controller", LIMITS).tls(tls, &metrics).unwrap();
                let secure = secure.bind(controller).await.unwrap();
                ready.send(()).unwrap();
                let state = Arc::clone(&served);
                let api = move |caller: Caller, request: Request<Bytes>| {
                    let mut state = lock(&state);
                    let reply = state.api_server(&request);
                    if (request.method(), request.uri().path()) == (&Method::PATCH, STORE) {
                        state.written(caller.peer.ip());
                    }
                    async move { reply }
                };
                let notify = move |caller: Caller, request: Request<Bytes>| {
                    let mut state = lock(&served);
                    let reply = state.controller(caller.peer.ip(), &request);
                    state.written(caller.peer.ip());
                    async move { reply }
                };
                tokio::select! {
                    () = stopped.cancelled() => {}
                    _ = async { tokio::join!(
                        api_server.serve(api, CancellationToken::new()),
                        secure.serve(notify, CancellationToken::new()),
                    ) } => {}
                }
            });
        });
        is_ready.recv().unwrap();
        Standin { state, stop, thread: Some(thread) }
    }

    pub fn hosts(&self) -> BTreeMap<String, String> {
        lock(&self.state).hosts.clone()
    }

    /// Removes all entries, as if another client had done it.
    pub fn forget_hosts(&self) {
        let mut state = lock(&self.state);
        state.hosts.clear();
        state.version += 1;
    }

    pub fn notifications(&self) -> Vec<Notification> {
        lock(&self.state).notifications.clone()
    }

    /// Whether the controller confirms nothing.
    pub fn refuse(&self, refuses: bool) {
        lock(&self.state).refuses = refuses;
    }

    /// Kills the keeper of a node after that many writes of it, before it gets the response.
    pub fn kill_after(&self, node: &str, writes: u64, pid: u32) {
        let pid = Pid::from_raw(pid.try_into().unwrap());
        lock(&self.state).kill = Some(Kill { node: node.parse().unwrap(), writes, pid });
    }

    /// Whether the write came after which the keeper was killed.
    pub fn has_killed(&self) -> bool {
        lock(&self.state).kill.as_ref().is_some_and(|kill| kill.writes == 0)
    }

    /// No call was wrong.
    pub fn check(&self) {
        assert_eq!(lock(&self.state).problems, Vec::<String>::new());
    }
}

impl Drop for Standin {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
