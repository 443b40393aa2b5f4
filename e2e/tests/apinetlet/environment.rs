//! Two namespaces of a shared ironcore, an apinetlet between them, and a stand-in for the MachinePool.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apinetlet::api::{ApiKind, apinet, source};
use apinetlet::names::Flavor;
use apinetlet::provider_id::{InterfaceId, NetworkId};
use e2e::control_plane::ControlPlane;
use e2e::fault_proxy::{FaultProxy, Upstream, WriteCounter};
use e2e::ironcore::Ironcore;
use e2e::program::{Launch, Program};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::{Value, json};

pub const FLAVOR: Flavor = Flavor::Ironcore;

pub struct TestEnv {
    /// Of an administrator, without a proxy.
    pub client: Client,
    /// Of the source objects.
    pub source: String,
    /// Of the apinet objects.
    pub apinet: String,
    /// Between apinetlet and the source cluster. The user behind it has the rights of upstream's ClusterRole, and no others.
    pub source_proxy: FaultProxy,
    /// The same for the apinet cluster.
    pub apinet_proxy: FaultProxy,
    /// Counts the writes through both.
    pub counter: WriteCounter,
    control_plane: ControlPlane,
    _ironcore: Arc<Ironcore>,
}

impl TestEnv {
    pub async fn new() -> TestEnv {
        let ironcore = Ironcore::shared().await.unwrap();
        let control_plane = ironcore.control_plane.of_this_runtime().await.unwrap();
        let client = control_plane.client();
        let source = control_plane.namespace("source").await.unwrap();
        let apinet = control_plane.namespace("apinet").await.unwrap();
        let source_user =
            grant(&client, &source, &["rbac/role.yaml", "rbac/leader_election_role.yaml"]).await;
        let apinet_user = grant(&client, &apinet, &["apinet-rbac/role.yaml"]).await;
        let counter = WriteCounter::new();
        let (certificate, key) = control_plane.admin_identity_pem().unwrap();
        let upstream = Upstream::kubernetes(control_plane.url())
            .ca_pem(control_plane.ca_pem().unwrap())
            .client_certificate(certificate, key);
        let proxy = async |user: &str| {
            let upstream = upstream.clone().impersonate(user, Vec::new());
            FaultProxy::start_counted(upstream, &counter).await.unwrap()
        };
        let (source_proxy, apinet_proxy) = (proxy(&source_user).await, proxy(&apinet_user).await);
        TestEnv {
            client,
            source,
            apinet,
            source_proxy,
            apinet_proxy,
            counter,
            control_plane,
            _ironcore: ironcore,
        }
    }

    /// One with a running apinetlet.
    pub async fn started() -> (TestEnv, Program) {
        let env = TestEnv::new().await;
        let program = env.start(&[]).await;
        (env, program)
    }

    /// Of the source cluster and of the apinet cluster, through the proxies.
    pub fn kubeconfigs(&self) -> (String, String) {
        let kubeconfig = |proxy: &FaultProxy| {
            let file = self.control_plane.token_kubeconfig(&proxy.url(), "unused");
            file.unwrap().display().to_string()
        };
        (kubeconfig(&self.source_proxy), kubeconfig(&self.apinet_proxy))
    }

    pub fn launch(&self, more: &[&str]) -> Launch {
        let (source, apinet) = self.kubeconfigs();
        Program::binary("apinetlet")
            .unwrap()
            .args([
                format!("--kubeconfig={source}"),
                format!("--api-net-kubeconfig={apinet}"),
                format!("--namespace={}", self.source),
                format!("--own-namespace={}", self.source),
                format!("--api-net-namespace={}", self.apinet),
                "--health-probe-bind-address=127.0.0.1:0".to_owned(),
            ])
            .args(more.iter().copied())
    }

    /// Starts apinetlet, and waits until its caches have synced.
    pub async fn start(&self, more: &[&str]) -> Program {
        let program = self.launch(more).start().unwrap();
        until("apinetlet is ready", async || {
            Ok((program.get("/readyz").await?.0 == http::StatusCode::OK).then_some(()))
        })
        .await
        .unwrap();
        program
    }

