//! Finds the master: the node's interface that is the parent of the pod's.

use std::net::IpAddr;

use common::netlink::link::Link;
use ipnet::IpNet;

use crate::cni::Error;
use crate::observe::Host;

/// The one that `interfaceArgs.master` names.
///
/// # Errors
/// Code 7: the node has no interface with this name, or it is the loopback.
pub fn named<'a>(host: &'a Host, name: &str) -> Result<&'a Link, Error> {
    let found = host.links.iter().find(|link| link.name == name);
    let error = |what: &str| {
        let candidates = describe(host, host.links.iter().filter(|link| !link.loopback));
        Error::invalid_config(format!("interfaceArgs.master is {name:?}, {what}; the node has {candidates}"))
    };
    match found {
        None => Err(error("which this node does not have")),
        Some(link) if link.loopback => Err(error("the loopback")),
        Some(link) => Ok(link),
    }
}

/// The one interface of the node with an address in the network of each of the pod's addresses. For an address without a prefix length,
/// the networks of the node's addresses are used.
///
/// An interface that only has host addresses (/32, /128) in the network is used only if there is no other: kube-proxy keeps the addresses
/// of Services on such an interface (`kube-ipvs0`), also those that a load balancer announces in the node's network.
///
/// # Errors
/// Code 7: there is none, or several, or different ones for different addresses; the node's interfaces are listed.
pub fn infer<'a>(host: &'a Host, addresses: &[IpNet]) -> Result<&'a Link, Error> {
    let mut agreed: Option<(&Link, &IpNet)> = None;
    for address in addresses {
        let of = |counts: fn(&IpNet) -> bool| {
            let shared = move |net: &IpNet| counts(net) && shares(net, address);
            let has = move |link: &&Link| !link.loopback && nets(host, link.index).any(|net| shared(&net));
            host.links.iter().filter(has).collect::<Vec<_>>()
        };
        let mut candidates: Vec<&Link> = of(|net| net.prefix_len() < net.max_prefix_len());
        if candidates.is_empty() {
            candidates = of(|_| true);
        }
        let master = match *candidates.as_slice() {
            [one] => one,
            [] => {
                let all = describe(host, host.links.iter().filter(|link| !link.loopback));
                return Err(cannot(&format!(
                    "no interface of this node has an address in the network of {address} (found: {all})"
                )));
            }
            ref several => {
                let several = describe(host, several.iter().copied());
                return Err(cannot(&format!(
                    "several interfaces have an address in the network of {address}: {several}"
                )));
            }
        };
        match agreed {
            Some((before, by)) if before.index != master.index => {
                let both = describe(host, [before, master]);
                return Err(cannot(&format!(
                    "{by} and {address} are in networks of different interfaces: {both}"
                )));
            }
            _ => agreed = Some((master, address)),
        }
    }
    agreed.map(|(link, _)| link).ok_or_else(|| cannot("ip.addresses is empty"))
}

/// The addresses of a link of the node.
pub fn nets(host: &Host, link: u32) -> impl Iterator<Item = IpNet> + '_ {
    host.addresses.iter().filter(move |address| address.link == link).map(|address| address.net)
}

/// Refuses addresses of the node.
///
/// # Errors
/// Code 7: one of `addresses` is in `node`.
pub fn not_the_nodes(addresses: &[IpNet], node: &[IpAddr]) -> Result<(), Error> {
    match addresses.iter().find(|address| node.contains(&address.addr())) {
        Some(address) => Err(Error::invalid_config(format!(
            "ip.addresses has {address}, which is an address of the node itself: the pod needs one of its own"
        ))),
        None => Ok(()),
    }
}

fn shares(node: &IpNet, pod: &IpNet) -> bool {
    if pod.prefix_len() == pod.max_prefix_len() {
        node.contains(&pod.addr())
    } else {
        pod.contains(&node.addr())
    }
}

fn cannot(why: &str) -> Error {
    Error::invalid_config(format!("interfaceArgs.master is not given and cannot be inferred: {why}"))
}

