//! Why a router and its networks could not be read completely. Each message says what, why, and what to do.

use crate::cloud::openstack::Error;
use crate::routes::route::so_many;

/// The state is not known completely, so nothing is decided and nothing is removed.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The router does not exist or belongs to another project.
    #[error("there is no such router in this project; see `openstack router list`: {0}")]
    NoRouter(Error),
    /// The router could not be read.
    #[error("the router cannot be read: {0}")]
    Router(Error),
    /// Networks, ports or servers could not be listed completely.
    #[error("cannot list {what} completely: {cause}")]
    Inventory {
        /// `the ports of network …`
        what: String,
        /// The cloud's error.
        cause: Error,
    },
    /// A subnet's range or a port's address is no such thing.
    #[error("Neutron reports {0}, which cannot be parsed; nothing is decided on incomplete data")]
    Unreadable(String),
    /// There is no machine on the router's networks.
    #[error(
        "the router has {}, but no port of a machine is visible on its networks: the project or the rights are probably wrong; \
         if all machines are deleted, remove the routes by hand", so_many(*routes)
    )]
    Empty {
        /// Of the router.
        routes: usize,
    },
    /// Nova did not respond.
    #[error("cannot list the servers in Nova: {0}")]
    Nova(Error),
    /// Nova's list has servers without data.
    #[error(
        "Nova's list of servers is incomplete: {0}; servers of a cell that is down must not count as deleted"
    )]
    Partial(String),
    /// The Nodes could not be listed.
    #[error("cannot list the cluster's Nodes: {0}")]
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
            ObserveError::Inventory { cause, .. } | ObserveError::Nova(cause) => ObserveError::code_of(cause),
            ObserveError::Unreadable(_) | ObserveError::Partial(_) => "PartialInventory",
            ObserveError::Nodes(_) => "NodesUnavailable",
            ObserveError::Router(cause) if cause.is_unauthorized() || cause.is_credential_gone() => {
                "LoginFailed"
            }
            ObserveError::Router(_) => "OpenStackUnavailable",
        }
    }

    /// The reason if a part of the inventory cannot be read. A missing permission and a refused credential do not recover by themselves.
    pub(in crate::routes) fn code_of(cause: &Error) -> &'static str {
        if cause.is_permission_missing() {
            "Forbidden"
        } else if cause.is_unauthorized() || cause.is_credential_gone() {
            "LoginFailed"
        } else {
            "PartialInventory"
        }
    }

    /// The cloud's error, if it is one.
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
