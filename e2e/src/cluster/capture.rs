//! The packets that hosts in the Internet receive from the nodes' segment, counted by their source addresses.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use serde_json::Value;

use super::segment::SWITCH;
use super::{Cluster, HOST, Network, SEGMENT_GATEWAY};

const TABLE: &str = "capture";
/// TCP and UDP to the host, with the port; to the gateway of the segment, which is a client of pods there, without, because clients have a new
/// port each time; and ICMP.
const SETS: [(&str, &str); 4] = [
    ("requests", "ipv4_addr . inet_proto . inet_service"),
    ("replies", "ipv4_addr . inet_proto"),
    ("pings", "ipv4_addr"),
    ("messages", "ipv4_addr"),
];

/// Counts until the cluster is removed.
#[derive(Debug)]
pub struct Capture {
    network: Network,
}

/// Packets of one source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packets {
    /// Their source address.
    pub source: Ipv4Addr,
    /// `tcp`, `udp`, `ping` (an echo request), or `icmp`, which are messages of the network and echo replies.
    pub protocol: String,
    /// Destination port at the host in the Internet; none for other destinations.
    pub port: Option<u16>,
    /// Their number.
    pub count: u64,
}

impl Cluster {
    /// Starts to count. Needs [`Cluster::segment`].
    ///
    /// # Errors
    /// It has been started.
    pub fn capture(&self) -> Result<Capture> {
        let network = self.machine("internet").network()?;
        let sets =
            SETS.map(|(name, kind)| format!("set {name} {{ type {kind}; size 65535; flags dynamic; }}"));
        let (outside, ports) = (format!("{{ {HOST}, {SEGMENT_GATEWAY} }}"), "meta l4proto { tcp, udp }");
        let rules = [
            // Before conntrack: each packet as it arrives.
            "type filter hook prerouting priority raw;".to_owned(),
            format!("iifname != {SWITCH} return; ip daddr != {outside} return;"),
            format!(
                "ip daddr {HOST} {ports} update @requests {{ ip saddr . meta l4proto . th dport counter }}"
            ),
            format!("ip daddr != {HOST} {ports} update @replies {{ ip saddr . meta l4proto counter }}"),
            "icmp type echo-request update @pings { ip saddr counter }".to_owned(),
            "icmp type != echo-request update @messages { ip saddr counter }".to_owned(),
        ];
        let (sets, rules) = (sets.join("\n"), rules.join("\n"));
        let ruleset = format!("table ip {TABLE} {{\n{sets}\nchain prerouting {{\n{rules}\n}}\n}}");
        network.run("nft", &[&ruleset])?;
        Ok(Capture { network })
    }
}

impl Capture {
    /// Begins again with zero.
    ///
    /// # Errors
    /// The capture is gone.
    pub fn reset(&self) -> Result<()> {
        let commands = SETS.map(|(name, _)| format!("flush set ip {TABLE} {name};"));
        self.network.run("nft", &[&commands.join(" ")]).map(drop)
    }

    /// The packets since then.
    ///
    /// # Errors
    /// The capture is gone.
    pub fn packets(&self) -> Result<Vec<Packets>> {
        let text = self.network.run("nft", &["--json", "list", "table", "ip", TABLE])?;
        let listing: Value = serde_json::from_str(&text).context("nft")?;
        let objects = listing.get("nftables").and_then(Value::as_array).context("nft: no ruleset")?;
        let sets = objects.iter().filter_map(|object| object.get("set"));
        let elements = sets.flat_map(|set| {
            let elements = set.get("elem").and_then(Value::as_array).into_iter().flatten();
            elements.map(move |element| (set, element))
        });
        elements.map(|(set, element)| packets(set, element).with_context(|| element.to_string())).collect()
    }
}

fn packets(set: &Value, element: &Value) -> Option<Packets> {
    let element = element.get("elem")?;
    let key = element.get("val")?;
    let fields = key.get("concat").and_then(Value::as_array);
    let field = |index: usize| fields.and_then(|fields| fields.get(index));
    let protocol = match set.get("name")?.as_str()? {
        "pings" => "ping",
        "messages" => "icmp",
        _ => field(1)?.as_str()?,
    };
    Some(Packets {
        source: field(0).unwrap_or(key).as_str()?.parse().ok()?,
        protocol: protocol.to_owned(),
        port: field(2).and_then(Value::as_u64).and_then(|port| port.try_into().ok()),
        count: element.get("counter")?.get("packets")?.as_u64()?,
    })
}
