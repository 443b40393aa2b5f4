//! OpenStack: the few calls that are made, typed as slim as they are read.
//!
//! A [`Cloud`] is one project's view, through one [`Credentials`]: Keystone gives a token and a catalogue, and from there on
//! Neutron, Nova, Cinder and Octavia are spoken to. What is right for all of them:
//!
//! * A list is all of its pages or an error. A read is repeated while its error is one that passes; a write is not, except
//!   while no connection could be made. Whether a write that failed has acted is found out by reading.
//! * "Gone" is said by the service itself, in its own envelope. A 404 of a proxy, or of Keystone for the credential, is an error.
//! * One token serves all clones. It is renewed before it expires and when a service refuses it, by one caller while the
//!   others wait; a call is repeated once with the new one.
//! * Every call is a row of [`Call`]; `docs/openstack-rights.md` is made from it.
//!
//! | service  | since   | needed role |
//! |----------|---------|-------------|
//! | Keystone | v3      | none |
//! | Neutron  | v2.0    | `reader` to read, `member` to write; the router and its network must be the project's |
//! | Nova     | 2.69    | `reader` |
//! | Cinder   | v3      | `reader` to read, `member` to delete |
//! | Octavia  | v2      | `load-balancer_observer` to read, `load-balancer_member` to delete, or what the cloud has made of them |

mod catalog;
mod cinder;
mod cloud_conf;
mod clouds_yaml;
mod credentials;
mod endpoint_override;
mod error;
mod error_body;
mod gcfg;
mod keystone;
mod neutron;
mod nova;
mod octavia;
mod page;
mod request;
mod rights;
mod search;
mod service;
mod session;

use std::fmt;
use std::sync::Arc;

use prometheus::Registry;

pub use cinder::{Attachment, Snapshot, Volume};
pub use cloud_conf::CloudConf;
pub use credentials::{ConfigError, Credentials};
pub use error::Error;
pub use neutron::{
    AddressPair, FixedIp, FloatingIp, Gateway, Network, Port, Route, Router, SecurityGroup, Subnet,
};
pub use nova::{Address, Server};
pub use octavia::LoadBalancer;
pub use request::is_id;
pub use rights::{Call, Right, User};
pub use service::Service;

use super::http;
pub use super::http::Retry;

/// `cloud_api_requests_total` and `cloud_api_request_duration_seconds` with `cloud="openstack"`. A controller registers once and
/// passes it to every [`Cloud`]: clones count together.
#[derive(Clone, Debug)]
pub struct Metrics(http::Metrics);

impl Metrics {
    /// Registers both.
    ///
    /// # Errors
    /// When the registry already has them.
    pub fn register(registry: &Registry) -> Result<Metrics, prometheus::Error> {
        http::Metrics::register("openstack", registry).map(Metrics)
    }
}

/// A client of one project. Clones share the token and the connections.
#[derive(Clone)]
pub struct Cloud {
    shared: Arc<session::Shared>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cloud").field(self.shared.credentials()).finish()
    }
}

impl Cloud {
    /// Asks nothing yet: the first call logs in.
    ///
    /// # Errors
    /// When the authorities to trust cannot be read or `user_agent` is no header.
    pub fn new(credentials: &Credentials, user_agent: &str, metrics: &Metrics) -> Result<Cloud, Error> {
        Ok(Cloud { shared: Arc::new(session::Shared::new(credentials, user_agent, metrics)?) })
    }

    /// The project that the token is of. Logs in if need be: a way to find out whether the credential works.
    ///
    /// # Errors
    /// Those of the login: [`Error::is_unauthorized`], [`Error::is_credential_gone`], no answer.
    pub async fn project_id(&self) -> Result<String, Error> {
        Ok(self.shared.session().await?.token.project.clone())
    }

    /// Whether the catalogue lists a service in our region, or the login says where it is. False is for a cloud that does not have it.
    ///
    /// # Errors
    /// As [`Cloud::project_id`], and [`Error::is_no_service`] if it is listed, but not in a way that can be used: another
    /// interface, another version ([`Error::is_too_old`] if each of them is), several regions and none was named.
    pub async fn has_service(&self, service: Service) -> Result<bool, Error> {
        let session = self.shared.session().await?;
        match session.lists(service) {
            true => session.endpoint(service).map(|_| true),
            false => Ok(false),
        }
    }

    /// Whether servers that our Nova does not know may have ports in our Neutron, for the catalogue has a Nova in another region and
    /// no Neutron for that one alone. One Neutron with two URLs is not recognised.
    ///
    /// # Errors
    /// As [`Cloud::project_id`].
    pub async fn shares_neutron(&self) -> Result<bool, Error> {
        Ok(self.shared.session().await?.shares_neutron)
    }
}
