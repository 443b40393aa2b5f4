use ipnet::IpNet;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Destinations, Protocol, Redirect};
use crate::cni::field::Field;
use crate::cni::{Code, Error};

fn parse(value: &Value) -> Result<Destinations, Error> {
    Destinations::parse(&Field::new("ip", value).dict().unwrap())
}

fn entries(entries: &[&str]) -> Result<Destinations, Error> {
    parse(&json!({"destinations": entries}))
}

fn nets(nets: &[&str]) -> Option<Vec<IpNet>> {
    Some(nets.iter().map(|net| net.parse().unwrap()).collect())
}

#[test]
fn entries_of_cluster_network_operator_are_valid() {
    let parsed = parse(&json!({
        "destinations": ["80 UDP 10.100.3.0", "8080 SCTP 203.0.113.26 80", "8443 TCP 203.0.113.27 443"],
        "fallbackIP": "203.0.113.28",
    }))
    .unwrap();
    let to = |address: &str| address.parse().unwrap();
    assert_eq!(
        parsed.redirects,
        [
            Redirect { port: 80, protocol: Protocol::Udp, to: to("10.100.3.0"), to_port: None },
            Redirect { port: 8080, protocol: Protocol::Sctp, to: to("203.0.113.26"), to_port: Some(80) },
            Redirect { port: 8443, protocol: Protocol::Tcp, to: to("203.0.113.27"), to_port: Some(443) },
        ]
    );
    assert_eq!(parsed.allowed, None, "redirects do not restrict the pod");
    assert_eq!(parsed.fallback_v4, Some([203, 0, 113, 28].into()));
    assert!(parsed.redirect());
}

#[test]
fn blocks_are_masked_and_never_wider() {
    assert_eq!(entries(&["203.0.113.26/30"]).unwrap().allowed, nets(&["203.0.113.24/30"]));
    assert_eq!(entries(&["10.1.2.3/32", "fd00::7/64"]).unwrap().allowed, nets(&["10.1.2.3/32", "fd00::/64"]));
    assert_eq!(entries(&["10.1.0.0/16", "10.0.0.0/8"]).unwrap().allowed, nets(&["10.0.0.0/8"]));
    assert_eq!(entries(&["0.0.0.0/0"]).unwrap().allowed, nets(&["0.0.0.0/0"]));
}

#[test]
fn a_missing_list_restricts_nothing_and_an_empty_list_allows_nothing() {
    for value in [json!({}), json!({"destinations": null, "fallbackIP": ""})] {
        assert_eq!(parse(&value).unwrap(), Destinations::default());
    }
    for value in [json!({"destinations": []}), json!({"destinations": [], "fallbackIP": ""})] {
        assert_eq!(parse(&value).unwrap(), Destinations { allowed: Some(vec![]), ..Destinations::default() });
    }
    // As cluster-network-operator writes a router that redirects everything.
    assert_eq!(parse(&json!({"destinations": [], "fallbackIP": "192.0.2.2"})).unwrap().allowed, None);
}

#[test]
fn spaces_and_case_are_ignored() {
    let one = entries(&["80 tcp 1.2.3.4 8080"]).unwrap();
    assert_eq!(entries(&["  80\tTcp   1.2.3.4/32  8080 "]).unwrap(), one);
}

#[test]
fn both_families_have_their_own_ports_and_fallbacks() {
    let parsed =
        entries(&["80 TCP 10:100:3::0", "80 TCP 192.0.2.1", "80 UDP 192.0.2.1", "192.0.2.2", "fd00::2"])
            .unwrap();
    assert_eq!(parsed.redirects.len(), 3);
    assert_eq!(parsed.fallbacks().count(), 2);
}

