//! A control plane with the manifests of cgw-controller, a gateway node, and a proxy of its own for each account.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use e2e::control_plane::ControlPlane;
use e2e::fault_proxy::{FaultProxy, Upstream};
use e2e::kustomize;
use e2e::netns::{Lab, Node, Port};
use e2e::program::{Launch, Program};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::{TcpListener, TcpStream};

use crate::cgw_keeper::lab::{require_keepalived, within};

/// Namespace of the manifests.
pub const OWN: &str = "cgw-controller";
/// Namespace of a tenant.
pub const TENANT: &str = "shop";
pub const VIP: &str = "10.9.0.201";
pub const NODE: &str = "g0";
const NODE_IP: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
const AUDIENCE: &str = "cgw-controller.perimeter.dev";

/// A ServiceAccount that is bound to the ClusterRole `cgw-ctl` as docs/cgw-controller.md describes it.
pub const OPERATOR: &str = "operator";
/// The accounts that send requests to the API server, and the port of their proxies on the node.
const ACCOUNTS: [(&str, u16); 4] =
    [("cgw-controller", 8001), ("cgw-keeper", 8002), ("cgw-agent", 8003), (OPERATOR, 8004)];

/// Ports on the node: the HTTP API, and the admin servers of the roles.
const API: u16 = 8443;
pub const ADMIN: [(&str, u16); 3] = [("controller", 8081), ("keeper", 8082), ("agent", 8083)];

/// The gateway node, and the node that is its network.
struct Network {
    node: Node,
    _lan: Node,
    _lab: Lab,
}

impl Network {
    fn new() -> Network {
        require_keepalived();
        let lab = Lab::new().unwrap();
        let (lan, node) = (lab.node("lan").unwrap(), lab.node(NODE).unwrap());
        let address = format!("{NODE_IP}/24");
        lab.link(Port::new(&lan, NODE, &["10.9.0.254/24"]), Port::new(&node, "eth0", &[&address])).unwrap();
        Network { node, _lan: lan, _lab: lab }
    }

    /// Connections to `port` on the node's loopback reach `to` in the test's network.
    fn inward(&self, port: u16, to: SocketAddr) {
        let bind = move || std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        let listener = within(&self.node, bind).join().unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                tokio::spawn(async move {
                    if let Ok(far) = TcpStream::connect(to).await {
                        copy(near, far).await;
                    }
                });
            }
        });
    }

    /// Connections to the returned address of the test's network reach `to` on the node.
    async fn outward(&self, to: SocketAddr) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let node = self.node.clone();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let node = node.clone();
                let connect = move || within(&node, move || std::net::TcpStream::connect(to)).join().unwrap();
                tokio::spawn(async move {
                    let Ok(far) = tokio::task::spawn_blocking(connect).await.unwrap() else { return };
                    far.set_nonblocking(true).unwrap();
                    copy(near, TcpStream::from_std(far).unwrap()).await;
                });
            }
        });
        address
    }
}

async fn copy(mut near: TcpStream, mut far: TcpStream) {
    // Either side may end first.
    let _ended = tokio::io::copy_bidirectional(&mut near, &mut far).await;
}

pub struct TestEnv {
    pub client: Client,
    /// By account.
    pub proxies: BTreeMap<&'static str, FaultProxy>,
    /// The objects of the manifests.
    pub manifests: Vec<Value>,
    /// Admin servers by role, and the HTTP API, in the test's network.
    pub admin: BTreeMap<&'static str, SocketAddr>,
    api: SocketAddr,
    certificate: String,
    network: Network,
    folder: TempDir,
    control_plane: ControlPlane,
}

