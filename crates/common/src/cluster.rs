//! The Kubernetes client: kube's parts in our own order, from the call of a controller (top) to the wire (bottom).
//!
//! ```text
//!   whole call    at most 60 s, retries and all
//!   retry         429, 503, 504: three more tries, as Retry-After says (not on the lease client)
//!   headers, auth of the kubeconfig or the service account
//!   one request   a span, metrics, user agent, response headers within 9 s (a write: 13), each frame of a body in 9 s
//!   wire          rustls, HTTP/1.1
//! ```
//!
//! kube's default client waits for a response without limit, and retries up to fifteen times without a log line.
//!
//! A program has one cluster by default ([`connect`]); further ones have names ([`Cluster`]).

use std::{error::Error, path::Path, time::Duration};

use anyhow::Context;
use http::uri::Scheme;
use hyper_util::{
    client::legacy::{Client as Wire, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt, retry::RetryPolicy},
    config::{KubeConfigOptions, Kubeconfig, KubeconfigError},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

use crate::{
    args::{ClientArgs, Program},
    config::ConfigError,
    metrics::Metrics,
    proxy::Proxy,
    secret::{SecretData, SecretError},
};

mod call;
mod named;

use call::{CallLayer, Timeouts};
pub use named::{Cluster, ClusterArgs, ClusterName};

/// The label `api` of the metrics of the first cluster.
pub(crate) const MAIN: &str = "main";

/// The same for the clusters whose kubeconfigs are in Secrets that custom resources name: their number has no limit.
const TARGET: &str = "target";

/// For the response headers of a read, and then between two frames of a body. An unusual number is recognised in a log. Less
/// than the lease's renew deadline of 10 s.
pub(crate) const RESPONSE_TIMEOUT: Duration = Duration::from_secs(9);

/// For the response headers of a write: the API server waits 10 s for an admission webhook by default, and continues then if the
/// webhook's failurePolicy is Ignore.
const WRITE_TIMEOUT: Duration = Duration::from_secs(13);

const TIMEOUTS: Timeouts = Timeouts { read: RESPONSE_TIMEOUT, write: WRITE_TIMEOUT };

/// For a TCP connection; a reachable server accepts one in milliseconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(4);

/// TCP keepalive: the first probe after this time without data, the next ones in this interval, so many of them. A watch on a
/// broken connection is noticed after 25 s; client-go needs 45 s.
const PROBE_AFTER: Duration = Duration::from_secs(10);
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;

/// A call with all its retries: four requests that nearly time out, and the delays between them.
const WHOLE_CALL: Duration = Duration::from_secs(60);

/// API Priority and Fairness sends `Retry-After: 1`. Three retries cover a rolling restart; more of them only delay the report of
/// an outage.
const RETRIES: u32 = 3;

/// Two clients of one cluster.
#[derive(Clone)]
pub struct Clients {
    /// For everything but the lease.
    pub client: Client,
    /// Never retries: the election has its own retry period.
    pub lease: Client,
    /// Of the Pod's service account, else of the kubeconfig's context, else `default`.
    pub default_namespace: String,
}

/// Makes the clients. Reads files, and calls no API server but for a kubeconfig in a Secret: the caches report one that does not
/// respond.
///
/// # Errors
/// [`ConfigError`] where the kubeconfig or the service account cannot be read or used; another error where the Secret cannot be read
/// at present.
pub async fn connect(args: &ClientArgs, program: &Program, metrics: &Metrics) -> anyhow::Result<Clients> {
    let config = configuration(args).await.map_err(|error| ConfigError(error_chain(&*error)))?;
    let default_namespace = config.default_namespace.clone();
    let config = match &args.secret {
        None => config,
        Some(secret) => {
            let own = args.own_namespace(default_namespace.clone());
            let client = build(&config, program, metrics, MAIN, Some(RETRIES))?;
            let namespace = secret.namespace.as_ref().unwrap_or(&own);
            of_secret(&client, namespace, &secret.name).await.map_err(|error| unusable(error, ""))?
        }
    };
    tracing::info!(server = %config.cluster_url, namespace = default_namespace, "Kubernetes API");
    Ok(Clients {
        client: build(&config, program, metrics, MAIN, Some(RETRIES))?,
        lease: build(&config, program, metrics, MAIN, None)?,
        default_namespace,
    })
}

/// The key of the kubeconfig in a Secret of the flags.
const SECRET_KEY: &str = "kubeconfig";

/// The configuration of a kubeconfig in a Secret, as [`of_kubeconfig`] takes it.
async fn of_secret(client: &Client, namespace: &str, name: &str) -> Result<Config, SecretError> {
    let secret = SecretData::read(client, namespace, name).await?;
    let config = of_text(secret.text(SECRET_KEY)?).await;
    config.map_err(|error| secret.invalid(SECRET_KEY, error_chain(&*error)))
}

/// Every error of a Secret is one of the configuration, but for one that may be temporary. `prefix` names the cluster.
fn unusable(error: SecretError, prefix: &str) -> anyhow::Error {
    match error {
        SecretError::Unreadable(..) => error.into(),
        error => ConfigError(format!("{prefix}{error}")).into(),
    }
}

/// A client of another cluster, from a kubeconfig in a Secret. A kubeconfig that names files or a program is refused: the right
/// to write the Secret must not be a right to act inside this process.
///
/// # Errors
/// What is wrong with the kubeconfig, in one line without any part of it that could be secret.
pub async fn of_kubeconfig(text: &str, program: &Program, metrics: &Metrics) -> anyhow::Result<Client> {
    build(&of_text(text).await?, program, metrics, TARGET, Some(RETRIES))
}

async fn of_text(text: &str) -> anyhow::Result<Config> {
    let kubeconfig = of_context(Kubeconfig::from_yaml(text).map_err(readable)?, None);
    let kubeconfig = without_empty_fields(kubeconfig);
    for cluster in kubeconfig.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
        anyhow::ensure!(
            cluster.certificate_authority.is_none(),
            "certificate-authority names a file; put its content into certificate-authority-data"
        );
    }
    for user in kubeconfig.auth_infos.iter().filter_map(|named| named.auth_info.as_ref()) {
        anyhow::ensure!(
            user.exec.is_none() && user.auth_provider.is_none(),
            "a user logs in by a program (exec, auth-provider); use a token or a client certificate"
        );
        let files =
            user.client_certificate.is_some() || user.client_key.is_some() || user.token_file.is_some();
        anyhow::ensure!(
            !files,
            "a user names files; put their content into client-certificate-data, client-key-data or token"
        );
    }
    with_own_proxy(kubeconfig, KubeConfigOptions::default()).await.map_err(readable)
}

