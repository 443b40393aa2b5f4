//! What could not be seen whole. Each message is complete: what, why, and what to do.

use crate::cloud::openstack::Error;
use crate::routes::route::so_many;

/// Nothing is known, so nothing is decided and nothing is removed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The router is not there, or not ours.
    #[error("there is no such router in this project; see `openstack router list`: {0}")]
    NoRouter(Error),
    /// The router could not be read.
    #[error("the router cannot be read: {0}")]
    Router(Error),
    /// The neighbourhood could not be read whole.
    #[error("{what} cannot be listed whole: {cause}")]
    Inventory {
        /// `the ports of network …`
        what: String,
        /// The cloud's answer.
        cause: Error,
    },
    /// A subnet's range or a port's address is no such thing.
    #[error("Neutron says {0}, which cannot be read; nothing is decided on half a view")]
    Unreadable(String),
    /// There is not one machine on the router's networks.
    #[error(
        "the router has {}, but not one port of a machine is seen on its networks: wrong project or rights rather than an empty \
         cloud; if all machines are gone, remove the routes by hand", so_many(*routes)
    )]
    Empty {
        /// Of the router.
        routes: usize,
    },
    /// Nova did not answer.
    #[error("Nova cannot be asked which servers there are: {0}")]
    Nova(Error),
    /// Nova's list has servers of which it knows nothing.
    #[error(
        "Nova does not know everything: {0}; a cell that does not answer must not look like servers that are gone"
    )]
    Partial(String),
    /// The Nodes could not be listed.
    #[error("the cluster's Nodes cannot be listed: {0}")]
    Nodes(String),
}

impl ObserveError {
    pub(super) fn router(cause: Error) -> ObserveError {
        if cause.is_not_found() { ObserveError::NoRouter(cause) } else { ObserveError::Router(cause) }
    }

    /// One CamelCase word of a closed set: the reason of a condition.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            ObserveError::NoRouter(_) => "RouterNotFound",
            ObserveError::Empty { .. } => "EmptyInventory",
            ObserveError::Inventory { .. }
            | ObserveError::Unreadable(_)
            | ObserveError::Nova(_)
            | ObserveError::Partial(_) => "PartialInventory",
            ObserveError::Nodes(_) => "NodesUnavailable",
            ObserveError::Router(cause) if cause.is_unauthorized() || cause.is_credential_gone() => {
                "LoginFailed"
            }
            ObserveError::Router(_) => "OpenStackUnavailable",
        }
    }

    /// The cloud's answer, where it is one.
    #[must_use]
    pub fn cause(&self) -> Option<&Error> {
        match self {
            ObserveError::NoRouter(cause)
            | ObserveError::Router(cause)
            | ObserveError::Nova(cause)
            | ObserveError::Inventory { cause, .. } => Some(cause),
            ObserveError::Unreadable(_)
            | ObserveError::Empty { .. }
            | ObserveError::Partial(_)
            | ObserveError::Nodes(_) => None,
        }
    }
}
