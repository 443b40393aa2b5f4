//! A router with any number of routes, on a network with a thousand ports, and routegc.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, ensure};
use e2e::fault_proxy::Recorded;
use e2e::program::{Launch, Program};
use e2e::routegc::TestEnv;
use e2e::wait::TIMEOUT;
use serde_json::{Value, json};

use crate::process::Requests;

/// The RouteGC.
pub(crate) const POLICY: &str = "bench";
/// Ports of servers on the router's network: a large cluster, or several in one project.
pub(crate) const PORTS: usize = 1000;
/// A reconciliation is over when there was no request for so long. Between two of its requests there are milliseconds.
const QUIET: Duration = Duration::from_millis(300);

pub(crate) struct Stage {
    pub(crate) env: TestEnv,
    program: PathBuf,
    /// The routes whose next hop is a server, in the order in which they were added.
    live: Vec<(String, String)>,
    /// The number of stale next hops that were used. None is used twice, because a route that returns after its removal is reported
    /// as recreated.
    stale: usize,
}

impl Stage {
    /// Without ports and routes.
    pub(crate) async fn start(program: &Path) -> Result<Self> {
        let env = TestEnv::start().await?;
        Ok(Self { env, program: program.to_owned(), live: Vec::new(), stale: 0 })
    }

    /// Creates the ports, and a RouteGC that may remove half of all routes.
    pub(crate) async fn fill(&self) -> Result<()> {
        let server = "00000000-0000-4000-8000-000000000000";
        let first = self.env.project.port(Some(&address(0).to_string()), Some(server)).await?;
        let (openstack, others) = (self.env.openstack.clone(), (1..PORTS).map(address).collect::<Vec<_>>());
        tokio::task::spawn_blocking(move || openstack.copy_port(&first, &others)).await??;
        let safety = json!({ "maxRemovals": 10_000, "maxPercent": 50, "allNextHopsArePorts": true });
        let spec = json!({ "podCIDRs": ["10.128.0.0/10"], "mode": "Audit", "safety": safety });
        self.env.policy(POLICY, spec).await?;
        Ok(())
    }

    /// Adds routes up to that number, which becomes the quota.
    pub(crate) async fn grow(&mut self, to: usize) -> Result<()> {
        let project = &self.env.project;
        self.env.openstack.set_network_quota(project, "router_route", i64::try_from(to)?).await?;
        let new = (self.live.len()..to).map(|index| (pods(128, index), address(index).to_string()));
        let new: Vec<_> = new.collect();
        project.add_routes(&pairs(&new)).await?;
        self.live.extend(new);
        Ok(())
    }

    pub(crate) fn routes(&self) -> usize {
        self.live.len()
    }

    /// Replaces that many routes by stale ones.
    pub(crate) async fn make_stale(&mut self, count: usize) -> Result<()> {
        let stale: Vec<_> = (self.stale..self.stale + count)
            // Of 10.7.8.0/23, which no server uses.
            .map(|index| (pods(160, index), format!("10.7.{}.{}", 8 + index / 250, 1 + index % 250)))
            .collect();
        self.stale += count;
        self.env.project.remove_routes(&pairs(self.last(count)?)).await?;
        self.env.project.add_routes(&pairs(&stale)).await
    }

    /// Adds the routes again that [`Stage::make_stale`] removed, when routegc has removed the stale ones.
    pub(crate) async fn restore(&self, count: usize) -> Result<()> {
        self.env.project.add_routes(&pairs(self.last(count)?)).await
    }

    fn last(&self, count: usize) -> Result<&[(String, String)]> {
        let first = self.live.len().checked_sub(count);
        first.and_then(|first| self.live.get(first..)).context("more stale routes than routes")
    }

    /// routegc with the permissions of its manifests, through the proxies, which count.
    pub(crate) fn counted(&self) -> Launch {
        self.env.configure(Program::at(&self.program)).arg("--log-format=json")
    }

    /// routegc straight to the API server over TLS.
    pub(crate) fn direct(&self) -> Launch {
        let launch = Program::at(&self.program).env("KUBECONFIG", self.env.control_plane.kubeconfig());
        launch.env("POD_NAMESPACE", &self.env.namespace).arg("--log-format=json")
    }

    /// Changes the RouteGC, which starts a reconciliation, and waits for its end.
    pub(crate) async fn change(&self, patch: Value) -> Result<()> {
        self.clear_requests();
        self.env.patch(POLICY, patch).await?;
        self.until_quiet().await
    }

    /// Waits until a reconciliation was made and no request follows.
    pub(crate) async fn until_quiet(&self) -> Result<()> {
        let started = Instant::now();
        loop {
            let neutron = self.env.neutron.requests();
            let kubernetes = Requests::through(&self.env.api_proxy).all;
            let mut quiet = neutron.iter().chain(&kubernetes).map(since_response);
            if !neutron.is_empty() && quiet.all(|time| time.is_some_and(|time| time >= QUIET)) {
                return Ok(());
            }
            ensure!(started.elapsed() < TIMEOUT, "no reconciliation, or one without an end, in {TIMEOUT:?}");
            tokio::time::sleep(QUIET / 10).await;
        }
    }

    pub(crate) fn clear_requests(&self) {
        self.env.api_proxy.clear_requests();
        self.env.neutron.clear_requests();
    }
}

/// Time since the response, if there was one.
fn since_response(request: &Recorded) -> Option<Duration> {
    let end = request.at + request.duration?;
    Some(SystemTime::now().duration_since(end).unwrap_or_default())
}

/// The address of a server.
fn address(index: usize) -> Ipv4Addr {
    let [third, fourth] =
        [1 + index / 250, 1 + index % 250].map(|part| u8::try_from(part).unwrap_or(u8::MAX));
    Ipv4Addr::new(10, 7, third, fourth)
}

/// The pod network of a node.
fn pods(from: usize, index: usize) -> String {
    format!("10.{}.{}.0/24", from + index / 250, index % 250)
}

fn pairs(routes: &[(String, String)]) -> Vec<(&str, &str)> {
    routes.iter().map(|(to, via)| (to.as_str(), via.as_str())).collect()
}
