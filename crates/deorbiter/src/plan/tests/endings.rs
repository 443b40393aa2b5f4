//! How a run ends: neither too early nor never; and how long new objects stay blocked, whatever happens at the end.

use std::time::Duration;

use common::api::deorbit::{OrphanPolicy, Phase};
use common::conditions::Status;
use serde_json::json;

use super::env::*;
use crate::observe::snapshot::{Cloud, Cluster, Unread, Version};
use crate::plan::resting;

/// The block exists, and a claim is left because its driver has stopped.
fn blocked() -> TestEnv {
    let mut env = proven(json!({}));
    env.course.csi_stopped = true;
    env.claim("data");
    for _ in 0..8 {
        env.step();
    }
    assert!(env.cluster.block.any());
    env
}

/// The Deorbit is deleted, and the cluster does not respond any more.
fn deleted_with_an_unreachable_cluster(env: &mut TestEnv, reconciles: usize) {
    env.run.deleting = Some(env.now);
    env.course.outage = env.reconcile..usize::MAX;
    for _ in 0..reconciles {
        if env.gone {
            return;
        }
        env.step();
    }
    assert!(env.gone, "it is held for ever: {:?}", env.acts);
}

/// S7
#[test]
fn new_objects_stay_blocked_after_the_end_and_the_deletion_of_the_deorbit_lifts_the_block() {
    for end in ["Release", "Block"] {
        let mut env = proven(json!({"onTimeout": end, "timeouts": {"total": "10m"}}));
        env.course.csi_stopped = end == "Block";
        env.claim("data");
        env.finish();
        assert_eq!(env.run.status.phase, if end == "Block" { Phase::Failed } else { Phase::Succeeded });
        for _ in 0..5 {
            env.now += Duration::from_secs(24 * 3600);
            env.step();
        }
        assert!(env.cluster.block.any());
        assert_eq!(env.condition("CreationBlocked").0, Status::True);
        env.run.deleting = Some(env.now);
        env.finish();
        assert!(env.gone && !env.cluster.block.any(), "{:?}", env.acts);
    }
}

#[test]
fn the_block_is_lifted_at_the_end_where_the_cluster_survives_and_the_spec_can_say_so_later() {
    let mut env = proven(json!({"clusterSurvives": true}));
    env.claim("data");
    env.finish();
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0));
    assert!(!env.cluster.block.any() && env.did("lift the block") == 1, "{:?}", env.acts);
    let mut env = proven(json!({}));
    env.claim("data");
    env.finish();
    assert!(env.cluster.block.any());
    env.run.spec.cluster_survives = true;
    env.run.generation = Some(2);
    env.finish();
    assert!(!env.cluster.block.any());
    assert!(resting(&env.run, env.now).is_some(), "nothing is read any more");
}

#[test]
fn a_block_that_another_client_removes_is_created_again() {
    let mut env = blocked();
    env.cluster.block.binding = None;
    env.step();
    assert!(env.cluster.block.binding.is_some(), "{:?}", env.acts);
}

/// Cluster API deletes the kubeconfig with the Cluster.
#[test]
fn a_succeeded_deorbit_is_deleted_at_once_although_its_cluster_is_gone() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.finish();
    env.run.deleting = Some(env.now);
    let mut snapshot = env.snapshot_now();
    snapshot.cluster = Err(Unread::NoSecret("Secret team/prod does not exist".into()));
    let decision = crate::plan::plan(&Default::default(), &snapshot, env.now);
    assert!(decision.plan.to_string().contains("its block is not in"), "{}", decision.plan);
    snapshot.run.status.phase = Phase::Failed;
    let decision = crate::plan::plan(&Default::default(), &snapshot, env.now);
    assert!(decision.plan.steps.is_empty(), "the cluster was not released: {}", decision.plan);
}

