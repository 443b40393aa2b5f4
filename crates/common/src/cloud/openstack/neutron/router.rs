//! Routers and their routes.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::LIMIT;
use crate::cloud::openstack::Cloud;
use crate::cloud::openstack::error::Error;
use crate::cloud::openstack::request::ApiRequest;
use crate::cloud::openstack::rights::Call;
use crate::cloud::or_empty;

/// A route as Neutron wrote it. The texts are kept to the letter: Neutron compares them as texts when it removes one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Route {
    /// A CIDR.
    pub destination: String,
    /// An address.
    pub nexthop: String,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} via {}", self.destination, self.nexthop)
    }
}

/// A router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Router {
    /// Its ID.
    pub id: String,
    /// Its name; not unique, may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// ID of the project that owns it.
    #[serde(default, deserialize_with = "or_empty")]
    pub project_id: String,
    /// The same under its name of before 2016; some clouds have only this field.
    #[serde(default, deserialize_with = "or_empty", skip_serializing)]
    pub tenant_id: String,
    /// Grows with each change of the router, its routes and its interfaces; None where Neutron lacks `standard-attr-revisions`.
    #[serde(default)]
    pub revision_number: Option<u64>,
    /// All of its static routes, in Neutron's order, which means nothing.
    #[serde(default, deserialize_with = "or_empty")]
    pub routes: Vec<Route>,
    /// The external network that it is attached to; None if to none.
    #[serde(default)]
    pub external_gateway_info: Option<Gateway>,
}

impl Router {
    /// The project that it belongs to; empty if the service does not say.
    #[must_use]
    pub fn owner(&self) -> &str {
        if self.project_id.is_empty() { &self.tenant_id } else { &self.project_id }
    }
}

/// The external side of a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// The external network.
    #[serde(default, deserialize_with = "or_empty")]
    pub network_id: String,
}

impl Cloud {
    /// `GET /v2.0/routers/{id}` (role `reader`).
    ///
    /// # Errors
    /// [`Error::is_not_found`] if no such router is visible; those of every read.
    pub async fn router(&self, id: &str) -> Result<Router, Error> {
        self.object(&ApiRequest::one(Call::Router, id), "router").await
    }

    /// `GET /v2.0/routers` (role `reader`): all of the project's routers.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn routers(&self) -> Result<Vec<Router>, Error> {
        let project = self.project_id().await?;
        let query = [("project_id", project.as_str()), LIMIT];
        self.list(ApiRequest::all(Call::Routers, &query), "routers").await
    }

    /// `GET /v2.0/routers?name=` (role `reader`): the project's routers of exactly this name, which several may have.
    ///
    /// # Errors
    /// When `name` is empty; those of every list.
    pub async fn routers_named(&self, name: &str) -> Result<Vec<Router>, Error> {
        // An empty filter is none: it would bring all routers of the project.
        if name.is_empty() {
            return Err(Error::setup("network GET /routers", "name is empty"));
        }
        let project = self.project_id().await?;
        let query = [("name", name), ("project_id", project.as_str()), LIMIT];
        let mut routers: Vec<Router> = self.list(ApiRequest::all(Call::Routers, &query), "routers").await?;
        // Some databases of Neutron compare names without case.
        routers.retain(|router| router.name == name && router.owner() == project);
        Ok(routers)
    }

    /// `PUT /v2.0/routers/{id}/remove_extraroutes` (role `member`; extension `extraroute-atomic`): removes these pairs of
    /// destination and next hop and leaves all others. Missing pairs are accepted, so read the response, which is
    /// the router as it is now. With `revision`, another one by now is [`Error::is_precondition_failed`]; it is compared only
    /// if there is something to remove.
    ///
    /// # Errors
    /// Without routes: nothing is sent. [`Error::is_bad_request`] of kind `InvalidRoutes` if a route that *remains* is not
    /// valid. Those of every write.
    pub async fn remove_extraroutes(
        &self,
        router: &str,
        routes: &[Route],
        revision: Option<u64>,
    ) -> Result<Router, Error> {
        self.change_routes(Call::RemoveExtraroutes, router, routes, revision).await
    }

    /// `PUT /v2.0/routers/{id}/add_extraroutes` (role `member`; extension `extraroute-atomic`): adds these routes beside all
    /// others, also beside one of the same destination. Those that are there are accepted. All or none. `revision` as above.
    ///
    /// # Errors
    /// Without routes: nothing is sent. [`Error::is_bad_request`] of kind `InvalidRoutes`; `RoutesExhausted` (400) or
    /// `OverQuota` (409) if there would be too many. Those of every write.
    pub async fn add_extraroutes(
        &self,
        router: &str,
        routes: &[Route],
        revision: Option<u64>,
    ) -> Result<Router, Error> {
        self.change_routes(Call::AddExtraroutes, router, routes, revision).await
    }

    /// `PUT /v2.0/routers/{id}` (role `member`): these routes instead of all others; an empty list removes all. Without
    /// `revision` (extension `revision-if-match`, else 400) a route that another client adds at the same time is lost.
    ///
    /// # Errors
    /// [`Error::is_precondition_failed`]; [`Error::is_bad_request`] of kind `InvalidRoutes`. Those of every write.
    pub async fn replace_routes(
        &self,
        router: &str,
        routes: &[Route],
        revision: Option<u64>,
    ) -> Result<Router, Error> {
        let body = json!({"router": {"routes": routes}});
        self.object(&ApiRequest::one(Call::ReplaceRoutes, router).body(body, revision), "router").await
    }

    async fn change_routes(
        &self,
        call: Call,
        router: &str,
        routes: &[Route],
        revision: Option<u64>,
    ) -> Result<Router, Error> {
        let whole = |route: &Route| !route.destination.is_empty() && !route.nexthop.is_empty();
        if routes.is_empty() || !routes.iter().all(whole) {
            let right = call.right();
            let why = "no routes, or one without destination or next hop, for which Neutron fails with 500";
            return Err(Error::setup(
                format!("{} {} {}", right.service, right.method, right.path.replace("{id}", router)),
                why,
            ));
        }
        // Built from texts alone: no field of it can be null.
        let body = json!({"router": {"routes": routes}});
        self.object(&ApiRequest::one(call, router).body(body, revision), "router").await
    }
}
