#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::{Value, json};

use super::*;
use crate::plan::fixtures::{acts, config, deleting, without_finalizer};

fn source(spec: Value) -> source::Network {
    serde_json::from_value(json!({
        "metadata": { "name": "net", "namespace": "team", "uid": "u1", "finalizers": ["apinet.ironcore.dev/network"] },
        "spec": spec,
    }))
    .unwrap()
}

/// The counterpart of [`source`], as the API server has it after an apply, with this ID.
fn allocated(id: &str) -> apinet::Network {
    let Snapshot { source, .. } = Snapshot { source: source(json!({})), ..Snapshot::default() };
    let origin = crate::origin::Origin::of(&source.metadata).unwrap();
    let mut metadata = counterpart(&config(), Kind::Network, &origin);
    metadata.uid = Some("a1".into());
    apinet::Network {
        metadata,
        spec: apinet::NetworkSpec { id: id.into(), ..Default::default() },
        ..Default::default()
    }
}

#[test]
fn a_new_network_gets_counterpart_then_finalizer_with_provider_id_then_status() {
    let mut snapshot = Snapshot { source: source(json!({})), ..Snapshot::default() };
    without_finalizer(&mut snapshot.source.metadata);
    assert_eq!(acts(&plan(&config(), &snapshot)), ["Apply"]);
    let steps = plan(&config(), &snapshot).steps;
    let applied = serde_json::to_value(&steps[0].action.act).unwrap();
    let expected = json!({ "apply": {
        "metadata": {
            "name": "u1", "namespace": "apinet",
            "labels": { "apinetlet.ironcore.dev/network-uid": "u1", "apinetlet.ironcore.dev/network-namespace": "team" },
            "annotations": { "apinetlet.ironcore.dev/network-name": "net" },
        },
    } });
    assert_eq!(applied, expected);

    snapshot.counterpart = Some(allocated("301"));
    let steps = plan(&config(), &snapshot).steps;
    let id = "ironcore-net://apinet/u1/301/a1";
    let finalizer = Some("apinet.ironcore.dev/network".to_owned());
    assert_eq!(steps[0].action.act, Act::SetProviderId { id: id.into(), finalizer });
    let Act::SetStatus(Status::Network(status)) = &steps[1].action.act else { unreachable!("{steps:?}") };
    assert_eq!(status.state, "Available");

    snapshot.source = source(json!({ "providerID": id }));
    snapshot.source.status = status.clone();
    assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0], "nothing is written in steady state");
}

/// An object of the Go program: its field manager, which is also that of this program, owns the ID.
#[test]
fn an_apply_contains_the_allocated_id() {
    let mut unmarked = allocated("301");
    unmarked.metadata.labels = None;
    let snapshot = Snapshot { source: source(json!({})), counterpart: Some(unmarked), ..Snapshot::default() };
    let steps = plan(&config(), &snapshot).steps;
    let applied = serde_json::to_value(&steps[0].action.act).unwrap();
    assert_eq!(applied.pointer("/apply/spec/id"), Some(&json!("301")));
}

#[test]
fn without_an_allocated_id_nothing_is_written_to_the_source() {
    let snapshot =
        Snapshot { source: source(json!({})), counterpart: Some(allocated("")), ..Snapshot::default() };
    assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
}

#[test]
fn a_finalizer_that_was_removed_is_added_again() {
    let id = json!({ "providerID": "ironcore-net://apinet/u1/301/a1" });
    let mut snapshot =
        Snapshot { source: source(id), counterpart: Some(allocated("301")), ..Snapshot::default() };
    snapshot.source.status.state = "Available".into();
    without_finalizer(&mut snapshot.source.metadata);
    assert_eq!(acts(&plan(&config(), &snapshot)), ["AddFinalizer"]);
}

#[test]
fn a_provider_id_is_never_changed() {
    let mut snapshot = Snapshot {
        source: source(json!({ "providerID": "ironcore-net://apinet/u1/7/other" })),
        counterpart: Some(allocated("301")),
        ..Snapshot::default()
    };
    snapshot.source.status.state = "Available".into();
    assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
}

