//! Hetzner Cloud: the calls that the controllers use, with only the fields that they read.
//!
//! Reads are retried after a transient error. Writes are sent once. The caller may repeat a write after it has read the network
//! again ([`Error::retry`] says when). A list is complete or an error.

mod action;
mod error;
mod floating_ip;
mod network;
mod server;

use std::time::Duration;

use prometheus::Registry;
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::http::{self, Budget, Http, Page, Paging, Response, with_query};
pub use super::http::{Partial, Retry, Secret as Token, SecretError as TokenError};
use super::or_empty;
pub use action::{Action, ActionError, Status};
pub use error::{Code, Error};
pub use floating_ip::FloatingIp;
pub use network::{Network, Route, Subnet};
pub use server::{PrivateNet, ProviderId, Server};

/// The default endpoint of the API.
pub const ENDPOINT: &str = "https://api.hetzner.cloud/v1";

/// The largest page of the API: fewer requests of the rate limit that all programs of a project share.
const PER_PAGE: &str = "50";
/// The API's default page size (Hetzner's API reference, "Pagination"). A page with fewer objects is the last one, also if the response has
/// no page numbers.
const USUAL_PAGE: usize = 25;
/// The shortest and the longest interval between two polls of an action. A route takes about one second, and until it exists the
/// network has no gateway. hcloud-go polls each 500 ms, so it may notice the end half a second late.
const POLL: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];
/// Network actions take seconds. After a minute the wait ends, because gateways may fail in the meantime.
const WAIT: Duration = Duration::from_secs(60);

/// A client of one project. Clones share connections.
#[derive(Clone, Debug)]
pub struct Hcloud {
    http: Http,
}

impl Hcloud {
    /// `endpoint` is [`ENDPOINT`], or that of a stand-in in tests. Plain `http` is allowed to private hosts only. Registers
    /// `cloud_api_requests_total`, `cloud_api_request_duration_seconds` and `cloud_api_rate_limit_remaining` with `cloud="hcloud"`, so one
    /// registry takes one client. Sends nothing yet.
    pub fn new(endpoint: &str, token: Token, user_agent: &str, registry: &Registry) -> Result<Self, Error> {
        let http = Http::new("hcloud", endpoint, token, user_agent, registry, error::retry_policy)
            .map_err(Error::Setup)?;
        Ok(Hcloud { http })
    }

    /// One network.
    pub async fn network(&self, id: u64) -> Result<Network, Error> {
        self.one(&format!("read network {id}"), &format!("/networks/{id}"), "network").await
    }

    /// The network of this name; [`Error::NotFound`] if there is none.
    pub async fn network_by_name(&self, name: &str) -> Result<Network, Error> {
        let call = format!("look up network \"{name}\"");
        let networks = self
            .list(&call, "/networks", "networks", &[("name", name)], |network: &Network| network.id)
            .await?;
        networks.into_iter().find(|network| network.name == name).ok_or(Error::NotFound { call })
    }

    /// All servers of the project.
    pub async fn servers(&self) -> Result<Vec<Server>, Error> {
        self.list("list servers", "/servers", "servers", &[("sort", "id:asc")], |server: &Server| server.id)
            .await
    }

    /// One server; the code is [`Code::NotFound`] if it is gone.
    pub async fn server(&self, id: u64) -> Result<Server, Error> {
        self.one(&format!("read server {id}"), &format!("/servers/{id}"), "server").await
    }

    /// All floating IPs of the project, or those that the label selector (Hetzner's syntax) matches.
    pub async fn floating_ips(&self, label_selector: Option<&str>) -> Result<Vec<FloatingIp>, Error> {
        let mut query = vec![("sort", "id:asc")];
        query.extend(label_selector.map(|selector| ("label_selector", selector)));
        self.list("list floating IPs", "/floating_ips", "floating_ips", &query, |ip: &FloatingIp| ip.id).await
    }

    /// Begins to add a route; [`Hcloud::wait`] for the action. Refused with [`Code::InvalidInput`] if another route's
    /// destination overlaps.
    pub async fn add_route(&self, network: u64, route: &Route) -> Result<Action, Error> {
        self.change_route(&format!("add route {route} to network {network}"), network, "add_route", route)
            .await
    }

    /// Begins to delete a route; [`Hcloud::wait`] for the action. [`Code::NotFound`] if there is no such route: the caller decides
    /// whether that is a success.
    pub async fn delete_route(&self, network: u64, route: &Route) -> Result<Action, Error> {
        self.change_route(
            &format!("delete route {route} of network {network}"),
            network,
            "delete_route",
            route,
        )
        .await
    }

    /// Waits until the action is over, for at most 60 s. A transient error of a poll does not end the wait.
    pub async fn wait(&self, action: &Action) -> Result<(), Error> {
        let call = format!("wait for {}", action.command);
        let mut last = format!("{} % done", action.progress);
        match tokio::time::timeout(WAIT, self.follow(&call, action.clone(), &mut last)).await {
            Ok(end) => end,
            Err(_) => Err(Error::Timeout { call, action: action.id, waited: WAIT, last }),
        }
    }

