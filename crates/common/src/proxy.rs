//! The proxy between a program and its servers: a tunnel by HTTP CONNECT, as `HTTPS_PROXY` and `NO_PROXY` or the `proxy-url` of a
//! kubeconfig ask for. Requests to `http://` URLs are never sent through it.

use std::{env, future::Future, pin::Pin, sync::Arc};

use http::Uri;
use hyper_util::{
    client::{
        legacy::connect::{HttpConnector, proxy::Tunnel},
        proxy::matcher::Matcher,
    },
    rt::TokioIo,
};
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt as _, service_fn};

/// The environment's proxy is not used for this host itself, whatever `NO_PROXY` says, as in Go.
const LOOPBACK: &str = "localhost,127.0.0.0/8,::1";

/// The proxy, if there is one, and the servers that are reached through it. `Debug` does not contain the password.
#[derive(Clone, Debug)]
pub(crate) struct Proxy(Arc<Matcher>);

/// A proxy that cannot be used. The value may hold a password and is not part of the text.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0} is invalid: write http://HOST:PORT or http://USER:PASSWORD@HOST:PORT; other kinds of proxies are not supported"
)]
pub(crate) struct InvalidProxy(&'static str);

/// No connection through the proxy.
#[derive(Debug, thiserror::Error)]
#[error("proxy {uri}")]
struct ProxyError {
    uri: Uri,
    source: BoxError,
}

impl Proxy {
    /// The proxy that `HTTPS_PROXY` names, for all hosts but those that `NO_PROXY` lists (comma-separated: names with their
    /// subdomains, `*.` and a name, addresses, CIDRs, or `*`). Both may be written in lower case. An empty variable counts as unset.
    pub(crate) fn of_environment() -> Result<Proxy, InvalidProxy> {
        Proxy::of_variables(|name| env::var(name).ok())
    }

    fn of_variables(value: impl Fn(&'static str) -> Option<String>) -> Result<Proxy, InvalidProxy> {
        let set = |name| value(name).filter(|value| !value.is_empty()).map(|value| (name, value));
        let except = set("NO_PROXY").or_else(|| set("no_proxy")).map(|(_, hosts)| hosts).unwrap_or_default();
        match set("HTTPS_PROXY").or_else(|| set("https_proxy")) {
            Some((name, url)) => {
                Proxy::new(name, &url, &format!("{},{LOOPBACK}", without_wildcards(&except)))
            }
            None => Ok(Proxy(Arc::new(Matcher::builder().build()))),
        }
    }

    /// The proxy that a kubeconfig names for its server; the environment has no influence, as in client-go.
    #[cfg(feature = "runtime")]
    pub(crate) fn of_kubeconfig(proxy_url: &Uri) -> Result<Proxy, InvalidProxy> {
        Proxy::new("proxy-url", &proxy_url.to_string(), "")
    }

    fn new(name: &'static str, url: &str, except: &str) -> Result<Proxy, InvalidProxy> {
        let any = Uri::from_static("https://example.org");
        let proxy = Matcher::builder().https(url).build().intercept(&any);
        if proxy.and_then(|proxy| proxy.uri().scheme().cloned()) != Some(http::uri::Scheme::HTTP) {
            return Err(InvalidProxy(name));
        }
        Ok(Proxy(Arc::new(Matcher::builder().https(url).no(except).build())))
    }

    /// Connects to the server of an `http://` or `https://` URL, or to its proxy, by `tcp`.
    pub(crate) fn connector(
        self,
        mut tcp: HttpConnector,
    ) -> impl Service<Uri, Response = TokioIo<TcpStream>, Error = BoxError, Future = Connecting>
    + Clone
    + Send
    + Sync
    + 'static {
        tcp.enforce_http(false);
        service_fn(move |server: Uri| {
            let (tcp, proxy) = (tcp.clone(), self.0.intercept(&server));
            let connect = async move {
                let Some(proxy) = proxy else { return Ok(tcp.oneshot(server).await?) };
                let mut tunnel = Tunnel::new(proxy.uri().clone(), tcp);
                if let Some(credentials) = proxy.basic_auth() {
                    tunnel = tunnel.with_auth(credentials.clone());
                }
                let stream = tunnel.oneshot(server).await;
                stream.map_err(|source| ProxyError { uri: proxy.uri().clone(), source: source.into() }.into())
            };
            Box::pin(connect) as Connecting
        })
    }
}

/// `*.example.org` as `.example.org`: Go accepts both, and the matcher would compare the star with the name of the host.
fn without_wildcards(hosts: &str) -> String {
    let hosts = hosts.split(',').map(|host| match host.trim().strip_prefix('*') {
        Some(subdomains) if subdomains.starts_with('.') => subdomains,
        _ => host,
    });
    hosts.collect::<Vec<_>>().join(",")
}

type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<TcpStream>, BoxError>> + Send>>;

#[cfg(test)]
mod tests;
