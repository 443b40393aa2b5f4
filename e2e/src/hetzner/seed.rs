//! New objects, from a test or a state file.

use anyhow::{Context, bail, ensure};
use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde::Deserialize;
use std::{collections::BTreeMap, net::Ipv4Addr};

use super::{
    model::{FloatingIp, Network, Route, Server, Subnet},
    project::Project,
    rules,
    selector::check_label,
};

/// A project, as in the file of the `hetzner` program:
///
/// ```yaml
/// networks: [{name: cluster, ip_range: 10.0.0.0/16, subnets: [10.0.0.0/24], routes: {0.0.0.0/0: 10.0.0.2}}]
/// servers: [{id: 42, name: node-1, public_ipv4: 203.0.113.9, private_net: {cluster: 10.0.0.2}}]
/// floating_ips: [{name: egress, ip: 198.51.100.7, server: node-1, labels: {pool: egress}}]
/// ```
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Seed {
    /// Added first.
    pub networks: Vec<NewNetwork>,
    /// Added second; they name networks.
    pub servers: Vec<NewServer>,
    /// Added last; they name servers.
    pub floating_ips: Vec<NewFloatingIp>,
}

/// A new network.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewNetwork {
    /// None: the next free one.
    #[serde(default)]
    pub id: Option<u64>,
    /// Unique.
    pub name: String,
    /// For example `10.0.0.0/16`.
    pub ip_range: String,
    /// Cloud subnets. None given: one over the whole range.
    #[serde(default)]
    pub subnets: Vec<String>,
    /// Subnets of a vSwitch.
    #[serde(default)]
    pub vswitch_subnets: Vec<String>,
    /// Destination to gateway.
    #[serde(default)]
    pub routes: BTreeMap<String, String>,
    /// The user's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A new server.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewServer {
    /// None: the next free one.
    #[serde(default)]
    pub id: Option<u64>,
    /// Unique.
    pub name: String,
    /// None: `running`.
    #[serde(default)]
    pub status: Option<String>,
    /// None: a server without a public IPv4.
    #[serde(default)]
    pub public_ipv4: Option<Ipv4Addr>,
    /// Name of a network, and the address there.
    #[serde(default)]
    pub private_net: BTreeMap<String, Ipv4Addr>,
    /// The user's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

/// A new floating IP.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFloatingIp {
    /// None: the next free one.
    #[serde(default)]
    pub id: Option<u64>,
    /// Unique.
    pub name: String,
    /// An IPv4 address, or an IPv6 /64.
    pub ip: String,
    /// Name of the server that it is assigned to.
    #[serde(default)]
    pub server: Option<String>,
    /// The user's labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
}

macro_rules! common {
    ($($kind:ident),*) => {$(
        impl $kind {
            /// With this ID.
            #[must_use]
            pub fn id(mut self, id: u64) -> Self {
                self.id = Some(id);
                self
            }

            /// With one more label.
            #[must_use]
            pub fn label(mut self, name: &str, value: &str) -> Self {
                self.labels.insert(name.to_owned(), value.to_owned());
                self
            }
        }
    )*};
}
common!(NewNetwork, NewServer, NewFloatingIp);

impl NewNetwork {
    /// With one cloud subnet over the whole range, unless subnets are added.
    pub fn new(name: &str, ip_range: &str) -> Self {
        Self { name: name.to_owned(), ip_range: ip_range.to_owned(), ..Self::default() }
    }

    /// One more cloud subnet.
    #[must_use]
    pub fn subnet(mut self, range: &str) -> Self {
        self.subnets.push(range.to_owned());
        self
    }

    /// One more subnet, of a vSwitch.
    #[must_use]
    pub fn vswitch(mut self, range: &str) -> Self {
        self.vswitch_subnets.push(range.to_owned());
        self
    }
}

impl NewServer {
    /// Running, without any address.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// With a public IPv4.
    #[must_use]
    pub fn public(self, ip: Ipv4Addr) -> Self {
        Self { public_ipv4: Some(ip), ..self }
    }

    /// In this network (by name), with this address.
    #[must_use]
    pub fn attached(mut self, network: &str, ip: Ipv4Addr) -> Self {
        self.private_net.insert(network.to_owned(), ip);
        self
    }
}

impl NewFloatingIp {
    /// Unassigned.
    pub fn new(name: &str, ip: &str) -> Self {
        Self { name: name.to_owned(), ip: ip.to_owned(), ..Self::default() }
    }

    /// Assigned to this server (by name).
    #[must_use]
    pub fn server(self, name: &str) -> Self {
        Self { server: Some(name.to_owned()), ..self }
    }
}

