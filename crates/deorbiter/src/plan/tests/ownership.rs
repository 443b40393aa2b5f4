//! Resources that could be mistaken for the cluster's: names that anyone may write, objects that share a resource, and
//! resources of other clusters.

use std::time::Duration;

use common::api::deorbit::{Kind, Phase};
use serde_json::json;

use super::env::*;
use crate::names;
use crate::observe::snapshot::{Claim, Content, FloatingIp, Pod};
use crate::plan::found;

/// With `orphanPolicy: Delete`.
fn cleaned(mut change: serde_json::Value) -> TestEnv {
    let leftovers = change.as_object_mut().unwrap().entry("orphanPolicy");
    leftovers.or_insert(json!("Delete"));
    change.as_object_mut().unwrap().entry("timeouts").or_insert(json!({"perObject": "10m", "total": "1h"}));
    proven(change)
}

/// Everything was deleted in the cluster, and then it does not respond any more: leftovers are deleted by their IDs.
fn then_the_cluster_is_unreachable(env: &mut TestEnv) {
    for _ in 0..8 {
        env.step();
    }
    env.course.outage = env.reconcile..usize::MAX;
    env.finish_blind();
}

#[test]
fn a_volume_that_two_objects_name_stays_if_one_of_them_keeps_it() {
    for kept in [0, 1] {
        let mut env = cleaned(json!({}));
        env.course.csi_stopped = true;
        env.claim("a");
        env.claim("b");
        env.volume("b").id = "vol-a".into();
        env.cluster.claims[kept].meta.keep = true;
        env.untouchable = ["vol-a", "uid-a", "uid-b"].map(str::to_owned).to_vec();
        then_the_cluster_is_unreachable(&mut env);
        assert_eq!(env.deletes(), 0, "{:?}", env.acts);
        assert!(env.cloud.unwrap().volumes.contains_key("vol-a"));
    }
}

#[test]
fn a_claim_that_names_the_volume_of_another_claim_holds_nothing() {
    let mut env = cleaned(json!({}));
    env.claim("real").meta.keep = true;
    env.cluster.claims.push(Claim {
        meta: meta("b", "thief"),
        volume: Some("pv-real".into()),
        class: Some("cinder".into()),
        provisioner_in_scope: None,
    });
    env.untouchable = ["vol-real", "uid-real", "uid-thief"].map(str::to_owned).to_vec();
    then_the_cluster_is_unreachable(&mut env);
    assert_eq!(env.deletes(), 0, "{:?}", env.acts);
}

#[test]
fn what_a_kept_pod_holds_is_kept() {
    let mut env = cleaned(json!({}));
    env.claim("data");
    let mut pod = meta("a", "db-0");
    pod.keep = true;
    env.cluster.pods.push(Pod { meta: pod, claims: vec!["data".into()], unscheduled: false });
    env.untouchable = ["vol-data", "uid-data", "uid-db-0"].map(str::to_owned).to_vec();
    env.finish();
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 0));
    assert!(env.run.records[0].kept.as_deref().unwrap().contains("a pod that holds it"));
}

#[test]
fn a_volume_with_a_retained_snapshot_without_an_object_is_kept() {
    for has_volume in [true, false] {
        let mut env = cleaned(json!({}));
        env.claim("data");
        env.snapshot("daily", "data");
        env.cluster.snapshots.clear();
        env.cluster.contents[0] = Content {
            retain: true,
            // A content that was created by hand does not have it: Cinder does.
            volume: has_volume.then(|| "vol-data".into()),
            ..env.cluster.contents[0].clone()
        };
        env.untouchable = ["vol-data", "uid-data", "snap-daily"].map(str::to_owned).to_vec();
        env.finish();
        assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 0), "{:?}", env.acts);
    }
}

#[test]
fn what_the_api_server_refuses_to_delete_is_not_deleted_in_openstack() {
    let mut env = cleaned(json!({"timeouts": {"perObject": "1m", "total": "10m"}}));
    env.claim("data");
    env.course.refuses = Some("uid-data".into());
    env.stale_leases();
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded);
    assert_eq!(env.did("in OpenStack"), 0, "{:?}", env.acts);
    assert!(env.run.status.debris[0].reason.contains("forbidden"), "{:?}", env.run.status.debris);
}

