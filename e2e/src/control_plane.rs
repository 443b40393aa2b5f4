//! A real control plane for tests: etcd, kube-apiserver and kube-controller-manager, ready in about three seconds.
//!
//! ```text
//!   ControlPlane::start()    for one test, stopped when dropped: for tests that pause, kill or configure it
//!   ControlPlane::shared(by) one for all tests of a controller: use your own namespace() and node names
//!   ControlPlane::reserve()  one of a few, with the objects of earlier tests: for tests about a whole cluster
//! ```
//!
//! The programs come from `KUBEBUILDER_ASSETS` or `scripts/assets.sh`, in the version that `KUBERNETES` names (1.36).
//! `E2E_EXISTING_CLUSTER=1` uses the cluster of `KUBECONFIG` instead, for every test that does not stop the programs.
//! No process or file outlives the test process, even if it is killed.

mod assets;
mod builder;
mod daemons;
mod kubeconfig;
mod pki;
mod ready;
mod reservation;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionSpec,
};
use kube::api::{
    ApiResource, DynamicObject, GroupVersionKind, ListParams, ObjectMeta, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, CustomResourceExt, ResourceExt as _};
use serde_json::json;

pub use builder::Builder;
pub use pki::Identity;
pub use reservation::Reservation;

use crate::program::{Launch, Program};
use crate::state_dir::StateDir;
use assets::Assets;
use pki::Authority;
use ready::Readiness;

/// A handle of a control plane; the last one stops it.
#[derive(Clone)]
pub struct ControlPlane {
    client: Client,
    cluster: Arc<Cluster>,
}

/// One of the programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// etcd.
    Etcd,
    /// kube-apiserver.
    ApiServer,
    /// kube-controller-manager.
    Controllers,
}

/// The state of a control plane. Fields are dropped in order: the programs are stopped before their folder is removed.
#[derive(Debug)]
struct Cluster {
    own: Option<Own>,
    url: String,
    kubeconfig: PathBuf,
    files: AtomicU32,
    dir: StateDir,
}

/// The programs of a control plane that the test started.
#[derive(Debug)]
struct Own {
    controllers: Option<Daemon>,
    api_server: Daemon,
    etcd: Daemon,
    etcd_url: String,
    assets: Assets,
    authority: Authority,
    tokens: BTreeMap<String, String>,
}

/// A program that can be restarted with the same flags.
#[derive(Debug)]
struct Daemon {
    launch: Launch,
    running: Mutex<Program>,
}

