//! A router with as many routes as wanted, on a network with a thousand ports, and routegc on it.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Result, ensure};
use e2e::fault_proxy::Recorded;
use e2e::program::{Launch, Program};
use e2e::routegc::TestEnv;
use serde_json::{Value, json};

/// routegc itself gives up a pass after two minutes.
const LONGEST: Duration = Duration::from_secs(150);
/// The RouteGC.
pub(crate) const POLICY: &str = "bench";
/// Ports of machines on the router's network: a large cluster, or several in one project.
pub(crate) const PORTS: usize = 1000;
/// Nobody has asked for anything for so long: the pass is over. Between two requests of a pass lie milliseconds.
const QUIET: Duration = Duration::from_millis(300);

/// A environment for routegc.
pub(crate) struct Stage {
    pub(crate) env: TestEnv,
    binary: PathBuf,
    /// The routes to machines that live, in the order in which they were added.
    alive: Vec<(String, String)>,
    /// How many dead next hops were used so far: none comes twice, for what was removed and comes back is contested.
    dead: usize,
}

impl Stage {
    /// One without ports and routes, for routegc as it is built at `binary`.
    ///
    /// # Errors
    /// Whatever could not be started.
    pub(crate) async fn set(binary: &Path) -> Result<Self> {
        let env = TestEnv::start().await?;
        Ok(Self { env, binary: binary.to_owned(), alive: Vec::new(), dead: 0 })
    }

    /// Makes the machines' ports.
    ///
    /// # Errors
    /// Neutron refuses.
    pub(crate) async fn ports(&self) -> Result<()> {
        let server = "00000000-0000-4000-8000-000000000000";
        let first = self.env.project.port(Some(&machine(0).to_string()), Some(server)).await?;
        let (openstack, others) = (self.env.openstack.clone(), (1..PORTS).map(machine).collect::<Vec<_>>());
        tokio::task::spawn_blocking(move || openstack.copy_port(&first, &others)).await?
    }

    /// Adds routes to living machines up to that number, which the quota then allows and no more.
    ///
    /// # Errors
    /// Neutron refuses.
    pub(crate) async fn grow(&mut self, to: usize) -> Result<()> {
        let project = &self.env.project;
        self.env.openstack.set_network_quota(project, "router_route", i64::try_from(to)?).await?;
        let new: Vec<_> =
            (self.alive.len()..to).map(|index| (pods(128, index), machine(index).to_string())).collect();
        project.add_routes(&pairs(&new)).await?;
        self.alive.extend(new);
        Ok(())
    }

    /// How many routes the router has.
    pub(crate) fn routes(&self) -> usize {
        self.alive.len()
    }

    /// Lets that many of the living routes' machines be other ones that are not there: the router is as full as before.
    ///
    /// # Errors
    /// Neutron refuses.
    pub(crate) async fn kill(&mut self, count: usize) -> Result<()> {
        let dead: Vec<_> = (self.dead..self.dead + count)
            // Of 10.7.8.0/23, where no machine is.
            .map(|index| (pods(160, index), format!("10.7.{}.{}", 8 + index / 250, 1 + index % 250)))
            .collect();
        self.dead += count;
        let project = &self.env.project;
        project.remove_routes(&pairs(self.last(count)?)).await?;
        project.add_routes(&pairs(&dead)).await
    }

    /// Puts back the living routes that [`Stage::kill`] took away, after routegc has removed the dead ones.
    ///
    /// # Errors
    /// Neutron refuses.
    pub(crate) async fn revive(&self, count: usize) -> Result<()> {
        self.env.project.add_routes(&pairs(self.last(count)?)).await
    }

    fn last(&self, count: usize) -> Result<&[(String, String)]> {
        ensure!(count <= self.alive.len(), "{count} of {} routes", self.alive.len());
        Ok(self.alive.get(self.alive.len() - count..).unwrap_or_default())
    }

    /// routegc with the rights of its manifests, through the proxies, which count.
    pub(crate) fn counted(&self) -> Launch {
        self.env.configure(Program::at(&self.binary)).arg("--log-format=json")
    }

    /// routegc straight to the API server over TLS.
    pub(crate) fn direct(&self) -> Launch {
        let launch = Program::at(&self.binary).env("KUBECONFIG", self.env.control_plane.kubeconfig());
        launch.env("POD_NAMESPACE", &self.env.namespace).arg("--log-format=json")
    }

    /// Waits until a pass has been made and nothing is asked any more.
    ///
    /// # Errors
    /// Neutron is not asked at all, or it goes on and on.
    pub(crate) async fn until_quiet(&self) -> Result<()> {
        let started = tokio::time::Instant::now();
        loop {
            let neutron = self.env.neutron.requests();
            // One that is not answered yet is the least.
            let least = neutron.iter().chain(&self.asked()).map(rest).min().flatten();
            if !neutron.is_empty() && least.is_some_and(|rest| rest >= QUIET) {
                return Ok(());
            }
            ensure!(started.elapsed() < LONGEST, "no pass, or one without an end, in {LONGEST:?}");
            tokio::time::sleep(QUIET / 10).await;
        }
    }

    /// Has one pass made, which begins when the RouteGC changes, and waits for its end.
    ///
    /// # Errors
    /// The API server refuses; or as [`Stage::until_quiet`].
    pub(crate) async fn change(&self, patch: Value) -> Result<()> {
        self.env.api_proxy.clear_requests();
        self.env.neutron.clear_requests();
        self.env.patch(POLICY, patch).await?;
        self.until_quiet().await
    }

    /// What was asked of the API server, but for the Lease and the watches.
    pub(crate) fn asked(&self) -> Vec<Recorded> {
        let mut asked = self.env.api_proxy.requests();
        asked.retain(|one| {
            !one.path.contains("/leases/") && !one.query.split('&').any(|pair| pair == "watch=true")
        });
        asked
    }

    /// Forgets what was asked.
    pub(crate) fn forget(&self) {
        self.env.api_proxy.clear_requests();
        self.env.neutron.clear_requests();
    }
}

/// What is merged into a RouteGC of the env: it only looks, and when it removes, it may remove half of all.
pub(crate) fn spec() -> Value {
    json!({
        "podCIDRs": ["10.128.0.0/10"], "mode": "Audit",
        "safety": { "maxRemovals": 10_000, "maxPercent": 50 },
    })
}

/// For how long a request has been answered; None: it has not.
fn rest(request: &Recorded) -> Option<Duration> {
    let answered = request.at + request.duration?;
    Some(SystemTime::now().duration_since(answered).unwrap_or_default())
}

/// The address of a machine.
fn machine(index: usize) -> Ipv4Addr {
    let [third, fourth] =
        [1 + index / 250, 1 + index % 250].map(|part| u8::try_from(part).unwrap_or(u8::MAX));
    Ipv4Addr::new(10, 7, third, fourth)
}

/// A node's pod network.
fn pods(from: usize, index: usize) -> String {
    format!("10.{}.{}.0/24", from + index / 250, index % 250)
}

fn pairs(routes: &[(String, String)]) -> Vec<(&str, &str)> {
    routes.iter().map(|(to, via)| (to.as_str(), via.as_str())).collect()
}
