//! The proofs that something is gone, and the time that a run waits for them.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use common::routes::Route;
use jiff::SignedDuration;
use serde_json::json;

use super::env::*;
use crate::names;
use crate::observe::snapshot::{Cloud, CloudVolume, DoubtfulRoute, Ingress, LoadBalancer, Pod};

fn ago(env: &TestEnv, minutes: i64) -> Option<jiff::Timestamp> {
    Some(env.now - SignedDuration::from_mins(minutes))
}

fn reasons(env: &TestEnv) -> String {
    env.run.status.debris.iter().map(|one| format!("{} {}\n", one.kind, one.reason)).collect()
}

#[test]
fn with_a_wrong_cluster_name_a_load_balancer_does_not_count_as_gone() {
    for stopped in [true, false] {
        let mut env = proven(json!({"clusterName": "production", "timeouts": {"perObject": "10m"}}));
        env.service("web");
        env.course.ccm_stopped = stopped;
        env.finish();
        if stopped {
            assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
            assert!(reasons(&env).contains("in a cluster prod: is spec.clusterName"), "{}", reasons(&env));
        } else {
            assert_eq!((env.run.status.phase, env.condition("Clean").0), (Phase::Complete, Status::True));
        }
    }
}

#[test]
fn the_deletion_of_a_service_does_not_verify_its_part_of_a_load_balancer_without_its_name() {
    for stopped in [true, false] {
        let mut env = proven(json!({"timeouts": {"perObject": "10m"}}));
        env.claim("data");
        env.service("web");
        let balancer = env.balancer("web");
        (balancer.name, balancer.tags) = ("my-own".to_owned(), Vec::new());
        env.course.ccm_stopped = stopped;
        env.finish();
        let status = &env.run.status;
        if stopped {
            assert_eq!(status.phase, Phase::CompletedWithDebris);
            assert!(reasons(&env).contains("the Service is being deleted and still there"), "{status:?}");
        } else {
            assert_eq!((status.phase, env.condition("Clean").0), (Phase::Complete, Status::Unknown));
        }
    }
}

#[test]
fn the_time_limit_of_what_was_being_deleted_before_starts_with_the_run() {
    let mut env = proven(json!({}));
    let deleting = ago(&env, 60);
    env.claim("data").meta.deleting = deleting;
    let pod = Pod { meta: meta("a", "pod"), claims: vec!["data".into()], ..Pod::default() };
    env.cluster.pods.push(pod);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{}", reasons(&env));
}

#[test]
fn the_time_limit_restarts_when_the_run_deletes_in_openstack() {
    let mut env = proven(json!({"leftovers": "Delete"}));
    (env.course.csi_stopped, env.course.ccm_stopped) = (true, true);
    env.claim("data");
    env.service("web");
    env.balancer("web").status = "PENDING_UPDATE".into();
    while env.run.status.phase < Phase::Verify {
        env.step();
    }
    // Octavia needs time.
    env.now += Duration::from_secs(60);
    env.step();
    assert_eq!(env.run.status.phase, Phase::Verify);
    env.balancer("web").status = "ACTIVE".into();
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{}", reasons(&env));
    assert!(env.cloud.as_ref().unwrap().floating_ips.is_empty(), "{:?}", env.acts);
}

#[test]
fn a_login_for_another_region_verifies_nothing_at_the_second_try_either() {
    let mut env = proven(json!({"onTimeout": "Block", "timeouts": {"perObject": "5m"}}));
    env.claim("data");
    let elsewhere = Cloud { project: "another".into(), ..Cloud::default() };
    let hidden = env.cloud.replace(elsewhere).unwrap();
    env.course.csi_stopped = true;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Failed);
    env.now += Duration::from_secs(60);
    env.run.generation = Some(2);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Failed, "{} stands", hidden.volumes.len());
    assert!(reasons(&env).contains("is the login for its project and region?"), "{}", reasons(&env));
}

