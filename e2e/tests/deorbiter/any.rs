//! `provider: Any`, with the CSI driver and the cloud controller manager of another cloud.

use std::time::Duration;

use common::api::deorbit::{DeorbitStatus, Phase};
use common::conditions::Status;
use e2e::deorbiter::{OTHER_DRIVER, OtherCloud, TestEnv};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::rights::{define, undefine};

/// Status and reason of a condition.
fn condition(status: &DeorbitStatus, kind: &str) -> (Status, String) {
    let found = status.conditions.iter().find(|one| one.kind == kind).unwrap();
    (found.status, found.reason.clone())
}

/// A claim that is bound to a directory of a Node.
async fn host_path(env: &TestEnv, name: &str) {
    let volume = format!("{}-{name}", env.namespace);
    env.create::<PersistentVolume>(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "cinder",
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/data"},
            "claimRef": {"namespace": env.namespace, "name": name}},
    }))
    .await
    .unwrap();
    env.pending(name, Some(&volume)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_another_cloud_is_cleaned_up_by_its_own_controllers() {
    let env = TestEnv::start().await.unwrap();
    undefine(&env).await;
    define(&env).await;
    let cloud = OtherCloud::start(env.client.clone(), Duration::from_secs(3)).await.unwrap();
    env.disk(&cloud, "data", "Delete").await.unwrap();
    env.disk(&cloud, "retained", "Retain").await.unwrap();
    env.copy(&cloud, "daily", "data").await.unwrap();
    env.balanced(&cloud, "web").await.unwrap();
    host_path(&env, "host").await;
    assert_eq!(cloud.resources().len(), 4);
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"provider": "Any", "timeouts": {"loadBalancerGrace": "1s"}})).await.unwrap();
    let status = env.wait_for_complete("run").await.unwrap();

    assert_eq!(cloud.resources(), ["vol-retained"], "Complete was reported before its controllers were done");
    let records = env.records("run").await.unwrap();
    let ids: Vec<&Value> = records.iter().map(|one| &one["id"]).collect();
    for id in ["vol-data", "snap-daily"] {
        assert!(ids.contains(&&json!(format!("{OTHER_DRIVER}/{id}"))), "{records:#?}");
    }
    assert_eq!((records.len(), status.kept), (4, 1), "{records:#?}");
    assert_eq!(condition(&status, "Complete"), (Status::True, "Complete".to_owned()));
    assert_eq!(condition(&status, "Verified"), (Status::Unknown, "ClusterOnly".to_owned()));
    assert_eq!(condition(&status, "CloudReachable"), (Status::Unknown, "NotRead".to_owned()));
    let claims = Api::<PersistentVolumeClaim>::namespaced(env.client.clone(), &env.namespace);
    let claims = claims.list(&ListParams::default()).await.unwrap().items;
    let mut left: Vec<&str> = claims.iter().filter_map(|one| one.metadata.name.as_deref()).collect();
    left.sort_unstable();
    assert_eq!(left, ["host", "retained"]);
    assert!(claims.iter().all(|one| one.metadata.deletion_timestamp.is_none()));
    let services = Api::<Service>::namespaced(env.client.clone(), &env.namespace);
    assert!(services.get_opt("web").await.unwrap().is_none());
    drop(deorbiter);
    undefine(&env).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn what_the_controllers_of_another_cloud_leave_is_listed_and_keeps_the_cluster() {
    let env = TestEnv::start().await.unwrap();
    // Its controllers take longer than the test.
    let cloud = OtherCloud::start(env.client.clone(), Duration::from_secs(24 * 3600)).await.unwrap();
    env.disk(&cloud, "data", "Delete").await.unwrap();
    env.balanced(&cloud, "web").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"provider": "Any", "onTimeout": "Block"})).await.unwrap();
    let volumes = Api::<PersistentVolume>::all(env.client.clone());
    let volume = format!("{}-data", env.namespace);
    env.wait("the claim to be gone", async || {
        let phase = volumes.get(&volume).await?.status.and_then(|status| status.phase);
        Ok(phase.as_deref() == Some("Released"))
    })
    .await
    .unwrap();
    env.wait_for_reconciliations(&deorbiter, 2).await.unwrap();
    assert_eq!(env.status("run").await.unwrap().phase, Phase::Deleting, "it waits for the finalizers");
    env.set_timeouts("run", json!({"total": "1s"})).await.unwrap();
    let status = env.wait_for_phase("run", Phase::Failed).await.unwrap();
    assert_eq!(status.debris_count, 2, "{status:#?}");
    let reasons: Vec<&str> = status.debris.iter().map(|one| one.reason.as_str()).collect();
    assert!(reasons.iter().any(|why| why.contains(&format!("{volume} is still there"))), "{reasons:?}");
    assert!(
        reasons.iter().any(|why| why.contains("the Service is being deleted and still there")),
        "{reasons:?}"
    );
    assert_eq!(condition(&status, "Verified"), (Status::False, "DebrisLeft".to_owned()));
    assert_eq!(cloud.resources(), ["vol-data", "web"]);
    drop(deorbiter);
}
