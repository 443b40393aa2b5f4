//! The application credential of the login: deleted last, and only by a run that leaves nothing.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use serde_json::{Value, json};

use super::env::*;
use crate::observe::snapshot::{BlockStorage, SameLogin};
use crate::plan::preview;

const DELETE: &str = "delete the application credential cred";

/// A cluster with a volume and a load balancer.
fn cluster(change: Value) -> TestEnv {
    let mut env = deleting_credential(change);
    env.claim("data");
    env.service("web");
    env
}

/// Whether the credential is gone, the phase, and what is left.
fn end(env: &TestEnv) -> (bool, Phase, Vec<&str>) {
    let debris = env.run.status.debris.iter().map(|one| one.kind.as_str()).collect();
    (env.credential_gone, env.run.status.phase, debris)
}

fn credential(env: &mut TestEnv) -> &mut common::cloud::openstack::ApplicationCredential {
    env.cloud.as_mut().unwrap().credential.as_mut().unwrap()
}

#[test]
fn the_credential_is_deleted_when_everything_else_is_gone() {
    let mut env = cluster(json!({}));
    env.finish();
    assert_eq!(end(&env), (true, Phase::Succeeded, vec![]));
    assert!(env.acts.last().unwrap().starts_with(DELETE) && env.did(DELETE) == 1, "{:?}", env.acts);
    assert_eq!(env.condition("Complete"), (Status::True, "Complete".to_owned()));
    assert_eq!(env.condition("Verified"), (Status::True, "EachIDIsGone".to_owned()));
    assert_eq!(env.condition("CloudReachable"), (Status::Unknown, "CredentialDeleted".to_owned()));
}

#[test]
fn the_credential_stays_after_a_run_that_is_not_clean_and_is_listed_if_the_cluster_is_released() {
    let stopped = |change: Value| {
        let mut env = cluster(change);
        env.course.csi_stopped = true;
        env
    };
    let limit = json!({"timeouts": {"total": "10m"}});
    let (volume, credential) = ("Volume", "ApplicationCredential");
    let mut keep = cluster(json!({"openstack": with_cloud()}));
    keep.finish();
    assert_eq!((end(&keep), keep.did(DELETE)), ((false, Phase::Succeeded, vec![]), 0));
    let mut released = stopped(limit);
    released.finish();
    assert_eq!(end(&released), (false, Phase::Succeeded, vec![volume, credential]));
    let mut failed = stopped(json!({"timeouts": {"total": "10m"}, "onTimeout": "Block"}));
    failed.finish();
    assert_eq!(end(&failed), (false, Phase::Failed, vec![volume]));
    // Another try may leave nothing.
    failed.course.csi_stopped = false;
    failed.run.spec.timeouts.total = "1h".parse().unwrap();
    failed.run.generation = Some(2);
    failed.finish();
    assert_eq!(end(&failed), (true, Phase::Succeeded, vec![]));
    // Without any limit: a volume that is only reported.
    let mut reported = cluster(json!({"discoverByClusterName": true}));
    let lost = BlockStorage { name: "pvc-x".into(), cluster: Some("prod".into()), ..BlockStorage::default() };
    reported.cloud.as_mut().unwrap().volumes.insert("lost".into(), lost);
    reported.finish();
    assert_eq!(
        (end(&reported), reported.run.book.over),
        ((false, Phase::Succeeded, vec![volume, credential]), false)
    );
    // Nothing is left, but a limit was reached, and the cluster may still create something.
    let mut unreachable = cluster(json!({"orphanPolicy": "Delete"}));
    unreachable.until(Phase::Deleting);
    unreachable.course.outage = unreachable.reconcile..usize::MAX;
    unreachable.finish_blind();
    assert_eq!(end(&unreachable), (false, Phase::Succeeded, vec![credential]));
    let mut aborted = cluster(json!({}));
    aborted.until(Phase::Finishing);
    aborted.course.aborted = Some(aborted.reconcile);
    aborted.finish();
    assert!(aborted.gone && !aborted.credential_gone);
    let mut planned = cluster(json!({"dryRun": true}));
    planned.finish();
    assert_eq!(end(&planned), (false, Phase::Planned, vec![]));
}