impl TestEnv {
    /// The API server streams no lists, so that the verb `list` is used as well as `watch`.
    pub async fn start() -> TestEnv {
        let control_plane = ControlPlane::builder()
            .without_controllers()
            .api_server_flag("--feature-gates=WatchList=false")
            .start()
            .await
            .unwrap();
        let client = control_plane.client();
        let overlay = kustomize::overlay("cgw-controller", &[]).unwrap();
        let manifests = kustomize::objects(&kustomize::render(overlay.path()).unwrap()).unwrap();
        kustomize::apply(&control_plane, "-k", overlay.path(), &[]).unwrap();

        let network = tokio::task::spawn_blocking(Network::new).await.unwrap();
        let mut proxies = BTreeMap::new();
        for (account, port) in ACCOUNTS {
            let upstream = Upstream::kubernetes(control_plane.url()).ca_pem(control_plane.ca_pem().unwrap());
            let proxy = FaultProxy::start(upstream).await.unwrap();
            let address = proxy.url().rsplit("//").next().unwrap().trim_end_matches('/').parse().unwrap();
            network.inward(port, address);
            proxies.insert(account, proxy);
        }
        let mut admin = BTreeMap::new();
        for (role, port) in ADMIN {
            admin.insert(role, network.outward((Ipv4Addr::LOCALHOST, port).into()).await);
        }
        let api = network.outward((NODE_IP, API).into()).await;

        let folder = tempfile::tempdir().unwrap();
        let names = [NODE_IP.to_string(), Ipv4Addr::LOCALHOST.to_string()];
        let pair = rcgen::generate_simple_self_signed(names).unwrap();
        let certificate = pair.cert.pem();
        std::fs::write(folder.path().join("tls.crt"), &certificate).unwrap();
        std::fs::write(folder.path().join("tls.key"), pair.signing_key.serialize_pem()).unwrap();
        let router =
            format!("vrid: 51\ninterface: eth0\nvips: [10.9.0.201-10.9.0.202]\npeers: [{NODE_IP}]\n");
        std::fs::write(folder.path().join("router.yaml"), router).unwrap();
        // keepalived runs scripts of root only, and a checkout may belong to another user.
        e2e::program::copy(&e2e::program::built("cgw").unwrap(), &folder.path().join("cgw")).unwrap();

        let env =
            TestEnv { client, proxies, manifests, admin, api, certificate, network, folder, control_plane };
        env.populate().await;
        env
    }

