//! Writes to the Deorbit and its ConfigMaps: what is recorded is stored before anything is deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use common::api::deorbit::{Deorbit, DeorbitStatus, Kind, Recorded};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Resource as _};
use serde_json::json;

use crate::error::Error;
use crate::names;

/// Records that are stored in the status itself; each is about 250 bytes, and etcd takes 1.5 MB.
const IN_STATUS: usize = 500;
/// Records in one ConfigMap, whose limit is 1 MiB, even where every name has the greatest length.
const IN_CONFIG_MAP: usize = 1000;
/// The key of a ConfigMap.
const KEY: &str = "records.json";

/// Adds our finalizer to the Deorbit.
///
/// # Errors
/// [`Error::Management`] with the API server's response.
pub async fn add_finalizer(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
    finalizers(client, namespace, name, uid, |list| {
        if !list.iter().any(|one| one == names::FINALIZER) {
            list.push(names::FINALIZER.to_owned());
        }
    })
    .await
}

/// Removes our finalizer from the Deorbit.
///
/// # Errors
/// [`Error::Management`] with the API server's response.
pub async fn remove_finalizer(client: &Client, namespace: &str, name: &str, uid: &str) -> Result<(), Error> {
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
        api.get_metadata_opt(name).await.map_err(|cause| Error::Management { what: what(), cause })?
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
        other => other.map(drop).map_err(|cause| Error::Management { what: what(), cause }),
    }
}

/// The records of a Deorbit, from its status or its ConfigMaps.
///
/// # Errors
/// [`Error::Management`], or [`Error::Records`] where a ConfigMap is gone or holds something else.
pub async fn records(client: &Client, deorbit: &Deorbit) -> Result<Vec<Arc<Recorded>>, Error> {
    let Some(status) = &deorbit.status else { return Ok(Vec::new()) };
    let mut records: Vec<_> = status.inventory.records.iter().cloned().map(upgraded).collect();
    let namespace = deorbit.metadata.namespace.clone().unwrap_or_default();
    let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
    for name in &status.inventory.config_maps {
        let what = format!("read ConfigMap {namespace}/{name}");
        let map = api.get_opt(name).await.map_err(|cause| Error::Management { what, cause })?;
        let text = map.and_then(|map| map.data).and_then(|mut data| data.remove(KEY));
        let page: Option<Vec<Recorded>> = text.and_then(|text| serde_json::from_str(&text).ok());
        let page = page.ok_or_else(|| Error::Records { name: format!("{namespace}/{name}") })?;
        records.extend(page.into_iter().map(upgraded));
    }
    Ok(records)
}

/// Without [`Recorded::kept_by`], the reason of a floating IP tells which Service keeps it. Where it does not, no Service can
/// take that back.
fn upgraded(mut record: Recorded) -> Arc<Recorded> {
    if record.kind == Kind::FloatingIP && record.kept_by.is_none() {
        let end = format!(" carries {}", names::KEEP_FLOATING_IP);
        let why = record.kept.as_deref().and_then(|why| why.strip_prefix("its Service"));
        let service = why.and_then(|why| why.strip_suffix(end.as_str()));
        record.kept_by = service.map(|service| service.trim_start().to_owned());
    }
    Arc::new(record)
}

/// Stores the desired records and status where they differ from the stored ones: ConfigMaps first, then the status that names them.
/// Returns whether anything was written.
///
/// # Errors
/// [`Error::Management`]: nothing that follows may be done. 409: another client changed the Deorbit.
pub async fn store(
    client: &Client,
    deorbit: &Deorbit,
    mut status: DeorbitStatus,
    old: &[Arc<Recorded>],
    records: &[Arc<Recorded>],
) -> Result<bool, Error> {
    let namespace = deorbit.metadata.namespace.clone().unwrap_or_default();
    let wrote = if records.len() <= IN_STATUS && status.inventory.config_maps.is_empty() {
        status.inventory.records = records.iter().map(|record| (**record).clone()).collect();
        false
    } else {
        status.inventory.records = Vec::new();
        let api = Api::<ConfigMap>::namespaced(client.clone(), &namespace);
        let (mut maps, mut wrote) = (Vec::new(), false);
        let mut before = old.chunks(IN_CONFIG_MAP);
        for (number, page) in records.chunks(IN_CONFIG_MAP).enumerate() {
            let map = config_map(deorbit, number);
            let same = before.next() == Some(page) && status.inventory.config_maps.contains(&map);
            if !same {
                write_map(&api, deorbit, &map, page).await?;
                wrote = true;
            }
            maps.push(map);
        }
        status.inventory.config_maps = maps;
        wrote
    };
    if deorbit.status.as_ref() == Some(&status) {
        return Ok(wrote);
    }
    let mut changed = deorbit.clone();
    changed.status = Some(status);
    replace_status(client, changed).await.map(|()| true)
}

