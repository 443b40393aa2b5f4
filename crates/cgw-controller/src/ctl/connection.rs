//! How `cgw ctl` reaches the controller.
//!
//! * Without an URL: through the API server's proxy to the controller's Service, which works wherever kubectl works. The API
//!   server authenticates the administrator and removes the header `Authorization`. A token of the ServiceAccount `cgw-admin`,
//!   only for the controller and for ten minutes, is requested from the API server and sent in [`names::TOKEN_HEADER`]. The API server does
//!   not verify the controller's certificate.
//! * With an URL: directly, and the certificate is verified. The controller's own container sets URL, CA and token, so that
//!   `kubectl exec deployment/cgw-controller -- /cgw ctl list` needs no flag and no permission for tokens or proxies.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, ensure};
use bytes::Bytes;
use common::cluster::error_chain;
use common::config::ConfigError;
use common::runtime::Runtime;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper_util::client::legacy;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Config, api::PostParams, client::Body};
use tokio::time::Instant;

use super::args::ControllerArgs;
use super::call::Call;
use crate::names;

/// The shortest life of a token that the API server issues.
const TOKEN_SECONDS: i64 = 600;

/// The controller asks all keepers within its own deadline, and writes up to a thousand Services.
const TIMEOUT: Duration = Duration::from_secs(60);

/// While a node fails, the Service has its Pods until Kubernetes knows it, and names are not resolved if one of them is CoreDNS. Each
/// connection selects another Pod.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// A tenth of that: a Pod of a failed node does not respond at all.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// More than ten thousand bindings have.
const LARGEST_BODY: usize = 16 * 1024 * 1024;

/// A way to the controller.
pub struct Connection {
    client: Client,
    /// Before the path of a call.
    prefix: String,
    /// Authentication, where the client has none of its own.
    token: Option<(&'static str, HeaderValue)>,
}

/// A complete response.
pub struct Response {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

impl Connection {
    /// Reads files, and requests a token where none is given.
    ///
    /// # Errors
    /// A file cannot be used, or no token is issued.
    pub async fn open(args: &ControllerArgs, runtime: &Runtime) -> anyhow::Result<Connection> {
        let Some(url) = &args.controller_url else {
            let prefix = proxy_path(&args.controller_namespace, &args.controller_service);
            let token = requested(args, &runtime.client).await?;
            return Ok(Connection {
                client: runtime.client.clone(),
                prefix,
                token: Some((names::TOKEN_HEADER, token)),
            });
        };
        let mut config = Config::new(url.clone());
        config.default_retry = false;
        config.connect_timeout = Some(ATTEMPT_TIMEOUT);
        config.read_timeout = Some(TIMEOUT);
        config.root_cert_file.clone_from(&args.controller_ca);
        let token = match &args.token_file {
            Some(file) => from_file(file)?,
            None => requested(args, &runtime.client).await?,
        };
        let client = Client::try_from(config)
            .map_err(|error| ConfigError(format!("the client for {url}: {}", error_chain(&error))))?;
        Ok(Connection { client, prefix: String::new(), token: Some((header::AUTHORIZATION.as_str(), token)) })
    }

    /// Sends the call once: only attempts without a connection are repeated.
    ///
    /// # Errors
    /// There is no complete response.
    pub async fn send(&self, call: &Call) -> anyhow::Result<Response> {
        let exchange = async {
            let response = self.connected(call).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), LARGEST_BODY).collect().await;
            let body = body.map_err(|error| anyhow::anyhow!("the response: {error}"))?.to_bytes();
            Ok(Response { status, body })
        };
        let failed = || format!("{} {} at the controller failed", call.method, call.path);
        tokio::time::timeout(TIMEOUT, exchange)
            .await
            .map_err(|_| anyhow::anyhow!("no response within {} s", TIMEOUT.as_secs()))
            .and_then(|result: anyhow::Result<Response>| result)
            .with_context(failed)
    }