#[test]
fn what_was_gone_before_the_run_counts_as_gone_if_openstack_shows_the_cluster() {
    for shown in [true, false] {
        let mut env = proven(json!({"timeouts": {"perObject": "5m"}}));
        let deleting = ago(&env, 10);
        env.claim("data").meta.deleting = deleting;
        env.course.csi_stopped = true;
        let pv = env.volume("data");
        (pv.meta.deleting, pv.phase) = (deleting, "Released".into());
        env.cloud.as_mut().unwrap().volumes.clear();
        if shown {
            env.claim("other").meta.keep = true;
        }
        let began = env.now;
        env.finish();
        let took = env.now.duration_since(began);
        if shown {
            assert_eq!(env.run.status.phase, Phase::Complete, "{}", reasons(&env));
            assert!(took < SignedDuration::from_mins(5), "{took}");
        } else {
            // Another project would look the same.
            assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
            assert_eq!(env.run.status.debris[0].id.as_deref(), Some("vol-data"));
            assert!(reasons(&env).contains("is the login for its project and region?"), "{}", reasons(&env));
        }
    }
}

#[test]
fn a_login_for_another_project_verifies_nothing_that_an_earlier_run_deleted() {
    let asked = json!({"onTimeout": "Block", "podEviction": "None", "timeouts": {"perObject": "5m"}});
    let mut env = proven(asked);
    env.claim("data");
    let pod = Pod { meta: meta("a", "pod"), claims: vec!["data".into()], ..Pod::default() };
    env.cluster.pods.push(pod);
    env.cloud = Some(Cloud { project: "another".into(), ..Cloud::default() });
    for uid in ["first", "second"] {
        // A failed Deorbit is deleted and created again.
        (env.run.uid, env.run.held) = (uid.to_owned(), false);
        (env.run.status, env.run.records) = Default::default();
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Failed, "{uid}");
        assert!(env.cluster.claims[0].meta.deleting.is_some());
        assert!(reasons(&env).contains("is the login for its project and region?"), "{}", reasons(&env));
    }
}

#[test]
fn a_sweep_deletes_nothing_in_another_project_with_a_cluster_of_that_name() {
    for leftovers in ["Report", "Delete"] {
        let mut env = proven(json!({"sweep": true, "leftovers": leftovers, "timeouts": {"perObject": "5m"}}));
        env.course.csi_stopped = true;
        env.service("theirs");
        env.cluster.services.clear();
        env.claim("data");
        let cloud = env.cloud.as_mut().unwrap();
        cloud.project = "another".into();
        let own = cloud.volumes.remove("vol-data").unwrap();
        cloud.volumes.insert("vol-theirs".into(), CloudVolume { cluster: Some("prod".into()), ..own });
        let mut lost = cloud.floating_ips["fip-theirs"].clone();
        lost.port = None;
        cloud.floating_ips.insert("fip-lost".into(), lost);
        // Both clusters have this Ingress, whose load balancer can only be found by name.
        let name = names::ingress_load_balancer("prod", "a", "shop");
        let balancer = LoadBalancer { name, status: "ACTIVE".into(), ..LoadBalancer::default() };
        cloud.load_balancers.insert("lb-shop".into(), balancer);
        let class = Some("openstack".to_owned());
        env.cluster.ingresses.push(Ingress { meta: meta("a", "shop"), class, ..Ingress::default() });
        let theirs = ["vol-theirs", "lb-theirs", "fip-theirs", "fip-lost", "lb-shop"];
        env.untouchable = theirs.map(str::to_owned).to_vec();
        env.finish();
        assert_eq!(env.run.status.phase, Phase::CompletedWithDebris, "{leftovers}: {:?}", env.acts);
        assert!(reasons(&env).contains("Volume "), "{}", reasons(&env));
        assert!(reasons(&env).contains("Cluster the sweep was not done"), "{}", reasons(&env));
    }
}

