//! How a run ends: not too early, not never, and with nothing left behind, whatever happens in its last moments.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use serde_json::json;

use super::env::*;
use crate::observe::snapshot::{Cloud, Cluster, Version};

/// The freeze stands, and a claim is left whose driver is dead.
fn frozen() -> TestEnv {
    let mut env = proven(json!({}));
    env.course.csi_dead = true;
    env.claim("data");
    for _ in 0..8 {
        env.step();
    }
    assert!(env.cluster.freeze.any());
    env
}

/// The Deorbit is deleted, and the cluster answers no more.
fn deleted_with_a_dead_cluster(env: &mut TestEnv, reconciles: usize) {
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
fn a_deorbit_that_is_done_goes_at_once_although_its_cluster_is_gone() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.finish();
    deleted_with_a_dead_cluster(&mut env, 2);
    assert_eq!(env.did("its freeze is not in"), 1, "{:?}", env.acts);
}

#[test]
fn one_that_never_froze_goes_at_once_too() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.step();
    env.step();
    assert!(env.run.held && env.run.status.phase < Phase::Freeze);
    deleted_with_a_dead_cluster(&mut env, 2);
}

#[test]
fn one_whose_freeze_stands_in_a_dead_cluster_goes_when_the_outage_is_long_enough() {
    let mut env = frozen();
    let began = env.now;
    deleted_with_a_dead_cluster(&mut env, 200);
    assert!(env.now.duration_since(began).as_secs() >= 600, "ten minutes are the outage's limit");
    assert_eq!(env.did("as soon as it can be done, delete"), 1, "{:?}", env.acts);
}

/// The run is frozen, OpenStack has not answered for as long as may be, and in this moment the API server restarts.
fn with_a_restart_at_the_end_of_openstack_s_outage() -> TestEnv {
    let mut env = frozen();
    env.course.cloud_outage = env.reconcile..usize::MAX;
    env.step();
    env.now += Duration::from_secs(600);
    env.course.outage = env.reconcile..env.reconcile + 2;
    env
}

#[test]
fn an_outage_of_openstack_is_none_of_the_cluster_which_has_its_freeze_lifted() {
    let mut env = with_a_restart_at_the_end_of_openstack_s_outage();
    // Who aborts a run asks OpenStack nothing.
    env.course.cloud_outage = 0..0;
    env.run.deleting = true;
    env.finish();
    assert!(env.gone && !env.cluster.freeze.any(), "{:?}", env.acts);
    assert_eq!((env.did("remove the freeze"), env.did("as soon as it can be done, delete")), (1, 0));
    let mut env = with_a_restart_at_the_end_of_openstack_s_outage();
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
    assert!(!env.cluster.freeze.any() && !debris_kinds(&env).contains(&"Freeze"), "{:?}", env.acts);
}

#[test]
fn an_outage_is_counted_from_its_own_begin_where_another_one_ends_in_it() {
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
fn a_run_that_is_tried_again_in_an_outage_waits_anew() {
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
fn a_freeze_that_is_lifted_at_the_second_try_changes_nothing_of_the_end() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.clings = 2;
    env.finish();
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Complete, 0));
    assert!(!env.cluster.freeze.any());
}

#[test]
fn a_freeze_that_cannot_be_lifted_is_debris_after_a_while() {
    let mut env = proven(json!({"timeouts": {"apiUnavailable": "1m"}}));
    env.claim("data");
    env.course.clings = usize::MAX;
    env.finish_blind();
    let status = &env.run.status;
    assert_eq!(status.phase, Phase::CompletedWithDebris);
    assert_eq!(status.debris[0].kind, "Freeze");
    assert!(env.now.duration_since(status.completed_at.unwrap()).as_secs() >= 60);
    assert_eq!(env.condition("Frozen").0, Status::True);
    // Whoever deletes the Deorbit now has read of it, and is not held back for ever.
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
fn a_freeze_that_may_not_be_looked_for_is_never_made_and_the_run_goes_on_without() {
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
fn what_is_made_in_the_last_moment_is_waited_for_too() {
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
fn what_is_made_after_the_freeze_is_lifted_is_no_longer_of_this_run() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.course.makes = Some(Makes::Thawed);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{:?}", env.run.status.debris);
    assert!(env.cluster.claims.iter().all(|one| one.meta.deleting.is_none()), "{:?}", env.acts);
    assert_eq!(env.cluster.claims.len(), 1, "a surviving cluster works again");
}

#[test]
fn a_project_that_shows_nothing_of_the_cluster_proves_nothing() {
    let mut env = proven(json!({"timeouts": {"perObject": "5m"}}));
    env.claim("data");
    env.service("web");
    *env.cloud.as_mut().unwrap() = Cloud { project: "another".into(), ..Cloud::default() };
    (env.course.csi_dead, env.course.ccm_dead) = (true, true);
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
fn where_the_cluster_s_own_controllers_work_their_word_counts_and_is_called_no_proof() {
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
fn another_cluster_or_project_in_the_place_is_not_touched() {
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
fn protected_time_is_not_counted_as_hanging() {
    let mut env = proven(json!({"timeouts": {"hang": "1h"}}));
    env.course.csi_dead = true;
    env.claim("data");
    for _ in 0..8 {
        env.step();
    }
    env.run.protected = true;
    env.step();
    env.now += Duration::from_secs(2 * 3600);
    env.step();
    env.run.protected = false;
    env.course.csi_dead = false;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{:?}", env.run.status.debris);
}

#[test]
fn an_outage_before_anything_was_frozen_is_not_looked_into_for_ever() {
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
fn an_outage_of_openstack_is_no_clean_end_where_nothing_was_recorded_either() {
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
fn a_cluster_that_dies_while_it_is_being_frozen_may_stay_frozen() {
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
fn a_cluster_that_was_not_to_be_frozen_is_not_frozen_when_it_dies() {
    let dies = |freeze: &str, csi_dead: bool| {
        let mut env = proven(json!({"freeze": freeze}));
        env.course.csi_dead = csi_dead;
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
        let mut env = dies(freeze, false);
        env.finish_blind();
        assert_eq!((env.run.status.phase, debris_kinds(&env)), (end, debris), "{freeze}");
        let frozen = if freeze == "None" { Status::False } else { Status::Unknown };
        assert_eq!(env.condition("Frozen").0, frozen);
        assert_eq!(env.step().requeue_after.is_none(), freeze == "None", "it is looked into for ever");
    }
    // Neither is it waited for when somebody aborts the run.
    let mut env = dies("None", true);
    deleted_with_a_dead_cluster(&mut env, 2);
    assert_eq!(env.did("its freeze is not in"), 1, "{:?}", env.acts);
}

#[test]
fn a_freeze_that_was_seen_may_stand_whatever_the_spec_says() {
    let mut env = proven(json!({"freeze": "None"}));
    env.course.csi_dead = true;
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
fn what_was_asked_for_and_not_looked_at_before_the_end_is_named() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let asked = json!({"resources": routes, "sweep": true, "timeouts": {"hang": "10m", "perObject": "30m"}});
    let mut env = proven(asked.clone());
    env.course.csi_dead = true;
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(debris_kinds(&env), ["Volume", "Router", "Cluster"]);
    assert_eq!(env.run.status.debris[1].name, "r-1");
    for entry in &env.run.status.debris[1..] {
        assert!(entry.reason.contains("the run ended before"), "{entry:?}");
    }
    // Where all phases are gone through there is nothing to name.
    let mut env = proven(asked);
    env.claim("data");
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{:?}", env.run.status.debris);
}