#[test]
fn an_expired_deorbit_is_deleted_and_one_of_a_trigger_only_after_its_result_was_read() {
    use common::api::deorbit::Trigger;
    for (trigger, failed, seconds) in [
        (Trigger::Manual, false, Some(60)),
        (Trigger::Binding, false, Some(300)),
        (Trigger::Binding, true, None),
        (Trigger::Manual, true, Some(60)),
    ] {
        let mut env = proven(
            json!({"ttlSecondsAfterFinished": 60, "onTimeout": "Block", "timeouts": {"total": "10m"}}),
        );
        env.run.trigger = trigger;
        env.course.csi_stopped = failed;
        env.claim("data");
        while !env.run.status.phase.is_final() {
            env.step();
        }
        let ended = env.run.status.completion_time.unwrap();
        let waits = |env: &TestEnv, after: u64| {
            let decision = resting(&env.run, ended + Duration::from_secs(after)).unwrap();
            (decision.plan.steps.len(), decision.requeue_after)
        };
        match seconds {
            Some(seconds) => {
                assert_eq!(waits(&env, 10), (0, Some(Duration::from_secs(seconds - 10))), "{trigger}");
                assert_eq!(waits(&env, seconds).0, 1, "{trigger}");
            }
            None => assert_eq!(waits(&env, 1 << 30), (0, None), "it would fail again"),
        }
        env.run.protected = true;
        assert_eq!(waits(&env, 1 << 30), (0, None), "it is protected");
    }
}

#[test]
fn a_deorbit_that_never_blocked_is_deleted_at_once() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.outage = 1..usize::MAX;
    env.step();
    env.step();
    assert!(env.run.held && env.run.status.phase == Phase::Inventory);
    let mut env = proven(json!({"creationBlock": "None"}));
    env.claim("data");
    env.until(Phase::Deleting);
    deleted_with_an_unreachable_cluster(&mut env, 2);
}

#[test]
fn a_deorbit_with_a_block_in_an_unreachable_cluster_is_deleted_after_the_outage_timeout() {
    let mut env = blocked();
    let began = env.now;
    deleted_with_an_unreachable_cluster(&mut env, 200);
    assert!(env.now.duration_since(began).as_secs() >= 600, "ten minutes are the outage's limit");
    assert_eq!(env.did("as soon as it can be done, delete"), 1, "{:?}", env.acts);
}

/// S5
#[test]
fn only_a_target_that_does_not_respond_at_all_is_given_up_before_the_total_limit() {
    use crate::observe::snapshot::Cluster;
    let is_final_after_an_hour = |cloud: bool, target: Option<Unread>| {
        let mut env = blocked();
        let limit = env.now + Duration::from_secs(3600);
        while env.now < limit && !env.run.status.phase.is_final() {
            let mut snapshot = env.snapshot_now();
            if cloud {
                snapshot.cloud = Some(Err(Unread::NoResponse("no route to host".into())));
            }
            if let Some(unread) = &target {
                snapshot.cluster = Err::<Cluster, _>(unread.clone());
            }
            let decision = crate::plan::plan(&Default::default(), &snapshot, env.now);
            (env.run.status, env.run.book) = (decision.status, decision.book);
            env.now += Duration::from_secs(10);
        }
        env.run.status.phase.is_final()
    };
    assert!(!is_final_after_an_hour(true, None), "an outage of OpenStack");
    assert!(
        !is_final_after_an_hour(false, Some(Unread::Failing("503".into()))),
        "an API server that responds"
    );
    assert!(is_final_after_an_hour(false, Some(Unread::NoResponse("connection refused".into()))));
}

#[test]
fn an_outage_of_openstack_ends_at_the_total_limit() {
    let mut env = proven(json!({"timeouts": {"total": "2h"}}));
    env.claim("data");
    env.until(Phase::Deleting);
    env.course.cloud_outage = env.reconcile..usize::MAX;
    env.finish();
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 1), "{:?}", status.debris);
    assert!(env.now.duration_since(status.start_time.unwrap()).as_secs() >= 7200);
}

#[test]
fn an_outage_counts_from_its_own_start() {
    let mut env = blocked();
    let began = env.reconcile;
    env.course.cloud_outage = began..began + 30;
    env.course.outage = began + 20..usize::MAX;
    for _ in 0..20 {
        env.step();
    }
    let since = env.now;
    env.finish_blind();
    let over = env.run.status.completion_time.unwrap();
    assert!(over.duration_since(since).as_secs() >= 600, "{since} {over}");
}

