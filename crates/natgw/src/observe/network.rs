//! The state of the cloud: the network, its servers, the floating IPs. They are listed no more often than needed, because all
//! programs of a project share 3,600 requests an hour.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::cloud::hcloud::{self, Hcloud, ProviderId};
use common::k8s::Node;

use super::snapshot::{self, FloatingIPs, Server};
use crate::config::{Config, NetworkName};
use crate::error::Error;
use crate::plan::floating_ip;

/// How long the list of servers is used while neither the network's members nor the Nodes change: between two polls a server could
/// leave the network and come back with another address.
const SERVERS_USED_FOR: Duration = Duration::from_secs(15 * 60);

/// The cloud, and its last responses.
pub struct Cloud {
    hcloud: Arc<Hcloud>,
    network: NetworkName,
    floating_ip_selector: Option<String>,
    poll: Duration,
    last: Option<View>,
    floating_ips: Option<FloatingIPList>,
}

/// The last complete list of floating IPs.
struct FloatingIPList {
    servers: FloatingIPs,
    /// None: something was written since, so that the next use lists them again.
    read: Option<Instant>,
    /// Floating IPs in labels of Nodes that are not assigned to the Node's server, with this server.
    denied: BTreeSet<(Ipv4Addr, u64)>,
    /// Polls in a row with the same `denied`.
    polls: u32,
    /// When the last of them was counted: lists that are read in quick succession count as one poll.
    counted: Instant,
}

/// The network and its servers at one time.
#[derive(Clone)]
pub struct View {
    network: hcloud::Network,
    network_read: Instant,
    servers: Arc<BTreeMap<u64, hcloud::Server>>,
    servers_read: Instant,
    /// Server IDs that Nodes name and the cloud did not know when the servers were listed.
    missing: BTreeSet<u64>,
}

impl Cloud {
    /// Nothing is listed yet.
    #[must_use]
    pub fn new(config: &Config, hcloud: Arc<Hcloud>) -> Self {
        Cloud {
            hcloud,
            network: config.network.clone(),
            floating_ip_selector: Some(config.floating_ips.selector.clone()).filter(|text| !text.is_empty()),
            poll: config.hetzner.poll_interval.into(),
            last: None,
            floating_ips: None,
        }
    }

    /// Drops the last responses: something was written, or a response was outdated.
    pub fn invalidate(&mut self) {
        self.last = None;
        if let Some(list) = &mut self.floating_ips {
            list.read = None;
        }
    }

    /// The network and its servers: as read last, if that is younger than the poll interval and knows every Node's server.
    pub(super) async fn view<'n>(&mut self, nodes: impl Iterator<Item = &'n Node>) -> Result<View, Error> {
        let ids: BTreeSet<u64> = nodes.filter_map(server_id).collect();
        let last = self.last.take();
        let young = |read: Instant, limit: Duration| read.elapsed() < limit;
        let (network, network_read) = match &last {
            Some(view) if young(view.network_read, self.poll) => (view.network.clone(), view.network_read),
            _ => (self.read_network().await?, Instant::now()),
        };
        // A server may have got an alias IP and a route since; only this list shows it.
        let believed = |view: &View| match network.default_route() {
            Some(route) if !view.knows(route.gateway) => self.poll,
            _ => SERVERS_USED_FOR,
        };
        let servers = match &last {
            Some(view)
                if young(view.servers_read, believed(view))
                    && view.network.servers == network.servers
                    && ids.iter().all(|id| view.servers.contains_key(id) || view.missing.contains(id)) =>
            {
                (Arc::clone(&view.servers), view.servers_read)
            }
            _ => {
                let servers = self.hcloud.servers().await.map_err(Error::ListServers)?;
                (Arc::new(servers.into_iter().map(|server| (server.id, server)).collect()), Instant::now())
            }
        };
        let missing = ids.into_iter().filter(|id| !servers.0.contains_key(id)).collect();
        let view = View { network, network_read, servers: servers.0, servers_read: servers.1, missing };
        self.last = Some(view.clone());
        Ok(view)
    }

    async fn read_network(&mut self) -> Result<hcloud::Network, Error> {
        let (read, name) = match &self.network {
            NetworkName::Id(id) => (self.hcloud.network(*id).await, id.to_string()),
            NetworkName::Name(name) => (self.hcloud.network_by_name(name).await, name.clone()),
        };
        read.map_err(|cause| Error::ReadNetwork { network: name, cause })
    }

    /// Lists the floating IPs, if the last list is older than the poll interval or than `since`, or if the label of a Node has
    /// changed to an IP that is not assigned to its server by the last list.
    pub(super) async fn list_floating_ips(
        &mut self,
        nodes: &[snapshot::Node],
        since: Option<Instant>,
    ) -> Result<(), Error> {
        let denied = |servers: &FloatingIPs| -> BTreeSet<(Ipv4Addr, u64)> {
            let claims = nodes.iter().filter_map(|node| match node.server {
                Server::Cloud { id, .. } => Some((floating_ip::assigned(node)?, id)),
                Server::Robot | Server::Unknown => None,
            });
            claims.filter(|(ip, id)| servers.get(ip) != Some(&Some(*id))).collect()
        };
        let is_current = |list: &FloatingIPList| {
            list.read
                .is_some_and(|read| read.elapsed() < self.poll && since.is_none_or(|since| read >= since))
                && denied(&list.servers).is_subset(&list.denied)
        };
        if self.floating_ips.as_ref().is_some_and(is_current) {
            return Ok(());
        }
        let listed = self.hcloud.floating_ips(self.floating_ip_selector.as_deref()).await;
        let listed = listed.map_err(Error::ListFloatingIPs)?;
        let servers: FloatingIPs =
            listed.into_iter().filter_map(|ip| Some((ip.ipv4()?, ip.server))).collect();
        let (denied, now) = (denied(&servers), Instant::now());
        let (polls, counted) = match &self.floating_ips {
            Some(last) if last.denied == denied && last.counted.elapsed() < self.poll => {
                (last.polls, last.counted)
            }
            Some(last) if last.denied == denied => (last.polls.saturating_add(1), now),
            _ => (1, now),
        };
        self.floating_ips = Some(FloatingIPList { servers, read: Some(now), denied, polls, counted });
        Ok(())
    }

    /// The last complete list, and for how many polls in a row it has denied the same labels.
    pub(super) fn floating_ips(&self) -> Option<(&FloatingIPs, u32)> {
        self.floating_ips.as_ref().map(|list| (&list.servers, list.polls))
    }
}