#[test]
fn the_grammar_is_strict() {
    for wrong in [
        "",
        " ",
        "80",
        "80 tcp",
        "80 tcp 1.2.3.4 80 80",
        "0 tcp 1.2.3.4",
        "80 tcp 1.2.3.4 0",
        "65536 tcp 1.2.3.4",
        "+80 tcp 1.2.3.4",
        "-1 tcp 1.2.3.4",
        "80 icmp 1.2.3.4",
        "80 tcp 1.2.3",
        "80 tcp example.org",
        "80 tcp 203.0.113.26/30 80",
        "80 tcp 0.0.0.0",
        "80 tcp 127.0.0.1",
        "80 tcp 224.0.0.1",
        "80 tcp ::ffff:1.2.3.4",
        "80 tcp [fd00::1]",
        "1.2.3.4/33",
        "1.2.3/8",
        "example.org",
        "::",
        "255.255.255.255",
    ] {
        let error = entries(&["192.0.2.0/24", wrong]).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{wrong:?}");
        assert!(error.message.starts_with("ip.destinations[1] is "), "{error}");
    }
    assert_eq!(parse(&json!({"destinations": "80"})).unwrap_err().code, Code::Decode);
    assert_eq!(parse(&json!({"destinations": [80]})).unwrap_err().code, Code::Decode);
    assert_eq!(parse(&json!({"fallbackIP": "1.2.3.4/24"})).unwrap_err().code, Code::InvalidConfig);
}

#[test]
fn duplicate_and_contradictory_entries_are_refused() {
    for twice in [
        ["80 tcp 1.2.3.4", "80 TCP 1.2.3.5"],
        ["80 tcp 1.2.3.4", "80 tcp 1.2.3.4 81"],
        ["1.2.3.4", "1.2.3.5"],
        ["10.0.0.0/8", "10.1.2.3/8"],
    ] {
        assert_eq!(entries(&twice).unwrap_err().code, Code::InvalidConfig, "{twice:?}");
    }
    assert!(parse(&json!({"destinations": ["1.2.3.4"], "fallbackIP": "1.2.3.5"})).is_err());
    assert!(parse(&json!({"destinations": ["1.2.3.4"], "fallbackIP": "1.2.3.4"})).is_ok());
}

#[test]
fn the_error_of_a_redirect_to_a_network_has_a_suggestion() {
    let error = entries(&["80 TCP 203.0.113.26/30 80"]).unwrap_err();
    assert!(error.message.contains("write 203.0.113.26 without /30"), "{error}");
}

proptest! {
    #[test]
    fn never_a_panic(text in "[ 0-9a-fA-F.:/tcpudsTCP+-]{0,40}", other in any::<String>()) {
        let _ = entries(&[&text, &other]);
    }

    #[test]
    fn parsing_returns_the_written_entries(port in 1u16.., to in any::<u32>(), to_port in proptest::option::of(1u16..), spaces in " {1,3}") {
        let to = std::net::Ipv4Addr::from(to);
        let mut words = vec![port.to_string(), "SCTP".to_owned(), to.to_string()];
        words.extend(to_port.map(|port| port.to_string()));
        if let Ok(parsed) = entries(&[&words.join(&spaces)]) {
            prop_assert_eq!(parsed.redirects, [Redirect { port, protocol: Protocol::Sctp, to: to.into(), to_port }]);
        } else {
            prop_assert!(super::not_a_host(to.into()).is_some());
        }
    }

    /// The allow-list holds an address exactly where an entry does.
    #[test]
    fn the_list_allows_exactly_its_entries(blocks in proptest::collection::vec((any::<u32>(), 0u8..=32), 1..6), probe in any::<u32>(), near in any::<bool>()) {
        let texts: Vec<_> = blocks.iter().map(|(address, length)| format!("{}/{length}", std::net::Ipv4Addr::from(*address))).collect();
        let list: Vec<_> = texts.iter().map(String::as_str).collect();
        let probe = std::net::Ipv4Addr::from(if near { blocks[0].0 ^ (probe & 0xff) } else { probe });
        let holds = |net: &IpNet| net.contains(&std::net::IpAddr::V4(probe));
        if let Ok(parsed) = entries(&list) {
            let asked = list.iter().any(|text| holds(&text.parse().unwrap()));
            prop_assert_eq!(parsed.allowed.unwrap().iter().any(holds), asked);
        }
    }
}