#[test]
fn of_a_cluster_that_is_given_up_only_what_is_verified_counts_as_gone() {
    let dies = |env: &mut TestEnv| {
        while env.run.status.phase < Phase::Wait {
            env.step();
        }
        env.course.outage = env.reconcile..usize::MAX;
        env.finish_blind();
        assert_eq!(env.run.status.phase, Phase::CompletedWithDebris);
    };
    let lists = |env: &TestEnv, kind: &str| env.run.status.debris.iter().any(|one| one.kind == kind);
    let mut env = proven(json!({"freeze": "None"}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.cloud = Some(Cloud { project: "another".into(), ..Cloud::default() });
    dies(&mut env);
    assert!(lists(&env, "Volume"), "{}", reasons(&env));
    assert!(reasons(&env).contains("is the login for its project and region?"), "{}", reasons(&env));
    // The name of the Service's load balancer is unknown, and no Service is deleted any more.
    let mut env = proven(json!({"freeze": "None", "clusterName": "kubernetes"}));
    env.course.ccm_stopped = true;
    env.claim("data");
    env.service("new").load_balancer = None;
    let cloud = env.cloud.as_mut().unwrap();
    (cloud.load_balancers, cloud.floating_ips) = Default::default();
    dies(&mut env);
    assert!(lists(&env, "LoadBalancer") && !lists(&env, "Volume"), "{}", reasons(&env));
}

#[test]
fn unknown_routes_are_one_entry_of_debris_and_do_not_change_the_rest() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let mut env = proven(json!({"resources": routes, "timeouts": {"perObject": "5m"}}));
    env.claim("data");
    env.service("web");
    env.cloud.as_mut().unwrap().routes_unread = Some("there is no router r-1".into());
    env.finish();
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 1), "{}", reasons(&env));
    let debris = &status.debris[0];
    assert_eq!((debris.kind.as_str(), debris.name.as_str()), ("Router", "r-1"));
    assert!(debris.reason.contains("there is no router r-1"));
    assert!(env.cloud.as_ref().unwrap().volumes.is_empty());
}

#[test]
fn routes_of_a_cluster_that_is_gone_are_removed_with_leftovers_delete() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    for (leftovers, refused) in [("Delete", false), ("Delete", true), ("Report", false)] {
        let timeouts = json!({"perObject": "5m"});
        let mut env = proven(
            json!({"freeze": "None", "resources": routes, "leftovers": leftovers, "timeouts": timeouts}),
        );
        env.course.csi_stopped = true;
        env.claim("data");
        env.cloud.as_mut().unwrap().routes = vec![Route::new("10.244.1.0/24", "10.0.0.9")];
        while env.run.status.phase < Phase::Wait {
            env.step();
        }
        env.course.outage = env.reconcile..usize::MAX;
        if refused {
            while env.run.status.phase < Phase::Routes {
                env.step();
            }
            // Another client adds it again each time.
            let stubborn = env.cloud.as_ref().unwrap().routes.clone();
            while !env.run.status.phase.is_final() {
                env.step();
                env.cloud.as_mut().unwrap().routes.clone_from(&stubborn);
            }
        }
        env.finish_blind();
        let (status, kinds) = (&env.run.status, reasons(&env));
        if leftovers == "Report" {
            assert_eq!(env.did("routes of router r-1"), 0);
            assert!(kinds.contains("Router its routes were not read"), "{kinds}");
        } else if refused {
            assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 1), "{kinds}");
            assert!(kinds.contains("Route it is still there"), "{kinds}");
        } else {
            assert_eq!(status.phase, Phase::Complete, "{kinds}");
            assert!(env.cloud.as_ref().unwrap().routes.is_empty());
        }
    }
}

#[test]
fn a_route_whose_next_hop_may_exist_is_listed_and_not_waited_for() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let mut env = proven(json!({"resources": routes}));
    let route = |third| Route::new(format!("10.244.{third}.0/24"), "10.0.0.9");
    let cloud = env.cloud.as_mut().unwrap();
    cloud.routes = vec![route(1)];
    cloud.doubtful_routes =
        vec![DoubtfulRoute { route: route(2), why: "port p-1 has no port security".into() }];
    let began = env.now;
    env.finish();
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 1), "{}", reasons(&env));
    let debris = &status.debris[0];
    assert_eq!((debris.kind.as_str(), debris.name.as_str()), ("Route", "10.244.2.0/24 via 10.0.0.9"));
    assert!(debris.reason.contains("port p-1 has no port security"));
    assert!(env.cloud.as_ref().unwrap().routes.is_empty(), "the dead one went");
    assert!(env.now.duration_since(began) < SignedDuration::from_mins(1));
}

#[test]
fn an_object_whose_volume_is_gone_is_still_deleted() {
    let mut env = proven(json!({}));
    env.claim("data").volume = None;
    let volume = env.cluster.volumes.pop().unwrap();
    env.cloud.as_mut().unwrap().volumes.get_mut(&volume.id).unwrap().name = "pvc-uid-data".into();
    while env.run.status.phase < Phase::Freeze {
        env.step();
    }
    assert_eq!(env.run.records[0].id.as_ref(), Some(&volume.id));
    env.cloud.as_mut().unwrap().volumes.clear();
    let began = env.now;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{}", reasons(&env));
    assert!(env.cluster.claims.is_empty());
    assert!(env.now.duration_since(began) < SignedDuration::from_mins(5));
}

