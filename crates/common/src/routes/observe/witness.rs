//! Nova as a witness: which servers there are, and whether it knows all of them.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use futures::stream;

use super::{Unseen, concerns};
use crate::cloud::openstack::{Cloud, Server};
use crate::routes::plan::judge::servers_at;
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::{Network, Servers, Snapshot};

/// Servers without any address that are looked at one by one before the list is called partial. A few without a network card
/// are somebody's wish; many are a fault.
const MOST_BARE: usize = 20;

/// Servers that are asked for at a time, each for itself: they are few but where a whole node pool is gone.
const AT_A_TIME: usize = 8;

/// States in which a server may have no address yet, or no more.
const WITHOUT_ADDRESS: [&str; 5] = ["BUILD", "ERROR", "DELETED", "SOFT_DELETED", "REBUILD"];

/// Nova's word on the servers around a router; None of a Nova that is too old to say which cells did not answer: then the ports
/// alone decide, as in a cloud without Nova.
pub(super) async fn testify(
    cloud: &Cloud,
    policy: &Policy,
    snapshot: &Snapshot,
) -> Result<Option<Servers>, Unseen> {
    let list = match cloud.servers().await {
        Ok(list) => list,
        Err(error) if error.is_too_old() => {
            tracing::info!(%error, "Nova is no witness: it is older than microversion 2.69, so every port counts as alive");
            return Ok(None);
        }
        Err(error) => return Err(Unseen::Nova(error)),
    };
    let mut servers = read(cloud, &list, &snapshot.networks).await?;
    let missing = missing(cloud, policy, snapshot, &snapshot.routes, &servers).await?;
    servers.ids.extend(missing);
    Ok(Some(servers))
}

/// Servers that Nova's list does not have and that are there when they are asked for: one that was deleted softly can be restored,
/// one came after the list, one is of a cell that does not answer. Asked for are those only whose ports have the next hop of one
/// of these routes, or may use it.
pub(in crate::routes) async fn missing(
    cloud: &Cloud,
    policy: &Policy,
    snapshot: &Snapshot,
    routes: &[Route],
    servers: &Servers,
) -> Result<Vec<String>, Unseen> {
    let meanings = routes.iter().filter(|route| concerns(policy, route)).filter_map(Route::meaning);
    let ids = meanings.flat_map(|meaning| servers_at(policy, snapshot, meaning.nexthop));
    let suspects: BTreeSet<&String> = ids.filter(|id| !servers.ids.contains(*id)).collect();
    let asked = suspects.into_iter().map(async |id| Ok(cloud.server(id).await?.map(|_| id.clone())));
    let found: Vec<Result<Option<String>, _>> =
        stream::iter(asked).buffer_unordered(AT_A_TIME).collect().await;
    let found: Result<Vec<Option<String>>, _> = found.into_iter().collect();
    Ok(found.map_err(Unseen::Nova)?.into_iter().flatten().collect())
}

async fn read(cloud: &Cloud, list: &[Server], networks: &[Network]) -> Result<Servers, Unseen> {
    let names: BTreeSet<&str> = networks.iter().map(|network| network.name.as_str()).collect();
    let mut servers = Servers::default();
    let mut bare = Vec::new();
    for server in list {
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
    none_of_them_has_an_address(cloud, &bare).await?;
    Ok(servers)
}

/// Neutron is asked whether a server without addresses really has none. A port on a network without subnets has none either.
async fn none_of_them_has_an_address(cloud: &Cloud, bare: &[&Server]) -> Result<(), Unseen> {
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
        if ports.iter().any(|port| !port.fixed_ips.is_empty()) {
            return Err(Unseen::Partial(format!(
                "server {} is {} without an address, and has a port with one",
                server.id, server.status
            )));
        }
    }
    Ok(())
}
