//! What counts as proof that something is gone, and how long is waited for it.

use std::time::Duration;

use common::api::deorbit::Phase;
use common::conditions::Status;
use common::routes::Route;
use jiff::SignedDuration;
use serde_json::json;

use super::world::*;
use crate::names;
use crate::observe::snapshot::{Cloud, CloudVolume, DoubtfulRoute, Ingress, LoadBalancer, Pod};

fn ago(world: &World, minutes: i64) -> Option<jiff::Timestamp> {
    Some(world.now - SignedDuration::from_mins(minutes))
}

fn reasons(world: &World) -> String {
    world.run.status.debris.iter().map(|one| format!("{} {}\n", one.kind, one.reason)).collect()
}

#[test]
fn a_wrong_cluster_name_makes_no_load_balancer_gone() {
    for dead in [true, false] {
        let mut world = proven(json!({"clusterName": "production", "timeouts": {"perObject": "10m"}}));
        world.service("web");
        world.course.ccm_dead = dead;
        world.finish();
        if dead {
            assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
            assert!(
                reasons(&world).contains("in a cluster prod: is spec.clusterName"),
                "{}",
                reasons(&world)
            );
        } else {
            assert_eq!((world.run.status.phase, world.condition("Clean").0), (Phase::Complete, Status::True));
        }
    }
}

#[test]
fn a_load_balancer_that_tells_nothing_of_its_service_is_left_by_the_services_end_and_no_proof() {
    for dead in [true, false] {
        let mut world = proven(json!({"timeouts": {"perObject": "10m"}}));
        world.claim("data");
        world.service("web");
        let balancer = world.balancer("web");
        (balancer.name, balancer.tags) = ("my-own".to_owned(), Vec::new());
        world.course.ccm_dead = dead;
        world.finish();
        let status = &world.run.status;
        if dead {
            assert_eq!(status.phase, Phase::CompletedWithDebris);
            assert!(reasons(&world).contains("the Service is being deleted and still there"), "{status:?}");
        } else {
            assert_eq!((status.phase, world.condition("Clean").0), (Phase::Complete, Status::Unknown));
        }
    }
}

#[test]
fn what_was_being_deleted_for_long_has_its_time_from_the_run_s_begin() {
    let mut world = proven(json!({}));
    let deleting = ago(&world, 60);
    world.claim("data").meta.deleting = deleting;
    let pod = Pod { meta: meta("a", "pod"), claims: vec!["data".into()], ..Pod::default() };
    world.cluster.pods.push(pod);
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{}", reasons(&world));
}

#[test]
fn what_the_run_deletes_itself_has_time_from_then_on() {
    let mut world = proven(json!({"leftovers": "Delete"}));
    (world.course.csi_dead, world.course.ccm_dead) = (true, true);
    world.claim("data");
    world.service("web");
    world.balancer("web").status = "PENDING_UPDATE".into();
    while world.run.status.phase < Phase::Verify {
        world.step();
    }
    // Octavia takes a while.
    world.now += Duration::from_secs(60);
    world.step();
    assert_eq!(world.run.status.phase, Phase::Verify);
    world.balancer("web").status = "ACTIVE".into();
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{}", reasons(&world));
    assert!(world.cloud.as_ref().unwrap().floating_ips.is_empty(), "{:?}", world.acts);
}

#[test]
fn a_login_for_another_region_proves_nothing_at_the_second_try_either() {
    let mut world = proven(json!({"onTimeout": "Block", "timeouts": {"perObject": "5m"}}));
    world.claim("data");
    let elsewhere = Cloud { project: "another".into(), ..Cloud::default() };
    let hidden = world.cloud.replace(elsewhere).unwrap();
    world.course.csi_dead = true;
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Failed);
    world.now += Duration::from_secs(60);
    world.run.generation = Some(2);
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Failed, "{} stands", hidden.volumes.len());
    assert!(reasons(&world).contains("is the login for its project and region?"), "{}", reasons(&world));
}

