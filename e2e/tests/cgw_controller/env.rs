//! A control plane, the stores, tenants, keepers' status servers, and controllers.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use e2e::control_plane::{ControlPlane, Reservation};
use e2e::fault_proxy::{FaultProxy, Recorded, Upstream};
use e2e::program::{Launch, Program};
use e2e::rights::{User, until_effective};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Wire;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

pub const VIP: &str = "192.168.50.201";
pub const OTHER: &str = "192.168.50.202";
/// Nodes of the two keepers: their status servers listen there, and their notifications come from there.
pub const FIRST: &str = "127.0.0.21";
pub const SECOND: &str = "127.0.0.22";

const SERVER: &str = "cgw-controller.cgw.svc";
const AUDIENCE: &str = "cgw-controller.perimeter.dev";
pub const PREFIX: &str = "cgw-controller.perimeter.dev";
pub const CLASS: &str = "cgw-controller.perimeter.dev/vip";

pub fn mac(node: &str) -> String {
    let last: u8 = node.rsplit('.').next().unwrap().parse().unwrap();
    format!("02:63:7f:00:00:{last:02x}")
}

/// The status server of a keeper.
pub struct Keeper {
    pub node: &'static str,
    pub port: u16,
    status: Arc<Mutex<Option<Value>>>,
    pub polls: Arc<Mutex<usize>>,
}

impl Keeper {
    pub async fn start(node: &'static str) -> Keeper {
        let address: IpAddr = node.parse().unwrap();
        let listener = tokio::net::TcpListener::bind((address, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (status, polls) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(0)));
        let (served, counted) = (Arc::clone(&status), Arc::clone(&polls));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (served, counted) = (Arc::clone(&served), Arc::clone(&counted));
                let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
                    assert_eq!(request.uri().path(), "/status");
                    *counted.lock().unwrap() += 1;
                    let status: Option<Value> = served.lock().unwrap().clone();
                    let code = if status.is_some() { 200 } else { 503 };
                    let body = Full::new(Bytes::from(status.unwrap_or_default().to_string()));
                    async move { http::Response::builder().status(code).body(body) }
                });
                let connection = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service);
                tokio::spawn(connection);
            }
        });
        Keeper { node, port, status, polls }
    }

    /// `None`: it responds with 503.
    pub fn reports(&self, state: Option<(&str, f64)>) {
        *self.status.lock().unwrap() = state.map(|(state, since)| {
            json!({ "state": state, "since": since, "vrid": 51, "vips": [], "node_ip": self.node, "tun_mac": mac(self.node) })
        });
    }
}

type Https = Wire<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A client of the HTTP API with a token, from a source address.
pub struct Caller {
    wire: Https,
    token: Option<String>,
}

/// Code and body of a response, and its header `Allow`.
#[derive(Clone, Debug)]
pub struct Response {
    pub code: u16,
    pub body: Value,
    pub allow: Option<String>,
}

impl Caller {
    pub async fn send(&self, server: SocketAddr, method: &str, path: &str, body: Option<Value>) -> Response {
        let kind = body.is_some().then_some("application/json");
        self.raw(server, method, path, kind, body.map(|body| body.to_string()).unwrap_or_default()).await
    }

    pub async fn raw(
        &self,
        server: SocketAddr,
        method: &str,
        path: &str,
        kind: Option<&str>,
        body: String,
    ) -> Response {
        self.try_raw(server, method, path, kind, body).await.unwrap()
    }

    /// An error: the controller was stopped.
    pub async fn try_raw(
        &self,
        server: SocketAddr,
        method: &str,
        path: &str,
        kind: Option<&str>,
        body: String,
    ) -> anyhow::Result<Response> {
        let mut request = http::Request::builder().method(method).uri(format!("https://{server}{path}"));
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let response = self.wire.request(request.body(Full::new(Bytes::from(body)))?).await?;
        let (head, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await?.to_bytes().to_vec())?;
        let allow = head.headers.get("allow").map(|value| value.to_str().unwrap().to_owned());
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Ok(Response { code: head.status.as_u16(), body, allow })
    }
}

/// A running controller.
pub struct Controller {
    pub program: Arc<Program>,
    pub api: SocketAddr,
}

pub struct TestEnv {
    pub control_plane: ControlPlane,
    pub client: Client,
    /// Between the controllers and the API server.
    pub proxy: FaultProxy,
    /// Namespace of the controllers, the stores and the keepers' ServiceAccount.
    pub own: String,
    /// Namespaces of tenants.
    pub x: String,
    pub y: String,
    pub keepers: [Keeper; 2],
    folder: TempDir,
    kubeconfig: PathBuf,
    certificate: String,
    _alone: Reservation,
}

