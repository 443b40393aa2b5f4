//! One file for each operation, and shared functions.

pub mod add;
pub mod check;
pub mod del;
pub mod gc;
pub mod ipvlan_mode;
pub mod lock;
pub mod namespaces;
pub mod resolve;
pub mod result;
pub mod status;
pub mod version;

use crate::cni::{Call, Error};
use crate::config::network::Network;
use crate::config::settings::Settings;
use crate::log::Log;
use crate::plan::Identity;

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

impl Context<'_> {
    /// The identity of the call's attachment.
    #[must_use]
    pub fn identity(&self) -> Identity {
        Identity {
            container_id: self.call.container_id.clone(),
            ifname: self.call.ifname.clone(),
            network: self.network.name.clone(),
        }
    }
}

/// Several failures as one: the first, with the others among its details.
///
/// # Errors
/// The combined failure, if there is one.
pub fn first(errors: Vec<Error>) -> Result<(), Error> {
    let mut errors = errors.into_iter();
    let Some(first) = errors.next() else { return Ok(()) };
    Err(errors.fold(first, with))
}

/// One failure with another among its details.
#[must_use]
pub fn with(mut first: Error, other: Error) -> Error {
    if !first.details.is_empty() {
        first.details.push_str("; ");
    }
    first.details.push_str(&format!("also: {other}"));
    first
}
