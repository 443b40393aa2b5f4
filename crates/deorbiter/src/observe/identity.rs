//! The Secret with the credentials of a Deorbit: one of its own namespace, or the one of an OpenStackClusterIdentity of Cluster API
//! Provider OpenStack.

use common::api::IdentityRef;
use common::api::identity::IdentityKind;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::core::{Selector, SelectorExt as _};
use kube::{Client, ResourceExt as _};
use serde::Deserialize;

use super::snapshot::Unread;
use crate::error::{Error, NoClient};
use crate::names::INFRASTRUCTURE_GROUP;

/// spec of an OpenStackClusterIdentity.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    secret_ref: SecretRef,
    namespace_selector: Option<LabelSelector>,
}

#[derive(Deserialize)]
struct SecretRef {
    namespace: String,
    name: String,
}

/// Namespace and name of the Secret. The selector of an OpenStackClusterIdentity applies to the Deorbit's namespace, as the provider
/// applies it to that of an OpenStackCluster: without a selector every namespace may use the identity.
///
/// # Errors
/// The identity cannot be read, or the namespace may not use it.
pub async fn secret_of(
    client: &Client,
    namespace: &str,
    identity: &IdentityRef,
) -> Result<(String, String), NoClient> {
    let name = &identity.name;
    if identity.kind == IdentityKind::Secret {
        return Ok((namespace.to_owned(), name.clone()));
    }
    let Spec { secret_ref, namespace_selector } = read(client, name).await?;
    if let Some(selector) = namespace_selector {
        let selector = Selector::try_from(selector).map_err(|error| {
            refused(format!("OpenStackClusterIdentity {name}: namespaceSelector: {error}"))
        })?;
        let found = Api::<Namespace>::all(client.clone()).get_metadata(namespace).await;
        let found = found.map_err(|error| unreadable(&format!("namespace {namespace}"), error))?;
        if !selector.matches(found.labels()) {
            return Err(refused(format!(
                "namespace {namespace} may not use OpenStackClusterIdentity {name}: its namespaceSelector does not select the namespace"
            )));
        }
    }
    Ok((secret_ref.namespace, secret_ref.name))
}

async fn read(client: &Client, name: &str) -> Result<Spec, NoClient> {
    // The only version that the provider has.
    let kind = GroupVersionKind::gvk(INFRASTRUCTURE_GROUP, "v1alpha1", "OpenStackClusterIdentity");
    let kind = ApiResource::from_gvk_with_plural(&kind, "openstackclusteridentities");
    let what = format!("OpenStackClusterIdentity {name}");
    let found = Api::<DynamicObject>::all_with(client.clone(), &kind).get(name).await;
    let mut found = found.map_err(|error| unreadable(&what, error))?;
    let spec = found.data.get_mut("spec").map(serde_json::Value::take).unwrap_or_default();
    serde_json::from_value(spec).map_err(|error| refused(format!("{what}: spec: {error}")))
}

fn refused(why: String) -> NoClient {
    NoClient::Unread(Unread::Refused(why))
}

fn unreadable(what: &str, error: kube::Error) -> NoClient {
    match error {
        kube::Error::Api(status) if status.code == 404 => refused(format!("{what} does not exist")),
        kube::Error::Api(status) if status.code == 403 => refused(format!(
            "this program has no right to read {what}: apply cluster-identity-rights.yaml (docs/deorbiter.md)"
        )),
        cause => NoClient::Management(Error::kubernetes(format!("read {what}"))(cause)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controller::tests::server as api_server;

    /// An API server with the identities `open`, `none` (an empty selector), `team`, `other` and `odd`, and the namespace `clusters`.
    fn server() -> Client {
        api_server(|request| {
            let path = request.uri().path();
            let identity = |selector: Value| {
                let mut spec = json!({ "secretRef": { "namespace": "capo-system", "name": "shared" } });
                if !selector.is_null() {
                    spec["namespaceSelector"] = selector;
                }
                json!({ "metadata": { "name": "i" }, "spec": spec })
            };
            let labels = |value: &str| json!({ "matchLabels": { "team": value } });
            let body = match path
                .strip_prefix("/apis/infrastructure.cluster.x-k8s.io/v1alpha1/openstackclusteridentities/")
            {
                Some("open") => Some(identity(Value::Null)),
                Some("none") => Some(identity(json!({}))),
                Some("team") => Some(identity(labels("a"))),
                Some("other") => Some(identity(labels("b"))),
                Some("odd") => Some(identity(
                    json!({ "matchExpressions": [{ "key": "team", "operator": "Like", "values": ["a"] }] }),
                )),
                Some("empty") => Some(json!({ "metadata": { "name": "empty" }, "spec": {} })),
                None if path == "/api/v1/namespaces/clusters" => {
                    Some(json!({ "metadata": { "name": "clusters", "labels": { "team": "a" } } }))
                }
                _ => None,
            };
            Some(match body {
                _ if path.ends_with("/forbidden") => {
                    (403, json!({ "kind": "Status", "code": 403, "message": "no" }))
                }
                _ if path.ends_with("/broken") => {
                    (500, json!({ "kind": "Status", "code": 500, "message": "no leader" }))
                }
                Some(body) => (200, body),
                None => (404, json!({ "kind": "Status", "code": 404, "message": "not found" })),
            })
        })
    }

    async fn secret(kind: &str, name: &str) -> Result<(String, String), String> {
        let identity = serde_json::from_value(json!({ "type": kind, "name": name })).unwrap();
        secret_of(&server(), "clusters", &identity).await.map_err(|error| match error {
            NoClient::Unread(Unread::Refused(why)) => why,
            other => format!("{other:?}"),
        })
    }

    #[tokio::test]
    async fn an_outage_of_the_management_cluster_is_no_refusal() {
        let why = secret("ClusterIdentity", "broken").await.unwrap_err();
        assert!(why.starts_with("Management(") && why.contains("no leader"), "{why}");
    }

    #[tokio::test]
    async fn a_secret_is_in_the_deorbits_namespace_and_a_cluster_identity_names_its_own() {
        let own = Ok(("clusters".to_owned(), "open".to_owned()));
        assert_eq!(secret("Secret", "open").await, own);
        let shared = Ok(("capo-system".to_owned(), "shared".to_owned()));
        for name in ["open", "none", "team"] {
            assert_eq!(secret("ClusterIdentity", name).await, shared, "{name}");
        }
    }

    #[tokio::test]
    async fn a_namespace_that_is_not_selected_is_refused() {
        let why = secret("ClusterIdentity", "other").await.unwrap_err();
        assert_eq!(
            why,
            "namespace clusters may not use OpenStackClusterIdentity other: its namespaceSelector does not select the namespace"
        );
    }

    #[tokio::test]
    async fn an_identity_that_cannot_be_used_is_refused_with_the_reason() {
        for (name, words) in [
            ("missing", "OpenStackClusterIdentity missing does not exist"),
            ("forbidden", "no right to read OpenStackClusterIdentity forbidden"),
            ("odd", "OpenStackClusterIdentity odd: namespaceSelector: "),
            ("empty", "OpenStackClusterIdentity empty: spec: missing field `secretRef`"),
        ] {
            let why = secret("ClusterIdentity", name).await.unwrap_err();
            assert!(why.contains(words), "{why}");
        }
    }
}