fn describe<'a>(host: &Host, links: impl IntoIterator<Item = &'a Link>) -> String {
    // Interfaces without an address are not listed: a node with hundreds of pods has hundreds of veths.
    const SHOWN: usize = 16;
    let all: Vec<String> = links
        .into_iter()
        .filter_map(|link| {
            let nets: Vec<String> = nets(host, link.index).map(|net| net.to_string()).collect();
            (!nets.is_empty()).then(|| format!("{} {}", link.name, nets.join(" ")))
        })
        .collect();
    match all.get(..SHOWN) {
        _ if all.is_empty() => "none with an address".to_owned(),
        Some(first) => format!("{} and {} more", first.join(", "), all.len() - SHOWN),
        None => all.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use common::netlink::address::Address;

    use super::*;
    use crate::plan::simulated::link;

    fn host(links: &[(&str, &[&str])]) -> Host {
        let mut host = Host::default();
        for (position, (name, nets)) in links.iter().enumerate() {
            let index = u32::try_from(position).unwrap() + 1;
            host.links.push(link(index, name, ""));
            host.addresses.extend(nets.iter().map(|net| Address {
                link: index,
                net: net.parse().unwrap(),
                scope: 0,
                flags: 0,
            }));
        }
        host
    }

    fn inferred(links: &[(&str, &[&str])], addresses: &[&str]) -> Result<String, String> {
        let addresses: Vec<IpNet> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        infer(&host(links), &addresses).map(|link| link.name.clone()).map_err(|error| error.message)
    }

    const NODE: &[(&str, &[&str])] = &[
        ("lo", &["127.0.0.1/8", "192.168.9.9/32"]),
        ("u0", &["192.168.50.2/24", "fd50::2/64", "fe80::1/64"]),
        ("u1", &["192.168.60.2/24", "fe80::1/64"]),
        ("u2", &["192.168.60.3/24"]),
        ("veth1", &[]),
    ];

    #[test]
    fn the_only_interface_in_the_network_is_the_master() {
        assert_eq!(inferred(NODE, &["192.168.50.9/24"]), Ok("u0".into()));
        assert_eq!(inferred(NODE, &["fd50::9/64", "192.168.50.9/24"]), Ok("u0".into()));
        // Without a prefix length, the network of the node's address is used.
        assert_eq!(inferred(NODE, &["192.168.50.9/32"]), Ok("u0".into()));
        // The pod's network may be larger than that of the node's address.
        assert_eq!(inferred(NODE, &["192.168.48.9/21"]), Ok("u0".into()));
    }

    #[test]
    fn addresses_of_services_are_not_candidates() {
        let ipvs = [
            ("kube-ipvs0", &["10.96.0.1/32", "192.168.50.200/32", "fd50::200/128"][..]),
            ("u0", &["192.168.50.2/24", "fd50::2/64"]),
        ];
        assert_eq!(inferred(&ipvs, &["192.168.50.9/24", "fd50::9/64"]), Ok("u0".into()));
        // Without another candidate, an interface with a host address is used.
        assert_eq!(inferred(&[("u0", &["192.168.50.2/32"])], &["192.168.50.9/24"]), Ok("u0".into()));
        let both = [("u0", &["192.168.50.2/32"][..]), ("u1", &["192.168.50.3/32"])];
        assert!(inferred(&both, &["192.168.50.9/24"]).unwrap_err().contains("several interfaces"));
    }

    #[test]
    fn an_error_lists_the_candidates() {
        assert_eq!(
            inferred(NODE, &["10.0.0.1/8"]),
            Err("interfaceArgs.master is not given and cannot be inferred: no interface of this node has an address in the network \
                 of 10.0.0.1/8 (found: u0 192.168.50.2/24 fd50::2/64 fe80::1/64, u1 192.168.60.2/24 fe80::1/64, u2 \
                 192.168.60.3/24)"
                .into())
        );
        let several = inferred(NODE, &["192.168.60.9/24"]).unwrap_err();
        assert!(
            several.ends_with("192.168.60.9/24: u1 192.168.60.2/24 fe80::1/64, u2 192.168.60.3/24"),
            "{several}"
        );
        let different = [("u0", &["10.0.0.1/24"][..]), ("u1", &["fd00::1/64"])];
        let different = inferred(&different, &["10.0.0.9/24", "fd00::9/64"]).unwrap_err();
        assert!(different.ends_with("different interfaces: u0 10.0.0.1/24, u1 fd00::1/64"), "{different}");
        assert!(inferred(&[("lo", &["10.0.0.1/24"])], &["10.0.0.9/24"]).is_err());
    }

    #[test]
    fn a_named_master_must_exist() {
        assert_eq!(named(&host(NODE), "veth1").unwrap().index, 5);
        assert!(
            named(&host(NODE), "eth7")
                .unwrap_err()
                .message
                .contains("\"eth7\", which this node does not have; the node has u0")
        );
        assert!(named(&host(NODE), "lo").unwrap_err().message.contains("the loopback"));
    }

    #[test]
    fn an_address_of_the_node_is_refused() {
        let node: Vec<IpAddr> = vec!["192.168.50.2".parse().unwrap()];
        assert!(not_the_nodes(&["192.168.50.2/24".parse().unwrap()], &node).is_err());
        assert_eq!(not_the_nodes(&["192.168.50.3/24".parse().unwrap()], &node), Ok(()));
    }
}
