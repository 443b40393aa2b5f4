use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{apply, intersection};
use crate::cni::field::Field;
use crate::cni::{Code, Error};
use crate::config::ip::Ip;

fn within(limits: &Value, ip: &Value) -> Result<Ip, Error> {
    let limits = Ip::parse_overrides(&Field::new("ipConfig.overrides", limits)).unwrap();
    let ip = Ip::parse(&Field::new("data.ip", ip)).unwrap();
    apply(&limits, ip, "data.ip")
}

fn of(addresses: &[&str]) -> Value {
    json!({"addresses": addresses})
}

fn and(mut ip: Value, key: &str, value: Value) -> Value {
    ip[key] = value;
    ip
}

fn refused(limits: &Value, ip: &Value) -> String {
    let error = within(limits, ip).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig, "{error}");
    assert!(error.message.starts_with("data.ip"), "{error}");
    error.message
}

fn nets(nets: &[&str]) -> Vec<IpNet> {
    nets.iter().map(|net| net.parse().unwrap()).collect()
}

#[test]
fn addresses_are_a_closed_list() {
    let limits = of(&["192.0.2.9/24", "192.0.2.10", "fd00::9/64"]);
    assert_eq!(within(&limits, &of(&["fd00:0::9/64"])).unwrap().addresses, nets(&["fd00::9/64"]));
    let message = refused(&limits, &of(&["192.0.2.9/24", "192.0.2.11/24"]));
    assert!(message.contains("192.0.2.11/24") && message.contains("192.0.2.10/32"), "{message}");
}

#[test]
fn a_prefix_length_may_be_on_either_side_but_must_not_differ() {
    let limits = of(&["192.0.2.9/24", "192.0.2.10"]);
    assert_eq!(within(&limits, &of(&["192.0.2.9"])).unwrap().addresses, nets(&["192.0.2.9/24"]));
    assert_eq!(within(&limits, &of(&["192.0.2.10/24"])).unwrap().addresses, nets(&["192.0.2.10/24"]));
    assert!(refused(&limits, &of(&["192.0.2.9/16"])).contains("192.0.2.9/24"));
}

#[test]
fn the_gateway_is_the_default_and_the_only_allowed_value() {
    let limits = json!({"gateway": ["192.0.2.1", "fe80::1"]});
    let v4 = of(&["192.0.2.9/24"]);
    let given = within(&limits, &v4).unwrap().gateways;
    assert_eq!(
        (given.v4, given.v6),
        (Some([192, 0, 2, 1].into()), None),
        "no gateway without an address of its family"
    );
    assert!(within(&limits, &and(v4.clone(), "gateway", json!("192.0.2.1"))).is_ok());
    assert!(refused(&limits, &and(v4.clone(), "gateway", json!("192.0.2.2"))).contains("192.0.2.1"));
    // No other value, not even of a family that the overrides do not set.
    let limits = json!({"gateway": "192.0.2.1"});
    refused(&limits, &and(of(&["192.0.2.9/24", "fd00::9/64"]), "gateway", json!("fd00::1")));
    // No limit.
    assert!(within(&json!({}), &and(v4, "gateway", json!("192.0.2.2"))).is_ok());
}

#[test]
fn destinations_are_the_default_and_otherwise_intersected() {
    let limits = json!({"destinations": ["10.0.0.0/8", "203.0.113.0/24"]});
    let ip = of(&["192.0.2.9/24"]);
    let allowed = |destinations: Value| {
        within(&limits, &and(ip.clone(), "destinations", destinations)).unwrap().destinations.allowed.unwrap()
    };
    assert_eq!(
        within(&limits, &ip).unwrap().destinations.allowed.unwrap(),
        nets(&["10.0.0.0/8", "203.0.113.0/24"])
    );
    assert_eq!(allowed(json!([])), nets(&[]));
    assert_eq!(allowed(json!(["10.1.0.0/16", "198.51.100.0/24"])), nets(&["10.1.0.0/16"]));
    assert_eq!(allowed(json!(["0.0.0.0/0"])), nets(&["10.0.0.0/8", "203.0.113.0/24"]));
}

#[test]
fn an_empty_intersection_allows_nothing() {
    let limits = json!({"destinations": ["10.0.0.0/8"]});
    let ip = and(of(&["192.0.2.9/24"]), "destinations", json!(["198.51.100.0/24"]));
    assert_eq!(within(&limits, &ip).unwrap().destinations.allowed, Some(Vec::new()));
}

