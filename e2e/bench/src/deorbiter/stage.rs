//! A cluster that is home and target in one, a project of OpenStack, and deorbiter on them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use common::api::deorbit::{DeorbitStatus, Phase};
use common::api::deorbit_binding::DeorbitBinding;
use e2e::deorbiter::{TestEnv, as_another_cluster, kubeconfig};
use e2e::fault_proxy::{FaultProxy, Upstream};
use e2e::natgw::wait_for;
use e2e::openstack::{OpenStack, Project};
use e2e::program::{Launch, Program};
use e2e::rights::Rights;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, CustomResourceExt as _};
use serde_json::{Value, json};

/// The Secret that leads to the target through the proxy.
pub(crate) const COUNTED_TARGET: &str = "counted";
/// As the cluster's drivers write it on what they make.
pub(crate) const CLUSTER: &str = "prod";
/// Between two looks at a status.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A environment for deorbiter.
pub(crate) struct Stage {
    pub(crate) env: TestEnv,
    pub(crate) openstack: OpenStack,
    pub(crate) project: Project,
    /// Between deorbiter and the cluster that its Deorbits are in.
    pub(crate) home: FaultProxy,
    /// Between deorbiter and the cluster that is cleaned up, which is the same.
    pub(crate) target: FaultProxy,
    binary: PathBuf,
    folder: tempfile::TempDir,
}

impl Stage {
    /// One for deorbiter as it is built at `binary`.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub(crate) async fn set(openstack: OpenStack, binary: &Path) -> Result<Self> {
        let env = TestEnv::start().await.context("control plane")?;
        serve_bindings(&env.client).await?;
        let project = openstack.project(CLUSTER).await?;
        env.cloud(&project).await?;
        let (certificate, key) = env.control_plane.admin_identity_pem()?;
        let upstream = Upstream::kubernetes(env.control_plane.url())
            .ca_pem(env.control_plane.ca_pem()?)
            .client_certificate(certificate, key);
        let user = Rights::of("deorbiter")?.give(&env.client, &env.namespace).await?;
        let home = FaultProxy::start(upstream.clone().impersonate(&user.name, user.groups.clone())).await?;
        as_another_cluster(&home);
        let target = FaultProxy::start(upstream).await?;
        env.secret(COUNTED_TARGET, "value", &kubeconfig(&target.url(), None, &[])?).await?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("home"), kubeconfig(&home.url(), None, &[])?)?;
        Ok(Self { env, openstack, project, home, target, binary: binary.to_owned(), folder })
    }

    /// deorbiter through a proxy that only tells management cluster and target apart.
    pub(crate) fn direct(&self) -> Launch {
        self.launch(&self.env.management_kubeconfig)
    }

    /// deorbiter with the rights of its manifests, through the proxy, which counts.
    pub(crate) fn counted(&self) -> Launch {
        self.launch(&self.folder.path().join("home"))
    }

    fn launch(&self, kubeconfig: &Path) -> Launch {
        let launch = Program::at(&self.binary).env("KUBECONFIG", kubeconfig);
        launch.env("POD_NAMESPACE", &self.env.namespace).arg("--log-format=json")
    }

    /// Creates a Deorbit with the project's login.
    ///
    /// # Errors
    /// The API server refuses.
    pub(crate) async fn deorbit(&self, name: &str, target: &str) -> Result<()> {
        let spec = json!({
            "kubeconfig": { "secretRef": { "name": target } },
            "openstack": { "identityRef": { "name": "cloud" } }, "clusterName": CLUSTER,
        });
        self.env.deorbit(name, spec).await.map(drop)
    }

    /// Waits until a Deorbit is in a phase or beyond it; how it is then.
    ///
    /// # Errors
    /// It ends otherwise, or not in time.
    pub(crate) async fn until(&self, name: &str, phase: Phase, within: Duration) -> Result<DeorbitStatus> {
        let started = Instant::now();
        loop {
            let status = self.env.status(name).await?;
            if status.phase >= phase {
                let ended_well = !status.phase.is_final() || status.phase == Phase::Complete;
                ensure!(ended_well, "{name} ended as {}, {} left", status.phase, status.debris_count);
                return Ok(status);
            }
            if started.elapsed() > within {
                bail!(
                    "{name} is not {phase} after {within:?}: {}, {} remaining",
                    status.phase,
                    status.remaining
                );
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Deletes a Deorbit, waits until deorbiter, which must run, has let it go, and until claims are admitted again.
    ///
    /// # Errors
    /// It stays.
    pub(crate) async fn forget(&self, name: &str) -> Result<()> {
        let deorbits = self.env.deorbits();
        deorbits.delete(name, &DeleteParams::default()).await?;
        self.env
            .wait(&format!("the end of {name}"), async || Ok(deorbits.get_opt(name).await?.is_none()))
            .await?;
        self.env.thawed().await
    }
}

/// What Cinder's driver writes on a volume.
pub(crate) fn metadata() -> Value {
    json!({
        "cinder.csi.openstack.org/cluster": CLUSTER,
        "csi.storage.k8s.io/pv/name": "pvc-0d5c9f3e-0000-4000-8000-000000000000",
        "csi.storage.k8s.io/pvc/name": "data-postgres-0",
        "csi.storage.k8s.io/pvc/namespace": "team-orders",
    })
}

/// deorbiter is ready when it has read its DeorbitBindings, of which there are none here.
///
/// # Errors
/// The API server does not serve the kind.
pub(crate) async fn serve_bindings(client: &Client) -> Result<()> {
    let kinds = Api::<CustomResourceDefinition>::all(client.clone());
    kinds.create(&PostParams::default(), &DeorbitBinding::crd()).await?;
    let bindings = Api::<DeorbitBinding>::all(client.clone());
    wait_for("the kind DeorbitBinding", || async { Ok(bindings.list(&ListParams::default()).await.is_ok()) })
        .await
}
