//! The proofs that something is gone, and the time that a run waits for them.

use std::time::Duration;

use common::api::deorbit::{OnTimeout, Phase};
use common::conditions::Status;
use common::routes::Route;
use jiff::SignedDuration;
use serde_json::json;

use super::env::*;
use crate::names;
use crate::observe::snapshot::{BlockStorage, DoubtfulRoute, Ingress, LoadBalancer, Pod, Routes};

fn ago(env: &TestEnv, minutes: i64) -> Option<jiff::Timestamp> {
    Some(env.now - SignedDuration::from_mins(minutes))
}

fn reasons(env: &TestEnv) -> String {
    env.run.status.debris.iter().map(|one| format!("{} {}\n", one.kind, one.reason)).collect()
}

#[test]
fn with_a_wrong_cluster_name_a_load_balancer_does_not_count_as_gone() {
    for stopped in [true, false] {
        let mut env =
            proven(json!({"clusterName": "production", "timeouts": {"perObject": "10m", "total": "1h"}}));
        env.service("web");
        env.course.ccm_stopped = stopped;
        env.finish();
        if stopped {
            assert_eq!(env.condition("Complete").1, "CompletedWithDebris");
            assert!(reasons(&env).contains("in a cluster prod: is spec.clusterName"), "{}", reasons(&env));
        } else {
            assert_eq!((env.run.status.phase, env.condition("Verified").0), (Phase::Succeeded, Status::True));
        }
    }
}

