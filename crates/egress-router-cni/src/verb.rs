//! One file for each verb, and what several of them do alike.

pub mod add;
pub mod check;
pub mod del;
pub mod gc;
pub mod namespaces;
pub mod pod_lock;
pub mod resolve;
pub mod result;
pub mod status;
pub mod version;

use crate::cni::{Call, Error};
use crate::config::network::Network;
use crate::config::settings::Settings;
use crate::log::Log;
use crate::plan::Identity;

/// Everything that a verb is told.
pub struct Context<'a> {
    /// By the environment.
    pub call: &'a Call,
    /// By the network configuration.
    pub network: &'a Network,
    /// By the node's administrator.
    pub settings: &'a Settings,
    /// To whom it tells what it does.
    pub log: &'a Log,
}

impl Context<'_> {
    /// Whose attachment the call is about.
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
/// That, where there is one.
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
