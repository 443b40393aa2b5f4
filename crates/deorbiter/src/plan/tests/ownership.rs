//! What could be mistaken for ours: names that anyone may write, objects that share what they hold, and what another cluster has.

use std::time::Duration;

use common::api::deorbit::{Kind, Phase};
use serde_json::json;

use super::world::*;
use crate::names;
use crate::observe::snapshot::{Claim, Content, FloatingIp, Pod};
use crate::plan::found;

/// With what is left deleted in OpenStack.
fn cleaned(mut change: serde_json::Value) -> World {
    let leftovers = change.as_object_mut().unwrap().entry("leftovers");
    leftovers.or_insert(json!("Delete"));
    proven(change)
}

/// Everything has been asked for, and then the cluster answers no more: the moment when leftovers are deleted by their IDs.
fn then_the_cluster_dies(world: &mut World) {
    for _ in 0..8 {
        world.step();
    }
    world.course.outage = world.walk..usize::MAX;
    world.finish_blind();
}

#[test]
fn a_volume_that_two_objects_name_stays_if_one_of_them_keeps_it() {
    for kept in [0, 1] {
        let mut world = cleaned(json!({}));
        world.course.csi_dead = true;
        world.claim("a");
        world.claim("b");
        world.volume("b").id = "vol-a".into();
        world.cluster.claims[kept].meta.keep = true;
        world.untouchable = ["vol-a", "uid-a", "uid-b"].map(str::to_owned).to_vec();
        then_the_cluster_dies(&mut world);
        assert_eq!(world.deletes(), 0, "{:?}", world.acts);
        assert!(world.cloud.unwrap().volumes.contains_key("vol-a"));
    }
}

#[test]
fn a_claim_that_names_another_claim_s_volume_holds_nothing() {
    let mut world = cleaned(json!({}));
    world.claim("real").meta.keep = true;
    world.cluster.claims.push(Claim {
        meta: meta("b", "thief"),
        volume: Some("pv-real".into()),
        class: Some("cinder".into()),
        provisioner: None,
    });
    world.untouchable = ["vol-real", "uid-real", "uid-thief"].map(str::to_owned).to_vec();
    then_the_cluster_dies(&mut world);
    assert_eq!(world.deletes(), 0, "{:?}", world.acts);
}

#[test]
fn what_a_kept_pod_holds_is_kept() {
    let mut world = cleaned(json!({}));
    world.claim("data");
    let mut pod = meta("a", "db-0");
    pod.keep = true;
    world.cluster.pods.push(Pod { meta: pod, claims: vec!["data".into()], unscheduled: false });
    world.untouchable = ["vol-data", "uid-data", "uid-db-0"].map(str::to_owned).to_vec();
    world.finish();
    assert_eq!((world.run.status.phase, world.deletes()), (Phase::Complete, 0));
    assert!(world.run.records[0].kept.as_deref().unwrap().contains("a pod that holds it"));
}

#[test]
fn a_volume_with_a_retained_snapshot_that_no_object_names_any_more_is_kept() {
    for told in [true, false] {
        let mut world = cleaned(json!({}));
        world.claim("data");
        world.snapshot("daily", "data");
        world.cluster.snapshots.clear();
        world.cluster.contents[0] = Content {
            retain: true,
            // A content that was made by hand does not say it: Cinder does.
            volume: told.then(|| "vol-data".into()),
            ..world.cluster.contents[0].clone()
        };
        world.untouchable = ["vol-data", "uid-data", "snap-daily"].map(str::to_owned).to_vec();
        world.finish();
        assert_eq!((world.run.status.phase, world.deletes()), (Phase::Complete, 0), "{:?}", world.acts);
    }
}

#[test]
fn what_the_api_server_refuses_to_delete_is_not_deleted_behind_its_back() {
    let mut world = cleaned(json!({"timeouts": {"perObject": "1m"}}));
    world.claim("data");
    world.course.refuses = Some("uid-data".into());
    world.stale_leases();
    world.finish();
    assert_eq!(world.run.status.phase, Phase::CompletedWithDebris);
    assert_eq!(world.did("in OpenStack"), 0, "{:?}", world.acts);
    assert!(world.run.status.debris[0].reason.contains("forbidden"), "{:?}", world.run.status.debris);
}

