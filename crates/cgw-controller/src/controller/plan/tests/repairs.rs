//! Repairs, and the gateway in force.

use super::super::repair::{Repair, repair};
use super::*;
use crate::api::http::{KeeperStatus, VrrpState};

fn delayed(repair: &Repair) -> Vec<&'static str> {
    repair.delayed.iter().map(common::plan::Action::name).collect()
}

fn problems(repair: &Repair) -> Vec<&'static str> {
    repair.problems.iter().map(|problem| common::plan::Reason::code(&problem.because)).collect()
}

fn only(mut snapshot: Snapshot, names: &[&str]) -> Snapshot {
    snapshot.services.retain(|name, _| names.contains(&name.name()));
    snapshot
}

#[test]
fn nothing_is_written_where_record_and_annotations_agree() {
    for snapshot in [
        free(),
        with(free(), namespace("x"), &[]),
        with(free(), namespace("x"), &["a"]),
        with(free(), service("x", "a"), &["a"]),
    ] {
        assert_eq!(repair(&snapshot), Repair::default());
    }
}

#[test]
fn what_a_crash_left_is_finished() {
    let orphan = {
        let mut snapshot = with(free(), service("x", "a"), &["a"]);
        Arc::make_mut(&mut snapshot.binds).clear();
        snapshot
    };
    assert_eq!(delayed(&repair(&orphan)), ["UnbindService"]);
    let other = {
        let mut snapshot = with(free(), service("x", "b"), &["a", "b"]);
        put(&mut snapshot, carrying(tenant("x", "b", 81), VIP, 1, Some(master(21, 100))));
        snapshot
    };
    assert_eq!(delayed(&repair(&other)), ["UnbindService"]);
    assert_eq!(delayed(&repair(&with(free(), service("x", "a"), &[]))), ["BindService"]);
    let unbinding = |mut snapshot: Snapshot| {
        Arc::make_mut(&mut snapshot.binds).get_mut(&vip(VIP)).unwrap().unbinding = true;
        delayed(&repair(&snapshot))
    };
    assert_eq!(unbinding(with(free(), service("x", "a"), &["a"])), ["UnbindService", "RemoveBinding"]);
    assert_eq!(unbinding(with(free(), service("x", "a"), &[])), ["RemoveBinding"]);
    assert_eq!(unbinding(with(free(), namespace("x"), &["a"])), ["RecordBinding"]);
    assert_eq!(unbinding(with(free(), namespace("x"), &[])), ["RemoveBinding"]);
}

#[test]
fn ingress_without_the_annotation_is_removed() {
    let listed = vec![Listed { ip: VIP.parse().unwrap(), ip_mode: Some("Proxy".to_owned()) }];
    let showing = Tenant { publication: Publication::Status(IpMode::Proxy), listed, ..tenant("x", "a", 80) };
    let of = |mut snapshot: Snapshot| {
        put(&mut snapshot, showing.clone());
        delayed(&repair(&snapshot))
    };
    // The VIP was that of the namespace; now it is so, another namespace's, or free.
    for snapshot in [with(free(), namespace("x"), &[]), with(free(), namespace("y"), &["c"]), free()] {
        assert_eq!(of(snapshot), ["RemoveIngress"]);
    }
    // The annotation is another VIP of the namespace.
    let mut other = with(free(), service("x", "a"), &[]);
    Arc::make_mut(&mut other.binds).insert(vip(OTHER), record(namespace("x"), 2));
    put(&mut other, carrying(showing.clone(), OTHER, 2, None));
    assert_eq!(delayed(&repair(&other)), ["RemoveIngress"]);
    // The Service that has the VIP alone gets its annotations again.
    assert_eq!(of(with(free(), service("x", "a"), &[])), ["BindService"]);
    // No keeper has this address, and no record.
    assert_eq!(of(Snapshot { is_served: false, ..free() }), Vec::<&str>::new());
}

#[test]
fn an_older_gateway_is_replaced_and_a_newer_one_stays() {
    for (current, now, refreshes) in [
        (Some(master(22, 99)), Some(master(21, 100)), true),
        (Some(master(22, 101)), Some(master(21, 100)), false),
        (None, Some(master(21, 100)), true),
        (Some(master(22, 99)), None, false),
        (Some(master(21, 100)), Some(master(21, 100)), false),
    ] {
        let mut snapshot = with(free(), namespace("x"), &[]);
        put(&mut snapshot, carrying(tenant("x", "a", 80), VIP, 1, current));
        snapshot.master = now;
        assert_eq!(repair(&snapshot).refresh.len(), usize::from(refreshes), "{current:?} {now:?}");
    }
    // The number of the record is in force.
    let mut snapshot = with(free(), namespace("x"), &[]);
    put(&mut snapshot, carrying(tenant("x", "a", 80), VIP, 7, Some(master(21, 100))));
    assert_eq!(repair(&snapshot).refresh.len(), 1);
    // A MAC address that changed without a flip.
    let mut snapshot = with(free(), namespace("x"), &["a"]);
    let changed = Gateway { tun_mac: gateway(99).tun_mac, ..gateway(21) };
    snapshot.master = Some(Master { gateway: changed, epoch: Epoch(100) });
    assert_eq!(repair(&snapshot).refresh.len(), 1);
}

