//! A test environment for routegc: a real control plane and a real Neutron, with a fault proxy before each, and a simulated Nova whose
//! responses the test sets.
//!
//! routegc has the service account and permissions of `manifests/routegc/rbac.yaml`. In OpenStack it has an application credential of its
//! own project, and a region whose catalogue contains the URLs of the proxies.
//!
//! A reconciliation is `routegc --once`: a process that exits, so that the test needs no wait, and each one is also a restart.

mod login;
mod node;
mod nova;
mod policy;
mod reconcile;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use common::api::routegc::RouteGC;
use kube::Client;
use tempfile::TempDir;

pub use node::{hop, pods};
pub use nova::Nova;

use crate::control_plane::ControlPlane;
use crate::fault_proxy::{FaultProxy, Upstream, WriteCounter};
use crate::openstack::{OpenStack, Parts, Project, Release, Service};
use crate::rights::Rights;
use crate::slots::{self, Slot};

/// The pod network of every environment. [`TestEnv::node`] uses it.
pub const PODS: &str = "10.244.0.0/16";

/// The environment of routegc.
pub struct TestEnv {
    /// Real etcd, kube-apiserver.
    pub control_plane: ControlPlane,
    /// An administrator's client, without the proxy.
    pub client: Client,
    /// Namespace of routegc, its RouteGCs and its Secret.
    pub namespace: String,
    /// Real Keystone and Neutron.
    pub openstack: OpenStack,
    /// A network, a subnet 10.7.0.0/16, a router.
    pub project: Project,
    /// Between routegc and the API server.
    pub api_proxy: FaultProxy,
    /// Between routegc and Neutron.
    pub neutron: FaultProxy,
    /// The simulated Nova. Without it the catalogue has no compute service.
    pub nova: Option<Nova>,
    /// Counts routegc's writes to the API server and to Neutron.
    pub writes: WriteCounter,
    region: String,
    kubeconfig: PathBuf,
    folder: TempDir,
    _slot: Slot,
}

impl TestEnv {
    /// With Keystone and Neutron, without Nova.
    ///
    /// # Errors
    /// A part could not be started.
    pub async fn start() -> Result<TestEnv> {
        Self::with(Release::Main, false).await
    }

    /// With a simulated Nova too.
    ///
    /// # Errors
    /// A part could not be started.
    pub async fn with_nova() -> Result<TestEnv> {
        Self::with(Release::Main, true).await
    }

    /// On a release, with or without a Nova.
    ///
    /// # Errors
    /// A part could not be started.
    pub async fn with(release: Release, nova: bool) -> Result<TestEnv> {
        Self::on(OpenStack::shared(Parts::KeystoneNeutron, release).await?, nova).await
    }

    /// On a cloud, with or without a Nova.
    ///
    /// # Errors
    /// A part could not be started.
    pub async fn on(openstack: OpenStack, nova: bool) -> Result<TestEnv> {
        static ENVS: AtomicU64 = AtomicU64::new(0);
        let number = ENVS.fetch_add(1, Ordering::Relaxed);
        let slot = slots::ROUTEGC.wait().await?;
        let control_plane = ControlPlane::shared("routegc").await?;
        let client = control_plane.client();
        control_plane.serve::<RouteGC>().await?;
        let namespace = control_plane.namespace("routegc").await?;
        let project = openstack.project("routegc").await?;
        let writes = WriteCounter::new();
        let user = Rights::of("routegc")?.give(&client, &namespace).await?;
        let (certificate, key) = control_plane.admin_identity_pem()?;
        let upstream = Upstream::kubernetes(control_plane.url())
            .ca_pem(control_plane.ca_pem()?)
            .client_certificate(certificate, key)
            .impersonate(&user.name, user.groups.clone());
        let api_proxy = FaultProxy::start_counted(upstream, &writes).await?;
        let address = openstack.endpoints().address(Service::Network)?;
        let neutron = FaultProxy::start_counted(Upstream::neutron(address), &writes).await?;
        let nova = if nova { Some(Nova::start().await?) } else { None };
        let folder = tempfile::tempdir()?;
        let kubeconfig = folder.path().join("kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_of(&api_proxy.url(), &namespace))?;
        let region = format!("Proxied{number}");
        let env = TestEnv {
            control_plane,
            client,
            namespace,
            openstack,
            project,
            api_proxy,
            neutron,
            nova,
            writes,
            region,
            kubeconfig,
            folder,
            _slot: slot,
        };
        env.announce().await?;
        env.secret("cloud-config", &env.clouds_yaml()?).await?;
        Ok(env)
    }
}

fn kubeconfig_of(url: &str, namespace: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: proxy\nclusters: [{{name: proxy, cluster: {{server: '{url}'}}}}]\n\
         users: [{{name: routegc, user: {{}}}}]\ncontexts: [{{name: proxy, context: {{cluster: proxy, user: routegc, namespace: {namespace}}}}}]\n"
    )
}
