//! Starts a control plane, or takes an existing one.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::daemons::{self, Keys, Ports};
use super::{Assets, Authority, Cluster, ControlPlane, Daemon, Own, Part, Readiness, StateDir, kubeconfig};

/// Shared control planes by name. One that no test uses any more is stopped: an idle one takes a fiftieth of a processor.
static SHARED: Mutex<BTreeMap<&str, Arc<tokio::sync::Mutex<Weak<Cluster>>>>> = Mutex::new(BTreeMap::new());

/// Options of a control plane.
#[derive(Debug, Clone)]
pub struct Builder {
    kubernetes: Option<String>,
    grace: Duration,
    eviction: Duration,
    without_controllers: bool,
    api_server_flags: Vec<String>,
    controller_flags: Vec<String>,
    users: BTreeMap<String, Vec<String>>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            kubernetes: None,
            // Both as in a real cluster: a busy machine delays reports too.
            grace: Duration::from_secs(40),
            eviction: Duration::from_secs(300),
            without_controllers: false,
            api_server_flags: Vec::new(),
            controller_flags: Vec::new(),
            users: BTreeMap::from([("admin".to_owned(), vec!["system:masters".to_owned()])]),
        }
    }
}

impl Builder {
    /// The version, such as 1.33; `KUBERNETES` in the environment or 1.36 if not set.
    pub fn kubernetes(mut self, version: impl Into<String>) -> Self {
        self.kubernetes = Some(version.into());
        self
    }

    /// How long a node may be silent before it is NotReady, in whole seconds; 40 s if not set, as in
    /// Kubernetes up to 1.31 (50 s since then).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long pods stay on a node that is not ready, unless they say so themselves, in whole seconds; 300 s if not set.
    pub fn eviction(mut self, eviction: Duration) -> Self {
        self.eviction = eviction;
        self
    }

    /// Starts no kube-controller-manager: no garbage collection, and no node becomes NotReady.
    pub fn without_controllers(mut self) -> Self {
        self.without_controllers = true;
        self
    }

    /// Adds a flag to kube-apiserver, such as `--feature-gates=WatchList=false`.
    pub fn api_server_flag(mut self, flag: impl Into<String>) -> Self {
        self.api_server_flags.push(flag.into());
        self
    }

    /// Adds a flag to kube-controller-manager, such as `--leader-elect=true`.
    pub fn controller_flag(mut self, flag: impl Into<String>) -> Self {
        self.controller_flags.push(flag.into());
        self
    }

    /// Adds a user with a bearer token, see [`ControlPlane::user`].
    pub fn user(mut self, name: &str, groups: &[&str]) -> Self {
        self.users.insert(name.to_owned(), groups.iter().map(|&group| group.to_owned()).collect());
        self
    }

    /// Starts it, and waits until it is ready: API, namespaces, service accounts.
    ///
    /// # Errors
    /// The programs are missing, end, or do not become ready; or an existing cluster was to be used and cannot be set up
    /// as asked.
    pub async fn start(&self) -> Result<ControlPlane> {
        if takes_existing() {
            return self.existing().await;
        }
        let kubernetes = self.kubernetes.clone().or_else(|| std::env::var("KUBERNETES").ok());
        let assets = Assets::locate(kubernetes.as_deref().unwrap_or("1.36")).await?;
        let _starting = crate::slots::STARTING_CONTROL_PLANES.wait().await?;
        self.own(assets, StateDir::create()?).await
    }