#[test]
fn redirects_must_be_within_the_overrides() {
    let ip = |destinations: Value| and(of(&["192.0.2.9/24"]), "destinations", destinations);
    // With an allow-list: the target must be in it, and the list stays.
    let limits = json!({"destinations": ["10.0.0.0/8"]});
    let given = within(&limits, &ip(json!(["80 tcp 10.1.2.3"]))).unwrap().destinations;
    assert_eq!((given.redirects.len(), given.allowed), (1, Some(nets(&["10.0.0.0/8"]))));
    assert!(refused(&limits, &ip(json!(["80 tcp 203.0.113.7"]))).contains("203.0.113.7"));
    refused(&limits, &ip(json!(["203.0.113.7"])));
    refused(&limits, &and(of(&["192.0.2.9/24"]), "fallbackIP", json!("203.0.113.7")));
    // With redirects: only the same ones.
    let limits = json!({"destinations": ["80 tcp 10.1.2.3", "443 tcp 10.1.2.3"], "fallbackIP": "10.1.2.4"});
    let given = within(&limits, &of(&["192.0.2.9/24"])).unwrap().destinations;
    assert_eq!((given.redirects.len(), given.fallbacks().count()), (2, 1), "the default is the whole");
    let given = within(&limits, &ip(json!(["80 tcp 10.1.2.3"]))).unwrap().destinations;
    assert_eq!((given.redirects.len(), given.fallbacks().count()), (1, 0));
    refused(&limits, &ip(json!(["81 tcp 10.1.2.3"])));
    refused(&limits, &ip(json!(["80 tcp 10.1.2.3 8080"])));
    refused(&limits, &ip(json!(["10.1.2.3"])));
    assert!(within(&limits, &ip(json!(["10.1.2.4"]))).is_ok());
}

#[test]
fn gateways_and_targets_of_the_result_have_an_address_of_their_family() {
    let limits = json!({"destinations": ["80 tcp fd00::1"]});
    assert!(refused(&limits, &of(&["192.0.2.9/24"])).contains("IPv6"));
}

fn block() -> impl Strategy<Value = IpNet> {
    // Few high bits, so that blocks overlap and are adjacent.
    (0u32..64, 0u8..=32).prop_map(|(bits, length)| {
        IpNet::V4(Ipv4Net::new(Ipv4Addr::from(bits << 26), length).unwrap().trunc())
    })
}

fn holds(list: &[IpNet], address: IpAddr) -> bool {
    list.iter().any(|block| block.contains(&address))
}

proptest! {
    #[test]
    fn an_intersection_has_exactly_the_addresses_of_both(
        left in proptest::collection::vec(block(), 0..6),
        right in proptest::collection::vec(block(), 0..6),
        probes in proptest::collection::vec((0u32..64, 0u32..3), 16),
    ) {
        let both = intersection(&left, &right);
        for (bits, low) in probes {
            let address = IpAddr::V4(Ipv4Addr::from((bits << 26) | low));
            prop_assert_eq!(holds(&both, address), holds(&left, address) && holds(&right, address));
        }
        prop_assert_eq!(&both, &intersection(&right, &left));
    }

    #[test]
    fn a_config_map_never_exceeds_the_overrides(
        limits in proptest::collection::vec((1u8..20, prop_oneof![Just(24u8), Just(25), Just(32)]), 1..4),
        asked in proptest::collection::vec((1u8..20, prop_oneof![Just(24u8), Just(25), Just(32)]), 1..4),
        limit_blocks in proptest::collection::vec(block(), 1..4),
        asked_blocks in proptest::collection::vec(block(), 0..4),
        to in proptest::option::of(0u32..64),
        probe in 0u32..64,
    ) {
        let texts = |list: &[(u8, u8)]| -> Vec<String> {
            let distinct: std::collections::BTreeMap<_, _> = list.iter().copied().collect();
            distinct.iter().map(|(host, length)| format!("192.0.2.{host}/{length}")).collect()
        };
        let blocks = |list: &[IpNet]| -> Vec<String> {
            let distinct: std::collections::BTreeSet<_> = list.iter().map(ToString::to_string).collect();
            distinct.into_iter().collect()
        };
        let limits_json = json!({"addresses": texts(&limits), "destinations": blocks(&limit_blocks)});
        let mut destinations = blocks(&asked_blocks);
        destinations.extend(to.map(|bits| format!("80 tcp {}", Ipv4Addr::from((bits << 26) | 1))));
        let asked_json = json!({"addresses": texts(&asked), "destinations": destinations});
        let (Ok(limit), Ok(ip)) = (
            Ip::parse_overrides(&Field::new("o", &limits_json)),
            Ip::parse(&Field::new("i", &asked_json)),
        ) else { return Ok(()) };
        if let Ok(given) = apply(&limit, ip, "i") {
            for address in &given.addresses {
                prop_assert!(limit.addresses.iter().any(|other| other.addr() == address.addr()
                    && (other.prefix_len() == 32 || other.prefix_len() == address.prefix_len())));
            }
            let allowed = given.destinations.allowed.unwrap();
            let address = IpAddr::V4(Ipv4Addr::from((probe << 26) | 1));
            prop_assert!(!holds(&allowed, address) || holds(&limit_blocks, address));
            prop_assert!(given.destinations.redirects.iter().all(|redirect| holds(&limit_blocks, redirect.to)));
        }
    }
}
