//! Who has which address on the networks of a router: Neutron's ports, which are the authority.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::ObserveError;
use crate::cloud::openstack::{Cloud, Port, is_id};
use crate::routes::snapshot::{Holder, Network, Snapshot};

/// The router's own ports on networks that no project has: they are shown to administrators only.
const NOBODY_S: [&str; 2] = ["network:router_gateway", "network:router_ha_interface"];

/// Ports of Zun's containers, whose IDs are none of Nova's.
const ZUN_S: &str = "compute:kuryr";

/// What Neutron makes for itself has no port security, and no addresses but its own: DHCP, routers, health monitors.
const NEUTRON_S: [&str; 3] = ["network:", "neutron:", "ovn-lb-hm:"];

/// Fills in the networks, the addresses on them and who has them.
pub(super) async fn fill(cloud: &Cloud, snapshot: &mut Snapshot) -> Result<(), ObserveError> {
    let project = cloud.project_id().await.map_err(ObserveError::router)?;
    let own = cloud.ports_of_device(&snapshot.router).await;
    let own = own.map_err(|cause| failed("the ports of the router", cause))?;
    // A network may have other subnets beside those that the router has a leg in: Neutron takes no next hop on one of them.
    let mut networks = BTreeMap::<String, BTreeSet<String>>::new();
    for port in &own {
        if NOBODY_S.contains(&port.device_owner.as_str()) {
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
            record_removal(snapshot, port, &project)?;
        }
        // An administrator may have attached the router to a network that is shown to nobody else.
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
        // A subnet may belong to another project than its network, and is then not shown to us.
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

fn record_removal(snapshot: &mut Snapshot, port: &Port, project: &str) -> Result<(), ObserveError> {
    // What is neither the network's own (DHCP, router, load balancer's agent) nor nobody's is a machine.
    if !port.device_id.is_empty() && !port.device_owner.starts_with("network:") {
        snapshot.machines += 1;
    }
    // Nova's list is of our own project: of another one's server it says nothing, and of no container of Zun's.
    let ours =
        port.owner() == project && port.device_owner.starts_with("compute:") && port.device_owner != ZUN_S;
    // Anybody may write anything there: what cannot be an ID can be asked of nobody, so its port simply lives.
    let server = Some(&port.device_id).filter(|id| ours && is_id(id)).cloned();
    if !port.port_security_enabled && !NEUTRON_S.iter().any(|kind| port.device_owner.starts_with(kind)) {
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
    // Nova's ports and Ironic's: all of one machine have its ID.
    let told = ["compute:", "baremetal:"].iter().any(|kind| port.device_owner.starts_with(kind));
    let machine = Some(&port.device_id).filter(|id| told && !id.is_empty()).cloned();
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