#[test]
fn a_counterpart_that_was_deleted_is_applied_with_its_id() {
    for (provider_id, id) in [
        ("ironcore-net://apinet/u1/301/a1", Some("301")),
        // Not this program's: another namespace, another name, no provider ID of a Network.
        ("ironcore-net://other/u1/301/a1", None),
        ("ironcore-net://apinet/u2/301/a1", None),
        ("ironcore-net://a", None),
        ("", None),
    ] {
        let snapshot =
            Snapshot { source: source(json!({ "providerID": provider_id })), ..Snapshot::default() };
        let steps = plan(&config(), &snapshot).steps;
        let applied = serde_json::to_value(&steps[0].action.act).unwrap();
        assert_eq!(applied.pointer("/apply/metadata/name"), Some(&json!("u1")), "{provider_id}");
        assert_eq!(applied.pointer("/apply/spec/id").and_then(Value::as_str), id, "{provider_id}");
    }
}

#[test]
fn a_deleted_network_keeps_its_finalizer_until_the_counterpart_is_gone() {
    let mut snapshot =
        Snapshot { source: source(json!({})), counterpart: Some(allocated("301")), ..Snapshot::default() };
    deleting(&mut snapshot.source.metadata);
    let steps = plan(&config(), &snapshot).steps;
    let delete = Act::Delete { kind: Kind::Network, name: "u1".into(), uid: "a1".into() };
    assert_eq!(steps[0].action.act, delete);
    assert_eq!(steps.len(), 1);
    deleting(&mut snapshot.counterpart.as_mut().unwrap().metadata);
    assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
    snapshot.counterpart = None;
    assert_eq!(acts(&plan(&config(), &snapshot)), ["RemoveFinalizer"]);
    without_finalizer(&mut snapshot.source.metadata);
    assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
}

#[test]
fn an_apinet_object_that_does_not_name_the_source_is_not_deleted() {
    let mut snapshot =
        Snapshot { source: source(json!({})), counterpart: Some(allocated("301")), ..Snapshot::default() };
    deleting(&mut snapshot.source.metadata);
    snapshot.counterpart.as_mut().unwrap().metadata.labels = None;
    assert_eq!(acts(&plan(&config(), &snapshot)), ["RemoveFinalizer"]);
}

#[test]
fn a_network_that_another_program_manages_or_the_filter_excludes_is_left_alone() {
    let mut snapshot = Snapshot { source: source(json!({})), ..Snapshot::default() };
    let filtered = Config { watch_filter: Some("blue".into()), ..config() };
    assert_eq!(acts(&plan(&filtered, &snapshot)), [""; 0]);
    let label = ("common.ironcore.dev/watch-filter".to_owned(), "blue".to_owned());
    snapshot.source.metadata.labels = Some([label].into());
    assert_eq!(acts(&plan(&filtered, &snapshot)), ["Apply"]);
    let annotation = ("common.ironcore.dev/managed-by".to_owned(), String::new());
    snapshot.source.metadata.annotations = Some([annotation].into());
    for config in [filtered, config()] {
        assert_eq!(acts(&plan(&config, &snapshot)), [""; 0]);
    }
}

