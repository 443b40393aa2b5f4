use serde_json::{Value, json};

use super::*;
use crate::cni::Call;
use crate::config::interface::{IpvlanMode, MacvlanMode};
use crate::config::network::Network;
use crate::config::settings::Settings;
use crate::log::Log;
use crate::plan::simulated::link;

fn master(kind: &str) -> Link {
    link(2, "eth1", kind)
}

fn resolved(source: Value, args: &str, settings: &Settings) -> Result<Vec<String>, Error> {
    let variables = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c"),
        ("CNI_NETNS", "/run/netns/none"),
        ("CNI_IFNAME", "net1"),
        ("CNI_ARGS", args),
    ];
    let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
    let call = Call::from_env(get)?.unwrap();
    let mut network = source;
    for (key, value) in [("cniVersion", "1.0.0"), ("name", "n"), ("type", "egress-router")] {
        network[key] = value.into();
    }
    let network = Network::parse(network.to_string().as_bytes(), &call)?;
    let log = Log::open(None, Some("panic"));
    let ip = ip(&Context { call: &call, network: &network, settings, log: &log })?;
    Ok(ip.addresses.iter().map(ToString::to_string).collect())
}

#[test]
fn the_pods_name_decides() {
    let pods =
        json!({"podIP": {"db": {"addresses": ["10.0.0.1/24"]}, "web-*": {"addresses": ["10.0.0.2/24"]}}});
    let settings = Settings::default();
    let of = |args: &str| resolved(pods.clone(), args, &settings);
    assert_eq!(of("K8S_POD_NAME=db"), Ok(vec!["10.0.0.1/24".into()]));
    assert_eq!(of("K8S_POD_NAME=web-7"), Ok(vec!["10.0.0.2/24".into()]));
    let none = of("K8S_POD_NAME=other").unwrap_err();
    assert_eq!(
        (none.code, none.message.as_str()),
        (Code::InvalidConfig, "podIP has no entry for the pod \"other\": it has db, web-*")
    );
    let unnamed = of("").unwrap_err();
    assert_eq!(unnamed.code, Code::InvalidEnvironment);
    assert!(unnamed.message.contains("K8S_POD_NAME"), "{unnamed}");
}

#[test]
fn requested_addresses_need_the_administrators_permission() {
    let asks = |ips: Value| json!({"ip": {"addresses": ["10.0.0.1/24"]}, "runtimeConfig": {"ips": ips}});
    let refused = Settings::default();
    let allowed = Settings { allow_requested_ips: true, ..Settings::default() };
    let error = resolved(asks(json!(["10.0.0.7/24"])), "", &refused).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("10.0.0.7/24") && error.message.contains("allowRequestedIPs"), "{error}");
    // A pod may request an address that it gets in any case.
    assert_eq!(resolved(asks(json!(["10.0.0.1"])), "", &refused), Ok(vec!["10.0.0.1/24".into()]));
    assert_eq!(resolved(asks(json!(["10.0.0.7/28"])), "", &allowed), Ok(vec!["10.0.0.7/28".into()]));
    assert_eq!(resolved(asks(json!(["10.0.0.7"])), "", &allowed), Ok(vec!["10.0.0.7/24".into()]));
    assert_eq!(resolved(asks(json!(["10.9.0.7"])), "", &allowed), Ok(vec!["10.9.0.7/32".into()]));
    // Requests of addresses that no pod can have are refused: the network's own addresses, prefix length 0, one
    // address twice.
    for ips in [
        json!(["10.0.0.0/24"]),
        json!(["10.0.0.255"]),
        json!(["10.0.0.7/0"]),
        json!(["10.0.0.7", "10.0.0.7/24"]),
    ] {
        let error = resolved(asks(ips.clone()), "", &allowed).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig, "{ips}");
        assert!(error.message.starts_with("the pod requests 10.0.0."), "{error}");
    }
    let mut without = asks(json!(["fd00::7/64"]));
    without["ip"]["gateway"] = "10.0.0.254".into();
    let error = resolved(without, "", &allowed).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("10.0.0.254"), "{error}");
}

