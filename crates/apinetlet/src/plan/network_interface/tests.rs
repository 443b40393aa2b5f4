#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use serde_json::{Value, json};

use super::*;
use crate::plan::fixtures::{acts, config, deleting, problems};

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn source(spec: Value) -> source::NetworkInterface {
    serde_json::from_value(json!({
        "metadata": { "name": "nic", "namespace": "team", "uid": "u1", "finalizers": ["apinet.ironcore.dev/networkinterface"] },
        "spec": spec,
    }))
    .unwrap()
}

fn interface(uid: &str, holder: Option<(&str, &str)>, more: Value) -> apinet::NetworkInterface {
    let mut object: apinet::NetworkInterface = serde_json::from_value(more).unwrap();
    let written = holder.map(|(uid, name)| {
        let origin = Origin { uid: uid.into(), namespace: "team".into(), name: name.into() };
        Keys::of(config().flavor, Kind::NetworkInterface).write(&origin, config().layout)
    });
    object.metadata = ObjectMeta {
        name: Some(format!("apinet-{uid}")),
        uid: Some(uid.into()),
        resource_version: Some("7".into()),
        labels: written.clone().map(|written| written.labels),
        annotations: written.map(|written| written.annotations),
        ..ObjectMeta::default()
    };
    object
}

fn virtual_ip(name: &str, holder: Option<&str>, address: Option<&str>) -> source::VirtualIp {
    let target = holder.map(|uid| json!({ "name": format!("nic-{uid}"), "uid": uid }));
    serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "team", "resourceVersion": "3" },
        "spec": { "ipFamily": "IPv4", "targetRef": target },
        "status": { "ip": address },
    }))
    .unwrap()
}

const ID: &str = "ironcore-net://apinet/apinet-i1/other-node/i1";

#[test]
fn a_free_interface_is_claimed_and_configured_in_one_write() {
    let nat = json!([
        { "ipFamily": "IPv4", "claimRef": { "name": "n4", "uid": "1" } },
        { "ipFamily": "IPv6", "claimRef": { "name": "n6", "uid": "2" } },
    ]);
    let mut snapshot = Snapshot {
        source: source(json!({
            "providerID": ID, "virtualIP": { "virtualIPRef": { "name": "vip" } },
            "prefixes": [{ "value": "10.1.0.0/24" }, { "ephemeral": {} }, { "ephemeral": {} }],
        })),
        interfaces: vec![interface("i1", None, json!({ "metadata": {}, "spec": { "natGateways": nat } }))],
        virtual_ips: vec![virtual_ip("vip", None, Some("10.0.0.1"))],
        prefixes: [("nic-pf-2".into(), "10.2.0.0/24".into())].into(),
        ..Snapshot::default()
    };
    let first = plan(&config(), &snapshot, NOW);
    assert_eq!(acts(&first), ["ClaimVirtualIP", "ClaimNetworkInterface"]);
    let Act::Claim(reference, _, configuration) = first.steps[1].action.act.clone() else { unreachable!() };
    assert_eq!((reference.name.as_str(), reference.resource_version.as_str()), ("apinet-i1", "7"));
    assert_eq!(
        serde_json::to_value(&configuration).unwrap(),
        json!({
            "publicIPs": [{ "name": "10.0.0.1", "ipFamily": "IPv4", "ip": "10.0.0.1" }],
            "prefixes": ["10.1.0.0/24", "10.2.0.0/24"],
            "natGateways": [nat[1]],
        }),
        "a Prefix that is not allocated delays nothing else"
    );

    let Configuration { public_ips, prefixes, nat_gateways } = configuration;
    let mut claimed =
        interface("i1", Some(("u1", "nic")), json!({ "metadata": {}, "spec": { "ips": ["192.168.0.1"] } }));
    claimed.spec = apinet::NetworkInterfaceSpec { public_ips, prefixes, nat_gateways, ..claimed.spec };
    claimed.status = apinet::NetworkInterfaceStatus {
        state: "Ready".into(),
        public_ips: vec!["fdef::1".into(), "10.0.0.1".into()],
    };
    snapshot.interfaces = vec![claimed];
    snapshot.virtual_ips = vec![virtual_ip("vip", Some("u1"), Some("10.0.0.1"))];
    let second = plan(&config(), &snapshot, NOW);
    assert_eq!(acts(&second), ["UpdateStatus"]);
    let Act::SetStatus(Status::NetworkInterface(status)) = &second.steps[0].action.act else {
        unreachable!()
    };
    assert_eq!(
        serde_json::to_value(status).unwrap(),
        json!({
            "state": "Available", "lastStateTransitionTime": "1970-01-01T00:00:00Z", "ips": ["192.168.0.1"],
            "prefixes": ["10.1.0.0/24", "10.2.0.0/24"], "virtualIP": "10.0.0.1",
        })
    );
    snapshot.source.status = status.clone();
    let later = NOW + jiff::SignedDuration::from_hours(1);
    assert_eq!(acts(&plan(&config(), &snapshot, later)), [""; 0], "nothing is written in steady state");
}

