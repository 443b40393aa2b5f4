use super::*;
use crate::config::destinations::{Protocol, Redirect};
use crate::netlink::nftables;
use crate::netlink::socket::{Protocol as Netlink, Socket};
use crate::sys::isolated::isolated;

fn list() -> Firewall {
    Firewall {
        interface: "net1".into(),
        home: Some("eth0".into()),
        mark: names::mark(1),
        addresses: ["192.168.50.10", "192.168.50.11", "2001:db8::10"].map(|a| a.parse().unwrap()).to_vec(),
        destinations: Destinations {
            allowed: Some(
                ["10.0.0.0/8", "10.1.0.0/16", "2001:db8:1::/48"].map(|n| n.parse().unwrap()).to_vec(),
            ),
            redirects: vec![
                Redirect {
                    port: 80,
                    protocol: Protocol::Tcp,
                    to: "203.0.113.1".parse().unwrap(),
                    to_port: Some(8080),
                },
                Redirect {
                    port: 53,
                    protocol: Protocol::Udp,
                    to: "2001:db8:2::1".parse().unwrap(),
                    to_port: None,
                },
                Redirect {
                    port: 53,
                    protocol: Protocol::Sctp,
                    to: "2001:db8:2::1".parse().unwrap(),
                    to_port: Some(54),
                },
            ],
            fallback_v4: Some("203.0.113.9".parse().unwrap()),
            fallback_v6: None,
        },
        notes: vec!["slot=1".into()],
    }
}

#[test]
fn what_is_installed_is_found_as_it_was_built_and_goes_whole() {
    isolated(|| {
        let mut socket = Socket::open(Netlink::Netfilter).unwrap();
        let ruleset = list().ruleset();
        nftables::install(&mut socket, &ruleset).unwrap();
        assert_eq!(nftables::differences(&mut socket, &ruleset).unwrap(), Vec::<String>::new());
        assert_eq!(nftables::tables(&mut socket, "egress_router_").unwrap(), [ruleset.table.as_str()]);
        assert_eq!(nftables::notes(&mut socket, &ruleset.table).unwrap(), ["slot=1"]);
        let twice = nftables::install(&mut socket, &ruleset).unwrap_err();
        assert_eq!(twice.details, "File exists");
        nftables::delete(&mut socket, &ruleset.table).unwrap();
        nftables::delete(&mut socket, &ruleset.table).unwrap();
        assert_eq!(nftables::tables(&mut socket, "").unwrap(), Vec::<String>::new());
    });
}
