//! Actions of servers and floating IPs.

use super::super::{
    change::Change,
    fields::{Fields, address, addresses, integer},
    refusal::{Code, Refusal},
    rules,
    state::State,
};

/// Further addresses of one server in one network, from Hetzner's FAQ on networks.
const MOST_ALIASES: usize = 5;

pub(in super::super) fn attach(state: &State, server: u64, mut fields: Fields) -> Result<Change, Refusal> {
    let id = fields.required("network", integer);
    let ip = fields.optional("ip", address);
    let alias_ips = fields.optional("alias_ips", addresses).unwrap_or_default();
    let Some(id) = id else { return Err(fields.refusal()) };
    fields.finish()?;
    let network = state.project.networks.get(&id).ok_or_else(|| Refusal::not_found("network", id))?;
    state.project.free("server", server)?;
    state.project.free("network", id)?;
    limit_aliases(alias_ips.len())?;
    let net = rules::attach(&state.project, server, network, ip, alias_ips)?;
    Ok(Change::Attach { server, net })
}

pub(in super::super) fn detach(state: &State, server: u64, mut fields: Fields) -> Result<Change, Refusal> {
    let Some(network) = fields.required("network", integer) else { return Err(fields.refusal()) };
    fields.finish()?;
    state.project.free("server", server)?;
    member(state, server, network)?;
    state.project.free("network", network)?;
    Ok(Change::Detach { server, network })
}

pub(in super::super) fn change_alias_ips(
    state: &State,
    server: u64,
    mut fields: Fields,
) -> Result<Change, Refusal> {
    let (id, alias_ips) = (fields.required("network", integer), fields.required("alias_ips", addresses));
    let (Some(id), Some(alias_ips)) = (id, alias_ips) else { return Err(fields.refusal()) };
    fields.finish()?;
    state.project.free("server", server)?;
    member(state, server, id)?;
    state.project.free("network", id)?;
    let network = state.project.networks.get(&id).ok_or_else(|| Refusal::not_found("network", id))?;
    limit_aliases(alias_ips.len())?;
    rules::check_aliases(&state.project, server, network, &alias_ips)?;
    Ok(Change::Aliases { server, network: id, alias_ips })
}

fn limit_aliases(count: usize) -> Result<(), Refusal> {
    if count > MOST_ALIASES {
        return Err(Refusal::limit("alias_ip_limit", "alias IP limit exceeded"));
    }
    Ok(())
}

fn member(state: &State, server: u64, network: u64) -> Result<(), Refusal> {
    if state.project.members(network).contains(&server) {
        return Ok(());
    }
    Err(Refusal::new(Code::NotFound, format!("server {server} is not attached to network {network}")))
}

pub(in super::super) fn power(
    state: &State,
    server: u64,
    fields: Fields,
    on: bool,
) -> Result<Change, Refusal> {
    fields.finish()?;
    state.project.free("server", server)?;
    Ok(Change::Power { server, on })
}

/// A floating IP of another server moves: floating IP controllers rely on it. Only the same server again is refused.
pub(in super::super) fn assign(
    state: &State,
    floating_ip: u64,
    mut fields: Fields,
) -> Result<Change, Refusal> {
    let Some(server) = fields.required("server", integer) else { return Err(fields.refusal()) };
    fields.finish()?;
    if !state.project.servers.contains_key(&server) {
        return Err(Refusal::not_found("server", server));
    }
    state.project.free("floating_ip", floating_ip)?;
    state.project.free("server", server)?;
    let holder = state.project.floating_ips.get(&floating_ip).and_then(|ip| ip.server);
    if holder == Some(server) {
        return Err(Refusal::new(Code::FloatingIpAssigned, "floating IP is already assigned"));
    }
    Ok(Change::Assign { floating_ip, server })
}

pub(in super::super) fn unassign(state: &State, floating_ip: u64, fields: Fields) -> Result<Change, Refusal> {
    fields.finish()?;
    state.project.free("floating_ip", floating_ip)?;
    let holder = state.project.floating_ips.get(&floating_ip).and_then(|ip| ip.server);
    let server =
        holder.ok_or_else(|| Refusal::new(Code::InvalidInput, "floating IP is not assigned to a server"))?;
    state.project.free("server", server)?;
    Ok(Change::Unassign { floating_ip, server })
}