fn server_id(node: &Node) -> Option<u64> {
    match ProviderId::parse(&node.spec.provider_id) {
        ProviderId::Cloud(id) => Some(id),
        ProviderId::Robot(_) | ProviderId::Foreign => None,
    }
}

impl View {
    /// The server of a Node, found by the provider ID, or by the Node's name if the provider ID is empty.
    #[must_use]
    pub fn server_of(&self, name: &str, provider_id: &str) -> Server {
        let server = if provider_id.is_empty() {
            self.servers.values().find(|server| server.name == name)
        } else {
            match ProviderId::parse(provider_id) {
                ProviderId::Cloud(id) => self.servers.get(&id),
                ProviderId::Robot(_) => return Server::Robot,
                ProviderId::Foreign => None,
            }
        };
        server.map_or(Server::Unknown, |server| Server::Cloud {
            id: server.id,
            private_ip: server.private_ip(self.network.id),
        })
    }

    /// An alias IP is its server's as well: of a virtual router address, say.
    fn addresses<'s>(&self, server: &'s hcloud::Server) -> impl Iterator<Item = Ipv4Addr> + use<'s> {
        let network = self.network.id;
        let net = server.private_net.iter().find(move |net| net.network == network);
        net.into_iter().flat_map(|net| net.alias_ips.iter().copied().chain([net.ip]))
    }

    /// Whether a server has the address in the network.
    fn knows(&self, address: Ipv4Addr) -> bool {
        self.servers.values().any(|server| self.addresses(server).any(|own| own == address))
    }

    pub(super) fn snapshot(&self) -> snapshot::Network {
        let at = |server: &hcloud::Server| {
            let attached = snapshot::Attached { id: server.id, name: server.name.clone() };
            self.addresses(server).map(move |address| (address, attached.clone())).collect::<Vec<_>>()
        };
        snapshot::Network {
            id: self.network.id,
            name: self.network.name.clone(),
            ip_range: self.network.ip_range,
            default_route: self.network.default_route().map(|route| route.gateway),
            servers: self.servers.values().flat_map(at).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_ip_is_its_servers() {
        let network: hcloud::Network = serde_json::from_str(
            r#"{"id": 4711, "name": "lan", "ip_range": "10.0.0.0/16", "routes": [], "servers": [7], "subnets": []}"#,
        )
        .unwrap();
        let server: hcloud::Server = serde_json::from_str(
            r#"{"id": 7, "name": "router", "status": "running", "private_net": [
                {"network": 1, "ip": "10.9.0.3", "alias_ips": ["10.9.0.9"]},
                {"network": 4711, "ip": "10.0.0.2", "alias_ips": ["10.0.0.9"]}]}"#,
        )
        .unwrap();
        let view = View {
            network,
            network_read: Instant::now(),
            servers: Arc::new(BTreeMap::from([(7, server)])),
            servers_read: Instant::now(),
            missing: BTreeSet::new(),
        };
        let router = snapshot::Attached { id: 7, name: "router".to_owned() };
        let at = |last| (Ipv4Addr::new(10, 0, 0, last), router.clone());
        assert_eq!(view.snapshot().servers, BTreeMap::from([at(2), at(9)]));
        assert!(
            matches!(view.server_of("router", "hcloud://7"), Server::Cloud { id: 7, private_ip: Some(ip) } if ip == at(2).0)
        );
    }
}
