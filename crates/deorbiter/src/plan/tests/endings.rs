//! How a run ends: neither too early nor never, and without a freeze left behind, whatever happens at the end.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use serde_json::json;

use super::env::*;
use crate::observe::snapshot::{Cloud, Cluster, Version};

/// The freeze exists, and a claim is left whose driver has stopped.
fn frozen() -> TestEnv {
    let mut env = proven(json!({}));
    env.course.csi_stopped = true;
    env.claim("data");
    for _ in 0..8 {
        env.step();
    }
    assert!(env.cluster.freeze.any());
    env
}

/// The Deorbit is deleted, and the cluster does not respond any more.
fn deleted_with_an_unreachable_cluster(env: &mut TestEnv, reconciles: usize) {
    env.run.deleting = true;
    env.course.outage = env.reconcile..usize::MAX;
    for _ in 0..reconciles {
        if env.gone {
            return;
        }
        env.step();
    }
    assert!(env.gone, "it is held for ever: {:?}", env.acts);
}

#[test]
fn a_finished_deorbit_is_deleted_at_once_although_its_cluster_is_gone() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.finish();
    deleted_with_an_unreachable_cluster(&mut env, 2);
    assert_eq!(env.did("its freeze is not in"), 1, "{:?}", env.acts);
}

#[test]
fn a_deorbit_that_never_froze_is_deleted_at_once() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.step();
    env.step();
    assert!(env.run.held && env.run.status.phase < Phase::Freeze);
    deleted_with_an_unreachable_cluster(&mut env, 2);
}

#[test]
fn a_deorbit_with_a_freeze_in_an_unreachable_cluster_is_deleted_after_the_outage_timeout() {
    let mut env = frozen();
    let began = env.now;
    deleted_with_an_unreachable_cluster(&mut env, 200);
    assert!(env.now.duration_since(began).as_secs() >= 600, "ten minutes are the outage's limit");
    assert_eq!(env.did("as soon as it can be done, delete"), 1, "{:?}", env.acts);
}

/// The cluster is frozen, OpenStack's outage reaches its timeout, and at that time the API server restarts.
fn with_a_restart_at_the_end_of_the_openstack_outage() -> TestEnv {
    let mut env = frozen();
    env.course.cloud_outage = env.reconcile..usize::MAX;
    env.step();
    env.now += Duration::from_secs(600);
    env.course.outage = env.reconcile..env.reconcile + 2;
    env
}

#[test]
fn an_outage_of_openstack_does_not_count_for_the_cluster_whose_freeze_is_removed() {
    let mut env = with_a_restart_at_the_end_of_the_openstack_outage();
    // An aborted run reads nothing from OpenStack.
    env.course.cloud_outage = 0..0;
    env.run.deleting = true;
    env.finish();
    assert!(env.gone && !env.cluster.freeze.any(), "{:?}", env.acts);
    assert_eq!((env.did("remove the freeze"), env.did("as soon as it can be done, delete")), (1, 0));
    let mut env = with_a_restart_at_the_end_of_the_openstack_outage();
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
    assert!(!env.cluster.freeze.any() && !debris_kinds(&env).contains(&"Freeze"), "{:?}", env.acts);
}

#[test]
fn an_outage_counts_from_its_own_start_even_if_an_earlier_one_overlaps() {
    let mut env = frozen();
    let began = env.reconcile;
    env.course.cloud_outage = began..began + 30;
    env.course.outage = began + 20..usize::MAX;
    for _ in 0..20 {
        env.step();
    }
    let since = env.now;
    env.finish_blind();
    let over = env.run.status.completed_at.unwrap();
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
    env.run.generation = Some(2);
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::Failed);
    assert!(env.now.duration_since(retried_at).as_secs() >= 600);
}

#[test]
fn a_freeze_that_is_removed_at_the_second_try_changes_nothing_of_the_end() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.clings = 2;
    env.finish();
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Complete, 0));
    assert!(!env.cluster.freeze.any());
}

