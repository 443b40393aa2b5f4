//! How a run ends: not too early, not never, and with nothing left behind, whatever happens in its last moments.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use serde_json::json;

use super::world::*;
use crate::observe::snapshot::{Cloud, Cluster};

/// The freeze stands, and a claim is left whose driver is dead.
fn frozen() -> World {
    let mut world = proven(json!({}));
    world.course.csi_dead = true;
    world.claim("data");
    for _ in 0..8 {
        world.step();
    }
    assert!(world.cluster.freeze.any());
    world
}

/// The Deorbit is deleted, and the cluster answers no more.
fn deleted_with_a_dead_cluster(world: &mut World, walks: usize) {
    world.run.deleting = true;
    world.course.outage = world.walk..usize::MAX;
    for _ in 0..walks {
        if world.gone {
            return;
        }
        world.step();
    }
    assert!(world.gone, "it is held for ever: {:?}", world.acts);
}

#[test]
fn a_deorbit_that_is_done_goes_at_once_although_its_cluster_is_gone() {
    let mut world = proven(json!({}));
    world.claim("data");
    world.finish();
    deleted_with_a_dead_cluster(&mut world, 2);
    assert_eq!(world.did("nothing of it stands"), 1, "{:?}", world.acts);
}

#[test]
fn one_that_never_froze_goes_at_once_too() {
    let mut world = proven(json!({}));
    world.claim("data");
    world.step();
    world.step();
    assert!(world.run.held && world.run.status.phase < Phase::Freeze);
    deleted_with_a_dead_cluster(&mut world, 2);
}

#[test]
fn one_whose_freeze_stands_in_a_dead_cluster_goes_when_the_outage_is_long_enough() {
    let mut world = frozen();
    let began = world.now;
    deleted_with_a_dead_cluster(&mut world, 200);
    assert!(world.now.duration_since(began).as_secs() >= 600, "ten minutes are the outage's limit");
    assert_eq!(world.did("as soon as it can be done, delete"), 1, "{:?}", world.acts);
}

/// The run is frozen, OpenStack has not answered for as long as may be, and in this moment the API server restarts.
fn with_a_restart_at_the_end_of_openstack_s_outage() -> World {
    let mut world = frozen();
    world.course.cloud_outage = world.walk..usize::MAX;
    world.step();
    world.now += Duration::from_secs(600);
    world.course.outage = world.walk..world.walk + 2;
    world
}

#[test]
fn an_outage_of_openstack_is_none_of_the_cluster_which_has_its_freeze_lifted() {
    let mut world = with_a_restart_at_the_end_of_openstack_s_outage();
    // Who aborts a run asks OpenStack nothing.
    world.course.cloud_outage = 0..0;
    world.run.deleting = true;
    world.finish();
    assert!(world.gone && !world.cluster.freeze.any(), "{:?}", world.acts);
    assert_eq!((world.did("lift the freeze"), world.did("as soon as it can be done, delete")), (1, 0));
    let mut world = with_a_restart_at_the_end_of_openstack_s_outage();
    world.finish_blind();
    assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
    assert!(!world.cluster.freeze.any() && !debris_kinds(&world).contains(&"Freeze"), "{:?}", world.acts);
}

#[test]
fn an_outage_is_counted_from_its_own_begin_where_another_one_ends_in_it() {
    let mut world = frozen();
    let began = world.walk;
    world.course.cloud_outage = began..began + 30;
    world.course.outage = began + 20..usize::MAX;
    for _ in 0..20 {
        world.step();
    }
    let since = world.now;
    world.finish_blind();
    let over = world.run.status.completed_at.unwrap();
    assert!(over.duration_since(since).as_secs() >= 600, "{since} {over}");
}

#[test]
fn a_run_that_is_tried_again_in_an_outage_waits_anew() {
    let mut world = proven(json!({"onTimeout": "Block"}));
    world.claim("data");
    world.course.outage = 0..usize::MAX;
    world.finish_blind();
    assert_eq!(world.run.status.phase, Phase::Failed);
    let again = world.now;
    world.run.generation = Some(2);
    world.finish_blind();
    assert_eq!(world.run.status.phase, Phase::Failed);
    assert!(world.now.duration_since(again).as_secs() >= 600);
}

#[test]
fn a_freeze_that_is_lifted_at_the_second_try_changes_nothing_of_the_end() {
    let mut world = proven(json!({}));
    world.claim("data");
    world.course.clings = 2;
    world.finish();
    assert_eq!((world.run.status.phase, world.run.status.debris_count), (Phase::Complete, 0));
    assert!(!world.cluster.freeze.any());
}

