//! Writes to the Deorbit and its ConfigMaps: what is recorded is stored before anything is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::api::deorbit::{Deorbit, Phase};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Resource as _};
use serde_json::json;

use crate::error::Error;
use crate::names;
use crate::plan::Decision;
use crate::record::{Book, Recorded};

/// Records in one ConfigMap, whose limit is 1 MiB, even where every name has the greatest length.
const IN_CONFIG_MAP: usize = 1000;
/// The key of the records in a ConfigMap.
const RECORDS: &str = "records.json";
/// The key of the bookkeeping in the first ConfigMap.
const BOOK: &str = "run.json";

/// The stored state of a run.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    /// Its bookkeeping.
    pub book: Book,
    /// Its records.
    pub records: Vec<Arc<Recorded>>,
    /// The ConfigMaps, by number, as they were read.
    pages: Vec<ConfigMap>,
    /// Why they cannot be read, although the run has some.
    pub lost: Option<String>,
}

/// Adds our finalizer to the Deorbit, or removes it.
///
/// # Errors
/// [`Error::Kubernetes`] with the API server's response.
pub async fn set_finalizer(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    is_set: bool,
) -> Result<(), Error> {
    let refused = Error::kubernetes(format!("change the finalizers of Deorbit {namespace}/{name}"));
    let api = Api::<Deorbit>::namespaced(client.clone(), namespace);
    let found = api.get_metadata_opt(name).await.map_err(&refused)?;
    let Some(found) = found.filter(|found| found.metadata.uid.as_deref() == Some(uid)) else {
        return Ok(());
    };
    let mut list = found.metadata.finalizers.unwrap_or_default();
    if !is_set {
        list.retain(|one| !names::FINALIZERS.contains(&one.as_str()));
    } else if !list.iter().any(|one| one == names::FINALIZER) {
        list.push(names::FINALIZER.to_owned());
    }
    let params = PatchParams { field_manager: Some(names::MANAGER.into()), ..PatchParams::default() };
    let version = found.metadata.resource_version;
    let patch =
        Patch::Merge(json!({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": list}}));
    match api.patch_metadata(name, &params, &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).map_err(refused),
    }
}

/// Deletes a Deorbit that has expired.
///
/// # Errors
/// [`Error::Kubernetes`] with the API server's response.
pub async fn delete(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
    let only_this = Preconditions { uid: Some(uid.to_owned()), ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
    match Api::<Deorbit>::namespaced(client.clone(), namespace).delete(name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(cause) => Err(Error::kubernetes(format!("delete the expired Deorbit {namespace}/{name}"))(cause)),
    }
}

/// The stored state of a Deorbit.
///
/// # Errors
/// [`Error::Kubernetes`]: the API server does not respond, or refuses.
pub async fn read(client: &Client, deorbit: &Deorbit) -> Result<Stored, Error> {
    let namespace = deorbit.metadata.namespace.clone().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let phase = deorbit.status.as_ref().map(|status| status.phase).unwrap_or_default();
    let mut stored = Stored::default();
    loop {
        let name = page(deorbit, stored.pages.len());
        let refused = Error::kubernetes(format!("read ConfigMap {namespace}/{name}"));
        let map = api.get_opt(&name).await.map_err(refused)?;
        let Some(map) = map else {
            // From Deleting on there are records, of which the first page has the number.
            if phase >= Phase::Deleting && phase != Phase::Aborting {
                stored.lost = Some(lost(&namespace, &name));
            }
            return Ok(stored);
        };
        let number = match decode(&map, stored.pages.is_empty()) {
            Some((book, records, number)) => {
                if let Some(book) = book {
                    stored.book = book;
                }
                stored.records.extend(records.into_iter().map(Arc::new));
                number
            }
            None => {
                stored.lost = Some(lost(&namespace, &name));
                return Ok(stored);
            }
        };
        stored.pages.push(map);
        if stored.pages.len() >= number {
            return Ok(stored);
        }
    }
}

fn lost(namespace: &str, name: &str) -> String {
    format!(
        "the records in ConfigMap {namespace}/{name} cannot be read; restore it, or delete the Deorbit and create another"
    )
}

/// The label with the number of ConfigMaps of a run.
const PAGES: &str = "deorbiter.perimeter.dev/pages";

fn decode(map: &ConfigMap, is_first: bool) -> Option<(Option<Book>, Vec<Recorded>, usize)> {
    let data = map.data.as_ref()?;
    let book = if is_first { Some(serde_json::from_str(data.get(BOOK)?).ok()?) } else { None };
    let records = serde_json::from_str(data.get(RECORDS)?).ok()?;
    let number = map.metadata.labels.as_ref()?.get(PAGES)?.parse().ok()?;
    Some((book, records, number))
}

/// Stores bookkeeping and records, then the status, each where it differs from the stored one. Returns whether anything was written.
///
/// # Errors
/// [`Error::Kubernetes`]: nothing that follows may be done. 409: another client changed the Deorbit.
pub async fn store(
    client: &Client,
    deorbit: &Deorbit,
    stored: &Stored,
    decision: &Decision,
) -> Result<bool, Error> {
    let mut status = decision.status.clone();
    let mut wrote = false;
    // What another version wrote stays as it is.
    if status.phase == Phase::Unknown {
        return Ok(false);
    }
    if status.phase != Phase::Pending && stored.lost.is_none() {
        wrote = store_pages(client, deorbit, stored, decision).await?;
        if !stored.pages.is_empty() || wrote {
            status.records = page(deorbit, 0);
        }
    }
    if deorbit.status.as_ref() == Some(&status) {
        return Ok(wrote);
    }
    let ObjectMeta { namespace, name, .. } = &deorbit.metadata;
    let (namespace, name) = (namespace.as_deref().unwrap_or_default(), name.as_deref().unwrap_or_default());
    let mut changed = Deorbit { status: Some(status), ..deorbit.clone() };
    changed.metadata.managed_fields = None;
    let params = PostParams { field_manager: Some(names::MANAGER.into()), ..PostParams::default() };
    let written =
        Api::<Deorbit>::namespaced(client.clone(), namespace).replace_status(name, &params, &changed).await;
    written.map_err(Error::kubernetes(format!("write the status of Deorbit {namespace}/{name}")))?;
    Ok(true)
}

async fn store_pages(
    client: &Client,
    deorbit: &Deorbit,
    stored: &Stored,
    decision: &Decision,
) -> Result<bool, Error> {
    let deleting = deorbit.metadata.deletion_timestamp.is_some();
    let namespace = deorbit.metadata.namespace.clone().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    let mut chunks: Vec<&[Arc<Recorded>]> = decision.records.chunks(IN_CONFIG_MAP).collect();
    if chunks.is_empty() {
        chunks.push(&[]);
    }
    let mut wrote = false;
    // The first one last: it has the number of the others.
    for (number, records) in chunks.iter().enumerate().rev() {
        let old = stored.pages.get(number);
        let name = page(deorbit, number);
        let encode = |_| Error::Records { name: name.clone() };
        let records: Vec<&Recorded> = records.iter().map(|record| &**record).collect();
        let mut data =
            BTreeMap::from([(RECORDS.to_owned(), serde_json::to_string(&records).map_err(encode)?)]);
        if number == 0 {
            data.insert(BOOK.to_owned(), serde_json::to_string(&decision.book).map_err(encode)?);
        }
        let labels = BTreeMap::from([
            (common::names::MANAGED_BY.to_owned(), names::PROGRAM.to_owned()),
            (names::RUN_LABEL.to_owned(), deorbit.metadata.uid.clone().unwrap_or_default()),
            (PAGES.to_owned(), chunks.len().to_string()),
        ]);
        let same = |old: &&ConfigMap| {
            old.data.as_ref() == Some(&data) && old.metadata.labels.as_ref() == Some(&labels)
        };
        // In a namespace that is being deleted none can be created.
        if old.as_ref().is_some_and(same) || (old.is_none() && deleting) {
            continue;
        }
        let refused = Error::kubernetes(format!("write ConfigMap {namespace}/{name}"));
        // One that was not read was left by a process that stopped before it wrote the first one.
        let version = match old {
            Some(old) => old.metadata.resource_version.clone(),
            None => {
                let left = api.get_metadata_opt(&name).await.map_err(&refused)?;
                left.and_then(|left| left.metadata.resource_version)
            }
        };
        let is_new = version.is_none();
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                owner_references: deorbit.owner_ref(&()).map(|owner| vec![owner]),
                labels: Some(labels),
                // Another process may have stored more: a conflict, and the next reconciliation reads it.
                resource_version: version,
                ..ObjectMeta::default()
            },
            data: Some(data),
            ..ConfigMap::default()
        };
        let params = PostParams { field_manager: Some(names::MANAGER.into()), ..PostParams::default() };
        let written = match is_new {
            true => api.create(&params, &map).await,
            false => api.replace(&name, &params, &map).await,
        };
        written.map_err(refused)?;
        wrote = true;
    }
    Ok(wrote)
}

/// Its name contains the Deorbit's UID, so that no other ConfigMap is overwritten.
fn page(deorbit: &Deorbit, number: usize) -> String {
    format!("deorbit-{}-{number}", deorbit.metadata.uid.as_deref().unwrap_or_default())
}

/// Whether a Deorbit is still as it was read: not being deleted, and with the same spec and annotations. False also where it
/// cannot be read.
pub async fn is_unchanged(client: &Client, read: &Deorbit) -> bool {
    let ObjectMeta { namespace, name, uid, generation, annotations, deletion_timestamp, .. } = &read.metadata;
    let api = Api::<Deorbit>::namespaced(client.clone(), namespace.as_deref().unwrap_or_default());
    api.get_metadata(name.as_deref().unwrap_or_default()).await.is_ok_and(|now| {
        let now = now.metadata;
        (&now.uid, &now.generation) == (uid, generation)
            && (&now.annotations, &now.deletion_timestamp) == (annotations, deletion_timestamp)
    })
}

#[cfg(test)]
mod tests;