impl TestEnv {
    pub async fn start() -> TestEnv {
        let (control_plane, alone) = ControlPlane::reserve().await.unwrap();
        let client = control_plane.client();
        release_all(&client).await;
        let own = control_plane.namespace("cgw").await.unwrap();
        let x = control_plane.namespace("x").await.unwrap();
        let y = control_plane.namespace("y").await.unwrap();
        let token = control_plane.service_account_token(&own, "cgw-controller").await.unwrap();
        let upstream = Upstream::kubernetes(control_plane.url()).ca_pem(control_plane.ca_pem().unwrap());
        let proxy = FaultProxy::start(upstream).await.unwrap();
        let kubeconfig = control_plane.token_kubeconfig(&proxy.url(), &token).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec![SERVER.to_owned()]).unwrap();
        std::fs::write(folder.path().join("tls.key"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.path().join("tls.crt"), made.cert.pem()).unwrap();
        let keepers = [Keeper::start(FIRST).await, Keeper::start(SECOND).await];
        let certificate = made.cert.pem();
        let env = TestEnv {
            control_plane,
            client,
            proxy,
            own,
            x,
            y,
            keepers,
            folder,
            kubeconfig,
            certificate,
            _alone: alone,
        };
        for store in ["cgw-hosts", "cgw-binds", "cgw-providers"] {
            env.apply("v1", "Service", Some(&env.own), store, json!({ "spec": { "clusterIP": "None" } }))
                .await;
        }
        env.grant("controller", "cgw-controller", json!([
            { "apiGroups": [""], "resources": ["services"], "verbs": ["get", "list", "watch", "patch"] },
            { "apiGroups": [""], "resources": ["services/status"], "verbs": ["patch"] },
            { "apiGroups": [""], "resources": ["namespaces", "nodes"], "verbs": ["get"] },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["list"] },
            { "apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch"] },
            { "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"] },
            { "apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"] },
        ])).await;
        env.grant("admin", "admin", json!([
            { "nonResourceURLs": ["/vip", "/vip/*", "/vips", "/openapi.json", "/master_notify"], "verbs": ["get", "post", "delete", "put"] },
        ])).await;
        env.grant(
            "keeper",
            "cgw-keeper",
            json!([{ "nonResourceURLs": ["/master_notify"], "verbs": ["post"] }]),
        )
        .await;
        env.register(0, &["192.168.50.201-192.168.50.250"]).await;
        env.register(1, &["192.168.50.201-192.168.50.250"]).await;
        env.keepers[0].reports(Some(("MASTER", 100.0)));
        env.keepers[1].reports(Some(("BACKUP", 100.0)));
        env
    }

    pub async fn apply(&self, version: &str, kind: &str, namespace: Option<&str>, name: &str, rest: Value) {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(&object)).await.unwrap();
    }

    /// Permissions of a ServiceAccount, which are deleted with its namespace.
    async fn grant(&self, role: &str, account: &str, rules: Value) {
        let name = format!("{}-{role}", self.own);
        self.apply("v1", "ServiceAccount", Some(&self.own), account, json!({})).await;
        let owner = Api::<Namespace>::all(self.client.clone()).get(&self.own).await.unwrap().uid().unwrap();
        let metadata = json!({ "name": name, "ownerReferences": [
            { "apiVersion": "v1", "kind": "Namespace", "name": self.own, "uid": owner } ] });
        let rbac = "rbac.authorization.k8s.io/v1";
        self.apply(rbac, "ClusterRole", None, &name, json!({ "metadata": metadata, "rules": rules })).await;
        self.apply(
            rbac,
            "ClusterRoleBinding",
            None,
            &name,
            json!({
                "metadata": metadata,
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name },
                "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": self.own }],
            }),
        )
        .await;
        let user = User { name: format!("system:serviceaccount:{}:{account}", self.own), groups: Vec::new() };
        let rules = rules.as_array().unwrap();
        until_effective(&self.client, &user, None, rules).await.unwrap();
    }

    /// A controller without its last flags; several may run.
    pub fn launch(&self) -> Launch {
        self.launch_with_resync("3s")
    }

    /// With another interval between two polls of the status servers.
    pub fn launch_with_resync(&self, interval: &str) -> Launch {
        Program::binary("cgw")
            .unwrap()
            .args(["controller", "--admin-address", "127.0.0.1:0", "--api-address", "127.0.0.1:0"])
            .args(["--repair-delay", "1s", "--resync-interval", interval, "--namespace", &self.own])
            // A busy machine delays the status servers, which are in the process of the tests.
            .args(["--status-timeout", "30s"])
            .args(["--tls-cert-file".into(), self.folder.path().join("tls.crt").into_os_string()])
            .args(["--tls-private-key-file".into(), self.folder.path().join("tls.key").into_os_string()])
            .args(["--kubeconfig".into(), self.kubeconfig.clone().into_os_string()])
    }

    pub async fn controller(&self) -> Controller {
        Controller::of(self.launch().start().unwrap()).await
    }

    /// A token for the API's audience.
    pub async fn token(&self, account: &str, audience: &str) -> String {
        self.apply("v1", "ServiceAccount", Some(&self.own), account, json!({})).await;
        let spec = TokenRequestSpec { audiences: vec![audience.to_owned()], ..TokenRequestSpec::default() };
        let body = serde_json::to_vec(&TokenRequest { spec, ..TokenRequest::default() }).unwrap();
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{account}/token", self.own);
        let request = http::Request::post(path).body(body).unwrap();
        self.client.request::<TokenRequest>(request).await.unwrap().status.unwrap().token
    }

    pub fn caller(&self, token: Option<String>, source: Option<&str>) -> Caller {
        use rustls::pki_types::pem::PemObject as _;
        let mut roots = rustls::RootCertStore::empty();
        for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(self.certificate.as_bytes()) {
            roots.add(certificate.unwrap()).unwrap();
        }
        let config =
            rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_local_address(source.map(|source| source.parse().unwrap()));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_only()
            .with_server_name_resolver(FixedServerNameResolver::new(SERVER.try_into().unwrap()))
            .enable_http1()
            .wrap_connector(tcp);
        let wire = Wire::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        Caller { wire, token }
    }

    pub async fn admin(&self) -> Caller {
        self.caller(Some(self.token("admin", AUDIENCE).await), None)
    }

    /// The keeper of a node: its ServiceAccount, and its address.
    pub async fn keeper(&self, node: &str) -> Caller {
        self.caller(Some(self.token("cgw-keeper", AUDIENCE).await), Some(node))
    }

    /// Writes the entry of a keeper.
    pub async fn register(&self, keeper: usize, vips: &[&str]) {
        let Keeper { node, port, .. } = &self.keepers[keeper];
        let entry = json!({ "v": 1, "ip": node, "port": port, "node": format!("g{keeper}"), "vrid": 51, "vips": vips, "boot": "b" });
        self.annotate(
            &self.own,
            "cgw-hosts",
            json!({ format!("{PREFIX}/host.{node}-{port}"): entry.to_string() }),
        )
        .await;
    }

    pub async fn annotate(&self, namespace: &str, service: &str, annotations: Value) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.patch(namespace, service, patch).await;
    }

    pub async fn patch(&self, namespace: &str, service: &str, patch: Value) {
        let api = Api::<Service>::namespaced(self.client.clone(), namespace);
        api.patch(service, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    /// A Service of a tenant with one port.
    pub async fn service(&self, namespace: &str, name: &str, port: u16, spec: Value) {
        let mut rest = json!({ "spec": { "selector": { "app": name }, "ports": [{ "port": port }] } });
        rest["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        self.apply("v1", "Service", Some(namespace), name, rest).await;
    }

    pub async fn read(&self, namespace: &str, name: &str) -> Service {
        Api::<Service>::namespaced(self.client.clone(), namespace).get(name).await.unwrap()
    }

    /// One of our annotations.
    pub async fn annotation(&self, namespace: &str, name: &str, word: &str) -> Option<String> {
        self.read(namespace, name).await.annotations().get(&format!("{PREFIX}/{word}")).cloned()
    }

    /// The gateway in the annotations: node and epoch.
    pub async fn gateway(&self, namespace: &str, name: &str) -> (String, String) {
        let service = self.read(namespace, name).await;
        let of =
            |word: &str| service.annotations().get(&format!("{PREFIX}/{word}")).cloned().unwrap_or_default();
        (of("node-ip"), of("epoch"))
    }

    /// The record of a VIP.
    pub async fn record(&self, vip: &str) -> Option<Value> {
        let text = self.annotation(&self.own, "cgw-binds", &format!("bind.{vip}")).await?;
        Some(serde_json::from_str(&text).unwrap())
    }

    /// Writes to the API server that change something.
    pub fn changes(&self) -> Vec<Recorded> {
        let mut writes = self.proxy.writes();
        writes.retain(|write| !write.path.contains("reviews") && !write.path.contains("/events"));
        writes
    }
}

impl Controller {
    pub async fn of(program: Program) -> Controller {
        Controller::shared(Arc::new(program)).await
    }

    pub async fn shared(program: Arc<Program>) -> Controller {
        let line = program.wait_for_line(|line| line.contains("api server listens")).await.unwrap();
        let mut words = line.split(|c: char| !c.is_ascii_hexdigit() && !"[]:.".contains(c));
        let api = words.find_map(|word| word.parse().ok()).unwrap();
        Controller { program, api }
    }
}

/// The annotations that an earlier test of this control plane left would be foreign to this test's stores.
async fn release_all(client: &Client) {
    for service in Api::<Service>::all(client.clone()).list(&ListParams::default()).await.unwrap() {
        if service.annotations().contains_key(&format!("{PREFIX}/vip")) {
            let api = Api::<Service>::namespaced(client.clone(), &service.namespace().unwrap());
            let patch = json!({ "metadata": { "annotations": { format!("{PREFIX}/vip"): null } } });
            api.patch(&service.name_any(), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        }
    }
}

pub async fn wait<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    e2e::wait::until(what, async || Ok(check().await.then_some(()))).await.unwrap();
}