#[test]
fn what_was_gone_before_the_run_is_gone_where_openstack_has_shown_something_of_the_cluster() {
    for shown in [true, false] {
        let mut world = proven(json!({"timeouts": {"perObject": "5m"}}));
        let deleting = ago(&world, 10);
        world.claim("data").meta.deleting = deleting;
        world.course.csi_dead = true;
        let pv = world.volume("data");
        (pv.meta.deleting, pv.phase) = (deleting, "Released".into());
        world.cloud.as_mut().unwrap().volumes.clear();
        if shown {
            world.claim("other").meta.keep = true;
        }
        let began = world.now;
        world.finish();
        let took = world.now.duration_since(began);
        if shown {
            assert_eq!(world.run.status.phase, Phase::Complete, "{}", reasons(&world));
            assert!(took < SignedDuration::from_mins(5), "{took}");
        } else {
            // In a project that is not the cluster's it would look the same.
            assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
            assert_eq!(world.run.status.debris[0].id.as_deref(), Some("vol-data"));
            assert!(
                reasons(&world).contains("is the login for its project and region?"),
                "{}",
                reasons(&world)
            );
        }
    }
}

#[test]
fn a_login_for_another_project_proves_nothing_of_what_an_earlier_run_had_deleted() {
    let asked = json!({"onTimeout": "Block", "podEviction": "None", "timeouts": {"perObject": "5m"}});
    let mut world = proven(asked);
    world.claim("data");
    let pod = Pod { meta: meta("a", "pod"), claims: vec!["data".into()], ..Pod::default() };
    world.cluster.pods.push(pod);
    world.cloud = Some(Cloud { project: "another".into(), ..Cloud::default() });
    for uid in ["first", "second"] {
        // A Deorbit that failed is deleted, and made anew.
        (world.run.uid, world.run.held) = (uid.to_owned(), false);
        (world.run.status, world.run.records) = Default::default();
        world.finish();
        assert_eq!(world.run.status.phase, Phase::Failed, "{uid}");
        assert!(world.cluster.claims[0].meta.deleting.is_some());
        assert!(reasons(&world).contains("is the login for its project and region?"), "{}", reasons(&world));
    }
}

#[test]
fn a_sweep_takes_nothing_of_another_project_that_has_a_cluster_of_that_name() {
    for leftovers in ["Report", "Delete"] {
        let mut world =
            proven(json!({"sweep": true, "leftovers": leftovers, "timeouts": {"perObject": "5m"}}));
        world.course.csi_dead = true;
        world.service("theirs");
        world.cluster.services.clear();
        world.claim("data");
        let cloud = world.cloud.as_mut().unwrap();
        cloud.project = "another".into();
        let own = cloud.volumes.remove("vol-data").unwrap();
        cloud.volumes.insert("vol-theirs".into(), CloudVolume { cluster: Some("prod".into()), ..own });
        let mut lost = cloud.floating_ips["fip-theirs"].clone();
        lost.port = None;
        cloud.floating_ips.insert("fip-lost".into(), lost);
        // Both clusters have this Ingress, whose load balancer has nothing but its name.
        let name = names::ingress_load_balancer("prod", "a", "shop");
        let balancer = LoadBalancer { name, status: "ACTIVE".into(), ..LoadBalancer::default() };
        cloud.load_balancers.insert("lb-shop".into(), balancer);
        let class = Some("openstack".to_owned());
        world.cluster.ingresses.push(Ingress { meta: meta("a", "shop"), class, ..Ingress::default() });
        let theirs = ["vol-theirs", "lb-theirs", "fip-theirs", "fip-lost", "lb-shop"];
        world.untouchable = theirs.map(str::to_owned).to_vec();
        world.finish();
        assert_eq!(world.run.status.phase, Phase::CompletedWithDebris, "{leftovers}: {:?}", world.acts);
        assert!(reasons(&world).contains("Volume "), "{}", reasons(&world));
        assert!(
            reasons(&world).contains("Cluster what no object names was not looked for"),
            "{}",
            reasons(&world)
        );
    }
}

#[test]
fn of_a_cluster_that_is_given_up_only_what_is_proven_is_gone() {
    let dies = |world: &mut World| {
        while world.run.status.phase < Phase::Wait {
            world.step();
        }
        world.course.outage = world.walk..usize::MAX;
        world.finish_blind();
        assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
    };
    let lists = |world: &World, kind: &str| world.run.status.debris.iter().any(|one| one.kind == kind);
    let mut world = proven(json!({"freeze": "None"}));
    world.course.csi_dead = true;
    world.claim("data");
    world.cloud = Some(Cloud { project: "another".into(), ..Cloud::default() });
    dies(&mut world);
    assert!(lists(&world, "Volume"), "{}", reasons(&world));
    assert!(reasons(&world).contains("is the login for its project and region?"), "{}", reasons(&world));
    // Nobody knows what the Service's load balancer is called, and no Service goes any more.
    let mut world = proven(json!({"freeze": "None", "clusterName": "kubernetes"}));
    world.course.ccm_dead = true;
    world.claim("data");
    world.service("new").load_balancer = None;
    let cloud = world.cloud.as_mut().unwrap();
    (cloud.load_balancers, cloud.floating_ips) = Default::default();
    dies(&mut world);
    assert!(lists(&world, "LoadBalancer") && !lists(&world, "Volume"), "{}", reasons(&world));
}

