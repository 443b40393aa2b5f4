mod interpreted;
mod listing;
mod mutations;
mod packets;

use std::process::Command;

use common::netlink::nftables::Rule;
use common::netlink::socket::{Protocol as Netlink, Socket};

use super::*;
use crate::config::destinations::{Protocol, Redirect};
use crate::sys::isolated::{ip, isolated};

/// The firewall of the attachment `net1` in slot 1, with `eth0` as primary interface.
fn firewall(addresses: &[&str], destinations: Destinations) -> Firewall {
    Firewall {
        interface: "net1".into(),
        primary: Family::ALL.map(|family| (family, "eth0".to_owned())).into(),
        mark: names::mark(1),
        addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
        networks: ["192.168.50.0/24", "2001:db8:50::/64"].map(|net| net.parse().unwrap()).to_vec(),
        destinations,
        forwards: Forwards::default(),
    }
}

fn listed(nets: &[&str]) -> Destinations {
    let nets = nets.iter().map(|net| net.parse().unwrap()).collect();
    Destinations { allowed: Some(nets), ..Destinations::default() }
}

fn redirect(port: u16, protocol: Protocol, to: &str, to_port: Option<u16>) -> Redirect {
    Redirect { port, protocol, to: to.parse().unwrap(), to_port }
}

/// The fingerprint of its table.
fn fingerprint(socket: &mut Socket, ruleset: &Ruleset) -> Option<String> {
    nftables::fingerprint(socket, &ruleset.table).unwrap()
}

fn netfilter() -> Socket {
    Socket::open(Netlink::Netfilter).unwrap()
}

/// The output of nft(8).
fn nft(arguments: &[&str]) -> String {
    let output = Command::new("nft")
        .args(arguments)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .expect("this test needs the program nft (package nftables)");
    assert!(output.status.success(), "nft {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn an_installed_table_is_found_and_deleted_completely() {
    isolated(|| {
        let mut socket = netfilter();
        let ruleset = listing::everything().ruleset();
        nftables::install(&mut socket, &ruleset).unwrap();
        let first = fingerprint(&mut socket, &ruleset).unwrap();
        let there = nftables::tables(&mut socket, "egress_router_").unwrap();
        assert_eq!(there, [(nftables::Family::Inet, "net1".to_owned())]);
        nftables::delete(&mut socket, nftables::Family::Inet, &ruleset.table).unwrap();
        nftables::delete(&mut socket, nftables::Family::Inet, &ruleset.table).unwrap();
        assert_eq!(nftables::tables(&mut socket, "").unwrap(), []);
        assert_eq!(fingerprint(&mut socket, &ruleset), None);
        // The same table again has the same fingerprint, although the kernel gives it other handles.
        nftables::install(&mut socket, &ruleset).unwrap();
        assert_eq!(fingerprint(&mut socket, &ruleset), Some(first));
        nftables::generation(&mut socket).unwrap();
    });
}

/// Otherwise CHECK would report a change that does not exist, or ADD would send a request for each kind of object.
#[test]
fn the_description_with_the_acknowledgement_is_the_one_that_is_read_later() {
    isolated(|| {
        ip("link add net1 type veth peer name eth0");
        let mut socket = netfilter();
        let firewall = listing::everything();
        let installed = [firewall.ruleset(), firewall.frames().unwrap()]
            .map(|ruleset| nftables::install(&mut socket, &ruleset).unwrap().unwrap());
        let mut description = nftables::Description::default();
        description.extend(installed.concat());
        assert_eq!(Some(description.fingerprint()), fingerprint(&mut socket, &firewall.ruleset()));
    });
}

#[test]
fn a_table_whose_description_exceeds_the_socket_is_installed_without_it() {
    isolated(|| {
        let mut socket = netfilter();
        let redirects = (1..=3000).map(|port| redirect(port, Protocol::Tcp, "203.0.113.9", Some(port)));
        let destinations = Destinations { redirects: redirects.collect(), ..Destinations::default() };
        let ruleset = firewall(&["192.168.50.10"], destinations).ruleset();
        assert_eq!(nftables::install(&mut socket, &ruleset).unwrap(), None);
        assert!(fingerprint(&mut socket, &ruleset).is_some());
    });
}

#[test]
fn attachments_have_separate_tables() {
    isolated(|| {
        let mut socket = netfilter();
        let first = listing::everything();
        let second = Firewall { interface: "net2".into(), mark: names::mark(2), ..first.clone() };
        for firewall in [&first, &second] {
            nftables::install(&mut socket, &firewall.ruleset()).unwrap();
        }
        let before = fingerprint(&mut socket, &second.ruleset());
        nftables::delete(&mut socket, nftables::Family::Inet, "egress_router_net1").unwrap();
        assert_eq!(fingerprint(&mut socket, &second.ruleset()), before);
    });
}

#[test]
fn a_refusal_names_the_object_and_leaves_nothing() {
    isolated(|| {
        let mut socket = netfilter();
        let mut ruleset = listing::everything().ruleset();
        ruleset.chains[0].1.insert(0, Rule::new().comment("lost").jump("nowhere"));
        let error = nftables::install(&mut socket, &ruleset).unwrap_err();
        assert_eq!(
            error.message,
            "nf_tables: cannot install the table egress_router_net1: rule 1 of chain prerouting_mark (lost)"
        );
        assert_eq!(
            (error.code, error.details.as_str()),
            (crate::cni::Code::Kernel, "No such file or directory")
        );
        assert_eq!(nftables::tables(&mut socket, "").unwrap(), []);
        nft(&["add table inet egress_router_net1"]);
        let error = nftables::install(&mut socket, &listing::everything().ruleset()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "nf_tables: cannot install the table egress_router_net1: table egress_router_net1: File exists"
        );
    });
}

#[test]
fn a_long_list_is_one_batch_too() {
    isolated(|| {
        // Only root of the node, which runs plugins, may send more than 208 KiB at once.
        let root = std::fs::read_to_string("/proc/self/uid_map").unwrap().contains("4294967295");
        let scale = if root { 10 } else { 1 };
        let v4 = (0..2_000 * scale)
            .map(|n| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000_u32 + n * 2)).into());
        let v6 = (0..1_000 * u128::from(scale))
            .map(|n| IpAddr::from(std::net::Ipv6Addr::from((0xfd_u128 << 120) + n * 2)).into());
        let destinations = Destinations { allowed: Some(v4.chain(v6).collect()), ..Destinations::default() };
        let ruleset = firewall(&["192.168.50.10"], destinations).ruleset();
        let mut socket = netfilter();
        nftables::install(&mut socket, &ruleset).unwrap();
        let listed = fingerprint(&mut socket, &ruleset);
        nft(&["delete element inet egress_router_net1 allowed4 { 10.0.0.2 }"]);
        assert_ne!(fingerprint(&mut socket, &ruleset), listed);
    });
}