#[test]
fn a_claim_that_another_driver_provisions_is_kept() {
    let mut env = proven(json!({}));
    env.unbound_claim("data");
    while env.run.status.phase < Phase::Delete {
        env.step();
    }
    let claim = &mut env.cluster.claims[0];
    (claim.class, claim.provisioner) = (None, Some("nfs.example.com".into()));
    let began = env.now;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Complete, "{}", reasons(&env));
    assert_eq!(env.cluster.claims.len(), 1);
    assert!(env.now.duration_since(began) < SignedDuration::from_mins(5));
    let kept = env.run.records[0].kept.as_ref().unwrap();
    assert!(kept.contains("another driver"), "{kept}");
}

#[test]
fn a_load_balancer_that_could_not_be_searched_is_not_verified() {
    for (cluster, proof) in [("prod", Status::True), ("kubernetes", Status::Unknown), ("", Status::Unknown)] {
        let mut env = proven(json!({"clusterName": cluster}));
        env.claim("data");
        env.service("new").load_balancer = None;
        let cloud = env.cloud.as_mut().unwrap();
        (cloud.load_balancers, cloud.floating_ips) = Default::default();
        env.finish();
        assert_eq!((env.run.status.phase, env.condition("Clean").0), (Phase::Complete, proof), "{cluster:?}");
    }
    // Two of one name: either may have been the Service's.
    let mut env = proven(json!({}));
    env.claim("data");
    for name in ["new", "old"] {
        env.service(name).load_balancer = None;
        *env.balancer(name) = crate::observe::snapshot::LoadBalancer {
            name: names::service_tag("prod", "a", "new"),
            status: "ACTIVE".into(),
            ..Default::default()
        };
    }
    env.cluster.services.retain(|one| one.meta.name == "new");
    env.finish();
    assert_eq!((env.run.status.phase, env.condition("Clean").0), (Phase::Complete, Status::Unknown));
}

#[test]
fn a_retry_of_a_run_that_never_saw_the_cluster_takes_the_inventory() {
    let mut env = proven(json!({"onTimeout": "Block"}));
    env.cluster.uid = Some("one".into());
    env.claim("data");
    env.course.outage = 0..usize::MAX;
    env.finish_blind();
    assert_eq!(env.run.status.phase, Phase::Failed);
    env.course.outage = 0..0;
    env.run.generation = Some(2);
    env.finish();
    assert_eq!(
        (env.run.status.phase, env.condition("Clean").0),
        (Phase::Complete, Status::True),
        "{}",
        reasons(&env)
    );
    assert_eq!(env.run.status.inventory.cluster.as_deref(), Some("one"));
}

#[test]
fn a_backup_counts_as_gone_with_its_object_and_is_not_verified() {
    for stopped in [true, false] {
        let mut env = proven(json!({"timeouts": {"perObject": "10m"}}));
        env.claim("data");
        env.snapshot("daily", "data");
        // Its ID is that of a backup, which is not among Cinder's snapshots.
        env.cloud.as_mut().unwrap().snapshots.clear();
        env.course.csi_stopped = stopped;
        env.finish();
        let status = &env.run.status;
        if stopped {
            assert_eq!(status.phase, Phase::CompletedWithDebris);
            let entry = status.debris.iter().find(|one| one.kind == "Snapshot").unwrap();
            assert!(entry.reason.contains("is it a backup?"), "{entry:?}");
            assert!(
                entry.reason.contains("the VolumeSnapshot is being deleted and still there"),
                "{entry:?}"
            );
        } else {
            assert_eq!((status.phase, env.condition("Clean").0), (Phase::Complete, Status::Unknown));
        }
    }
}

#[test]
fn a_backup_of_a_cluster_that_is_gone_does_not_count_as_gone() {
    let mut env = proven(json!({"leftovers": "Delete", "timeouts": {"perObject": "5m"}}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.snapshot("daily", "data");
    env.cloud.as_mut().unwrap().snapshots.clear();
    while env.run.status.phase < Phase::Wait {
        env.step();
    }
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    let listed = |id: &str| env.run.status.debris.iter().any(|one| one.id.as_deref() == Some(id));
    assert!(listed("snap-daily") && !listed("vol-data"), "{}", reasons(&env));
}
