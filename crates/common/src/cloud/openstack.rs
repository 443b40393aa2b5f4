//! OpenStack: the calls that the controllers use, with only the fields that they read.
//!
//! A [`Cloud`] is a client of one project, with one [`Credentials`]: Keystone issues a token with a catalogue, which has the endpoints
//! of Neutron, Nova, Cinder and Octavia. Keystone itself is the one of the login. For all of them:
//!
//! * A list is complete or an error. A read is retried after a transient error. A write is retried only while no connection can be
//!   made. The caller reads the object to find out whether a failed write has acted.
//! * An object is gone if the service itself reports that, in its own error body. A 404 of a proxy, or of Keystone for the
//!   credential, is an error.
//! * All clones share one token. One caller renews it before it expires or when a service refuses it, while the others wait. A
//!   refused call is repeated once with the new token.
//! * Every call is a row of [`Call`]; `docs/openstack-rights.md` is made from it.
//!
//! | service  | since   | needed role |
//! |----------|---------|-------------|
//! | Keystone | v3      | none |
//! | Neutron  | v2.0    | `reader` to read, `member` to write; the router and its network must be the project's |
//! | Nova     | 2.69    | `reader` |
//! | Cinder   | v3      | `reader` to read, `member` to delete |
//! | Octavia  | v2      | `load-balancer_observer` to read, `load-balancer_member` to delete, or the cloud's own equivalents |

mod application_credential;
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
mod kubernikus;
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

pub use application_credential::ApplicationCredential;
pub use cinder::{Snapshot, Volume};
pub use cloud_conf::CloudConf;
pub use credentials::{ConfigError, Credentials};
pub use error::Error;
pub use neutron::{
    AddressPair, FixedIp, FloatingIp, Gateway, Network, Port, Route, Router, SecurityGroup, Subnet,
};
pub use nova::{Address, ProviderId, Server};
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
    /// Sends nothing yet: the first call logs in.
    ///
    /// # Errors
    /// When the authorities to trust cannot be read or `user_agent` is no header.
    pub fn new(credentials: &Credentials, user_agent: &str, metrics: &Metrics) -> Result<Cloud, Error> {
        Ok(Cloud { shared: Arc::new(session::Shared::new(credentials, user_agent, metrics)?) })
    }

    /// The project of the token. Logs in if necessary, so it also checks the credential.
    ///
    /// # Errors
    /// Those of the login: [`Error::is_unauthorized`], [`Error::is_credential_gone`], no response.
    pub async fn project_id(&self) -> Result<String, Error> {
        Ok(self.shared.session().await?.token.project.clone())
    }

    /// The region that the credentials name, if they name one. Without a name the catalogue has each service once.
    #[must_use]
    pub fn region(&self) -> Option<&str> {
        self.shared.credentials().region.as_deref()
    }

    /// Whether the catalogue lists a service in our region, or the credentials override its endpoint. False if the cloud does not have
    /// it.
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

    /// Whether servers that our Nova does not know may have ports in our Neutron: the catalogue has a Nova in another region, and no
    /// Neutron for that region alone. One Neutron with two URLs is not recognised.
    ///
    /// # Errors
    /// As [`Cloud::project_id`].
    pub async fn shares_neutron(&self) -> Result<bool, Error> {
        Ok(self.shared.session().await?.shares_neutron)
    }
}
