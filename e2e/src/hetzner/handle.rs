//! What a test does to the project behind the API's back, and what it can see.

use anyhow::{Context, anyhow};
use ipnet::Ipv4Net;
use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use super::{
    ActionFailure, Answer, Code, FloatingIp, Hetzner, Injection, Network, NewFloatingIp, NewNetwork,
    NewServer, Project, Request, Route, RouteChange, Seed, Server, Settings, bucket::Bucket,
    model::PrivateNet, state::Forbidden,
};

/// The project, filled and changed directly: no action, no rule of the API, seen at once.
impl Hetzner {
    /// Adds a network. Fails if its name or ID is taken or a prefix is none.
    pub fn add_network(&self, network: NewNetwork) -> anyhow::Result<u64> {
        self.shared.write(|state| state.project.add_network(network))
    }

    /// Adds a server. Fails if its name, ID or address is taken or a network is missing.
    pub fn add_server(&self, server: NewServer) -> anyhow::Result<u64> {
        self.shared.write(|state| state.project.add_server(server))
    }

    /// Adds a floating IP. Fails if its name, ID or address is taken or the server is missing.
    pub fn add_floating_ip(&self, ip: NewFloatingIp) -> anyhow::Result<u64> {
        self.shared.write(|state| state.project.add_floating_ip(ip))
    }

    /// Adds all of it; what came before a failure stays.
    pub fn seed(&self, seed: Seed) -> anyhow::Result<()> {
        self.shared.write(|state| state.project.seed(seed))
    }

    /// Changes anything.
    pub fn change<R>(&self, change: impl FnOnce(&mut Project) -> R) -> R {
        self.shared.write(|state| change(&mut state.project))
    }

    /// A change by another client: sets the only route for that destination, or removes it.
    pub fn set_route(
        &self,
        network: u64,
        destination: Ipv4Net,
        gateway: Option<Ipv4Addr>,
    ) -> anyhow::Result<()> {
        self.change(|project| {
            let routes = &mut project.network_mut(network).map_err(anyhow::Error::msg)?.routes;
            routes.retain(|route| route.destination != destination);
            routes.extend(gateway.map(|gateway| Route { destination, gateway }));
            Ok(())
        })
    }

    /// Puts a server into a network, or gives it another address there.
    pub fn attach_server(&self, server: u64, network: u64, ip: Ipv4Addr) -> anyhow::Result<()> {
        self.change(|project| {
            project.network_mut(network).map_err(anyhow::Error::msg)?;
            let nets = &mut project.server_mut(server).map_err(anyhow::Error::msg)?.private_net;
            nets.retain(|net| net.network != network);
            nets.push(PrivateNet { network, ip, alias_ips: Vec::new() });
            Ok(())
        })
    }

    /// Takes a server out of a network; its routes stay, as in the real API.
    pub fn detach_server(&self, server: u64, network: u64) -> anyhow::Result<()> {
        self.change(|project| {
            let server = project.server_mut(server).map_err(anyhow::Error::msg)?;
            server.private_net.retain(|net| net.network != network);
            Ok(())
        })
    }

    /// `running`, `off`, …
    pub fn set_server_status(&self, server: u64, status: &str) -> anyhow::Result<()> {
        self.change(|project| project.server_mut(server).map(|server| status.clone_into(&mut server.status)))
            .map_err(anyhow::Error::msg)
    }

    /// Deletes a server; its floating IPs become unassigned.
    pub fn delete_server(&self, server: u64) -> anyhow::Result<()> {
        self.change(|project| project.remove_server(server)).map_err(anyhow::Error::msg)
    }

    /// Deletes a network, members or not.
    pub fn delete_network(&self, network: u64) -> anyhow::Result<()> {
        self.change(|project| project.remove_network(network)).map_err(anyhow::Error::msg)
    }

    /// Assigns a floating IP to a server, or unassigns it.
    pub fn assign_floating_ip(&self, ip: u64, server: Option<u64>) -> anyhow::Result<()> {
        self.change(|project| project.floating_ip_mut(ip).map(|ip| ip.server = server))
            .map_err(anyhow::Error::msg)
    }
}

/// What the project holds now.
impl Hetzner {
    /// A copy of everything.
    pub fn project(&self) -> Project {
        self.shared.read(|state| state.project.clone())
    }

    /// A copy of that network. Fails if there is none.
    pub fn network(&self, id: u64) -> anyhow::Result<Network> {
        self.shared.read(|s| s.project.networks.get(&id).cloned()).with_context(|| format!("no network {id}"))
    }

