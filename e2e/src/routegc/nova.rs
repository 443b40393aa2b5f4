//! A Nova that says what a test wants it to say. What cells that do not answer, and servers that are being built, look like is
//! in Nova's own documentation (api-guide, down_cells); no fake driver of the real one can be brought to it.

use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use http::StatusCode;
use serde_json::{Value, json};

use crate::fault_proxy::{Answer, Fault, FaultProxy, Matcher, RuleId, Upstream};

/// See above.
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
        // Nobody is behind it: every answer is a rule's.
        let proxy = FaultProxy::start(Upstream::neutron("http://127.0.0.1:1")).await?;
        let nova = Nova { proxy, state: Mutex::new(State { servers: Vec::new(), rules: Vec::new() }) };
        nova.change(|_| {});
        Ok(nova)
    }

    pub(super) fn url(&self) -> String {
        self.proxy.url()
    }

    /// The proxy that plays it: for faults, which come before what is said here if they are added before a change.
    #[must_use]
    pub fn proxy(&self) -> &FaultProxy {
        &self.proxy
    }

    /// An active server with an address on the network `nodes`.
    pub fn add(&self, id: &str, address: &str) {
        self.say(json!({
            "id": id, "name": id, "status": "ACTIVE",
            "addresses": { "nodes": [{ "addr": address, "version": 4 }] },
        }));
    }

    /// Any entry of the list.
    pub fn say(&self, server: Value) {
        self.change(|servers| servers.push(server));
    }

    /// Changes the list.
    pub fn change(&self, change: impl FnOnce(&mut Vec<Value>)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state.servers);
        for rule in state.rules.drain(..) {
            self.proxy.remove(rule);
        }
        // As the real one: whoever pages, sorts or filters is told nothing of cells that do not answer, and nobody is shown in a
        // list what was deleted softly.
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
            rules.push(self.answer(&path, StatusCode::OK, json!({ "server": server })));
        }
        let none = json!({ "itemNotFound": { "code": 404, "message": "Instance could not be found." } });
        rules.push(self.answer("/v2.1/servers/*", StatusCode::NOT_FOUND, none));
        state.rules = rules;
    }

    /// Nova does not answer any more, but with 503.
    pub fn fail(&self) {
        let away = json!({ "serviceUnavailable": { "code": 503, "message": "no cell answers" } });
        self.always(StatusCode::SERVICE_UNAVAILABLE, away);
    }

    /// Nova is that of Rocky, which does not know of cells that do not answer.
    pub fn age(&self) {
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
        state.rules = vec![self.answer("*", status, body)];
    }

    fn answer(&self, path: &str, status: StatusCode, body: Value) -> RuleId {
        self.reply(Matcher::any().path(path), status, &body)
    }

    fn reply(&self, asked: Matcher, status: StatusCode, body: &Value) -> RuleId {
        self.proxy.rule(asked, Fault::Reject(Answer::status(status).body(body.to_string())))
    }
}