#[test]
fn a_run_that_is_restarted_during_an_outage_waits_for_the_whole_timeout() {
    let mut env = proven(json!({"onTimeout": "Block"}));
    env.claim("data");
    env.course.outage = 0..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::Failed);
    let retried_at = env.now;
    env.run.spec.orphan_policy = OrphanPolicy::Delete;
    env.run.generation = Some(2);
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::Failed);
    assert!(env.now.duration_since(retried_at).as_secs() >= 600);
}

#[test]
fn a_block_that_is_lifted_at_the_second_try_changes_nothing_of_the_end() {
    let mut env = proven(json!({"clusterSurvives": true}));
    env.claim("data");
    env.course.clings = 2;
    env.finish();
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0));
    assert!(!env.cluster.block.any());
}

#[test]
fn a_block_that_cannot_be_lifted_becomes_debris_and_delays_the_deletion_of_the_deorbit_by_a_limit() {
    let mut env = proven(json!({"clusterSurvives": true, "timeouts": {"apiUnavailable": "1m"}}));
    env.claim("data");
    env.course.clings = usize::MAX;
    env.finish_blind();
    let status = &env.run.status;
    assert_eq!(status.phase, Phase::Succeeded);
    assert_eq!(status.debris[0].kind, "CreationBlock");
    env.step();
    assert_eq!(env.condition("CreationBlocked").0, Status::True);
    env.run.deleting = Some(env.now);
    for _ in 0..200 {
        if !env.gone {
            env.step();
        }
    }
    assert!(env.gone && env.cluster.block.any(), "{:?}", env.acts);
    assert_eq!(env.did("as soon as it can be done, delete"), 1, "{:?}", env.acts);
}

#[test]
fn without_the_right_to_read_a_block_none_is_created_and_the_run_goes_on() {
    for (block, minutes) in [("None", 0), ("Policy", 1)] {
        let mut env = proven(json!({"creationBlock": block, "timeouts": {"apiUnavailable": "1m"}}));
        env.claim("data");
        env.cluster.block.forbidden = true;
        let begun = env.now;
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
        let made = env.acts.iter().any(|act| act.starts_with("refuse new"));
        assert!(!made && !env.cluster.block.any(), "{:?}", env.acts);
        let reason = if block == "None" { "NotInPlace" } else { "Forbidden" };
        assert_eq!(env.condition("CreationBlocked"), (Status::False, reason.to_owned()));
        let started = env.run.book.deleting_since.unwrap();
        assert_eq!(started.duration_since(begun).as_secs() >= 60, minutes == 1);
    }
}

/// It may have been created before.
#[test]
fn a_block_that_may_not_be_read_any_more_holds_the_run() {
    let mut env = proven(json!({"timeouts": {"apiUnavailable": "1m"}}));
    env.claim("data");
    env.until(Phase::Inventory);
    env.cluster.block.forbidden = true;
    for _ in 0..100 {
        env.step();
    }
    assert_eq!((env.run.status.phase, env.condition("Stalled").0), (Phase::Inventory, Status::True));
    env.cluster.block.forbidden = false;
    env.finish();
    assert_eq!((env.run.status.phase, env.cluster.block.any()), (Phase::Succeeded, true), "{:?}", env.acts);
}

#[test]
fn a_block_that_is_refused_once_after_a_long_inventory_is_tried_again() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.until(Phase::Inventory);
    // OpenStack does not respond for longer than the limit of the block; then its first try fails.
    env.course.cloud_outage = env.reconcile..env.reconcile + 100;
    for _ in 0..100 {
        env.step();
    }
    env.failures.insert("Block/create".into(), "500".into());
    env.step();
    assert_eq!(env.run.status.phase, Phase::Inventory);
    env.failures.clear();
    env.finish();
    assert_eq!((env.run.status.phase, env.cluster.block.any()), (Phase::Succeeded, true), "{:?}", env.acts);
    assert_eq!(env.run.book.block_refused_since, None);
}

#[test]
fn a_claim_that_is_created_just_before_the_block_is_waited_for() {
    for phase in [Phase::Verifying, Phase::Finishing] {
        let mut env = proven(json!({"creationBlock": "None"}));
        env.claim("data");
        env.course.makes = Some(phase);
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded, "{phase}: {:?}", env.run.status.debris);
        assert!(env.cloud.unwrap().volumes.is_empty(), "{phase}");
    }
}

