use serde_json::{Value, json};

use super::{Gateways, Ip};
use crate::cni::field::Field;
use crate::cni::{Code, Error};
use crate::plan::Family;

fn parse(value: &Value) -> Result<Ip, Error> {
    Ip::parse(&Field::new("ip", value))
}

fn overrides(value: &Value) -> Result<Ip, Error> {
    Ip::parse_overrides(&Field::new("ipConfig.overrides", value))
}

#[test]
fn the_seeds_examples() {
    let ip = parse(&json!({"addresses": ["192.168.1.99/24"]})).unwrap();
    assert_eq!(ip.addresses, ["192.168.1.99/24".parse().unwrap()]);
    assert_eq!((ip.gateways, ip.destinations.allowed), (Gateways::default(), None));
    let ip = parse(&json!({
        "addresses": ["192.168.3.10/24"],
        "gateway": "192.168.3.1",
        "destinations": ["10.1.2.3/32"],
    }))
    .unwrap();
    assert_eq!(ip.gateways.v4, Some([192, 168, 3, 1].into()));
    assert_eq!(ip.destinations.allowed.unwrap(), ["10.1.2.3/32".parse().unwrap()]);
}

#[test]
fn an_address_without_a_length_is_a_host_address() {
    let ip = parse(&json!({"addresses": ["192.0.2.9", "fd00::9"]})).unwrap();
    assert_eq!(ip.addresses, ["192.0.2.9/32".parse().unwrap(), "fd00::9/128".parse().unwrap()]);
}

#[test]
fn one_gateway_a_family() {
    let ip =
        parse(&json!({"addresses": ["192.0.2.9/24", "fd00::9/64"], "gateway": ["192.0.2.1", "fe80::1"]}))
            .unwrap();
    assert_eq!(ip.gateways.all().count(), 2);
    assert_eq!(ip.gateways.of(Family::V6), Some("fe80::1".parse().unwrap()));
    assert_eq!(
        parse(&json!({"addresses": ["192.0.2.9/24"], "gateway": ""})).unwrap().gateways,
        Gateways::default()
    );
}

#[test]
fn an_error_names_the_invalid_field() {
    let with = |key: &str, value: Value| json!({"addresses": ["192.0.2.9/24"], key: value});
    for (value, code, field) in [
        (json!([]), Code::Decode, "ip is"),
        (json!({}), Code::InvalidConfig, "ip.addresses is missing or empty"),
        (json!({"addresses": []}), Code::InvalidConfig, "ip.addresses"),
        (json!({"addresses": "192.0.2.9"}), Code::Decode, "ip.addresses is"),
        (json!({"addresses": ["192.0.2.9/24", 7]}), Code::Decode, "ip.addresses[1]"),
        (json!({"addresses": ["192.0.2.9/33"]}), Code::InvalidConfig, "ip.addresses[0]"),
        (json!({"addresses": ["192.0.2.9/0"]}), Code::InvalidConfig, "ip.addresses[0]"),
        (json!({"addresses": ["192.0.2.0/24"]}), Code::InvalidConfig, "ip.addresses[0]"),
        (json!({"addresses": ["192.0.2.255/24"]}), Code::InvalidConfig, "ip.addresses[0]"),
        (json!({"addresses": ["fd00::/64"]}), Code::InvalidConfig, "ip.addresses[0]"),
        (json!({"addresses": ["127.0.0.1/8"]}), Code::InvalidConfig, "ip.addresses[0]"),
        (json!({"addresses": ["ff02::1/64"]}), Code::InvalidConfig, "ip.addresses[0]"),
        (json!({"addresses": ["192.0.2.9/24", "192.0.2.9"]}), Code::InvalidConfig, "ip.addresses[1]"),
        (with("gatway", json!("192.0.2.1")), Code::UnsupportedField, "ip.gatway"),
        (with("gateway", json!(7)), Code::Decode, "ip.gateway"),
        (with("gateway", json!("192.0.2.1/24")), Code::InvalidConfig, "ip.gateway"),
        (with("gateway", json!("0.0.0.0")), Code::InvalidConfig, "ip.gateway"),
        (with("gateway", json!("192.0.2.9")), Code::InvalidConfig, "ip.gateway"),
        (with("gateway", json!("192.0.2.0")), Code::InvalidConfig, "ip.gateway is 192.0.2.0"),
        (with("gateway", json!("192.0.2.255")), Code::InvalidConfig, "ip.gateway is 192.0.2.255"),
        (with("gateway", json!("fd00::1")), Code::InvalidConfig, "ip.gateway is fd00::1"),
        (with("gateway", json!(["192.0.2.1", "192.0.2.2"])), Code::InvalidConfig, "ip.gateway[1]"),
        (with("destinations", json!(["80 tcp fd00::1"])), Code::InvalidConfig, "ip.destinations"),
        (with("destinations", json!(["80 tcp 192.0.2.9"])), Code::InvalidConfig, "ip.destinations"),
        (with("fallbackIP", json!("fd00::1")), Code::InvalidConfig, "ip.destinations"),
    ] {
        let error = parse(&value).unwrap_err();
        assert_eq!(error.code, code, "{value}: {error}");
        assert!(error.message.starts_with(field), "{value}: {error}");
    }
}

/// The maximum number of addresses of each family.
#[test]
fn the_number_of_addresses_is_limited() {
    let addresses = |v4: usize, v6: usize| {
        let v4 = (1..=v4).map(|number| format!("192.0.2.{number}/24"));
        let v6 = (1..=v6).map(|number| format!("fd00::{number}/64"));
        json!({"addresses": v4.chain(v6).collect::<Vec<_>>()})
    };
    assert!(parse(&addresses(48, 48)).is_ok());
    for (v4, v6) in [(49, 0), (0, 49), (48, 49)] {
        let error = parse(&addresses(v4, v6)).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains("at most 48"), "{error}");
    }
}

#[test]
fn both_addresses_of_a_31_and_127_are_host_addresses() {
    for address in ["192.0.2.0/31", "192.0.2.1/31", "fd00::/127", "192.0.2.0/32", "fd00::ffff/112"] {
        assert!(parse(&json!({"addresses": [address]})).is_ok(), "{address}");
    }
}

#[test]
fn overrides_may_omit_every_key_but_have_no_empty_list() {
    assert_eq!(overrides(&json!({})).unwrap(), Ip::default());
    assert!(overrides(&json!({"gateway": "192.0.2.1", "destinations": ["80 tcp fd00::1"]})).is_ok());
    for value in [json!({"addresses": []}), json!({"destinations": []})] {
        assert_eq!(overrides(&value).unwrap_err().code, Code::InvalidConfig);
    }
    assert_eq!(overrides(&json!({"mask": 1})).unwrap_err().code, Code::UnsupportedField);
}