    async fn connected(&self, call: &Call) -> anyhow::Result<http::Response<Body>> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            match self.client.send(self.request(call)?).await {
                Ok(response) => return Ok(response),
                Err(error) if is_connect(&error) && Instant::now() < deadline => {
                    tracing::debug!(error = error_chain(&error), "no connection; another attempt follows");
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => anyhow::bail!(error_chain(&error)),
            }
        }
    }

    fn request(&self, call: &Call) -> anyhow::Result<Request<Body>> {
        let mut request =
            Request::builder().method(call.method.clone()).uri(format!("{}{}", self.prefix, call.path));
        if let Some((name, token)) = &self.token {
            request = request.header(*name, token);
        }
        let body = match &call.body {
            None => Vec::new(),
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                serde_json::to_vec(body)?
            }
        };
        Ok(request.body(Body::from(body))?)
    }
}

/// Whether there was no connection, so that nothing was sent.
fn is_connect(error: &kube::Error) -> bool {
    let first: &(dyn std::error::Error + 'static) = error;
    let mut chain = std::iter::successors(Some(first), |error| error.source());
    chain.any(|error| error.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect))
}

/// The Service's path at the API server; `https:` makes the API server connect with TLS.
fn proxy_path(namespace: &str, service: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/services/https:{service}:{}/proxy", names::API_PORT)
}

async fn requested(args: &ControllerArgs, client: &Client) -> anyhow::Result<HeaderValue> {
    let ControllerArgs { controller_namespace: namespace, admin_account: account, .. } = args;
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![names::AUDIENCE.to_owned()],
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: None,
        },
        ..TokenRequest::default()
    };
    let failed = || format!("requesting a token of ServiceAccount {namespace}/{account} failed");
    let response = Api::<ServiceAccount>::namespaced(client.clone(), namespace)
        .create_token_request(account, &PostParams::default(), &request)
        .await
        .map_err(|error| anyhow::anyhow!(error_chain(&error)))
        .with_context(failed)?;
    let token = response.status.map(|status| status.token).unwrap_or_default();
    bearer(&token).with_context(failed)
}

fn from_file(file: &PathBuf) -> anyhow::Result<HeaderValue> {
    let wrong =
        |error: &dyn std::fmt::Display| ConfigError(format!("--token-file {}: {error}", file.display()));
    let token = std::fs::read_to_string(file).map_err(|error| wrong(&error))?;
    Ok(bearer(token.trim()).map_err(|error| wrong(&error))?)
}

/// The token never gets into a message.
fn bearer(token: &str) -> anyhow::Result<HeaderValue> {
    ensure!(!token.is_empty(), "the token is empty");
    let mut value = HeaderValue::try_from(format!("Bearer {token}"))
        .map_err(|_| anyhow::anyhow!("the token is no text of one line"))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http::Method;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn the_proxys_path_names_service_and_port() {
        let path = "/api/v1/namespaces/edge/services/https:cgw-controller:api/proxy";
        assert_eq!(proxy_path("edge", "cgw-controller"), path);
    }

    #[test]
    fn a_token_is_one_line_and_is_not_shown() {
        assert!(bearer("").is_err());
        let error = bearer("secret\nx").unwrap_err().to_string();
        assert!(!error.contains("secret"), "{error}");
        assert!(!format!("{:?}", bearer("secret").unwrap()).contains("secret"));
    }

    /// The result of a call to a server that listens from the second attempt on and sends `response`, and how many requests it has read.
    async fn call(response: &'static str) -> (anyhow::Result<Response>, usize) {
        let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = requests.clone();
        let server = tokio::spawn(async move {
            tokio::time::sleep(PAUSE / 2).await;
            let listener = TcpListener::bind(address).await.unwrap();
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 1024];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                counter.fetch_add(1, Ordering::Relaxed);
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        });
        let mut config = Config::new(format!("http://{address}").parse().unwrap());
        config.default_retry = false;
        let client = Client::try_from(config).unwrap();
        let connection = Connection { client, prefix: String::new(), token: None };
        let call = Call { method: Method::DELETE, path: "/vip/192.0.2.1/a".into(), body: None };
        let response = connection.send(&call).await;
        server.abort();
        (response, requests.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn a_call_waits_for_a_connection() {
        let (response, requests) = call("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        assert_eq!((&response.unwrap().body[..], requests), (&b"{}"[..], 1));
    }

    /// The controller may have executed it.
    #[tokio::test]
    async fn a_request_is_sent_once() {
        let (response, requests) = call("").await;
        let Err(error) = response else { panic!("there is no response") };
        assert!(
            format!("{error:#}").starts_with("DELETE /vip/192.0.2.1/a at the controller failed"),
            "{error:#}"
        );
        assert_eq!(requests, 1);
    }
}