#[test]
fn an_interface_of_another_source_object_is_never_touched() {
    let snapshot = Snapshot {
        source: source(json!({ "providerID": ID })),
        interfaces: vec![interface("i1", Some(("u2", "second")), json!({ "metadata": {} }))],
        ..Snapshot::default()
    };
    let plan = plan(&config(), &snapshot, NOW);
    assert_eq!((acts(&plan), problems(&plan)), (vec![], vec!["InterfaceTaken"]));
    let text = plan.problems[0].because.to_string();
    assert!(text.contains("apinet-i1") && text.contains("NetworkInterface team/second"), "{text}");
}

#[test]
fn a_changed_provider_id_releases_the_old_interface_before_the_new_one_is_claimed() {
    let old = interface("i0", Some(("u1", "nic")), json!({ "metadata": {} }));
    let new = interface("i1", None, json!({ "metadata": {} }));
    for interfaces in [vec![old.clone(), new.clone()], vec![new, old]] {
        let snapshot =
            Snapshot { source: source(json!({ "providerID": ID })), interfaces, ..Snapshot::default() };
        let plan = plan(&config(), &snapshot, NOW);
        assert_eq!(acts(&plan), ["ReleaseNetworkInterface", "ClaimNetworkInterface"]);
    }
}

#[test]
fn a_virtual_ip_is_free_for_others_after_the_interface_has_lost_its_address() {
    let address = json!([{ "name": "10.0.0.1", "ipFamily": "IPv4", "ip": "10.0.0.1" }]);
    let snapshot = Snapshot {
        source: source(json!({ "providerID": ID })),
        interfaces: vec![interface(
            "i1",
            Some(("u1", "nic")),
            json!({ "metadata": {}, "spec": { "publicIPs": address } }),
        )],
        virtual_ips: vec![virtual_ip("vip", Some("u1"), Some("10.0.0.1"))],
        ..Snapshot::default()
    };
    assert_eq!(acts(&plan(&config(), &snapshot, NOW)), ["ConfigureNetworkInterface", "ReleaseVirtualIP"]);
}

#[test]
fn a_virtual_ip_that_is_being_deleted_is_released_after_the_interface_has_lost_its_address() {
    let address = json!([{ "name": "10.0.0.1", "ipFamily": "IPv4", "ip": "10.0.0.1" }]);
    let mut deleted = virtual_ip("vip", Some("u1"), Some("10.0.0.1"));
    deleting(&mut deleted.metadata);
    let mut snapshot = Snapshot {
        source: source(json!({ "providerID": ID, "virtualIP": { "virtualIPRef": { "name": "vip" } } })),
        interfaces: vec![interface(
            "i1",
            Some(("u1", "nic")),
            json!({ "metadata": {}, "spec": { "publicIPs": address } }),
        )],
        virtual_ips: vec![deleted],
        ..Snapshot::default()
    };
    assert_eq!(acts(&plan(&config(), &snapshot, NOW)), ["ConfigureNetworkInterface", "ReleaseVirtualIP"]);
    snapshot.virtual_ips[0].spec.target_ref = None;
    assert_eq!(
        acts(&plan(&config(), &snapshot, NOW)),
        ["ConfigureNetworkInterface"],
        "it is not claimed a second time"
    );
}

#[test]
fn the_virtual_ip_of_another_interface_is_a_problem_and_stops_nothing_else() {
    let snapshot = Snapshot {
        source: source(json!({ "providerID": ID, "virtualIP": { "ephemeral": {} } })),
        interfaces: vec![interface("i1", None, json!({ "metadata": {} }))],
        virtual_ips: vec![virtual_ip("nic", Some("u2"), Some("10.0.0.1"))],
        ..Snapshot::default()
    };
    let plan = plan(&config(), &snapshot, NOW);
    assert_eq!((acts(&plan), problems(&plan)), (vec!["ClaimNetworkInterface"], vec!["VirtualIPTaken"]));
}