#[test]
fn a_released_volume_without_a_driver_is_deleted_by_its_id_or_becomes_debris() {
    for (leftovers, debris) in [("Delete", 0), ("Report", 1)] {
        let mut env =
            cleaned(json!({"orphanPolicy": leftovers, "timeouts": {"perObject": "1m", "total": "10m"}}));
        env.claim("data");
        env.cluster.claims.clear();
        env.volume("data").phase = "Released".into();
        env.course.csi_stopped = true;
        env.finish();
        let status = &env.run.status;
        assert_eq!((status.phase, status.debris_count), (Phase::Succeeded, debris), "{:?}", status.debris);
        let took = status.completion_time.unwrap().duration_since(env.run.book.deleting_since.unwrap());
        assert!(took.as_secs() < 700, "it waited although no controller deletes it: {took}");
    }
}

#[test]
fn a_volume_that_is_reserved_for_a_claim_was_never_bound() {
    for (retained, goes) in [("Keep", false), ("Delete", true)] {
        for reserved in [None, Some(String::new())] {
            let mut env = cleaned(json!({"orphanPolicy": "Report", "retainedVolumes": retained}));
            env.claim("data");
            env.cluster.claims.clear();
            let volume = env.volume("data");
            (volume.claim, volume.phase) = (reserved.clone(), "Available".into());
            for _ in 0..8 {
                env.step();
            }
            assert_eq!(env.did("delete PersistentVolume pv-data"), usize::from(goes), "{reserved:?}");
            let kept = env.run.records[0].kept.as_deref();
            let why = (!goes).then_some("no claim was ever bound to it");
            assert_eq!(kept, why, "{reserved:?}");
            if !goes {
                env.finish();
                assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
            }
        }
    }
}

#[test]
fn a_stuck_persistent_volume_delays_nothing_when_cinder_has_no_such_volume() {
    let mut env = cleaned(json!({"orphanPolicy": "Report"}));
    env.claim("other");
    env.claim("data");
    env.cloud.as_mut().unwrap().volumes.remove("vol-data");
    env.cluster.claims.pop();
    // No controller removes this one.
    env.volume("data").phase = "Failed".into();
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
}

#[test]
fn clusters_without_a_distinctive_name_are_distinguished_by_the_address_of_the_service() {
    for cluster in ["", "kubernetes"] {
        for attached in [false, true] {
            let mut env = cleaned(json!({"clusterName": cluster}));
            env.course.ccm_stopped = true;
            env.stale_leases();
            env.service("web");
            let name = "kube_service_kubernetes_a_web".to_owned();
            let balancer = env.balancer("web");
            (balancer.name, balancer.tags) = (name.clone(), vec![name]);
            if attached {
                env.cluster.services[0].addresses = vec!["203.0.113.1".into()];
            }
            env.finish();
            let deleted = env.did("delete the load balancer");
            assert_eq!(deleted, usize::from(attached), "{cluster:?} {:?}", env.acts);
        }
    }
}

#[test]
fn a_load_balancer_that_a_kept_service_names_too_is_kept() {
    let mut env = cleaned(json!({}));
    env.course.ccm_stopped = true;
    env.stale_leases();
    env.service("web");
    env.service("kept");
    env.cluster.services[1].load_balancer = Some("lb-web".into());
    env.cluster.services[1].meta.keep = true;
    // Octavia before 2.5 has no tags.
    env.balancer("web").tags.clear();
    env.finish();
    assert_eq!(env.did("in OpenStack"), 0, "{:?}", env.acts);
    assert!(env.cloud.unwrap().load_balancers.contains_key("lb-web"));
}

