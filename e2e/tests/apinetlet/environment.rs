//! Two namespaces of a shared control plane with the kinds of both clusters, an apinetlet between them, and a stand-in for the
//! MachinePool.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apinetlet::api::{ApiKind, apinet, source};
use apinetlet::names::{Flavor, Kind};
use apinetlet::origin::{Keys, Origin};
use e2e::control_plane::ControlPlane;
use e2e::fault_proxy::{FaultProxy, Upstream, WriteCounter};
use e2e::ironcore::Ironcore;
use e2e::machine_pool::MachinePool;
use e2e::onmetal;
use e2e::program::{Launch, Program};
use e2e::rights::User;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::config::Config;
use kube::{Api, Client, Resource};
use serde_json::{Value, json};

use super::permissions::{Permissions, apinet_rights, grant, onmetal_rights, source_rights};

/// The scenarios, functions of a [`TestEnv`], as tests of each flavor.
macro_rules! of_each_flavor {
    ($($scenario:ident),+ $(,)?) => {
        mod ironcore {
            $(#[tokio::test]
            async fn $scenario() {
                super::$scenario($crate::apinetlet::environment::TestEnv::new().await).await;
            })+
        }
        mod onmetal {
            $(#[tokio::test]
            async fn $scenario() {
                super::$scenario($crate::apinetlet::environment::TestEnv::onmetal().await).await;
            })+
        }
    };
}
pub(crate) use of_each_flavor;

pub struct TestEnv {
    pub flavor: Flavor,
    /// Of an administrator, without a proxy.
    pub client: Client,
    /// Of the source objects.
    pub source: String,
    /// Of the apinet objects.
    pub apinet: String,
    /// Between apinetlet and the source cluster. The user behind it has the [`Permissions`], and no others.
    pub source_proxy: FaultProxy,
    /// The same for the apinet cluster.
    pub apinet_proxy: FaultProxy,
    /// Counts the writes through both.
    pub counter: WriteCounter,
    pub machine_pool: MachinePool,
    control_plane: ControlPlane,
    _servers: Arc<dyn Any + Send + Sync>,
}

impl TestEnv {
    pub async fn new() -> TestEnv {
        Self::with(Permissions::Upstream).await
    }

    pub async fn with(permissions: Permissions) -> TestEnv {
        TestEnv::on(Ironcore::shared().await.unwrap(), permissions).await
    }

    /// With two new namespaces of this ironcore.
    pub async fn on(ironcore: Arc<Ironcore>, permissions: Permissions) -> TestEnv {
        let control_plane = ironcore.control_plane.of_this_runtime().await.unwrap();
        let apinet = control_plane.namespace("apinet").await.unwrap();
        TestEnv::in_namespace(ironcore, permissions, apinet).await
    }

    /// With this namespace of apinet objects.
    pub async fn in_namespace(ironcore: Arc<Ironcore>, permissions: Permissions, apinet: String) -> TestEnv {
        let control_plane = ironcore.control_plane.of_this_runtime().await.unwrap();
        TestEnv::at(Flavor::Ironcore, control_plane, ironcore, permissions, apinet).await
    }

    /// With the names of onmetal.
    pub async fn onmetal() -> TestEnv {
        let control_plane = ControlPlane::shared("onmetal").await.unwrap();
        onmetal::define(&control_plane).await.unwrap();
        let apinet = control_plane.namespace("apinet").await.unwrap();
        let allocator = onmetal::allocate(control_plane.client(), apinet.clone());
        tokio::spawn(async move { allocator.await.unwrap() });
        TestEnv::at(Flavor::Onmetal, control_plane, Arc::new(()), Permissions::OwnOnmetal, apinet).await
    }

