//! `clusterGone`: the cluster has no API server any more. What it left in OpenStack is found by its name, and nothing else is touched.

use common::api::deorbit::{Kind, Phase};
use common::conditions::Status;
use serde_json::{Value, json};

use super::env::*;
use crate::names;
use crate::observe::snapshot::{BlockStorage, LoadBalancer};
use crate::plan::preview;
use crate::settings::Settings;

/// A Deorbit for a cluster `prod` that is gone, in project `p-1`, which has a volume and a load balancer of `prod`, and of `prod_7`.
fn gone(change: Value) -> TestEnv {
    let spec = json!({"clusterGone": {"projectID": "p-1"}, "clusterName": "prod", "discoverByClusterName": true,
        "openstack": with_cloud()});
    let mut env = TestEnv::new(serde_json::from_value(with(spec, change)).unwrap());
    let cloud = env.cloud.as_mut().unwrap();
    cloud.project = "p-1".into();
    for cluster in ["prod", "prod_7"] {
        let cluster_name = Some(cluster.to_owned());
        let volume =
            BlockStorage { status: "available".into(), cluster: cluster_name, ..BlockStorage::default() };
        cloud.volumes.insert(format!("vol-{cluster}"), volume);
        let name = names::service_tag(cluster, "a", "web");
        let balancer = LoadBalancer {
            tags: vec![name.clone()],
            name,
            description: format!("Kubernetes external service a/web from cluster {cluster}"),
            provisioning_status: "ACTIVE".into(),
            ..LoadBalancer::default()
        };
        cloud.load_balancers.insert(format!("lb-{cluster}"), balancer);
    }
    env.untouchable = ["vol-prod_7", "lb-prod_7"].map(str::to_owned).to_vec();
    env
}

fn debris(env: &TestEnv) -> Vec<&str> {
    env.run.status.debris.iter().filter_map(|one| one.id.as_deref()).collect()
}

#[test]
fn what_has_the_name_of_the_cluster_is_listed() {
    let mut env = gone(json!({}));
    env.finish();
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Succeeded, 0), "{:?}", env.acts);
    assert_eq!(debris(&env), ["vol-prod", "lb-prod"]);
    assert_eq!(env.condition("Verified"), (Status::False, "DebrisLeft".to_owned()));
    assert_eq!(env.condition("TargetReachable"), (Status::Unknown, "ClusterGone".to_owned()));
}

#[test]
fn it_is_deleted_by_the_orphan_policy_and_volumes_only_if_retained_ones_are() {
    for (retained, left) in [("Keep", vec!["vol-prod"]), ("Delete", vec![])] {
        let mut env = gone(json!({"orphanPolicy": "Delete", "retainedVolumes": retained}));
        env.finish();
        assert_eq!(env.run.status.phase, Phase::Succeeded);
        assert_eq!(debris(&env), left, "{:?}", env.acts);
        let cloud = env.cloud.as_ref().unwrap();
        assert_eq!((cloud.volumes.len(), cloud.load_balancers.len()), (1 + left.len(), 1));
        let verified =
            if left.is_empty() { (Status::True, "NothingFound") } else { (Status::False, "DebrisLeft") };
        assert_eq!(env.condition("Verified"), (verified.0, verified.1.to_owned()));
    }
}

#[test]
fn a_login_for_another_project_stops_the_run() {
    let mut env = gone(json!({"orphanPolicy": "Delete", "retainedVolumes": "Delete"}));
    env.cloud.as_mut().unwrap().project = "p-2".into();
    for _ in 0..10 {
        env.step();
    }
    assert_eq!((env.deletes(), env.run.records.len()), (0, 0), "{:?}", env.acts);
    let (status, reason) = env.condition("Stalled");
    assert_eq!((status, reason.as_str()), (Status::True, "LoginNotProven"));
    // The login is corrected.
    env.cloud.as_mut().unwrap().project = "p-1".into();
    env.finish();
    assert_eq!((env.run.status.phase, env.run.status.debris_count), (Phase::Succeeded, 0), "{:?}", env.acts);
}

#[test]
fn a_dry_run_lists_what_the_run_deletes_then() {
    let spec = json!({"orphanPolicy": "Delete", "dryRun": true});
    let mut env = gone(spec.clone());
    env.finish();
    assert_eq!((env.run.status.phase, env.deletes()), (Phase::Planned, 0), "{:?}", env.acts);
    let kinds: Vec<Kind> = env.run.records.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Volume, Kind::LoadBalancer]);
    let planned = env.run.status.conditions.iter().find(|one| one.kind == "Planned").unwrap();
    assert!(planned.message.starts_with("1 would be deleted, 1 reported, 0 kept"), "{}", planned.message);

    let mut snapshot = gone(spec).snapshot_now();
    if let Some(Ok(cloud)) = &mut snapshot.cloud {
        cloud.whole = true;
    }
    let text = preview::preview(&Settings::default(), &snapshot, env.now).to_string();
    assert!(text.contains("lb-prod") && text.contains("vol-prod") && !text.contains("prod_7"), "{text}");

    env.run.spec.dry_run = false;
    env.finish();
    assert_eq!((env.run.status.phase, debris(&env)), (Phase::Succeeded, vec!["vol-prod"]), "{:?}", env.acts);
}

#[test]
fn the_deorbit_of_a_cluster_that_is_gone_can_be_deleted_at_any_time() {
    for phase in [Phase::Inventory, Phase::Verifying] {
        let mut env = gone(json!({}));
        env.until(phase);
        env.step();
        env.run.deleting = Some(env.now);
        env.finish();
        assert!(env.gone && env.deletes() == 0, "{phase:?}: {:?}", env.acts);
    }
}
