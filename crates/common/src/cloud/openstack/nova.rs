//! Nova: servers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Cloud;
use super::error::Error;
use super::request::{ApiRequest, is_id};
use super::rights::Call;

/// A server. One in a cell that is down has the status `UNKNOWN` and neither name nor addresses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// Its ID.
    pub id: String,
    /// The project that it belongs to. An administrator's credential shows servers of other projects.
    #[serde(default)]
    pub tenant_id: Option<String>,
    /// Its name; None if its cell is down.
    #[serde(default)]
    pub name: Option<String>,
    /// `ACTIVE`, `SHUTOFF`, `DELETED`, `UNKNOWN`, …
    pub status: String,
    /// Its addresses by the name of the network; None if its cell is down.
    #[serde(default)]
    pub addresses: Option<BTreeMap<String, Vec<Address>>>,
}

/// An address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// The address.
    pub addr: String,
}

/// `spec.providerID` of a Node that is a server of OpenStack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProviderId<'a> {
    /// The region; empty unless openstack-cloud-controller-manager is told to write it.
    pub region: &'a str,
    /// The ID of the server.
    pub server: &'a str,
}

impl<'a> ProviderId<'a> {
    /// Reads `openstack:///ID` or `openstack://REGION/ID`, the forms of openstack-cloud-controller-manager (its
    /// `instanceIDFromProviderID`). None: it is empty, another cloud's, or its ID cannot be one ([`is_id`]).
    #[must_use]
    pub fn parse(id: &'a str) -> Option<ProviderId<'a>> {
        let (region, server) = id.strip_prefix("openstack://")?.split_once('/')?;
        is_id(server).then_some(ProviderId { region, server })
    }
}

impl Cloud {
    /// `GET /servers/detail` at microversion 2.69 (role `reader`): all of the project's servers, including those in cells
    /// that are down. Where there are more than Nova's `max_limit` (1000) that live, those of such cells are missing.
    ///
    /// # Errors
    /// [`Error::is_too_old`] if Nova is older than Stein, or in the catalogue without microversions alone. Those of every list.
    pub async fn servers(&self) -> Result<Vec<Server>, Error> {
        // Nova omits cells that are down as soon as a request has a limit, a marker, an order or a filter.
        self.list(ApiRequest::all(Call::Servers, &[]), "servers").await
    }

    /// `GET /servers/{id}` at microversion 2.69 (role `reader`); None if Nova says that there is none.
    ///
    /// # Errors
    /// As [`Cloud::servers`].
    pub async fn server(&self, id: &str) -> Result<Option<Server>, Error> {
        self.find(&ApiRequest::one(Call::Server, id), "server").await
    }
}

#[cfg(test)]
mod tests {
    use super::ProviderId;

    #[test]
    fn a_provider_id_names_a_server_with_or_without_a_region() {
        let read = |text| ProviderId::parse(text).map(|id| (id.region, id.server));
        assert_eq!(read("openstack:///abc-1"), Some(("", "abc-1")));
        assert_eq!(read("openstack://north/abc-1"), Some(("north", "abc-1")));
        for other in [
            "",
            "hcloud://1",
            "aws:///abc",
            "openstack://abc",
            "openstack:///",
            "openstack:///x?y",
            "openstack:///a/b",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}
