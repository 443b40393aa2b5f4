//! STATUS: whether an ADD could succeed.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use common::netlink::socket::{Protocol, Socket, Sockets};
use ipnet::IpNet;

use crate::aws;
use crate::cni::{Code, Error, ToCni};
use crate::config::destinations::Destinations;
use crate::config::interface::{InterfaceType, Kind};
use crate::config::ip::Ip;
use crate::config::network::Source;
use crate::firewall::{Firewall, Forwards};
use crate::names;
use crate::nftables::{self, Ruleset};
use crate::plan::Family;
use crate::record::{attachment, elastic_ip};
use crate::sys::Namespace;

use super::{Context, resolve};

/// Timeout of the metadata service, which responds immediately. A runtime calls STATUS every few seconds.
const METADATA: Duration = Duration::from_secs(2);

/// Checks that the kernel has the nf_tables features and the link kind of this configuration, that records can be written, that the master
/// exists if the configuration determines it, and, if needed, that the kubeconfig can be read and the metadata service responds.
///
/// # Errors
/// Code 50 with everything that is missing.
pub fn status(context: &Context<'_>) -> Result<(), Error> {
    let (interface_type, kind) = resolve::interface(context)?;
    let mut errors = Vec::new();
    match Sockets::open() {
        Ok(mut sockets) => {
            let there = nftables::generation(&mut sockets.netfilter);
            // Without nf_tables, its features are not checked.
            let firewall = example(&context.network.source);
            let frames = Firewall { interface: "lo".to_owned(), ..firewall.clone() }.frames();
            match there.and_then(|()| takes(&firewall.ruleset(), frames.as_ref())) {
                Ok(true) => {}
                Ok(false) => context.log.verbose(format_args!("{}", names::NO_FRAME_FILTER)),
                Err(error) => errors.push(error),
            }
            errors.extend(knows(&mut sockets.route, kind).err());
        }
        // A kernel without nf_tables may have no netfilter sockets.
        Err(error) => {
            errors.push(error.to_cni("the kernel has no nf_tables, or netlink is not allowed"));
            if let Ok(mut route) = Socket::open(Protocol::Route) {
                errors.extend(knows(&mut route, kind).err());
            }
        }
    }
    errors.extend(attachment::folder(&context.settings.run_directory).ready().err());
    errors.extend(master(context, interface_type, kind).err());
    if matches!(context.network.source, Source::IpConfig(_)) {
        errors.extend(kubeconfig(context).err());
    }
    if interface_type == InterfaceType::AwsElasticIp {
        errors.extend(elastic_ip::folder(&context.settings.state_directory).ready().err());
        let ready = |cloud: &aws::Cloud<'_>| aws::ready(cloud, Instant::now() + METADATA);
        errors.extend(aws::over_network(context.settings, ready).err());
    }
    Error::first(errors).map_err(|error| Error { code: Code::NotAvailable, ..error })
}

/// A firewall with one rule of each kind that an ADD of this configuration needs. The required features do not depend on the length of lists.
/// For an `ipConfig`, its overrides are used.
fn example(source: &Source) -> Firewall {
    let ips: Vec<&Ip> = match source {
        Source::Ip(ip) => vec![ip],
        Source::PodIp(pods) => pods.0.values().collect(),
        Source::IpConfig(config) => config.overrides.iter().collect(),
        Source::Unread => Vec::new(),
    };
    let of_each_family = |nets: &mut dyn Iterator<Item = &IpNet>| {
        let mut nets: Vec<IpNet> = nets.copied().collect();
        nets.sort_by_key(Family::of_net);
        nets.dedup_by_key(|net| Family::of_net(net));
        nets
    };
    let addresses = of_each_family(&mut ips.iter().flat_map(|ip| &ip.addresses));
    let mut addresses: Vec<IpAddr> = addresses.iter().map(IpNet::addr).collect();
    if addresses.is_empty() {
        addresses.push(Ipv4Addr::LOCALHOST.into());
    }
    let all = || ips.iter().map(|ip| &ip.destinations);
    let listed = all().any(|destinations| destinations.allowed.is_some());
    let allowed =
        of_each_family(&mut all().filter_map(|destinations| destinations.allowed.as_ref()).flatten());
    let mut redirects: Vec<_> = all().flat_map(|destinations| &destinations.redirects).copied().collect();
    redirects.sort_by_key(|redirect| (redirect.to.is_ipv6(), redirect.protocol.number()));
    redirects.dedup_by_key(|redirect| (redirect.to.is_ipv6(), redirect.protocol));
    Firewall {
        interface: "status".to_owned(),
        primary: Family::ALL.map(|family| (family, "eth0".to_owned())).into(),
        mark: names::mark(1),
        networks: addresses.iter().copied().map(IpNet::from).collect(),
        addresses,
        destinations: Destinations {
            allowed: listed.then_some(allowed),
            redirects,
            fallback_v4: all().find_map(|destinations| destinations.fallback_v4),
            fallback_v6: all().find_map(|destinations| destinations.fallback_v6),
        },
        forwards: Forwards { v4: true, v6: true },
    }
}