#[test]
fn the_load_balancer_of_a_service_without_its_id_is_found_by_name() {
    let mut env = cleaned(json!({}));
    env.course.ccm_stopped = true;
    env.stale_leases();
    env.service("web").load_balancer = None;
    env.node("n1", "10.0.0.5", true);
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
    let recorded = env.run.records.iter().find(|one| one.kind == Kind::LoadBalancer).unwrap();
    assert_eq!(recorded.id.as_deref(), Some("lb-web"));
    assert_eq!(env.did("delete the load balancer lb-web"), 1, "{:?}", env.acts);
}

#[test]
fn a_service_without_a_load_balancer_gets_the_grace_period() {
    let mut env = cleaned(json!({}));
    env.service("web").load_balancer = None;
    env.cloud.as_mut().unwrap().load_balancers.clear();
    env.cloud.as_mut().unwrap().floating_ips.clear();
    env.finish();
    let status = &env.run.status;
    assert_eq!(status.phase, Phase::Succeeded);
    assert!(
        status.completion_time.unwrap().duration_since(env.run.book.deleting_since.unwrap()).as_secs() >= 120
    );
}

#[test]
fn a_floating_ip_on_another_port_is_in_use() {
    let mut env = cleaned(json!({"timeouts": {"perObject": "1m", "total": "10m"}}));
    env.course.ccm_stopped = true;
    env.stale_leases();
    env.service("web");
    while env.cloud.as_ref().unwrap().load_balancers.contains_key("lb-web") {
        env.step();
    }
    let ip: &mut FloatingIp = env.cloud.as_mut().unwrap().floating_ips.get_mut("fip-web").unwrap();
    ip.port_id = Some("foreign-port".into());
    env.untouchable = vec!["fip-web".into()];
    env.finish();
    assert!(env.cloud.unwrap().floating_ips.contains_key("fip-web"));
    assert_eq!(env.run.status.debris[0].id.as_deref(), Some("fip-web"));
}

/// Two Services with one load balancer and one floating IP, without a cloud controller manager.
fn with_two_services_on_one_load_balancer() -> TestEnv {
    let mut env = cleaned(json!({"timeouts": {"perObject": "10m", "total": "1h"}}));
    env.course.ccm_stopped = true;
    env.stale_leases();
    env.service("web");
    env.service("api").load_balancer = Some("lb-web".into());
    let cloud = env.cloud.as_mut().unwrap();
    cloud.load_balancers.remove("lb-api");
    cloud.floating_ips.remove("fip-api");
    env.balancer("web").tags.push(names::service_tag("prod", "a", "api"));
    env
}

#[test]
fn a_floating_ip_that_one_of_two_services_keeps_is_kept_after_that_one_is_gone() {
    for (keeper, name) in ["web", "api"].into_iter().enumerate() {
        let mut env = with_two_services_on_one_load_balancer();
        env.cluster.services[keeper].keep_floating_ip = true;
        env.untouchable = vec!["fip-web".into()];
        env.until(Phase::Deleting);
        // The cloud controller manager removed the finalizer just before it stopped.
        env.cluster.services.remove(keeper);
        let tag = names::service_tag("prod", "a", name);
        env.balancer("web").tags.retain(|one| *one != tag);
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded, "{name}: {:?}", env.run.status.debris);
        let cloud = env.cloud.as_ref().unwrap();
        assert!(cloud.load_balancers.is_empty() && cloud.floating_ips.contains_key("fip-web"), "{name}");
        let record = env.run.records.iter().find(|one| one.id.as_deref() == Some("fip-web")).unwrap();
        let kept = record.kept.as_deref().unwrap();
        assert!(kept.contains(&format!("a/{name} carries")), "{kept}");
        assert_eq!(record.kept_by, Some(format!("a/{name}")));
    }
}

