//! The credentials of a test environment: those of its project, in a region whose catalogue contains the proxies.

use std::path::PathBuf;

use anyhow::Result;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;

use super::TestEnv;

impl TestEnv {
    /// Writes the proxies into Keystone's catalogue, as a region.
    pub(super) async fn announce(&self) -> Result<()> {
        let mut services = vec![("network", self.neutron.url())];
        services.extend(self.nova.as_ref().map(|nova| ("compute", format!("{}/v2.1", nova.url()))));
        self.openstack.region(&self.region, &services).await
    }

    /// The credentials of the project, in the region of the proxies.
    ///
    /// # Errors
    /// There is no Keystone.
    pub fn clouds_yaml(&self) -> Result<String> {
        Ok(self.project.clouds_yaml()?.replace(crate::openstack::REGION, &self.region))
    }

    /// The cloud.conf of the project, in the region of the proxies, as a file.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn cloud_conf(&self) -> Result<PathBuf> {
        let file = self.folder.path().join("cloud.conf");
        std::fs::write(&file, self.project.cloud_conf()?.replace(crate::openstack::REGION, &self.region))?;
        Ok(file)
    }

    /// A Secret with a clouds.yaml.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn secret(&self, name: &str, clouds_yaml: &str) -> Result<()> {
        self.key(name, "clouds.yaml", clouds_yaml).await
    }

    /// A Secret with a kubeconfig of this cluster, as Cluster API writes one, with the administrator's certificate and without the proxy.
    ///
    /// # Errors
    /// The API server refuses.
    pub async fn kubeconfig_secret(&self, name: &str) -> Result<()> {
        let base64 = |pem: String| json!(ByteString(pem.into_bytes()));
        let (certificate, key) = self.control_plane.admin_identity_pem()?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "e2e",
            "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "e2e" } }],
            "clusters": [{ "name": "e2e", "cluster": {
                "server": self.control_plane.url(),
                "certificate-authority-data": base64(self.control_plane.ca_pem()?) } }],
            "users": [{ "name": "e2e", "user": {
                "client-certificate-data": base64(certificate), "client-key-data": base64(key) } }],
        });
        self.key(name, "value", &kubeconfig.to_string()).await
    }

    async fn key(&self, name: &str, key: &str, text: &str) -> Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": name },
            "data": { key: ByteString(text.as_bytes().to_vec()) },
        }))?;
        let api = Api::<Secret>::namespaced(self.client.clone(), &self.namespace);
        // A field manager for each key, so that applying one key does not remove the others.
        let parameters = PatchParams::apply(&format!("e2e-{key}")).force();
        api.patch(name, &parameters, &Patch::Apply(&secret)).await?;
        Ok(())
    }
}
