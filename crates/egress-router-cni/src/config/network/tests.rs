use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Network, Source};
use crate::cni::args::Args;
use crate::cni::{Call, Code, Command, Error, Version};
use crate::config::destinations::Protocol;
use crate::config::interface::InterfaceType;

fn call(command: Command) -> Call {
    Call {
        command,
        container_id: "c0ffee".to_owned(),
        netns: Some("/run/netns/pod".into()),
        ifname: "net1".to_owned(),
        args: Args::default(),
        netns_override: false,
    }
}

fn parse(value: &Value) -> Result<Network, Error> {
    Network::parse(value.to_string().as_bytes(), &call(Command::Add))
}

fn minimal() -> Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "egress-router-1",
        "type": "egress-router",
        "ip": {"addresses": ["192.168.1.99/24"]},
    })
}

fn with(key: &str, value: Value) -> Value {
    let mut config = minimal();
    config[key] = value;
    config
}

#[test]
fn the_minimal_configuration_is_valid() {
    let network = parse(&minimal()).unwrap();
    assert_eq!((network.version, network.name.as_str()), (Version::V1_0_0, "egress-router-1"));
    assert!(matches!(network.source, Source::Ip(_)));
    assert_eq!((network.interface_type, network.master, network.mtu), (None, None, None));
}

#[test]
fn the_seeds_second_example() {
    let mut config = json!({
        "cniVersion": "0.4.0",
        "name": "egress-router-2",
        "type": "egress-router",
        "interfaceType": "ipvlan",
        "interfaceArgs": {"master": "eth1"},
        "podIP": {
            "db-router": {"addresses": ["192.168.3.10/24"], "gateway": "192.168.3.1", "destinations": ["10.1.2.3/32"]},
            "metrics-router": {"addresses": ["192.168.3.11/24"], "gateway": "192.168.3.1"},
            "alpha-*": {"addresses": ["192.168.3.12/24"], "gateway": "192.168.3.1"},
        },
    });
    let network = parse(&config).unwrap();
    assert_eq!(network.interface_type, Some(InterfaceType::Ipvlan));
    assert_eq!(network.master.as_deref(), Some("eth1"));
    let Source::PodIp(pods) = network.source else { unreachable!() };
    assert_eq!(pods.of_pod(Some("alpha-7"), "podIP").unwrap().addresses[0].to_string(), "192.168.3.12/24");
    // Its third form.
    config.as_object_mut().unwrap().remove("podIP");
    config["ipConfig"] = json!({"name": "addresses", "overrides": {"gateway": "192.168.3.1"}});
    assert!(matches!(parse(&config).unwrap().source, Source::IpConfig(_)));
}

#[test]
fn the_json_of_cluster_network_operator_is_valid() {
    let stdin = br#"{ "cniVersion": "0.4.0", "type": "egress-router", "name": "egress-router-cni-nad", "ip": { "addresses": [ "192.168.3.10/24" ], "destinations": [ "80 UDP 10.100.3.0","8080 SCTP 203.0.113.26 80","8443 TCP 203.0.113.27 443" ], "fallbackIP": "203.0.113.28", "gateway": "192.168.3.1" }, "log_file": "/tmp/egress-router-log", "log_level": "debug" }"#;
    let network = Network::parse(stdin, &call(Command::Add)).unwrap();
    let Source::Ip(ip) = network.source else { unreachable!() };
    assert_eq!(ip.destinations.redirects.len(), 3);
    assert_eq!(ip.destinations.redirects[0].protocol, Protocol::Udp);
    assert_eq!(ip.destinations.fallback_v4, Some([203, 0, 113, 28].into()));
    assert_eq!(network.log_file.unwrap().to_str(), Some("/tmp/egress-router-log"));
    assert_eq!(network.log_level.as_deref(), Some("debug"));
}

#[test]
fn exactly_one_source() {
    let sources = [
        ("ip", json!({"addresses": ["192.0.2.9/24"]})),
        ("podIP", json!({"*": {"addresses": ["192.0.2.9/24"]}})),
        ("ipConfig", json!({"name": "a"})),
    ];
    for set in 0..8u32 {
        let mut config = minimal();
        config.as_object_mut().unwrap().remove("ip");
        for (index, (key, value)) in sources.iter().enumerate() {
            if set & (1 << index) != 0 {
                config[*key] = value.clone();
            }
        }
        match parse(&config) {
            Ok(_) => assert_eq!(set.count_ones(), 1),
            Err(error) => {
                assert_ne!(set.count_ones(), 1, "{error}");
                assert_eq!(error.code, Code::InvalidConfig);
                assert!(error.message.contains("exactly one"));
            }
        }
    }
}

