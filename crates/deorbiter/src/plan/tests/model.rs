//! A small world, in every variant: each combination of what is in it, of what is alive, and of what is asked for, undisturbed
//! and with the process dying in each of its walks.

use common::api::deorbit::{Leftovers, Phase};
use serde_json::json;

use super::world::*;

/// One of so many.
fn build(mut number: usize) -> Option<World> {
    let mut pick = |choices: usize| {
        let choice = number % choices;
        number /= choices;
        choice
    };
    let (retained, leftovers) = (["Keep", "Delete"][pick(2)], ["Report", "Delete"][pick(2)]);
    let (on_timeout, proven) = (["Release", "Block"][pick(2)], pick(2) == 0);
    let (volume, service) = (pick(4), pick(5));
    let [csi_dead, ccm_dead, stale, recreates, snapshot] = [(); 5].map(|()| pick(2) == 1);
    if !proven && leftovers == "Delete" {
        return None;
    }
    let mut asked = json!({"retained": retained, "leftovers": leftovers, "onTimeout": on_timeout,
        "timeouts": {"perObject": "1m", "hang": "10m"}});
    if proven {
        asked["openstack"] = with_cloud();
    }
    let mut world = World::new(spec(asked));
    world.claim("data");
    match volume {
        1 => {
            world.volume("data").retain = true;
            if retained == "Keep" {
                world.untouchable.push("vol-data".into());
            }
        }
        2 => {
            world.cluster.claims[0].meta.keep = true;
            world.untouchable.push("vol-data".into());
        }
        3 => {
            world.cluster.volumes.clear();
            world.untouchable.extend(["uid-data".into(), "vol-data".into()]);
        }
        _ => {}
    }
    world.service("web");
    match service {
        1 => {
            world.cluster.services[0].class = Some("metallb".into());
            world.untouchable.extend(["uid-web".into(), "lb-web".into()]);
        }
        2 if proven => world.balancer("web").tags.push("kube_service_other_a_web".into()),
        3 => {
            world.cluster.services[0].meta.keep = true;
            world.untouchable.extend(["uid-web".into(), "lb-web".into()]);
        }
        4 => world.cluster.services[0].former = true,
        _ => {}
    }
    if snapshot && volume != 3 {
        world.snapshot("daily", "data");
    }
    if stale {
        world.stale_leases();
    }
    world.course = Course { csi_dead, ccm_dead, recreates, ..Course::default() };
    Some(world)
}

const ALL: usize = 2 * 2 * 2 * 2 * 4 * 5 * 32;

fn check(number: usize, world: &World) {
    let status = &world.run.status;
    assert!(!world.cluster.freeze.any(), "{number}: a freeze is left behind");
    assert_eq!(status.phase == Phase::Complete, status.debris_count == 0, "{number}");
    let alive = !world.course.csi_dead && !world.course.ccm_dead;
    assert!(!alive || status.phase == Phase::Complete, "{number}: {:?}", status.debris);
    let Some(cloud) = &world.cloud else { return };
    // OpenStack takes every DELETE here, at the first or the second time: what deorbiter may delete itself is gone in the end.
    let all_ours = !world.run.records.iter().any(|one| one.kept.is_none() && one.shared);
    let itself = world.run.spec.leftovers == Leftovers::Delete;
    assert!(!(itself && all_ours) || status.phase == Phase::Complete, "{number}: {:?}", status.debris);
    for record in world.run.records.iter().filter(|one| one.kept.is_none() && !one.shared) {
        let id = record.id.as_ref().unwrap();
        let there = cloud.volumes.contains_key(id)
            || cloud.snapshots.contains_key(id)
            || cloud.load_balancers.contains_key(id)
            || cloud.floating_ips.contains_key(id);
        let listed = status.debris.iter().any(|one| one.id.as_ref() == Some(id));
        assert_eq!(there, listed, "{number}: {id} {:?}", status.debris);
    }
    for id in &world.untouchable {
        let there = cloud.volumes.contains_key(id) || cloud.load_balancers.contains_key(id);
        assert!(there || id.starts_with("uid-"), "{number}: {id} is gone");
    }
}

#[test]
fn every_small_world_ends_as_it_should() {
    let mut worlds = 0;
    for number in 0..ALL {
        let Some(mut world) = build(number) else { continue };
        world.finish();
        check(number, &world);
        worlds += 1;
    }
    println!("{worlds} worlds");
    assert!(worlds > 5_000);
}

#[test]
fn a_death_in_any_walk_changes_nothing_of_the_end() {
    let mut deaths = 0;
    // Coprime to all choices: a slice with every one of them in it.
    for number in (0..ALL).step_by(97) {
        let Some(mut undisturbed) = build(number) else { continue };
        undisturbed.finish();
        for walk in 0..undisturbed.walk.min(14) {
            for after_first in [false, true] {
                let mut world = build(number).unwrap();
                let course = &mut world.course;
                *if after_first { &mut course.dies_after_first } else { &mut course.dies_before_acts } =
                    Some(walk);
                world.finish();
                check(number, &world);
                assert_eq!(world.run.status.phase, undisturbed.run.status.phase, "{number}, {walk}");
                assert_eq!(world.cloud, undisturbed.cloud, "{number}, {walk}");
                deaths += 1;
            }
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 1_000);
}

#[test]
fn an_abort_before_any_walk_leaves_no_freeze() {
    for number in (0..ALL).step_by(101) {
        for walk in 0..14 {
            let Some(mut world) = build(number) else { continue };
            world.course.aborted = Some(walk);
            for _ in 0..40 {
                world.step();
            }
            assert!(!world.cluster.freeze.any(), "{number}, {walk}");
            assert!(!world.run.held, "{number}, {walk}: held for ever");
        }
    }
}