fn labels(labels: BTreeMap<String, String>) -> anyhow::Result<BTreeMap<String, String>> {
    for (name, value) in &labels {
        check_label(name, value).map_err(anyhow::Error::msg)?;
    }
    Ok(labels)
}

fn net(text: &str) -> anyhow::Result<Ipv4Net> {
    text.parse().with_context(|| format!("'{text}' is not an IPv4 prefix"))
}

fn route(destination: &str, gateway: &str) -> anyhow::Result<Route> {
    let gateway = gateway.parse().with_context(|| format!("'{gateway}' is not an IPv4 address"))?;
    Ok(Route { destination: net(destination)?, gateway })
}

impl Project {
    pub(super) fn add_network(&mut self, new: NewNetwork) -> anyhow::Result<u64> {
        ensure!(self.network_named(&new.name).is_none(), "network name '{}' is taken", new.name);
        let ip_range = net(&new.ip_range)?;
        let whole = vec![new.ip_range.clone()];
        let cloud =
            if new.subnets.is_empty() && new.vswitch_subnets.is_empty() { &whole } else { &new.subnets };
        let cloud = cloud.iter().map(|range| (range, None));
        // The ID of the vSwitch is not used.
        let subnets = cloud.chain(new.vswitch_subnets.iter().map(|range| (range, Some(1))));
        let subnets: anyhow::Result<Vec<Subnet>> =
            subnets.map(|(range, vswitch)| Ok(Subnet { ip_range: net(range)?, vswitch })).collect();
        let mut network = Network {
            id: 0,
            name: new.name,
            ip_range,
            subnets: subnets?,
            routes: Vec::new(),
            labels: labels(new.labels)?,
            created: Timestamp::now(),
        };
        for (destination, gateway) in &new.routes {
            let route = route(destination, gateway)?;
            rules::route(&network, route).map_err(|refusal| anyhow::anyhow!("{}", refusal.message))?;
            network.routes.push(route);
        }
        network.id = self.claim_id(new.id).map_err(anyhow::Error::msg)?;
        let id = network.id;
        self.networks.insert(id, network);
        Ok(id)
    }

    pub(super) fn add_server(&mut self, new: NewServer) -> anyhow::Result<u64> {
        ensure!(self.server_named(&new.name).is_none(), "server name '{}' is taken", new.name);
        let mut private_net = BTreeMap::new();
        for (name, ip) in &new.private_net {
            let network = self.network_named(name).with_context(|| format!("no network '{name}'"))?;
            ensure!(network.ip_range.contains(ip), "{ip} is not in network '{name}' ({})", network.ip_range);
            if let Some(owner) = self.server_at(network.id, *ip) {
                bail!("{ip} belongs to server '{}'", owner.name);
            }
            private_net.insert(network.id, *ip);
        }
        let server = Server {
            id: self.claim_id(new.id).map_err(anyhow::Error::msg)?,
            name: new.name,
            status: new.status.unwrap_or_else(|| "running".to_owned()),
            public_ipv4: new.public_ipv4,
            private_net,
            labels: labels(new.labels)?,
            created: Timestamp::now(),
        };
        let id = server.id;
        self.servers.insert(id, server);
        Ok(id)
    }

    pub(super) fn add_floating_ip(&mut self, new: NewFloatingIp) -> anyhow::Result<u64> {
        ensure!(
            !self.floating_ips.values().any(|other| other.name == new.name || other.ip == new.ip),
            "a floating IP with name '{}' or address {} exists",
            new.name,
            new.ip
        );
        let v6 = new.ip.parse::<ipnet::Ipv6Net>().is_ok_and(|range| range.prefix_len() == 64);
        ensure!(v6 || new.ip.parse::<Ipv4Addr>().is_ok(), "'{}' is neither IPv4 nor an IPv6 /64", new.ip);
        let server = match &new.server {
            Some(name) => Some(self.server_named(name).with_context(|| format!("no server '{name}'"))?.id),
            None => None,
        };
        let id = self.claim_id(new.id).map_err(anyhow::Error::msg)?;
        let labels = labels(new.labels)?;
        let ip = FloatingIp { id, name: new.name, ip: new.ip, server, labels, created: Timestamp::now() };
        self.floating_ips.insert(id, ip);
        Ok(id)
    }

    pub(super) fn seed(&mut self, seed: Seed) -> anyhow::Result<()> {
        for new in seed.networks {
            self.add_network(new)?;
        }
        for new in seed.servers {
            self.add_server(new)?;
        }
        for new in seed.floating_ips {
            self.add_floating_ip(new)?;
        }
        Ok(())
    }
}
