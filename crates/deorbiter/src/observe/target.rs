//! The target cluster, read whole.

use kube::Client;

use super::kinds;
use super::pages::{Unreadable, exists, list};
use super::snapshot::{Cluster, Freeze};
use crate::names;
use crate::settings::Settings;

/// Reads everything that a plan looks at. `uid`: of the Deorbit, whose freeze is looked for.
///
/// # Errors
/// The first list that could not be read whole.
pub async fn read(client: &Client, settings: &Settings, uid: &str) -> Result<Cluster, Unreadable> {
    let snapshots = "/apis/snapshot.storage.k8s.io/v1";
    Ok(Cluster {
        // Snapshots and claims before what they are bound to: who is bound later is seen unbound, and looked at again.
        snapshots: or_none(
            list(client, &format!("{snapshots}/volumesnapshots"), |one: kinds::Snapshot| Some(one.kept()))
                .await,
        )?,
        contents: or_none(
            list(client, &format!("{snapshots}/volumesnapshotcontents"), |one: kinds::Content| {
                one.kept(settings)
            })
            .await,
        )?,
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
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases",
            |one: kinds::Lease| one.kept(settings),
        )
        .await
        {
            // A hint, not worth an outage.
            Err(error) if error.is_forbidden() || error.is_no_kind() => Vec::new(),
            other => other?,
        },
        freeze: freeze(client, uid).await?,
    })
}

fn or_none<T>(listed: Result<Vec<T>, Unreadable>) -> Result<Vec<T>, Unreadable> {
    match listed {
        Err(error) if error.is_no_kind() => Ok(Vec::new()),
        other => other,
    }
}

/// What is there of a Deorbit's freeze.
///
/// # Errors
/// Any of it that could not be looked for.
pub async fn freeze(client: &Client, uid: &str) -> Result<Freeze, Unreadable> {
    let group = "/apis/admissionregistration.k8s.io/v1";
    let name = names::freeze(uid);
    let there = async |plural: &str| exists(client, &format!("{group}/{plural}/{name}")).await;
    Ok(Freeze {
        policies: has_policies(client).await?,
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
    let found: Resources = super::pages::get(client, group).await?;
    Ok(found.resources.iter().any(|resource| resource.name == "validatingadmissionpolicies"))
}