#[test]
fn only_the_service_that_keeps_a_floating_ip_can_stop_keeping_it() {
    for itself in [true, false] {
        let mut env = with_two_services_on_one_load_balancer();
        env.cluster.services[0].keep_floating_ip = true;
        env.until(Phase::Inventory);
        if itself {
            env.cluster.services[0].keep_floating_ip = false;
        } else {
            env.cluster.services.remove(0);
        }
        env.until(Phase::Deleting);
        let record = env.run.records.iter().find(|one| one.id.as_deref() == Some("fip-web")).unwrap();
        let kept = record.kept.as_deref().is_some_and(|why| why.contains("a/web carries"));
        let kept_by = record.kept_by.as_deref() == Some("a/web");
        assert_eq!((kept, kept_by), (!itself, !itself), "{record:?}");
    }
}

#[test]
fn a_sweep_keeps_the_load_balancer_of_a_kept_service_even_without_its_id() {
    let mut env = cleaned(json!({"discoverByClusterName": true}));
    env.service("web").meta.keep = true;
    env.cluster.services[0].load_balancer = None;
    // Two of the name: either may be the Service's.
    let twin = env.balancer("web").clone();
    env.cloud.as_mut().unwrap().load_balancers.insert("lb-twin".into(), twin);
    env.untouchable = vec!["lb-web".into(), "lb-twin".into(), "uid-web".into()];
    env.finish();
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 0), "{:?}", env.acts);
}

#[test]
fn a_volume_with_the_metadata_of_another_cluster_is_kept() {
    let mut env = cleaned(json!({"timeouts": {"perObject": "1m", "total": "10m"}}));
    env.course.csi_stopped = true;
    env.stale_leases();
    for (name, cluster) in [("ours", "prod"), ("unnamed", "kubernetes"), ("theirs", "stage")] {
        env.claim(name);
        env.cinder(name).cluster = Some(cluster.into());
    }
    env.finish();
    let left: Vec<&String> = env.cloud.as_ref().unwrap().volumes.keys().collect();
    assert_eq!(left, ["vol-theirs"]);
    assert!(env.run.status.debris[0].reason.contains("is stage: it is left to that cluster"));
}

#[test]
fn handles_that_cannot_be_ids_are_not_requested() {
    let mut env = cleaned(json!({}));
    env.claim("data");
    env.claim("odd");
    env.volume("odd").id = "../../servers/4711".into();
    env.service("web").load_balancer = Some("a/b?c".into());
    let ids = found::ids(&[], Some(&env.cluster));
    assert_eq!(ids[&Kind::Volume].iter().collect::<Vec<_>>(), ["vol-data"]);
    assert!(ids[&Kind::LoadBalancer].is_empty());
}

#[test]
fn recreated_pods_are_not_deleted_repeatedly() {
    let mut env = cleaned(json!({"timeouts": {"perObject": "5m", "total": "20m"}}));
    env.course.csi_stopped = true;
    env.claim("data");
    for _ in 0..20 {
        env.cluster.pods.clear();
        let pod = Pod { meta: meta("a", "db-0"), claims: vec!["data".into()], unscheduled: true };
        env.cluster.pods.push(pod);
        env.step();
        env.now += Duration::from_secs(1);
    }
    assert!(env.did("delete Pod") <= 1, "{:?}", env.acts);
}

#[test]
fn a_snapshot_whose_content_was_never_bound_is_not_deleted() {
    for (retained, unbound) in [("Keep", None), ("Keep", Some(String::new())), ("Delete", None)] {
        let mut env = cleaned(json!({"orphanPolicy": "Delete", "retainedVolumes": retained}));
        env.claim("data");
        env.snapshot("imported", "data");
        env.cluster.snapshots.clear();
        env.cluster.contents[0].snapshot = unbound.clone();
        if retained == "Keep" {
            env.untouchable = ["vol-data", "uid-data", "snap-imported"].map(str::to_owned).to_vec();
        }
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
        let cloud = env.cloud.as_ref().unwrap();
        assert_eq!(cloud.snapshots.contains_key("snap-imported"), retained == "Keep", "{:?}", env.acts);
        if retained == "Keep" {
            let kept = env.run.records.iter().find(|one| one.id.as_deref() == Some("snap-imported")).unwrap();
            assert_eq!(kept.kept.as_deref(), Some("no VolumeSnapshot was ever bound to it"));
        }
    }
}
