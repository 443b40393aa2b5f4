//! One machine of a cluster: commands, network cables, power.

use std::net::Ipv4Addr;
use std::sync::Arc;

use anyhow::{Context, Result};

use super::{Network, Scripts};
use crate::netns::{Snapshot, snapshot};

/// A machine. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Machine {
    name: String,
    pub(super) scripts: Arc<Scripts>,
}

impl Machine {
    pub(super) fn new(name: &str, scripts: Arc<Scripts>) -> Self {
        Self { name: name.to_owned(), scripts }
    }

    /// Its name; a node's Kubernetes name as well.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A node's number: 1 for `node-1`. Also the number in its provider ID.
    ///
    /// # Errors
    /// It is no node.
    pub fn number(&self) -> Result<u8> {
        let number = self.name.strip_prefix("node-").and_then(|number| number.parse().ok());
        number.with_context(|| format!("{} is no node", self.name))
    }

    /// A node's address in the private network.
    ///
    /// # Errors
    /// It is no node.
    pub fn ip(&self) -> Result<Ipv4Addr> {
        Ok(Ipv4Addr::new(10, self.scripts.second_byte(), 0, 10 + self.number()?))
    }

    /// A node's own public address, if it has a public interface.
    ///
    /// # Errors
    /// It is no node.
    pub fn public_ip(&self) -> Result<Ipv4Addr> {
        Ok(Ipv4Addr::new(192, 0, 2, 10 + self.number()?))
    }

    /// Runs a command in it as root. Returns its output.
    ///
    /// # Errors
    /// It fails; the error has its output.
    pub async fn exec(&self, command: &[&str]) -> Result<String> {
        let arguments = ["exec", self.name.as_str()].into_iter().chain(command.iter().copied());
        self.scripts.run("machine.sh", arguments).await.with_context(|| format!("on {}", self.name))
    }

    /// Disconnects its network.
    ///
    /// # Errors
    /// There is no such machine.
    pub async fn cut(&self) -> Result<()> {
        self.switch("cut").await
    }

    /// Reconnects its network.
    ///
    /// # Errors
    /// There is no such machine.
    pub async fn join(&self) -> Result<()> {
        self.switch("join").await
    }

    /// Resets it: all processes are killed, and it boots again with the same disk.
    ///
    /// # Errors
    /// It does not run.
    pub async fn reboot(&self) -> Result<()> {
        self.switch("reboot").await
    }

    /// Powers it off abruptly. The disk is kept.
    ///
    /// # Errors
    /// It does not run.
    pub async fn stop(&self) -> Result<()> {
        self.switch("stop").await
    }

    /// Powers it on, and waits until the node has registered.
    ///
    /// # Errors
    /// It already runs, or does not start.
    pub async fn start(&self) -> Result<()> {
        self.switch("start").await
    }

    /// Its network, until it reboots.
    ///
    /// # Errors
    /// It does not run.
    pub fn network(&self) -> Result<Network> {
        Network::of(self.pid()?)
    }

    /// The state that natgw's scripts could change.
    ///
    /// # Errors
    /// It does not run.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        Ok(Snapshot::read(&self.exec(&["bash", "-euo", "pipefail", "-c", snapshot::TAKE]).await?))
    }

    /// Its process 1.
    pub(super) fn pid(&self) -> Result<u32> {
        self.scripts.pid(&self.name)
    }

    async fn switch(&self, action: &str) -> Result<()> {
        let done = self.scripts.run("machine.sh", [action, &self.name]).await;
        done.with_context(|| format!("{action} {}", self.name)).map(drop)
    }
}