/// S2
#[test]
fn the_credential_stays_if_not_everything_could_be_verified() {
    // Nothing shows that the login is the cluster's own.
    let mut empty = deleting_credential(json!({}));
    empty.finish();
    assert_eq!(end(&empty), (false, Phase::Succeeded, vec!["ApplicationCredential"]));
    assert!(empty.run.status.debris[0].reason.contains("has shown nothing of this cluster"));
    // It may be a backup, which is not searched.
    let mut env = cluster(json!({}));
    env.snapshot("daily", "data");
    env.cloud.as_mut().unwrap().snapshots.clear();
    env.finish();
    assert_eq!(end(&env), (false, Phase::Succeeded, vec!["ApplicationCredential"]));
    assert!(env.run.status.debris[0].reason.contains("is it a backup?"), "{:?}", env.run.status.debris);
}

/// Two Deorbits that waited for each other would never end.
#[test]
fn the_credential_is_left_to_the_last_deorbit_that_needs_it() {
    let why = "it is still needed: Deorbit ns/other logs in with the same Secret";
    let other = || Some(SameLogin { deorbit: "ns/other".into(), yields: false });
    let mut env = cluster(json!({}));
    env.run.same_login = other();
    let preview = preview::preview(&Default::default(), &env.snapshot_now(), env.now).to_string();
    assert!(preview.contains(why) && !preview.contains("DeleteApplicationCredential"), "{preview}");
    env.finish();
    assert_eq!(end(&env), (false, Phase::Succeeded, vec!["ApplicationCredential"]));
    assert_eq!(env.run.status.debris[0].reason, why);
    // The other one is created between the record and the delete.
    let mut late = cluster(json!({}));
    late.course.credential_stays = usize::MAX;
    while late.run.book.credential.is_none() {
        late.step();
    }
    let tried = late.did(DELETE);
    late.run.same_login = other();
    late.finish();
    assert_eq!(
        (end(&late), late.did(DELETE)),
        ((false, Phase::Succeeded, vec!["ApplicationCredential"]), tried)
    );
    assert_eq!(late.run.status.debris[0].reason, why);
}

#[test]
fn of_two_deorbits_that_end_together_one_waits_for_the_other_and_deletes_the_credential() {
    let other = |yields: bool| Some(SameLogin { deorbit: "ns/other".into(), yields });
    // Without the wait for the other one, each would observe that the other still needs the credential.
    for (yields, steps) in [(true, 20), (false, 3)] {
        let mut env = cluster(json!({}));
        env.run.same_login = other(yields);
        env.until(Phase::Finishing);
        for _ in 0..steps {
            env.step();
        }
        assert_eq!((end(&env), env.did(DELETE)), ((false, Phase::Finishing, vec![]), 0), "{yields}");
        env.run.same_login = None;
        env.finish();
        assert_eq!(end(&env), (true, Phase::Succeeded, vec![]), "{yields}");
    }
    let mut env = cluster(json!({}));
    env.run.same_login = other(true);
    env.until(Phase::Finishing);
    let begun = env.now;
    env.finish();
    assert_eq!(end(&env), (false, Phase::Succeeded, vec!["ApplicationCredential"]));
    assert!(env.now.duration_since(begun).as_secs() >= 590, "it waits for timeouts.apiUnavailable");
}