#[test]
fn the_address_of_another_virtual_ip_is_not_used() {
    let ip = |uid: &str| -> apinet::Ip {
        let origin = Origin { uid: uid.into(), namespace: "team".into(), name: "vip".into() };
        let written = Keys::of(config().flavor, Kind::VirtualIp).write(&origin, config().layout);
        let spec = json!({ "type": "Public", "ipFamily": "IPv4", "ip": "10.0.0.1" });
        let mut ip: apinet::Ip = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        (ip.metadata.labels, ip.metadata.annotations) = (Some(written.labels), Some(written.annotations));
        ip
    };
    let mut claimed = virtual_ip("vip", Some("u1"), Some("10.0.0.1"));
    claimed.metadata.uid = Some("v1".into());
    let mut snapshot = Snapshot {
        source: source(json!({ "providerID": ID, "virtualIP": { "virtualIPRef": { "name": "vip" } } })),
        interfaces: vec![interface("i1", None, json!({ "metadata": {} }))],
        virtual_ips: vec![claimed],
        ..Snapshot::default()
    };
    for (ips, is_used) in [(vec![ip("v1")], true), (vec![ip("v2")], false), (vec![], true)] {
        snapshot.ips = ips;
        let plan = plan(&config(), &snapshot, NOW);
        let Act::Claim(_, _, configuration) = &plan.steps[0].action.act else { unreachable!("{plan:?}") };
        assert_eq!(configuration.public_ips.len(), usize::from(is_used), "{:?}", snapshot.ips);
        assert_eq!(problems(&plan).contains(&"AddressTaken"), !is_used, "{:?}", snapshot.ips);
    }
}

#[test]
fn without_an_interface_the_source_is_pending() {
    let mut snapshot = Snapshot { source: source(json!({})), ..Snapshot::default() };
    assert_eq!(acts(&plan(&config(), &snapshot, NOW)), [""; 0], "Pending is the default");
    snapshot.source.status.state = "Available".into();
    snapshot.source.status.ips = vec!["192.168.0.1".into()];
    let steps = plan(&config(), &snapshot, NOW).steps;
    let Act::SetStatus(Status::NetworkInterface(status)) = &steps[0].action.act else {
        unreachable!("{steps:?}")
    };
    assert_eq!((status.state.as_str(), status.ips.len()), ("Pending", 0));
    assert!(status.last_state_transition_time.is_some());
    let other_writer = Config { interface_status: false, ..config() };
    assert_eq!(acts(&plan(&other_writer, &snapshot, NOW)), [""; 0]);
    snapshot.source.spec.provider_id = "ironcore-net://a/b".into();
    assert_eq!(problems(&plan(&other_writer, &snapshot, NOW)), ["ProviderIDInvalid"]);
}

#[test]
fn a_deleted_source_releases_interfaces_then_virtual_ips_then_itself() {
    let mut snapshot = Snapshot {
        source: source(json!({ "providerID": ID })),
        interfaces: vec![
            interface("i1", Some(("u1", "nic")), json!({ "metadata": {} })),
            interface("i2", Some(("u2", "second")), json!({ "metadata": {} })),
        ],
        virtual_ips: vec![virtual_ip("vip", Some("u1"), None), virtual_ip("other", Some("u2"), None)],
        ..Snapshot::default()
    };
    deleting(&mut snapshot.source.metadata);
    let all = ["ReleaseNetworkInterface", "ReleaseVirtualIP", "RemoveFinalizer"];
    assert_eq!(acts(&plan(&config(), &snapshot, NOW)), all);
    snapshot.source.metadata.finalizers = None;
    assert_eq!(acts(&plan(&config(), &snapshot, NOW)), [""; 0]);
}

#[test]
fn labels_that_the_go_program_has_copied_become_those_of_the_source_object() {
    let ours = Config { source_cluster: Some("ours".into()), ..config() };
    let mark = Some((config().flavor.source_cluster_label(), "ours".to_owned()));
    for (holder, mark, written) in [
        (Some(("u1", "nic")), None, Some("new")),
        // This program has not copied the label, so that it is another program's.
        (Some(("u1", "nic")), mark, None),
        // The MachinePool's.
        (None, None, None),
    ] {
        let mut interface = interface("i1", holder, json!({ "metadata": {} }));
        let labels = interface.metadata.labels.get_or_insert_default();
        labels.insert("app".into(), "old".into());
        labels.extend(mark.clone());
        let mut source = source(json!({ "providerID": ID }));
        source.metadata.labels = Some([("app".to_owned(), "new".to_owned())].into());
        let snapshot = Snapshot { source, interfaces: vec![interface], ..Snapshot::default() };
        let steps = plan(&ours, &snapshot, NOW).steps;
        let patch = steps.iter().find_map(|step| match &step.action.act {
            Act::Claim(_, patch, _) | Act::Configure(_, patch, _) => Some(patch),
            _ => None,
        });
        let label = patch.and_then(|patch| patch.labels.get("app").cloned().flatten());
        assert_eq!(label.as_deref(), written, "{holder:?} {mark:?}");
    }
}

#[test]
fn an_interface_that_is_being_deleted_is_not_claimed() {
    let mut snapshot = Snapshot {
        source: source(json!({ "providerID": ID })),
        interfaces: vec![interface("i1", None, json!({ "metadata": {} }))],
        ..Snapshot::default()
    };
    deleting(&mut snapshot.interfaces[0].metadata);
    assert_eq!(acts(&plan(&config(), &snapshot, NOW)), [""; 0]);
}