    /// `servers`: what runs as long as the environment.
    async fn at(
        flavor: Flavor,
        control_plane: ControlPlane,
        servers: Arc<dyn Any + Send + Sync>,
        permissions: Permissions,
        apinet: String,
    ) -> TestEnv {
        let client = control_plane.client();
        let source = control_plane.namespace("source").await.unwrap();
        let (source_user, apinet_user) = match permissions {
            Permissions::Upstream => (
                grant(&client, &source, &["rbac/role.yaml", "rbac/leader_election_role.yaml"]).await,
                grant(&client, &apinet, &["apinet-rbac/role.yaml"]).await,
            ),
            Permissions::Own => (
                source_rights().give(&client, &source).await.unwrap(),
                apinet_rights().give(&client, &apinet).await.unwrap(),
            ),
            Permissions::OwnOnmetal => (
                onmetal_rights("apinetlet").give(&client, &source).await.unwrap(),
                onmetal_rights("apinetlet/apinet-rights").give(&client, &apinet).await.unwrap(),
            ),
        };
        let counter = WriteCounter::new();
        let (certificate, key) = control_plane.admin_identity_pem().unwrap();
        let upstream = Upstream::kubernetes(control_plane.url())
            .ca_pem(control_plane.ca_pem().unwrap())
            .client_certificate(certificate, key);
        let proxy = async |user: &User| {
            let upstream = upstream.clone().impersonate(&user.name, user.groups.clone());
            FaultProxy::start_counted(upstream, &counter).await.unwrap()
        };
        let (source_proxy, apinet_proxy) = (proxy(&source_user).await, proxy(&apinet_user).await);
        TestEnv {
            flavor,
            machine_pool: MachinePool::new(client.clone(), flavor, &source, &apinet),
            client,
            source,
            apinet,
            source_proxy,
            apinet_proxy,
            counter,
            control_plane,
            _servers: servers,
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

    /// Of a user with a client certificate of this group, without a proxy.
    pub fn user_kubeconfig(&self, user: &str, group: &str) -> String {
        self.control_plane.user_kubeconfig(user, Some(group)).unwrap().display().to_string()
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
            .args((self.flavor == Flavor::Onmetal).then_some("--flavor=onmetal"))
            .args(more.iter().copied())
    }

    /// The source object that an apinet object names.
    pub fn origin<K: Resource>(&self, kind: Kind, object: &K) -> Option<Origin> {
        Keys::of(self.flavor, kind).read(object.meta())
    }

    /// Starts apinetlet, and waits until its caches have synced.
    pub async fn start(&self, more: &[&str]) -> Program {
        ready(&self.launch(more)).await
    }

    pub fn source<K: apinetlet::api::SourceKind>(&self) -> Api<K> {
        self.machine_pool.source()
    }

    pub fn apinet<K: apinetlet::api::ApiNetKind>(&self) -> Api<K> {
        self.machine_pool.apinet()
    }

    pub async fn network(&self, name: &str) -> source::Network {
        create(&self.source(), name, json!({})).await
    }

    /// A source interface with an address of the Network "net"; `more`: other fields of its spec.
    pub async fn interface(&self, name: &str, ip: &str, more: Value) -> source::NetworkInterface {
        let mut spec =
            json!({ "networkRef": { "name": "net" }, "ipFamilies": ["IPv4"], "ips": [{ "value": ip }] });
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        create(&self.source(), name, spec).await
    }

    /// See [`MachinePool::attach`].
    pub async fn attach(&self, interface: &str, node: &str) -> apinet::NetworkInterface {
        self.machine_pool.attach(interface, node).await.unwrap()
    }

    /// See [`MachinePool::set_state`].
    pub async fn set_state(&self, interface: &apinet::NetworkInterface, state: &str) {
        self.machine_pool.set_state(interface, state).await.unwrap();
    }

    /// The Events on a source object.
    async fn events(&self, name: &str) -> Vec<Event> {
        let events = Api::<Event>::namespaced(self.client.clone(), &self.source);
        let list = events.list(&ListParams::default()).await.unwrap();
        list.items.into_iter().filter(|event| event.involved_object.name.as_deref() == Some(name)).collect()
    }

    /// The reasons of the Events on a source object.
    pub async fn event_reasons(&self, name: &str) -> Vec<String> {
        self.events(name).await.into_iter().filter_map(|event| event.reason).collect()
    }

    /// Whether a source object has a Warning Event with this text.
    pub async fn has_warning(&self, name: &str, text: &str) -> bool {
        let is_it = |event: &Event| {
            let has_text = event.message.as_ref().is_some_and(|note| note.contains(text));
            event.type_.as_deref() == Some("Warning") && has_text
        };
        self.events(name).await.iter().any(is_it)
    }

    /// Waits for a Warning Event on a source object with this text.
    pub async fn wait_warning(&self, name: &str, text: &str) {
        let is_reported = async || Ok(self.has_warning(name, text).await.then_some(()));
        if let Err(error) = until(&format!("a Warning Event on {name}: {text}"), is_reported).await {
            panic!("{error}: {:#?}", self.events(name).await);
        }
    }

    /// The objects of a kind as the API server serves them.
    pub async fn list(&self, group: &str, namespace: &str, plural: &str) -> Vec<Value> {
        let path = format!("/apis/{group}/v1alpha1/namespaces/{namespace}/{plural}");
        let list: Value =
            self.client.request(http::Request::get(path).body(Vec::new()).unwrap()).await.unwrap();
        list["items"].as_array().cloned().unwrap_or_default()
    }

    /// A GET of the metrics server of the Go program, by a service account of the source namespace. Returns status code and body.
    pub async fn https_metrics(&self, port: u16, account: Option<&str>, path: &str) -> (u16, String) {
        let mut config = Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        config.accept_invalid_certs = true;
        config.default_retry = false;
        if let Some(account) = account {
            let token = self.control_plane.service_account_token(&self.source, account).await.unwrap();
            config.auth_info.token = Some(token.into());
        }
        let client = Client::try_from(config).unwrap();
        match client.request_text(http::Request::get(path).body(Vec::new()).unwrap()).await {
            Ok(text) => (200, text),
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            Err(error) => panic!("{error}"),
        }
    }

    /// Writes to the kinds of both sides, not to Events and the ConfigMap.
    pub fn writes(&self) -> Vec<String> {
        let writes = [self.source_proxy.writes(), self.apinet_proxy.writes()].concat();
        let lines = writes.iter().map(|one| format!("{} {}", one.method, one.path));
        let names = self.flavor.names();
        lines.filter(|line| line.contains(names.networking) || line.contains(names.apinet)).collect()
    }

    /// Forgets the requests.
    pub fn clear_requests(&self) {
        self.source_proxy.clear_requests();
        self.apinet_proxy.clear_requests();
    }
}

/// Starts apinetlet, and waits until its caches have synced.
pub async fn ready(launch: &Launch) -> Program {
    let program = launch.start().unwrap();
    until("apinetlet is ready", async || {
        Ok((program.get("/readyz").await?.0 == http::StatusCode::OK).then_some(()))
    })
    .await
    .unwrap();
    program
}

pub async fn create<K: ApiKind>(api: &Api<K>, name: &str, spec: Value) -> K {
    create_with(api, name, json!({}), json!({ "spec": spec })).await
}

pub async fn create_with<K: ApiKind>(api: &Api<K>, name: &str, metadata: Value, body: Value) -> K {
    e2e::machine_pool::apply(api, name, metadata, body).await.unwrap()
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
