//! Records are stored and read.

use std::sync::Mutex;

use common::api::deorbit::{DeorbitStatus, Kind};

use super::*;
use crate::controller::tests::server as api_server;
use crate::plan::action::ObjectKind;

/// The greatest length that objects of a cluster can lead to.
fn longest(kind: Kind, object: ObjectKind, name: usize, tag: Option<usize>) -> Recorded {
    let uid = "0d5c9f3e-0000-4000-8000-000000000000";
    Recorded {
        kind,
        id: Some(uid.to_owned()),
        object: Some(object),
        namespace: "n".repeat(63),
        name: "n".repeat(name),
        uid: uid.to_owned(),
        tag: tag.map(|length| "t".repeat(length)),
        shared: true,
        named: true,
        seen: true,
        kept: Some(format!(
            "another VolumeSnapshotContent that has it stays: it carries {} or {}",
            names::KEEP,
            names::JANITOR_KEEP
        )),
        kept_by: (kind == Kind::FloatingIP).then(|| "n".repeat(127)),
    }
}

/// The ConfigMaps of an API server, by path, and its requests.
type Maps = Arc<Mutex<(BTreeMap<String, serde_json::Value>, Vec<String>)>>;

/// An API server that stores ConfigMaps, and accepts every status.
fn server() -> (Client, Maps) {
    let maps = Maps::default();
    let shared = Arc::clone(&maps);
    let client = api_server(move |request| {
        let (method, mut path) = (request.method(), request.uri().path().to_owned());
        let (all, requests) = &mut *shared.lock().unwrap();
        if method == http::Method::POST {
            path = format!("{path}/{}", request.body()["metadata"]["name"].as_str().unwrap());
        }
        let name = path.rsplit('/').next().unwrap().to_owned();
        requests.push(format!("{method} {name}"));
        Some(match (method, all.get(&name)) {
            (&http::Method::GET, Some(map)) => (200, map.clone()),
            (&http::Method::GET, None) => {
                (404, json!({"kind": "Status", "status": "Failure", "reason": "NotFound", "code": 404}))
            }
            (&http::Method::POST, Some(_)) => {
                (409, json!({"kind": "Status", "status": "Failure", "reason": "AlreadyExists", "code": 409}))
            }
            _ => {
                let mut body = request.body().clone();
                body["metadata"]["resourceVersion"] = json!("1");
                all.insert(name, body.clone());
                (200, body)
            }
        })
    });
    (client, maps)
}

fn deorbit(phase: Phase) -> Deorbit {
    let spec = serde_json::from_value(json!({"inCluster": true})).unwrap();
    let mut deorbit = Deorbit::new("prod", spec);
    deorbit.metadata.namespace = Some("team".into());
    deorbit.metadata.uid = Some("u".into());
    deorbit.status = Some(DeorbitStatus { phase, ..DeorbitStatus::default() });
    deorbit
}

fn decision(records: Vec<Arc<Recorded>>, phase: Phase) -> Decision {
    Decision {
        plan: Default::default(),
        status: DeorbitStatus { phase, records: "deorbit-u-0".into(), ..DeorbitStatus::default() },
        book: Book { taken: true, ..Book::default() },
        records,
        tally: Default::default(),
        requeue_after: None,
    }
}

#[tokio::test]
async fn records_are_read_as_they_were_stored_and_only_what_differs_is_written() {
    let (client, maps) = server();
    let record = Arc::new(longest(Kind::Volume, ObjectKind::PersistentVolumeClaim, 1, None));
    let mut desired = decision(vec![record; IN_CONFIG_MAP + 1], Phase::Inventory);
    let mut object = deorbit(Phase::Inventory);
    object.status = Some(desired.status.clone());
    assert!(store(&client, &object, &Stored::default(), &desired).await.unwrap());
    let stored = read(&client, &object).await.unwrap();
    assert_eq!((&stored.book, &stored.records), (&desired.book, &desired.records));
    maps.lock().unwrap().1.clear();
    assert!(!store(&client, &object, &stored, &desired).await.unwrap());
    Arc::make_mut(&mut desired.records[IN_CONFIG_MAP]).kept = None;
    assert!(store(&client, &object, &stored, &desired).await.unwrap());
    assert_eq!(maps.lock().unwrap().1, ["PUT deorbit-u-1"]);
}

