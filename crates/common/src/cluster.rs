//! The Kubernetes client: kube's parts in our own order, from the call of a controller (top) to the wire (bottom).
//!
//! ```text
//!   rate limit    only where flags set one (not on the lease client)
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

use std::{error::Error, time::Duration};

use anyhow::Context;
use http::uri::Authority;
use kube::{
    Client, Config,
    client::{ConfigExt, retry::RetryPolicy},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

use crate::{
    args::{ClientArgs, Program, RateLimit},
    config::ConfigError,
    metrics::Metrics,
    secret::SecretError,
};

mod call;
mod connections;
#[cfg(feature = "certificates")]
mod issued;
mod kubeconfig;
pub(crate) mod kubernikus;
mod limit;
mod login;
mod named;
#[cfg(feature = "certificates")]
mod signing_request;

use call::{CallLayer, Timeouts};
use connections::Connections;
use kubeconfig::KubeconfigIn;
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

/// Makes the clients. Reads files, and calls an API server only for a kubeconfig in a Secret, and for a certificate that the cluster
/// issues: the caches report one that does not respond.
///
/// # Errors
/// [`ConfigError`] where the kubeconfig or the service account cannot be read or used; another error where the Secret cannot be read
/// at present, or the certificate is not issued.
pub async fn connect(args: &ClientArgs, program: &Program, metrics: &Metrics) -> anyhow::Result<Clients> {
    let factory = Factory { program: *program, metrics: metrics.clone(), api: MAIN };
    let secrets = match &args.secret {
        None => None,
        Some(_) => {
            let pod = kubeconfig::configuration(args).await.map_err(invalid)?;
            let client = factory.client(&pod, &Connections::new(&pod)?, None, Some(RETRIES))?;
            Some((client, pod.default_namespace))
        }
    };
    let own = secrets.as_ref().map(|(client, default)| (client, args.own_namespace(default.clone())));
    let (config, connections) = configured(args, &factory, own).await?;
    let default_namespace = match secrets {
        None => config.default_namespace.clone(),
        Some((_, default)) => default,
    };
    tracing::info!(server = server(&config), namespace = default_namespace, "Kubernetes API");
    Ok(Clients {
        client: factory.client(&config, &connections, args.rate, Some(RETRIES))?,
        lease: factory.client(&config, &connections, None, None)?,
        default_namespace,
    })
}

/// The configuration of a cluster, and connections to it; their certificate is renewed if the cluster issues it. `secrets`: where a
/// Secret is read, and its namespace if the arguments have none.
#[cfg_attr(not(feature = "certificates"), allow(unused_variables))]
async fn configured(
    args: &ClientArgs,
    factory: &Factory,
    secrets: Option<(&Client, String)>,
) -> anyhow::Result<(Config, Connections)> {
    let secret = match (&args.secret, secrets) {
        (Some(secret), Some((client, own))) => {
            let namespace = secret.namespace.clone().unwrap_or(own);
            Some(KubeconfigIn { client: client.clone(), namespace, name: secret.name.clone() })
        }
        _ => None,
    };
    #[cfg(feature = "certificates")]
    if let Some(certificate) = &args.certificate {
        let store = match secret {
            Some(secret) => issued::Store::Secret(secret, factory.program.name),
            None => issued::Store::File(kubeconfig::only_file(args).map_err(invalid)?),
        };
        return issued::obtain(certificate, store, args, factory).await;
    }
    let config = match secret {
        None => kubeconfig::configuration(args).await.map_err(invalid)?,
        Some(secret) => secret.configuration().await.map_err(unusable)?,
    };
    let connections = Connections::new(&config)?;
    Ok((config, connections))
}

/// The URL of the API server for a log line: without user and password, which a kubeconfig can have in it.
fn server(config: &Config) -> String {
    let authority = config.cluster_url.authority().map_or("", Authority::as_str);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    config.cluster_url.to_string().replacen(authority, host, 1)
}

/// The error of a kubeconfig that cannot be read or used.
fn invalid(error: anyhow::Error) -> ConfigError {
    ConfigError(error_chain(&*error))
}

/// Every error of a Secret is one of the configuration, but for one that may be temporary.
fn unusable(error: SecretError) -> anyhow::Error {
    match error {
        SecretError::Unreadable(..) => error.into(),
        error => ConfigError(error.to_string()).into(),
    }
}

/// A client of another cluster, from a kubeconfig in a Secret. A kubeconfig that names files or a program is refused: the right
/// to write the Secret must not be a right to act inside this process.
///
/// # Errors
/// What is wrong with the kubeconfig, in one line without any part of it that could be secret.
pub async fn of_kubeconfig(text: &str, program: &Program, metrics: &Metrics) -> anyhow::Result<Client> {
    let config = kubeconfig::of_text(text).await?;
    let factory = Factory { program: *program, metrics: metrics.clone(), api: TARGET };
    factory.client(&config, &Connections::new(&config)?, None, Some(RETRIES))
}

/// Makes clients of one cluster.
#[derive(Clone, Debug)]
struct Factory {
    program: Program,
    metrics: Metrics,
    /// The label of the cluster.
    api: &'static str,
}

impl Factory {
    fn client(
        &self,
        config: &Config,
        connections: &Connections,
        rate: Option<RateLimit>,
        retries: Option<u32>,
    ) -> anyhow::Result<Client> {
        let retry = retries
            .map(|most| RetryPolicy::new(Duration::from_millis(500), Duration::from_secs(5), most, true))
            .transpose()
            .context("retry policy")?
            .map(RetryLayer::new);
        let auth = config.auth_layer().map_err(|error| ConfigError(login::describe_setup(&error)))?;
        let headers = config.extra_headers_layer().map_err(|error| ConfigError(error.to_string()))?;
        let service = ServiceBuilder::new()
            .option_layer(rate.map(limit::layer))
            .layer(config.base_uri_layer())
            .timeout(WHOLE_CALL)
            .option_layer(retry)
            .map_err(login::without_output)
            .option_layer(auth)
            .layer(headers)
            .layer(CallLayer::new(&self.program, &self.metrics, self.api, TIMEOUTS)?)
            .map_err(BoxError::from)
            .service(connections.clone());
        Ok(Client::new(service, config.default_namespace.clone()))
    }
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