    /// As [`ControlPlane::shared`]. All who share one have to ask for the same.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn shared(&self, by: &'static str) -> Result<ControlPlane> {
        let cell = SHARED.lock().unwrap_or_else(PoisonError::into_inner).entry(by).or_default().clone();
        let mut shared = cell.lock().await;
        let cluster = match shared.upgrade() {
            Some(cluster) => cluster,
            None => self.start().await?.cluster,
        };
        *shared = Arc::downgrade(&cluster);
        // A client's connections belong to the runtime of its test.
        Ok(ControlPlane { client: kubeconfig::client(&cluster.kubeconfig).await?, cluster })
    }

    async fn own(&self, assets: Assets, dir: StateDir) -> Result<ControlPlane> {
        let authority = Authority::create(dir.path())?;
        let ca = authority.certificate();
        let ports = Ports::choose()?;
        let url = format!("https://127.0.0.1:{}", ports.api_server);
        let serving =
            authority.server("kube-apiserver", &["127.0.0.1", "localhost", "kubernetes.default.svc"])?;
        let (service_account_key, service_account_public) = authority.key_pair("service-accounts")?;

        // A token is its user's name, which is recognisable in recorded requests and sufficient on loopback.
        let tokens: BTreeMap<_, _> =
            self.users.keys().map(|name| (name.clone(), format!("token-of-{name}"))).collect();
        let lines = self
            .users
            .iter()
            .map(|(name, groups)| format!("token-of-{name},{name},{name},\"{}\"\n", groups.join(",")));
        std::fs::write(dir.file("tokens.csv"), lines.collect::<String>())?;

        let identity = authority.client("admin", "admin", Some("system:masters"))?;
        let admin = dir.file("admin.kubeconfig");
        kubeconfig::write(&admin, &url, Some(&ca), &kubeconfig::certificate_user(&identity))?;
        let name = "system:kube-controller-manager";
        let identity = authority.client("controllers", name, None)?;
        let controllers = dir.file("controllers.kubeconfig");
        kubeconfig::write(&controllers, &url, Some(&ca), &kubeconfig::certificate_user(&identity))?;

        let front_proxy = authority.client("front-proxy", daemons::FRONT_PROXY, None)?;
        let keys = Keys {
            ca: &ca,
            ca_key: &authority.key(),
            serving: &serving,
            tokens: &dir.file("tokens.csv"),
            service_account_key: &service_account_key,
            service_account_public: &service_account_public,
            front_proxy: &front_proxy,
        };
        // One after the other, because a program retries only after a second if its server is not ready.
        let client = kubeconfig::client(&admin).await?;
        let etcd = Daemon::start(daemons::etcd(&assets, dir.path(), ports)?)?;
        Readiness::new(&client, vec![(Part::Etcd, &etcd)]).port(ports.etcd).await?;
        let launch = daemons::api_server(&assets, &keys, ports, self.eviction)?;
        let api_server = Daemon::start(launch.args(self.api_server_flags.iter()))?;
        Readiness::new(&client, vec![(Part::Etcd, &etcd), (Part::ApiServer, &api_server)])
            .api_server()
            .await?;
        let controllers = if self.without_controllers {
            None
        } else {
            let launch = daemons::controllers(&assets, &keys, &controllers, self.grace)?;
            Some(Daemon::start(launch.args(self.controller_flags.iter()))?)
        };
        let etcd_url = format!("http://127.0.0.1:{}", ports.etcd);
        let own = Own { controllers, api_server, etcd, etcd_url, assets, authority, tokens };
        let cluster = Cluster { own: Some(own), url, kubeconfig: admin, files: AtomicU32::new(0), dir };
        let control_plane = ControlPlane { client, cluster: Arc::new(cluster) };
        if !self.without_controllers {
            control_plane.readiness().default_account("default").await?;
        }
        Ok(control_plane)
    }

    async fn existing(&self) -> Result<ControlPlane> {
        let plain = Self::default();
        ensure!(
            self.api_server_flags.is_empty()
                && self.controller_flags.is_empty()
                && !self.without_controllers
                && self.kubernetes.is_none()
                && self.grace == plain.grace
                && self.eviction == plain.eviction
                && self.users == plain.users,
            "E2E_EXISTING_CLUSTER=1: this test sets up the control plane as it needs it, and cannot use another"
        );
        let kubeconfig = match std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
            Some(paths) => std::env::split_paths(&paths).next(),
            None => std::env::home_dir().map(|folder| folder.join(".kube/config")),
        };
        let kubeconfig: PathBuf = kubeconfig.context("E2E_EXISTING_CLUSTER=1: KUBECONFIG is not set")?;
        let (client, url) = (kubeconfig::client(&kubeconfig).await?, kubeconfig::url(&kubeconfig).await?);
        let cluster =
            Cluster { own: None, url, kubeconfig, files: AtomicU32::new(0), dir: StateDir::create()? };
        let control_plane = ControlPlane { client, cluster: Arc::new(cluster) };
        control_plane.readiness().api_server().await.context("E2E_EXISTING_CLUSTER=1")?;
        Ok(control_plane)
    }
}

/// Whether tests use an existing cluster.
pub(super) fn takes_existing() -> bool {
    std::env::var_os("E2E_EXISTING_CLUSTER").is_some_and(|value| value == "1")
}
