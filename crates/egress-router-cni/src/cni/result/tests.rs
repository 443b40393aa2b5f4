use serde_json::{Value, json};

use super::{Interface, Ip, Result, Route};
use crate::cni::{Code, Version};

fn ours() -> Result {
    Result {
        interfaces: vec![Interface {
            name: "net1".to_owned(),
            mac: Some("02:00:00:00:00:01".to_owned()),
            sandbox: Some("/run/netns/pod".to_owned()),
            mtu: Some(1500),
            ..Interface::default()
        }],
        ips: vec![
            Ip {
                address: "192.168.1.99/24".parse().unwrap(),
                gateway: Some("192.168.1.1".parse().unwrap()),
                interface: Some(0),
                ..Ip::default()
            },
            Ip { address: "fd00::99/64".parse().unwrap(), interface: Some(0), ..Ip::default() },
        ],
        routes: vec![Route {
            destination: "0.0.0.0/0".parse().unwrap(),
            gateway: Some("192.168.1.1".parse().unwrap()),
            rest: json!({"priority": 5}).as_object().unwrap().clone(),
        }],
        dns: None,
        ..Result::default()
    }
}

fn json_of(result: &Result, version: Version) -> Value {
    serde_json::from_str(&result.to_json(version)).unwrap()
}

#[test]
fn before_1_0_each_address_has_its_version() {
    for version in [Version::V0_3_0, Version::V0_3_1, Version::V0_4_0] {
        assert_eq!(
            json_of(&ours(), version),
            json!({
                "cniVersion": version.as_str(),
                "interfaces": [{"name": "net1", "mac": "02:00:00:00:00:01", "sandbox": "/run/netns/pod"}],
                "ips": [
                    {"version": "4", "address": "192.168.1.99/24", "gateway": "192.168.1.1", "interface": 0},
                    {"version": "6", "address": "fd00::99/64", "interface": 0},
                ],
                "routes": [{"dst": "0.0.0.0/0", "gw": "192.168.1.1"}],
            })
        );
    }
}

#[test]
fn from_1_0_on_it_has_none() {
    let json = json_of(&ours(), Version::V1_0_0);
    assert_eq!(json["ips"][1], json!({"address": "fd00::99/64", "interface": 0}));
    assert_eq!(json["interfaces"][0].get("mtu"), None);
    assert_eq!(json["routes"][0].get("priority"), None);
}

#[test]
fn from_1_1_on_interfaces_have_an_mtu_and_routes_a_priority() {
    let json = json_of(&ours(), Version::V1_1_0);
    assert_eq!(json["interfaces"][0]["mtu"], 1500);
    assert_eq!(json["routes"][0]["priority"], 5);
    assert_eq!(json["ips"][0].get("version"), None);
}

#[test]
fn empty_lists_are_omitted() {
    assert_eq!(json_of(&Result::default(), Version::V1_0_0), json!({"cniVersion": "1.0.0"}));
}

#[test]
fn every_version_reads_its_own_results() {
    for version in Version::ALL {
        let json = json_of(&ours(), version);
        let parsed = Result::parse(&json).unwrap();
        assert_eq!(json_of(&parsed, version), json);
    }
    assert_eq!(Result::parse(&json_of(&ours(), Version::V1_1_0)).unwrap(), ours());
}

#[test]
fn foreign_keys_are_returned_unchanged() {
    let previous = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "eth0", "mac": "", "sandbox": "/run/netns/pod", "mtu": 0, "pciID": "0000:00:1f.6", "vendor": [1]}],
        "ips": [{"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0, "pool": "a"}],
        "routes": [{"dst": "10.0.0.0/8", "gw": "", "mtu": 1400, "note": {"a": 1}}],
        "dns": {"nameservers": ["10.0.0.10"]},
        "chain": true,
    });
    assert_eq!(
        json_of(&Result::parse(&previous).unwrap(), Version::V1_1_0),
        json!({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": "eth0", "sandbox": "/run/netns/pod", "pciID": "0000:00:1f.6", "vendor": [1]}],
            "ips": [{"address": "10.1.0.5/16", "gateway": "10.1.0.1", "interface": 0, "pool": "a"}],
            "routes": [{"dst": "10.0.0.0/8", "mtu": 1400, "note": {"a": 1}}],
            "dns": {"nameservers": ["10.0.0.10"]},
            "chain": true,
        })
    );
    let older = json_of(&Result::parse(&previous).unwrap(), Version::V0_4_0);
    assert_eq!(older["interfaces"][0], json!({"name": "eth0", "sandbox": "/run/netns/pod", "vendor": [1]}));
    assert_eq!(older["routes"][0], json!({"dst": "10.0.0.0/8", "note": {"a": 1}}));
}

#[test]
fn an_error_names_the_invalid_field() {
    for (previous, code, field) in [
        (json!([]), Code::Decode, "prevResult"),
        (json!({"cniVersion": "0.2.0"}), Code::IncompatibleVersion, "prevResult"),
        (json!({"ips": {}}), Code::Decode, "prevResult.ips"),
        (json!({"ips": [{"address": "10.0.0.300/8"}]}), Code::InvalidConfig, "prevResult.ips[0].address"),
        (json!({"ips": [{}]}), Code::InvalidConfig, "prevResult.ips[0].address"),
        (
            json!({"ips": [{"address": "10.0.0.3/8", "interface": 0}]}),
            Code::InvalidConfig,
            "prevResult.ips[0].interface",
        ),
        (json!({"routes": [{"dst": "10.0.0.0/8", "gw": 7}]}), Code::Decode, "prevResult.routes[0].gw"),
        (json!({"interfaces": [{"name": 7}]}), Code::Decode, "prevResult.interfaces[0].name"),
    ] {
        let error = Result::parse(&previous).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.starts_with(field), "{error}");
    }
}

#[test]
fn an_index_of_minus_one_is_no_interface() {
    let previous = json!({"ips": [{"address": "10.0.0.3/8", "interface": -1}]});
    assert_eq!(Result::parse(&previous).unwrap().ips[0].interface, None);
}