#[test]
fn a_freeze_that_cannot_be_removed_becomes_debris() {
    let mut env = proven(json!({"timeouts": {"apiUnavailable": "1m"}}));
    env.claim("data");
    env.course.clings = usize::MAX;
    env.finish_blind();
    let status = &env.run.status;
    assert_eq!(status.phase, Phase::CompletedWithDebris);
    assert_eq!(status.debris[0].kind, "Freeze");
    assert!(env.now.duration_since(status.completed_at.unwrap()).as_secs() >= 60);
    assert_eq!(env.condition("Frozen").0, Status::True);
    // The status lists it, so the deletion of the Deorbit does not wait for ever.
    env.run.deleting = true;
    for _ in 0..4 {
        if !env.gone {
            env.step();
        }
    }
    assert!(env.gone, "{:?}", env.acts);
    assert!(env.cluster.freeze.any());
}

#[test]
fn without_the_right_to_read_a_freeze_none_is_created_and_the_run_goes_on() {
    for (freeze, minutes) in [("None", 0), ("Policy", 1)] {
        let mut env = proven(json!({"freeze": freeze, "timeouts": {"apiUnavailable": "1m"}}));
        env.claim("data");
        env.cluster.freeze.forbidden = true;
        let begun = env.now;
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Complete, "{:?}", env.run.status.debris);
        let made = env.acts.iter().any(|act| act.starts_with("refuse new"));
        assert!(!made && !env.cluster.freeze.any(), "{:?}", env.acts);
        let started = env.run.status.started_at.unwrap();
        assert_eq!(started.duration_since(begun).as_secs() >= 60, minutes == 1);
    }
}

#[test]
fn a_claim_that_is_created_just_before_the_freeze_is_waited_for() {
    for phase in [Phase::Verify, Phase::Sweep, Phase::Routes] {
        let mut env = proven(json!({"freeze": "None"}));
        env.claim("data");
        env.course.makes = Some(Makes::In(phase));
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Complete, "{phase}: {:?}", env.run.status.debris);
        assert!(env.cloud.unwrap().volumes.is_empty(), "{phase}");
    }
}

#[test]
fn a_claim_that_is_created_after_the_freeze_is_removed_is_ignored() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.makes = Some(Makes::Thawed);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{:?}", env.run.status.debris);
    assert!(env.cluster.claims.iter().all(|one| one.meta.deleting.is_none()), "{:?}", env.acts);
    assert_eq!(env.cluster.claims.len(), 1, "a surviving cluster works again");
}

#[test]
fn a_project_that_shows_nothing_of_the_cluster_verifies_nothing() {
    let mut env = proven(json!({"timeouts": {"perObject": "5m"}}));
    env.claim("data");
    env.service("web");
    *env.cloud.as_mut().unwrap() = Cloud { project: "another".into(), ..Cloud::default() };
    (env.course.csi_stopped, env.course.ccm_stopped) = (true, true);
    env.finish();
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 2), "{:?}", status.debris);
    assert!(
        status.debris[0].reason.contains("is the login for its project and region?"),
        "{:?}",
        status.debris
    );
}

#[test]
fn without_a_matching_project_the_cluster_s_own_controllers_count_and_nothing_is_verified() {
    let mut env = proven(json!({}));
    env.claim("data");
    *env.cloud.as_mut().unwrap() = Cloud::default();
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete);
    assert_eq!(env.condition("Clean"), (Status::Unknown, "NotProven".to_owned()));
    let mut env = proven(json!({}));
    env.claim("data");
    env.finish();
    assert_eq!(env.condition("Clean"), (Status::True, "Proven".to_owned()));
    let mut env = TestEnv::new(spec(json!({})));
    env.claim("data");
    env.finish();
    assert_eq!(env.condition("Clean").0, Status::Unknown);
}

#[test]
fn another_cluster_or_project_behind_the_same_secret_is_not_touched() {
    let mut env = proven(json!({}));
    env.cluster.uid = Some("one".into());
    env.cloud.as_mut().unwrap().project = "p".into();
    env.claim("data");
    while env.run.status.phase < Phase::Delete {
        env.step();
    }
    let inventory = &env.run.status.inventory;
    assert_eq!((inventory.cluster.as_deref(), inventory.project.as_deref()), (Some("one"), Some("p")));
    let of = |uid: Option<&str>| Cluster { uid: uid.map(str::to_owned), ..Cluster::default() };
    assert!(env.run.verify_identity(of(Some("one")), Ok("management")).is_ok());
    for other in [Some("two"), None] {
        let why = env.run.verify_identity(of(other), Ok("management")).unwrap_err();
        assert!(!why.is_outage());
        let why = why.to_string();
        assert!(
            why.contains(if other.is_some() {
                "nothing is done there"
            } else {
                "could be the management cluster"
            }),
            "{why}"
        );
    }
    let other = Cloud { project: "q".into(), ..Cloud::default() };
    assert!(env.run.verify_project(other).unwrap_err().to_string().contains("project q"));
}