    /// Polls until the action is over. `last` is set to the result of each poll, for the error after the timeout.
    async fn follow(&self, call: &str, mut action: Action, last: &mut String) -> Result<(), Error> {
        let began = Instant::now();
        let [least, most] = POLL;
        let mut asked_to_wait = Duration::ZERO;
        loop {
            if let Some(ActionError { code, message }) = action.failure() {
                return Err(Error::ActionFailed { call: call.to_owned(), action: action.id, code, message });
            }
            if action.status == Status::Success {
                return Ok(());
            }
            // A quarter of the time that the action has taken so far: a long action costs fewer requests than at a fixed interval.
            tokio::time::sleep((began.elapsed() / 4).clamp(least, most).max(asked_to_wait)).await;
            asked_to_wait = Duration::ZERO;
            match self.action(call, action.id).await {
                Ok(now) => {
                    *last = format!("{} % done", now.progress);
                    action = now;
                }
                Err(error @ Error::ActionMissing { .. }) => return Err(error),
                Err(error) => {
                    match error.retry() {
                        Retry::Never => return Err(error),
                        Retry::Soon => {}
                        Retry::After(asked) => asked_to_wait = asked,
                    }
                    *last = error.to_string();
                }
            }
        }
    }

    /// The action as it is now. It is requested from the list, where a missing action is no error of the call. Without such a list, it is
    /// requested by its path. Hetzner has both.
    async fn action(&self, call: &str, id: u64) -> Result<Action, Error> {
        let missing = || Error::ActionMissing { call: call.to_owned(), action: id };
        let path = with_query("/actions", &[("id", &id.to_string())]);
        match self.get(call, &path, &mut Budget::default()).await {
            Ok(response) => {
                // Some servers send an empty list as null.
                let actions: Option<Vec<Action>> = field(call, &response, "actions")?;
                actions.into_iter().flatten().find(|action| action.id == id).ok_or_else(missing)
            }
            Err(Error::Api { status: 404, .. }) => {
                match self.one(call, &format!("/actions/{id}"), "action").await {
                    Err(Error::Api { status: 404, .. }) => Err(missing()),
                    action => action,
                }
            }
            Err(error) => Err(error),
        }
    }

    async fn change_route(
        &self,
        call: &str,
        network: u64,
        what: &str,
        route: &Route,
    ) -> Result<Action, Error> {
        let body = json!({ "destination": route.destination, "gateway": route.gateway });
        let response = self.http.post(&format!("/networks/{network}/actions/{what}"), &body).await;
        field(call, &accepted(call, response)?, "action")
    }

    async fn one<T: DeserializeOwned>(&self, call: &str, path: &str, name: &'static str) -> Result<T, Error> {
        field(call, &self.get(call, path, &mut Budget::default()).await?, name)
    }

    /// The whole list; all its pages share the time of one budget.
    async fn list<T: DeserializeOwned>(
        &self,
        call: &str,
        path: &str,
        name: &'static str,
        query: &[(&str, &str)],
        key: fn(&T) -> u64,
    ) -> Result<Vec<T>, Error> {
        let mut budget = Budget::default();
        let mut paging = Paging::new(key);
        loop {
            let page = paging.page().to_string();
            let query = [query, &[("page", &page), ("per_page", PER_PAGE)]].concat();
            let response = self.get(call, &with_query(path, &query), &mut budget).await?;
            budget.progressed();
            let page = numbered(call, &response, name, paging.page())?;
            let whole = paging.take(page).map_err(|cause| Error::Partial { call: call.to_owned(), cause })?;
            if let Some(items) = whole {
                return Ok(items);
            }
        }
    }

    async fn get(&self, call: &str, path: &str, budget: &mut Budget) -> Result<Response, Error> {
        accepted(call, self.http.get(path, budget).await)
    }
}

/// The response, if its status is 2xx.
fn accepted(call: &str, response: Result<Response, http::Error>) -> Result<Response, Error> {
    match response {
        Ok(response) if response.status.is_success() => Ok(response),
        Ok(response) => Err(Error::of(call, &response)),
        Err(cause) => Err(Error::Transport { call: call.to_owned(), cause }),
    }
}

/// One field of the response's object; the API wraps everything in one.
fn field<T: DeserializeOwned>(call: &str, response: &Response, name: &'static str) -> Result<T, Error> {
    let read = || {
        let mut object: Map<String, Value> = serde_json::from_slice(&response.body)?;
        serde_json::from_value(object.remove(name).ok_or_else(|| serde_json::Error::missing_field(name))?)
    };
    read().map_err(|cause| Error::Decode { call: call.to_owned(), cause })
}

/// The page with this number. Missing numbers are null, 0 or absent, depending on the server; without
/// any, a page that is not full is the last.
fn numbered<T: DeserializeOwned>(
    call: &str,
    response: &Response,
    name: &'static str,
    number: u64,
) -> Result<Page<T>, Error> {
    let items: Vec<T> = field::<Option<_>>(call, response, name)?.unwrap_or_default();
    let pagination =
        field::<Option<Meta>>(call, response, "meta").ok().flatten().and_then(|meta| meta.pagination);
    let given = |number: Option<u64>| number.filter(|number| *number > 0);
    let (next, total) = match pagination {
        Some(pagination) => {
            let further = given(pagination.last_page).filter(|last| *last > number);
            (given(pagination.next_page).or(further.map(|_| number + 1)), given(pagination.total_entries))
        }
        None => ((items.len() >= USUAL_PAGE).then_some(number + 1), None),
    };
    Ok(Page { items, next, total })
}

#[derive(Deserialize)]
struct Meta {
    pagination: Option<Pagination>,
}

#[derive(Deserialize)]
struct Pagination {
    next_page: Option<u64>,
    last_page: Option<u64>,
    total_entries: Option<u64>,
}

/// The elements of a list that can be parsed. Elements of an unknown kind are skipped: no decision depends on them.
fn readable<'de, T: DeserializeOwned, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let all: Vec<Value> = or_empty(from)?;
    Ok(all.into_iter().filter_map(|element| serde_json::from_value(element).ok()).collect())
}

#[cfg(test)]
mod tests;
