//! The whole project: plain data, and the life of its actions.

use jiff::Timestamp;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    action::{Action, ActionFailure, Effect, Status},
    change::Change,
    model::{FloatingIp, Network, Server},
    refusal::{Code, Refusal},
};

/// All that one project holds.
#[derive(Clone, Debug, Default)]
pub struct Project {
    /// By ID.
    pub networks: BTreeMap<u64, Network>,
    /// By ID.
    pub servers: BTreeMap<u64, Server>,
    /// By ID.
    pub floating_ips: BTreeMap<u64, FloatingIp>,
    /// By ID; finished ones stay.
    pub actions: BTreeMap<u64, Action>,
    last_id: u64,
}

impl Project {
    /// The IDs of a network's servers, ascending.
    pub fn members(&self, network: u64) -> Vec<u64> {
        self.servers
            .values()
            .filter(|server| server.private_ip(network).is_some())
            .map(|server| server.id)
            .collect()
    }

    /// The server that has this address in the network, as its own or as an alias.
    pub fn server_at(&self, network: u64, ip: std::net::Ipv4Addr) -> Option<&Server> {
        self.servers.values().find(|server| {
            server
                .private_net
                .iter()
                .any(|net| net.network == network && (net.ip == ip || net.alias_ips.contains(&ip)))
        })
    }

    /// The network of that name.
    pub fn network_named(&self, name: &str) -> Option<&Network> {
        self.networks.values().find(|network| network.name == name)
    }

    /// The server of that name.
    pub fn server_named(&self, name: &str) -> Option<&Server> {
        self.servers.values().find(|server| server.name == name)
    }

    /// Whether an action is running on it.
    pub fn busy(&self, kind: &str, id: u64) -> bool {
        self.actions
            .values()
            .filter(|action| action.status == Status::Running)
            .any(|action| action.change.resources().contains(&(kind, id)))
    }

    /// Networks refuse with `conflict` while they are being changed, all else with `locked`.
    pub(super) fn free(&self, kind: &str, id: u64) -> Result<(), Refusal> {
        match (self.busy(kind, id), kind) {
            (false, _) => Ok(()),
            (true, "network") => Err(Refusal::new(
                Code::Conflict,
                "a change is currently being performed on this network, please retry",
            )),
            (true, _) => {
                Err(Refusal::new(Code::Locked, format!("{kind} is locked: an action is already running")))
            }
        }
    }

    pub(super) fn fresh_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    /// Takes the wanted ID, or a fresh one; later fresh ones are larger.
    pub(super) fn claim_id(&mut self, wanted: Option<u64>) -> Result<u64, String> {
        let id = wanted.unwrap_or(self.last_id + 1);
        let taken = self.networks.contains_key(&id)
            || self.servers.contains_key(&id)
            || self.floating_ips.contains_key(&id);
        if taken {
            return Err(format!("ID {id} is taken"));
        }
        self.last_id = self.last_id.max(id);
        Ok(id)
    }

    /// Accepts a change that was found to be allowed.
    pub(super) fn begin(
        &mut self,
        change: Change,
        now: Instant,
        duration: Duration,
        effect: Effect,
        failure: Option<ActionFailure>,
    ) -> Action {
        let mut action = Action {
            id: self.fresh_id(),
            change,
            status: Status::Running,
            error: None,
            started: now,
            duration,
            started_at: Timestamp::now(),
            finished_at: None,
            effect,
            failure,
        };
        let acts = action.failure.as_ref().is_none_or(|failure| failure.acts);
        if acts && effect == Effect::Start {
            action.error = action.change.apply(self).err().map(failed);
        }
        self.actions.insert(action.id, action.clone());
        action
    }

    /// Ends a running action; a finished one stays as it is.
    pub(super) fn finish(&mut self, id: u64) {
        let Some(mut action) = self.actions.remove(&id) else { return };
        if action.status == Status::Running {
            let acts = action.failure.as_ref().is_none_or(|failure| failure.acts);
            if acts && action.effect == Effect::End {
                action.error = action.change.apply(self).err().map(failed);
            }
            if let Some(failure) = &action.failure {
                action.error = Some((failure.code.clone(), failure.message.clone()));
            }
            action.status = if action.error.is_some() { Status::Error } else { Status::Success };
            action.finished_at = Some(Timestamp::now());
        }
        self.actions.insert(id, action);
    }

    pub(super) fn remove_server(&mut self, id: u64) -> Result<(), String> {
        self.servers.remove(&id).ok_or_else(|| gone("server", id))?;
        for ip in self.floating_ips.values_mut().filter(|ip| ip.server == Some(id)) {
            ip.server = None;
        }
        Ok(())
    }

    pub(super) fn remove_network(&mut self, id: u64) -> Result<(), String> {
        self.networks.remove(&id).ok_or_else(|| gone("network", id))?;
        for server in self.servers.values_mut() {
            server.private_net.retain(|net| net.network != id);
        }
        Ok(())
    }

    pub(super) fn network_mut(&mut self, id: u64) -> Result<&mut Network, String> {
        self.networks.get_mut(&id).ok_or_else(|| gone("network", id))
    }

    pub(super) fn server_mut(&mut self, id: u64) -> Result<&mut Server, String> {
        self.servers.get_mut(&id).ok_or_else(|| gone("server", id))
    }

    pub(super) fn floating_ip_mut(&mut self, id: u64) -> Result<&mut FloatingIp, String> {
        self.floating_ips.get_mut(&id).ok_or_else(|| gone("floating IP", id))
    }
}

fn failed(message: String) -> (String, String) {
    ("action_failed".to_owned(), message)
}

fn gone(what: &str, id: u64) -> String {
    format!("{what} {id} does not exist")
}
