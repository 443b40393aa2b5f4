//! The metrics server of the Go program: HTTPS, for every client that may get `/metrics` (TokenReview and SubjectAccessReview). The probes'
//! server has the same metrics, in plain text, as every program of this project.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use bytes::Bytes;
use clap::{ArgAction, Args as Group};
use common::admin::LIMITS;
use common::args::BindAddress;
use common::config::ConfigError;
use common::runtime::Runtime;
use common::server::{Builder, ClientCertificates, Tls, TlsFiles, TokenAuthentication};
use http::{Response, StatusCode};
use http_body_util::Full;

use crate::args::bind_address;

/// Flags with the names and defaults of the Go program.
#[derive(Group, Clone, Debug)]
#[command(next_help_heading = "Metrics server")]
pub struct MetricsArgs {
    /// Address of the metrics server; 0 for none
    #[arg(long, env = "PERIMETER_METRICS_BIND_ADDRESS", default_value = "0", value_name = "[HOST]:PORT", value_parser = bind_address)]
    pub metrics_bind_address: BindAddress,
    /// Serve metrics by HTTPS, to clients that may get /metrics by RBAC
    #[arg(long, env = "PERIMETER_METRICS_SECURE", default_missing_value = "true", default_value_t = true, num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub metrics_secure: bool,
    /// Folder of the certificate; a self-signed one where this is not given
    // As text, which may be empty, as a template leaves it.
    #[arg(long, env = "PERIMETER_METRICS_CERT_PATH", value_name = "FOLDER")]
    pub metrics_cert_path: Option<OsString>,
    /// File of the certificate
    #[arg(long, env = "PERIMETER_METRICS_CERT_NAME", default_value = "tls.crt", value_name = "FILE")]
    pub metrics_cert_name: PathBuf,
    /// File of the key
    #[arg(long, env = "PERIMETER_METRICS_CERT_KEY", default_value = "tls.key", value_name = "FILE")]
    pub metrics_cert_key: PathBuf,
    /// Not supported: metrics are served by HTTP/1.1, and it has to be false
    #[arg(long, env = "PERIMETER_ENABLE_HTTP2", default_missing_value = "true", default_value_t = false, num_args = 0..=1,
        require_equals = true, action = ArgAction::Set, value_name = "BOOL")]
    pub enable_http2: bool,
}

impl MetricsArgs {
    /// Refuses HTTP/2.
    ///
    /// # Errors
    /// One line that says so.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.enable_http2,
            "--enable-http2 is not supported: metrics are served by HTTP/1.1"
        );
        Ok(())
    }
}

/// Starts the server, if there is an address; it ends with the process.
///
/// # Errors
/// [`ConfigError`] for a certificate that cannot be used; an address that is in use.
pub async fn start(runtime: &Runtime, args: &MetricsArgs) -> anyhow::Result<()> {
    let BindAddress(Some(address)) = args.metrics_bind_address else { return Ok(()) };
    let mut server = Builder::new("metrics", LIMITS);
    if args.metrics_secure {
        let authentication =
            TokenAuthentication::new(runtime.client.clone(), Vec::new()).with_access_review();
        server = server.tls(tls(args)?, &runtime.metrics)?.authentication(authentication);
    }
    let server = server.bind(address).await.with_context(|| format!("metrics server on {address}"))?;
    let (metrics, never) = (runtime.metrics.clone(), tokio_util::sync::CancellationToken::new());
    let handler = move |_, request: http::Request<_>| {
        let response = match request.uri().path() {
            "/metrics" => common::admin::metrics(&metrics),
            _ => not_found(),
        };
        std::future::ready(response)
    };
    tokio::spawn(server.serve(handler, never));
    Ok(())
}

fn not_found() -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(b"there is only /metrics\n")));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn tls(args: &MetricsArgs) -> Result<Tls, ConfigError> {
    let Some(folder) = args.metrics_cert_path.as_ref().filter(|folder| !folder.is_empty()).map(Path::new)
    else {
        return Tls::self_signed("localhost").map_err(ConfigError);
    };
    let files = TlsFiles {
        certificate: folder.join(&args.metrics_cert_name),
        key: folder.join(&args.metrics_cert_key),
        clients: ClientCertificates::Ignored,
    };
    Tls::read(files).map_err(|error| ConfigError(format!("--metrics-cert-path: {error}")))
}