/// `proxy_url` is only what the kubeconfig itself says.
async fn with_own_proxy(
    kubeconfig: Kubeconfig,
    options: KubeConfigOptions,
) -> Result<Config, KubeconfigError> {
    let proxied =
        kubeconfig.clusters.iter().filter_map(|one| one.cluster.as_ref()).any(|one| one.proxy_url.is_some());
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    // kube takes it from the environment, and ignores NO_PROXY.
    config.proxy_url = config.proxy_url.filter(|_| proxied);
    Ok(config)
}

/// The kubeconfig with only the cluster and the user of this context, or of the current one. kube reads no others.
fn of_context(mut kubeconfig: Kubeconfig, name: Option<&String>) -> Kubeconfig {
    let name = name.or(kubeconfig.current_context.as_ref());
    let context = kubeconfig.contexts.iter().find(|one| Some(&one.name) == name);
    if let Some(context) = context.and_then(|one| one.context.as_ref()) {
        kubeconfig.clusters.retain(|one| one.name == context.cluster);
        kubeconfig.auth_infos.retain(|one| Some(&one.name) == context.user.as_ref());
    }
    kubeconfig
}

/// A field that a template has left empty is removed.
fn without_empty_fields(mut kubeconfig: Kubeconfig) -> Kubeconfig {
    let filled = |text: &mut Option<String>| *text = text.take().filter(|text| !text.is_empty());
    for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
        filled(&mut cluster.certificate_authority);
        filled(&mut cluster.proxy_url);
    }
    for user in kubeconfig.auth_infos.iter_mut().filter_map(|named| named.auth_info.as_mut()) {
        filled(&mut user.client_certificate);
        filled(&mut user.client_key);
        filled(&mut user.token_file);
    }
    kubeconfig
}

async fn configuration(args: &ClientArgs) -> anyhow::Result<Config> {
    // A value that a template has left empty is not given, as for kubectl's KUBECONFIG.
    let context = args.context.clone().filter(|context| !context.is_empty());
    let in_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
    let mut config = match &args.kubeconfig {
        Some(files) if !files.is_empty() => from(merge(std::env::split_paths(files))?, context)
            .await
            .with_context(|| format!("kubeconfig {}", Path::new(files).display()))?,
        _ if in_pod && context.is_none() => Config::incluster().context("service account of this Pod")?,
        _ => {
            let none = "neither --kubeconfig nor KUBECONFIG is given, and ~/.kube/config cannot be used";
            let kubeconfig = Kubeconfig::read().context(none)?;
            from(kubeconfig, context).await.context(none)?
        }
    };
    if let Some(user) = &args.impersonate {
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(args.impersonate_groups.clone());
    }
    Ok(config)
}

