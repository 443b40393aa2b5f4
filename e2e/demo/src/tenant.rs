//! A controller of an OpenStack project as its user has it: the kind, a namespace with the project's credentials, the program.

use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::natgw::wait_for;
use e2e::openstack::Project;
use e2e::program::{Launch, Program};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, CustomResourceExt, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tempfile::TempDir;

/// The Secret with the project's `clouds.yaml`.
pub(crate) const SECRET: &str = "cloud-config";

/// Everything that a controller of one project needs.
pub(crate) struct Tenant {
    pub(crate) project: Project,
    pub(crate) control_plane: ControlPlane,
    pub(crate) namespace: String,
    program: PathBuf,
    folder: TempDir,
}

impl Tenant {
    /// Makes the kind `K`, the namespace and the Secret, and waits until the kind is served.
    pub(crate) async fn new<K>(
        program: PathBuf,
        namespace: &str,
        project: Project,
        control_plane: ControlPlane,
    ) -> Result<Tenant>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + CustomResourceExt,
        K: Clone + Debug + DeserializeOwned,
    {
        let namespace = control_plane.namespace(namespace).await?;
        let client = control_plane.client();
        let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
        kinds.create(&PostParams::default(), &K::crd()).await?;
        let objects = Api::<K>::namespaced(client.clone(), &namespace);
        wait_for(&format!("the kind {}", K::kind(&())), || async {
            Ok(objects.list(&ListParams::default()).await.is_ok())
        })
        .await?;
        let clouds = project.clouds_yaml()?;
        let secret: Secret = serde_json::from_value(
            json!({"metadata": {"name": SECRET}, "stringData": {"clouds.yaml": clouds}}),
        )?;
        Api::namespaced(client, &namespace).create(&PostParams::default(), &secret).await?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("clouds.yaml"), clouds)?;
        Ok(Tenant { project, control_plane, namespace, program, folder })
    }

    /// Objects of a kind in the namespace.
    pub(crate) fn objects<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.control_plane.client(), &self.namespace)
    }

    /// The program, with the way to both APIs.
    pub(crate) fn launch(&self) -> Launch {
        Program::at(&self.program)
            .env("KUBECONFIG", self.control_plane.kubeconfig())
            .env("POD_NAMESPACE", &self.namespace)
            .env("OS_CLIENT_CONFIG_FILE", self.folder.path().join("clouds.yaml"))
    }

    /// As a Deployment runs it.
    pub(crate) fn controller(&self) -> Result<Program> {
        self.launch().args(["--admin-address=127.0.0.1:0", "--log-format=json"]).start()
    }

    /// What it prints for a person, to its end.
    pub(crate) async fn ask(&self, launch: Launch) -> Result<String> {
        let program = launch.arg("--log-filter=error").start()?;
        let status = program.wait_exit(Duration::from_secs(60)).await?;
        let text = program.output().lines().join("\n");
        ensure!(status.success(), "{} ended with {status}:\n{text}", self.program.display());
        Ok(text)
    }
}
