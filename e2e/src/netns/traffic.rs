//! Packets: who can reach whom, and as whom.

use std::time::Duration;

use anyhow::Context;

use super::{Node, Process, wait_until};

/// A TCP server in a node that tells each client the address it sees it come from. Dropped: gone.
#[derive(Debug)]
pub struct Listener {
    _process: Process,
}

impl Node {
    /// Listens on `address` (IPv4) and `port`.
    ///
    /// # Errors
    /// When it does not listen within 5 s.
    pub fn listen(&self, address: &str, port: u16) -> anyhow::Result<Listener> {
        let listen = format!("TCP4-LISTEN:{port},bind={address},reuseaddr,fork");
        let process = self.start_process(["socat", &listen, "SYSTEM:echo $SOCAT_PEERADDR"])?;
        let filter = format!("src {address}:{port}");
        wait_until(&format!("{} listens on {address}:{port}", self.name()), Duration::from_secs(5), || {
            let sockets = self.run(["ss", "-Hltn", &filter])?;
            Ok(!sockets.stdout.trim().is_empty())
        })?;
        Ok(Listener { _process: process })
    }

    /// Connects to a [`Listener`] and returns the address that it saw; `None` when no connection came about in 1 s.
    ///
    /// # Errors
    /// When the attempt itself could not be made.
    pub fn seen_by(&self, address: &str, port: u16) -> anyhow::Result<Option<String>> {
        // One second: a lost first packet is sent again after one, and whoever expects success asks again.
        let connect = format!("TCP4:{address}:{port},connect-timeout=1");
        let output = self.run(["socat", "-T1", "-u", &connect, "-"])?;
        let seen = output.stdout.trim();
        Ok((output.success() && !seen.is_empty()).then(|| seen.to_owned()))
    }

    /// Waits until a [`Listener`] sees this node come from `expected`.
    ///
    /// # Errors
    /// When it does not within 10 s: neighbour entries that have to be learned anew after a change need up to 3.
    pub fn wait_seen_as(&self, expected: &str, address: &str, port: u16) -> anyhow::Result<()> {
        let mut last = None;
        wait_until(
            &format!("{address}:{port} sees {} as {expected}", self.name()),
            Duration::from_secs(10),
            || {
                last = self.seen_by(address, port)?;
                Ok(last.as_deref() == Some(expected))
            },
        )
        .with_context(|| format!("it was last seen as {last:?}"))
    }

    /// Whether one of three echo requests, 0.1 s apart, is answered.
    ///
    /// # Errors
    /// When ping cannot be run.
    pub fn pings(&self, address: &str) -> anyhow::Result<bool> {
        Ok(self.run(["ping", "-n", "-c3", "-i0.1", "-W0.5", address])?.success())
    }
}
