//! The default route of the network. It can be repeated: the network is read again before each change and compared with what the
//! decision was made on. A route cannot be changed or doubled (its destination must be free), so it is deleted and added;
//! stopped in between, the next reconciliation finds no route and adds it.

use std::net::Ipv4Addr;
use std::time::Duration;

use common::cloud::hcloud::{Action, Code, Error as CloudError, Hcloud, Network, Retry, Route};
use tokio::time::timeout;

use crate::error::Error;

/// Hetzner's own router address in every network; no route may point there (API reference, network routes).
const RESERVED_GATEWAY: Ipv4Addr = Ipv4Addr::new(172, 31, 1, 1);

/// A response takes less than a second. While the route is being moved, the network has none.
const RESPONSE: Duration = Duration::from_secs(5);
/// Then the reconciliation fails, and the next one observes the network, with a backoff.
const TRIES: u32 = 3;
/// Actions of the cloud take about a second.
const PAUSE: Duration = Duration::from_secs(1);

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
    let (route, desired) = (Route::default_via(to), Some(to));
    write(hcloud, network, desired, || hcloud.add_route(network, &route)).await
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
    let route = Route::default_via(gateway);
    match write(hcloud, network, None, || hcloud.delete_route(network, &route)).await {
        Err(Error::ChangeRoute { cause, .. }) if cause.code() == Some(&Code::NotFound) => Ok(()),
        result => result,
    }
}

/// Sends a write until the cloud responds to it, and waits for its action.
///
/// Without a response within [`RESPONSE`] the network is read again: the write may have had its effect. If it had none, it is sent
/// again. A refusal of a repeated write may be due to the first one, so the network is read then too. `desired`: the next hop
/// after the write.
async fn write<F>(
    hcloud: &Hcloud,
    network: u64,
    desired: Option<Ipv4Addr>,
    send: impl Fn() -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<Action, CloudError>>,
{
    let failed = |cause| Error::ChangeRoute { network, cause };
    for attempt in 1..=TRIES {
        let refused = match timeout(RESPONSE, send()).await {
            Ok(Ok(action)) => return hcloud.wait(&action).await.map_err(failed),
            Ok(Err(CloudError::Transport { .. })) | Err(_) => None,
            Ok(Err(cause)) if attempt == 1 => return Err(failed(cause)),
            Ok(Err(cause)) => Some(cause),
        };
        let seen = timeout(RESPONSE, hcloud.network(network)).await;
        let is_done = matches!(&seen, Ok(Ok(seen)) if gateway_of(seen) == desired);
        match refused {
            _ if is_done => return Ok(()),
            // The first one is still being executed.
            Some(cause) if matches!(cause.retry(), Retry::Soon) => tokio::time::sleep(PAUSE).await,
            Some(cause) => return Err(failed(cause)),
            None => {}
        }
    }
    Err(Error::RouteUnanswered { network, tries: TRIES })
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

#[cfg(test)]
mod tests;