#[tokio::test]
async fn a_process_that_stops_between_two_config_maps_stops_no_run() {
    let (client, maps) = server();
    let record = Arc::new(longest(Kind::Volume, ObjectKind::PersistentVolumeClaim, 1, None));
    let object = deorbit(Phase::Inventory);
    let first = decision(vec![Arc::clone(&record)], Phase::Inventory);
    store(&client, &object, &Stored::default(), &first).await.unwrap();
    let stored = read(&client, &object).await.unwrap();
    let more = decision(vec![record; IN_CONFIG_MAP + 1], Phase::Inventory);
    store(&client, &object, &stored, &more).await.unwrap();
    // The write of the first one is undone.
    let before = serde_json::to_value(&stored.pages[0]).unwrap();
    maps.lock().unwrap().0.insert("deorbit-u-0".into(), before);
    let stored = read(&client, &object).await.unwrap();
    assert_eq!(stored.records.len(), 1);
    store(&client, &object, &stored, &more).await.unwrap();
    assert_eq!(read(&client, &object).await.unwrap().records, more.records);
}

#[tokio::test]
async fn records_that_are_missing_are_lost_from_the_first_delete_on() {
    for (phase, is_lost) in [(Phase::Pending, false), (Phase::Inventory, false), (Phase::Deleting, true)] {
        let (client, _) = server();
        let stored = read(&client, &deorbit(phase)).await.unwrap();
        assert_eq!(stored.lost.is_some(), is_lost, "{phase}");
    }
    let (client, maps) = server();
    let odd = json!({"metadata": {"name": "deorbit-u-0"}, "data": {"records.json": "[]"}});
    maps.lock().unwrap().0.insert("deorbit-u-0".into(), odd);
    let stored = read(&client, &deorbit(Phase::Verifying)).await.unwrap();
    assert!(stored.lost.unwrap().contains("deorbit-u-0 cannot be read; restore it"));
}

#[tokio::test]
async fn the_former_finalizer_is_removed_too_and_no_other() {
    let (client, maps) = server();
    let [own, former] = names::FINALIZERS;
    let found = json!({"metadata": {"name": "prod", "uid": "u", "finalizers": [former, "other/one", own]}});
    maps.lock().unwrap().0.insert("prod".into(), found);
    set_finalizer(&client, "team", "prod", "u", false).await.unwrap();
    assert_eq!(maps.lock().unwrap().0["prod"]["metadata"]["finalizers"], json!(["other/one"]));
}

#[tokio::test]
async fn what_another_version_wrote_is_not_overwritten() {
    let (client, maps) = server();
    let decision = decision(Vec::new(), Phase::Unknown);
    assert!(!store(&client, &deorbit(Phase::Unknown), &Stored::default(), &decision).await.unwrap());
    assert_eq!(maps.lock().unwrap().1, [""; 0]);
}

#[test]
fn the_longest_records_fit_into_a_config_map() {
    for record in [
        longest(Kind::Volume, ObjectKind::PersistentVolumeClaim, 253, None),
        longest(Kind::Snapshot, ObjectKind::VolumeSnapshotContent, 253, None),
        longest(Kind::LoadBalancer, ObjectKind::Service, 63, Some(255)),
        longest(Kind::FloatingIP, ObjectKind::Service, 63, None),
    ] {
        let bytes = serde_json::to_string(&vec![record.clone(); IN_CONFIG_MAP]).unwrap().len();
        // The first one also has the bookkeeping.
        assert!(bytes < (1 << 20) - (1 << 16), "{bytes} bytes for {record:?}");
    }
}
