//! The default route of the network. It can be repeated: the network is read again before each change and compared with what the
//! decision was made on. A route cannot be changed or doubled (its destination must be free), so it is deleted and added;
//! stopped in between, the next reconciliation finds no route and adds it.

use std::net::Ipv4Addr;

use common::cloud::hcloud::{Code, Error as CloudError, Hcloud, Network, Route};

use crate::error::Error;

/// Hetzner's own router address in every network; no route may point there (API reference, network routes).
const RESERVED_GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 1);

/// Points the default route to `to`.
///
/// # Errors
/// [`Error::Outdated`] if the route or the server is not as the decision had it, [`Error::UnusableGateway`] if the cloud
/// would refuse the new route after the old one was gone, else [`Error::ChangeRoute`].
pub async fn move_to(
    hcloud: &Hcloud,
    network: u64,
    from: Option<Ipv4Addr>,
    to: Ipv4Addr,
    server: u64,
) -> Result<(), Error> {
    let failed = |cause| Error::ChangeRoute { network, cause };
    let seen = hcloud.network(network).await.map_err(failed)?;
    let current = gateway_of(&seen);
    if current == Some(to) {
        return Ok(());
    }
    if current != from {
        return Err(Error::Outdated(format!("the default route of network {network} has changed")));
    }
    check(&seen, to)?;
    let at = hcloud.server(server).await.map_err(failed)?.private_ip(network);
    if at != Some(to) {
        return Err(Error::Outdated(format!("server {server} has not the address {to} any more")));
    }
    if let Some(from) = from {
        delete(hcloud, network, from).await?;
    }
    let action = hcloud.add_route(network, &via(to)).await.map_err(failed)?;
    hcloud.wait(&action).await.map_err(failed)
}

/// Removes the default route, if it still points to `gateway`.
///
/// # Errors
/// [`Error::Outdated`] if it points elsewhere now, else [`Error::ChangeRoute`].
pub async fn remove(hcloud: &Hcloud, network: u64, gateway: Ipv4Addr) -> Result<(), Error> {
    let seen = hcloud.network(network).await.map_err(|cause| Error::ChangeRoute { network, cause })?;
    match gateway_of(&seen) {
        None => Ok(()),
        Some(current) if current == gateway => delete(hcloud, network, gateway).await,
        Some(_) => Err(Error::Outdated(format!("the default route of network {network} has changed"))),
    }
}

async fn delete(hcloud: &Hcloud, network: u64, gateway: Ipv4Addr) -> Result<(), Error> {
    let failed = |cause| Error::ChangeRoute { network, cause };
    match hcloud.delete_route(network, &via(gateway)).await {
        Ok(action) => hcloud.wait(&action).await.map_err(failed),
        Err(error) if is_not_found(&error) => Ok(()),
        Err(cause) => Err(failed(cause)),
    }
}

fn is_not_found(error: &CloudError) -> bool {
    error.code() == Some(&Code::NotFound)
}

fn via(gateway: Ipv4Addr) -> Route {
    Route::default_via(gateway)
}

/// The cloud's rules for a next hop (API reference, `add_route`), checked before the old route is given up.
fn check(network: &Network, gateway: Ipv4Addr) -> Result<(), Error> {
    let unusable = |why| Err(Error::UnusableGateway { network: network.id, gateway, why });
    if !network.ip_range.contains(&gateway) {
        return unusable("it lies outside the network's range");
    }
    if gateway == network.gateway() || gateway == RESERVED_GATEWAY {
        return unusable("this address is Hetzner's own router");
    }
    let of_vswitch = network.subnets.iter().filter(|subnet| subnet.kind == "vswitch");
    if of_vswitch.filter_map(|subnet| subnet.ip_range).any(|range| range.contains(&gateway)) {
        return unusable("it lies behind a vSwitch");
    }
    Ok(())
}

fn gateway_of(network: &Network) -> Option<Ipv4Addr> {
    network.default_route().map(|route| route.gateway)
}