#[test]
fn the_deletion_of_a_service_does_not_verify_its_part_of_a_load_balancer_without_its_name() {
    for stopped in [true, false] {
        let mut env = proven(json!({"timeouts": {"perObject": "10m", "total": "1h"}}));
        env.claim("data");
        env.service("web");
        let balancer = env.balancer("web");
        (balancer.name, balancer.tags) = ("my-own".to_owned(), Vec::new());
        env.course.ccm_stopped = stopped;
        env.finish();
        let status = &env.run.status;
        if stopped {
            assert!(status.debris_count > 0);
            assert!(reasons(&env).contains("the Service is being deleted and still there"), "{status:?}");
        } else {
            assert_eq!((status.phase, env.condition("Verified").0), (Phase::Succeeded, Status::Unknown));
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
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{}", reasons(&env));
}

#[test]
fn a_load_balancer_that_is_busy_is_deleted_when_it_is_ready_again() {
    let mut env = proven(json!({"orphanPolicy": "Delete"}));
    (env.course.csi_stopped, env.course.ccm_stopped) = (true, true);
    env.claim("data");
    env.service("web");
    env.balancer("web").provisioning_status = "PENDING_UPDATE".into();
    env.until(Phase::Verifying);
    // Octavia needs time.
    env.now += Duration::from_secs(3600);
    env.step();
    assert_eq!(env.run.status.phase, Phase::Verifying);
    env.balancer("web").provisioning_status = "ACTIVE".into();
    env.finish();
    assert_eq!(env.run.status.debris_count, 0, "{}", reasons(&env));
    assert!(env.cloud.as_ref().unwrap().floating_ips.is_empty(), "{:?}", env.acts);
}

#[test]
fn what_was_gone_before_the_run_counts_as_gone_if_openstack_shows_the_cluster() {
    for shown in [true, false] {
        let mut env = proven(json!({"timeouts": {"perObject": "5m", "total": "20m"}}));
        let deleting = ago(&env, 10);
        env.claim("data").meta.deleting = deleting;
        env.course.csi_stopped = true;
        let pv = env.volume("data");
        (pv.meta.deleting, pv.phase) = (deleting, "Released".into());
        env.cloud.as_mut().unwrap().volumes.clear();
        if shown {
            env.claim("other").meta.keep = true;
            let began = env.now;
            env.finish();
            assert_eq!(env.run.status.debris_count, 0, "{}", reasons(&env));
            assert!(env.now.duration_since(began) < SignedDuration::from_mins(5));
        } else {
            // Another project would look the same.
            for _ in 0..500 {
                env.step();
            }
            assert_eq!(env.condition("CloudReachable").1, "LoginNotProven");
        }
    }
}

/// S3
#[test]
fn nothing_is_searched_by_name_in_another_project_with_a_cluster_of_that_name() {
    for (leftovers, named) in [("Report", true), ("Delete", true), ("Delete", false)] {
        let mut env = proven(json!({"discoverByClusterName": true, "orphanPolicy": leftovers}));
        env.course.csi_stopped = true;
        env.service("theirs");
        env.cluster.services.clear();
        env.claim("data");
        let cloud = env.cloud.as_mut().unwrap();
        cloud.project = "another".into();
        let own = cloud.volumes.remove("vol-data").unwrap();
        cloud.volumes.insert("vol-theirs".into(), BlockStorage { cluster: Some("prod".into()), ..own });
        let mut lost = cloud.floating_ips["fip-theirs"].clone();
        lost.port_id = None;
        cloud.floating_ips.insert("fip-lost".into(), lost);
        // Both clusters have this Ingress, whose load balancer can only be found by name.
        let name = names::ingress_load_balancer("prod", "a", "shop");
        let balancer = LoadBalancer { name, provisioning_status: "ACTIVE".into(), ..LoadBalancer::default() };
        cloud.load_balancers.insert("lb-shop".into(), balancer);
        let class = Some("openstack".to_owned());
        env.cluster.ingresses.push(Ingress { meta: meta("a", "shop"), class, ..Ingress::default() });
        let theirs = ["vol-theirs", "lb-theirs", "fip-theirs", "fip-lost", "lb-shop"];
        env.untouchable = theirs.map(str::to_owned).to_vec();
        if named {
            for _ in 0..500 {
                env.step();
            }
            assert_eq!(env.condition("CloudReachable").1, "LoginNotProven", "{:?}", env.acts);
        } else {
            // A cluster that names nothing: there is nothing to prove, and nothing is searched.
            (env.cluster.claims, env.cluster.volumes) = Default::default();
            env.finish();
            assert!(reasons(&env).contains("Cluster nothing was searched by its name"), "{}", reasons(&env));
        }
        assert!(env.run.records.iter().all(|one| one.object.is_some()), "{:?}", env.run.records);
    }
}

#[test]
fn of_a_cluster_that_is_given_up_only_what_is_verified_counts_as_gone() {
    // The name of the Service's load balancer is unknown, and no Service is deleted any more.
    let mut env = proven(json!({"creationBlock": "None", "clusterName": "kubernetes"}));
    env.course.ccm_stopped = true;
    env.claim("data");
    env.service("new").load_balancer = None;
    let cloud = env.cloud.as_mut().unwrap();
    (cloud.load_balancers, cloud.floating_ips) = Default::default();
    env.until(Phase::Deleting);
    for _ in 0..3 {
        env.step();
    }
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    let kinds: Vec<&str> = env.run.status.debris.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!(kinds, ["LoadBalancer"], "{}", reasons(&env));
}

fn with_routes(change: serde_json::Value) -> TestEnv {
    let mut asked = json!({"resources": {"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}},
        "timeouts": {"perObject": "5m", "total": "1h"}});
    for (key, value) in change.as_object().unwrap() {
        asked[key] = value.clone();
    }
    let mut env = proven(asked);
    env.routes();
    env
}

fn route(third: u8, last: u8) -> Route {
    Route::new(format!("10.244.{third}.0/24"), format!("10.0.0.{last}"))
}

#[test]
fn unknown_routes_are_one_entry_of_debris_and_do_not_change_the_rest() {
    let mut env = with_routes(json!({}));
    env.claim("data");
    env.service("web");
    env.cloud.as_mut().unwrap().routes = Some(Err("there is no router r-1".into()));
    env.finish();
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 1), "{}", reasons(&env));
    let debris = &status.debris[0];
    assert_eq!((debris.kind.as_str(), debris.name.as_str()), ("Router", "r-1"));
    assert!(debris.reason.contains("there is no router r-1"));
    assert!(env.cloud.as_ref().unwrap().volumes.is_empty());
}

/// S10
#[test]
fn routes_to_recorded_nodes_are_removed_whether_the_nodes_live_or_are_gone() {
    for (target, policy) in
        [("lives", "Report"), ("nodes are gone", "Report"), ("is gone", "Report"), ("is gone", "Delete")]
    {
        let mut env = with_routes(json!({"creationBlock": "None", "orphanPolicy": policy}));
        env.node("n1", "10.0.0.5", true);
        env.node("n2", "10.0.0.6", true);
        // Of no Node: it is not stale, and it stays.
        env.routes().all = vec![route(1, 5), route(2, 6), route(3, 9)];
        env.course.csi_stopped = target == "is gone";
        env.claim("data");
        env.until(Phase::Deleting);
        assert_eq!(env.run.book.routes.len(), 2);
        match target {
            "nodes are gone" => {
                env.cluster.nodes = Some(Vec::new());
                env.routes().stale = vec![route(1, 5), route(2, 6)];
            }
            "is gone" => env.course.outage = env.reconcile + 2..usize::MAX,
            _ => {}
        }
        env.finish_blind();
        let all = env.routes().all.clone();
        assert_eq!(all, [route(3, 9)], "{target} {policy}: {:?}", env.acts);
        let routes = env.run.status.debris.iter().filter(|one| one.kind.starts_with("Route")).count();
        assert_eq!(routes, 0, "{target} {policy}: {}", reasons(&env));
    }
}

/// S10
#[test]
fn routes_to_nodes_that_the_inventory_does_not_have_are_removed_too() {
    for inventory in [Err("503".to_owned()), Ok(Routes { all: vec![route(1, 5)], ..Routes::default() })] {
        let mut env = with_routes(json!({}));
        env.node("n1", "10.0.0.5", true);
        env.cloud.as_mut().unwrap().routes = Some(inventory);
        env.claim("data");
        env.until(Phase::Deleting);
        // The router can be read again, and the autoscaler has added a Node.
        env.node("n2", "10.0.0.6", true);
        let routes = Routes { all: vec![route(1, 5), route(2, 6), route(3, 9)], ..Routes::default() };
        env.cloud.as_mut().unwrap().routes = Some(Ok(routes));
        env.finish();
        assert_eq!(env.routes().all.clone(), [route(3, 9)], "{:?}", env.acts);
        assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0));
    }
}

