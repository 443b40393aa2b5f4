//! The connection: TCP, TLS and HTTP/1.1.

use std::time::Duration;

use ::http::{Request, Response};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tower::ServiceExt as _;
use tower::util::BoxCloneSyncService;

use super::error::{Error, chain};
pub use super::trust::Trust;

/// Sends one request; the answer's body is still to be read. A service, so that tests can answer without a network.
pub(super) type Transport = BoxCloneSyncService<Request<Full<Bytes>>, Response<Body>, Error>;
pub(super) type Body = UnsyncBoxBody<Bytes, Error>;

/// A third of the exchange's deadline: an address that does not answer leaves time for the next one.
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than the pause between two polls of an action, shorter than the pause between two passes: a connection that went
/// through a gateway that has since changed is dead without anyone saying so, and would cost a whole deadline.
const IDLE: Duration = Duration::from_secs(10);

/// The system's trusted authorities are read here, and only where they are wanted.
pub(super) fn connect(trust: &Trust) -> Result<Transport, Error> {
    let mut client = Client::builder(TokioExecutor::new());
    client.pool_idle_timeout(IDLE).pool_timer(TokioTimer::new());
    let mut tcp = HttpConnector::new();
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_nodelay(true);
    if *trust == Trust::Plain {
        return Ok(boxed(client.build(tcp)));
    }
    tcp.enforce_http(false);
    let tls = match trust.config()? {
        Some(config) => HttpsConnectorBuilder::new().with_tls_config(config),
        None => HttpsConnectorBuilder::new()
            .with_provider_and_native_roots(rustls::crypto::ring::default_provider())
            .map_err(|cause| {
                Error::Setup(format!(
                    "no trusted certificate authorities ({cause}): install ca-certificates or set SSL_CERT_FILE"
                ))
            })?,
    };
    // Which scheme an endpoint may have is the endpoint's to say.
    Ok(boxed(client.build(tls.https_or_http().enable_http1().wrap_connector(tcp))))
}

fn boxed<C>(client: Client<C, Full<Bytes>>) -> Transport
where
    C: hyper_util::client::legacy::connect::Connect + Clone + Send + Sync + 'static,
{
    BoxCloneSyncService::new(
        client
            .map_response(|response| {
                response.map(|body| body.map_err(|error| Error::Broken(chain(&error))).boxed_unsync())
            })
            .map_err(|error| match error.is_connect() {
                true => Error::Connect(chain(&error)),
                false => Error::Broken(chain(&error)),
            }),
    )
}