#[test]
fn routes_that_are_not_known_are_one_entry_and_hide_no_proof() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let mut world = proven(json!({"resources": routes, "timeouts": {"perObject": "5m"}}));
    world.claim("data");
    world.service("web");
    world.cloud.as_mut().unwrap().routes_unread = Some("there is no router r-1".into());
    world.finish();
    let status = &world.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 1), "{}", reasons(&world));
    let debris = &status.debris[0];
    assert_eq!((debris.kind.as_str(), debris.name.as_str()), ("Router", "r-1"));
    assert!(debris.reason.contains("there is no router r-1"));
    assert!(world.cloud.as_ref().unwrap().volumes.is_empty());
}

#[test]
fn routes_of_a_cluster_that_is_gone_are_removed_where_leftovers_are() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    for (leftovers, refused) in [("Delete", false), ("Delete", true), ("Report", false)] {
        let timeouts = json!({"perObject": "5m"});
        let mut world = proven(
            json!({"freeze": "None", "resources": routes, "leftovers": leftovers, "timeouts": timeouts}),
        );
        world.course.csi_dead = true;
        world.claim("data");
        world.cloud.as_mut().unwrap().routes = vec![Route::new("10.244.1.0/24", "10.0.0.9")];
        while world.run.status.phase < Phase::Wait {
            world.step();
        }
        world.course.outage = world.walk..usize::MAX;
        if refused {
            while world.run.status.phase < Phase::Routes {
                world.step();
            }
            // Somebody puts it back each time.
            let stubborn = world.cloud.as_ref().unwrap().routes.clone();
            while !world.run.status.phase.is_final() {
                world.step();
                world.cloud.as_mut().unwrap().routes.clone_from(&stubborn);
            }
        }
        world.finish_blind();
        let (status, kinds) = (&world.run.status, reasons(&world));
        if leftovers == "Report" {
            assert_eq!(world.did("routes of router r-1"), 0);
            assert!(kinds.contains("Router its routes were not looked at"), "{kinds}");
        } else if refused {
            assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 1), "{kinds}");
            assert!(kinds.contains("Route it is still there"), "{kinds}");
        } else {
            assert_eq!(status.phase, Phase::Complete, "{kinds}");
            assert!(world.cloud.as_ref().unwrap().routes.is_empty());
        }
    }
}

#[test]
fn a_route_that_may_lead_to_somebody_is_named_and_waited_for_by_nobody() {
    let routes = json!({"routes": {"routerID": "r-1", "podCIDRs": ["10.244.0.0/16"]}});
    let mut world = proven(json!({"resources": routes}));
    let route = |third| Route::new(format!("10.244.{third}.0/24"), "10.0.0.9");
    let cloud = world.cloud.as_mut().unwrap();
    cloud.routes = vec![route(1)];
    cloud.doubtful_routes =
        vec![DoubtfulRoute { route: route(2), why: "port p-1 has no port security".into() }];
    let began = world.now;
    world.finish();
    let status = &world.run.status;
    assert_eq!((status.phase, status.debris_count), (Phase::CompletedWithDebris, 1), "{}", reasons(&world));
    let debris = &status.debris[0];
    assert_eq!((debris.kind.as_str(), debris.name.as_str()), ("Route", "10.244.2.0/24 via 10.0.0.9"));
    assert!(debris.reason.contains("port p-1 has no port security"));
    assert!(world.cloud.as_ref().unwrap().routes.is_empty(), "the dead one went");
    assert!(world.now.duration_since(began) < SignedDuration::from_mins(1));
}

#[test]
fn an_object_whose_volume_is_gone_again_still_goes() {
    let mut world = proven(json!({}));
    world.claim("data").volume = None;
    let volume = world.cluster.volumes.pop().unwrap();
    world.cloud.as_mut().unwrap().volumes.get_mut(&volume.id).unwrap().name = "pvc-uid-data".into();
    while world.run.status.phase < Phase::Freeze {
        world.step();
    }
    assert_eq!(world.run.records[0].id.as_ref(), Some(&volume.id));
    world.cloud.as_mut().unwrap().volumes.clear();
    let began = world.now;
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{}", reasons(&world));
    assert!(world.cluster.claims.is_empty());
    assert!(world.now.duration_since(began) < SignedDuration::from_mins(5));
}