impl ControlPlane {
    /// Starts one with the defaults; see [`Builder`] for options.
    ///
    /// # Errors
    /// The programs are missing or do not become ready.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Sets flags before the start.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The control plane that tests of this process share by name; the first one starts it, and the last one stops it. The tests of a
    /// controller share one, because Nodes and CRDs are cluster-scoped.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn shared(by: &'static str) -> Result<Self> {
        Self::builder().shared(by).await
    }

    /// A handle for another test: a client's connections belong to the runtime of its test.
    ///
    /// # Errors
    /// The kubeconfig cannot be read.
    pub async fn of_this_runtime(&self) -> Result<Self> {
        let cluster = Arc::clone(&self.cluster);
        Ok(Self { client: kubeconfig::client(&cluster.kubeconfig).await?, cluster })
    }

    /// A client of the administrator, without retries.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A client of a kubeconfig, without retries.
    ///
    /// # Errors
    /// The file cannot be used.
    pub async fn client_of(kubeconfig: &Path) -> Result<Client> {
        kubeconfig::client(kubeconfig).await
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.cluster.kubeconfig
    }

    /// `https://HOST:PORT` of the API server.
    pub fn url(&self) -> String {
        self.cluster.url.clone()
    }

    /// The certificate authority of the API server, in PEM.
    ///
    /// # Errors
    /// The kubeconfig of an existing cluster names none.
    pub fn ca_pem(&self) -> Result<String> {
        kubeconfig::ca_pem(&self.cluster.kubeconfig)
    }

    /// The administrator's client certificate and its key, in PEM.
    ///
    /// # Errors
    /// The kubeconfig of an existing cluster has none.
    pub fn admin_identity_pem(&self) -> Result<(String, String)> {
        kubeconfig::identity_pem(&self.cluster.kubeconfig)
    }

    /// The file of the certificate authority.
    ///
    /// # Errors
    /// An existing cluster cannot be used for this.
    pub fn ca(&self) -> Result<PathBuf> {
        Ok(self.own()?.authority.certificate())
    }

    /// The URL of its etcd, for the API servers behind this one.
    ///
    /// # Errors
    /// An existing cluster cannot be used for this.
    pub fn etcd_url(&self) -> Result<&str> {
        Ok(&self.own()?.etcd_url)
    }

    /// A certificate of a server with these names and addresses. `file` is unique among those of this control plane.
    ///
    /// # Errors
    /// An existing cluster cannot be used for this.
    pub fn server_identity(&self, file: &str, names: &[&str]) -> Result<Identity> {
        self.own()?.authority.server(file, names)
    }

    /// Writes a kubeconfig with the server `url`, such as a fault proxy, and a bearer token, which clients also send over plain HTTP.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn token_kubeconfig(&self, url: &str, token: &str) -> Result<PathBuf> {
        let path = self.new_file("token");
        let ca = url
            .starts_with("https:")
            .then(|| self.own().map(|own| own.authority.certificate()))
            .transpose()?;
        kubeconfig::write(&path, url, ca.as_deref(), &json!({ "token": token }))?;
        Ok(path)
    }

    /// Writes a kubeconfig for a user with a client certificate, and without other permissions than those that
    /// RBAC grants to the name or the group.
    ///
    /// # Errors
    /// An existing cluster cannot be used for this.
    pub fn user_kubeconfig(&self, user: &str, group: Option<&str>) -> Result<PathBuf> {
        let path = self.new_file("user");
        let authority = &self.own()?.authority;
        let identity =
            authority.client(&path.file_stem().unwrap_or_default().to_string_lossy(), user, group)?;
        let user = kubeconfig::certificate_user(&identity);
        kubeconfig::write(&path, &self.cluster.url, Some(&authority.certificate()), &user)?;
        Ok(path)
    }

    /// The bearer token of a user of [`Builder::user`], or of the administrator "admin".
    ///
    /// # Errors
    /// No such user, or an existing cluster.
    pub fn user(&self, name: &str) -> Result<&str> {
        let token = self.own()?.tokens.get(name);
        token.map(String::as_str).with_context(|| format!("no user {name}: name it with Builder::user"))
    }

    /// A bearer token of a service account, which is created if it is missing. The caller creates its RBAC.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn service_account_token(&self, namespace: &str, name: &str) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        match accounts
            .create(&PostParams::default(), &ServiceAccount { metadata, ..Default::default() })
            .await
        {
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            other => drop(other?),
        }
        // A day: longer than any test, and allowed everywhere.
        let spec = TokenRequestSpec { expiration_seconds: Some(24 * 60 * 60), ..TokenRequestSpec::default() };
        let request =
            http::Request::post(format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"))
                .body(serde_json::to_vec(&TokenRequest { spec, ..TokenRequest::default() })?)?;
        let response: TokenRequest = self.client.request(request).await?;
        Ok(response.status.context("a token request is answered with a token")?.token)
    }

    /// A new namespace with the prefix and five random characters. Pods can be created immediately, because its default service account exists.
    ///
    /// # Errors
    /// The API server refuses, or the controllers do nothing.
    pub async fn namespace(&self, prefix: &str) -> Result<String> {
        let metadata = ObjectMeta { generate_name: Some(format!("{prefix}-")), ..ObjectMeta::default() };
        let namespaces: Api<Namespace> = Api::all(self.client());
        let created = namespaces
            .create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() })
            .await?;
        let name = created.metadata.name.context("a created namespace has a name")?;
        self.readiness().default_account(&name).await?;
        Ok(name)
    }

    /// Defines the custom resource `K`, as [`ControlPlane::define`].
    ///
    /// # Errors
    /// The API server refuses, or does not serve it.
    pub async fn serve<K: CustomResourceExt>(&self) -> Result<()> {
        self.define(&K::crd()).await
    }

    /// Defines a custom resource, and waits until the API server serves it: for a moment after the definition is established, a list
    /// gets 429, "storage is (re)initializing".
    ///
    /// # Errors
    /// The API server refuses, or does not serve it.
    pub async fn define(&self, definition: &CustomResourceDefinition) -> Result<()> {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client());
        let params = PatchParams::apply("e2e").force();
        definitions.patch(&definition.name_any(), &params, &Patch::Apply(definition)).await?;
        let CustomResourceDefinitionSpec { group, names, versions, .. } = &definition.spec;
        let version = versions.first().context("a definition without a version")?;
        let kind = GroupVersionKind::gvk(group, &version.name, &names.kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, &names.plural);
        let objects = Api::<DynamicObject>::all_with(self.client(), &resource);
        let served = async || Ok(objects.list(&ListParams::default()).await.is_ok());
        self.readiness().until(&format!("kind {}", names.kind), served).await
    }

    /// Pauses a program, like a hung machine: connections stay open without responses.
    ///
    /// # Errors
    /// It does not run, or the cluster is not ours.
    pub fn pause(&self, part: Part) -> Result<()> {
        self.daemon(part)?.running().pause()
    }

    /// Resumes a program after [`ControlPlane::pause`].
    ///
    /// # Errors
    /// It does not run, or the cluster is not ours.
    pub fn resume(&self, part: Part) -> Result<()> {
        self.daemon(part)?.running().resume()
    }

    /// Kills a program; its data stays.
    ///
    /// # Errors
    /// The cluster is not ours.
    pub fn kill(&self, part: Part) -> Result<()> {
        self.daemon(part)?.running().kill().map(drop)
    }

    /// Starts a program again with the same flags, address and data, killing it first if it runs, and waits until the
    /// cluster is ready.
    ///
    /// # Errors
    /// It does not become ready, or the cluster is not ours.
    pub async fn restart(&self, part: Part) -> Result<()> {
        let daemon = self.daemon(part)?;
        {
            let mut running = daemon.running();
            running.kill()?;
            *running = daemon.launch.start()?;
        }
        let ready = self.readiness();
        ready.api_server().await?;
        if self.own()?.controllers.is_some() { ready.default_account("default").await } else { Ok(()) }
    }

    /// The lines that a program has written since it was started last.
    ///
    /// # Errors
    /// The cluster is not ours.
    pub fn log(&self, part: Part) -> Result<Vec<String>> {
        Ok(self.daemon(part)?.running().output().lines())
    }

    /// Starts another kube-controller-manager, which contends for a Lease with client-go's leader election and runs one small controller. `extra` are flags such as `--leader-elect-resource-name`, `--leader-elect-resource-namespace`,
    /// `--leader-elect-lease-duration`. It has the administrator's permissions.
    ///
    /// # Errors
    /// The cluster is not ours.
    pub fn spawn_kube_controller_manager(&self, extra: &[&str]) -> Result<Program> {
        let name = format!("contender-{}", self.cluster.files.fetch_add(1, Ordering::Relaxed));
        daemons::contender(&self.own()?.assets, &self.cluster.kubeconfig, &name)?
            .args(extra.iter().copied())
            .start()
    }

    fn readiness(&self) -> Readiness<'_> {
        Readiness::new(&self.client, self.cluster.own.iter().flat_map(Own::daemons).collect())
    }

    fn own(&self) -> Result<&Own> {
        self.cluster
            .own
            .as_ref()
            .context("E2E_EXISTING_CLUSTER=1: this needs a control plane of the test's own")
    }

    fn daemon(&self, part: Part) -> Result<&Daemon> {
        let own = self.own()?;
        let daemon = own.daemons().find_map(|(each, daemon)| (each == part).then_some(daemon));
        daemon.with_context(|| format!("this control plane was started without {part:?}"))
    }

    fn new_file(&self, kind: &str) -> PathBuf {
        self.cluster
            .dir
            .file(&format!("{kind}-{}.kubeconfig", self.cluster.files.fetch_add(1, Ordering::Relaxed)))
    }
}

impl Own {
    fn daemons(&self) -> impl Iterator<Item = (Part, &Daemon)> {
        let controllers = self.controllers.as_ref().map(|daemon| (Part::Controllers, daemon));
        [(Part::Etcd, &self.etcd), (Part::ApiServer, &self.api_server)].into_iter().chain(controllers)
    }
}

impl Daemon {
    fn start(launch: Launch) -> Result<Self> {
        let running = Mutex::new(launch.start()?);
        Ok(Self { launch, running })
    }

    fn running(&self) -> MutexGuard<'_, Program> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
