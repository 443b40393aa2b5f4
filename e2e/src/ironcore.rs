//! ironcore and ironcore-net at a control plane: their API servers behind its kube-apiserver, and the controllers of both.
//!
//! One control plane has both roles, as upstream's own tests and its kind overlay have it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::{
    APIService, APIServiceSpec, ServiceReference,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::assets;
use crate::control_plane::ControlPlane;
use crate::program::{Launch, Program, free_port};
use crate::wait::{TIMEOUT, until};

const POLL: Duration = Duration::from_millis(50);

/// Public prefixes of ironcore-net.
pub const PUBLIC_PREFIXES: [&str; 2] = ["10.0.0.0/24", "fdef:273d:a18c:ca25::/64"];

/// How long certificates are valid that the control plane issues, from their issue on. Kubernetes adds five minutes before it, so that
/// 70 to 90 % of the whole time are over in less than 90 s.
pub const CERTIFICATE: Duration = Duration::from_secs(130);

/// The programs; they are stopped when this is dropped.
pub struct Ironcore {
    /// The control plane of both clusters.
    pub control_plane: ControlPlane,
    programs: Vec<Program>,
}

static SHARED: tokio::sync::Mutex<Weak<Ironcore>> = tokio::sync::Mutex::const_new(Weak::new());

impl Ironcore {
    /// The one that tests of this process share; use namespaces of your own.
    ///
    /// # Errors
    /// As [`Ironcore::start`].
    pub async fn shared() -> Result<Arc<Ironcore>> {
        let mut shared = SHARED.lock().await;
        if let Some(ironcore) = shared.upgrade() {
            return Ok(ironcore);
        }
        let mut ironcore = Ironcore::start().await?;
        ironcore.start_source_controllers().await?;
        let ironcore = Arc::new(ironcore);
        *shared = Arc::downgrade(&ironcore);
        Ok(ironcore)
    }

    /// Starts a control plane with both API servers and the controllers of ironcore-net, and waits until all kinds are served.
    ///
    /// # Errors
    /// A program cannot be built or started, or does not become ready.
    pub async fn start() -> Result<Ironcore> {
        Ironcore::with_public_prefixes(&PUBLIC_PREFIXES).await
    }

    /// The same with public prefixes of the caller's.
    ///
    /// # Errors
    /// As [`Ironcore::start`].
    pub async fn with_public_prefixes(prefixes: &[&str]) -> Result<Ironcore> {
        let assets = assets::ironcore()?;
        let control_plane = ControlPlane::builder()
            .controller_flag(format!("--cluster-signing-duration={}s", CERTIFICATE.as_secs()))
            .start()
            .await?;
        let mut ironcore = Ironcore { control_plane, programs: Vec::new() };
        let groups =
            ["core", "compute", "storage", "networking", "ipam"].map(|group| format!("{group}.ironcore.dev"));
        let server = Program::at(assets.join("ironcore-apiserver"));
        ironcore.serve(server, "ironcore", &groups, 2000, &[]).await?;
        let server = Program::at(assets.join("ironcore-net-apiserver")).name("ironcore-net");
        let prefixes: Vec<_> = prefixes.iter().map(|prefix| format!("--public-prefix={prefix}")).collect();
        ironcore
            .serve(server, "ironcore-net", &["core.apinet.ironcore.dev".to_owned()], 1900, &prefixes)
            .await?;
        ironcore.start_controllers(Program::at(assets.join("ironcore-net-controller-manager"))).await?;
        Ok(ironcore)
    }

    /// Starts ironcore's own controllers too: they allocate Prefixes, and write the routings of load balancers.
    ///
    /// # Errors
    /// The program cannot be started.
    pub async fn start_source_controllers(&mut self) -> Result<()> {
        let controllers = Program::at(assets::ironcore()?.join("ironcore-controller-manager"));
        // Without the flag it starts none.
        self.start_controllers(controllers.arg("--controllers=*")).await
    }

