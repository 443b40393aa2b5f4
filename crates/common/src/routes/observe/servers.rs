//! The servers in Nova as a further source, and whether its list is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use futures::StreamExt as _;
use futures::stream;

use super::{ObserveError, concerns};
use crate::cloud::openstack::{Cloud, Error, Port, Server, Service};
use crate::routes::plan::classify::servers_at;
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::{Network, Servers, Snapshot};

/// Servers without any address that are checked one by one before the list counts as incomplete. A few servers without a network
/// card are intended; many are a fault.
const MOST_BARE: usize = 20;

/// Concurrent requests for single servers. They are few, unless a whole node pool is deleted.
const AT_A_TIME: usize = 8;

/// States in which a server may have no address.
const WITHOUT_ADDRESS: [&str; 5] = ["BUILD", "ERROR", "DELETED", "SOFT_DELETED", "REBUILD"];

/// The servers on the router's networks according to Nova. None in a cloud without Nova, or with one that is too old to report
/// which cells are down: then only the ports count.
pub(super) async fn list_servers(
    cloud: &Cloud,
    policy: &Policy,
    snapshot: &Snapshot,
) -> Result<Option<Servers>, ObserveError> {
    let list = match list(cloud).await {
        Ok(Some(list)) => list,
        Ok(None) => return Ok(None),
        Err(error) if error.is_too_old() => {
            tracing::info!(%error, "Nova is not used as a source: it does not support microversion 2.69, so every port counts as existing");
            return Ok(None);
        }
        Err(error) => return Err(ObserveError::Nova(error)),
    };
    let mut servers = read(cloud, &list, &snapshot.networks).await?;
    let missing = missing(cloud, policy, snapshot, &snapshot.routes, &servers).await?;
    servers.ids.extend(missing);
    let elsewhere = namesakes(cloud, policy, snapshot, &servers).await?;
    for (address, server) in elsewhere {
        if let Some(there) = servers.addresses.get_mut(&address) {
            there.remove(&server);
        }
    }
    servers.addresses.retain(|_, there| !there.is_empty());
    servers.others = cloud.shares_neutron().await.map_err(ObserveError::Nova)?;
    Ok(Some(servers))
}

async fn list(cloud: &Cloud) -> Result<Option<Vec<Server>>, Error> {
    match cloud.has_service(Service::Compute).await? {
        true => cloud.servers().await.map(Some),
        false => Ok(None),
    }
}

/// Servers that Nova's list does not have and that a single request finds: a soft-deleted one that can be restored, one that was
/// created after the list, one in a cell that is down. Only servers are requested whose ports have the next hop of one of these
/// routes, or may use it.
pub(in crate::routes) async fn missing(
    cloud: &Cloud,
    policy: &Policy,
    snapshot: &Snapshot,
    routes: &[Route],
    servers: &Servers,
) -> Result<Vec<String>, ObserveError> {
    let meanings = routes.iter().filter(|route| concerns(policy, route)).filter_map(Route::meaning);
    let ids = meanings.flat_map(|meaning| servers_at(policy, snapshot, meaning.nexthop));
    let suspects: BTreeSet<String> = ids.filter(|id| !servers.ids.contains(*id)).cloned().collect();
    // Owned: the compiler cannot prove that a future of a borrowed ID is Send.
    let asked = suspects.into_iter().map(async |id| Ok(cloud.server(&id).await?.map(|_| id)));
    let found: Vec<Result<Option<String>, _>> =
        stream::iter(asked).buffer_unordered(AT_A_TIME).collect().await;
    let found: Result<Vec<Option<String>>, _> = found.into_iter().collect();
    Ok(found.map_err(ObserveError::Nova)?.into_iter().flatten().collect())
}