#[test]
fn time_under_protection_does_not_count_for_the_hang_timeout() {
    let mut env = proven(json!({"timeouts": {"hang": "1h"}}));
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
    assert_eq!(env.run.status.phase, Phase::Complete, "{:?}", env.run.status.debris);
}

#[test]
fn an_outage_before_the_freeze_ends_at_its_timeout() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.outage = 0..usize::MAX;
    env.finish_blind();
    let decision = env.step();
    assert_eq!(decision.requeue_after, None, "nothing of it can be there");
}

fn debris_kinds(env: &TestEnv) -> Vec<&str> {
    env.run.status.debris.iter().map(|one| one.kind.as_str()).collect()
}

#[test]
fn an_outage_of_openstack_is_no_clean_end_even_without_records() {
    let mut env = proven(json!({}));
    while env.run.status.phase < Phase::Delete {
        env.step();
    }
    env.course.cloud_outage = env.reconcile..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(debris_kinds(&env), ["OpenStack"]);
    assert!(env.run.status.debris[0].reason.contains("503"), "{:?}", env.run.status.debris);
}

#[test]
fn a_cluster_that_stops_responding_while_it_is_being_frozen_may_stay_frozen() {
    let mut env = proven(json!({}));
    while env.run.status.phase < Phase::Freeze {
        env.step();
    }
    assert_eq!((env.run.status.phase, env.run.status.started_at), (Phase::Freeze, None));
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(debris_kinds(&env), ["Freeze"]);
}

#[test]
fn a_cluster_without_a_desired_freeze_does_not_count_as_frozen_when_it_stops_responding() {
    let stops_responding = |freeze: &str, csi_stopped: bool| {
        let mut env = proven(json!({"freeze": freeze}));
        env.course.csi_stopped = csi_stopped;
        env.claim("data");
        while env.run.status.phase < Phase::Wait {
            env.step();
        }
        env.course.outage = env.reconcile..usize::MAX;
        env
    };
    for (freeze, end, debris) in
        [("None", Phase::Complete, vec![]), ("Policy", Phase::CompletedWithDebris, vec!["Freeze"])]
    {
        let mut env = stops_responding(freeze, false);
        env.finish_blind();
        assert_eq!((env.run.status.phase, debris_kinds(&env)), (end, debris), "{freeze}");
        let frozen = if freeze == "None" { Status::False } else { Status::Unknown };
        assert_eq!(env.condition("Frozen").0, frozen);
        assert_eq!(env.step().requeue_after.is_none(), freeze == "None", "it is looked into for ever");
    }
    // It is not waited for when the run is aborted either.
    let mut env = stops_responding("None", true);
    deleted_with_an_unreachable_cluster(&mut env, 2);
    assert_eq!(env.did("its freeze is not in"), 1, "{:?}", env.acts);
}

#[test]
fn a_freeze_that_was_observed_may_exist_whatever_the_spec_says() {
    let mut env = proven(json!({"freeze": "None"}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.cluster.freeze.policy = Some(Version::default());
    while env.run.status.phase < Phase::Wait {
        env.step();
    }
    assert_eq!(env.condition("Frozen").0, Status::True);
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    assert!(debris_kinds(&env).contains(&"Freeze"), "{:?}", env.run.status.debris);
}

#[test]
fn what_the_run_did_not_check_before_its_end_is_debris() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let asked = json!({"resources": routes, "sweep": true, "timeouts": {"hang": "10m", "perObject": "30m"}});
    let mut env = proven(asked.clone());
    env.course.csi_stopped = true;
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(debris_kinds(&env), ["Volume", "Router", "Cluster"]);
    assert_eq!(env.run.status.debris[1].name, "r-1");
    for entry in &env.run.status.debris[1..] {
        assert!(entry.reason.contains("the run ended before"), "{entry:?}");
    }
    // After all phases there is nothing to list.
    let mut env = proven(asked);
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{:?}", env.run.status.debris);
}