#[test]
fn arguments_of_the_interface() {
    for mtu in [json!(1400), json!("1400")] {
        let network =
            parse(&with("interfaceArgs", json!({"mtu": mtu, "name": "egress1", "master": "bond0.7"})))
                .unwrap();
        assert_eq!((network.mtu, network.chained_name.as_deref()), (Some(1400), Some("egress1")));
        assert_eq!(network.master.as_deref(), Some("bond0.7"));
    }
    // Empty values of a template, and Go's zero of a missing number.
    for mtu in [json!(""), json!(0), json!("0")] {
        let network = parse(&with("interfaceArgs", json!({"mtu": mtu, "mode": "", "master": ""}))).unwrap();
        assert_eq!((network.mtu, network.mode, network.master), (None, None, None));
    }
    for (args, code) in [
        (json!({"mtu": 67}), Code::InvalidConfig),
        (json!({"mtu": 65536}), Code::InvalidConfig),
        (json!({"mtu": "big"}), Code::Decode),
        (json!({"master": "a/b"}), Code::InvalidConfig),
        (json!({"name": "wan%d"}), Code::InvalidConfig),
        (json!({"vlan": 7}), Code::UnsupportedField),
        (json!([]), Code::Decode),
    ] {
        assert_eq!(parse(&with("interfaceArgs", args.clone())).unwrap_err().code, code, "{args}");
    }
}

#[test]
fn the_mode_must_be_one_of_the_type() {
    let mut config = with("interfaceType", json!("macvlan"));
    config["interfaceArgs"] = json!({"mode": "l3"});
    assert_eq!(parse(&config).unwrap_err().code, Code::InvalidConfig);
    // The platform's default is unknown here.
    config["interfaceType"] = json!("");
    assert_eq!(parse(&config).unwrap().mode.as_deref(), Some("l3"));
    let error = parse(&with("interfaceType", json!("sriov"))).unwrap_err();
    assert!(error.message.contains("macvlan, ipvlan, aws-elastic-ip"), "{error}");
}

#[test]
fn requests_by_capability_precede_those_by_argument() {
    let mut config = minimal();
    config["runtimeConfig"] =
        json!({"mac": "02:00:00:00:00:01", "ips": ["192.0.2.9/24"], "portMappings": []});
    config["args"] = json!({"cni": {"mac": "02:00:00:00:00:02", "ips": ["192.0.2.10"], "labels": []}});
    let mut legacy = call(Command::Add);
    legacy.args.mac = Some("02:00:00:00:00:03".to_owned());
    legacy.args.ip = Some("192.0.2.11/24,fd00::1/64".to_owned());
    for (key, last, ips) in [("", 1, 1), ("runtimeConfig", 2, 1), ("args", 3, 2)] {
        config.as_object_mut().unwrap().remove(key);
        let network = Network::parse(config.to_string().as_bytes(), &legacy).unwrap();
        assert_eq!(network.mac, Some([2, 0, 0, 0, 0, last]));
        assert_eq!(network.requested.len(), ips);
    }
    for wrong in [
        "01:00:00:00:00:01",
        "00:00:00:00:00:00",
        "2:0:0:0:0:1",
        "02:00:00:00:00",
        "02-00-00-00-00-01",
        "+2:00:00:00:00:01",
    ] {
        let error = parse(&with("runtimeConfig", json!({"mac": wrong}))).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{wrong}");
        legacy.args.mac = Some(wrong.to_owned());
        let error = Network::parse(minimal().to_string().as_bytes(), &legacy).unwrap_err();
        assert_eq!(error.code, Code::InvalidEnvironment, "{wrong}");
    }
    assert_eq!(parse(&with("runtimeConfig", json!({"ips": ["x"]}))).unwrap_err().code, Code::InvalidConfig);
}

#[test]
fn an_error_names_the_invalid_field() {
    for (key, value, code, field) in [
        ("cniVersion", json!("0.2.0"), Code::IncompatibleVersion, "cniVersion"),
        ("cniVersion", json!(null), Code::IncompatibleVersion, "cniVersion"),
        ("cniVersion", json!(1), Code::Decode, "cniVersion"),
        ("name", json!(""), Code::InvalidConfig, "name"),
        ("name", json!("-a"), Code::InvalidConfig, "name"),
        ("name", json!("a/b"), Code::InvalidConfig, "name"),
        ("type", json!(""), Code::InvalidConfig, "type"),
        ("ip", json!({"addresses": ["x"]}), Code::InvalidConfig, "ip.addresses[0]"),
        ("clusterNetworks", json!(["0.0.0.0/0"]), Code::InvalidConfig, "clusterNetworks[0]"),
        ("serviceNetworks", json!("10.0.0.0/8"), Code::Decode, "serviceNetworks"),
        ("log_file", json!([]), Code::Decode, "log_file"),
        ("log_level", json!(7), Code::Decode, "log_level"),
        ("dns", json!([]), Code::Decode, "dns"),
        ("prevResult", json!({"ips": [7]}), Code::Decode, "prevResult.ips[0]"),
        ("runtimeConfig", json!([]), Code::Decode, "runtimeConfig"),
    ] {
        let error = parse(&with(key, value.clone())).unwrap_err();
        assert_eq!(error.code, code, "{key} {value}: {error}");
        assert!(error.message.starts_with(field), "{error}");
    }
    for stdin in [&b""[..], b"[]", b"{", b"\xff"] {
        assert_eq!(Network::parse(stdin, &call(Command::Add)).unwrap_err().code, Code::Decode);
    }
}