#[test]
fn a_credential_that_cannot_be_deleted_holds_the_run_before_anything_is_done() {
    type Change = fn(&mut TestEnv);
    let cases: [(Change, &str); 3] = [
        (|env| env.cloud.as_mut().unwrap().credential = None, "cannot be deleted: the login is none"),
        (|env| credential(env).is_unrestricted = false, "cred is restricted"),
        (|env| credential(env).permits_delete = false, "do not permit identity DELETE /v3/users/*"),
    ];
    for (change, why) in cases {
        let mut env = cluster(json!({"timeouts": {"total": "1h"}}));
        let good = env.cloud.clone();
        change(&mut env);
        let preview = preview::preview(&Default::default(), &env.snapshot_now(), env.now);
        assert!(preview.to_string().contains(why) && preview.steps.is_empty(), "{preview}");
        for _ in 0..1000 {
            env.step();
        }
        assert_eq!((env.run.status.phase, env.acts.len()), (Phase::Pending, 0), "{why}");
        assert_eq!(env.condition("Stalled"), (Status::True, "CloudRefused".to_owned()));
        let condition = env.run.status.conditions.iter().find(|one| one.kind == "CloudReachable").unwrap();
        assert!(condition.reason == "Refused" && condition.message.contains(why), "{condition:?}");
        env.cloud = good;
        env.finish();
        assert_eq!(end(&env), (true, Phase::Succeeded, vec![]), "{why}");
    }
    // It is no condition for Keep.
    let mut env = cluster(json!({"openstack": with_cloud()}));
    credential(&mut env).is_unrestricted = false;
    env.finish();
    assert_eq!(end(&env), (false, Phase::Succeeded, vec![]));
}

#[test]
fn a_missing_credential_is_the_end_only_if_its_deletion_is_on_record() {
    let deleted = || {
        let mut env = cluster(json!({}));
        while !env.credential_gone {
            env.step();
        }
        assert_eq!(env.run.status.phase, Phase::Finishing);
        env
    };
    // The process was stopped after the DELETE, and the cluster is gone by now.
    let mut env = deleted();
    env.course.refused = env.reconcile..usize::MAX;
    env.finish();
    assert_eq!(end(&env), (true, Phase::Succeeded, vec![]));
    let mut env = deleted();
    env.run.book.credential = None;
    for _ in 0..1000 {
        env.step();
    }
    assert_eq!(env.run.status.phase, Phase::Finishing);
    assert_eq!(env.condition("Stalled"), (Status::True, "CloudRefused".to_owned()));
}

#[test]
fn a_credential_that_keystone_does_not_delete_is_listed_and_the_run_succeeds() {
    for on_timeout in ["Release", "Block"] {
        let mut env = cluster(json!({"onTimeout": on_timeout}));
        env.course.credential_stays = usize::MAX;
        let begun = env.now;
        env.finish();
        assert_eq!(end(&env), (false, Phase::Succeeded, vec!["ApplicationCredential"]));
        let debris = &env.run.status.debris[0];
        assert_eq!((debris.id.as_deref(), debris.reason.as_str()), (Some("cred"), "403"));
        assert!(env.now.duration_since(begun).as_secs() >= 600, "it is tried for timeouts.apiUnavailable");
        assert_eq!(env.condition("Complete"), (Status::True, "CompletedWithDebris".to_owned()));
    }
    let mut env = cluster(json!({}));
    env.course.credential_stays = 2;
    env.finish();
    assert_eq!((end(&env), env.did(DELETE)), ((true, Phase::Succeeded, vec![]), 3));
}

#[test]
fn a_protected_deorbit_keeps_its_credential_and_another_login_is_never_deleted() {
    let mut env = cluster(json!({}));
    env.course.credential_stays = 1;
    while env.run.book.credential.is_none() {
        env.step();
    }
    env.run.protected = true;
    for _ in 0..3 {
        env.step();
    }
    env.now += Duration::from_secs(3600);
    env.step();
    assert_eq!((env.did(DELETE), env.run.status.phase), (1, Phase::Finishing));
    let mut replaced = TestEnv::new(env.run.spec.clone());
    (replaced.run, replaced.cluster, replaced.cloud) =
        (env.run.clone(), env.cluster.clone(), env.cloud.clone());
    env.run.protected = false;
    env.finish();
    assert_eq!(end(&env), (true, Phase::Succeeded, vec![]));
    replaced.run.protected = false;
    replaced.now = env.now;
    credential(&mut replaced).id = "another".into();
    replaced.finish();
    assert_eq!(
        (end(&replaced), replaced.did(DELETE)),
        ((false, Phase::Succeeded, vec!["ApplicationCredential"]), 0)
    );
    assert_eq!(replaced.run.status.debris[0].id.as_deref(), Some("cred"));
}