/// S2: the router may be that of another cluster, whose Nodes and pods have the same addresses.
#[test]
fn routes_to_nodes_are_listed_and_not_removed_with_a_login_that_nothing_proves() {
    let mut env = with_routes(json!({}));
    env.node("n1", "10.0.0.5", false);
    // The Node is no server of OpenStack, so it neither proves the login nor shows that it is a wrong one.
    env.cluster.nodes.as_mut().unwrap()[0].server = None;
    env.routes().all = vec![route(1, 5)];
    env.finish();
    assert_eq!(env.routes().all.clone(), [route(1, 5)], "{:?}", env.acts);
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 1), "{}", reasons(&env));
    assert!(reasons(&env).starts_with("Route OpenStack has shown nothing"), "{}", reasons(&env));
}

#[test]
fn a_route_that_a_live_cloud_controller_manager_puts_back_is_reported_as_recreated() {
    let mut env = with_routes(json!({}));
    env.node("n1", "10.0.0.5", true);
    env.routes().all = vec![route(1, 5)];
    env.course.recreates_routes = true;
    env.claim("data");
    let mut codes = std::collections::BTreeSet::new();
    while !env.run.status.phase.is_final() {
        use common::plan::Reason as _;
        codes.extend(env.step().plan.problems.iter().map(|one| one.because.code()));
    }
    assert!(codes.contains("RoutesRecreated"), "{codes:?}");
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 1), "{}", reasons(&env));
    assert!(reasons(&env).contains("Route it was removed and recreated"), "{}", reasons(&env));
}

#[test]
fn stale_routes_are_removed_and_one_that_stays_is_listed_after_the_limit() {
    for refused in [false, true] {
        let mut env = with_routes(json!({}));
        env.claim("data");
        (env.routes().all, env.routes().stale) = (vec![route(1, 9)], vec![route(1, 9)]);
        env.until(Phase::Finishing);
        while !env.run.status.phase.is_final() {
            env.step();
            if refused {
                (env.routes().all, env.routes().stale) = (vec![route(1, 9)], vec![route(1, 9)]);
            }
        }
        assert_eq!(env.run.status.debris_count, i64::from(refused), "{}", reasons(&env));
        assert!(!refused || reasons(&env).contains("Route it is still there"), "{}", reasons(&env));
    }
}

#[test]
fn a_route_whose_next_hop_may_exist_is_listed_and_not_waited_for() {
    let mut env = with_routes(json!({}));
    let routes = env.routes();
    (routes.all, routes.stale) = (vec![route(1, 9), route(2, 9)], vec![route(1, 9)]);
    routes.doubtful = vec![DoubtfulRoute { route: route(2, 9), why: "port p-1 has no port security".into() }];
    let began = env.now;
    env.finish();
    let status = &env.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, 1), "{}", reasons(&env));
    let debris = &status.debris[0];
    assert_eq!((debris.kind.as_str(), debris.name.as_str()), ("Route", "10.244.2.0/24 via 10.0.0.9"));
    assert!(debris.reason.contains("port p-1 has no port security"));
    assert_eq!(env.routes().all, [route(2, 9)], "the stale one was removed");
    assert!(env.now.duration_since(began) < SignedDuration::from_mins(1));
}