#[test]
fn a_claim_that_becomes_another_driver_s_is_left_alone() {
    let mut world = proven(json!({}));
    world.unbound_claim("data");
    while world.run.status.phase < Phase::Delete {
        world.step();
    }
    let claim = &mut world.cluster.claims[0];
    (claim.class, claim.provisioner) = (None, Some("nfs.example.com".into()));
    let began = world.now;
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{}", reasons(&world));
    assert_eq!(world.cluster.claims.len(), 1);
    assert!(world.now.duration_since(began) < SignedDuration::from_mins(5));
    let kept = world.run.records[0].kept.as_ref().unwrap();
    assert!(kept.contains("another driver"), "{kept}");
}

#[test]
fn a_load_balancer_that_could_not_be_looked_up_is_no_proof() {
    for (cluster, proof) in [("prod", Status::True), ("kubernetes", Status::Unknown), ("", Status::Unknown)] {
        let mut world = proven(json!({"clusterName": cluster}));
        world.claim("data");
        world.service("new").load_balancer = None;
        let cloud = world.cloud.as_mut().unwrap();
        (cloud.load_balancers, cloud.floating_ips) = Default::default();
        world.finish();
        assert_eq!(
            (world.run.status.phase, world.condition("Clean").0),
            (Phase::Complete, proof),
            "{cluster:?}"
        );
    }
    // Two of one name: nobody knows which was the Service's.
    let mut world = proven(json!({}));
    world.claim("data");
    for name in ["new", "old"] {
        world.service(name).load_balancer = None;
        *world.balancer(name) = crate::observe::snapshot::LoadBalancer {
            name: names::service_tag("prod", "a", "new"),
            status: "ACTIVE".into(),
            ..Default::default()
        };
    }
    world.cluster.services.retain(|one| one.meta.name == "new");
    world.finish();
    assert_eq!((world.run.status.phase, world.condition("Clean").0), (Phase::Complete, Status::Unknown));
}

#[test]
fn a_retry_of_a_run_that_never_saw_the_cluster_takes_the_inventory() {
    let mut world = proven(json!({"onTimeout": "Block"}));
    world.cluster.uid = Some("one".into());
    world.claim("data");
    world.course.outage = 0..usize::MAX;
    world.finish_blind();
    assert_eq!(world.run.status.phase, Phase::Failed);
    world.course.outage = 0..0;
    world.run.generation = Some(2);
    world.finish();
    assert_eq!(
        (world.run.status.phase, world.condition("Clean").0),
        (Phase::Complete, Status::True),
        "{}",
        reasons(&world)
    );
    assert_eq!(world.run.status.inventory.cluster.as_deref(), Some("one"));
}

#[test]
fn a_backup_is_gone_by_the_cluster_s_word_only_and_that_is_no_proof() {
    for dead in [true, false] {
        let mut world = proven(json!({"timeouts": {"perObject": "10m"}}));
        world.claim("data");
        world.snapshot("daily", "data");
        // Its ID is a backup's, which Cinder does not have among its snapshots.
        world.cloud.as_mut().unwrap().snapshots.clear();
        world.course.csi_dead = dead;
        world.finish();
        let status = &world.run.status;
        if dead {
            assert_eq!(status.phase, Phase::CompletedWithDebris);
            let entry = status.debris.iter().find(|one| one.kind == "Snapshot").unwrap();
            assert!(entry.reason.contains("is it a backup?"), "{entry:?}");
            assert!(
                entry.reason.contains("the VolumeSnapshot is being deleted and still there"),
                "{entry:?}"
            );
        } else {
            assert_eq!((status.phase, world.condition("Clean").0), (Phase::Complete, Status::Unknown));
        }
    }
}

#[test]
fn a_backup_of_a_cluster_that_is_gone_is_not_taken_for_gone() {
    let mut world = proven(json!({"leftovers": "Delete", "timeouts": {"perObject": "5m"}}));
    world.course.csi_dead = true;
    world.claim("data");
    world.snapshot("daily", "data");
    world.cloud.as_mut().unwrap().snapshots.clear();
    while world.run.status.phase < Phase::Wait {
        world.step();
    }
    world.course.outage = world.walk..usize::MAX;
    world.finish_blind();
    let listed = |id: &str| world.run.status.debris.iter().any(|one| one.id.as_deref() == Some(id));
    assert!(listed("snap-daily") && !listed("vol-data"), "{}", reasons(&world));
}
