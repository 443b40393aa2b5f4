//! Reads the target cluster.

use std::collections::BTreeSet;

use common::api::deorbit::Provider;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;

use super::kinds;
use super::pages::{Unreadable, get, list, version};
use super::snapshot::{Block, Cluster};
use crate::names;
use crate::settings::{Scope, Settings};

/// Reads everything that a plan needs. `provider`: of the Deorbit; `uid`: the Deorbit's, for its block; `blocked`: whether a block may
/// exist.
///
/// # Errors
/// The first list that could not be read whole.
pub async fn read(
    client: &Client,
    settings: &Settings,
    provider: Provider,
    uid: &str,
    blocked: bool,
) -> Result<Cluster, Unreadable> {
    let storage = "/apis/storage.k8s.io/v1";
    let drivers: BTreeSet<String> = match provider {
        Provider::OpenStack => BTreeSet::new(),
        Provider::Any => {
            let all = |one: kinds::Driver| Some(one.kept());
            list(client, &format!("{storage}/csidrivers"), all).await?.into_iter().collect()
        }
    };
    let scope = Scope::new(settings, provider, &drivers);
    // Snapshots and claims before what they are bound to: one that is bound in between is read as unbound, and again next time.
    let all = |one: kinds::Snapshot| Some(one.kept());
    let snapshots = or_none(list(client, &format!("{SNAPSHOTS}/volumesnapshots"), all).await)?;
    let ours = |one: kinds::Content| one.kept(scope);
    let contents = or_none(list(client, &format!("{SNAPSHOTS}/volumesnapshotcontents"), ours).await)?;
    let core = "/api/v1";
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", names::LEASES);
    Ok(Cluster {
        uid: match identity(client).await {
            Ok(uid) => Some(uid),
            Err(error) if error.is_forbidden() || matches!(error, Unreadable::Odd { .. }) => None,
            Err(error) => return Err(error),
        },
        snapshots,
        contents,
        claims: list(client, &format!("{core}/persistentvolumeclaims"), |one: kinds::Claim| {
            Some(one.kept(scope))
        })
        .await?,
        volumes: list(client, &format!("{core}/persistentvolumes"), |one: kinds::Volume| one.kept(scope))
            .await?,
        classes: list(client, &format!("{storage}/storageclasses"), |one: kinds::Class| one.kept(scope))
            .await?
            .into_iter()
            .collect(),
        services: list(client, &format!("{core}/services"), kinds::Service::kept).await?,
        ingresses: list(client, "/apis/networking.k8s.io/v1/ingresses", |one: kinds::Ingress| {
            Some(one.kept())
        })
        .await?,
        pods: list(client, &format!("{core}/pods"), kinds::Pod::kept).await?,
        attachments: if_permitted(
            list(client, &format!("{storage}/volumeattachments"), kinds::Attachment::kept).await,
        )?
        .into_iter()
        .flatten()
        .collect(),
        providers: if_permitted(list(client, &leases, |one: kinds::Lease| one.kept(scope)).await)?
            .unwrap_or_default(),
        nodes: if_permitted(
            list(client, &format!("{core}/nodes"), |one: kinds::Node| Some(one.kept())).await,
        )?,
        block: match block(client, uid).await {
            // A login without the right to read a block has no right to create one either.
            Err(error) if error.is_forbidden() && !blocked => Block { forbidden: true, ..Block::default() },
            other => other?,
        },
        drivers,
    })
}

/// API path of VolumeSnapshots.
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1";

/// A list that only informs; None where it is forbidden: the cluster is not unavailable because of it.
fn if_permitted<T>(listed: Result<Vec<T>, Unreadable>) -> Result<Option<Vec<T>>, Unreadable> {
    match listed {
        Err(error) if error.is_forbidden() || error.is_no_kind() => Ok(None),
        other => other.map(Some),
    }
}

/// The UID of the namespace kube-system: no two clusters have the same.
///
/// # Errors
/// It cannot be read.
pub async fn identity(client: &Client) -> Result<String, Unreadable> {
    let path = format!("/api/v1/namespaces/{}", names::CLUSTER_IDENTITY);
    match version(client, &path).await? {
        Some(found) => Ok(found.uid),
        None => {
            let why = "the namespace does not exist, or this is no Kubernetes API server".to_owned();
            Err(Unreadable::Odd { what: path, why })
        }
    }
}

fn or_none<T>(listed: Result<Vec<T>, Unreadable>) -> Result<Vec<T>, Unreadable> {
    match listed {
        Err(error) if error.is_no_kind() => Ok(Vec::new()),
        other => other,
    }
}

/// Reads the objects of a Deorbit's block that exist.
///
/// # Errors
/// Any part of it that could not be read.
pub async fn block(client: &Client, uid: &str) -> Result<Block, Unreadable> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let name = names::block(uid);
    let there = async |plural: &str| version(client, &format!("{group}/{plural}/{name}")).await;
    let served: APIResourceList = get(client, group).await?;
    Ok(Block {
        // From 1.30 on.
        policies: served.resources.iter().any(|one| one.name == "validatingadmissionpolicies"),
        forbidden: false,
        policy: there("validatingadmissionpolicies").await?,
        binding: there("validatingadmissionpolicybindings").await?,
        webhook: there("validatingwebhookconfigurations").await?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controller::tests::server as api_server;

    /// An API server with empty lists, that refuses this path.
    fn server(forbidden: &'static str) -> Client {
        api_server(move |request| {
            Some(match request.uri().path() {
                path if path.ends_with(forbidden) => {
                    (403, json!({"kind": "Status", "status": "Failure", "code": 403}))
                }
                "/api/v1/namespaces/kube-system" => {
                    (200, json!({"metadata": {"name": "kube-system", "uid": "u", "resourceVersion": "1"}}))
                }
                "/apis/admissionregistration.k8s.io/v1" => (200, json!({"resources": []})),
                path if path.contains("perimeter.dev") => {
                    (404, json!({"kind": "Status", "status": "Failure", "code": 404}))
                }
                _ => (200, json!({"items": []})),
            })
        })
    }

    /// Without the drivers it would be unknown which pending claims get a volume.
    #[tokio::test]
    async fn csi_drivers_are_read_with_any_provider_and_must_be_readable() {
        for (provider, is_refused) in [(Provider::OpenStack, false), (Provider::Any, true)] {
            let forbidden = read(&server("/csidrivers"), &Settings::default(), provider, "run", false).await;
            assert_eq!(forbidden.is_err_and(|error| !error.unread().is_outage()), is_refused, "{provider:?}");
        }
    }

    #[tokio::test]
    async fn a_forbidden_list_that_only_informs_is_no_refusal() {
        for (path, refused) in [
            ("/volumeattachments", false),
            ("/leases", false),
            ("/nodes", false),
            ("/pods", true),
            ("/services", true),
        ] {
            let cluster = read(&server(path), &Settings::default(), Provider::OpenStack, "run", false).await;
            match cluster {
                Ok(cluster) => {
                    assert!(!refused && cluster.uid.as_deref() == Some("u"), "{path}");
                    assert_eq!(cluster.nodes.is_none(), path == "/nodes", "{path}");
                }
                Err(error) => assert!(refused && !error.unread().is_outage(), "{path}: {error}"),
            }
        }
    }
}