#[test]
fn an_object_whose_volume_is_gone_is_still_deleted() {
    let mut env = proven(json!({}));
    env.claim("data").volume = None;
    let volume = env.cluster.volumes.pop().unwrap();
    env.cloud.as_mut().unwrap().volumes.get_mut(&volume.id).unwrap().name = "pvc-uid-data".into();
    env.until(Phase::Deleting);
    assert_eq!(env.run.records[0].id.as_ref(), Some(&volume.id));
    env.cloud.as_mut().unwrap().volumes.clear();
    let began = env.now;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{}", reasons(&env));
    assert!(env.cluster.claims.is_empty());
    assert!(env.now.duration_since(began) < SignedDuration::from_mins(5));
}

#[test]
fn a_claim_that_another_driver_provisions_is_kept() {
    let mut env = proven(json!({}));
    env.unbound_claim("data");
    env.until(Phase::Deleting);
    let claim = &mut env.cluster.claims[0];
    (claim.class, claim.provisioner_in_scope) = (None, Some(false));
    let began = env.now;
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{}", reasons(&env));
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
        env.node("n1", "10.0.0.5", true);
        env.service("new").load_balancer = None;
        let cloud = env.cloud.as_mut().unwrap();
        (cloud.load_balancers, cloud.floating_ips) = Default::default();
        env.finish();
        assert_eq!(
            (env.run.status.phase, env.condition("Verified").0),
            (Phase::Succeeded, proof),
            "{cluster:?}"
        );
    }
    // Two of one name: either may have been the Service's.
    let mut env = proven(json!({}));
    env.claim("data");
    for name in ["new", "old"] {
        env.service(name).load_balancer = None;
        *env.balancer(name) = crate::observe::snapshot::LoadBalancer {
            name: names::service_tag("prod", "a", "new"),
            provisioning_status: "ACTIVE".into(),
            ..Default::default()
        };
    }
    env.cluster.services.retain(|one| one.meta.name == "new");
    env.finish();
    assert_eq!((env.run.status.phase, env.condition("Verified").0), (Phase::Succeeded, Status::Unknown));
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
    env.run.spec.on_timeout = OnTimeout::Release;
    env.run.generation = Some(2);
    env.finish();
    assert_eq!(
        (env.run.status.phase, env.condition("Verified").0),
        (Phase::Succeeded, Status::True),
        "{}",
        reasons(&env)
    );
    assert_eq!(env.run.book.cluster.as_deref(), Some("one"));
}

#[test]
fn an_id_that_openstack_cannot_have_is_not_verified() {
    let mut env = proven(json!({}));
    env.claim("data");
    env.node("n1", "10.0.0.5", true);
    env.service("web").load_balancer = Some("../lb-web".into());
    let cloud = env.cloud.as_mut().unwrap();
    (cloud.load_balancers, cloud.floating_ips) = Default::default();
    env.finish();
    assert_eq!((env.run.status.phase, env.condition("Verified").0), (Phase::Succeeded, Status::Unknown));
}

#[test]
fn a_backup_counts_as_gone_with_its_object_and_is_not_verified() {
    for stopped in [true, false] {
        let mut env = proven(json!({"timeouts": {"perObject": "10m", "total": "1h"}}));
        env.claim("data");
        env.snapshot("daily", "data");
        // Its ID is that of a backup, which is not among Cinder's snapshots.
        env.cloud.as_mut().unwrap().snapshots.clear();
        env.course.csi_stopped = stopped;
        env.finish();
        let status = &env.run.status;
        if stopped {
            assert_eq!(env.condition("Complete").1, "CompletedWithDebris");
            let entry = status.debris.iter().find(|one| one.kind == "Snapshot").unwrap();
            assert!(entry.reason.contains("is it a backup?"), "{entry:?}");
            assert!(
                entry.reason.contains("the VolumeSnapshot is being deleted and still there"),
                "{entry:?}"
            );
        } else {
            assert_eq!((status.phase, env.condition("Verified").0), (Phase::Succeeded, Status::Unknown));
        }
    }
}

#[test]
fn a_backup_of_a_cluster_that_is_gone_does_not_count_as_gone() {
    let mut env = proven(json!({"orphanPolicy": "Delete", "timeouts": {"perObject": "5m", "total": "20m"}}));
    env.course.csi_stopped = true;
    env.claim("data");
    env.snapshot("daily", "data");
    env.cloud.as_mut().unwrap().snapshots.clear();
    env.until(Phase::Deleting);
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
    let listed = |id: &str| env.run.status.debris.iter().any(|one| one.id.as_deref() == Some(id));
    assert!(listed("snap-daily") && !listed("vol-data"), "{}", reasons(&env));
}