    /// Starts a controller manager until it works: it ends at once where a kind is not served yet to it, as the aggregator may respond
    /// for a moment.
    async fn start_controllers(&mut self, controllers: Launch) -> Result<()> {
        let kubeconfig = format!("--kubeconfig={}", self.control_plane.kubeconfig().display());
        let port = free_port()?;
        let probes = format!("--health-probe-bind-address=127.0.0.1:{port}");
        let controllers = controllers.args([kubeconfig, probes]);
        let deadline = Instant::now() + TIMEOUT;
        let mut program = controllers.start()?;
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if let Some(status) = program.exited()? {
                ensure!(Instant::now() < deadline, "{status}{}", program.output().tail());
                program = controllers.start()?;
            }
            ensure!(Instant::now() < deadline, "no probes after {TIMEOUT:?}{}", program.output().tail());
            sleep(POLL).await;
        }
        self.programs.push(program);
        Ok(())
    }

    /// Starts an API server, and registers its groups.
    async fn serve(
        &mut self,
        server: Launch,
        name: &str,
        groups: &[String],
        priority: i32,
        flags: &[String],
    ) -> Result<()> {
        let control_plane = &self.control_plane;
        let host = format!("{name}.default.svc");
        let identity = control_plane.server_identity(name, &[&host, "localhost", "127.0.0.1"])?;
        let (ca, port) = (control_plane.ca()?, free_port()?);
        let kubeconfig = control_plane.kubeconfig().display();
        let server = server
            .args([
                format!("--etcd-servers={}", control_plane.etcd_url()?),
                format!("--etcd-prefix=/{name}"),
                "--bind-address=127.0.0.1".to_owned(),
                format!("--secure-port={port}"),
                format!("--tls-cert-file={}", identity.certificate.display()),
                format!("--tls-private-key-file={}", identity.key.display()),
                format!("--client-ca-file={}", ca.display()),
                format!("--kubeconfig={kubeconfig}"),
                format!("--authentication-kubeconfig={kubeconfig}"),
                format!("--authorization-kubeconfig={kubeconfig}"),
                "--enable-priority-and-fairness=false".to_owned(),
            ])
            .args(flags)
            .start()?;
        self.programs.push(server);
        register(control_plane, name, port, groups, priority).await?;
        self.until_served(groups).await
    }

    async fn until_served(&self, groups: &[String]) -> Result<()> {
        let client = self.control_plane.client();
        for group in groups {
            let version = format!("{group}/v1alpha1");
            let is_served = async || {
                for program in &self.programs {
                    if let Some(status) = program.exited()? {
                        bail!("a server ended: {status}{}", program.output().tail());
                    }
                }
                let kinds = client.list_api_group_resources(&version).await;
                Ok(kinds.is_ok_and(|kinds| !kinds.resources.is_empty()).then_some(()))
            };
            until(&format!("the kinds of {group}"), is_served).await?;
        }
        Ok(())
    }
}

/// The groups are served by a server on this port of the loopback interface.
async fn register(
    control_plane: &ControlPlane,
    name: &str,
    port: u16,
    groups: &[String],
    priority: i32,
) -> Result<()> {
    let parameters = PatchParams::apply("e2e").force();
    let mut service = Service::default();
    service.metadata.name = Some(name.to_owned());
    service.spec = Some(ServiceSpec {
        type_: Some("ExternalName".to_owned()),
        external_name: Some("localhost".to_owned()),
        ..ServiceSpec::default()
    });
    let services = Api::<Service>::namespaced(control_plane.client(), "default");
    services.patch(name, &parameters, &Patch::Apply(service)).await?;
    for group in groups {
        let mut api = APIService::default();
        api.metadata.name = Some(format!("v1alpha1.{group}"));
        api.spec = Some(APIServiceSpec {
            group: Some(group.clone()),
            version: Some("v1alpha1".to_owned()),
            ca_bundle: Some(ByteString(control_plane.ca_pem()?.into_bytes())),
            group_priority_minimum: priority,
            version_priority: 100,
            service: Some(ServiceReference {
                name: Some(name.to_owned()),
                namespace: Some("default".to_owned()),
                port: Some(port.into()),
            }),
            insecure_skip_tls_verify: None,
        });
        let name = api.name_any();
        let services = Api::<APIService>::all(control_plane.client());
        services.patch(&name, &parameters, &Patch::Apply(api)).await.context(name)?;
    }
    Ok(())
}