#[test]
fn problems_are_reported_and_not_repaired() {
    let missing = only(with(free(), service("x", "gone"), &[]), &[]);
    assert_eq!(problems(&repair(&missing)), ["ServiceMissing"]);
    let deleted = Snapshot { has_namespace: false, ..only(with(free(), namespace("x"), &[]), &[]) };
    assert_eq!((problems(&repair(&deleted)), delayed(&repair(&deleted))), (vec!["NamespaceMissing"], vec![]));
    let mut other = with(free(), service("x", "a"), &[]);
    Arc::make_mut(&mut other.binds).insert(vip(OTHER), record(namespace("x"), 2));
    put(&mut other, carrying(tenant("x", "a", 80), OTHER, 2, None));
    assert_eq!(problems(&repair(&other)), ["OtherVip"]);
    assert!(repair(&other).delayed.is_empty());
    let ports = with(free(), namespace("x"), &["a", "same"]);
    assert_eq!(problems(&repair(&ports)), ["PortConflict", "PortConflict"]);
    let mut unknown = with(free(), namespace("x"), &[]);
    put(&mut unknown, carrying(tenant("x", "a", 80), VIP, 1, None));
    unknown.master = None;
    assert_eq!(problems(&repair(&unknown)), ["NoMaster"]);
    // The annotations name the last gateway. Before the first poll nothing is known.
    let mut lost = with(free(), namespace("x"), &["a"]);
    lost.master = None;
    assert_eq!(problems(&repair(&lost)), Vec::<&str>::new());
    lost.has_no_master = true;
    assert_eq!(problems(&repair(&lost)), ["NoMaster"]);
}

#[test]
fn a_conflict_of_ports_does_not_hide_that_no_gateway_is_master() {
    let mut lost = with(free(), namespace("x"), &["a", "same"]);
    (lost.master, lost.has_no_master) = (None, true);
    assert_eq!(problems(&repair(&lost)), ["PortConflict", "NoMaster", "PortConflict", "NoMaster"]);
}

fn status(last: u8, state: VrrpState, since: f64) -> KeeperStatus {
    let Gateway { node_ip, tun_mac } = gateway(last);
    KeeperStatus { state, since, vrid: 51, vips: Vec::new(), node_ip, tun_mac: Some(tun_mac) }
}

#[test]
fn the_newest_master_by_vrrp_state_is_elected() {
    use VrrpState::{Backup, Fault, Master as Is};
    let elected = |statuses: &[KeeperStatus], recorded| {
        master::elect(statuses, recorded).map(|master| (master.gateway, master.epoch.0))
    };
    assert_eq!(elected(&[], None), None);
    assert_eq!(elected(&[status(21, Backup, 5.0), status(22, Fault, 6.0)], Some(master(21, 1))), None);
    assert_eq!(elected(&[status(21, Is, 1.0), status(22, Is, 1.5)], None), Some((gateway(22), 1500)));
    // Two masters: the recorded one is the newest.
    let both = [status(21, Is, 3.0), status(22, Is, 2.0)];
    assert_eq!(elected(&both, Some(master(21, 3000))), Some((gateway(21), 3000)));
    // The clock of the new master is late, and the recorded one is gone.
    assert_eq!(elected(&[status(22, Is, 2.0)], Some(master(21, 3000))), Some((gateway(22), 3001)));
    // The raised epoch stays.
    assert_eq!(elected(&[status(22, Is, 2.0)], Some(master(22, 3001))), Some((gateway(22), 3001)));
    // Both are MASTER, and the recorded one was raised: it stays.
    assert_eq!(elected(&both, Some(master(22, 3001))), Some((gateway(22), 3001)));
    // MASTER without a tunnel interface is none.
    let without = KeeperStatus { tun_mac: None, ..status(21, Is, 1.0) };
    assert_eq!(elected(&[without], None), None);
    for since in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
        assert_eq!(elected(&[status(21, Is, since)], None), None, "{since}");
    }
    assert_eq!(master::epoch(1_795_171_661.739), Some(Epoch(1_795_171_661_739)));
}
