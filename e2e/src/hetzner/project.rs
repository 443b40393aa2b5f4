//! The project: its objects and its actions.

use jiff::Timestamp;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{
    action::{Action, ActionFailure, Change, Status},
    model::{FloatingIp, Network, Server},
    refusal::{Code, Refusal},
};

/// All objects of one project.
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

    /// The server that has this address in the network.
    pub fn server_at(&self, network: u64, ip: std::net::Ipv4Addr) -> Option<&Server> {
        self.servers.values().find(|server| server.private_ip(network) == Some(ip))
    }

    /// The network of that name.
    pub fn network_named(&self, name: &str) -> Option<&Network> {
        self.networks.values().find(|network| network.name == name)
    }

    /// The server of that name.
    pub fn server_named(&self, name: &str) -> Option<&Server> {
        self.servers.values().find(|server| server.name == name)
    }

    /// `conflict` while the network is being changed.
    pub(super) fn free(&self, network: u64) -> Result<(), Refusal> {
        let busy = |action: &Action| action.status == Status::Running && action.change.network == network;
        if self.actions.values().any(busy) {
            let message = "a change is currently being performed on this network, please retry";
            return Err(Refusal::new(Code::Conflict, message));
        }
        Ok(())
    }

    /// Takes this ID, or a new one; later new ones are larger.
    pub(super) fn claim_id(&mut self, id: Option<u64>) -> Result<u64, String> {
        let id = id.unwrap_or(self.last_id + 1);
        let taken = self.networks.contains_key(&id)
            || self.servers.contains_key(&id)
            || self.floating_ips.contains_key(&id);
        if taken {
            return Err(format!("ID {id} is taken"));
        }
        self.last_id = self.last_id.max(id);
        Ok(id)
    }

    /// Accepts a change that was checked.
    pub(super) fn begin(
        &mut self,
        change: Change,
        now: Instant,
        duration: Duration,
        failure: Option<ActionFailure>,
    ) -> Action {
        self.last_id += 1;
        let action = Action {
            id: self.last_id,
            change,
            status: Status::Running,
            error: None,
            started: now,
            duration,
            started_at: Timestamp::now(),
            finished_at: None,
            failure,
        };
        self.actions.insert(action.id, action.clone());
        action
    }

    /// Ends a running action; a finished one stays as it is.
    pub(super) fn finish(&mut self, id: u64) {
        let Some(mut action) = self.actions.remove(&id) else { return };
        if action.status == Status::Running {
            if action.failure.as_ref().is_none_or(|failure| failure.acts) {
                action.error = action.change.apply(self).err();
            }
            if action.failure.is_some() {
                action.error = Some("Action failed".to_owned());
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

fn gone(what: &str, id: u64) -> String {
    format!("{what} {id} does not exist")
}
