//! States in which a careless run would delete what is not the cluster's, or release too early.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use common::plan::Reason as _;
use common::routes::Route;
use serde_json::json;

use super::env::*;
use crate::observe::snapshot::Cloud;
use crate::plan::presence::NOT_PROVEN;
use crate::plan::resting;

#[test]
fn a_load_balancer_that_only_has_the_cluster_s_name_is_deleted_only_with_a_proven_login() {
    for is_proven in [false, true] {
        let mut env =
            proven(json!({"orphanPolicy": "Delete", "timeouts": {"perObject": "5m", "total": "1h"}}));
        env.course.ccm_stopped = true;
        env.stale_leases();
        // Another project may have a cluster of this name, with a Service of this name.
        env.service("web").load_balancer = None;
        if is_proven {
            env.node("n1", "10.0.0.5", true);
        }
        env.finish();
        let debris = &env.run.status.debris;
        let listed = debris.iter().find(|one| one.id.as_deref() == Some("lb-web"));
        assert_eq!(listed.is_some_and(|one| one.reason.contains(NOT_PROVEN)), !is_proven, "{debris:?}");
        let cloud = env.cloud.as_ref().unwrap();
        assert_eq!((cloud.load_balancers.is_empty(), cloud.floating_ips.is_empty()), (is_proven, is_proven));
    }
}

#[test]
fn the_first_records_are_bound_to_their_cluster() {
    let mut env = proven(json!({}));
    env.claim("theirs");
    env.course.cloud_outage = 0..10;
    for _ in 0..5 {
        env.step();
    }
    assert_eq!((env.run.status.phase, env.run.records.len()), (Phase::Inventory, 1));
    // The Secret gets another kubeconfig before OpenStack responds.
    env.cluster.uid = Some("other".into());
    for _ in 0..10 {
        env.step();
    }
    assert_eq!(env.condition("TargetReachable"), (Status::False, "Refused".to_owned()));
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Inventory, 0));
}

#[test]
fn a_proof_is_bound_to_its_project_and_region() {
    for (project, region) in [("q", "north"), ("p", "south")] {
        let mut env = proven(json!({}));
        let cloud = env.cloud.as_mut().unwrap();
        (cloud.project, cloud.region) = ("p".into(), Some("north".into()));
        env.claim("data");
        env.until(Phase::Inventory);
        assert!(env.run.book.proof.any());
        // The Secret gets another login before the inventory is complete.
        let cloud = env.cloud.take().unwrap();
        env.cloud = Some(Cloud { project: project.into(), region: Some(region.into()), ..cloud });
        for _ in 0..10 {
            env.step();
        }
        assert_eq!(env.condition("CloudReachable"), (Status::False, "Refused".to_owned()));
        assert_eq!((env.run.status.phase, env.deletes()), (Phase::Inventory, 0));
    }
}

#[test]
fn an_outage_under_protection_does_not_end_the_run_when_the_protection_ends() {
    let mut env = proven(json!({}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.until(Phase::Deleting);
    env.run.protected = true;
    env.course.outage = env.reconcile..usize::MAX;
    env.step();
    env.now += Duration::from_secs(3600);
    env.step();
    env.run.protected = false;
    let begun = env.now;
    env.finish_blind();
    assert!(env.now.duration_since(begun).as_secs() >= 600);
}

#[test]
fn an_outage_of_openstack_is_waited_for_also_where_the_target_is_gone() {
    // Until the resources can be deleted by their IDs, or at the end.
    for phase in [Phase::Deleting, Phase::Finishing] {
        let mut env = proven(json!({"orphanPolicy": "Delete"}));
        env.course.csi_stopped = phase == Phase::Deleting;
        env.claim("data");
        env.until(phase);
        env.course.outage = env.reconcile..usize::MAX;
        env.course.cloud_outage = env.reconcile..env.reconcile + 200;
        let begun = env.now;
        env.finish_blind();
        assert!(env.now.duration_since(begun).as_secs() > 900, "{phase}");
        assert_eq!(env.run.status.debris, [], "{phase}");
        assert!(env.cloud.unwrap().volumes.is_empty(), "{phase}");
    }
}

#[test]
fn what_openstack_keeps_stays_kept_during_an_outage_of_it() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.cinder("data").keep = true;
    env.untouchable = vec!["uid-data".into(), "vol-data".into()];
    env.until(Phase::Inventory);
    env.course.cloud_outage = env.reconcile..env.reconcile + 3;
    for _ in 0..3 {
        env.step();
        assert!(env.run.records[0].kept.is_some(), "{:?}", env.run.records);
    }
    env.finish();
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 0));
}

