//! A driver programs the desired datapath on the node.

use std::fmt;

use super::datapath::Datapath;

/// Programs a datapath. Every method blocks, and is called outside of the async runtime.
pub trait Driver: Send {
    /// Reads the programmed datapath, compares it with the desired one, and writes the difference. What a packet could meet in
    /// between never leaves with a wrong source address. In steady state it writes nothing. It may be stopped at any point: the
    /// next call completes the work.
    ///
    /// # Errors
    /// What failed, on which object, with the cause. The next call tries again.
    fn apply(&mut self, desired: &Datapath) -> Result<Vec<Change>, Error>;

    /// The changes that [`Driver::apply`] would make, without making them.
    ///
    /// # Errors
    /// The programmed datapath cannot be read.
    fn preview(&mut self, desired: &Datapath) -> Result<Vec<Change>, Error>;

    /// Removes everything that the driver has ever programmed, and nothing else. Needs no desired datapath.
    ///
    /// # Errors
    /// What failed, on which object, with the cause.
    fn uninstall(&mut self) -> Result<Vec<Change>, Error>;
}

/// One change of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The object, from a closed set: `link`, `route`, `nftables`, `flow`, `iptables`, `sysctl`.
    pub object: &'static str,
    /// One line for a person.
    pub description: String,
    /// The object had been changed or removed by another program.
    pub is_repair: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.object, self.description)
    }
}

/// A failure of a driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{operation} failed: {cause}")]
pub struct Error {
    /// The operation and its object.
    pub operation: String,
    /// The cause in one line.
    pub cause: String,
    /// The node can never run this driver as it is configured (a missing kernel module, a foreign object of the same name).
    pub is_permanent: bool,
}
