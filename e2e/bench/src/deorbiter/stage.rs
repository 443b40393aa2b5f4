//! A cluster that is the management cluster and the target, a project of OpenStack, and deorbiter.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use common::api::deorbit::{Deorbit, DeorbitStatus, Phase};
use common::api::deorbit_binding::DeorbitBinding;
use e2e::deorbiter::{TestEnv, as_another_cluster, kubeconfig};
use e2e::fault_proxy::{FaultProxy, Upstream};
use e2e::openstack::{OpenStack, Project};
use e2e::program::{Launch, Program};
use e2e::rights::Rights;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};

/// The Secret with the target's kubeconfig through the proxy.
pub(crate) const COUNTED_TARGET: &str = "counted";
/// As the cluster's drivers write it on what they create.
pub(crate) const CLUSTER: &str = "prod";
/// Between two polls of a status.
const POLL: Duration = Duration::from_millis(20);

pub(crate) struct Stage {
    pub(crate) env: TestEnv,
    pub(crate) openstack: OpenStack,
    pub(crate) project: Project,
    /// Between deorbiter and the cluster of its Deorbits.
    pub(crate) management: FaultProxy,
    /// Between deorbiter and the cluster that is cleaned up, which is the same.
    pub(crate) target: FaultProxy,
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Stage {
    pub(crate) async fn start(openstack: OpenStack, program: &Path) -> Result<Self> {
        let env = TestEnv::start().await.context("control plane")?;
        // deorbiter is ready when it has listed the DeorbitBindings.
        env.control_plane.serve::<DeorbitBinding>().await?;
        let project = openstack.project(CLUSTER).await?;
        env.cloud(&project).await?;
        let (certificate, key) = env.control_plane.admin_identity_pem()?;
        let upstream = Upstream::kubernetes(env.control_plane.url())
            .ca_pem(env.control_plane.ca_pem()?)
            .client_certificate(certificate, key);
        let user = Rights::of("deorbiter")?.give(&env.client, &env.namespace).await?;
        let management = upstream.clone().impersonate(&user.name, user.groups.clone());
        let management = FaultProxy::start(management).await?;
        as_another_cluster(&management);
        let target = FaultProxy::start(upstream).await?;
        env.secret(COUNTED_TARGET, "value", &kubeconfig(&target.url(), None, &[])?).await?;
        let folder = tempfile::tempdir()?;
        let stage = Self { env, openstack, project, management, target, program: program.to_owned(), folder };
        std::fs::write(stage.counted_kubeconfig(), kubeconfig(&stage.management.url(), None, &[])?)?;
        Ok(stage)
    }

    /// deorbiter through a proxy that only tells management cluster and target apart.
    pub(crate) fn direct(&self) -> Launch {
        self.launch(&self.env.management_kubeconfig)
    }

    /// deorbiter with the permissions of its manifests, through the proxy, which counts.
    pub(crate) fn counted(&self) -> Launch {
        self.launch(&self.counted_kubeconfig())
    }

    fn counted_kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    fn launch(&self, kubeconfig: &Path) -> Launch {
        let launch = Program::at(&self.program).env("KUBECONFIG", kubeconfig);
        launch.env("POD_NAMESPACE", &self.env.namespace).arg("--log-format=json")
    }

    /// Creates a Deorbit with the project's credentials.
    pub(crate) async fn deorbit(&self, name: &str, target: &str) -> Result<()> {
        let spec = json!({
            "kubeconfig": { "secretRef": { "name": target } },
            "openstack": { "identityRef": { "name": "cloud" } }, "clusterName": CLUSTER,
        });
        self.env.deorbit(name, spec).await.map(drop)
    }

    /// Waits until a Deorbit is in a phase or beyond it.
    pub(crate) async fn until(&self, name: &str, phase: Phase, timeout: Duration) -> Result<DeorbitStatus> {
        until_phase(&self.env.deorbits(), name, phase, timeout).await
    }

    /// Deletes a Deorbit while deorbiter runs, and waits until its finalizer is removed and claims are admitted again.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let deorbits = self.env.deorbits();
        deorbits.delete(name, &DeleteParams::default()).await?;
        let gone = async || Ok(deorbits.get_opt(name).await?.is_none());
        self.env.wait(&format!("the end of {name}"), gone).await?;
        self.env.unblocked().await
    }
}

/// Waits until a Deorbit is in a phase or beyond it. Fails if the Deorbit fails.
pub(crate) async fn until_phase(
    deorbits: &Api<Deorbit>,
    name: &str,
    phase: Phase,
    timeout: Duration,
) -> Result<DeorbitStatus> {
    let started = Instant::now();
    loop {
        let status = deorbits.get(name).await?.status.unwrap_or_default();
        let (now, left) = (status.phase, status.remaining);
        ensure!(!now.is_final() || now == Phase::Succeeded, "{name} ended as {now}, {left} remaining");
        if now >= phase {
            return Ok(status);
        }
        ensure!(
            started.elapsed() < timeout,
            "{name} is {now} after {timeout:?}, not {phase}; {left} remaining"
        );
        tokio::time::sleep(POLL).await;
    }
}

/// The metadata that Cinder's CSI driver writes on a volume.
pub(crate) fn metadata() -> Value {
    json!({
        "cinder.csi.openstack.org/cluster": CLUSTER,
        "csi.storage.k8s.io/pv/name": "pvc-0d5c9f3e-0000-4000-8000-000000000000",
        "csi.storage.k8s.io/pvc/name": "data-postgres-0",
        "csi.storage.k8s.io/pvc/namespace": "team-orders",
    })
}