#[test]
fn unknown_keys_of_runtimes_are_ignored() {
    let mut config = minimal();
    config["capabilities"] = json!({"mac": true});
    config["cni.dev/anything"] = json!(1);
    config["ipam"] = json!({});
    assert!(parse(&config).is_ok());
}

#[test]
fn cluster_and_service_networks_are_one_list() {
    let mut config = with("clusterNetworks", json!(["10.128.0.0/14"]));
    config["serviceNetworks"] = json!(["172.30.0.0/16", "fd02::/112"]);
    assert_eq!(parse(&config).unwrap().cluster_networks.len(), 3);
}

#[test]
fn check_needs_the_result_of_add() {
    let stdin = minimal().to_string();
    let error = Network::parse(stdin.as_bytes(), &call(Command::Check)).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.starts_with("prevResult"));
    let stdin = with("prevResult", json!({})).to_string();
    assert!(Network::parse(stdin.as_bytes(), &call(Command::Check)).is_ok());
}

#[test]
fn del_accepts_a_configuration_that_add_refused() {
    let config = json!({
        "cniVersion": "0.4.0",
        "name": "a",
        "ip": {"addresses": 7},
        "podIP": [],
        "interfaceType": "sriov",
        "interfaceArgs": {"mtu": {}, "name": "egress7"},
        "prevResult": {"ips": "x"},
        "log_file": 7,
        "runtimeConfig": {"mac": "x"},
    });
    assert!(parse(&config).is_err());
    let network = Network::parse(config.to_string().as_bytes(), &call(Command::Del)).unwrap();
    assert_eq!(network.source, Source::Unread);
    assert_eq!(network.chained_name.as_deref(), Some("egress7"));
    assert_eq!((network.previous, network.log_file), (None, None));
    for name in [json!(null), json!(7), json!("a/b")] {
        let stdin = json!({"cniVersion": "0.4.0", "name": name}).to_string();
        assert!(Network::parse(stdin.as_bytes(), &call(Command::Del)).is_ok(), "{name}");
        assert!(Network::parse(stdin.as_bytes(), &call(Command::Gc)).is_err(), "{name}");
    }
}

#[test]
fn gc_reads_both_names_and_refuses_a_partly_valid_list() {
    let gc =
        |key: &str, value: Value| Network::parse(with(key, value).to_string().as_bytes(), &call(Command::Gc));
    let list = json!([{"containerID": "c0ffee", "ifname": "net1"}]);
    let desired = vec![("c0ffee".to_owned(), "net1".to_owned())];
    assert_eq!(
        gc("cni.dev/valid-attachments", list.clone()).unwrap().valid_attachments,
        Some(desired.clone())
    );
    assert_eq!(gc("cni.dev/attachments", list).unwrap().valid_attachments, Some(desired));
    assert_eq!(gc("cni.dev/attachments", json!([])).unwrap().valid_attachments, Some(Vec::new()));
    // Go's nil slice.
    for key in ["cni.dev/valid-attachments", "cni.dev/attachments"] {
        assert_eq!(gc(key, Value::Null).unwrap().valid_attachments, Some(Vec::new()));
    }
    let mut both = with("cni.dev/valid-attachments", Value::Null);
    both["cni.dev/attachments"] = json!([{"containerID": "c0ffee", "ifname": "net1"}]);
    let both = Network::parse(both.to_string().as_bytes(), &call(Command::Gc)).unwrap();
    assert_eq!(both.valid_attachments.map(|valid| valid.len()), Some(1), "what is named is not ended");
    assert_eq!(gc("other", json!([])).unwrap().valid_attachments, None);
    for wrong in
        [json!({}), json!([7]), json!([{"containerID": "a"}]), json!([{"containerID": "a", "ifname": ""}])]
    {
        assert!(gc("cni.dev/valid-attachments", wrong).is_err());
    }
}

/// Any JSON with known keys.
fn anything() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[0-9a-f.:/ ]{0,20}".prop_map(Value::from),
        Just(json!("192.0.2.9/24")),
        Just(json!("80 tcp 192.0.2.1")),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let keys = prop_oneof![
            Just("addresses".to_owned()),
            Just("gateway".to_owned()),
            Just("destinations".to_owned()),
            Just("fallbackIP".to_owned()),
            Just("name".to_owned()),
            Just("overrides".to_owned()),
            Just("mtu".to_owned()),
            "[a-z*]{0,4}",
        ];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map(keys, inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(stdin in any::<Vec<u8>>()) {
        let _ = Network::parse(&stdin, &call(Command::Add));
    }

    #[test]
    fn no_json_causes_a_panic(
        key in prop_oneof![
            Just("ip"), Just("podIP"), Just("ipConfig"), Just("interfaceArgs"), Just("prevResult"), Just("runtimeConfig"),
            Just("args"), Just("cni.dev/valid-attachments"), Just("clusterNetworks"), Just("dns"),
        ],
        value in anything(),
    ) {
        let stdin = with(key, value).to_string();
        for command in Command::ALL {
            let _ = Network::parse(stdin.as_bytes(), &call(command));
        }
    }
}