#[test]
fn a_released_volume_whose_driver_is_dead_goes_by_its_id_or_is_debris() {
    for (leftovers, phase) in [("Delete", Phase::Complete), ("Report", Phase::CompletedWithDebris)] {
        let mut world = cleaned(json!({"leftovers": leftovers, "timeouts": {"perObject": "1m"}}));
        world.claim("data");
        world.cluster.claims.clear();
        world.volume("data").phase = "Released".into();
        world.course.csi_dead = true;
        world.finish();
        let status = &world.run.status;
        assert_eq!(status.phase, phase, "{:?}", status.debris);
        let took = status.completed_at.unwrap().duration_since(status.started_at.unwrap());
        assert!(took.as_secs() < 600, "it waited for nobody: {took}");
    }
}

#[test]
fn a_volume_that_is_reserved_for_a_claim_was_never_bound() {
    for (retained, goes) in [("Keep", false), ("Delete", true)] {
        for reserved in [None, Some(String::new())] {
            let mut world = cleaned(json!({"leftovers": "Report", "retained": retained}));
            world.claim("data");
            world.cluster.claims.clear();
            let volume = world.volume("data");
            (volume.claim, volume.phase) = (reserved.clone(), "Available".into());
            for _ in 0..8 {
                world.step();
            }
            assert_eq!(world.did("delete PersistentVolume pv-data"), usize::from(goes), "{reserved:?}");
            let kept = world.run.records[0].kept.as_deref();
            let why = (!goes).then_some("no claim was ever bound to it");
            assert_eq!(kept, why, "{reserved:?}");
            if !goes {
                world.finish();
                assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
            }
        }
    }
}

#[test]
fn a_persistent_volume_that_is_stuck_holds_nothing_up_when_cinder_has_no_such_volume() {
    let mut world = cleaned(json!({"leftovers": "Report"}));
    world.claim("other");
    world.claim("data");
    world.cloud.as_mut().unwrap().volumes.remove("vol-data");
    world.cluster.claims.pop();
    // Nobody takes this one away.
    world.volume("data").phase = "Failed".into();
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
}

#[test]
fn clusters_without_a_name_of_their_own_are_told_apart_by_the_address_of_the_service() {
    for cluster in ["", "kubernetes"] {
        for attached in [false, true] {
            let mut world = cleaned(json!({"clusterName": cluster}));
            world.course.ccm_dead = true;
            world.stale_leases();
            world.service("web");
            let name = "kube_service_kubernetes_a_web".to_owned();
            let balancer = world.balancer("web");
            (balancer.name, balancer.tags) = (name.clone(), vec![name]);
            if attached {
                world.cluster.services[0].addresses = vec!["203.0.113.1".into()];
            }
            world.finish();
            let deleted = world.did("delete the load balancer");
            assert_eq!(deleted, usize::from(attached), "{cluster:?} {:?}", world.acts);
        }
    }
}

#[test]
fn a_load_balancer_that_a_kept_service_names_too_stays() {
    let mut world = cleaned(json!({}));
    world.course.ccm_dead = true;
    world.stale_leases();
    world.service("web");
    world.service("kept");
    world.cluster.services[1].load_balancer = Some("lb-web".into());
    world.cluster.services[1].meta.keep = true;
    // Octavia before 2.5 has no tags.
    world.balancer("web").tags.clear();
    world.finish();
    assert_eq!(world.did("in OpenStack"), 0, "{:?}", world.acts);
    assert!(world.cloud.unwrap().load_balancers.contains_key("lb-web"));
}

#[test]
fn a_service_that_names_no_load_balancer_is_looked_for_by_its_name() {
    let mut world = cleaned(json!({}));
    world.course.ccm_dead = true;
    world.stale_leases();
    world.service("web").load_balancer = None;
    world.finish();
    assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
    let recorded = world.run.records.iter().find(|one| one.kind == Kind::LoadBalancer).unwrap();
    assert_eq!(recorded.id.as_deref(), Some("lb-web"));
    assert_eq!(world.did("delete the load balancer lb-web"), 1, "{:?}", world.acts);
}

