//! `provider: Any`: what another CSI driver and another cloud controller manager hold is recorded, deleted in the cluster and waited for. No
//! cloud is read, and nothing says that one was.

use std::time::Duration;

use common::api::deorbit::{Kind, Phase};
use common::conditions::Status;
use serde_json::json;

use super::env::*;
use crate::observe::snapshot::{Pod, Volume};
use crate::plan::preview;
use crate::settings::Settings;

const CLASS: Option<&str> = Some("balancer.example.com/internal");

fn message(env: &TestEnv, kind: &str) -> String {
    env.run.status.conditions.iter().find(|one| one.kind == kind).unwrap().message.clone()
}

#[test]
fn what_other_drivers_and_classes_hold_is_deleted_and_waited_for() {
    let mut env = TestEnv::anywhere(json!({}));
    env.disk("data");
    env.copy("daily", "data");
    env.balanced("web", CLASS);
    env.balanced("shop", None);
    env.cluster.pods.push(Pod { meta: meta("a", "db-0"), claims: vec!["data".into()], unscheduled: false });
    env.until(Phase::Deleting);
    let recorded = |kind: Kind| env.run.records.iter().filter(|one| one.kind == kind).count();
    assert_eq!((recorded(Kind::Volume), recorded(Kind::Snapshot), recorded(Kind::LoadBalancer)), (1, 1, 2));
    assert!(env.run.records.iter().any(|one| one.id.as_deref() == Some("disk.example.com/vol-data")));
    assert_eq!(env.deletes(), 0, "records are stored before anything is deleted");
    env.until(Phase::Verifying);
    assert_eq!(env.left_elsewhere(), Vec::<&String>::new(), "the finalizers were waited for");
    env.finish();
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0));
    assert_eq!(env.deletes(), 5, "{:?}", env.acts);
    assert_eq!(env.condition("Complete"), (Status::True, "Complete".to_owned()));
    assert_eq!(env.condition("CloudReachable"), (Status::Unknown, "NotRead".to_owned()));
    assert_eq!(env.condition("Verified"), (Status::Unknown, "ClusterOnly".to_owned()));
    let verified = message(&env, "Verified");
    assert!(verified.contains("1 volumes, 1 snapshots and 2 load balancers"), "{verified}");
    assert!(message(&env, "Complete").contains("no cloud was read"));
}

#[test]
fn the_same_objects_are_left_alone_by_a_run_for_openstack() {
    for (provider, recorded) in [("OpenStack", 0), ("Any", 2)] {
        let mut env = TestEnv::anywhere(json!({"provider": provider}));
        env.balanced("web", CLASS);
        env.pending("data", DRIVER);
        env.finish();
        assert_eq!((env.run.records.len(), env.deletes()), (recorded, recorded), "{provider}");
        assert_eq!(env.cluster.claims.is_empty(), recorded > 0, "{provider}");
    }
}

#[test]
fn volumes_without_a_driver_hold_nothing_and_stay() {
    let mut env = TestEnv::anywhere(json!({}));
    // A PersistentVolume of hostPath, local or NFS is not among those that are read.
    env.claim("host").volume = Some("pv-host".into());
    env.cluster.volumes.clear();
    env.pending("local", "rancher.io/local-path");
    env.untouchable = vec!["uid-host".into(), "uid-local".into()];
    env.finish();
    assert_eq!((env.run.status.phase, env.run.records.len()), (Phase::Succeeded, 0));
    assert_eq!(env.cluster.claims.len(), 2);
}

#[test]
fn a_claim_that_gets_a_volume_without_a_driver_is_kept_and_not_waited_for() {
    let mut env = TestEnv::anywhere(json!({}));
    env.pending("data", DRIVER);
    env.course.refuses = Some("uid-data".into());
    env.until(Phase::Deleting);
    env.step();
    env.cluster.claims[0].volume = Some("pv-host".into());
    env.course.refuses = None;
    env.untouchable = vec!["uid-data".into()];
    env.finish();
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0));
    let kept = env.run.records[0].kept.as_deref();
    assert!(kept.is_some_and(|why| why.contains("its volume has no driver")), "{kept:?}");
}

