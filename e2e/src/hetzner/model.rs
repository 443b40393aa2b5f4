//! The objects of a project, and their JSON in the API.

use ipnet::Ipv4Net;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::Ipv4Addr};

use super::project::Project;

/// A private network.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Unique in the project, over all kinds.
    pub id: u64,
    /// Unique among networks.
    pub name: String,
    /// The whole range.
    pub ip_range: Ipv4Net,
    /// Parts of the range.
    pub subnets: Vec<Subnet>,
    /// At most one for each destination.
    pub routes: Vec<Route>,
    /// The user's labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created: Timestamp,
}

/// A part of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Subnet {
    /// Inside the network's range.
    pub ip_range: Ipv4Net,
    /// The robot vSwitch; none for a cloud subnet.
    pub vswitch: Option<u64>,
}

/// A route of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// `0.0.0.0/0` or private.
    pub destination: Ipv4Net,
    /// Inside the network's range.
    pub gateway: Ipv4Addr,
}

/// A server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// The number in a Node's `hcloud://` provider ID.
    pub id: u64,
    /// Unique among servers.
    pub name: String,
    /// `running`, `off`, …
    pub status: String,
    /// None: a server without a public IPv4.
    pub public_ipv4: Option<Ipv4Addr>,
    /// Its address in each network, by the network's ID.
    pub private_net: BTreeMap<u64, Ipv4Addr>,
    /// The user's labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created: Timestamp,
}

/// A floating IP.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatingIp {
    /// Unique in the project.
    pub id: u64,
    /// Unique among floating IPs.
    pub name: String,
    /// An address for IPv4, a /64 for IPv6.
    pub ip: String,
    /// The server that it is assigned to.
    pub server: Option<u64>,
    /// The user's labels.
    pub labels: BTreeMap<String, String>,
    /// When it was made.
    pub created: Timestamp,
}

impl Network {
    /// Gateway of the default route, if there is one.
    pub fn default_gateway(&self) -> Option<Ipv4Addr> {
        self.routes.iter().find(|route| route.destination.prefix_len() == 0).map(|route| route.gateway)
    }

    /// The address of Hetzner's router: the first one of the range.
    pub fn first_ip(&self) -> Ipv4Addr {
        first_ip(self.ip_range)
    }

    pub(super) fn json(&self, project: &Project) -> Value {
        let subnets: Vec<Value> = self
            .subnets
            .iter()
            .map(|subnet| {
                json!({
                    "type": if subnet.vswitch.is_some() { "vswitch" } else { "cloud" },
                    "ip_range": subnet.ip_range.to_string(),
                    "network_zone": "eu-central",
                    "gateway": self.first_ip().to_string(),
                    "vswitch_id": subnet.vswitch,
                })
            })
            .collect();
        let routes: Vec<Value> = self
            .routes
            .iter()
            .map(|r| json!({"destination": r.destination.to_string(), "gateway": r.gateway.to_string()}))
            .collect();
        json!({
            "id": self.id,
            "name": self.name,
            "ip_range": self.ip_range.to_string(),
            "subnets": subnets,
            "routes": routes,
            "servers": project.members(self.id),
            "load_balancers": [],
            "protection": {"delete": false},
            "labels": self.labels,
            "expose_routes_to_vswitch": false,
            "created": stamp(self.created),
        })
    }
}

impl Server {
    /// Its address in that network.
    pub fn private_ip(&self, network: u64) -> Option<Ipv4Addr> {
        self.private_net.get(&network).copied()
    }

    pub(super) fn json(&self, project: &Project) -> Value {
        let private_net: Vec<Value> = self
            .private_net
            .iter()
            .map(|(network, ip)| json!({"network": network, "ip": ip, "alias_ips": [], "mac_address": mac(*ip)}))
            .collect();
        let ipv4 = self.public_ipv4.map(|ip| {
            let name = format!("static.{ip}.clients.your-server.example");
            json!({"id": self.id, "ip": ip, "blocked": false, "dns_ptr": name})
        });
        let floating: Vec<u64> =
            project.floating_ips.values().filter(|ip| ip.server == Some(self.id)).map(|ip| ip.id).collect();
        json!({
            "id": self.id,
            "name": self.name,
            "status": self.status,
            "created": stamp(self.created),
            "public_net": {"ipv4": ipv4, "ipv6": null, "floating_ips": floating, "firewalls": []},
            "private_net": private_net,
            "server_type": {
                "id": 22, "name": "cpx11", "description": "CPX 11", "category": "shared", "cores": 2,
                "memory": 2.0, "disk": 40, "prices": [], "storage_type": "local", "cpu_type": "shared",
                "architecture": "x86", "deprecation": null,
            },
            "location": location(),
            "image": null,
            "iso": null,
            "rescue_enabled": false,
            "locked": false,
            "backup_window": null,
            "outgoing_traffic": 0,
            "ingoing_traffic": 0,
            "included_traffic": 0,
            "protection": {"delete": false, "rebuild": false},
            "labels": self.labels,
            "volumes": [],
            "load_balancers": [],
            "primary_disk_size": 40,
            "placement_group": null,
        })
    }
}

impl FloatingIp {
    /// `ipv4` or `ipv6`.
    pub fn kind(&self) -> &'static str {
        if self.ip.contains(':') { "ipv6" } else { "ipv4" }
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "id": self.id,
            "name": self.name,
            "description": "",
            "ip": self.ip,
            "type": self.kind(),
            "server": self.server,
            "dns_ptr": [],
            "home_location": location(),
            "blocked": false,
            "protection": {"delete": false},
            "labels": self.labels,
            "created": stamp(self.created),
        })
    }
}

/// The first address of a range after the network's own.
pub(super) fn first_ip(range: Ipv4Net) -> Ipv4Addr {
    range.hosts().next().unwrap_or(range.addr())
}

/// As the API writes time: whole seconds, offset in numbers.
pub(super) fn stamp(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S+00:00").to_string()
}

/// Hetzner's prefix for private interfaces; the rest differs between servers.
fn mac(ip: Ipv4Addr) -> String {
    let [a, b, c, d] = ip.octets();
    format!("86:00:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}

fn location() -> Value {
    json!({
        "id": 1, "name": "fsn1", "description": "Falkenstein DC Park 1", "country": "DE", "city": "Falkenstein",
        "latitude": 50.47612, "longitude": 12.370071, "network_zone": "eu-central",
    })
}
