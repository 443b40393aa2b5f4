//! Direct changes and reads of the project by a test, without the API.

use anyhow::anyhow;
use ipnet::Ipv4Net;
use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use super::{
    ActionFailure, Hetzner, Network, NewFloatingIp, NewNetwork, NewServer, Project, Request, Route,
    RouteChange, Seed, state::Forbidden,
};

/// Direct changes of the project: without an action and without the rules of the API.
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

    /// Adds all of it; after an error, a part stays.
    pub fn seed(&self, seed: Seed) -> anyhow::Result<()> {
        self.shared.write(|state| state.project.seed(seed))
    }

    fn change<R>(&self, change: impl FnOnce(&mut Project) -> R) -> R {
        self.shared.write(|state| change(&mut state.project))
    }

    /// Sets the only route for that destination, or removes it.
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

    /// Attaches a server to a network, or changes its address there.
    pub fn attach_server(&self, server: u64, network: u64, ip: Ipv4Addr) -> anyhow::Result<()> {
        self.change(|project| {
            project.network_mut(network).map_err(anyhow::Error::msg)?;
            project.server_mut(server).map_err(anyhow::Error::msg)?.private_net.insert(network, ip);
            Ok(())
        })
    }

    /// Detaches a server from a network. Routes to it stay, as in the real API.
    pub fn detach_server(&self, server: u64, network: u64) -> anyhow::Result<()> {
        self.change(|project| {
            project.server_mut(server).map_err(anyhow::Error::msg)?.private_net.remove(&network);
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

    /// Assigns a floating IP to a server, or unassigns it.
    pub fn assign_floating_ip(&self, ip: u64, server: Option<u64>) -> anyhow::Result<()> {
        self.change(|project| project.floating_ip_mut(ip).map(|ip| ip.server = server))
            .map_err(anyhow::Error::msg)
    }
}

/// The present state.
impl Hetzner {
    /// A copy of the project.
    pub fn project(&self) -> Project {
        self.shared.read(|state| state.project.clone())
    }

    /// Gateway of the network's default route; none if there is no such network.
    pub fn default_gateway(&self, network: u64) -> Option<Ipv4Addr> {
        self.shared.read(|state| state.project.networks.get(&network).and_then(Network::default_gateway))
    }

    /// Waits for a state of the project. The error after `within` contains `what` and the present state.
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
            Err(_) => {
                Err(anyhow!("still waiting for {what} after {within:?}; there is {:#?}", self.project()))
            }
        }
    }
}

/// The history.
impl Hetzner {
    /// All requests so far, in the order of arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.read(|state| state.requests.clone())
    }

    /// All requests so far but GET, with the refused ones.
    pub fn writes(&self) -> Vec<Request> {
        self.shared.read(|s| s.requests.iter().filter(|r| r.method != "GET").cloned().collect())
    }

    /// Forgets the requests so far.
    pub fn clear_requests(&self) {
        self.shared.write(|state| state.requests.clear());
    }

    /// Each default route that the network had, by any client. The first entry is the state at its creation.
    pub fn route_history(&self, network: u64) -> Vec<RouteChange> {
        self.shared.read(|state| state.routes.get(&network).cloned().unwrap_or_default())
    }

    /// From now on this state is forbidden: it is checked after each change.
    pub fn forbid(&self, name: &str, forbidden: impl Fn(&Project) -> bool + Send + 'static) {
        let forbidden = Forbidden { name: name.to_owned(), is_so: Box::new(forbidden), was_so: false };
        self.shared.write(|state| state.forbidden.push(forbidden));
    }

    /// When a forbidden state began, and its name.
    pub fn violations(&self) -> Vec<(Instant, String)> {
        self.shared.read(|state| state.violations.clone())
    }
}

/// The behaviour of the API.
impl Hetzner {
    /// How long actions run that are accepted from now on.
    pub fn set_action_duration(&self, duration: Duration) {
        self.shared.write(|state| state.settings.action_duration = duration);
    }

    /// Makes the next action of its command fail.
    pub fn fail_action(&self, failure: ActionFailure) {
        self.shared.write(|state| state.failures.push(failure));
    }

    /// How many of these failures have not occurred yet. A test has to check that there are none left.
    pub fn failures_left(&self) -> usize {
        self.shared.read(|state| state.failures.len())
    }

    /// Ends every running action now.
    pub fn finish_actions(&self) {
        self.shared.write(|state| {
            let ids: Vec<u64> = state.project.actions.keys().copied().collect();
            ids.into_iter().for_each(|id| state.project.finish(id));
        });
    }
}
