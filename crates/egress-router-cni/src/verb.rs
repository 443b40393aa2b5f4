//! One file for each operation but VERSION, and shared functions.

pub mod add;
pub mod check;
pub mod del;
pub mod gc;
pub mod ipvlan_mode;
pub mod namespaces;
pub mod resolve;
pub mod result;
pub mod status;

use crate::cni::Call;
use crate::config::network::Network;
use crate::config::settings::Settings;
use crate::log::Log;

/// The inputs of an operation.
pub struct Context<'a> {
    /// The environment.
    pub call: &'a Call,
    /// The network configuration.
    pub network: &'a Network,
    /// The node's settings.
    pub settings: &'a Settings,
    /// The log.
    pub log: &'a Log,
}