#[test]
fn requested_addresses_stay_within_the_overrides_of_the_config_map() {
    let resolved = |ips: Value, interface_type: &str| {
        let get = |name: &str| match name {
            "CNI_COMMAND" => Some("ADD".into()),
            "CNI_CONTAINERID" => Some("c".into()),
            "CNI_NETNS" => Some("/run/netns/none".into()),
            "CNI_IFNAME" => Some("net1".into()),
            _ => None,
        };
        let call = Call::from_env(get).unwrap().unwrap();
        let network = json!({
            "cniVersion": "1.0.0", "name": "n", "type": "egress-router", "interfaceType": interface_type,
            "ipConfig": {"name": "ips", "overrides": {
                "addresses": ["10.0.0.1/24", "10.0.0.2", "fd00::2/64"],
                "gateway": ["10.0.0.254", "fd00::fe"],
                "destinations": ["203.0.113.0/24"],
            }},
            "runtimeConfig": {"ips": ips},
        });
        let network = Network::parse(network.to_string().as_bytes(), &call).unwrap();
        let settings = Settings { allow_requested_ips: true, ..Settings::default() };
        let log = Log::open(None, Some("panic"));
        let context = Context { call: &call, network: &network, settings: &settings, log: &log };
        let Source::IpConfig(config) = &network.source else { panic!("an ipConfig") };
        let data = [("ip".to_owned(), r#"{"addresses": ["10.0.0.1/24"]}"#.to_owned())].into();
        requested(&context, config.resolve(&data, None).unwrap())
    };
    for interface_type in ["macvlan", "aws-elastic-ip"] {
        for other in [
            json!(["10.0.0.7"]),
            json!(["10.0.0.1/24", "10.0.0.7/24"]),
            json!(["10.0.0.1/16", "10.0.0.2/16"]),
        ] {
            let error = resolved(other.clone(), interface_type).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig, "{other}");
            assert!(error.message.contains("ipConfig.overrides.addresses allows"), "{other}: {error}");
        }
        let ip = resolved(json!(["10.0.0.2"]), interface_type).unwrap();
        assert_eq!(ip.addresses, ["10.0.0.2/24".parse::<IpNet>().unwrap()]);
        let allowed = Some(vec!["203.0.113.0/24".parse::<IpNet>().unwrap()]);
        assert_eq!(ip.destinations.allowed, allowed, "the other limits still apply");
        // An address of another family than the ConfigMap's gets the gateway that the overrides fix.
        let ip = resolved(json!(["fd00::2"]), interface_type).unwrap();
        assert_eq!(ip.addresses, ["fd00::2/64".parse::<IpNet>().unwrap()]);
        assert_eq!((ip.gateways.v4, ip.gateways.v6), (None, Some("fd00::fe".parse().unwrap())));
    }
}

#[test]
fn the_mtu_is_at_most_the_masters() {
    let (macvlan, ipvlan) = (Kind::Macvlan(MacvlanMode::Bridge), Kind::Ipvlan(IpvlanMode::L2));
    for kind in [macvlan, ipvlan] {
        for well in [None, Some(1400), Some(1500)] {
            assert_eq!(carries(&master(""), kind, well), Ok(()), "{kind:?} {well:?}");
        }
        let error = carries(&master(""), kind, Some(9000)).unwrap_err();
        let message = "interfaceArgs.mtu is 9000: its master eth1 has 1500";
        assert_eq!((error.code, error.message.as_str()), (Code::InvalidConfig, message));
    }
    assert!(carries(&master("macvlan"), ipvlan, Some(9000)).is_err());
    assert_eq!(carries(&master("macvlan"), macvlan, Some(9000)), Ok(()), "its master's counts");
}

/// Otherwise a tenant's network could take the node's management interface.
#[test]
fn masters_and_modes_that_the_administrator_does_not_allow_are_refused() {
    let call = Call::from_env(|name| (name == "CNI_COMMAND").then(|| "STATUS".into())).unwrap().unwrap();
    let config = json!({
        "cniVersion": "1.1.0", "name": "n", "type": "egress-router", "interfaceType": "macvlan",
        "interfaceArgs": {"mode": "passthru"}, "ip": {"addresses": ["10.0.0.1/24"]},
    });
    let network = Network::parse(config.to_string().as_bytes(), &call).unwrap();
    let log = Log::open(None, Some("panic"));
    let (bridge, passthru) = (Kind::Macvlan(MacvlanMode::Bridge), Kind::Macvlan(MacvlanMode::Passthru));
    for (masters, modes, master_allowed, mode_allowed) in [
        (None, None, true, true),
        (Some(vec!["lan0".to_owned(), "eth1".to_owned()]), Some(vec![bridge, passthru]), true, true),
        (Some(vec!["lan0".to_owned()]), Some(vec![bridge]), false, false),
        (Some(Vec::new()), Some(Vec::new()), false, false),
    ] {
        let settings = Settings {
            platform: Platform::None,
            allowed_masters: masters,
            allowed_modes: modes,
            ..Settings::default()
        };
        let context = Context { call: &call, network: &network, settings: &settings, log: &log };
        let refused = usable(&context, &master(""), passthru).err();
        assert_eq!(refused.is_none(), master_allowed, "{refused:?}");
        assert!(refused.is_none_or(|error| error.message.contains("\"eth1\": allowedMasters")));
        let refused = interface(&context).err();
        assert_eq!(refused.is_none(), mode_allowed, "{refused:?}");
        assert!(refused.is_none_or(|error| error.message.contains("\"passthru\": allowedModes")));
    }
}

/// Its pods would start, and each of their packets would be lost.
#[test]
fn a_master_that_is_down_is_refused_by_name() {
    let kind = Kind::Macvlan(MacvlanMode::Bridge);
    let master = |up, carrier| Link { up, carrier, ..master("") };
    assert_eq!(carries(&master(true, true), kind, None), Ok(()));
    for (up, carrier, words) in [(false, false, "is down"), (true, false, "has no carrier")] {
        let error = carries(&master(up, carrier), kind, None).unwrap_err();
        assert_eq!((error.code, error.message), (Code::TryAgain, format!("the master eth1 {words}")));
    }
}

#[test]
fn a_config_map_of_another_namespace_needs_the_administrators_permission() {
    let config = json!({"ipConfig": {"name": "ips", "namespace": "infra"}});
    let error = resolved(config, "K8S_POD_NAMESPACE=tenant", &Settings::default()).unwrap_err();
    assert_eq!(error.code, Code::InvalidConfig);
    assert!(error.message.contains("infra") && error.message.contains("configMapNamespaces"), "{error}");
}