#[test]
fn load_balancers_without_a_finalizer_and_volumes_in_creation_get_the_grace_period() {
    for variant in ["balancer", "volume", "neither"] {
        let mut env = TestEnv::anywhere(json!({"timeouts": {"loadBalancerGrace": "3m"}}));
        // 15 reconciliations take less than a minute.
        env.other.delay = 15;
        match variant {
            "balancer" => {
                env.balanced("web", CLASS);
                env.other.without_finalizer.insert("uid-web".into());
            }
            "volume" => {
                env.pending("data", DRIVER);
                env.other.creating.insert("uid-data".into());
            }
            _ => env.disk("data"),
        }
        env.until(Phase::Verifying);
        let begun = env.now;
        env.finish();
        let took = env.now.duration_since(begun).as_secs();
        assert_eq!(took >= 180, variant != "neither", "{variant}: {took} s");
        assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0), "{variant}");
        assert_eq!(env.left_elsewhere(), Vec::<&String>::new(), "{variant}");
    }
}

#[test]
fn what_a_stopped_driver_leaves_is_debris_with_its_id_and_can_keep_the_cluster() {
    for (end, phase) in [("Release", Phase::Succeeded), ("Block", Phase::Failed)] {
        let mut env =
            TestEnv::anywhere(json!({"onTimeout": end, "timeouts": {"total": "10m", "perObject": "1m"}}));
        env.course.csi_stopped = true;
        env.stale_leases();
        env.disk("data");
        env.until(Phase::Deleting);
        let decision = env.step();
        let problems: Vec<String> =
            decision.plan.problems.iter().map(|one| one.because.to_string()).collect();
        let stopped = problems.iter().find(|text| text.contains("renews its Lease")).unwrap();
        assert!(!stopped.contains("orphanPolicy"), "it cannot be set: {stopped}");
        env.finish();
        assert_eq!((env.run.status.phase, env.run.status.debris_count), (phase, 1));
        let debris = &env.run.status.debris[0];
        assert_eq!(debris.id.as_deref(), Some("disk.example.com/vol-data"));
        assert!(debris.reason.contains("pv-data is still there"), "{debris:?}");
        assert_eq!(env.condition("Verified"), (Status::False, "DebrisLeft".to_owned()));
        assert_eq!(env.left_elsewhere().len(), 1);
    }
}

#[test]
fn the_policy_retain_and_annotations_keep_volumes_of_any_driver() {
    for (choice, remaining) in [("Keep", 2), ("Delete", 1)] {
        let mut env = TestEnv::anywhere(json!({"retainedVolumes": choice}));
        env.disk("retained");
        env.volume("retained").retain = true;
        env.disk("kept");
        env.cluster.claims[1].meta.keep = true;
        // No controller deletes the volume of a PersistentVolume that no claim ever had.
        env.cluster.volumes.push(Volume {
            meta: meta("", "pv-spare"),
            id: "disk.example.com/spare".into(),
            ..Volume::default()
        });
        env.untouchable = vec!["uid-pv-spare".into(), "uid-kept".into(), "disk.example.com/vol-kept".into()];
        if choice == "Keep" {
            env.untouchable.push("disk.example.com/vol-retained".into());
        }
        env.finish();
        assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0));
        assert_eq!(env.other.resources.len(), remaining, "{choice}: {:?}", env.other.resources);
        assert_eq!(env.run.status.kept, remaining as i64 + 1, "{choice}");
    }
}

#[test]
fn the_preview_lists_the_same_deletes() {
    let mut env = TestEnv::anywhere(json!({}));
    env.disk("data");
    env.balanced("web", CLASS);
    let text = preview::preview(&Settings::default(), &env.snapshot_now(), env.now).to_string();
    for delete in ["delete PersistentVolumeClaim a/data (disk.example.com/vol-data)", "delete Service a/web"]
    {
        assert!(text.contains(delete), "{text}");
    }
}

/// Law: an outage and a refusal are no end, and a limit that is over claims nothing.
#[test]
fn an_unreachable_cluster_ends_with_a_report_and_no_claim_about_a_cloud() {
    let mut env = TestEnv::anywhere(json!({}));
    env.disk("data");
    env.until(Phase::Deleting);
    env.course.refused = env.reconcile..env.reconcile + 20;
    for _ in 0..20 {
        env.now += Duration::from_secs(24 * 3600);
        env.step();
    }
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Deleting, 0), "a refusal never releases");
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.debris_count, 1, "{:?}", env.run.status.debris);
    assert_eq!(env.condition("Verified"), (Status::False, "DebrisLeft".to_owned()));
}

const ALL: usize = 2 * 2 * 5 * 4 * 64;