    /// A copy of that server. Fails if there is none.
    pub fn server(&self, id: u64) -> anyhow::Result<Server> {
        self.shared.read(|s| s.project.servers.get(&id).cloned()).with_context(|| format!("no server {id}"))
    }

    /// A copy of that floating IP. Fails if there is none.
    pub fn floating_ip(&self, id: u64) -> anyhow::Result<FloatingIp> {
        self.shared.read(|s| s.project.floating_ips.get(&id).cloned()).with_context(|| format!("no IP {id}"))
    }

    /// Gateway of the network's default route now; none as well if there is no such network.
    pub fn default_gateway(&self, network: u64) -> Option<Ipv4Addr> {
        self.shared.read(|state| state.project.networks.get(&network).and_then(Network::default_gateway))
    }

    /// Waits until the project is so. Fails after `within`, with `what` was awaited and what is there instead.
    pub async fn wait_until(
        &self,
        what: &str,
        within: Duration,
        mut so: impl FnMut(&Project) -> bool,
    ) -> anyhow::Result<()> {
        let mut changes = self.shared.changes();
        let wait = async {
            while !self.shared.read(|state| so(&state.project)) {
                changes.changed().await?;
            }
            anyhow::Ok(())
        };
        match tokio::time::timeout(within, wait).await {
            Ok(done) => done,
            Err(_) => Err(anyhow!("waited {within:?} in vain for {what}; there is {:#?}", self.project())),
        }
    }
}

/// What was asked for and what was seen.
impl Hetzner {
    /// Every request so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.read(|state| state.requests.clone())
    }

    /// Every request so far that was not a GET, refused ones too.
    pub fn writes(&self) -> Vec<Request> {
        self.shared.read(|s| s.requests.iter().filter(|r| r.method != "GET").cloned().collect())
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.write(|state| state.requests.clear());
    }

    /// Each default route that the network ever had, whoever made it; the first entry is how the network began.
    pub fn route_history(&self, network: u64) -> Vec<RouteChange> {
        self.shared.read(|state| state.routes.get(&network).cloned().unwrap_or_default())
    }

    /// From now on the project must never be so, not for an instant: it is looked at after each change.
    pub fn forbid(&self, name: &str, forbidden: impl Fn(&Project) -> bool + Send + 'static) {
        let forbidden = Forbidden { name: name.to_owned(), is_so: Box::new(forbidden), was_so: false };
        self.shared.write(|state| state.forbidden.push(forbidden));
    }

    /// When which forbidden state began.
    pub fn violations(&self) -> Vec<(Instant, String)> {
        self.shared.read(|state| state.violations.clone())
    }
}

/// How the API behaves from now on.
impl Hetzner {
    /// Changes the settings; running actions keep theirs, and `listen` stays what it was.
    pub fn configure(&self, change: impl FnOnce(&mut Settings)) {
        self.shared.write(|state| {
            change(&mut state.settings);
            if state.bucket.rule() != state.settings.rate_limit {
                state.bucket = Bucket::new(state.settings.rate_limit, Instant::now());
            }
        });
    }

    /// How long actions run that begin from now on.
    pub fn set_action_duration(&self, duration: Duration) {
        self.configure(|settings| settings.action_duration = duration);
    }

    /// Leaves that many requests in the bucket; it refills as it always does.
    pub fn set_rate_limit_left(&self, left: u32) {
        self.shared.write(|state| state.bucket.set_left(left, Instant::now()));
    }

    /// Puts a fault in the way.
    pub fn inject(&self, injection: Injection) {
        self.shared.write(|state| state.injections.add(injection));
    }

    /// The next `times` requests like that are refused with the code; nothing is done.
    pub fn refuse(&self, method: &str, path: &str, times: usize, code: Code) {
        self.inject(Injection::new(method, path, Answer::Refuse(code)).times(times));
    }

    /// How many injected faults have not happened yet: a test that ends with some has proved less than it says.
    pub fn injections_left(&self) -> usize {
        self.shared.read(|state| state.injections.left() + state.failures.len())
    }

    /// Forgets the faults that have not happened yet.
    pub fn clear_injections(&self) {
        self.shared.write(|state| {
            state.injections.clear();
            state.failures.clear();
        });
    }

    /// Makes the next action of its command fail.
    pub fn fail_action(&self, failure: ActionFailure) {
        self.shared.write(|state| state.failures.push(failure));
    }

    /// Ends every running action now.
    pub fn finish_actions(&self) {
        self.shared.write(|state| {
            let ids: Vec<u64> = state.project.actions.keys().copied().collect();
            ids.into_iter().for_each(|id| state.project.finish(id));
        });
    }
}
