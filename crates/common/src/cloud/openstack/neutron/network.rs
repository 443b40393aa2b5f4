//! Networks.

use serde::{Deserialize, Serialize};

use crate::cloud::field::or_empty;
use crate::cloud::openstack::Cloud;
use crate::cloud::openstack::error::Error;
use crate::cloud::openstack::request::ApiRequest;
use crate::cloud::openstack::rights::Call;

/// A network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// Its ID.
    pub id: String,
    /// Its name; not unique, may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// Whose it is, in today's words.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
    /// The same in those of before 2016, which is all that some say.
    #[serde(default, deserialize_with = "or_empty", skip_serializing)]
    pub tenant_id: String,
    /// Whether other projects may use it.
    #[serde(default, deserialize_with = "or_empty")]
    pub shared: bool,
}

impl Network {
    /// The project that it belongs to: only the owner of a network sees the ports of other projects on it. Empty if the
    /// service does not say.
    #[must_use]
    pub fn owner(&self) -> &str {
        if self.project_id.is_empty() { &self.tenant_id } else { &self.project_id }
    }
}

impl Cloud {
    /// `GET /v2.0/networks/{id}` (role `reader`).
    ///
    /// # Errors
    /// [`Error::is_not_found`] if there is no such network in our sight; those of every read.
    pub async fn network(&self, id: &str) -> Result<Network, Error> {
        self.read(&ApiRequest::one(Call::Network, id), "network").await
    }
}
