//! The admin server: plain HTTP for kubelets, Prometheus and people.
//!
//! | path | |
//! |---|---|
//! | `/livez` | 200 while this process makes progress: while it leads, the last heartbeat of each of its controllers is at most ten minutes old; `?verbose` names each |
//! | `/readyz`, `/healthz` | 200 once every check of [`Readiness`] has succeeded once, else 503; `?verbose` names each |
//! | `/metrics` | Prometheus text |
//! | `/statusz`, `/flagz` | for people; JSON for `Accept: application/json` (KEP-4827, KEP-4828) |
//! | `/loglevel` | GET, PUT of a log filter; from this host only |
//!
//! It is open to the Pod network; [`LIMITS`] says what a client may use.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::{
    args::Program,
    leader::Leadership,
    metrics::Metrics,
    readiness::Readiness,
    server::{Limits, Server},
    telemetry::LogLevel,
};

mod pages;
mod status;

pub use pages::metrics;
pub use status::Status;

/// Probes, a scraper or two and a person come to less than ten connections. A request head takes one packet and is below 1 KiB,
/// and the only body is a log filter.
pub const LIMITS: Limits = Limits {
    connections: 64,
    head_time: Duration::from_secs(2),
    head_bytes: 8 * 1024,
    body_time: Duration::from_secs(2),
    body_bytes: 1024,
};

/// The content of the pages.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Name and version.
    pub program: Program,
    /// For `/flagz`, secrets already redacted.
    pub flags: BTreeMap<String, String>,
    /// For `/readyz`.
    pub readiness: Readiness,
    /// For `/metrics`.
    pub metrics: Metrics,
    /// For `/statusz` and `/livez`.
    pub status: Status,
    /// For `/statusz` and `/livez`.
    pub leadership: Leadership,
    /// For `/loglevel`.
    pub log_level: LogLevel,
}

impl Admin {
    /// Serves the pages until it is dropped: probes and metrics are needed while the process shuts down, too.
    pub async fn serve(self, server: Server) {
        let site = Arc::new(pages::Site { admin: self, started: Timestamp::now(), start: Instant::now() });
        let pages = move |caller, request| {
            let site = Arc::clone(&site);
            async move { site.respond(&caller, &request) }
        };
        server.serve(pages, CancellationToken::new()).await;
    }
}