    pub fn source<K: apinetlet::api::SourceKind>(&self) -> Api<K> {
        Api::namespaced_with(self.client.clone(), &self.source, &FLAVOR)
    }

    pub fn apinet<K: apinetlet::api::ApiNetKind>(&self) -> Api<K> {
        Api::namespaced_with(self.client.clone(), &self.apinet, &FLAVOR)
    }

    pub async fn network(&self, name: &str) -> source::Network {
        create(&self.source(), name, json!({})).await
    }

    /// The MachinePool creates the apinet interface of a source interface on a Node, and sets its provider ID.
    pub async fn attach(&self, interface: &str, node: &str) -> apinet::NetworkInterface {
        let sources = self.source::<source::NetworkInterface>();
        let source = sources.get(interface).await.unwrap();
        let network = source.spec.network_ref.name.clone();
        let network = until("the provider ID of the Network", async || {
            let network = self.source::<source::Network>().get(&network).await?;
            Ok(NetworkId::parse(FLAVOR, &network.spec.provider_id).ok())
        })
        .await
        .unwrap();
        let spec = json!({
            "nodeRef": { "name": node }, "networkRef": { "name": network.name },
            "ips": self.ips(interface).await, "hostname": interface,
        });
        let name = format!("machine-{interface}");
        let created = create(&self.apinet::<apinet::NetworkInterface>(), &name, spec).await;
        let id = InterfaceId {
            namespace: self.apinet.clone(),
            name,
            node: node.to_owned(),
            uid: created.uid().unwrap(),
        };
        let patch = json!({ "spec": { "providerID": id.display(FLAVOR).to_string() } });
        sources.patch(interface, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        created
    }

    /// The addresses of a source interface.
    async fn ips(&self, interface: &str) -> Vec<String> {
        let request = http::Request::get(format!(
            "/apis/networking.ironcore.dev/v1alpha1/namespaces/{}/networkinterfaces/{interface}",
            self.source
        ));
        let object: Value = self.client.request(request.body(Vec::new()).unwrap()).await.unwrap();
        let ips = object["spec"]["ips"].as_array().unwrap();
        ips.iter().map(|ip| ip["value"].as_str().unwrap().to_owned()).collect()
    }

    /// Sets the state of the apinet interface, as metalnetlet does.
    pub async fn set_state(&self, interface: &apinet::NetworkInterface, state: &str) {
        let public: Vec<String> = {
            let now = self.apinet::<apinet::NetworkInterface>().get(&interface.name_any()).await.unwrap();
            now.spec.public_ips.iter().filter_map(|one| one.ip.clone()).collect()
        };
        let patch = Patch::Merge(json!({ "status": { "state": state, "publicIPs": public } }));
        let api = self.apinet::<apinet::NetworkInterface>();
        api.patch_status(&interface.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// The reasons of the Events on a source object.
    pub async fn event_reasons(&self, name: &str) -> Vec<String> {
        let events = Api::<Event>::namespaced(self.client.clone(), &self.source);
        let list = events.list(&ListParams::default()).await.unwrap();
        let of_object =
            list.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name));
        of_object.filter_map(|event| event.reason).collect()
    }

    /// A token of a service account in the source namespace.
    pub async fn token(&self, account: &str) -> String {
        self.control_plane.service_account_token(&self.source, account).await.unwrap()
    }

    /// Writes to the kinds of both sides, not to Events and the ConfigMap.
    pub fn writes(&self) -> Vec<String> {
        let writes = [self.source_proxy.writes(), self.apinet_proxy.writes()].concat();
        let lines = writes.iter().map(|one| format!("{} {}", one.method, one.path));
        lines.filter(|line| line.contains("ironcore.dev")).collect()
    }

    /// Forgets the requests.
    pub fn clear_requests(&self) {
        self.source_proxy.clear_requests();
        self.apinet_proxy.clear_requests();
    }
}

/// The rules of a Role in a file of upstream's manifests.
pub fn upstream_rules(file: &str) -> Vec<Value> {
    let folder = e2e::assets::ironcore().unwrap().join("ironcore-net-config/apinetlet");
    let text = std::fs::read_to_string(folder.join(file)).unwrap();
    let role: Value = serde_yaml::from_str(&text).unwrap();
    role["rules"].as_array().unwrap().clone()
}

/// A user with the rights of these files of upstream's manifests in one namespace.
async fn grant(client: &Client, namespace: &str, files: &[&str]) -> String {
    let user = format!("apinetlet-{namespace}");
    let rules: Vec<Value> = files.iter().flat_map(|file| upstream_rules(file)).collect();
    let metadata = json!({ "name": user });
    let role = json!({ "metadata": metadata, "rules": rules });
    let group = "rbac.authorization.k8s.io";
    let binding = json!({
        "metadata": metadata, "roleRef": { "apiGroup": group, "kind": "Role", "name": user },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
    });
    let parameters = PostParams::default();
    let roles = Api::<Role>::namespaced(client.clone(), namespace);
    roles.create(&parameters, &serde_json::from_value(role).unwrap()).await.unwrap();
    let bindings = Api::<RoleBinding>::namespaced(client.clone(), namespace);
    bindings.create(&parameters, &serde_json::from_value(binding).unwrap()).await.unwrap();
    user
}

pub async fn create<K: ApiKind>(api: &Api<K>, name: &str, spec: Value) -> K {
    create_with(api, name, json!({}), json!({ "spec": spec })).await
}

pub async fn create_with<K: ApiKind>(api: &Api<K>, name: &str, metadata: Value, body: Value) -> K {
    let mut object = json!({
        "apiVersion": K::api_version(&FLAVOR), "kind": K::kind(&FLAVOR), "metadata": metadata,
    });
    object["metadata"]["name"] = name.into();
    for (field, value) in body.as_object().unwrap() {
        object[field] = value.clone();
    }
    let patch = PatchParams::apply("test").force();
    api.patch(name, &patch, &Patch::Apply(object)).await.unwrap()
}

pub async fn patch<K: ApiKind>(api: &Api<K>, name: &str, patch: Value) -> K {
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

pub async fn delete<K: ApiKind>(api: &Api<K>, name: &str) {
    api.delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until an object is as described.
pub async fn wait<K: ApiKind>(api: &Api<K>, name: &str, what: &str, holds: impl Fn(&K) -> bool) -> K {
    let found = until(what, async || Ok(api.get_opt(name).await?.filter(&holds))).await;
    match found {
        Ok(found) => found,
        Err(error) => panic!("{error}: {:#?}", api.get_opt(name).await),
    }
}

/// Polls until the sample has stayed the same for so long.
pub async fn stable<T: PartialEq>(
    what: &str,
    span: Duration,
    sample: impl AsyncFn() -> anyhow::Result<T>,
) -> T {
    let last = RefCell::new(None);
    let is_stable = async || {
        let now = sample().await?;
        let mut last = last.borrow_mut();
        let since = match last.take() {
            Some((same, since)) if same == now => since,
            _ => Instant::now(),
        };
        if since.elapsed() >= span {
            return Ok(Some(now));
        }
        *last = Some((now, since));
        Ok(None)
    };
    until(what, is_stable).await.unwrap()
}

pub async fn wait_gone<K: ApiKind>(api: &Api<K>, name: &str) {
    let gone = async || Ok(api.get_opt(name).await?.is_none().then_some(()));
    if let Err(error) = until(&format!("the end of {name}"), gone).await {
        panic!("{error}: {:#?}", api.get_opt(name).await);
    }
}

pub fn labels<K: Resource>(object: &K) -> BTreeMap<String, String> {
    object.meta().labels.clone().unwrap_or_default()
}
