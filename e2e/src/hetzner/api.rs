//! The paths of the API, and what each does. One function a resource; nothing here knows HTTP beyond method and path.

mod members;

use http::Method;
use serde_json::{Value, json};
use std::time::Instant;

use super::{
    change::Change,
    fields::{Fields, address, boolean, prefix},
    model::Route,
    query::{Query, list},
    refusal::{Code, Refusal},
    rules,
    state::State,
};

/// Status and body.
pub(super) type Outcome = Result<(u16, Value), Refusal>;

/// One authenticated request.
pub(super) struct Call<'a> {
    pub method: &'a Method,
    /// Below `/v1`.
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub content_type: Option<&'a str>,
    pub body: &'a [u8],
}

const ACTION_FIELDS: [&str; 5] = ["id", "command", "status", "started", "finished"];
const RESOURCE_FIELDS: [&str; 3] = ["id", "name", "created"];
const REMOVAL: &str = "https://docs.hetzner.cloud/changelog#2025-01-30-listing-arbitrary-actions-in-the-actions-list-endpoint-is-removed";

/// What the three kinds of resources are called in paths, in single answers and in actions.
#[derive(Clone, Copy, Debug)]
struct Kind {
    plural: &'static str,
    singular: &'static str,
}

impl Kind {
    fn of(plural: &str) -> Option<Self> {
        let kinds = [("networks", "network"), ("servers", "server"), ("floating_ips", "floating_ip")];
        let (plural, singular) = kinds.into_iter().find(|(name, _)| *name == plural)?;
        Some(Self { plural, singular })
    }
}

/// Answers a request; what it starts runs on by itself.
pub(super) fn handle(state: &mut State, call: &Call<'_>, now: Instant) -> Outcome {
    let segments: Vec<&str> = call.path.trim_matches('/').split('/').collect();
    let unknown = || Refusal::new(Code::NotFound, "path not found");
    match segments[..] {
        ["actions"] => call.only(&Method::GET, || actions_by_id(state, call, now)),
        ["actions", id] => call.only(&Method::GET, || one_action(state, id, None, now)),
        [plural, ref rest @ ..] => {
            let kind = Kind::of(plural).ok_or_else(unknown)?;
            match *rest {
                [] => call.only(&Method::GET, || {
                    let known = ["name", "label_selector", "status", "sort", "page", "per_page"];
                    // Only servers have a status to ask for.
                    let known =
                        known.into_iter().filter(|name| *name != "status" || kind.singular == "server");
                    let query = Query::parse(call.query, &known.collect::<Vec<_>>())?;
                    Ok((200, list(&query, kind.plural, &RESOURCE_FIELDS, all(state, kind))?))
                }),
                ["actions"] => call.only(&Method::GET, || actions_of(state, call, kind, None, now)),
                ["actions", id] => call.only(&Method::GET, || one_action(state, id, Some(kind), now)),
                [id] if call.method == Method::DELETE && kind.singular == "network" => {
                    delete_network(state, existing(state, kind, id)?)
                }
                [id] => call.only(&Method::GET, || one(state, kind, id)),
                [id, "actions"] => call.only(&Method::GET, || {
                    let id = existing(state, kind, id)?;
                    actions_of(state, call, kind, Some(id), now)
                }),
                [id, "actions", action] if action.parse::<u64>().is_ok() => call.only(&Method::GET, || {
                    existing(state, kind, id)?;
                    one_action(state, action, Some(kind), now)
                }),
                [id, "actions", command] => {
                    let check = command_of(kind, command).ok_or_else(unknown)?;
                    call.only(&Method::POST, || {
                        let id = existing(state, kind, id)?;
                        let fields = Fields::parse(call.content_type, call.body)?;
                        let change = check(state, id, fields)?;
                        let action = state.begin(change, now);
                        Ok((201, json!({"action": action.json(now, state.settings.error_while_running)})))
                    })
                }
                _ => Err(unknown()),
            }
        }
        [] => Err(unknown()),
    }
}

impl Call<'_> {
    fn only(&self, method: &Method, act: impl FnOnce() -> Outcome) -> Outcome {
        if self.method == method {
            act()
        } else {
            Err(Refusal::new(Code::MethodNotAllowed, "The request method is not allowed"))
        }
    }
}

fn all(state: &State, kind: Kind) -> Vec<Value> {
    let project = &state.project;
    match kind.singular {
        "network" => project.networks.values().map(|network| network.json(project)).collect(),
        "server" => project.servers.values().map(|server| server.json(project)).collect(),
        _ => project.floating_ips.values().map(super::model::FloatingIp::json).collect(),
    }
}

fn one(state: &State, kind: Kind, id: &str) -> Outcome {
    let number = existing(state, kind, id)?;
    let project = &state.project;
    let found = match kind.singular {
        "network" => project.networks.get(&number).map(|network| network.json(project)),
        "server" => project.servers.get(&number).map(|server| server.json(project)),
        _ => project.floating_ips.get(&number).map(super::model::FloatingIp::json),
    };
    let found = found.ok_or_else(|| Refusal::not_found(kind.singular, id))?;
    Ok((200, json!({kind.singular: found})))
}

