//! Nova as a witness: which servers there are, and whether it knows all of them.

use std::collections::BTreeSet;

use super::Unseen;
use crate::cloud::openstack::{Cloud, Server};
use crate::routes::snapshot::{Network, Servers};

/// Servers without any address that are looked at one by one before the list is called partial. A few without a network card
/// are somebody's wish; many are a fault.
const MOST_BARE: usize = 20;

/// States in which a server may have no address yet, or no more.
const WITHOUT_ADDRESS: [&str; 5] = ["BUILD", "ERROR", "DELETED", "SOFT_DELETED", "REBUILD"];

pub(super) async fn servers(cloud: &Cloud, networks: &[Network]) -> Result<Servers, Unseen> {
    let list = cloud.servers().await.map_err(Unseen::Nova)?;
    let names: BTreeSet<&str> = networks.iter().map(|network| network.name.as_str()).collect();
    let mut servers = Servers::default();
    let mut bare = Vec::new();
    for server in &list {
        let Some(addresses) = server.addresses.as_ref().filter(|_| server.status != "UNKNOWN") else {
            return Err(Unseen::Partial(format!("server {} has the status {}", server.id, server.status)));
        };
        servers.ids.insert(server.id.clone());
        if addresses.values().all(Vec::is_empty) && !WITHOUT_ADDRESS.contains(&server.status.as_str()) {
            bare.push(server);
        }
        for (_, addresses) in addresses.iter().filter(|(network, _)| names.contains(network.as_str())) {
            for address in addresses {
                let parsed = address.addr.parse();
                let parsed = parsed
                    .map_err(|_| Unseen::Unreadable(format!("that {:?} is an address", address.addr)))?;
                servers.addresses.insert(parsed, server.id.clone());
            }
        }
    }
    none_of_them_has_a_port(cloud, &bare).await?;
    Ok(servers)
}

/// Neutron is asked whether a server without addresses really has none.
async fn none_of_them_has_a_port(cloud: &Cloud, bare: &[&Server]) -> Result<(), Unseen> {
    if bare.len() > MOST_BARE {
        return Err(Unseen::Partial(format!(
            "{} servers that are not being built have no address",
            bare.len()
        )));
    }
    for server in bare {
        let ports = cloud.ports_of_device(&server.id).await.map_err(|cause| Unseen::Inventory {
            what: format!("the ports of server {}", server.id),
            cause,
        })?;
        if !ports.is_empty() {
            return Err(Unseen::Partial(format!(
                "server {} is {} without an address, and has a port",
                server.id, server.status
            )));
        }
    }
    Ok(())
}
