//! A simulated Nova whose list of servers the test sets. Nova's documentation describes the entries of failed cells and of servers that
//! are being built (api-guide, down_cells). Nova's fake drivers cannot produce them.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};

use crate::fault_proxy::{Fault, FaultProxy, Matcher, Reply, RuleId, Upstream};

/// A simulated Nova.
pub struct Nova {
    proxy: FaultProxy,
    state: Mutex<State>,
}

struct State {
    servers: Vec<Value>,
    rules: Vec<RuleId>,
}

impl Nova {
    pub(super) async fn start() -> Result<Nova> {
        // There is no server behind the proxy: its rules make every response.
        let proxy = FaultProxy::start(Upstream::neutron("http://127.0.0.1:1")).await?;
        let nova = Nova { proxy, state: Mutex::new(State { servers: Vec::new(), rules: Vec::new() }) };
        nova.change(|_| {});
        Ok(nova)
    }

    pub(super) fn url(&self) -> String {
        self.proxy.url()
    }

    /// The proxy that simulates it, for faults. Rules that are added before a change of the list have precedence.
    #[must_use]
    pub fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    /// An active server with an address on the network `nodes`.
    pub fn add(&self, id: &str, address: &str) {
        self.add_entry(json!({
            "id": id, "name": id, "status": "ACTIVE",
            "addresses": { "nodes": [{ "addr": address, "version": 4 }] },
        }));
    }

    /// Adds any entry to the list.
    pub fn add_entry(&self, server: Value) {
        self.change(|servers| servers.push(server));
    }

    /// Changes the list.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state.servers);
        for rule in state.rules.drain(..) {
            self.proxy.remove(rule);
        }
        // As in the real Nova: a list with paging, sorting or filters omits the servers of failed cells, and every list omits those
        // that are softly deleted.
        let all = |server: &&Value| server.get("status").is_none_or(|status| status != "SOFT_DELETED");
        let known = |server: &&Value| server.get("status").is_none_or(|status| status != "UNKNOWN");
        let all: Vec<&Value> = state.servers.iter().filter(all).collect();
        let known: Vec<&Value> = all.iter().copied().filter(known).collect();
        let detail = Matcher::any().path("/v2.1/servers/detail");
        let asked = detail.clone().when(|call| !call.query.is_empty());
        let mut rules = vec![
            self.reply(asked, StatusCode::OK, &json!({ "servers": known })),
            self.reply(detail, StatusCode::OK, &json!({ "servers": all })),
        ];
        for server in &state.servers {
            let path =
                format!("/v2.1/servers/{}", server.get("id").and_then(Value::as_str).unwrap_or_default());
            rules.push(self.response(&path, StatusCode::OK, json!({ "server": server })));
        }
        let none = json!({ "itemNotFound": { "code": 404, "message": "Instance could not be found." } });
        rules.push(self.response("/v2.1/servers/*", StatusCode::NOT_FOUND, none));
        state.rules = rules;
    }

    /// Responds with 503 to every request.
    pub fn fail(&self) {
        let away = json!({ "serviceUnavailable": { "code": 503, "message": "no cell responds" } });
        self.always(StatusCode::SERVICE_UNAVAILABLE, away);
    }

    /// Nova of Rocky, which does not report failed cells.
    pub fn limit_to_microversion_2_65(&self) {
        let message = "Version 2.69 is not supported by the API. Minimum is 2.1 and maximum is 2.65.";
        self.always(
            StatusCode::NOT_ACCEPTABLE,
            json!({ "computeFault": { "code": 406, "message": message } }),
        );
    }

    fn always(&self, status: StatusCode, body: Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for rule in state.rules.drain(..) {
            self.proxy.remove(rule);
        }
        state.rules = vec![self.response("*", status, body)];
    }

    fn response(&self, path: &str, status: StatusCode, body: Value) -> RuleId {
        self.reply(Matcher::any().path(path), status, &body)
    }

    fn reply(&self, asked: Matcher, status: StatusCode, body: &Value) -> RuleId {
        self.proxy.rule(asked, Fault::Reject(Reply::status(status).body(body.to_string())))
    }
}