#[test]
fn a_service_whose_load_balancer_is_never_found_gets_the_grace() {
    let mut world = cleaned(json!({}));
    world.service("web").load_balancer = None;
    world.cloud.as_mut().unwrap().load_balancers.clear();
    world.cloud.as_mut().unwrap().floating_ips.clear();
    world.finish();
    let status = &world.run.status;
    assert_eq!(status.phase, Phase::Complete);
    assert!(status.completed_at.unwrap().duration_since(status.started_at.unwrap()).as_secs() >= 120);
}

#[test]
fn a_floating_ip_that_leads_elsewhere_by_now_is_in_use() {
    let mut world = cleaned(json!({"timeouts": {"perObject": "1m"}}));
    world.course.ccm_dead = true;
    world.stale_leases();
    world.service("web");
    while world.cloud.as_ref().unwrap().load_balancers.contains_key("lb-web") {
        world.step();
    }
    let ip: &mut FloatingIp = world.cloud.as_mut().unwrap().floating_ips.get_mut("fip-web").unwrap();
    ip.port = Some("port-of-somebody".into());
    world.untouchable = vec!["fip-web".into()];
    world.finish();
    assert!(world.cloud.unwrap().floating_ips.contains_key("fip-web"));
    assert_eq!(world.run.status.debris[0].id.as_deref(), Some("fip-web"));
}

/// Two Services of one load balancer, whose cloud controller manager is dead, and the floating IP of both.
fn with_two_services_on_one_load_balancer() -> World {
    let mut world = cleaned(json!({"timeouts": {"perObject": "10m"}}));
    world.course.ccm_dead = true;
    world.stale_leases();
    world.service("web");
    world.service("api").load_balancer = Some("lb-web".into());
    let cloud = world.cloud.as_mut().unwrap();
    cloud.load_balancers.remove("lb-api");
    cloud.floating_ips.remove("fip-api");
    world.balancer("web").tags.push(names::service_tag("prod", "a", "api"));
    world
}

#[test]
fn a_floating_ip_that_one_of_two_services_keeps_stays_also_when_that_one_is_gone() {
    for (keeper, name) in ["web", "api"].into_iter().enumerate() {
        let mut world = with_two_services_on_one_load_balancer();
        world.cluster.services[keeper].keep_floating_ip = true;
        world.untouchable = vec!["fip-web".into()];
        while world.run.status.phase < Phase::Wait {
            world.step();
        }
        // The cloud controller manager let it go with its last breath.
        world.cluster.services.remove(keeper);
        let tag = names::service_tag("prod", "a", name);
        world.balancer("web").tags.retain(|one| *one != tag);
        world.finish();
        assert_eq!(world.run.status.phase, Phase::Complete, "{name}: {:?}", world.run.status.debris);
        let cloud = world.cloud.as_ref().unwrap();
        assert!(cloud.load_balancers.is_empty() && cloud.floating_ips.contains_key("fip-web"), "{name}");
        let record = world.run.records.iter().find(|one| one.id.as_deref() == Some("fip-web")).unwrap();
        let kept = record.kept.as_deref().unwrap();
        assert!(kept.contains(&format!("a/{name} carries")), "{kept}");
        assert_eq!(record.kept_by, Some(format!("a/{name}")));
    }
}

#[test]
fn a_service_takes_back_its_word_for_a_floating_ip_and_no_other_does() {
    for itself in [true, false] {
        let mut world = with_two_services_on_one_load_balancer();
        world.cluster.services[0].keep_floating_ip = true;
        while world.run.status.phase < Phase::Freeze {
            world.step();
        }
        if itself {
            world.cluster.services[0].keep_floating_ip = false;
        } else {
            world.cluster.services.remove(0);
        }
        while world.run.status.phase < Phase::Delete {
            world.step();
        }
        let record = world.run.records.iter().find(|one| one.id.as_deref() == Some("fip-web")).unwrap();
        let kept = record.kept.as_deref().is_some_and(|why| why.contains("a/web carries"));
        let kept_by = record.kept_by.as_deref() == Some("a/web");
        assert_eq!((kept, kept_by), (!itself, !itself), "{record:?}");
    }
}

