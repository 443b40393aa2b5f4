//! A server that refuses, or a wrong cluster: the run waits for you, and no timeout ends that.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use serde_json::json;

use super::env::*;
use crate::plan::Decision;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn problems(decision: &Decision) -> Vec<&'static str> {
    use common::plan::Reason as _;
    decision.plan.problems.iter().map(|problem| problem.because.code()).collect()
}

/// Reconciles for two days.
fn two_days(env: &mut TestEnv) -> Decision {
    let mut last = env.step();
    for _ in 0..20 {
        env.now += DAY / 10;
        last = env.step();
    }
    last
}

#[test]
fn a_kubeconfig_of_the_management_cluster_is_refused_and_nothing_is_deleted() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.service("web");
    env.management = env.cluster.uid.clone().unwrap();
    let last = two_days(&mut env);
    assert_eq!(env.acts, [""; 0], "not even the finalizer is added");
    assert_eq!(env.run.status.phase, Phase::Pending);
    assert_eq!(env.condition("TargetReachable"), (Status::False, "IsManagementCluster".to_owned()));
    assert_eq!(env.condition("Complete").0, Status::False);
    assert!(problems(&last).contains(&"TargetIsManagementCluster"), "{:?}", problems(&last));
}

#[test]
fn the_management_cluster_is_cleaned_up_where_in_cluster_says_so() {
    let mut env = proven(json!({"kubeconfig": null, "inCluster": true}));
    env.claim("data");
    env.management = env.cluster.uid.clone().unwrap();
    env.finish();
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 1));
}

#[test]
fn an_identity_that_cannot_be_read_refuses_to_start() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.cluster.uid = None;
    two_days(&mut env);
    assert_eq!((env.acts.len(), env.run.status.phase), (0, Phase::Pending));
    assert_eq!(env.condition("Stalled").0, Status::True);
    assert_eq!(env.condition("TargetReachable"), (Status::False, "Refused".to_owned()));
    env.cluster.uid = Some("target".into());
    let unknown = env.run.verify_identity(env.cluster.clone(), Err("forbidden".to_owned())).unwrap_err();
    assert!(
        !unknown.is_outage() && unknown.to_string().contains("management cluster is unknown"),
        "{unknown}"
    );
    let own = TestEnv::new(spec(json!({"kubeconfig": null, "inCluster": true})));
    assert!(own.run.verify_identity(own.cluster.clone(), Err("forbidden".to_owned())).is_ok());
}

#[test]
fn d8_a_refusal_never_releases_the_cluster_and_the_run_goes_on_when_it_ends() {
    for target in [true, false] {
        for phase in [Phase::Pending, Phase::Inventory, Phase::Deleting, Phase::Verifying] {
            let mut env = proven(json!({}));
            env.claim("data");
            while env.run.status.phase < phase {
                env.step();
            }
            let refused = env.reconcile..env.reconcile + 21;
            *if target { &mut env.course.refused } else { &mut env.course.cloud_refused } = refused;
            let last = two_days(&mut env);
            assert_eq!(env.run.status.phase, phase, "target {target}");
            assert_eq!(env.run.book.unreachable_since, None, "no outage is counted");
            let (condition, code) = match target {
                true => ("TargetReachable", "TargetRefused"),
                false => ("CloudReachable", "CloudRefused"),
            };
            assert_eq!(env.condition(condition), (Status::False, "Refused".to_owned()));
            assert!(problems(&last).contains(&code), "{:?}", problems(&last));
            env.finish();
            assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
        }
    }
}

#[test]
fn an_outage_after_a_refusal_gets_the_whole_timeout() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.csi_stopped = true;
    env.until(Phase::Deleting);
    env.course.refused = env.reconcile..env.reconcile + 21;
    two_days(&mut env);
    env.course.outage = env.reconcile..usize::MAX;
    let begun = env.now;
    env.finish_blind();
    assert!(env.now.duration_since(begun).as_secs() >= 600);
}

#[test]
fn a_deorbit_whose_target_refuses_can_be_deleted_after_the_outage_timeout() {
    let mut env = proven(json!({}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.until(Phase::Deleting);
    env.course.refused = env.reconcile..usize::MAX;
    env.step();
    env.run.deleting = Some(env.now);
    let begun = env.now;
    for _ in 0..200 {
        if !env.gone {
            env.step();
        }
    }
    assert!(env.gone, "{:?}", env.acts);
    assert!(env.now.duration_since(begun).as_secs() >= 590);
    assert_eq!(env.did("as soon as it can be done, delete"), 1, "{:?}", env.acts);
}

/// S8
#[test]
fn a_dry_run_is_never_complete_and_can_be_switched_off() {
    for unavailable in [false, true] {
        let mut env = proven(json!({"dryRun": true}));
        env.claim("data");
        env.claim("kept").meta.keep = true;
        if unavailable {
            env.course.cloud_outage = 0..usize::MAX;
        }
        let last = two_days(&mut env);
        let phase = if unavailable { Phase::Inventory } else { Phase::Planned };
        assert_eq!((env.run.status.phase, env.run.status.completion_time), (phase, None));
        assert_eq!(env.condition("Complete").0, Status::False);
        assert_eq!(env.condition("Planned").0, if unavailable { Status::False } else { Status::True });
        assert_eq!((last.requeue_after.is_none(), env.deletes()), (!unavailable, 0));
        assert!(!env.cluster.block.any(), "nothing is blocked");
        if !unavailable {
            assert_eq!((env.run.status.remaining, env.run.status.kept), (1, 1));
            assert!(crate::plan::resting(&env.run, env.now).is_some(), "nothing is read any more");
            env.run.spec.dry_run = false;
            env.run.generation = Some(2);
            env.finish();
            assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 1));
            assert_eq!(env.condition("Planned").0, Status::False);
        }
    }
}

