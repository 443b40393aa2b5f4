//! The stores, one keeper, and the Services of one VIP, which are bound already.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::program::{Launch, Program};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Client, Config, ResourceExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Services of the VIP.
pub(super) const SERVICES: usize = 1000;
/// Services that are created at a time: few enough for two cores.
const CONCURRENCY: usize = 8;
const VIP: &str = "192.168.50.201";
/// Main address of the gateway node, from which notifications come.
const NODE_IP: &str = "127.0.0.1";
const OWN: &str = "cgw-controller";
const TENANT: &str = "shop";
const PREFIX: &str = "cgw-controller.perimeter.dev";
/// The first promotion, in seconds since 1970.
const SINCE: usize = 1000;

pub(super) struct Stage {
    client: Client,
    kubeconfig: std::path::PathBuf,
    folder: TempDir,
    certificate: Vec<u8>,
}

impl Stage {
    /// Without Services.
    pub(super) async fn on(control_plane: &ControlPlane) -> Result<Stage> {
        let pair = rcgen::generate_simple_self_signed(vec![NODE_IP.to_owned()])?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("tls.crt"), pair.cert.pem())?;
        std::fs::write(folder.path().join("tls.key"), pair.signing_key.serialize_pem())?;
        let kubeconfig = control_plane.kubeconfig().to_owned();
        let certificate = pair.cert.der().to_vec();
        let stage = Stage { client: control_plane.client(), kubeconfig, folder, certificate };
        for namespace in [OWN, TENANT] {
            stage.apply("v1", "Namespace", None, namespace, json!({})).await?;
        }
        let bind = json!({ "v": 1, "scope": "namespace", "namespace": TENANT, "tunId": "0x00000001" });
        let host = json!({
            "v": 1, "ip": NODE_IP, "port": 1, "node": "g1", "vrid": 51, "vips": [VIP], "boot": "b",
        });
        for (store, key, entry) in [
            ("cgw-binds", format!("{PREFIX}/bind.{VIP}"), Some(bind)),
            ("cgw-hosts", format!("{PREFIX}/host.{NODE_IP}-1"), Some(host)),
            ("cgw-providers", String::new(), None),
        ] {
            let annotations = entry.map(|entry| json!({ key: entry.to_string() })).unwrap_or(json!({}));
            let store_object = json!({
                "metadata": { "name": store, "annotations": annotations }, "spec": { "clusterIP": "None" },
            });
            stage.apply("v1", "Service", Some(OWN), store, store_object).await?;
        }
        stage.apply("v1", "ServiceAccount", Some(OWN), "cgw-keeper", json!({})).await?;
        let rbac = "rbac.authorization.k8s.io/v1";
        let rules = json!({ "rules": [{ "nonResourceURLs": ["/master_notify"], "verbs": ["post"] }] });
        stage.apply(rbac, "ClusterRole", None, "cgw-keeper", rules).await?;
        let binding = json!({
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cgw-keeper" },
            "subjects": [{ "kind": "ServiceAccount", "name": "cgw-keeper", "namespace": OWN }],
        });
        stage.apply(rbac, "ClusterRoleBinding", None, "cgw-keeper", binding).await?;
        Ok(stage)
    }

    async fn apply(
        &self,
        version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
        rest: Value,
    ) -> Result<()> {
        let mut object = json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
        if let (Some(object), Value::Object(rest)) = (object.as_object_mut(), rest) {
            object.extend(rest);
        }
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let what = || format!("{kind} {name}");
        let params = PatchParams::apply("bench").force();
        api.patch(name, &params, &Patch::Apply(&object)).await.with_context(what).map(drop)
    }

    /// Creates the Services. They carry the VIP as if they had been bound.
    pub(super) async fn fill(&self) -> Result<()> {
        let create = async |number: usize| {
            let name = format!("s{number}");
            let service = json!({
                "metadata": { "name": name, "annotations": {
                    format!("{PREFIX}/vip"): VIP, format!("{PREFIX}/tun-id"): "0x00000001", format!("{PREFIX}/node-ip"): NODE_IP,
                    format!("{PREFIX}/tun-mac"): mac(0), format!("{PREFIX}/epoch"): "1",
                } },
                "spec": { "clusterIP": "None", "selector": { "app": name }, "ports": [{ "port": number + 1 }] },
            });
            self.apply("v1", "Service", Some(TENANT), &name, service).await
        };
        stream::iter(0..SERVICES).map(create).buffer_unordered(CONCURRENCY).try_collect::<()>().await
    }

    /// The controller, straight to the API server over TLS. There is no status server that it could poll.
    pub(super) fn controller(&self, program: &Path) -> Launch {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        Program::at(program)
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["controller", "--log-format=json", "--api-address=127.0.0.1:0", "--resync-interval=1h"])
            .args([
                format!("--namespace={OWN}"),
                format!("--tls-cert-file={}", file("tls.crt")),
                format!("--tls-private-key-file={}", file("tls.key")),
            ])
    }

    /// A client of the HTTP API with a keeper's token.
    pub(super) async fn keeper(&self, controller: &Program) -> Result<Client> {
        let line = controller.wait_for_line(|line| line.contains("api server listens")).await?;
        let mut words = line.split(|c: char| !c.is_ascii_hexdigit() && !"[]:.".contains(c));
        let address = words.find_map(|word| word.parse::<std::net::SocketAddr>().ok());
        let address = address.with_context(|| format!("an address in {line:?}"))?;
        let audiences = vec![PREFIX.to_owned()];
        let spec = TokenRequestSpec { audiences, ..TokenRequestSpec::default() };
        let body = serde_json::to_vec(&TokenRequest { spec, ..TokenRequest::default() })?;
        let path = format!("/api/v1/namespaces/{OWN}/serviceaccounts/cgw-keeper/token");
        let token: TokenRequest = self.client.request(http::Request::post(path).body(body)?).await?;
        let mut config = Config::new(format!("https://{address}").parse()?);
        config.root_cert = Some(vec![self.certificate.clone()]);
        config.auth_info.token = Some(token.status.context("a token")?.token.into());
        Ok(Client::try_from(config)?)
    }

    /// Sends a notification; how long until the response, when every Service is patched.
    pub(super) async fn promote(&self, keeper: &Client, number: usize) -> Result<Duration> {
        let notify = json!({
            "vips": [VIP], "node_ip": NODE_IP, "tun_mac": mac(number + 1), "vrid": 51, "node": "g1",
            "since": SINCE + number,
        });
        let request = http::Request::post("/master_notify").header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&notify)?)?;
        let begun = Instant::now();
        let outcome: Value = keeper.request(request).await?;
        let took = begun.elapsed();
        // The periodic reconciliation may have updated some of them.
        let mac = mac(number + 1);
        let is_updated = |service: &Service| {
            service.annotations().get(&format!("{PREFIX}/tun-mac")).is_some_and(|one| *one == mac)
        };
        let services = Api::<Service>::namespaced(self.client.clone(), TENANT);
        let services = services.list(&ListParams::default()).await?;
        let updated = services.iter().filter(|service| is_updated(service)).count();
        ensure!(updated == SERVICES, "{updated} of {SERVICES} Services: {outcome}");
        Ok(took)
    }
}

/// A MAC address for each promotion: it is the part of the gateway that changes.
fn mac(number: usize) -> String {
    format!("02:63:7f:00:00:{number:02x}")
}