fn existing(state: &State, kind: Kind, id: &str) -> Result<u64, Refusal> {
    let project = &state.project;
    let number: Option<u64> = id.parse().ok();
    number
        .filter(|id| match kind.singular {
            "network" => project.networks.contains_key(id),
            "server" => project.servers.contains_key(id),
            _ => project.floating_ips.contains_key(id),
        })
        .ok_or_else(|| Refusal::not_found(kind.singular, id))
}

/// `GET /actions` answers for named actions only, since 2025-01-30.
fn actions_by_id(state: &State, call: &Call<'_>, now: Instant) -> Outcome {
    let query = Query::parse(call.query, &["id", "status", "sort", "page", "per_page"])?;
    let wanted: Vec<&str> = query.all("id").collect();
    if wanted.is_empty() {
        let mut refusal = Refusal::new(Code::DeprecatedApiEndpoint, "API functionality was removed");
        refusal.details = json!({"announcement": REMOVAL});
        return Err(refusal);
    }
    let ids: Result<Vec<u64>, _> = wanted.iter().map(|id| id.parse()).collect();
    let ids = ids.map_err(|_| Refusal::field("id", "Not a valid integer."))?;
    let actions = state.project.actions.values().filter(|action| ids.contains(&action.id));
    let items = actions.map(|action| action.json(now, state.settings.error_while_running)).collect();
    Ok((200, list(&query, "actions", &ACTION_FIELDS, items)?))
}

fn actions_of(state: &State, call: &Call<'_>, kind: Kind, id: Option<u64>, now: Instant) -> Outcome {
    let query = Query::parse(call.query, &["id", "status", "sort", "page", "per_page"])?;
    let concerns = |resources: Vec<(&str, u64)>| {
        resources.into_iter().any(|(k, n)| k == kind.singular && id.is_none_or(|id| id == n))
    };
    let actions = state.project.actions.values().filter(|action| concerns(action.change.resources()));
    let items = actions.map(|action| action.json(now, state.settings.error_while_running)).collect();
    Ok((200, list(&query, "actions", &ACTION_FIELDS, items)?))
}

fn one_action(state: &State, id: &str, kind: Option<Kind>, now: Instant) -> Outcome {
    let action = id.parse().ok().and_then(|id: u64| state.project.actions.get(&id));
    let concerns = |resources: Vec<(&str, u64)>| {
        kind.is_none_or(|kind| resources.into_iter().any(|(name, _)| name == kind.singular))
    };
    let action = action.filter(|action| concerns(action.change.resources()));
    let action = action.ok_or_else(|| Refusal::not_found("action", id))?;
    Ok((200, json!({"action": action.json(now, state.settings.error_while_running)})))
}

fn delete_network(state: &mut State, id: u64) -> Outcome {
    state.project.free("network", id)?;
    if state.project.networks.get(&id).is_some_and(|network| network.protected) {
        return Err(Refusal::new(Code::Protected, "network is protected against deletion"));
    }
    state.project.remove_network(id).map_err(|why| Refusal::new(Code::NotFound, why))?;
    Ok((204, Value::Null))
}

/// Reads the body and finds the change that is asked for, or says why it may not be made.
type Check = fn(&State, u64, Fields) -> Result<Change, Refusal>;

fn command_of(kind: Kind, command: &str) -> Option<Check> {
    Some(match (kind.singular, command) {
        ("network", "add_route") => add_route,
        ("network", "delete_route") => delete_route,
        ("network", "change_protection") => change_protection,
        ("server", "attach_to_network") => members::attach,
        ("server", "detach_from_network") => members::detach,
        ("server", "change_alias_ips") => members::change_alias_ips,
        ("server", "poweron") => |state, server, fields| members::power(state, server, fields, true),
        ("server", "poweroff") => |state, server, fields| members::power(state, server, fields, false),
        ("floating_ip", "assign") => members::assign,
        ("floating_ip", "unassign") => members::unassign,
        _ => return None,
    })
}

fn read_route(mut fields: Fields) -> Result<Route, Refusal> {
    let (destination, gateway) =
        (fields.required("destination", prefix), fields.required("gateway", address));
    let (Some(destination), Some(gateway)) = (destination, gateway) else { return Err(fields.refusal()) };
    fields.finish().map(|()| Route { destination, gateway })
}

fn add_route(state: &State, network: u64, fields: Fields) -> Result<Change, Refusal> {
    let route = read_route(fields)?;
    state.project.free("network", network)?;
    let found = state.project.networks.get(&network).ok_or_else(|| Refusal::not_found("network", network))?;
    rules::route(found, route)?;
    Ok(Change::AddRoute { network, route })
}

fn delete_route(state: &State, network: u64, fields: Fields) -> Result<Change, Refusal> {
    let route = read_route(fields)?;
    state.project.free("network", network)?;
    let found = state.project.networks.get(&network).is_some_and(|network| network.routes.contains(&route));
    if !found {
        return Err(Refusal::new(Code::NotFound, "network route not found"));
    }
    Ok(Change::DeleteRoute { network, route })
}

fn change_protection(state: &State, network: u64, mut fields: Fields) -> Result<Change, Refusal> {
    let delete = fields.optional("delete", boolean);
    fields.finish()?;
    state.project.free("network", network)?;
    let current = state.project.networks.get(&network).is_some_and(|network| network.protected);
    Ok(Change::Protect { network, delete: delete.unwrap_or(current) })
}