async fn from(kubeconfig: Kubeconfig, context: Option<String>) -> anyhow::Result<Config> {
    let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
    let kubeconfig = without_empty_fields(of_context(kubeconfig, options.context.as_ref()));
    Ok(with_own_proxy(kubeconfig, options).await?)
}

/// Several kubeconfig files are merged: the first one that sets a field wins, as for kubectl.
fn merge(files: impl Iterator<Item = std::path::PathBuf>) -> anyhow::Result<Kubeconfig> {
    files.filter(|file| !file.as_os_str().is_empty()).try_fold(Kubeconfig::default(), |all, file| {
        let one = Kubeconfig::read_from(&file).map_err(readable)?;
        all.merge(one).with_context(|| format!("kubeconfig {}", file.display()))
    })
}

/// kube's parse error has several lines with an excerpt, which may hold a secret.
fn readable(error: KubeconfigError) -> anyhow::Error {
    let text = error.to_string();
    anyhow::anyhow!("{}", text.lines().next().unwrap_or("kubeconfig cannot be read"))
}

fn build(
    config: &Config,
    program: &Program,
    metrics: &Metrics,
    api: &'static str,
    retries: Option<u32>,
) -> anyhow::Result<Client> {
    // kube uses the provider of the process. Where another crate brings a second one, there is no default.
    let _already_set = rustls::crypto::ring::default_provider().install_default();
    let mut connector = HttpConnector::new();
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    // A write is small and its caller waits for it.
    connector.set_nodelay(true);
    // A watch sends nothing and may be silent for minutes: only probes detect that its peer is gone.
    connector.set_keepalive(Some(PROBE_AFTER));
    connector.set_keepalive_interval(Some(PROBE_INTERVAL));
    connector.set_keepalive_retries(Some(PROBES));
    connector.set_tcp_user_timeout(Some(PROBE_AFTER + PROBE_INTERVAL * PROBES));
    let proxy = match &config.proxy_url {
        Some(_) if config.cluster_url.scheme() != Some(&Scheme::HTTPS) => {
            return Err(ConfigError("proxy-url needs a server with an https:// URL".to_owned()).into());
        }
        Some(url) => Proxy::of_kubeconfig(url),
        None => Proxy::of_environment(),
    }
    .map_err(|error| ConfigError(error.to_string()))?;
    let connector = config
        .rustls_https_connector_with_connector(proxy.connector(connector))
        .map_err(|error| ConfigError(error.to_string()))?;
    let wire: Wire<_, Body> = Wire::builder(TokioExecutor::new()).build(connector);

    let retry = retries
        .map(|most| RetryPolicy::new(Duration::from_millis(500), Duration::from_secs(5), most, true))
        .transpose()
        .context("retry policy")?
        .map(RetryLayer::new);
    let auth = config.auth_layer().map_err(|error| ConfigError(error.to_string()))?;
    let headers = config.extra_headers_layer().map_err(|error| ConfigError(error.to_string()))?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .timeout(WHOLE_CALL)
        .option_layer(retry)
        .option_layer(auth)
        .layer(headers)
        .layer(CallLayer::new(program, metrics, api, TIMEOUTS)?)
        .map_err(BoxError::from)
        .service(wire);
    Ok(Client::new(service, config.default_namespace.clone()))
}

/// An error and its causes down to the first ("connection refused") in one line, without repetitions. An error that the API
/// server reports is its message, without the rest of its Status.
#[must_use]
pub fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = message(error);
    let mut last = error;
    while let Some(cause) = last.source().filter(|_| !is_api_error(last)) {
        let more = message(cause);
        // Many errors already include the text of their cause.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        last = cause;
    }
    text
}

fn message(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) if status.message.is_empty() => {
            format!("the API server responded {} {}", status.code, status.reason)
        }
        Some(kube::Error::Api(status)) => status.message.clone(),
        // Its Display is "ServiceError: " and its cause.
        Some(kube::Error::Service(cause)) => cause.to_string(),
        _ => error.to_string(),
    }
}

fn is_api_error(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(_)))
}

#[cfg(test)]
mod tests;
