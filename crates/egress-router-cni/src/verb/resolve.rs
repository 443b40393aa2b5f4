//! Resolves addresses and master from configuration, ConfigMap and node, before the pod is read.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use common::netlink::address::Address;
use common::netlink::link::{Link, name_of};
use common::netlink::socket::Socket;
use ipnet::IpNet;

use crate::cni::{Code, Error, ToCni};
use crate::config::interface::{InterfaceType, Kind, kind, mode_name};
use crate::config::ip::{Ip, one_more};
use crate::config::network::Source;
use crate::config::settings::Platform;
use crate::observe::Host;
use crate::plan::{gateway, master};
use crate::{aws, kubernetes, observe};

use super::Context;

/// Timeout of the API server. Runtimes wait for minutes.
const CONFIG_MAP: Duration = Duration::from_secs(5);

/// The pod's `ip`: of `ip`, of its entry in `podIP`, or of the ConfigMap.
///
/// # Errors
/// Code 4: the pod's name or namespace is needed but unknown. Code 7: there is no entry for this pod, a request is not allowed, or values
/// contradict each other; and as [`kubernetes::config_map`] and [`crate::config::ip_config::IpConfig::resolve`].
pub fn ip(context: &Context<'_>) -> Result<Ip, Error> {
    let args = &context.call.args;
    let ip = match &context.network.source {
        Source::Ip(ip) => ip.clone(),
        Source::PodIp(pods) => {
            let pod = args.pod_name.as_deref().ok_or_else(|| {
                Error::new(Code::InvalidEnvironment, "CNI_ARGS has no K8S_POD_NAME, which podIP needs")
            })?;
            pods.find(pod).cloned().ok_or_else(|| {
                let keys: Vec<_> = pods.0.keys().map(String::as_str).collect();
                let message = format!("podIP has no entry for the pod {pod:?}: it has {}", keys.join(", "));
                Error::new(Code::InvalidConfig, message)
            })?
        }
        Source::IpConfig(config) => {
            let namespace = config.namespace(args.pod_namespace.as_deref(), context.settings)?;
            let kubeconfig = &context.settings.kubeconfig;
            let data = kubernetes::config_map(kubeconfig, namespace, &config.name, CONFIG_MAP)?;
            config.resolve(&data, args.pod_name.as_deref())?
        }
        Source::Unread => {
            return Err(Error::new(Code::InvalidConfig, "exactly one of ip, podIP and ipConfig is needed"));
        }
    };
    requested(context, ip)
}

/// Requested addresses replace the configured ones, if the administrator allows it, and within the `overrides` of an `ipConfig`.
fn requested(context: &Context<'_>, mut ip: Ip) -> Result<Ip, Error> {
    let requested = &context.network.requested;
    if context.network.by_arguments.ips && context.network.was_made_before(&context.call.ifname) {
        return Ok(ip);
    }
    let configured = |asked: &IpNet| ip.addresses.iter().find(|own| own.addr() == asked.addr());
    if requested.iter().all(|asked| configured(asked).is_some()) {
        return Ok(ip);
    }
    let words = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !context.settings.allow_requested_ips {
        return Err(Error::new(
            Code::InvalidConfig,
            format!(
                "the pod requests {}: the network assigns {}, and allowRequestedIPs is not set in the node's settings",
                words(requested),
                words(&ip.addresses)
            ),
        ));
    }
    // A requested address without a prefix length has the network of the configured one.
    let placed = requested.iter().map(|asked| {
        let network = ip.addresses.iter().find(|own| own.contains(&asked.addr()));
        let alone = asked.prefix_len() == asked.max_prefix_len();
        network
            .filter(|_| alone)
            .and_then(|own| IpNet::new(asked.addr(), own.prefix_len()).ok())
            .unwrap_or(*asked)
    });
    let mut addresses: Vec<IpNet> = Vec::new();
    for address in placed {
        if let Some(wrong) = one_more(&addresses, &address) {
            return Err(Error::new(Code::InvalidConfig, format!("the pod requests {address}: {wrong}")));
        }
        addresses.push(address);
    }
    ip.addresses = addresses;
    // A request has the same limits as a ConfigMap.
    if let Source::IpConfig(config) = &context.network.source {
        ip = config.limit(ip, "the requested ip")?;
    }
    // Gateways and redirects may now be without an address of their family.
    ip.coherent("ip")?;
    Ok(ip)
}