/// Next hops, and the servers that have them on a network of another router. Nova reports networks by name only, and clusters that
/// are created from one template have the same network name and the same addresses. Neutron lists the ports of each such server,
/// once, and only for next hops without an existing port. A server whose port is not visible keeps its address.
async fn namesakes(
    cloud: &Cloud,
    policy: &Policy,
    snapshot: &Snapshot,
    servers: &Servers,
) -> Result<Vec<(IpAddr, String)>, ObserveError> {
    let meanings = snapshot.routes.iter().filter(|route| concerns(policy, route)).filter_map(Route::meaning);
    let mut claims = BTreeMap::<String, BTreeSet<IpAddr>>::new();
    for nexthop in meanings.map(|meaning| meaning.nexthop) {
        if snapshot.ports.get(&nexthop).into_iter().flatten().any(|port| servers.know(port)) {
            continue;
        }
        for server in servers.addresses.get(&nexthop).into_iter().flatten() {
            claims.entry(server.clone()).or_default().insert(nexthop);
        }
    }
    let asked = claims.into_iter().map(async |(server, addresses)| {
        ports_of(cloud, &server).await.map(|ports| (server, addresses, ports))
    });
    let responses: Vec<Result<_, ObserveError>> =
        stream::iter(asked).buffer_unordered(AT_A_TIME).collect().await;
    let ours: BTreeSet<&String> = snapshot.networks.iter().map(|network| &network.id).collect();
    let mut elsewhere = Vec::new();
    for response in responses {
        let (server, addresses, ports) = response?;
        for address in addresses {
            let has = |port: &&Port| port.fixed_ips.iter().any(|one| one.ip_address.parse() == Ok(address));
            let there: Vec<&Port> = ports.iter().filter(has).collect();
            if !there.is_empty() && !there.iter().any(|port| ours.contains(&port.network_id)) {
                elsewhere.push((address, server.clone()));
            }
        }
    }
    Ok(elsewhere)
}

async fn ports_of(cloud: &Cloud, server: &str) -> Result<Vec<Port>, ObserveError> {
    let ports = cloud.ports_of_device(server).await;
    ports.map_err(|cause| ObserveError::Inventory { what: format!("the ports of server {server}"), cause })
}

async fn read(cloud: &Cloud, list: &[Server], networks: &[Network]) -> Result<Servers, ObserveError> {
    let names: BTreeSet<&str> = networks.iter().map(|network| network.name.as_str()).collect();
    let mut servers = Servers::default();
    let mut bare = Vec::new();
    for server in list {
        let Some(addresses) = server.addresses.as_ref().filter(|_| server.status != "UNKNOWN") else {
            return Err(ObserveError::Partial(format!(
                "server {} has the status {}",
                server.id, server.status
            )));
        };
        servers.ids.insert(server.id.clone());
        if addresses.values().all(Vec::is_empty) && !WITHOUT_ADDRESS.contains(&server.status.as_str()) {
            bare.push(server);
        }
        for (_, addresses) in addresses.iter().filter(|(network, _)| names.contains(network.as_str())) {
            for address in addresses {
                let parsed = address.addr.parse();
                let parsed = parsed.map_err(|_| {
                    ObserveError::Unreadable(format!("that {:?} is an address", address.addr))
                })?;
                servers.addresses.entry(parsed).or_default().insert(server.id.clone());
            }
        }
    }
    none_of_them_has_an_address(cloud, &bare).await?;
    Ok(servers)
}

/// Checks in Neutron whether a server without addresses in Nova has none. A port on a network without subnets has none either.
async fn none_of_them_has_an_address(cloud: &Cloud, bare: &[&Server]) -> Result<(), ObserveError> {
    if bare.len() > MOST_BARE {
        return Err(ObserveError::Partial(format!(
            "{} servers that are not being built have no address",
            bare.len()
        )));
    }
    for server in bare {
        let ports = ports_of(cloud, &server.id).await?;
        if ports.iter().any(|port| !port.fixed_ips.is_empty()) {
            return Err(ObserveError::Partial(format!(
                "server {} is {} without an address, and has a port with one",
                server.id, server.status
            )));
        }
    }
    Ok(())
}