#[test]
fn a_freeze_that_cannot_be_lifted_is_debris_after_a_while() {
    let mut world = proven(json!({"timeouts": {"apiUnavailable": "1m"}}));
    world.claim("data");
    world.course.clings = usize::MAX;
    world.finish_blind();
    let status = &world.run.status;
    assert_eq!(status.phase, Phase::CompletedWithDebris);
    assert_eq!(status.debris[0].kind, "Freeze");
    assert!(world.now.duration_since(status.completed_at.unwrap()).as_secs() >= 60);
    assert_eq!(world.condition("Frozen").0, Status::True);
    // Whoever deletes the Deorbit now has read of it, and is not held back for ever.
    world.run.deleting = true;
    for _ in 0..4 {
        if !world.gone {
            world.step();
        }
    }
    assert!(world.gone, "{:?}", world.acts);
    assert!(world.cluster.freeze.any());
}

#[test]
fn a_freeze_that_may_not_be_looked_for_is_never_made_and_the_run_goes_on_without() {
    for (freeze, minutes) in [("None", 0), ("Policy", 1)] {
        let mut world = proven(json!({"freeze": freeze, "timeouts": {"apiUnavailable": "1m"}}));
        world.claim("data");
        world.cluster.freeze.forbidden = true;
        let begun = world.now;
        world.finish();
        assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
        let made = world.acts.iter().any(|act| act.starts_with("refuse new"));
        assert!(!made && !world.cluster.freeze.any(), "{:?}", world.acts);
        let started = world.run.status.started_at.unwrap();
        assert_eq!(started.duration_since(begun).as_secs() >= 60, minutes == 1);
    }
}

#[test]
fn what_is_made_in_the_last_moment_is_waited_for_too() {
    for phase in [Phase::Verify, Phase::Sweep, Phase::Routes] {
        let mut world = proven(json!({"freeze": "None"}));
        world.claim("data");
        world.course.makes = Some(Makes::In(phase));
        world.finish();
        assert_eq!(world.run.status.phase, Phase::Complete, "{phase}: {:?}", world.run.status.debris);
        assert!(world.cloud.unwrap().volumes.is_empty(), "{phase}");
    }
}

#[test]
fn what_is_made_after_the_freeze_is_lifted_is_no_longer_of_this_run() {
    let mut world = proven(json!({}));
    world.claim("data");
    world.course.makes = Some(Makes::Thawed);
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
    assert!(world.cluster.claims.iter().all(|one| one.meta.deleting.is_none()), "{:?}", world.acts);
    assert_eq!(world.cluster.claims.len(), 1, "a surviving cluster works again");
}

#[test]
fn a_project_that_shows_nothing_of_the_cluster_proves_nothing() {
    let mut world = proven(json!({"timeouts": {"perObject": "5m"}}));
    world.claim("data");
    world.service("web");
    *world.cloud.as_mut().unwrap() = Cloud { project: "another".into(), ..Cloud::default() };
    (world.course.csi_dead, world.course.ccm_dead) = (true, true);
    world.finish();
    let status = &world.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 2), "{:?}", status.debris);
    assert!(
        status.debris[0].reason.contains("is the login for its project and region?"),
        "{:?}",
        status.debris
    );
}

#[test]
fn where_the_cluster_s_own_controllers_work_their_word_counts_and_is_called_no_proof() {
    let mut world = proven(json!({}));
    world.claim("data");
    *world.cloud.as_mut().unwrap() = Cloud::default();
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete);
    assert_eq!(world.condition("Clean"), (Status::Unknown, "NotProven".to_owned()));
    let mut world = proven(json!({}));
    world.claim("data");
    world.finish();
    assert_eq!(world.condition("Clean"), (Status::True, "Proven".to_owned()));
    let mut world = World::new(spec(json!({})));
    world.claim("data");
    world.finish();
    assert_eq!(world.condition("Clean").0, Status::Unknown);
}

#[test]
fn another_cluster_or_project_in_the_place_is_not_touched() {
    let mut world = proven(json!({}));
    world.cluster.uid = Some("one".into());
    world.cloud.as_mut().unwrap().project = "p".into();
    world.claim("data");
    while world.run.status.phase < Phase::Delete {
        world.step();
    }
    let inventory = &world.run.status.inventory;
    assert_eq!((inventory.cluster.as_deref(), inventory.project.as_deref()), (Some("one"), Some("p")));
    let of = |uid: Option<&str>| Cluster { uid: uid.map(str::to_owned), ..Cluster::default() };
    assert!(world.run.recognise(of(Some("one"))).is_ok());
    for other in [Some("two"), None] {
        let why = world.run.recognise(of(other)).unwrap_err();
        assert!(why.contains("nothing is done there"), "{why}");
    }
    let other = Cloud { project: "q".into(), ..Cloud::default() };
    assert!(world.run.recognise_project(other).unwrap_err().contains("project q"));
}