/// S3: to keep a volume of the plan, a user sets the policy Retain and deletes the objects.
#[test]
fn a_volume_that_a_user_has_released_since_the_dry_run_is_only_reported() {
    for (retained, left) in [("Keep", 1), ("Delete", 0)] {
        let mut env = proven(json!({"dryRun": true, "orphanPolicy": "Delete", "retainedVolumes": retained}));
        env.claim("data");
        env.claim("other");
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Planned);
        env.cluster.claims.retain(|one| one.meta.name != "data");
        env.cluster.volumes.retain(|one| one.id != "vol-data");
        if retained == "Keep" {
            env.untouchable.push("vol-data".into());
        }
        env.run.spec.dry_run = false;
        env.run.generation = Some(2);
        env.finish();
        let status = &env.run.status;
        assert_eq!((status.phase, status.debris.len()), (Phase::Succeeded, left), "{:?}", status.debris);
        assert!(status.debris.iter().all(|one| one.reason.contains("Retain")), "{:?}", status.debris);
    }
}

/// S3: whether a user has released the volume since is unknown while the cluster does not respond.
#[test]
fn a_record_of_a_dry_run_that_the_run_itself_has_not_confirmed_is_only_reported() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let route = Route::new("10.244.5.0/24", "10.0.0.5");
    for (is_read, left) in [(false, vec!["Volume", "Route", "Cluster"]), (true, vec!["Volume"])] {
        let mut env = proven(json!({"dryRun": true, "orphanPolicy": "Delete", "resources": routes}));
        env.node("n5", "10.0.0.5", true);
        env.routes().all = vec![route.clone()];
        env.claim("data");
        env.finish();
        assert_eq!((env.run.status.phase, env.run.book.routes.len()), (Phase::Planned, 1));
        env.cluster.claims.clear();
        env.cluster.volumes.clear();
        env.untouchable.push("vol-data".into());
        env.run.spec.dry_run = false;
        env.run.generation = Some(2);
        env.step();
        if is_read {
            env.step();
        }
        // The cluster stops responding before the block is in place.
        assert_eq!(env.run.status.phase, Phase::Inventory);
        env.course.outage = env.reconcile..usize::MAX;
        env.finish_blind();
        let debris = &env.run.status.debris;
        assert_eq!(debris.iter().map(|one| one.kind.as_str()).collect::<Vec<_>>(), left, "{debris:?}");
        assert_eq!(env.routes().all.contains(&route), !is_read, "{:?}", env.acts);
        assert_eq!(env.cinder("data").status, "available");
    }
}

/// A volume can get the metadata that keeps it at any time.
#[test]
fn nothing_is_deleted_in_the_cluster_while_openstack_cannot_be_read() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.until(Phase::Deleting);
    env.course.cloud_outage = env.reconcile..env.reconcile + 3;
    for _ in 0..3 {
        env.step();
    }
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Deleting, 0), "{:?}", env.acts);
    env.finish();
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 1));
}

#[test]
fn a_cluster_that_survives_keeps_the_routes_to_its_nodes() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let mut env = proven(json!({"resources": routes, "clusterSurvives": true}));
    let route = |last: u8| Route::new(format!("10.244.{last}.0/24"), format!("10.0.0.{last}"));
    env.node("n5", "10.0.0.5", true);
    env.node("n6", "10.0.0.6", true);
    env.routes().all = vec![route(5), route(6), route(7)];
    env.claim("data");
    env.until(Phase::Deleting);
    // One Node is gone since the inventory, and its route is stale as the one of an earlier Node.
    env.routes().stale = vec![route(6), route(7)];
    env.finish();
    assert_eq!(env.routes().all.clone(), [route(5)], "{:?}", env.acts);
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0));
}

#[test]
fn a_deorbit_of_another_version_is_reported_and_can_be_deleted() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.until(Phase::Deleting);
    env.step();
    env.run.status.phase = Phase::Unknown;
    for generation in [1, 2] {
        env.run.generation = Some(generation);
        let decision = resting(&env.run, env.now).unwrap();
        assert!(decision.plan.steps.is_empty() && decision.requeue_after.is_none(), "{}", decision.plan);
        assert_eq!(decision.status, env.run.status, "nothing is written");
        assert_eq!(decision.plan.problems[0].because.code(), "UnknownPhase");
    }
    env.run.deleting = Some(env.now);
    assert!(resting(&env.run, env.now).is_none(), "its block is lifted");
    env.finish();
    assert!(env.gone && !env.cluster.block.any(), "{:?}", env.acts);
}
