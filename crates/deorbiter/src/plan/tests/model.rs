//! Every variant of a small simulation: each combination of its objects, of running controllers and of the spec, undisturbed and with
//! the process stopping in each of its reconciliations.

use common::api::deorbit::{OrphanPolicy, Phase};
use serde_json::json;

use super::env::*;

/// Picks one of so many.
fn build(mut number: usize) -> Option<TestEnv> {
    let mut pick = |choices: usize| {
        let choice = number % choices;
        number /= choices;
        choice
    };
    let (retained, leftovers) = (["Keep", "Delete"][pick(2)], ["Report", "Delete"][pick(2)]);
    let (on_timeout, proven) = (["Release", "Block"][pick(2)], pick(2) == 0);
    let (volume, service) = (pick(4), pick(5));
    let [csi_stopped, ccm_stopped, stale, recreates, snapshot, deletes_credential] =
        [(); 6].map(|()| pick(2) == 1);
    if !proven && leftovers == "Delete" {
        return None;
    }
    let asked = json!({"retainedVolumes": retained, "orphanPolicy": leftovers, "onTimeout": on_timeout,
        "timeouts": {"perObject": "1m", "total": "10m"}});
    let mut env = match (proven, deletes_credential) {
        (true, true) => deleting_credential(asked),
        (true, false) => super::env::proven(asked),
        (false, true) => return None,
        (false, false) => TestEnv::new(spec(asked)),
    };
    env.claim("data");
    match volume {
        1 => {
            env.volume("data").retain = true;
            if retained == "Keep" {
                env.untouchable.push("vol-data".into());
            }
        }
        2 => {
            env.cluster.claims[0].meta.keep = true;
            env.untouchable.push("vol-data".into());
        }
        3 => {
            env.cluster.volumes.clear();
            env.untouchable.extend(["uid-data".into(), "vol-data".into()]);
        }
        _ => {}
    }
    env.service("web");
    match service {
        1 => {
            env.cluster.services[0].class = Some("metallb".into());
            env.untouchable.extend(["uid-web".into(), "lb-web".into()]);
        }
        2 if proven => env.balancer("web").tags.push("kube_service_other_a_web".into()),
        3 => {
            env.cluster.services[0].meta.keep = true;
            env.untouchable.extend(["uid-web".into(), "lb-web".into()]);
        }
        4 => env.cluster.services[0].former = true,
        _ => {}
    }
    if snapshot && volume != 3 {
        env.snapshot("daily", "data");
    }
    if stale {
        env.stale_leases();
    }
    env.course = Course { csi_stopped, ccm_stopped, recreates, ..Course::default() };
    Some(env)
}

const ALL: usize = 2 * 2 * 2 * 2 * 4 * 5 * 64;

fn check(number: usize, env: &TestEnv) {
    let status = &env.run.status;
    assert!(env.cluster.block.any(), "{number}: new objects are not blocked any more");
    assert!(status.phase == Phase::Succeeded || status.debris_count > 0, "{number}");
    // Only a run that leaves nothing deletes its credential. One that stays is listed.
    let listed = status.debris.iter().any(|one| one.kind == "ApplicationCredential");
    let left = status.debris_count - i64::from(listed);
    let asked = env.run.deletes_credential() && status.phase == Phase::Succeeded;
    assert_eq!(
        (env.credential_gone, listed),
        (asked && status.debris_count == 0, asked && status.debris_count > 0)
    );
    let alive = !env.course.csi_stopped && !env.course.ccm_stopped;
    assert!(!alive || left == 0, "{number}: {:?}", status.debris);
    let Some(cloud) = &env.cloud else { return };
    // OpenStack accepts every DELETE here, at the first or the second try: what deorbiter may delete itself is gone in the end.
    let all_ours = !env.run.records.iter().any(|one| one.kept.is_none() && one.shared);
    let itself = env.run.spec.orphan_policy == OrphanPolicy::Delete;
    assert!(!(itself && all_ours) || left == 0, "{number}: {:?}", status.debris);
    for record in env.run.records.iter().filter(|one| one.kept.is_none() && !one.shared) {
        let id = record.id.as_ref().unwrap();
        let there = cloud.volumes.contains_key(id)
            || cloud.snapshots.contains_key(id)
            || cloud.load_balancers.contains_key(id)
            || cloud.floating_ips.contains_key(id);
        let listed = status.debris.iter().any(|one| one.id.as_ref() == Some(id));
        assert_eq!(there, listed, "{number}: {id} {:?}", status.debris);
    }
    for id in &env.untouchable {
        let there = cloud.volumes.contains_key(id) || cloud.load_balancers.contains_key(id);
        assert!(there || id.starts_with("uid-"), "{number}: {id} is gone");
    }
}

#[test]
fn every_variant_of_the_small_simulation_ends_correctly() {
    let mut envs = 0;
    for number in 0..ALL {
        let Some(mut env) = build(number) else { continue };
        env.finish();
        check(number, &env);
        envs += 1;
    }
    println!("{envs} envs");
    assert!(envs > 5_000);
}

#[test]
fn a_stop_in_any_reconciliation_does_not_change_the_end() {
    let mut deaths = 0;
    // Coprime to all choices: the slice has each of them.
    for number in (0..ALL).step_by(97) {
        let Some(mut undisturbed) = build(number) else { continue };
        undisturbed.finish();
        for reconcile in 0..undisturbed.reconcile.min(14) {
            for after_first in [false, true] {
                let mut env = build(number).unwrap();
                let course = &mut env.course;
                *if after_first { &mut course.dies_after_first } else { &mut course.dies_before_acts } =
                    Some(reconcile);
                env.finish();
                check(number, &env);
                assert_eq!(env.run.status.phase, undisturbed.run.status.phase, "{number}, {reconcile}");
                assert_eq!(env.cloud, undisturbed.cloud, "{number}, {reconcile}");
                assert_eq!(env.credential_gone, undisturbed.credential_gone, "{number}, {reconcile}");
                deaths += 1;
            }
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 1_000);
}

#[test]
fn an_abort_before_any_reconciliation_leaves_no_block() {
    for number in (0..ALL).step_by(101) {
        for reconcile in 0..14 {
            let Some(mut env) = build(number) else { continue };
            env.course.aborted = Some(reconcile);
            for _ in 0..40 {
                env.step();
            }
            assert!(!env.cluster.block.any(), "{number}, {reconcile}");
            assert!(!env.run.held, "{number}, {reconcile}: held for ever");
        }
    }
}
