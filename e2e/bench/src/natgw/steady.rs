//! natgw's requests while nothing changes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use e2e::control_plane::ControlPlane;
use e2e::natgw::FLOATING_IP_LABEL;
use natgw::names::SETUP_ANNOTATION;

use super::stage::Stage;
use crate::process::{Requests, STEADY, stop, writes};
use crate::report::{Bench, an_hour, count};

/// Four poll intervals of the default 30 s, and some more for their jitter of up to a tenth.
const WINDOW: Duration = Duration::from_secs(130);
/// Longer than the requests of a poll take, shorter than the interval.
const POLL: Duration = Duration::from_secs(5);
/// Two gateways and others.
const NODES: usize = 5;
/// The list of servers is read every 15 minutes (`observe::network`): at the start, and then outside of this window. A list is
/// one request for each 50 servers.
const SERVER_LISTS_AN_HOUR: f64 = 4.0;

pub(crate) struct Steady {
    requests: Requests,
    /// When each request to the cloud arrived.
    cloud: Vec<Instant>,
}

/// Counts on a stage of its own.
pub(crate) async fn count_requests(control_plane: ControlPlane, program: &Path) -> Result<Steady> {
    let mut stage = Stage::on(control_plane, program).await?;
    stage.grow(NODES).await?;
    let natgw = stage.lead(true).await?;
    let env = &stage.env;
    for gateway in stage.nodes.iter().take(2) {
        gateway.node.label(FLOATING_IP_LABEL, gateway.floating_ip.as_deref()).await?;
        let set_up = || async {
            let annotation = env.annotation(&gateway.name, SETUP_ANNOTATION).await?;
            Ok(annotation.is_some() && env.route().is_some())
        };
        env.wait("a gateway", set_up).await?;
    }
    tokio::time::sleep(STEADY).await;
    env.api_proxy.clear_requests();
    env.hetzner.clear_requests();
    tokio::time::sleep(WINDOW).await;
    let requests = Requests::through(&env.api_proxy);
    let cloud: Vec<_> = env.hetzner.requests().iter().map(|request| request.at).collect();
    requests.ensure_leader()?;
    ensure!(cloud.len() > 1, "natgw sent {} requests to the cloud in {WINDOW:?}", cloud.len());
    stop(&natgw).await?;
    Ok(Steady { requests, cloud })
}

impl Steady {
    pub(crate) fn report(&self, bench: &mut Bench) {
        let seconds = WINDOW.as_secs();
        let writes: Vec<_> = writes(&self.requests.all).collect();
        bench
            .row("Writes besides the Lease, steady, an hour", "0", an_hour(writes.len() as f64, WINDOW))
            .means(format!(
                "{} at the API server in {seconds} s, Events included, extrapolated",
                writes.len()
            ));
        let lease = self.requests.lease;
        bench
            .row("Writes of the Lease, steady, an hour", "", an_hour(lease as f64, WINDOW))
            .means(format!("{lease} in {seconds} s, extrapolated: one every 2 s, as client-go does"));
        // From the first to the last poll, so that the position of the window in a poll interval has no influence. A poll is
        // several requests within a moment.
        let first = self.cloud.iter().min().copied().unwrap_or_else(Instant::now);
        let since_first = |at: &Instant| at.saturating_duration_since(first);
        let a_poll = self.cloud.iter().filter(|at| since_first(at) < POLL).count();
        let span = self.cloud.iter().map(since_first).max().unwrap_or_default();
        let polls = (self.cloud.len() - a_poll) as f64 * 3600.0 / span.as_secs_f64();
        bench
            .row("Cloud requests, steady, an hour", "≤ 250", count([polls + SERVER_LISTS_AN_HOUR]))
            .means(format!(
                "{} in {seconds} s at the default poll interval of 30 s, extrapolated from their distance, and the list of \
                 servers four times (once for each 50 servers)",
                self.cloud.len()
            ));
        for write in writes {
            bench.note(format!("A write in the steady state: {} {}", write.method, write.path));
        }
    }
}
