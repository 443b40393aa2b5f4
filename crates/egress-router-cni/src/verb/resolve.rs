//! Resolves addresses and master from configuration, ConfigMap and node, before the pod is read.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use common::netlink::link::{Link, name_of};
use common::netlink::socket::Socket;
use ipnet::IpNet;

use crate::cni::{Code, Error, ToCni};
use crate::config::interface::{InterfaceType, Kind, kind, mac_text, mode_name};
use crate::config::ip::{Ip, one_more};
use crate::config::network::Source;
use crate::config::settings::Platform;
use crate::observe::Host;
use crate::plan::{gateway, master};
use crate::{aws, kubernetes, observe};

use super::Context;

/// Time limit of reading a ConfigMap: ADD delays the pod's start, and the kubelet retries.
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
        Source::PodIp(pods) => pods.of_pod(args.pod_name.as_deref(), "podIP")?.clone(),
        Source::IpConfig(config) => {
            let namespace = config.namespace(args.pod_namespace.as_deref(), context.settings)?;
            let kubeconfig = &context.settings.kubeconfig;
            let data = kubernetes::config_map(kubeconfig, namespace, &config.name, CONFIG_MAP)?;
            config.resolve(&data, args.pod_name.as_deref())?
        }
        Source::Unread => {
            return Err(Error::invalid_config("exactly one of ip, podIP and ipConfig is needed"));
        }
    };
    requested(context, ip)
}

/// Requested addresses replace the configured ones, if the administrator allows it, and within the `overrides` of an `ipConfig`.
fn requested(context: &Context<'_>, mut ip: Ip) -> Result<Ip, Error> {
    let requested = &context.network.requested;
    if context.network.requested_by_arguments && context.network.was_made_before(&context.call.ifname) {
        return Ok(ip);
    }
    let configured = |asked: &IpNet| ip.addresses.iter().find(|own| own.addr() == asked.addr());
    if requested.iter().all(|asked| configured(asked).is_some()) {
        return Ok(ip);
    }
    let words = |nets: &[IpNet]| nets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if !context.settings.allow_requested_ips {
        return Err(Error::invalid_config(format!(
            "the pod requests {}: the network assigns {}, and allowRequestedIPs is not set in the node's settings",
            words(requested),
            words(&ip.addresses)
        )));
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
            return Err(Error::invalid_config(format!("the pod requests {address}: {wrong}")));
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
        Some(allowed) if !allowed.contains(&kind) => Err(Error::invalid_config(format!(
            "interfaceArgs.mode is {:?}: allowedModes in the node's settings has {}",
            mode_name(kind),
            allowed.iter().map(|kind| mode_name(*kind)).collect::<Vec<_>>().join(", ")
        ))),
        _ => Ok((interface_type, kind)),
    }
}

/// A master: its index on the node, and its own addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Master {
    /// Index on the node.
    pub index: u32,
    /// Index of the link that all ipvlans of this master share their mode on: the master, or the master of an ipvlan (ipvlan_link_new).
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
        Some(allowed) if !allowed.contains(&master.name) => Err(Error::invalid_config(format!(
            "the master is {:?}: allowedMasters in the node's settings has {}",
            master.name,
            allowed.join(", ")
        ))),
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
        Some(mtu) => Err(Error::invalid_config(format!(
            "interfaceArgs.mtu is {mtu}: its master {} has {}",
            master.name, master.mtu
        ))),
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
        Some(_) => Err(Error::invalid_config(format!(
            "interfaceArgs.master is {name:?}, which has no hardware address"
        ))),
        None => Err(Error::invalid_config(format!(
            "interfaceArgs.master is {name:?}, which this node does not have"
        ))),
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
        let mac = mac_text(mac);
        Error::invalid_config(format!("no interface of this node has the hardware address {mac}"))
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
            let addresses = socket.addresses_of(link.index).map_err(cannot)?;
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
mod tests;