/// A program that was waiting for the end of the block creates it at once.
#[test]
fn what_a_surviving_cluster_creates_after_its_block_is_lifted_is_not_touched() {
    for clings in [0, 5] {
        let mut env = proven(json!({"clusterSurvives": true}));
        env.claim("data");
        env.course.clings = clings;
        for _ in 0..1000 {
            if env.did("lift the block") == 0 {
                env.step();
            }
        }
        assert_eq!(
            (env.run.status.phase, env.did("lift the block")),
            (Phase::Finishing, 1),
            "{:?}",
            env.acts
        );
        env.claim("fresh");
        env.untouchable.extend(["uid-fresh".into(), "vol-fresh".into()]);
        env.finish();
        let status = &env.run.status;
        assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 0), "{status:?}");
        assert!(!env.cluster.block.any() && env.run.records.iter().all(|one| one.name != "fresh"));
    }
}

/// S2
#[test]
fn a_login_that_shows_nothing_of_the_cluster_holds_the_run_before_the_first_delete() {
    for with_nodes in [false, true] {
        let mut env = proven(json!({"timeouts": {"total": "1h"}}));
        env.claim("data");
        env.service("web");
        let own = env.cloud.replace(Cloud { project: "another".into(), ..Cloud::default() }).unwrap();
        if with_nodes {
            env.node("n1", "10.0.0.5", false);
        }
        let begun = env.now;
        for _ in 0..1000 {
            env.step();
        }
        assert!(env.now.duration_since(begun).as_secs() > 2 * 3600, "no limit ends it");
        assert_eq!((env.run.status.phase, env.deletes()), (Phase::Pending, 0), "{:?}", env.acts);
        assert_eq!(env.condition("CloudReachable"), (Status::False, "LoginNotProven".to_owned()));
        assert_eq!(env.condition("Stalled").0, Status::True);
        env.cloud = Some(own);
        env.finish();
        assert_eq!(env.condition("Verified").0, Status::True, "{:?}", env.run.status.debris);
    }
}

#[test]
fn a_server_of_a_node_proves_all_services_and_a_resource_its_own() {
    for (node, proof) in [(true, Status::True), (false, Status::Unknown)] {
        let mut env = proven(json!({}));
        env.claim("data");
        env.service("web");
        if node {
            env.node("n1", "10.0.0.5", true);
        }
        // Octavia does not show the load balancer: it may be gone, or in another region.
        let cloud = env.cloud.as_mut().unwrap();
        (cloud.load_balancers, cloud.floating_ips) = Default::default();
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded);
        assert_eq!(env.condition("Verified").0, proof, "node {node}");
        assert_eq!((env.run.book.proof.server.is_some(), env.run.book.proof.block_storage), (node, true));
    }
}

#[test]
fn a_login_for_another_project_or_region_stops_the_run() {
    let mut env = proven(json!({}));
    let cloud = env.cloud.as_mut().unwrap();
    (cloud.project, cloud.region) = ("p".into(), Some("north".into()));
    env.course.csi_stopped = true;
    env.claim("data");
    env.until(Phase::Verifying);
    let of = |project: &str, region: Option<&str>| Cloud {
        project: project.into(),
        region: region.map(Into::into),
        ..Cloud::default()
    };
    assert!(env.run.verify_project(of("p", None)).is_ok(), "without a name there is only one");
    for (other, word) in [(of("q", Some("north")), "project q"), (of("p", Some("south")), "region south")] {
        let mut env2 = TestEnv::new(env.run.spec.clone());
        (env2.run, env2.cluster) = (env.run.clone(), env.cluster.clone());
        env2.cloud = Some(other);
        for _ in 0..10 {
            env2.step();
        }
        let condition = env2.run.status.conditions.iter().find(|one| one.kind == "CloudReachable").unwrap();
        assert!(condition.reason == "Refused" && condition.message.contains(word), "{condition:?}");
        assert_eq!(env2.run.status.phase, Phase::Verifying, "its volume seems to be gone");
    }
}

