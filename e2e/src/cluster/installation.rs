//! natgw on a cluster as a user installs it: its own image, and an overlay on its Kustomize base.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tempfile::TempDir;

use super::{Cloud, Cluster};
use crate::wait::until;

/// As in the base.
pub const NAMESPACE: &str = "natgw";
/// The image of natgw's Jobs, by its default name in natgw's settings.
const JOBS_IMAGE: &str = "busybox:stable";
/// The path at which Debian's package busybox-static installs busybox.
const BUSYBOX: &str = "/bin/busybox";

/// An overlay in a folder of its own.
#[derive(Debug)]
pub struct Installation {
    folder: TempDir,
}

impl Installation {
    /// The overlay that a user would write: the base, the component `ha`, the settings, the token.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(cloud: &Cloud) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let manifests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../manifests").canonicalize()?;
        // Kustomize takes no absolute path.
        let here = folder.path().canonicalize()?;
        let up: PathBuf = here.components().skip(1).map(|_| "..").collect();
        let manifests = up.join(manifests.strip_prefix("/")?);
        let manifests = manifests.display();
        let overlay = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n\
             resources: [{manifests}/natgw]\ncomponents: [{manifests}/components/ha/natgw]\n\
             configMapGenerator: [{{name: natgw-settings, namespace: natgw, behavior: replace, files: [natgw.yaml]}}]\n\
             secretGenerator: [{{name: hcloud, namespace: natgw, literals: [token={}]}}]\n",
            cloud.hetzner.token()
        );
        std::fs::write(here.join("kustomization.yaml"), overlay)?;
        let settings = format!(
            "network: cluster\nclients: {{enabled: true}}\n\
             hetzner: {{endpoint: '{}', pollInterval: 5s}}\n",
            cloud.hetzner.url()
        );
        std::fs::write(here.join("natgw.yaml"), settings)?;
        Ok(Self { folder })
    }

    /// The folder for `kubectl apply -k`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// natgw's settings.
    ///
    /// # Errors
    /// The file is gone.
    pub fn settings(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("natgw.yaml"))?)
    }

    /// Builds natgw's image and gives it, and that of its Jobs, to each node.
    ///
    /// # Errors
    /// It cannot be built, or busybox is missing.
    pub async fn give_images(cluster: &Cluster) -> Result<()> {
        let archive = super::image::build("natgw").await?;
        cluster.import_image(&archive).await?;
        ensure!(Path::new(BUSYBOX).exists(), "{BUSYBOX} is missing (Debian: busybox-static)");
        let applets = ["/bin/busybox", "/bin/sh", "/bin/chroot"].map(|name| format!("{BUSYBOX}:{name}"));
        cluster.make_image(JOBS_IMAGE, &applets).await
    }

    /// `kubectl apply -k`, and waits until natgw is rolled out.
    ///
    /// # Errors
    /// Something is refused, or natgw does not become ready.
    pub async fn apply(&self, cluster: &Cluster) -> Result<()> {
        cluster.kubectl(&["apply", "-k", &self.folder.path().to_string_lossy()]).await?;
        cluster
            .kubectl(&["-n", NAMESPACE, "rollout", "status", "deployment/natgw", "--timeout=600s"])
            .await?;
        Ok(())
    }

    /// The leading pod of natgw, if there is one.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn leader(cluster: &Cluster) -> Result<Option<String>> {
        let leases: Api<Lease> = Api::namespaced(cluster.client(), NAMESPACE);
        let holder = leases.get_opt("natgw").await?.and_then(|lease| lease.spec?.holder_identity);
        // The identity is the pod's name and a random part.
        Ok(holder
            .map(|holder| holder.split('_').next().unwrap_or_default().to_owned())
            .filter(|pod| !pod.is_empty()))
    }

    /// The leading pod of natgw and its Node, as soon as it is another pod than `previous`.
    ///
    /// # Errors
    /// There is none within [`crate::wait::TIMEOUT`], or the API server does not answer.
    pub async fn another_leader(cluster: &Cluster, previous: Option<&str>) -> Result<(String, String)> {
        // A leader that gets no processor for seconds loses its Lease.
        let leader = until(&format!("another leader than {previous:?}"), async || {
            Ok(Self::leader(cluster).await?.filter(|leader| Some(leader.as_str()) != previous))
        })
        .await?;
        let node = ["-n", NAMESPACE, "get", "pod", &leader, "-o", "jsonpath={.spec.nodeName}"];
        let node = cluster.kubectl(&node).await?;
        Ok((leader, node))
    }
}