#[test]
fn protected_time_is_not_counted_as_hanging() {
    let mut world = proven(json!({"timeouts": {"hang": "1h"}}));
    world.course.csi_dead = true;
    world.claim("data");
    for _ in 0..8 {
        world.step();
    }
    world.run.protected = true;
    world.step();
    world.now += Duration::from_secs(2 * 3600);
    world.step();
    world.run.protected = false;
    world.course.csi_dead = false;
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
}

#[test]
fn an_outage_before_anything_was_frozen_is_not_looked_into_for_ever() {
    let mut world = proven(json!({}));
    world.claim("data");
    world.course.outage = 0..usize::MAX;
    world.finish_blind();
    let decision = world.step();
    assert_eq!(decision.again, None, "nothing of it can be there");
}

fn debris_kinds(world: &World) -> Vec<&str> {
    world.run.status.debris.iter().map(|one| one.kind.as_str()).collect()
}

#[test]
fn an_outage_of_openstack_is_no_clean_end_where_nothing_was_recorded_either() {
    let mut world = proven(json!({}));
    while world.run.status.phase < Phase::Delete {
        world.step();
    }
    world.course.cloud_outage = world.walk..usize::MAX;
    world.finish_blind();
    assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(debris_kinds(&world), ["OpenStack"]);
    assert!(world.run.status.debris[0].reason.contains("503"), "{:?}", world.run.status.debris);
}

#[test]
fn a_cluster_that_dies_while_it_is_being_frozen_may_stay_frozen() {
    let mut world = proven(json!({}));
    while world.run.status.phase < Phase::Freeze {
        world.step();
    }
    assert_eq!((world.run.status.phase, world.run.status.started_at), (Phase::Freeze, None));
    world.course.outage = world.walk..usize::MAX;
    world.finish_blind();
    assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(debris_kinds(&world), ["Freeze"]);
}

#[test]
fn a_cluster_that_was_not_to_be_frozen_is_not_frozen_when_it_dies() {
    let dies = |freeze: &str, csi_dead: bool| {
        let mut world = proven(json!({"freeze": freeze}));
        world.course.csi_dead = csi_dead;
        world.claim("data");
        while world.run.status.phase < Phase::Wait {
            world.step();
        }
        world.course.outage = world.walk..usize::MAX;
        world
    };
    for (freeze, end, debris) in
        [("None", Phase::Complete, vec![]), ("Policy", Phase::CompletedWithDebris, vec!["Freeze"])]
    {
        let mut world = dies(freeze, false);
        world.finish_blind();
        assert_eq!((world.run.status.phase, debris_kinds(&world)), (end, debris), "{freeze}");
        let frozen = if freeze == "None" { Status::False } else { Status::Unknown };
        assert_eq!(world.condition("Frozen").0, frozen);
        assert_eq!(world.step().again.is_none(), freeze == "None", "it is looked into for ever");
    }
    // Neither is it waited for when somebody aborts the run.
    let mut world = dies("None", true);
    deleted_with_a_dead_cluster(&mut world, 2);
    assert_eq!(world.did("nothing of it stands"), 1, "{:?}", world.acts);
}

#[test]
fn a_freeze_that_was_seen_may_stand_whatever_the_spec_says() {
    let mut world = proven(json!({"freeze": "None"}));
    world.course.csi_dead = true;
    world.claim("data");
    world.cluster.freeze.policy = true;
    while world.run.status.phase < Phase::Wait {
        world.step();
    }
    assert_eq!(world.condition("Frozen").0, Status::True);
    world.course.outage = world.walk..usize::MAX;
    world.finish_blind();
    assert!(debris_kinds(&world).contains(&"Freeze"), "{:?}", world.run.status.debris);
}

#[test]
fn what_was_asked_for_and_not_looked_at_before_the_end_is_named() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let asked = json!({"resources": routes, "sweep": true, "timeouts": {"hang": "10m", "perObject": "30m"}});
    let mut world = proven(asked.clone());
    world.course.csi_dead = true;
    world.claim("data");
    world.finish();
    assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(debris_kinds(&world), ["Volume", "Router", "Cluster"]);
    assert_eq!(world.run.status.debris[1].name, "r-1");
    for entry in &world.run.status.debris[1..] {
        assert!(entry.reason.contains("the run ended before"), "{entry:?}");
    }
    // Where all phases are gone through there is nothing to name.
    let mut world = proven(asked);
    world.claim("data");
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
}