/// The interface type, from the configuration or otherwise the platform.
///
/// # Errors
/// Code 7: the type does not have this mode.
pub fn interface(context: &Context<'_>) -> Result<(InterfaceType, Kind), Error> {
    let interface_type = context.network.interface_type.unwrap_or_else(|| {
        match aws::platform(context.settings, Path::new("/sys")) {
            Platform::Aws => InterfaceType::AwsElasticIp,
            Platform::Auto | Platform::None => InterfaceType::Macvlan,
        }
    });
    let kind = kind(interface_type, context.network.mode.as_deref())?;
    match &context.settings.allowed_modes {
        Some(allowed) if !allowed.contains(&kind) => Err(Error::new(
            Code::InvalidConfig,
            format!(
                "interfaceArgs.mode is {:?}: allowedModes in the node's settings has {}",
                mode_name(kind),
                allowed.iter().map(|kind| mode_name(*kind)).collect::<Vec<_>>().join(", ")
            ),
        )),
        _ => Ok((interface_type, kind)),
    }
}

/// A master: its index on the node, and its own addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Master {
    /// Index on the node.
    pub index: u32,
    /// Index of the link whose ipvlans share a mode: its own, or its master's if it is an ipvlan itself (ipvlan_link_new).
    pub port: u32,
    /// Addresses without prefix length.
    pub addresses: Vec<IpAddr>,
}

/// The master, and `ip` with its gateways. If nothing must be inferred, only the master is read.
///
/// # Errors
/// Code 7: a value cannot be inferred, or the master does not support the interface. Code 100: the kernel refuses.
pub fn master(context: &Context<'_>, socket: &mut Socket, ip: &mut Ip, kind: Kind) -> Result<Master, Error> {
    let given = context.network.master.as_deref();
    let lacking =
        crate::plan::needs_gateway(kind) && !gateway::missing(&ip.addresses, &ip.gateways).is_empty();
    let host = match given {
        Some(name) if !lacking => alone(socket, name)?,
        _ => observe::host(socket)?,
    };
    let link = match given {
        Some(name) => named(socket, &host, name)?,
        None => master::infer(&host, &ip.addresses)?,
    };
    usable(context, link, kind)?;
    let found = of(&host, link.index);
    master::not_the_nodes(&ip.addresses, &found.addresses)?;
    ip.gateways = gateway::infer(&host, link.index, &ip.addresses, ip.gateways, kind)?;
    context
        .log
        .debug(format_args!("master {} (index {}), gateways {:?}", link.name, link.index, ip.gateways));
    Ok(found)
}

/// The interface of `interfaceArgs.master`, which may be an alternative name (ip-link(8), altname).
fn named<'a>(socket: &mut Socket, host: &'a Host, name: &str) -> Result<&'a Link, Error> {
    if !host.links.iter().any(|link| link.name == name)
        && let Ok(Some(meant)) = socket.link_by_name(name)
        && let Some(link) = host.links.iter().find(|link| link.index == meant.index && !link.loopback)
    {
        return Ok(link);
    }
    master::named(host, name)
}

/// Checks that `interfaceArgs.master`, if given, exists and supports an interface of `kind`.
///
/// # Errors
/// Code 7: it does not. Code 100: the kernel refuses.
pub fn named_master(context: &Context<'_>, socket: &mut Socket, kind: Kind) -> Result<(), Error> {
    let Some(name) = context.network.master.as_deref() else { return Ok(()) };
    let host = alone(socket, name)?;
    usable(context, named(socket, &host, name)?, kind)
}

/// Checks that pods may have an interface of `kind` on this master, whether it is named or inferred.
fn usable(context: &Context<'_>, master: &Link, kind: Kind) -> Result<(), Error> {
    match &context.settings.allowed_masters {
        Some(allowed) if !allowed.contains(&master.name) => Err(Error::new(
            Code::InvalidConfig,
            format!(
                "the master is {:?}: allowedMasters in the node's settings has {}",
                master.name,
                allowed.join(", ")
            ),
        )),
        _ => carries(master, kind, context.network.mtu),
    }
}

/// Checks that the master is up and has a carrier, so that the pod's packets are not lost, and that the MTU is at most the master's: the
/// kernel refuses such a macvlan without a message, and creates such an ipvlan, which drops longer packets.
fn carries(master: &Link, kind: Kind, mtu: Option<u32>) -> Result<(), Error> {
    let down = match (master.up, master.carrier) {
        (true, true) => None,
        (true, false) => Some("has no carrier"),
        (false, _) => Some("is down"),
    };
    if let Some(down) = down {
        return Err(Error::new(Code::TryAgain, format!("the master {} {down}", master.name)));
    }
    // On a link of the same kind, the kernel uses that one's master (macvlan_common_newlink, ipvlan_link_new).
    let on = master.kind != name_of(&kind);
    match mtu.filter(|mtu| on && *mtu > master.mtu) {
        Some(mtu) => Err(Error::new(
            Code::InvalidConfig,
            format!("interfaceArgs.mtu is {mtu}: its master {} has {}", master.name, master.mtu),
        )),
        None => Ok(()),
    }
}