/// Checks that the kernel accepts such a table, in a temporary network namespace: on the node, even an aborted batch would enable connection
/// tracking for a moment. Returns whether it also accepts `frames`.
fn takes(ruleset: &Ruleset, frames: Option<&Ruleset>) -> Result<bool, Error> {
    let cannot = |error: std::io::Error| {
        let message = "cannot create a network namespace to test the nf_tables rules in";
        Error::new(Code::NotAvailable, message).details(error)
    };
    let mut socket = {
        let here = Namespace::current().map_err(cannot)?;
        Namespace::new().and_then(|new| new.enter()).map_err(cannot)?;
        let socket = Socket::open(Protocol::Netfilter);
        here.enter().map_err(cannot)?;
        socket.map_err(|error| error.to_cni("cannot open an nf_tables netlink socket"))?
    };
    nftables::install(&mut socket, ruleset).map_err(|error| {
        let message = format!(
            "the kernel rejects the nf_tables rules that this network needs (modules nft_ct, nft_nat, nft_reject_inet; for redirects \
             nft_fib_inet too): {}",
            error.message
        );
        Error { message, ..error }
    })?;
    match frames {
        Some(frames) => {
            nftables::install_if_supported(&mut socket, frames).map(|installed| installed.is_some())
        }
        None => Ok(true),
    }
}

fn knows(socket: &mut Socket, kind: Kind) -> Result<(), Error> {
    let name = common::netlink::link::name_of(&kind);
    match socket.knows(name) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::new(
            Code::NotAvailable,
            format!(
                "the kernel does not support {name}: load the module {name}, or use another interfaceType"
            ),
        )),
        Err(error) => Err(error.to_cni(format!("cannot find out whether the kernel supports {name}"))),
    }
}

/// The master of the pods' interfaces: the named one, or the inferred one if all pods have the same addresses.
fn master(context: &Context<'_>, interface_type: InterfaceType, kind: Kind) -> Result<(), Error> {
    let mut socket =
        Socket::open(Protocol::Route).map_err(|error| error.to_cni("cannot open a netlink socket"))?;
    match (interface_type, &context.network.source) {
        (InterfaceType::AwsElasticIp, _) => {
            resolve::master_mac(context, &mut socket)?;
            resolve::named_master(context, &mut socket, kind)
        }
        (_, Source::Ip(ip)) => resolve::master(context, &mut socket, &mut ip.clone(), kind).map(drop),
        _ => resolve::named_master(context, &mut socket, kind),
    }
}

fn kubeconfig(context: &Context<'_>) -> Result<(), Error> {
    let path = &context.settings.kubeconfig;
    std::fs::File::open(path).map(drop).map_err(|error| {
        let message = format!("ipConfig is used, and the kubeconfig {} cannot be read", path.display());
        Error::new(Code::NotAvailable, message).details(error)
    })
}

#[cfg(test)]
mod tests {
    use common::netlink::nftables::Rule;
    use common::netlink::nftables::expression::Reject;
    use serde_json::json;

