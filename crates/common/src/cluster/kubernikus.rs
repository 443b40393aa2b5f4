//! The Secret `<kluster>-secret` of a Kluster of Kubernikus: the certificates of its administrator, each under a key of its own.
//! The URL of the API server is in the Kluster's status only.

use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::secret::{SecretData, SecretError};

const AUTHORITY: &str = "tls-ca.pem";
const CERTIFICATE: &str = "apiserver-clients-cluster-admin.pem";
const KEY: &str = "apiserver-clients-cluster-admin-key.pem";

/// The kubeconfig of a Kluster. None for a Secret that is no Kluster's.
///
/// # Errors
/// A key is missing, or the URL. `key`: of the kubeconfig that the Secret does not have.
pub(crate) fn kubeconfig(
    secret: &SecretData,
    key: &str,
    server: Option<&str>,
) -> Result<Option<String>, SecretError> {
    if !secret.data().contains_key(CERTIFICATE) {
        return Ok(None);
    }
    let Some(server) = server else {
        let why = "it does not exist; the Secret has the certificates of a Kluster of Kubernikus, which need the URL of the API server (kubeconfig.server of a Deorbit)";
        return Err(secret.invalid(key, why));
    };
    let base64 = |key: &str| -> Result<Value, SecretError> {
        let bytes = ByteString(secret.text(key)?.as_bytes().to_vec());
        serde_json::to_value(bytes).map_err(|_| secret.invalid(key, "it cannot be encoded"))
    };
    let name = "kluster";
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "clusters": [{ "name": name, "cluster": {
            "server": server, "certificate-authority-data": base64(AUTHORITY)? } }],
        "users": [{ "name": name, "user": {
            "client-certificate-data": base64(CERTIFICATE)?, "client-key-data": base64(KEY)? } }],
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
    });
    Ok(Some(kubeconfig.to_string()))
}