/// The hardware address of `interfaceArgs.master`, if given.
///
/// # Errors
/// Code 7: the node has no such interface. Code 100: the kernel refuses.
pub fn master_mac(context: &Context<'_>, socket: &mut Socket) -> Result<Option<[u8; 6]>, Error> {
    let Some(name) = context.network.master.as_deref() else { return Ok(None) };
    let link =
        socket.link_by_name(name).map_err(|error| error.to_cni(format!("cannot read interface {name}")))?;
    match link {
        Some(link) if link.mac.is_some() => Ok(link.mac),
        Some(_) => Err(Error::new(
            Code::InvalidConfig,
            format!("interfaceArgs.master is {name:?}, which has no hardware address"),
        )),
        None => Err(Error::new(
            Code::InvalidConfig,
            format!("interfaceArgs.master is {name:?}, which this node does not have"),
        )),
    }
}

/// The device of a network interface of the instance: `interfaceArgs.master`, or the device with its hardware address.
///
/// # Errors
/// Code 7: the node has none, or it does not support the interface. Code 100: the kernel refuses.
pub fn master_of_aws(
    context: &Context<'_>,
    socket: &mut Socket,
    mac: [u8; 6],
    kind: Kind,
) -> Result<Master, Error> {
    if let Some(name) = context.network.master.as_deref() {
        let host = alone(socket, name)?;
        let link = named(socket, &host, name)?;
        usable(context, link, kind)?;
        return Ok(of(&host, link.index));
    }
    let host = observe::host(socket)?;
    // Links on top of a device may have the same hardware address. A port of a bridge has no address and does not support ipvlan, so the
    // bridge is used.
    let mut links: Vec<_> =
        host.links.iter().filter(|link| link.mac == Some(mac) && !link.loopback).collect();
    let bare = |link: &Link| master::nets(&host, link.index).all(|net| is_link_local(net.addr()));
    links.sort_by_key(|link| (bare(link), !link.kind.is_empty(), link.index));
    let link = links.first().ok_or_else(|| {
        let mac = aws::metadata::mac_text(mac);
        Error::new(Code::InvalidConfig, format!("no interface of this node has the hardware address {mac}"))
    })?;
    usable(context, link, kind)?;
    Ok(of(&host, link.index))
}

fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// The state of the node, limited to one interface.
fn alone(socket: &mut Socket, name: &str) -> Result<Host, Error> {
    let cannot =
        |error: common::netlink::Error| error.to_cni(format!("cannot read the interface {name} of the node"));
    match socket.link_by_name(name).map_err(cannot)? {
        Some(link) => {
            // A node may have thousands of other addresses, such as those of all Services.
            let asked = socket.dump(&Address::of(link.index), |_, payload| Address::decode(payload));
            let mut addresses = asked.map_err(cannot)?;
            addresses.retain(|address| address.link == link.index);
            Ok(Host { links: vec![link], addresses, routes: Vec::new() })
        }
        // The error lists all candidates.
        None => observe::host(socket),
    }
}

fn of(host: &Host, index: u32) -> Master {
    let stacked = host.links.iter().find(|link| link.index == index && link.kind == "ipvlan");
    let port = stacked.and_then(|link| link.parent).unwrap_or(index);
    Master { index, port, addresses: master::nets(host, index).map(|net| net.addr()).collect() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cni::Call;
    use crate::config::interface::{IpvlanMode, MacvlanMode};
    use crate::config::network::Network;
    use crate::config::settings::Settings;
    use crate::log::Log;

    fn master(kind: &str) -> Link {
        Link {
            index: 2,
            name: "eth1".into(),
            kind: kind.into(),
            mode: None,
            mac: None,
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            parent: None,
            alias: None,
        }
    }

    fn resolved(source: Value, args: &str, settings: &Settings) -> Result<Vec<String>, Error> {
        let variables = [
            ("CNI_COMMAND", "ADD"),
            ("CNI_CONTAINERID", "c"),
            ("CNI_NETNS", "/run/netns/none"),
            ("CNI_IFNAME", "net1"),
            ("CNI_ARGS", args),
        ];
        let get =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into());
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
        assert!(
            error.message.contains("10.0.0.7/24") && error.message.contains("allowRequestedIPs"),
            "{error}"
        );
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
}