#[test]
fn a_sweep_leaves_the_load_balancer_of_a_kept_service_alone_also_without_its_id() {
    let mut world = cleaned(json!({"sweep": true}));
    world.service("web").meta.keep = true;
    world.cluster.services[0].load_balancer = None;
    // Two of the name: nobody knows which is the Service's.
    let twin = world.balancer("web").clone();
    world.cloud.as_mut().unwrap().load_balancers.insert("lb-twin".into(), twin);
    world.untouchable = vec!["lb-web".into(), "lb-twin".into(), "uid-web".into()];
    world.finish();
    assert_eq!((world.run.status.phase, world.deletes()), (Phase::Complete, 0), "{:?}", world.acts);
}

#[test]
fn a_volume_that_says_to_be_of_another_cluster_is_left_to_that() {
    let mut world = cleaned(json!({"timeouts": {"perObject": "1m"}}));
    world.course.csi_dead = true;
    world.stale_leases();
    for (name, cluster) in [("ours", "prod"), ("unnamed", "kubernetes"), ("theirs", "stage")] {
        world.claim(name);
        world.cinder(name).cluster = Some(cluster.into());
    }
    world.finish();
    let left: Vec<&String> = world.cloud.as_ref().unwrap().volumes.keys().collect();
    assert_eq!(left, ["vol-theirs"]);
    assert!(world.run.status.debris[0].reason.contains("is stage: it is left to that cluster"));
}

#[test]
fn handles_that_can_be_no_id_are_not_asked_about() {
    let mut world = cleaned(json!({}));
    world.claim("data");
    world.claim("odd");
    world.volume("odd").id = "../../servers/4711".into();
    world.service("web").load_balancer = Some("a/b?c".into());
    let ids = found::ids(&[], Some(&world.cluster));
    assert_eq!(ids[&Kind::Volume].iter().collect::<Vec<_>>(), ["vol-data"]);
    assert!(ids[&Kind::LoadBalancer].is_empty());
}

#[test]
fn pods_that_are_made_anew_are_not_deleted_again_and_again() {
    let mut world = cleaned(json!({"timeouts": {"perObject": "5m"}}));
    world.course.csi_dead = true;
    world.claim("data");
    for _ in 0..20 {
        world.cluster.pods.clear();
        let pod = Pod { meta: meta("a", "db-0"), claims: vec!["data".into()], unscheduled: true };
        world.cluster.pods.push(pod);
        world.step();
        world.now += Duration::from_secs(1);
    }
    assert!(world.did("delete Pod") <= 1, "{:?}", world.acts);
}

#[test]
fn a_snapshot_that_was_brought_in_and_never_bound_is_not_deleted_behind_its_content() {
    for (retained, unbound) in [("Keep", None), ("Keep", Some(String::new())), ("Delete", None)] {
        let mut world = cleaned(json!({"leftovers": "Delete", "retained": retained}));
        world.claim("data");
        world.snapshot("imported", "data");
        world.cluster.snapshots.clear();
        world.cluster.contents[0].snapshot = unbound.clone();
        if retained == "Keep" {
            world.untouchable = ["vol-data", "uid-data", "snap-imported"].map(str::to_owned).to_vec();
        }
        world.finish();
        assert_eq!(world.run.status.phase, Phase::Complete, "{:?}", world.run.status.debris);
        let cloud = world.cloud.as_ref().unwrap();
        assert_eq!(cloud.snapshots.contains_key("snap-imported"), retained == "Keep", "{:?}", world.acts);
        if retained == "Keep" {
            let kept =
                world.run.records.iter().find(|one| one.id.as_deref() == Some("snap-imported")).unwrap();
            assert_eq!(kept.kept.as_deref(), Some("no VolumeSnapshot was ever bound to it"));
        }
    }
}