    use super::*;
    use crate::cni::Call;
    use crate::config::network::Network;
    use crate::sys::isolated::isolated;

    fn source(key: &str, value: serde_json::Value) -> Source {
        let get = |name: &str| (name == "CNI_COMMAND").then(|| "STATUS".into());
        let mut config = json!({"cniVersion": "1.1.0", "name": "n", "type": "egress-router"});
        config[key] = value;
        Network::parse(config.to_string().as_bytes(), &Call::from_env(get).unwrap().unwrap()).unwrap().source
    }

    #[test]
    fn the_tested_rules_have_every_kind_of_expression() {
        let pods = json!({
            "a": {"addresses": ["192.0.2.9/24", "192.0.2.8/24"], "destinations": ["80 tcp 203.0.113.9", "81 tcp 203.0.113.9"]},
            "b": {"addresses": ["2001:db8::9/64"], "destinations": ["203.0.113.0/25", "2001:db8:1::/48", "2001:db8:2::/48"]},
            "c": {"addresses": ["192.0.2.7/24"], "destinations": ["53 udp 203.0.113.9", "203.0.113.10"]},
        });
        let Firewall { addresses, destinations, .. } = example(&source("podIP", pods));
        assert_eq!(addresses, [IpAddr::from([192, 0, 2, 9]), "2001:db8::9".parse().unwrap()]);
        let listed = ["203.0.113.0/25", "2001:db8:1::/48"].map(|net| net.parse().unwrap());
        assert_eq!(destinations.allowed.as_deref(), Some(listed.as_slice()));
        assert_eq!(destinations.redirects.iter().map(|one| one.port).collect::<Vec<_>>(), [80, 53]);
        assert_eq!(destinations.fallback_v4, Some(Ipv4Addr::new(203, 0, 113, 10)));
        let plain = example(&source("ipConfig", json!({"name": "a"})));
        assert_eq!((plain.addresses.len(), plain.destinations), (1, Destinations::default()));
        let nothing = json!({"addresses": ["192.0.2.9/24"], "destinations": []});
        assert_eq!(example(&source("ip", nothing)).destinations.allowed, Some(Vec::new()));
    }

    #[test]
    fn rules_are_tested_in_a_temporary_namespace() {
        isolated(|| {
            let here = Namespace::current().unwrap();
            let everything = json!({"addresses": ["192.0.2.9/24", "2001:db8::9/64"],
                "destinations": ["203.0.113.0/24", "2001:db8:1::/48", "80 sctp 203.0.113.9 81", "203.0.113.10", "2001:db8::1"]});
            // This kernel has the egress hook (Linux 5.16).
            let listed = example(&source("ip", everything.clone()));
            let frames = Firewall { interface: "lo".into(), ..listed.clone() }.frames().unwrap();
            assert!(takes(&listed.ruleset(), Some(&frames)).unwrap());
            // An expression that no kernel has in this family simulates a missing feature.
            let mut unsupported = frames;
            unsupported.chains[0].1.push(Rule::new().comment("unsupported").reject(Reject::Prohibited));
            assert!(!takes(&listed.ruleset(), Some(&unsupported)).unwrap());
            for ip in [everything, json!({"addresses": ["2001:db8::9/64"]})] {
                let mut ruleset = example(&source("ip", ip)).ruleset();
                assert!(takes(&ruleset, None).unwrap());
                // A rule that no kernel accepts simulates a missing feature.
                ruleset.chains[1].1.push(Rule::new().comment("lost").jump("nowhere"));
                let error = takes(&ruleset, None).unwrap_err();
                assert!(
                    error.message.contains("nft_fib_inet") && error.message.contains("(lost)"),
                    "{error}"
                );
            }
            assert!(here.same(&Namespace::current().unwrap()).unwrap());
            let mut socket = Socket::open(Protocol::Netfilter).unwrap();
            assert_eq!(nftables::tables(&mut socket, "").unwrap(), []);
        });
    }
}
