//! The paths of the API, and their functions.

use http::Method;
use serde_json::{Value, json};
use std::time::Instant;

use super::{
    action::Change,
    fields::{Fields, address, prefix},
    model::{FloatingIp, Route},
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

const REMOVAL: &str = "https://docs.hetzner.cloud/changelog#2025-01-30-listing-arbitrary-actions-in-the-actions-list-endpoint-is-removed";

/// Handles a request. An action that it starts ends later.
pub(super) fn handle(state: &mut State, call: &Call<'_>, now: Instant) -> Outcome {
    let segments: Vec<&str> = call.path.trim_matches('/').split('/').collect();
    match segments[..] {
        ["actions"] => call.only(&Method::GET, || actions_by_id(state, call, now)),
        ["actions", id] => call.only(&Method::GET, || {
            let action = id.parse().ok().and_then(|id: u64| state.project.actions.get(&id));
            let action = action.ok_or_else(|| Refusal::not_found("action", id))?;
            Ok((200, json!({"action": action.json(now)})))
        }),
        [kind @ ("networks" | "servers" | "floating_ips")] => call.only(&Method::GET, || {
            let query = Query::parse(call.query, &["name", "label_selector", "sort", "page", "per_page"])?;
            Ok((200, list(&query, kind, all(state, kind))?))
        }),
        [kind @ ("networks" | "servers" | "floating_ips"), id] => call.only(&Method::GET, || {
            let singular = kind.trim_end_matches('s');
            let number: Option<u64> = id.parse().ok();
            let found =
                all(state, kind).into_iter().find(|item| number.is_some() && item["id"].as_u64() == number);
            Ok((200, json!({singular: found.ok_or_else(|| Refusal::not_found(singular, id))?})))
        }),
        ["networks", id, "actions", command @ ("add_route" | "delete_route")] => {
            call.only(&Method::POST, || {
                let network = id.parse().ok().filter(|id| state.project.networks.contains_key(id));
                let network = network.ok_or_else(|| Refusal::not_found("network", id))?;
                let route = read_route(Fields::parse(call.content_type, call.body)?)?;
                let change = Change { network, route, adds: command == "add_route" };
                check(state, &change)?;
                Ok((201, json!({"action": state.begin(change, now).json(now)})))
            })
        }
        _ => Err(Refusal::new(Code::NotFound, "path not found")),
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

fn all(state: &State, kind: &str) -> Vec<Value> {
    let project = &state.project;
    match kind {
        "networks" => project.networks.values().map(|network| network.json(project)).collect(),
        "servers" => project.servers.values().map(|server| server.json(project)).collect(),
        _ => project.floating_ips.values().map(FloatingIp::json).collect(),
    }
}

/// `GET /actions` needs the IDs of the actions, since 2025-01-30.
fn actions_by_id(state: &State, call: &Call<'_>, now: Instant) -> Outcome {
    let query = Query::parse(call.query, &["id", "sort", "page", "per_page"])?;
    let ids: Vec<&str> = query.all("id").collect();
    if ids.is_empty() {
        let mut refusal = Refusal::new(Code::DeprecatedApiEndpoint, "API functionality was removed");
        refusal.details = json!({"announcement": REMOVAL});
        return Err(refusal);
    }
    let ids: Result<Vec<u64>, _> = ids.iter().map(|id| id.parse()).collect();
    let ids = ids.map_err(|_| Refusal::field("id", "Not a valid integer."))?;
    let actions = state.project.actions.values().filter(|action| ids.contains(&action.id));
    Ok((200, list(&query, "actions", actions.map(|action| action.json(now)).collect())?))
}

fn read_route(mut fields: Fields) -> Result<Route, Refusal> {
    let (destination, gateway) =
        (fields.required("destination", prefix), fields.required("gateway", address));
    let (Some(destination), Some(gateway)) = (destination, gateway) else { return Err(fields.refusal()) };
    fields.finish().map(|()| Route { destination, gateway })
}

fn check(state: &State, change: &Change) -> Result<(), Refusal> {
    let Change { network, route, adds } = change;
    state.project.free(*network)?;
    let found = state.project.networks.get(network).ok_or_else(|| Refusal::not_found("network", network))?;
    if *adds {
        rules::route(found, *route)
    } else if found.routes.contains(route) {
        Ok(())
    } else {
        Err(Refusal::new(Code::NotFound, "network route not found"))
    }
}
