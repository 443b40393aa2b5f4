//! The router of a policy: by its ID, by its name, or as Cluster API's OpenStackCluster has it.
//!
//! A name can lead to another router later, such as that of a new cluster. So a policy keeps the router that was found first, and
//! another one is a refusal.

use common::api::routegc::RouteGCSpec;
use common::cloud::openstack::{Cloud, Router};
use common::cluster::error_chain;
use common::routes::ObserveError;
use common::routes::route::first_of;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;

use crate::error::Error;

/// API group of OpenStackCluster, which it shares with the other infrastructure providers.
const GROUP: &str = "infrastructure.cluster.x-k8s.io";

/// Versions of OpenStackCluster, in the order in which they are tried. Cluster API Provider OpenStack has v1beta1 since 0.10 and adds
/// v1beta2 in 0.15. `status.router.id` is the same in both.
const VERSIONS: [&str; 2] = ["v1beta1", "v1beta2"];

/// Why the router of a policy is not known, or refused. Each message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouterError {
    /// No router has the name.
    #[error(
        "no router of the project is named {0:?}, see `openstack router list`: rename the router, or create another RouteGC \
         with the right name or login"
    )]
    NotFound(String),
    /// Several routers have the name.
    #[error(
        "{} routers of the project are named {name:?}: {}; rename the others, or create another RouteGC with routerID",
        ids.len(), first_of(ids.iter().cloned())
    )]
    Ambiguous {
        /// The name.
        name: String,
        /// Their IDs, in order.
        ids: Vec<String>,
    },
    /// The name leads to another router than the one that was found first.
    #[error(
        "{by} was router {recorded} and is router {found} now, so nothing is removed from either; if {found} is the right \
         one, delete this RouteGC and create it again"
    )]
    Replaced {
        /// `the router named "nodes"`
        by: String,
        /// The ID that was found first.
        recorded: String,
        /// The ID that was found now.
        found: String,
    },
    /// The OpenStackCluster could not be read.
    #[error("cannot read OpenStackCluster {place}: {why}")]
    Cluster {
        /// Its namespace and name.
        place: String,
        /// Why, and what to do.
        why: String,
    },
    /// The OpenStackCluster has no router.
    #[error(
        "OpenStackCluster {0} has no status.router.id: wait until it is provisioned; if it uses an existing network, Cluster \
         API does not know the router: create another RouteGC with routerID or routerName"
    )]
    NoneOfCluster(String),
}

impl RouterError {
    /// One CamelCase word of a closed set: the reason of the condition Ready.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            RouterError::NotFound(_) | RouterError::NoneOfCluster(_) => "RouterNotFound",
            RouterError::Ambiguous { .. } => "RouterAmbiguous",
            RouterError::Replaced { .. } => "RouterReplaced",
            RouterError::Cluster { .. } => "OpenStackClusterUnavailable",
        }
    }
}

/// The ID of the policy's router. `recorded` is the one that was found first.
///
/// # Errors
/// The router is not known, or it is not the one that was found first.
pub async fn resolve(
    cloud: &Cloud,
    client: &Client,
    namespace: &str,
    spec: &RouteGCSpec,
    recorded: Option<&str>,
) -> Result<String, Error> {
    let (by, found) = match (&spec.router_id, &spec.router_name, &spec.open_stack_cluster_ref) {
        (Some(id), None, None) => return Ok(id.clone()),
        (None, Some(name), None) => {
            let routers = cloud.routers_named(name).await.map_err(ObserveError::Router)?;
            (format!("the router named {name:?}"), only(name, &routers)?)
        }
        (None, None, Some(cluster)) => {
            let by = format!("the router of OpenStackCluster {namespace}/{}", cluster.name);
            (by, of_cluster(client, namespace, &cluster.name).await?)
        }
        _ => {
            let why = "spec: set exactly one of routerID, routerName and openStackClusterRef";
            return Err(Error::Policy(why.to_owned()));
        }
    };
    Ok(unchanged(by, found, recorded)?)
}

/// The only router of a name.
fn only(name: &str, routers: &[Router]) -> Result<String, RouterError> {
    match routers {
        [] => Err(RouterError::NotFound(name.to_owned())),
        [router] => Ok(router.id.clone()),
        several => {
            let mut ids: Vec<String> = several.iter().map(|router| router.id.clone()).collect();
            // In Neutron's order, the same routers would be another message each time.
            ids.sort_unstable();
            Err(RouterError::Ambiguous { name: name.to_owned(), ids })
        }
    }
}

/// Refuses another router than the one that was found first.
fn unchanged(by: String, found: String, recorded: Option<&str>) -> Result<String, RouterError> {
    match recorded {
        Some(recorded) if !recorded.eq_ignore_ascii_case(&found) => {
            Err(RouterError::Replaced { by, recorded: recorded.to_owned(), found })
        }
        _ => Ok(found),
    }
}

