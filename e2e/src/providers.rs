//! The controllers between a cluster and OpenStack, as clusters run them: openstack-cloud-controller-manager, cinder-csi-plugin with the
//! side-cars that call it, and octavia-ingress-controller, on the real control plane and the real services of [`crate::openstack`].
//!
//! There is no kubelet: [`Providers::node`] writes what one would register, and nothing is mounted. Routes, load balancers,
//! volumes, attachments and snapshots are managed by the programs themselves. They have the rights of the cluster's administrator, and the
//! application credential of the project.

mod classes;
mod node;
mod objects;
mod part;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use tokio::net::UnixStream;

pub use classes::{DELETE, DRIVER, RETAIN, install_classes, install_snapshot_kinds, snapshot_resource};
pub use objects::Bound;
pub use part::Provider;

use crate::control_plane::{Builder, ControlPlane};
use crate::openstack::Project;
use crate::program::Program;
use crate::state_dir::StateDir;
use crate::wait::until;

/// The range of the pods' addresses; each Node gets a /24 of it.
pub const POD_CIDR: &str = "10.244.0.0/16";

/// The settings of octavia-ingress-controller, which tells what they are written in by the name.
const INGRESS_CONFIG: &str = "ingress.yaml";

/// The providers of one cluster; they end when it is dropped.
pub struct Providers {
    programs: Mutex<BTreeMap<Provider, Program>>,
    client: Client,
    assets: PathBuf,
    kubeconfig: PathBuf,
    cluster: String,
    dir: StateDir,
}

/// A control plane whose Nodes get pod CIDRs, and are initialised by an external provider. The Ready condition of Nodes does not change:
/// there is no kubelet to report it.
#[must_use]
pub fn control_plane() -> Builder {
    ControlPlane::builder()
        .grace(Duration::from_secs(10 * 365 * 24 * 60 * 60))
        .controller_flag("--cloud-provider=external")
        .controller_flag("--allocate-node-cidrs=true")
        .controller_flag(format!("--cluster-cidr={POD_CIDR}"))
        .controller_flag("--configure-cloud-routes=false")
}

impl Providers {
    /// Prepares what the programs need, and starts none of them: kinds and classes in the cluster, and their
    /// settings. `cluster` is the cluster's name in what they create.
    ///
    /// # Errors
    /// The programs cannot be built, or the API server refuses.
    pub async fn prepare(control_plane: &ControlPlane, project: &Project, cluster: &str) -> Result<Self> {
        let assets = tokio::task::spawn_blocking(crate::assets::providers).await??;
        let dir = StateDir::create()?;
        std::fs::write(dir.file("cloud.conf"), project.cloud_conf()?)?;
        let ingress = project.ingress_config(cluster, control_plane.kubeconfig())?;
        std::fs::write(dir.file(INGRESS_CONFIG), ingress)?;
        let client = control_plane.client();
        install_snapshot_kinds(&client, &assets).await?;
        install_classes(&client).await?;
        Ok(Self {
            programs: Mutex::default(),
            client,
            assets,
            kubeconfig: control_plane.kubeconfig().to_owned(),
            cluster: cluster.to_owned(),
            dir,
        })
    }

    /// The same, with [`Provider::USUAL`] running.
    ///
    /// # Errors
    /// As [`Providers::prepare`], or one does not start.
    pub async fn start(control_plane: &ControlPlane, project: &Project, cluster: &str) -> Result<Self> {
        let providers = Self::prepare(control_plane, project, cluster).await?;
        for provider in Provider::USUAL {
            providers.run(provider).await?;
        }
        Ok(providers)
    }

    /// Starts one that does not run. The side-cars need [`Provider::CinderCsi`].
    ///
    /// # Errors
    /// It does not start.
    pub async fn run(&self, provider: Provider) -> Result<()> {
        let socket = self.dir.file("csi.sock");
        if provider == Provider::CinderCsi {
            // Of one that was killed.
            let _ = std::fs::remove_file(&socket);
        }
        let program = self.launch(provider)?.start()?;
        self.programs().insert(provider, program);
        if provider != Provider::CinderCsi {
            return Ok(());
        }
        until(&format!("{provider:?} to listen"), async || {
            if UnixStream::connect(&socket).await.is_ok() {
                return Ok(Some(()));
            }
            if let Some(status) = self.with(provider, Program::exited)? {
                let tail = self.with(provider, |program| Ok(program.output().tail()))?;
                bail!("{provider:?} ended: {status}{tail}");
            }
            Ok(None)
        })
        .await
    }

    /// Kills one at once.
    ///
    /// # Errors
    /// It does not run.
    pub fn kill(&self, provider: Provider) -> Result<()> {
        let program = self.programs().remove(&provider);
        program.with_context(|| format!("{provider:?} does not run"))?.kill().map(drop)
    }

    /// Kills all that run.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill_all(&self) -> Result<()> {
        let programs = std::mem::take(&mut *self.programs());
        programs.values().try_for_each(|program| program.kill().map(drop))
    }

    /// Stops one as a hung machine would.
    ///
    /// # Errors
    /// It does not run.
    pub fn pause(&self, provider: Provider) -> Result<()> {
        self.with(provider, Program::pause)
    }

    /// Lets it go on after [`Providers::pause`].
    ///
    /// # Errors
    /// It does not run.
    pub fn resume(&self, provider: Provider) -> Result<()> {
        self.with(provider, Program::resume)
    }

    /// The lines that a provider has written since its last start.
    ///
    /// # Errors
    /// It does not run.
    pub fn log(&self, provider: Provider) -> Result<Vec<String>> {
        self.with(provider, |program| Ok(program.output().lines()))
    }

    fn with<T>(&self, provider: Provider, act: impl FnOnce(&Program) -> Result<T>) -> Result<T> {
        act(self.programs().get(&provider).with_context(|| format!("{provider:?} does not run"))?)
    }

    fn programs(&self) -> MutexGuard<'_, BTreeMap<Provider, Program>> {
        self.programs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