/// One of the variants of a small simulation.
fn build(mut number: usize) -> TestEnv {
    let mut pick = |choices: usize| {
        let choice = number % choices;
        number /= choices;
        choice
    };
    let (retained, on_timeout) = (["Keep", "Delete"][pick(2)], ["Release", "Block"][pick(2)]);
    let (volume, service) = (pick(5), pick(4));
    let [csi_stopped, ccm_stopped, stale, recreates, snapshot, is_slow] = [(); 6].map(|()| pick(2) == 1);
    let timeouts = json!({"perObject": "1m", "total": "10m"});
    let mut env = TestEnv::anywhere(
        json!({"retainedVolumes": retained, "onTimeout": on_timeout, "timeouts": timeouts}),
    );
    env.other.delay = if is_slow { 7 } else { 0 };
    let id = "disk.example.com/vol-data".to_owned();
    match volume {
        0 => env.disk("data"),
        1 => {
            env.disk("data");
            env.volume("data").retain = true;
            env.untouchable.extend((retained == "Keep").then_some(id));
        }
        2 => {
            env.disk("data");
            env.cluster.claims[0].meta.keep = true;
            env.untouchable.extend(["uid-data".into(), id]);
        }
        3 => {
            env.claim("data");
            env.cluster.volumes.clear();
            env.untouchable.push("uid-data".into());
        }
        _ => {
            env.pending("data", DRIVER);
            env.other.creating.insert("uid-data".into());
        }
    }
    env.balanced("web", CLASS);
    match service {
        1 => env.other.without_finalizer.extend(["uid-web".into()]),
        2 => {
            env.cluster.services[0].meta.keep = true;
            env.untouchable.extend(["uid-web".into(), "lb-web".into()]);
        }
        3 => env.cluster.services[0].former = true,
        _ => {}
    }
    if snapshot && volume < 3 {
        env.copy("daily", "data");
    }
    if stale {
        env.stale_leases();
    }
    env.course = Course { csi_stopped, ccm_stopped, recreates, ..Course::default() };
    env
}

fn check(number: usize, env: &TestEnv) {
    let status = &env.run.status;
    assert!(env.cluster.block.any(), "{number}: new objects are not blocked any more");
    assert!(status.phase == Phase::Succeeded || status.debris_count > 0, "{number}");
    let Course { csi_stopped, ccm_stopped, .. } = env.course;
    let left = env.left_elsewhere();
    if !csi_stopped && !ccm_stopped {
        assert!(status.debris_count == 0 && left.is_empty(), "{number}: {left:?} {:?}", status.debris);
    }
    // Only the load balancer of a stopped controller without a finalizer can be left without debris: nothing in the cluster shows it.
    let hidden = ccm_stopped && !env.other.without_finalizer.is_empty();
    let shown = left.iter().filter(|id| !(hidden && id.starts_with("lb-"))).count();
    assert!(status.debris_count > 0 || shown == 0, "{number}: {left:?}");
    let expected = match status.debris_count {
        0 => (Status::Unknown, "ClusterOnly".to_owned()),
        _ => (Status::False, "DebrisLeft".to_owned()),
    };
    assert_eq!(env.condition("Verified"), expected, "{number}");
    for id in env.untouchable.iter().filter(|id| !id.starts_with("uid-")) {
        assert!(env.other.resources.contains(id), "{number}: {id} is gone");
    }
}

#[test]
fn every_variant_with_any_provider_ends_correctly() {
    for number in 0..ALL {
        let mut env = build(number);
        env.finish();
        check(number, &env);
    }
}

#[test]
fn a_stop_in_any_reconciliation_does_not_change_the_end_with_any_provider() {
    let mut deaths = 0;
    // Coprime to all choices: the slice has each of them.
    for number in (0..ALL).step_by(97) {
        let mut undisturbed = build(number);
        undisturbed.finish();
        for reconcile in 0..undisturbed.reconcile.min(14) {
            for after_first in [false, true] {
                let mut env = build(number);
                let course = &mut env.course;
                *if after_first { &mut course.dies_after_first } else { &mut course.dies_before_acts } =
                    Some(reconcile);
                env.finish();
                check(number, &env);
                assert_eq!(env.run.status.phase, undisturbed.run.status.phase, "{number}, {reconcile}");
                assert_eq!(env.other.resources, undisturbed.other.resources, "{number}, {reconcile}");
                deaths += 1;
            }
        }
    }
    assert!(deaths > 1_000, "{deaths}");
}