/// The router of an OpenStackCluster, read from the API server.
async fn of_cluster(client: &Client, namespace: &str, name: &str) -> Result<String, RouterError> {
    let place = format!("{namespace}/{name}");
    let unavailable = |why: String| RouterError::Cluster { place: place.clone(), why };
    for version in VERSIONS {
        let kind = GroupVersionKind::gvk(GROUP, version, "OpenStackCluster");
        let resource = ApiResource::from_gvk_with_plural(&kind, "openstackclusters");
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
        match api.get(name).await {
            Ok(cluster) => {
                let id = cluster.data.pointer("/status/router/id").and_then(Value::as_str);
                let id = id.filter(|id| !id.is_empty()).map(str::to_owned);
                return id.ok_or_else(|| RouterError::NoneOfCluster(place.clone()));
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                // The API server names an object that does not exist, and responds without a name if it does not serve the version.
                if status.details.is_some_and(|details| details.name == name) {
                    return Err(unavailable(
                        "it does not exist; if its cluster was deleted, delete this RouteGC".to_owned(),
                    ));
                }
            }
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let why = "routegc has no permission to get it: add the component routegc-cluster-api";
                return Err(unavailable(why.to_owned()));
            }
            Err(error) => return Err(unavailable(error_chain(&error))),
        }
    }
    Err(unavailable(format!(
        "the API server serves this kind neither in {GROUP}/{}: install Cluster API Provider OpenStack, or create another \
         RouteGC with routerID or routerName",
        VERSIONS.join(" nor in ")
    )))
}

#[cfg(test)]
mod tests {
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    fn routers(ids: &[&str]) -> Vec<Router> {
        ids.iter().map(|id| serde_json::from_value(json!({ "id": id, "name": "nodes" })).unwrap()).collect()
    }

    #[test]
    fn a_name_leads_to_its_only_router() {
        let only =
            |ids: &[&str]| only("nodes", &routers(ids)).map_err(|error| (error.code(), error.to_string()));
        assert_eq!(only(&["r-1"]), Ok("r-1".to_owned()));
        let (code, text) = only(&[]).unwrap_err();
        assert!(
            code == "RouterNotFound" && text.contains(r#"named "nodes", see `openstack router list`"#),
            "{text}"
        );
        let (code, text) = only(&["r-2", "r-1"]).unwrap_err();
        assert!(
            code == "RouterAmbiguous"
                && text.contains(r#"2 routers of the project are named "nodes": r-1, r-2"#),
            "{text}"
        );
        assert_eq!(only(&["r-1", "r-2"]).unwrap_err().1, text, "the order is Neutron's, and not a change");
    }

    #[test]
    fn another_router_than_the_recorded_one_is_refused() {
        for (recorded, found, expected) in [
            (None, "r-1", Ok("r-1")),
            (Some("r-1"), "r-1", Ok("r-1")),
            (Some("r-1"), "R-1", Ok("R-1")),
            (Some("r-1"), "r-2", Err("RouterReplaced")),
        ] {
            let result = unchanged("the router named \"nodes\"".to_owned(), found.to_owned(), recorded);
            assert_eq!(result.as_deref().map_err(|error| error.code()), expected, "{recorded:?} {found}");
        }
        let refused = unchanged("x".to_owned(), "r-2".to_owned(), Some("r-1")).unwrap_err().to_string();
        assert!(
            refused.starts_with("x was router r-1 and is router r-2 now")
                && refused.contains("create it again"),
            "{refused}"
        );
    }

    /// A client of an API server that responds to each version with its own status and body.
    fn client(responses: [(u16, String); 2]) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path();
            let version = VERSIONS.iter().position(|version| {
                path == format!("/apis/{GROUP}/{version}/namespaces/ns/openstackclusters/prod")
            });
            let (code, body) = &responses[version.unwrap()];
            std::future::ready(
                http::Response::builder().status(*code).body(Body::from(body.clone().into_bytes())),
            )
        });
        Client::new(service, "default")
    }

    fn failure(code: u16, reason: &str) -> (u16, String) {
        let details = json!({ "name": "prod", "group": GROUP, "kind": "openstackclusters" });
        let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "no", "reason": reason, "details": details, "code": code });
        (code, status.to_string())
    }

    fn cluster(version: &str, status: Value) -> (u16, String) {
        let object = json!({ "apiVersion": format!("{GROUP}/{version}"), "kind": "OpenStackCluster",
            "metadata": { "name": "prod", "namespace": "ns" }, "status": status });
        (200, object.to_string())
    }

    #[tokio::test]
    async fn the_router_of_an_openstackcluster_is_read_in_the_version_that_is_served() {
        let unserved = || (404, "404 page not found\n".to_owned());
        let router = json!({ "router": { "id": "r-1", "name": "k8s-clusterapi-cluster-ns-prod" } });
        for (first, second, expected) in [
            (cluster("v1beta1", router.clone()), unserved(), Ok("r-1")),
            (unserved(), cluster("v1beta2", router.clone()), Ok("r-1")),
            (
                cluster("v1beta1", json!({})),
                cluster("v1beta2", router.clone()),
                Err(("RouterNotFound", "existing network")),
            ),
            (
                cluster("v1beta1", json!({ "router": { "id": "" } })),
                unserved(),
                Err(("RouterNotFound", "provisioned")),
            ),
            (
                failure(404, "NotFound"),
                cluster("v1beta2", router.clone()),
                Err(("OpenStackClusterUnavailable", "does not exist")),
            ),
            (
                failure(403, "Forbidden"),
                cluster("v1beta2", router),
                Err(("OpenStackClusterUnavailable", "routegc-cluster-api")),
            ),
            (failure(500, "InternalError"), unserved(), Err(("OpenStackClusterUnavailable", "no"))),
            (unserved(), unserved(), Err(("OpenStackClusterUnavailable", "v1beta1 nor in v1beta2: install"))),
        ] {
            let context = format!("{first:?} {second:?}");
            let result = of_cluster(&client([first, second]), "ns", "prod").await;
            match (result, expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{context}"),
                (Err(error), Err((code, part))) => {
                    assert!(error.code() == code && error.to_string().contains(part), "{error}: {context}");
                    assert!(error.to_string().contains("OpenStackCluster ns/prod"), "{error}");
                }
                (result, _) => panic!("{result:?}: {context}"),
            }
        }
    }
}