#[test]
fn without_a_login_the_cluster_s_own_controllers_count_and_nothing_is_verified() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.finish();
    assert_eq!(env.condition("Verified"), (Status::True, "EachIDIsGone".to_owned()));
    let mut env = TestEnv::new(spec(json!({})));
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(env.condition("Verified"), (Status::Unknown, "NotProven".to_owned()));
}

#[test]
fn another_cluster_behind_the_same_secret_is_not_touched() {
    let mut env = proven(json!({}));
    env.cluster.uid = Some("one".into());
    env.claim("data");
    env.until(Phase::Deleting);
    assert_eq!(env.run.book.cluster.as_deref(), Some("one"));
    let of = |uid: Option<&str>| Cluster { uid: uid.map(str::to_owned), ..Cluster::default() };
    assert!(env.run.verify_identity(of(Some("one")), Ok("management")).is_ok());
    for (other, words) in [(Some("two"), "nothing is done there"), (None, "could be another cluster")] {
        let why = env.run.verify_identity(of(other), Ok("management")).unwrap_err();
        assert!(!why.is_outage() && why.to_string().contains(words), "{why}");
    }
    // Also where it is the cluster that deorbiter runs in.
    let own = TestEnv::new(spec(json!({"kubeconfig": null, "inCluster": true})));
    assert!(own.run.verify_identity(of(None), Ok("management")).is_err());
}

#[test]
fn time_under_protection_does_not_count_for_the_total_limit() {
    let mut env = proven(json!({"timeouts": {"total": "1h"}}));
    env.course.csi_stopped = true;
    env.claim("data");
    for _ in 0..8 {
        env.step();
    }
    env.run.protected = true;
    env.step();
    env.now += Duration::from_secs(2 * 3600);
    env.step();
    env.run.protected = false;
    env.course.csi_stopped = false;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
}

#[test]
fn an_outage_before_the_block_ends_at_its_timeout() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.outage = 0..usize::MAX;
    env.finish_blind();
    assert_eq!(debris_kinds(&env), ["Cluster"]);
    assert!(resting(&env.run, env.now).is_some(), "nothing is read any more");
}

fn debris_kinds(env: &TestEnv) -> Vec<&str> {
    env.run.status.debris.iter().map(|one| one.kind.as_str()).collect()
}

#[test]
fn an_outage_of_openstack_is_no_clean_end_even_without_records() {
    let mut env = proven(json!({"timeouts": {"total": "1h"}}));
    env.until(Phase::Deleting);
    env.course.cloud_outage = env.reconcile..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(debris_kinds(&env), ["OpenStack"]);
    assert!(env.run.status.debris[0].reason.contains("503"), "{:?}", env.run.status.debris);
}

#[test]
fn a_block_may_exist_in_a_cluster_that_does_not_respond() {
    use crate::plan::block::may_exist;
    for (form, exists) in [("None", false), ("Policy", true), ("Webhook", true)] {
        let mut env = proven(json!({"creationBlock": form}));
        env.claim("data");
        env.step();
        assert!(!may_exist(&env.run), "{form}: nothing was created yet");
        env.until(Phase::Inventory);
        env.course.outage = env.reconcile..usize::MAX;
        env.step();
        assert_eq!(may_exist(&env.run), exists, "{form}");
        // One that was observed exists until it is observed to be gone, whatever the spec says.
        env.course.outage = 0..0;
        env.cluster.block.policy = Some(Version::default());
        env.step();
        env.course.outage = env.reconcile..usize::MAX;
        env.step();
        assert!(may_exist(&env.run), "{form}");
    }
}

#[test]
fn what_the_run_did_not_check_before_its_end_is_debris() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let asked = json!({"resources": routes, "discoverByClusterName": true, "timeouts": {"total": "10m", "perObject": "30m"}});
    let mut env = proven(asked.clone());
    env.routes();
    env.course.csi_stopped = true;
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(debris_kinds(&env), ["Volume", "Cluster"]);
    assert!(env.run.status.debris[1].reason.contains("the run ended before"), "{:?}", env.run.status.debris);
    // After all phases there is nothing to list.
    let mut env = proven(asked);
    env.routes();
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
}