    async fn populate(&self) {
        self.apply("v1", "Namespace", None, TENANT, json!({})).await;
        self.apply("v1", "ServiceAccount", Some(TENANT), "default", json!({})).await;
        let node = json!({
            "metadata": { "name": NODE, "labels": { "cgw-controller.perimeter.dev/gateway": "" } },
            "spec": { "podCIDR": "10.244.0.0/24", "podCIDRs": ["10.244.0.0/24"] },
        });
        self.apply("v1", "Node", None, NODE, node).await;
        let status = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": NODE_IP }] } });
        self.patch_status("Node", None, NODE, status).await;
        let pod = json!({
            "metadata": { "name": "web-1", "labels": { "app": "web" } },
            "spec": { "nodeName": NODE, "containers": [{ "name": "web", "image": "web" }] },
        });
        self.apply("v1", "Pod", Some(TENANT), "web-1", pod).await;
        let address = "10.244.0.5";
        let status =
            json!({ "status": { "podIP": address, "podIPs": [{ "ip": address }], "phase": "Running" } });
        self.patch_status("Pod", Some(TENANT), "web-1", status).await;
        let web = json!({ "spec": {
            "type": "LoadBalancer", "loadBalancerClass": "cgw-controller.perimeter.dev/vip",
            "selector": { "app": "web" }, "ports": [{ "port": 80 }],
        } });
        self.apply("v1", "Service", Some(TENANT), "web", web).await;
        let orphan = json!({ "spec": { "selector": { "app": "other" }, "ports": [{ "port": 81 }] } });
        self.apply("v1", "Service", Some(TENANT), "orphan", orphan).await;

        let rbac = "rbac.authorization.k8s.io/v1";
        let subjects = json!([{ "kind": "ServiceAccount", "name": OPERATOR, "namespace": OWN }]);
        let role = |name: &str| json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
        let rules = json!({ "rules": [
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] },
            { "apiGroups": [""], "resources": ["services", "nodes"], "verbs": ["list"] },
        ] });
        self.apply("v1", "ServiceAccount", Some(OWN), OPERATOR, json!({})).await;
        self.apply(rbac, "ClusterRole", None, OPERATOR, rules).await;
        let binding = json!({ "subjects": subjects, "roleRef": role(OPERATOR) });
        self.apply(rbac, "ClusterRoleBinding", None, OPERATOR, binding).await;
        let binding = json!({ "subjects": subjects, "roleRef": role("cgw-ctl") });
        self.apply(rbac, "RoleBinding", Some(OWN), OPERATOR, binding).await;
    }

    fn api_of(&self, version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        }
    }

    async fn apply(&self, version: &str, kind: &str, namespace: Option<&str>, name: &str, rest: Value) {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        object.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        let api = self.api_of(version, kind, namespace);
        api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(&object)).await.unwrap();
    }

    async fn patch_status(&self, kind: &str, namespace: Option<&str>, name: &str, patch: Value) {
        let api = self.api_of("v1", kind, namespace);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Writes annotations of a Service. Null removes one.
    pub async fn annotate(&self, namespace: &str, name: &str, annotations: Value) {
        let patch = json!({ "metadata": { "annotations": annotations } });
        let api = self.api_of("v1", "Service", Some(namespace));
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// The annotations of a Service.
    pub async fn annotations(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let service = self.api_of("v1", "Service", Some(namespace)).get(name).await.unwrap();
        service.metadata.annotations.unwrap_or_default()
    }

    pub fn node(&self) -> &Node {
        &self.network.node
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A token for the HTTP API.
    pub async fn token(&self, account: &str) -> String {
        let spec = TokenRequestSpec { audiences: vec![AUDIENCE.to_owned()], ..TokenRequestSpec::default() };
        let body = serde_json::to_vec(&TokenRequest { spec, ..TokenRequest::default() }).unwrap();
        let path = format!("/api/v1/namespaces/{OWN}/serviceaccounts/{account}/token");
        let request = http::Request::post(path).body(body).unwrap();
        self.client.request::<TokenRequest>(request).await.unwrap().status.unwrap().token
    }

    /// A kubeconfig with the token of an account, for a server that is its proxy.
    async fn kubeconfig(&self, account: &str, server: &str) -> PathBuf {
        let token = self.control_plane.service_account_token(OWN, account).await.unwrap();
        self.control_plane.token_kubeconfig(server, &token).unwrap()
    }

    /// Starts a role on the node.
    pub async fn start_role(&self, role: &str, flags: &[(&str, String)]) -> Program {
        let (account, port) =
            ACCOUNTS.into_iter().find(|(account, _)| *account == format!("cgw-{role}")).unwrap();
        let (_, admin) = ADMIN.into_iter().find(|(name, _)| *name == role).unwrap();
        let kubeconfig = self.kubeconfig(account, &format!("http://127.0.0.1:{port}")).await;
        // nsenter becomes the program, so signals reach it.
        let launch = Program::at("/usr/bin/nsenter").name(role).args([
            "--target".to_owned(),
            self.node().pid().to_string(),
            "--net".to_owned(),
            "--".to_owned(),
            self.file("cgw").display().to_string(),
            role.to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--namespace={OWN}"),
            format!("--admin-address=127.0.0.1:{admin}"),
        ]);
        launch.args(flags.iter().map(|(flag, value)| format!("--{flag}={value}"))).start().unwrap()
    }

    pub async fn start_controller(&self) -> Program {
        let flags = [
            ("api-address", format!("{NODE_IP}:{API}")),
            ("tls-cert-file", self.file("tls.crt").display().to_string()),
            ("tls-private-key-file", self.file("tls.key").display().to_string()),
            ("resync-interval", "2s".to_owned()),
            ("repair-delay", "5s".to_owned()),
            ("lost-keeper-timeout", "1s".to_owned()),
        ];
        self.start_role("controller", &flags).await
    }

    pub async fn start_keeper(&self) -> Program {
        std::fs::write(self.file("keeper-token"), self.token("cgw-keeper").await).unwrap();
        let flags = [
            ("config", self.file("router.yaml").display().to_string()),
            ("node-name", NODE.to_owned()),
            ("node-ip", NODE_IP.to_string()),
            ("controller-url", format!("https://{NODE_IP}:{API}")),
            ("controller-ca", self.file("tls.crt").display().to_string()),
            ("token-file", self.file("keeper-token").display().to_string()),
            ("run-dir", self.file("run").display().to_string()),
        ];
        self.start_role("keeper", &flags).await
    }

    pub async fn start_agent(&self) -> Program {
        let flags = [("node-name", NODE.to_owned()), ("service-cidr", "10.96.0.0/12".to_owned())];
        self.start_role("agent", &flags).await
    }

    /// `cgw ctl` with a token of an account, at the controller itself.
    pub async fn ctl(&self, account: &str) -> Launch {
        let token = self.file("ctl-token");
        std::fs::write(&token, self.token(account).await).unwrap();
        Program::binary("cgw").unwrap().name("ctl").args(["ctl".to_owned()]).args([
            format!("--controller-url=https://{}", self.api),
            format!("--controller-ca={}", self.file("tls.crt").display()),
            format!("--token-file={}", token.display()),
            // It is not used, but has to be one.
            format!(
                "--kubeconfig={}",
                self.kubeconfig(OPERATOR, &self.proxies[OPERATOR].url()).await.display()
            ),
        ])
    }

    /// `cgw ctl` of an operator, at the API server's proxy.
    pub async fn operator(&self) -> Launch {
        let kubeconfig = self.kubeconfig(OPERATOR, &self.proxies[OPERATOR].url()).await;
        Program::binary("cgw")
            .unwrap()
            .name("ctl")
            .args(["ctl".to_owned(), format!("--kubeconfig={}", kubeconfig.display())])
    }

    /// `GET` of a path of the HTTP API.
    pub async fn get(&self, account: &str, path: &str) -> String {
        use rustls::pki_types::pem::PemObject as _;
        let mut config = Config::new(format!("https://{}", self.api).parse().unwrap());
        let certificate =
            rustls::pki_types::CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap();
        config.root_cert = Some(vec![certificate.to_vec()]);
        config.auth_info.token = Some(self.token(account).await.into());
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        Client::try_from(config).unwrap().request_text(request).await.unwrap()
    }
}
