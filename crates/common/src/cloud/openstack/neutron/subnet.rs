//! Subnets.

use serde::{Deserialize, Serialize};

use super::LIMIT;
use crate::cloud::openstack::Cloud;
use crate::cloud::openstack::error::Error;
use crate::cloud::openstack::request::ApiRequest;
use crate::cloud::openstack::rights::Call;

/// A subnet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    /// Its ID.
    pub id: String,
    /// The network that it is part of.
    pub network_id: String,
    /// Its range.
    pub cidr: String,
}

impl Cloud {
    /// `GET /v2.0/subnets?network_id=` (role `reader`): the subnets of a network that is ours or shared with us.
    ///
    /// # Errors
    /// When `network` is empty; those of every list.
    pub async fn subnets_of_network(&self, network: &str) -> Result<Vec<Subnet>, Error> {
        // An empty filter is none: it would bring all subnets of the project.
        if network.is_empty() {
            return Err(Error::setup("network GET /subnets", "network_id is empty"));
        }
        let query =
            [("network_id", network), ("fields", "id"), ("fields", "network_id"), ("fields", "cidr"), LIMIT];
        self.list(ApiRequest::all(Call::Subnets, &query), "subnets").await
    }
}