/// Its name contains the Deorbit's UID, so that no other ConfigMap is overwritten.
fn config_map(deorbit: &Deorbit, number: usize) -> String {
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

/// Records since when the servers have not responded, in a Deorbit that is being deleted. The rest of its status is not touched.
///
/// # Errors
/// [`Error::Management`] with the API server's response. 409: another client changed the Deorbit.
pub async fn record_outage(
    client: &Client,
    deorbit: &Deorbit,
    since: Option<Timestamp>,
) -> Result<(), Error> {
    let mut changed = deorbit.clone();
    changed.status.get_or_insert_default().first_unavailable_at = since;
    replace_status(client, changed).await
}

async fn replace_status(client: &Client, mut changed: Deorbit) -> Result<(), Error> {
    let (namespace, name) = (
        changed.metadata.namespace.clone().unwrap_or_default(),
        changed.metadata.name.clone().unwrap_or_default(),
    );
    changed.metadata.managed_fields = None;
    let params = PostParams { field_manager: Some(names::MANAGER.into()), ..PostParams::default() };
    let api = Api::<Deorbit>::namespaced(client.clone(), &namespace);
    let what = format!("write the status of Deorbit {namespace}/{name}");
    api.replace_status(&name, &params, &changed)
        .await
        .map(drop)
        .map_err(|cause| Error::Management { what, cause })
}

async fn write_map(
    api: &Api<ConfigMap>,
    deorbit: &Deorbit,
    name: &str,
    page: &[Arc<Recorded>],
) -> Result<(), Error> {
    let page: Vec<&Recorded> = page.iter().map(|record| &**record).collect();
    let text = serde_json::to_string(&page).map_err(|_| Error::Records { name: name.to_owned() })?;
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
    written.map(drop).map_err(|cause| Error::Management { what: format!("write ConfigMap {name}"), cause })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http_body_util::BodyExt as _;
    use kube::client::Body;

    use super::*;

    /// The greatest length that objects of a cluster can lead to.
    fn longest(kind: Kind, object: &str, name: usize, tag: Option<usize>) -> Recorded {
        let uid = "0d5c9f3e-0000-4000-8000-000000000000";
        Recorded {
            kind,
            id: Some(uid.to_owned()),
            object: Some(object.to_owned()),
            namespace: "n".repeat(63),
            name: "n".repeat(name),
            uid: uid.to_owned(),
            tag: tag.map(|length| "t".repeat(length)),
            shared: true,
            seen: true,
            kept: Some(format!(
                "another VolumeSnapshotContent that has it stays: it carries {} or {}",
                names::KEEP,
                names::JANITOR_KEEP
            )),
            kept_by: (kind == Kind::FloatingIP).then(|| "n".repeat(127)),
        }
    }

    #[test]
    fn the_service_that_keeps_a_floating_ip_is_read_from_the_reason_where_kept_by_is_missing() {
        let read = |kind: &str, kept: &str| {
            let stored = json!({"kind": kind, "id": "f1", "object": "Service", "namespace": "a", "name": "api",
                "uid": "u", "seen": true, "dying": true, "kept": kept});
            let record = upgraded(serde_json::from_value(stored).unwrap());
            assert_eq!((record.seen, record.kept.as_deref()), (true, Some(kept)));
            record.kept_by.clone()
        };
        let word = "its Service a/web carries loadbalancer.openstack.org/keep-floatingip";
        assert_eq!(read("FloatingIP", word).as_deref(), Some("a/web"));
        let nameless = "its Service carries loadbalancer.openstack.org/keep-floatingip";
        assert_eq!(read("FloatingIP", nameless).as_deref(), Some(""));
        assert_eq!(read("FloatingIP", "its load balancer also serves others"), None);
        assert_eq!(read("Volume", word), None);
        let mut today = longest(Kind::FloatingIP, "Service", 63, None);
        today.kept = Some(word.to_owned());
        let stored = serde_json::to_value(&today).unwrap();
        assert_eq!(*upgraded(serde_json::from_value(stored).unwrap()), today);
    }

    /// An API server that accepts every request, and the requests that it got.
    fn server() -> (Client, Arc<Mutex<Vec<String>>>) {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            seen.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
            async move {
                let bytes = request.into_body().collect().await.unwrap().to_bytes();
                Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(bytes.to_vec())))
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test]
    async fn records_in_a_config_map_that_changed_are_written() {
        let spec = serde_json::from_value(json!({"inCluster": true})).unwrap();
        let mut deorbit = Deorbit::new("prod", spec);
        deorbit.metadata.namespace = Some("team".into());
        deorbit.metadata.uid = Some("u".into());
        let mut status = DeorbitStatus::default();
        status.inventory.config_maps = vec![config_map(&deorbit, 0)];
        deorbit.status = Some(status.clone());
        let record = Arc::new(longest(Kind::Volume, "PersistentVolumeClaim", 1, None));
        let old = vec![record; IN_STATUS + 1];
        let mut new = old.clone();
        Arc::make_mut(&mut new[0]).kept = None;
        let (client, asked) = server();
        assert!(
            store(&client, &deorbit, status.clone(), &old, &new).await.unwrap(),
            "else it is not read again"
        );
        assert_eq!(*asked.lock().unwrap(), ["PATCH /api/v1/namespaces/team/configmaps/deorbit-u-0"]);
        assert!(!store(&client, &deorbit, status, &new, &new).await.unwrap());
        assert_eq!(asked.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_longest_records_fit_into_the_status_and_a_config_map() {
        for record in [
            longest(Kind::Volume, "PersistentVolumeClaim", 253, None),
            longest(Kind::Snapshot, "VolumeSnapshotContent", 253, None),
            longest(Kind::LoadBalancer, "Service", 63, Some(255)),
            longest(Kind::FloatingIP, "Service", 63, None),
        ] {
            let bytes = |count: usize| serde_json::to_string(&vec![record.clone(); count]).unwrap().len();
            assert!(bytes(IN_CONFIG_MAP) < 1 << 20, "{} bytes for {record:?}", bytes(IN_CONFIG_MAP));
            // A status also holds debris and conditions.
            assert!(bytes(IN_STATUS) < 1 << 19, "{} bytes for {record:?}", bytes(IN_STATUS));
        }
    }
}
