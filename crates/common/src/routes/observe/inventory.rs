//! The addresses on the networks of a router and the ports that have them, according to Neutron, which is the authority.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::ObserveError;
use crate::cloud::openstack::{Cloud, Port, is_id};
use crate::routes::snapshot::{Holder, Network, Snapshot};

/// The router's own ports on networks without a project: only administrators see them.
const HIDDEN_OWNERS: [&str; 2] = ["network:router_gateway", "network:router_ha_interface"];

/// Ports of Zun's containers, whose IDs are none of Nova's.
const ZUN_OWNER: &str = "compute:kuryr";

/// Ports that Neutron creates for itself (DHCP, routers, health monitors) have no port security and use only their own addresses.
const NEUTRON_OWNERS: [&str; 3] = ["network:", "neutron:", "ovn-lb-hm:"];

/// Adds the networks, the addresses on them and the ports that have them.
pub(super) async fn fill(cloud: &Cloud, snapshot: &mut Snapshot) -> Result<(), ObserveError> {
    let project = cloud.project_id().await.map_err(ObserveError::router)?;
    let own = cloud.ports_of_device(&snapshot.router).await;
    let own = own.map_err(|cause| failed("the ports of the router", cause))?;
    // A network may have subnets that the router is not attached to. Neutron accepts no next hop on them.
    let mut networks = BTreeMap::<String, BTreeSet<String>>::new();
    for port in &own {
        if HIDDEN_OWNERS.contains(&port.device_owner.as_str()) {
            snapshot.hidden = true;
            continue;
        }
        let attached = networks.entry(port.network_id.clone()).or_default();
        for fixed in &port.fixed_ips {
            attached.insert(fixed.subnet_id.clone());
            snapshot.own.insert(address(&fixed.ip_address)?);
        }
    }
    for (id, attached) in networks {
        let (network, subnets, ports) = futures::try_join!(
            async {
                match cloud.network(&id).await {
                    Ok(network) => Ok(Some(network)),
                    Err(cause) if cause.is_not_found() => Ok(None),
                    Err(cause) => Err(failed(&format!("network {id}"), cause)),
                }
            },
            async {
                let subnets = cloud.subnets_of_network(&id).await;
                subnets.map_err(|cause| failed(&format!("the subnets of network {id}"), cause))
            },
            async {
                let ports = cloud.ports_of_network(&id).await;
                ports.map_err(|cause| failed(&format!("the ports of network {id}"), cause))
            },
        )?;
        for port in &ports {
            record_port(snapshot, port, &project)?;
        }
        // An administrator may have attached the router to a network that only administrators see.
        let Some(network) = network else {
            snapshot.hidden = true;
            continue;
        };
        let mut connected = Vec::new();
        for subnet in &subnets {
            let range = net(&subnet.cidr)?;
            if attached.contains(&subnet.id) {
                connected.push(range);
            }
        }
        // A subnet may belong to another project than its network; then it is not visible to us.
        snapshot.hidden |= connected.len() < attached.len();
        snapshot.networks.push(Network {
            foreign: network.owner() != project,
            id: network.id,
            name: network.name,
            subnets: connected,
        });
    }
    Ok(())
}

fn record_port(snapshot: &mut Snapshot, port: &Port, project: &str) -> Result<(), ObserveError> {
    // A port with a device that is not the network's own (DHCP, router, load balancer's agent) is a machine.
    if !port.device_id.is_empty() && !port.device_owner.starts_with("network:") {
        snapshot.machines += 1;
    }
    // Nova lists the servers of our own project only, and no containers of Zun.
    let ours = port.owner() == project
        && port.device_owner.starts_with("compute:")
        && port.device_owner != ZUN_OWNER;
    // Any client can write any text there. A text that cannot be an ID cannot be looked up, so its port counts as existing.
    let server = Some(&port.device_id).filter(|id| ours && is_id(id)).cloned();
    if !port.port_security_enabled && !NEUTRON_OWNERS.iter().any(|kind| port.device_owner.starts_with(kind)) {
        snapshot.open.push(holder(port, server.clone()));
    }
    for fixed in &port.fixed_ips {
        hold(snapshot, address(&fixed.ip_address)?, port, server.clone());
    }
    for pair in &port.allowed_address_pairs {
        let range = net(&pair.ip_address)?;
        if range.prefix_len() == range.max_prefix_len() {
            hold(snapshot, range.addr(), port, server.clone());
        } else {
            snapshot.pairs.push((range.trunc(), holder(port, server.clone())));
        }
    }
    Ok(())
}

fn hold(snapshot: &mut Snapshot, address: IpAddr, port: &Port, server: Option<String>) {
    snapshot.ports.entry(address).or_default().push(holder(port, server));
}

fn holder(port: &Port, server: Option<String>) -> Holder {
    // Ports of Nova and Ironic: all ports of one machine have its ID.
    let has_machine_id = ["compute:", "baremetal:"].iter().any(|kind| port.device_owner.starts_with(kind));
    let machine = Some(&port.device_id).filter(|id| has_machine_id && !id.is_empty()).cloned();
    Holder { port: port.id.clone(), network: port.network_id.clone(), server, machine }
}

fn failed(what: &str, cause: crate::cloud::openstack::Error) -> ObserveError {
    ObserveError::Inventory { what: what.to_owned(), cause }
}

fn address(text: &str) -> Result<IpAddr, ObserveError> {
    text.parse().map_err(|_| ObserveError::Unreadable(format!("that {text:?} is an address")))
}

/// A network, or an address as the network that holds just it.
fn net(text: &str) -> Result<IpNet, ObserveError> {
    text.parse()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| ObserveError::Unreadable(format!("that {text:?} is a network")))
}
