//! Kubeconfig files: written for users of the control plane, and read for what a proxy needs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use hyper_util::rt::TokioExecutor;
use k8s_openapi::ByteString;
use kube::client::ConfigExt as _;
use kube::config::{AuthInfo, Cluster, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tower::{BoxError, ServiceBuilder};

use super::pki::Identity;

/// Writes a kubeconfig with one cluster and one user. JSON is YAML.
pub(super) fn write(path: &Path, url: &str, ca: Option<&Path>, user: &Value) -> Result<()> {
    let mut cluster = json!({ "server": url });
    if let (Some(ca), Some(cluster)) = (ca, cluster.as_object_mut()) {
        cluster.insert("certificate-authority".into(), json!(ca));
    }
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "e2e",
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "e2e" } }],
        "clusters": [{ "name": "e2e", "cluster": cluster }],
        "users": [{ "name": "e2e", "user": user }],
    });
    std::fs::write(path, serde_json::to_vec_pretty(&kubeconfig)?).with_context(|| path.display().to_string())
}

/// The user of a kubeconfig with a client certificate.
pub(super) fn certificate_user(identity: &Identity) -> Value {
    json!({ "client-certificate": identity.certificate, "client-key": identity.key })
}

/// How long an idle connection is used again. kube's client and kube-apiserver keep it for the same 90 s: a request that is sent when the
/// server closes the connection fails, and a sweep of an hour meets this moment.
const IDLE: Duration = Duration::from_secs(30);

/// A client of that kubeconfig, without kube's retries, so that a test sees each response.
pub(super) async fn client(path: &Path) -> Result<Client> {
    let config = config(path).await?;
    let connections = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .build(config.rustls_https_connector()?);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(Client::new(service, config.default_namespace))
}

/// The URL of its API server.
pub(super) async fn url(path: &Path) -> Result<String> {
    Ok(config(path).await?.cluster_url.to_string().trim_end_matches('/').to_owned())
}

/// The PEM of its certificate authority.
pub(super) fn ca_pem(path: &Path) -> Result<String> {
    let (cluster, _) = current(path)?;
    pem(cluster.certificate_authority_data.as_deref(), cluster.certificate_authority.as_deref())
        .with_context(|| format!("certificate-authority in {}", path.display()))
}

/// The PEM of its user's certificate, and of the key.
pub(super) fn identity_pem(path: &Path) -> Result<(String, String)> {
    // Through JSON: kube hides the inline key in a type of a crate that nothing else here needs.
    let user = serde_json::to_value(current(path)?.1)?;
    let field = |name: &str| user.get(name).and_then(Value::as_str);
    let read = |name: &str| {
        pem(field(&format!("{name}-data")), field(name))
            .with_context(|| format!("{name} in {}", path.display()))
    };
    Ok((read("client-certificate")?, read("client-key")?))
}

async fn config(path: &Path) -> Result<Config> {
    let kubeconfig = Kubeconfig::read_from(path).with_context(|| path.display().to_string())?;
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    Ok(config)
}

fn current(path: &Path) -> Result<(Cluster, AuthInfo)> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    let context =
        kubeconfig.contexts.into_iter().find(|c| Some(&c.name) == kubeconfig.current_context.as_ref());
    let context = context.and_then(|c| c.context).context("no current context")?;
    let cluster = kubeconfig.clusters.into_iter().find(|c| c.name == context.cluster).and_then(|c| c.cluster);
    let user = kubeconfig.auth_infos.into_iter().find(|u| Some(&u.name) == context.user.as_ref());
    Ok((cluster.context("no cluster")?, user.and_then(|u| u.auth_info).context("no user")?))
}

fn pem(inline: Option<&str>, file: Option<&str>) -> Result<String> {
    match (inline, file) {
        (Some(base64), _) => Ok(String::from_utf8(serde_json::from_value::<ByteString>(json!(base64))?.0)?),
        (None, Some(file)) => std::fs::read_to_string(file).with_context(|| file.to_owned()),
        (None, None) => anyhow::bail!("is not there"),
    }
}
