//! Reads the target cluster.

use kube::Client;

use super::kinds;
use super::pages::{Unreadable, get, list, version};
use super::snapshot::{Cluster, Freeze, SnapshotApi};
use crate::names;
use crate::settings::Settings;

/// Reads everything that a plan needs. `uid`: of the Deorbit, for its freeze; `frozen`: whether its status says that a freeze may
/// exist.
///
/// # Errors
/// The first list that could not be read whole.
pub async fn read(
    client: &Client,
    settings: &Settings,
    uid: &str,
    frozen: bool,
) -> Result<Cluster, Unreadable> {
    let api = snapshot_api(client).await?;
    let (mut snapshots, mut contents) = (Vec::new(), Vec::new());
    if let Some(api) = api {
        // Snapshots and claims before what they are bound to: one that is bound in between is read as unbound, and again next time.
        let group = format!("{SNAPSHOTS}/{}", api.word());
        let all = |one: kinds::Snapshot| Some(one.kept());
        snapshots = or_none(list(client, &format!("{group}/volumesnapshots"), all).await)?;
        let ours = |one: kinds::Content| one.kept(settings);
        contents = or_none(list(client, &format!("{group}/volumesnapshotcontents"), ours).await)?;
    }
    Ok(Cluster {
        uid: match identity(client).await {
            Ok(uid) => Some(uid),
            Err(error) if error.is_forbidden() || matches!(error, Unreadable::Odd { .. }) => None,
            Err(error) => return Err(error),
        },
        snapshot_api: api.unwrap_or_default(),
        snapshots,
        contents,
        claims: list(client, "/api/v1/persistentvolumeclaims", |one: kinds::Claim| Some(one.kept())).await?,
        volumes: list(client, "/api/v1/persistentvolumes", |one: kinds::Volume| one.kept(settings)).await?,
        classes: list(client, "/apis/storage.k8s.io/v1/storageclasses", |one: kinds::Class| {
            one.kept(settings)
        })
        .await?
        .into_iter()
        .collect(),
        services: list(client, "/api/v1/services", kinds::Service::kept).await?,
        ingresses: list(client, "/apis/networking.k8s.io/v1/ingresses", |one: kinds::Ingress| {
            Some(one.kept())
        })
        .await?,
        pods: list(client, "/api/v1/pods", kinds::Pod::kept).await?,
        attachments: list(client, "/apis/storage.k8s.io/v1/volumeattachments", kinds::Attachment::kept)
            .await?
            .into_iter()
            .collect(),
        cleaners: match list(
            client,
            &format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", names::LEASES),
            |one: kinds::Lease| one.kept(settings),
        )
        .await
        {
            // Leases are a hint only: without them the cluster is not unavailable.
            Err(error) if error.is_forbidden() || error.is_no_kind() => Vec::new(),
            other => other?,
        },
        freeze: match freeze(client, uid).await {
            // A login without the right to read a freeze has no right to create one either.
            Err(error) if error.is_forbidden() && !frozen => Freeze { forbidden: true, ..Freeze::default() },
            other => other?,
        },
    })
}

/// API path of the group that serves VolumeSnapshots.
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io";

#[derive(serde::Deserialize)]
struct Group {
    versions: Vec<Version>,
}

#[derive(serde::Deserialize)]
struct Version {
    version: String,
}

/// In which version the cluster serves VolumeSnapshots; None where it has no such kind.
async fn snapshot_api(client: &Client) -> Result<Option<SnapshotApi>, Unreadable> {
    let group: Group = match get(client, SNAPSHOTS).await {
        Ok(group) => group,
        Err(error) if error.is_no_kind() => return Ok(None),
        // A login without the right to discover versions may still have the right to list.
        Err(error) if error.is_forbidden() => return Ok(Some(SnapshotApi::V1)),
        Err(error) => return Err(error),
    };
    let served: Vec<&str> = group.versions.iter().map(|one| one.version.as_str()).collect();
    let known = [SnapshotApi::V1, SnapshotApi::V1beta1];
    match known.into_iter().find(|api| served.contains(&api.word())) {
        Some(api) => Ok(Some(api)),
        None => Err(Unreadable::Odd {
            what: SNAPSHOTS.to_owned(),
            why: format!("v1 and v1beta1 are known here, and the cluster serves {}", served.join(", ")),
        }),
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

/// Reads the objects of a Deorbit's freeze that exist.
///
/// # Errors
/// Any part of it that could not be read.
pub async fn freeze(client: &Client, uid: &str) -> Result<Freeze, Unreadable> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let name = names::freeze(uid);
    let there = async |plural: &str| version(client, &format!("{group}/{plural}/{name}")).await;
    Ok(Freeze {
        policies: has_policies(client).await?,
        forbidden: false,
        policy: there("validatingadmissionpolicies").await?,
        binding: there("validatingadmissionpolicybindings").await?,
        webhook: there("validatingwebhookconfigurations").await?,
    })
}

#[derive(serde::Deserialize)]
struct Resources {
    resources: Vec<Resource>,
}

#[derive(serde::Deserialize)]
struct Resource {
    name: String,
}

/// From 1.30 on.
async fn has_policies(client: &Client) -> Result<bool, Unreadable> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let found: Resources = get(client, group).await?;
    Ok(found.resources.iter().any(|resource| resource.name == "validatingadmissionpolicies"))
}