#[test]
fn an_outage_during_a_dry_run_does_not_end_the_run_when_the_dry_run_is_switched_off() {
    for target in [true, false] {
        let mut env = proven(json!({"dryRun": true, "timeouts": {"total": "1h"}}));
        env.claim("data");
        env.until(Phase::Inventory);
        *if target { &mut env.course.outage } else { &mut env.course.cloud_outage } =
            env.reconcile..usize::MAX;
        two_days(&mut env);
        assert_eq!(env.run.status.phase, Phase::Inventory);
        env.run.spec.dry_run = false;
        env.run.generation = Some(2);
        let begun = env.now;
        env.finish_blind();
        let limit = if target { 600 } else { 3600 };
        assert!(env.now.duration_since(begun).as_secs() >= limit, "target {target}");
    }
}

/// S9
#[test]
fn lost_records_delete_nothing_and_the_total_limit_applies_to_them() {
    for (end, phase) in [("Release", Phase::Succeeded), ("Block", Phase::Failed)] {
        let mut env = proven(json!({"onTimeout": end, "timeouts": {"total": "1h"}}));
        env.course.csi_stopped = true;
        env.claim("data");
        env.until(Phase::Deleting);
        (env.run.book, env.run.records) = Default::default();
        env.run.lost = Some("ConfigMap ns/deorbit-0".into());
        let deletes = env.deletes();
        let last = env.step();
        assert!(problems(&last).contains(&"RecordsLost") && !env.run.status.phase.is_final());
        env.finish();
        let status = &env.run.status;
        assert_eq!((status.phase, status.debris[0].kind.as_str()), (phase, "Records"), "{:?}", status.debris);
        assert!(env.now.duration_since(status.start_time.unwrap()).as_secs() >= 3600);
        assert_eq!(env.deletes(), deletes);
        env.run.deleting = Some(env.now);
        env.finish();
        assert!(env.gone && !env.cluster.block.any());
    }
}

/// S9: where the end has something to do that fails, too.
#[test]
fn lost_records_remove_no_routes_and_the_total_limit_applies_whatever_fails_at_the_end() {
    use common::routes::Route;

    use crate::observe::snapshot::Routes;
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let stale = vec![Route::new("10.244.1.0/24", "10.0.0.9")];
    let observed = Routes { all: stale.clone(), stale: stale.clone(), ..Routes::default() };
    for observed in [Err("there is no router r-1".to_owned()), Ok(observed)] {
        let mut env =
            proven(json!({"clusterSurvives": true, "resources": routes, "timeouts": {"total": "1h"}}));
        env.course.csi_stopped = true;
        env.claim("data");
        env.until(Phase::Deleting);
        (env.run.book, env.run.records) = Default::default();
        env.run.lost = Some("ConfigMap ns/deorbit-0".into());
        env.course.clings = usize::MAX;
        env.cloud.as_mut().unwrap().routes = Some(observed.clone());
        env.finish_blind();
        assert_eq!(
            (env.run.status.phase, env.run.status.debris[0].kind.as_str()),
            (Phase::Succeeded, "Records")
        );
        assert_eq!(env.cloud.unwrap().routes, Some(observed), "{:?}", env.acts);
    }
}

#[test]
fn a_discovery_reports_volumes_and_snapshots_that_the_policy_retain_may_have_kept() {
    use crate::observe::snapshot::BlockStorage;
    for retained in ["Keep", "Delete"] {
        let asked = json!({"discoverByClusterName": true, "orphanPolicy": "Delete", "retainedVolumes": retained, "timeouts": {"perObject": "5m"}});
        let mut env = proven(asked);
        env.claim("data");
        let cloud = env.cloud.as_mut().unwrap();
        // Their PersistentVolume and VolumeSnapshotContent were deleted before the run.
        let cluster = Some("prod".to_owned());
        let volume =
            BlockStorage { status: "available".into(), cluster: cluster.clone(), ..BlockStorage::default() };
        let snapshot = BlockStorage {
            status: "available".into(),
            volume: "elsewhere".into(),
            cluster,
            ..BlockStorage::default()
        };
        cloud.volumes.insert("orphan".into(), volume);
        cloud.snapshots.insert("orphan-snapshot".into(), snapshot);
        if retained == "Keep" {
            env.untouchable.extend(["orphan".into(), "orphan-snapshot".into()]);
        }
        env.finish();
        let status = &env.run.status;
        let listed = status.debris.iter().filter(|one| one.reason.contains("Retain")).count();
        let count = if retained == "Keep" { 2 } else { 0 };
        assert_eq!(
            (status.phase, status.debris.len(), listed),
            (Phase::Succeeded, count, count),
            "{:?}",
            status.debris
        );
    }
}
