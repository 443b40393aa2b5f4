//! A project of OpenStack and a controller that works in it: custom resource, namespace with the project's credentials, program.

use std::fmt::Debug;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::openstack::Project;
use e2e::program::{Launch, Program, built};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::core::NamespaceResourceScope;
use kube::{Api, CustomResourceExt, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;

/// The Secret with the project's `clouds.yaml`.
pub(crate) const SECRET: &str = "cloud-config";

pub(crate) struct Tenant {
    pub(crate) project: Project,
    pub(crate) control_plane: ControlPlane,
    namespace: String,
    program: PathBuf,
    folder: TempDir,
}

impl Tenant {
    /// Creates the custom resource `K`, the namespace and the Secret for `program`. Its namespace has the same name.
    pub(crate) async fn new<K>(program: &str, project: Project, control_plane: ControlPlane) -> Result<Self>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + CustomResourceExt,
        K: Clone + Debug + DeserializeOwned,
    {
        let namespace = control_plane.namespace(program).await?;
        let (folder, program) = (tempfile::tempdir()?, built(program)?);
        let tenant = Self { project, control_plane, namespace, program, folder };
        tenant.control_plane.serve::<K>().await?;
        let clouds = tenant.project.clouds_yaml()?;
        std::fs::write(tenant.folder.path().join("clouds.yaml"), &clouds)?;
        let secret: Secret = serde_json::from_value(
            json!({"metadata": {"name": SECRET}, "stringData": {"clouds.yaml": clouds}}),
        )?;
        tenant.objects().create(&PostParams::default(), &secret).await?;
        Ok(tenant)
    }

    /// Objects of a kind in the namespace.
    pub(crate) fn objects<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.control_plane.client(), &self.namespace)
    }

    /// The program, with access to both APIs.
    pub(crate) fn launch(&self) -> Launch {
        Program::at(&self.program)
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("POD_NAMESPACE", &self.namespace)
            .env("OS_CLIENT_CONFIG_FILE", self.folder.path().join("clouds.yaml"))
    }

    /// Starts the program as a Deployment does.
    pub(crate) fn controller(&self) -> Result<Program> {
        self.launch().args(["--admin-address=127.0.0.1:0", "--log-format=json"]).start()
    }
}

/// Runs a command that ends by itself, and returns the output that it prints for a user.
pub(crate) async fn printed(command: Launch) -> Result<String> {
    let program = command.arg("--log-filter=error").start()?;
    let status = program.wait_exit().await?;
    let text = program.output().lines().join("\n");
    ensure!(status.success(), "the command failed with {status}:\n{text}");
    Ok(text)
}