/// Two peerings, of which the second is restricted to prefixes.
fn peered() -> Snapshot {
    let spec = json!({
        "peerings": [
            { "name": "all", "networkRef": { "name": "b" } },
            { "name": "some", "networkRef": { "name": "c", "namespace": "other" }, "prefixes": [
                { "name": "literal", "prefix": "192.168.178.20/32", "prefixRef": {} },
                { "name": "allocated", "prefixRef": { "name": "p" } },
            ] },
        ],
        "incomingPeerings": [
            { "name": "missing", "uid": "u9" },
            { "name": "b", "namespace": "team", "uid": "u2" },
            { "name": "c", "namespace": "other", "uid": "u3" },
        ],
    });
    let peer = |namespace: &str, name: &str, network_ref: Value, id: &str| {
        let source = json!({
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "peerings": [{ "name": "back", "networkRef": network_ref }] },
        });
        Peer { source: serde_json::from_value(source).unwrap(), id: id.into() }
    };
    Snapshot {
        source: source(spec),
        counterpart: Some(allocated("301")),
        peers: [
            ("u2".into(), peer("team", "b", json!({ "name": "net" }), "302")),
            ("u3".into(), peer("other", "c", json!({ "name": "net", "namespace": "team" }), "303")),
        ]
        .into(),
        prefixes: [("p".into(), "10.0.0.0/24".into())].into(),
    }
}

#[test]
fn peerings_that_both_networks_want_are_applied_with_their_prefixes() {
    let mut snapshot = peered();
    let names = |snapshot: &Snapshot| -> Vec<(String, usize)> {
        let peerings = peerings(&config(), snapshot);
        peerings.into_iter().map(|one| (one.id, one.prefixes.len())).collect()
    };
    assert_eq!(
        names(&snapshot),
        [("302".into(), 0), ("303".into(), 2)],
        "one missing network stops no other"
    );
    snapshot.prefixes.clear();
    assert_eq!(names(&snapshot), [("302".into(), 0), ("303".into(), 1)]);
    snapshot.source.spec.peerings[1].prefixes.remove(0);
    assert_eq!(names(&snapshot), [("302".into(), 0)], "no allocated prefix is not the whole network");
    snapshot.peers.get_mut("u2").unwrap().id.clear();
    assert_eq!(names(&snapshot), [], "a network without an ID");
}

/// The user of a network can write its `incomingPeerings`.
#[test]
fn a_peering_that_the_other_network_does_not_name_is_not_applied() {
    let ids = |change: fn(&mut Snapshot)| -> Vec<String> {
        let mut snapshot = peered();
        change(&mut snapshot);
        peerings(&config(), &snapshot).into_iter().map(|one| one.id).collect()
    };
    assert_eq!(ids(|_| {}), ["302", "303"]);
    assert_eq!(ids(|snapshot| snapshot.peers.get_mut("u3").unwrap().source.spec.peerings.clear()), ["302"]);
    // The network of the same name in its own namespace.
    let own_namespace = |snapshot: &mut Snapshot| {
        let peer = snapshot.peers.get_mut("u3").unwrap();
        peer.source.spec.peerings[0].network_ref.namespace.clear();
    };
    assert_eq!(ids(own_namespace), ["302"]);
    assert_eq!(
        ids(|snapshot| snapshot.source.spec.peerings.truncate(1)),
        ["302"],
        "this one names it no longer"
    );
    assert_eq!(ids(|snapshot| drop(snapshot.peers.remove("u2"))), ["303"], "it cannot be read");
}

#[test]
fn the_worst_state_of_all_partitions_is_reported_once() {
    let mut snapshot = peered();
    let counterpart = snapshot.counterpart.as_mut().unwrap();
    counterpart.spec.peerings = peerings(&config(), &peered());
    let states = |a: &str, b: &str| -> BTreeMap<String, Vec<apinet::PeeringStatus>> {
        let one = |state: &str| vec![apinet::PeeringStatus { id: 303, state: state.into() }];
        [("a".into(), one(a)), ("b".into(), one(b))].into()
    };
    for (a, b, worst, prefixes) in
        [("Ready", "Ready", "Ready", 2), ("Ready", "Pending", "Pending", 0), ("Error", "Pending", "Error", 0)]
    {
        snapshot.counterpart.as_mut().unwrap().status.peerings = states(a, b);
        let status = peering_status(&snapshot);
        assert_eq!(status.len(), 1);
        let source::PeeringStatus { name, state, prefixes: reported } = &status[0];
        assert_eq!((name.as_str(), state.as_str(), reported.len()), ("some", worst, prefixes));
    }
}
