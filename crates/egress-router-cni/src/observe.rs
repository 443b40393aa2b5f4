//! The only reader: the state of the node and of the pod.

use std::collections::{BTreeMap, BTreeSet};

use common::netlink::Error;
use common::netlink::address::Address;
use common::netlink::link::Link;
use common::netlink::route::{Device, Route};
use common::netlink::rule::Rule;
use common::netlink::socket::{Socket, Sockets};

use crate::cni::{self, ToCni};
use crate::names;
use crate::nftables::{self, Family};
use crate::plan::route;
use crate::plan::undo::Undo;

mod sysctl;

/// The state of the node, for inference.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// Routes of the table main.
    pub routes: Vec<Route>,
}

/// The state of the pod, for the plan.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// Unicast (and unreachable, blackhole, prohibit, throw) routes of all tables but local.
    pub routes: Vec<Route>,
    /// All rules.
    pub rules: Vec<Rule>,
    /// Sysctls that a plan may change, by the parts of their names (`["net", "ipv4", "conf", "eth0", "rp_filter"]`).
    /// `accept_ra_defrtr` only if there is an advertised default route or an attachment.
    pub sysctls: BTreeMap<Vec<String>, String>,
    /// The recorded attachments: undo data by interface name.
    pub attachments: BTreeMap<String, Undo>,
    /// The interfaces of the plugin's tables of family inet.
    pub tables: BTreeSet<String>,
    /// The interfaces of the plugin's tables of family netdev.
    pub frame_filters: BTreeSet<String>,
}

impl Pod {
    /// The link with this name.
    #[must_use]
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.iter().find(|link| link.name == name)
    }

    /// The link of a route. A route with several next hops has none.
    #[must_use]
    pub fn link_of(&self, route: &Route) -> Option<&Link> {
        self.links.iter().find(|link| route.device == Some(Device::Index(link.index)))
    }
}

/// Reads the node.
///
/// # Errors
/// Code 100 with the kernel's words; code 11 when it changes faster than it can be read.
pub fn host(socket: &mut Socket) -> Result<Host, cni::Error> {
    Ok(Host {
        links: socket.links().map_err(cannot("links of the node"))?,
        addresses: socket.addresses().map_err(cannot("addresses of the node"))?,
        routes: socket.routes(Some(route::MAIN)).map_err(cannot("routes of the node"))?,
    })
}

/// Reads the pod in whose namespace `sockets` were opened. The calling thread must be in it. `attachments`:
/// see [`Pod::attachments`].
///
/// # Errors
/// Code 100 with the kernel's words; code 11 when it changes faster than it can be read.
pub fn pod(sockets: &mut Sockets, attachments: BTreeMap<String, Undo>) -> Result<Pod, cni::Error> {
    let netlink = &mut sockets.route;
    let links = netlink.links().map_err(cannot("links of the pod"))?;
    let settings = netlink.netconf().map_err(cannot("settings of the pod's links"))?;
    let prefix = names::table("");
    let (inet, netdev): (Vec<_>, Vec<_>) = nftables::tables(&mut sockets.netfilter, &prefix)?
        .into_iter()
        .partition(|(family, _)| *family == Family::Inet);
    let interfaces =
        |tables: Vec<(Family, String)>| tables.into_iter().map(|(_, interface)| interface).collect();
    let mut pod = Pod {
        addresses: netlink.addresses().map_err(cannot("addresses of the pod"))?,
        routes: netlink.routes(None).map_err(cannot("routes of the pod"))?,
        rules: netlink.rules().map_err(cannot("rules of the pod"))?,
        sysctls: sysctl::names(&settings, &links),
        attachments,
        tables: interfaces(inet),
        frame_filters: interfaces(netdev),
        links,
    };
    let accept_ra_defrtr = sysctl::accept_ra_defrtr(&pod);
    pod.sysctls.extend(accept_ra_defrtr);
    Ok(pod)
}

fn cannot(what: &str) -> impl Fn(Error) -> cni::Error + '_ {
    move |error| error.to_cni(format!("cannot read the {what}"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use common::netlink::socket::{Protocol, Socket, Sockets};

    use super::{host, pod};
    use crate::sys::isolated::{ip, isolated};

    #[test]
    fn an_empty_pod_and_an_empty_node_are_read() {
        isolated(|| {
            let pod = pod(&mut Sockets::open().unwrap(), BTreeMap::new()).unwrap();
            assert_eq!(pod.links.iter().map(|link| link.name.as_str()).collect::<Vec<_>>(), ["lo"]);
            assert!(pod.links[0].loopback && pod.routes.is_empty() && pod.tables.is_empty());
            assert!(pod.rules.iter().any(|rule| !rule.ipv6 && rule.table == 254 && rule.priority == 32766));
            let host = host(&mut Socket::open(Protocol::Route).unwrap()).unwrap();
            assert_eq!((host.links, host.addresses), (pod.links, pod.addresses));
        });
    }

    #[test]
    fn all_objects_of_a_pod_are_read() {
        isolated(|| {
            for line in [
                "link set lo up",
                "link add eth0 address 02:00:00:00:00:07 mtu 1400 type veth peer name peer",
                "link add link peer name net1 type macvlan mode vepa",
                "link set eth0 up",
                "link set peer up",
                "addr add 10.1.0.2/24 dev eth0",
                "addr add fd00:1::2/64 dev eth0 nodad",
                "route add default via 10.1.0.1",
                "-6 route add default via fd00:1::1 metric 9",
                "rule add fwmark 0x10000/0xff0000 table 71001 priority 7101 protocol 153",
                "-6 rule add from fd00:1::2 table 72001 priority 7101",
            ] {
                ip(line);
            }
            std::fs::write("/proc/sys/net/ipv4/conf/eth0/rp_filter", "2").unwrap();
            std::fs::write("/proc/sys/net/ipv6/conf/eth0/forwarding", "1").unwrap();
            let pod = pod(&mut Sockets::open().unwrap(), BTreeMap::new()).unwrap();
            let link = |name: &str| pod.links.iter().find(|link| link.name == name).unwrap();
            let (eth0, net1) = (link("eth0"), link("net1"));
            assert_eq!((eth0.mtu, eth0.mac, eth0.up), (1400, Some([2, 0, 0, 0, 0, 7]), true));
            assert_eq!(
                (net1.kind.as_str(), net1.parent, net1.up),
                ("macvlan", Some(link("peer").index), false)
            );
            assert!(net1.mode.is_some());
            assert!(
                pod.addresses
                    .iter()
                    .any(|there| there.link == eth0.index && there.net.to_string() == "10.1.0.2/24")
            );
            assert_eq!(pod.routes.iter().filter(|route| route.destination.prefix_len() == 0).count(), 2);
            assert!(pod.routes.iter().all(|route| route.table == 254));
            let rules: Vec<_> =
                pod.rules.iter().filter(|rule| rule.priority == 7101).map(ToString::to_string).collect();
            assert_eq!(
                rules,
                [
                    "7101: from all fwmark 0x10000/0xff0000 lookup 71001",
                    "7101: from fd00:1::2/128 lookup 72001 (IPv6)"
                ]
            );
            // Netlink and the files have the same values.
            assert!(pod.sysctls.len() >= 3 * 6, "{:?}", pod.sysctls);
            for (name, value) in &pod.sysctls {
                let file = format!("/proc/sys/{}", name.join("/"));
                assert_eq!(std::fs::read_to_string(&file).unwrap().trim(), value, "{file}");
            }
        });
    }
}
