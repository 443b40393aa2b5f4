//! Discovery by the name of the cluster, and the deletion of what it finds.

use common::api::deorbit::Phase;
use serde_json::json;

use super::env::*;
use crate::observe::snapshot::{BlockStorage, FloatingIp};

#[test]
fn a_sweep_deletes_what_no_object_names_and_nothing_of_another_cluster() {
    let mut env =
        proven(json!({"discoverByClusterName": true, "orphanPolicy": "Delete", "retainedVolumes": "Delete"}));
    env.service("web");
    env.claim("kept").meta.keep = true;
    env.cinder("kept").cluster = Some("prod".into());
    let cloud = env.cloud.as_mut().unwrap();
    let volume = |cluster: &str| BlockStorage {
        name: "pvc-x".into(),
        status: "available".into(),
        cluster: Some(cluster.into()),
        ..BlockStorage::default()
    };
    cloud.volumes.insert("lost".into(), volume("prod"));
    cloud.volumes.insert("other".into(), volume("prod_7"));
    let mut neighbour = cloud.load_balancers["lb-web"].clone();
    neighbour.name = "kube_service_prod_7_a_web".into();
    neighbour.description = "Kubernetes external service a/web from cluster prod_7".into();
    neighbour.tags = vec![neighbour.name.clone()];
    cloud.load_balancers.insert("lb-neighbour".into(), neighbour);
    env.untouchable = ["other", "lb-neighbour", "vol-kept"].map(str::to_owned).to_vec();
    env.finish();
    assert_eq!(env.run.status.phase, Phase::Succeeded, "{:?}", env.run.status.debris);
    assert!(!env.cloud.as_ref().unwrap().volumes.contains_key("lost"));
}

#[test]
fn a_sweep_deletes_the_floating_ips_of_the_load_balancers_that_it_deletes() {
    for leftovers in ["Delete", "Report"] {
        let mut env = proven(json!({"discoverByClusterName": true, "orphanPolicy": leftovers}));
        env.node("n1", "10.0.0.5", true);
        env.service("web");
        env.cluster.services.clear();
        let cloud = env.cloud.as_mut().unwrap();
        // These were not created for this load balancer.
        for (id, description) in [
            ("fip-own", "mine"),
            ("fip-other", "Floating IP for Kubernetes external service a/other from cluster prod"),
            ("fip-neighbour", "Floating IP for Kubernetes external service a/web from cluster prod_7"),
        ] {
            let ip = FloatingIp { description: description.into(), ..cloud.floating_ips["fip-web"].clone() };
            cloud.floating_ips.insert(id.into(), ip);
            env.untouchable.push(id.into());
        }
        env.finish();
        let (status, cloud) = (&env.run.status, env.cloud.as_ref().unwrap());
        assert_eq!(status.phase, Phase::Succeeded, "{:?}", status.debris);
        let gone = leftovers == "Delete";
        assert_eq!(!cloud.load_balancers.contains_key("lb-web"), gone);
        assert_eq!(!cloud.floating_ips.contains_key("fip-web"), gone, "{:?}", env.acts);
        assert_eq!(cloud.floating_ips.len(), if gone { 3 } else { 4 });
        let listed: Vec<_> = status.debris.iter().filter_map(|one| one.id.as_deref()).collect();
        assert_eq!(listed, if gone { vec![] } else { vec!["lb-web", "fip-web"] });
    }
}

/// S6: without a proof nothing is searched, and that is no reason to end the wait for the rest.
#[test]
fn a_discovery_without_a_proven_login_does_not_end_the_wait_for_what_takes_longer_than_per_object() {
    let mut env =
        proven(json!({"discoverByClusterName": true, "timeouts": {"perObject": "5m", "total": "1h"}}));
    env.course.ccm_stopped = true;
    // No Node and no ID proves anything, and the Service keeps the finalizer of its stopped controller.
    env.service("web").load_balancer = None;
    let cloud = env.cloud.as_mut().unwrap();
    (cloud.load_balancers, cloud.floating_ips) = Default::default();
    env.finish();
    let status = &env.run.status;
    let took = status.completion_time.unwrap().duration_since(status.start_time.unwrap());
    assert!(took.as_secs() >= 3600, "released after {took}: {:?}", status.debris);
    let kinds: Vec<&str> = status.debris.iter().map(|one| one.kind.as_str()).collect();
    assert_eq!((status.phase, kinds), (Phase::Succeeded, vec!["LoadBalancer", "Cluster"]));
}
