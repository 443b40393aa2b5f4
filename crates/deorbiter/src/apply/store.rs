//! Writes to the Deorbit and its ConfigMaps: what is recorded stands there before anything is deleted.

use std::collections::BTreeMap;

use common::api::deorbit::{Deorbit, DeorbitStatus, Recorded};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _};
use serde_json::json;

use crate::error::Error;
use crate::names;

/// Records that a status holds itself; each is about 250 bytes, and etcd takes 1.5 MB.
const IN_STATUS: usize = 500;
/// Records a ConfigMap, whose limit is 1 MiB.
const IN_CONFIG_MAP: usize = 2000;
/// The key of a ConfigMap.
const KEY: &str = "records.json";

/// Puts our finalizer on the Deorbit.
///
/// # Errors
/// [`Error::Home`] with the API server's answer.
pub async fn hold(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
    finalizers(client, namespace, name, uid, |list| {
        if !list.iter().any(|one| one == names::FINALIZER) {
            list.push(names::FINALIZER.to_owned());
        }
    })
    .await
}

/// Takes our finalizer off.
///
/// # Errors
/// [`Error::Home`] with the API server's answer.
pub async fn let_go(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
    finalizers(client, namespace, name, uid, |list| list.retain(|one| one != names::FINALIZER)).await
}

async fn finalizers(
    client: &Client,
    namespace: &str,
    name: &str,
    uid: &str,
    change: impl FnOnce(&mut Vec<String>),
) -> Result<(), Error> {
    let what = || format!("change the finalizers of Deorbit {namespace}/{name}");
    let api = Api::<Deorbit>::namespaced(client.clone(), namespace);
    let Some(found) =
        api.get_metadata_opt(name).await.map_err(|cause| Error::Home { what: what(), cause })?
    else {
        return Ok(());
    };
    if found.metadata.uid.as_deref() != Some(uid) {
        return Ok(());
    }
    let mut list = found.metadata.finalizers.unwrap_or_default();
    change(&mut list);
    let params = PatchParams { field_manager: Some(names::MANAGER.into()), ..PatchParams::default() };
    let version = found.metadata.resource_version;
    let patch =
        Patch::Merge(json!({"metadata": {"uid": uid, "resourceVersion": version, "finalizers": list}}));
    match api.patch_metadata(name, &params, &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop).map_err(|cause| Error::Home { what: what(), cause }),
    }
}

/// The records of a Deorbit, from its status or its ConfigMaps.
///
/// # Errors
/// [`Error::Home`], or [`Error::Records`] where a ConfigMap is gone or holds something else.
pub async fn records(client: &Client, deorbit: &Deorbit) -> Result<Vec<Recorded>, Error> {
    let Some(status) = &deorbit.status else { return Ok(Vec::new()) };
    let mut records = status.inventory.records.clone();
    let namespace = deorbit.metadata.namespace.clone().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    for name in &status.inventory.config_maps {
        let what = format!("read ConfigMap {namespace}/{name}");
        let map = api.get(name).await.map_err(|cause| Error::Home { what, cause })?;
        let text = map.data.and_then(|mut data| data.remove(KEY));
        let page: Option<Vec<Recorded>> = text.and_then(|text| serde_json::from_str(&text).ok());
        records.extend(page.ok_or_else(|| Error::Records { name: format!("{namespace}/{name}") })?);
    }
    Ok(records)
}

/// Stores what is wanted, where it differs from what is stored: ConfigMaps first, then the status that names them. Returns
/// whether anything was written.
///
/// # Errors
/// [`Error::Home`]: nothing that follows may be done. A 409 says that somebody else changed the Deorbit.
pub async fn store(
    client: &Client,
    deorbit: &Deorbit,
    mut status: DeorbitStatus,
    old: &[Recorded],
    records: &[Recorded],
) -> Result<bool, Error> {
    let (namespace, name) = (
        deorbit.metadata.namespace.clone().unwrap_or_default(),
        deorbit.metadata.name.clone().unwrap_or_default(),
    );
    if records.len() <= IN_STATUS && status.inventory.config_maps.is_empty() {
        status.inventory.records = records.to_vec();
    } else {
        status.inventory.records = Vec::new();
        let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
        let mut maps = Vec::new();
        let mut before = old.chunks(IN_CONFIG_MAP);
        for (number, page) in records.chunks(IN_CONFIG_MAP).enumerate() {
            let map = format!("{name}-inventory-{number}");
            let same = before.next() == Some(page) && status.inventory.config_maps.contains(&map);
            if !same {
                write_map(&api, deorbit, &map, page).await?;
            }
            maps.push(map);
        }
        status.inventory.config_maps = maps;
    }
    if deorbit.status.as_ref() == Some(&status) {
        return Ok(false);
    }
    let mut changed = deorbit.clone();
    changed.status = Some(status);
    changed.metadata.managed_fields = None;
    let params = PostParams { field_manager: Some(names::MANAGER.into()), ..PostParams::default() };
    let api = Api::<Deorbit>::namespaced(client.clone(), &namespace);
    let written = api.replace_status(&name, &params, &changed).await;
    let what = format!("write the status of Deorbit {namespace}/{name}");
    written.map(|_| true).map_err(|cause| Error::Home { what, cause })
}

async fn write_map(
    api: &Api<ConfigMap>,
    deorbit: &Deorbit,
    name: &str,
    page: &[Recorded],
) -> Result<(), Error> {
    let text = serde_json::to_string(page).map_err(|_| Error::Records { name: name.to_owned() })?;
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            owner_references: deorbit.owner_ref(&()).map(|owner| vec![owner]),
            labels: Some(BTreeMap::from([
                (common::names::MANAGED_BY.to_owned(), names::PROGRAM.to_owned()),
                (names::RUN_LABEL.to_owned(), deorbit.metadata.uid.clone().unwrap_or_default()),
            ])),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([(KEY.to_owned(), text)])),
        ..ConfigMap::default()
    };
    let params = PatchParams::apply(names::MANAGER).force();
    let written = api.patch(name, &params, &Patch::Apply(&map)).await;
    written.map(drop).map_err(|cause| Error::Home { what: format!("write ConfigMap {name}"), cause })
}
