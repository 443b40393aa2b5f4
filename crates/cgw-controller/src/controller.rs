//! The role `controller`: binds VIPs to Services, and writes the gateway of each VIP to the Services that carry it.
//!
//! ```text
//!   http      the HTTP API: routes, checks of requests, responses
//!   bindings  executes a request: observe ── plan ── write, until nothing remains
//!   notify    a gateway changed: the Services that carry its VIPs are patched, many at a time
//!   resync    repairs what a crash left, and polls the keepers at an interval
//!   plan      pure: the decision table, repairs, and the master in force
//!   stores    records, keepers and status servers: annotations of three Services
//!   services  tenants' Services: cache, patches
//!   masters   status servers of the keepers
//!   lost      unregisters keepers that do not run any more
//! ```
//!
//! Every replica is active, and there is no leader: each write has a precondition.

pub mod args;
mod bindings;
mod error;
mod http;
mod lost;
mod masters;
mod metrics;
mod notify;
pub mod plan;
mod resync;
mod service;
mod services;
mod stores;
mod views;

use std::sync::{Arc, OnceLock};

use ::http::HeaderName;
use anyhow::Context as _;
use common::args::RuntimeArgs;
use common::cache::ObjectKey;
use common::command::Work;
use common::config::ConfigError;
use common::controller::Controller;
use common::runtime::Runtime;
use common::server::{Builder, ClientCertificates, Tls, TlsFiles, TokenAuthentication};
use kube::Api;

use self::bindings::Bindings;
use self::http::Http;
use self::lost::Collector;
use self::masters::Poller;
use self::metrics::Metrics;
use self::resync::{Key, Resync};
use self::service::{IngressSettings, Service};
use self::services::{BY_INGRESS, BY_VIP, Services};
use self::stores::{Names, Stores};
use crate::names;

/// The name of the controller on `/livez` and in metrics.
const RESYNC: &str = "resync";

/// VIPs that are reconciled at a time. Most of them read only caches.
const MAX_CONCURRENT_RECONCILES: usize = 8;

/// Checks the command line and returns the work of the role.
///
/// # Errors
/// A flag cannot be used.
pub fn prepare(args: args::Args) -> anyhow::Result<(RuntimeArgs, Work)> {
    args.check()?;
    let runtime = args.process.clone().into_runtime();
    Ok((runtime, Work::run(async move |runtime| run(runtime, args).await)))
}

async fn run(runtime: Runtime, args: args::Args) -> anyhow::Result<()> {
    let files = TlsFiles {
        certificate: args.api.tls_cert_file.clone(),
        key: args.api.tls_private_key_file.clone(),
        clients: ClientCertificates::Ignored,
    };
    let tls = Tls::read(files).map_err(|error| ConfigError(format!("--tls-cert-file: {error}")))?;
    let metrics = Metrics::new(runtime.metrics.registry())?;
    let all = Api::<Service>::all(runtime.client.clone());
    let cache = runtime.cache(all).index(BY_VIP, Service::index_by_vip);
    let cache = cache.index(BY_INGRESS, Service::index_by_ingress).start();
    let flags = &args.bindings;
    let ingress = IngressSettings { ip_mode: flags.load_balancer_ip_mode, external_ips: flags.external_ips };
    let store = |name: &str| ObjectKey::new(&runtime.namespace, name);
    let store_names = Names {
        hosts: store(&flags.hosts_service),
        binds: store(&flags.binds_service),
        providers: store(&flags.providers_service),
    };
    let stores = Stores::new(runtime.client.clone(), &runtime.namespace, store_names, cache.clone());
    let patches = usize::from(flags.max_concurrent_patches);
    let services = Services::new(&runtime, cache.clone(), ingress, metrics.clone(), patches);
    let poller = Poller::new(flags.status_timeout);
    let bindings = Arc::new(Bindings::new(runtime.clone(), stores, services, poller));

    let queue = Arc::new(OnceLock::new());
    let times = (flags.resync_interval, flags.repair_delay);
    let lost = Collector::new(flags.lost_keeper_timeout, args.keeper_account(&runtime.namespace));
    let resync = Resync::new(Arc::clone(&bindings), metrics.clone(), times, Arc::clone(&queue), lost);
    let controller =
        Controller::new(&runtime, RESYNC, resync).max_concurrent_reconciles(MAX_CONCURRENT_RECONCILES);
    let mapped = Arc::clone(&bindings);
    let controller = controller.watches(&cache, move |change, queue| resync::enqueue(&mapped, change, queue));
    controller.queue().add(Key::Masters);
    // This is the only `set`.
    let _set = queue.set(controller.queue());

    let authentication = TokenAuthentication::new(runtime.client.clone(), vec![names::AUDIENCE.to_owned()])
        .or_header(HeaderName::from_static(names::TOKEN_HEADER));
    let address = args.api.api_address;
    let server = Builder::new("api", http::LIMITS)
        .tls(tls, &runtime.metrics)?
        .authentication(authentication.with_access_review())
        .bind(address)
        .await
        .with_context(|| format!("HTTP API on {address}"))?;
    let http = Http::new(bindings, metrics, args.keepers(&runtime.namespace));
    let serve = async {
        // Connections wait in the kernel's queue until the caches have what a response needs.
        tokio::select! {
            () = runtime.shutdown.cancelled() => return,
            () = cache.synced() => {}
        }
        http.serve(server, runtime.shutdown.clone()).await;
    };
    let (result, ()) = tokio::join!(controller.run(), serve);
    result
}
