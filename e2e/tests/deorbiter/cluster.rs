//! Without OpenStack: the kind, the block, unreachable clusters, many objects.

use common::api::deorbit::{Choice, Deorbit, DeorbitStatus, Phase, Trigger};
use common::conditions::Status;
use e2e::deorbiter::{TestEnv, kubeconfig};
use e2e::program::Program;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

fn claims(env: &TestEnv) -> Api<PersistentVolumeClaim> {
    Api::namespaced(env.client.clone(), &env.namespace)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kind_refuses_contradictory_specs() {
    let env = TestEnv::start().await.unwrap();
    for (spec, why) in [
        (json!({"inCluster": true}), "exactly one of kubeconfig, inCluster: true and clusterGone"),
        (json!({"kubeconfig": null}), "exactly one of kubeconfig, inCluster: true and clusterGone"),
        (
            json!({"discoverByClusterName": true, "openstack": {"identityRef": {"name": "cloud"}}}),
            "discoverByClusterName needs a clusterName",
        ),
        (
            json!({"discoverByClusterName": true, "clusterName": "kubernetes", "openstack": {"identityRef": {"name": "cloud"}}}),
            "discoverByClusterName needs a clusterName",
        ),
        (
            json!({"discoverByClusterName": true, "clusterName": "prod"}),
            "discoverByClusterName needs openstack",
        ),
        (json!({"orphanPolicy": "Delete"}), "orphanPolicy: Delete needs openstack"),
        (json!({"timeouts": {"total": "soon"}}), "spec.timeouts.total"),
        (
            json!({"provider": "Any", "openstack": {"identityRef": {"name": "cloud"}}}),
            "provider: Any reads no cloud: leave openstack out",
        ),
        (
            json!({"provider": "Any", "discoverByClusterName": true, "clusterName": "prod"}),
            "discoverByClusterName needs provider: OpenStack",
        ),
        (
            json!({"provider": "Any", "orphanPolicy": "Delete"}),
            "orphanPolicy: Delete needs provider: OpenStack",
        ),
        (
            json!({"provider": "Any", "resources": {"ingresses": "Delete"}}),
            "provider: Any deletes neither routes nor Ingresses",
        ),
        (
            json!({"provider": "Any", "resources": {"routes": {"routerID": "r", "podCIDRs": ["10.0.0.0/16"]}}}),
            "provider: Any deletes neither routes nor Ingresses",
        ),
        (json!({"provider": "AWS"}), "spec.provider"),
        (
            json!({"clusterGone": {"projectID": "p"}}),
            "exactly one of kubeconfig, inCluster: true and clusterGone",
        ),
        (
            json!({"kubeconfig": null, "clusterGone": {"projectID": "p"}, "openstack": {"identityRef": {"name": "cloud"}}}),
            "clusterGone needs openstack and discoverByClusterName",
        ),
        (json!({"kubeconfig": null, "clusterGone": {"projectID": ""}}), "spec.clusterGone.projectID"),
        (
            json!({"openstack": {"identityRef": {"name": "c", "type": "ClusterIdentity"}, "applicationCredential": "Delete"}}),
            "an OpenStackClusterIdentity is for many clusters",
        ),
        (
            json!({"openstack": {"identityRef": {"name": "c"}, "applicationCredential": "Delete"}, "clusterSurvives": true}),
            "a cluster that survives may need its login",
        ),
    ] {
        let error = env.deorbit("no", spec.clone()).await.unwrap_err().to_string();
        assert!(error.contains(why), "{spec}: {error}");
    }
    let made = env.deorbit("yes", json!({})).await.unwrap();
    assert_eq!(made.spec.resources.ingresses, Choice::Keep, "defaults stand in the object");
    let change = async |spec: serde_json::Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        env.deorbits().patch("yes", &PatchParams::default(), &patch).await
    };
    for fixed in [json!({"retainedVolumes": "Delete"}), json!({"provider": "Any"})] {
        let refused = change(fixed).await.unwrap_err().to_string();
        assert!(refused.contains("create another Deorbit"), "{refused}");
    }
    let changes = json!({"timeouts": {"total": "1h"}, "onTimeout": "Block", "clusterSurvives": true, "ttlSecondsAfterFinished": 60});
    change(changes).await.unwrap();
    let refused = change(json!({"dryRun": true})).await.unwrap_err().to_string();
    assert!(refused.contains("dryRun can be switched off, not on"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn d2_a_cluster_without_snapshots_is_no_obstacle_and_the_end_is_waited_for_with_kubectl_s_condition() {
    let env = TestEnv::start().await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("empty", json!({})).await.unwrap();
    let status = env.wait_for_complete("empty").await.unwrap();
    let complete = status.conditions.iter().find(|one| one.kind == "Complete").unwrap();
    assert_eq!((complete.status, complete.reason.as_str()), (Status::True, "Complete"));
    assert!(env.is_blocked().await.unwrap(), "as long as the Deorbit exists");
    assert_eq!((status.trigger, status.target.as_str()), (Trigger::Manual, "Secret target"));
    env.delete("empty").await.unwrap();
    env.deorbit("survives", json!({"clusterSurvives": true, "ttlSecondsAfterFinished": 1})).await.unwrap();
    env.wait("its expiry", async || Ok(env.deorbits().get_opt("survives").await?.is_none())).await.unwrap();
    assert!(!env.is_blocked().await.unwrap());
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn d1_claims_of_other_drivers_stay_whatever_their_class_says() {
    let env = TestEnv::start().await.unwrap();
    env.claim_of("nfs", "nfs.csi.k8s.io", "server/share", "Delete").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    assert!(env.records("run").await.unwrap().is_empty());
    let claim = claims(&env).get("nfs").await.unwrap();
    assert_eq!(claim.metadata.deletion_timestamp, None);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule, the test of another cloud has such a volume"]
async fn d3_a_retained_volume_stays_bound_and_is_not_waited_for() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", "0d5c9f3e-0000-4000-8000-000000000003", "Retain").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    let status = env.wait_for_complete("run").await.unwrap();
    let records = env.records("run").await.unwrap();
    assert!(records[0]["kept"].as_str().unwrap().contains("Retain"), "{records:?}");
    assert_eq!(status.kept, 1);
    assert_eq!(claims(&env).get("data").await.unwrap().metadata.deletion_timestamp, None);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn d4_pods_that_hold_claims_are_deleted_and_others_are_not() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", "0d5c9f3e-0000-4000-8000-000000000004", "Delete").await.unwrap();
    let pod = |name: &str, volumes: serde_json::Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [{"name": "c", "image": "i"}], "volumes": volumes, "schedulerName": "none"}})
    };
    let held = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    env.create_in::<Pod>(pod("holds", held)).await.unwrap();
    env.create_in::<Pod>(pod("other", json!([]))).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"timeouts": {"total": "1h"}})).await.unwrap();
    env.wait("the claim to be deleted", async || Ok(claims(&env).get_opt("data").await?.is_none()))
        .await
        .unwrap();
    // No controller deletes the PersistentVolume here: it is debris.
    env.set_timeouts("run", json!({"total": "1s"})).await.unwrap();
    let status = env.wait_for_debris("run").await.unwrap();
    assert_eq!(status.debris_count, 1);
    assert!(status.debris[0].reason.contains("still there"), "{status:?}");
    let pods = Api::<Pod>::namespaced(env.client.clone(), &env.namespace);
    assert!(pods.get_opt("holds").await.unwrap().is_none());
    assert!(pods.get_opt("other").await.unwrap().is_some());
    drop(deorbiter);
}

async fn blocked_by(env: &TestEnv, form: &str) {
    env.claim("data", "0d5c9f3e-0000-4000-8000-000000000005", "Delete").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({ "creationBlock": form })).await.unwrap();
    env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    let service = |name: &str, kind: &str| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
    // The API server gets its own policies by a watch: it takes a moment.
    env.wait("new claims to be refused", async || {
        let made = env.pending("again", None).await;
        let _ = claims(env).delete("again", &DeleteParams::default()).await;
        Ok(made.is_err())
    })
    .await
    .unwrap();
    assert!(env.create_in::<Service>(service("lb", "LoadBalancer")).await.is_err());
    env.create_in::<Service>(service("plain", "ClusterIP")).await.unwrap();
    let services = Api::<Service>::namespaced(env.client.clone(), &env.namespace);
    let grow = Patch::Merge(json!({"spec": {"type": "LoadBalancer"}}));
    assert!(
        services.patch("plain", &PatchParams::default(), &grow).await.is_err(),
        "it becomes a load balancer"
    );
    // Aborting the run lifts the block.
    env.deorbits().delete("run", &DeleteParams::default()).await.unwrap();
    env.wait("the end of the Deorbit", async || Ok(env.deorbits().get_opt("run").await?.is_none()))
        .await
        .unwrap();
    assert!(!env.is_blocked().await.unwrap());
    env.wait("claims to be possible", async || Ok(env.pending("after", None).await.is_ok())).await.unwrap();
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_a_policy_refuses_new_claims_and_load_balancers_until_the_run_is_aborted() {
    let env = TestEnv::start().await.unwrap();
    blocked_by(&env, "Policy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn d5_a_webhook_refuses_new_claims_and_load_balancers_until_the_run_is_aborted() {
    let env = TestEnv::start().await.unwrap();
    blocked_by(&env, "Webhook").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn d6_a_pending_claim_is_deleted_too() {
    let env = TestEnv::start().await.unwrap();
    let class = json!({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "cinder"},
        "provisioner": "cinder.csi.openstack.org", "volumeBindingMode": "WaitForFirstConsumer"});
    let classes = Api::<k8s_openapi::api::storage::v1::StorageClass>::all(env.client.clone());
    classes.patch("cinder", &PatchParams::apply("e2e").force(), &Patch::Apply(class)).await.unwrap();
    env.pending("waits", None).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    assert!(claims(&env).get_opt("waits").await.unwrap().is_none());
    classes.delete("cinder", &DeleteParams::default()).await.unwrap();
    drop(deorbiter);
}

/// A kubeconfig for a port without a listener.
async fn nowhere(env: &TestEnv) {
    let port = e2e::program::free_port().unwrap();
    let text = kubeconfig(&format!("https://127.0.0.1:{port}"), None, &[("token", "t")]).unwrap();
    env.secret("nowhere", "value", &text).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn d7_d8_an_unreachable_cluster_delays_no_other_and_is_given_up_after_the_timeout() {
    let env = TestEnv::start().await.unwrap();
    nowhere(&env).await;
    let deorbiter = env.launch().unwrap().args(["--max-concurrent-reconciles", "1"]).start().unwrap();
    for number in 0..5 {
        let away =
            json!({"kubeconfig": {"secretRef": {"name": "nowhere"}}, "timeouts": {"apiUnavailable": "1h"}});
        env.deorbit(&format!("away-{number}"), away).await.unwrap();
    }
    let lost = json!({"kubeconfig": {"secretRef": {"name": "no-such-secret"}}, "timeouts": {"apiUnavailable": "1s"}});
    env.deorbit("lost", lost).await.unwrap();
    env.deorbit("here", json!({})).await.unwrap();
    let here = env.wait_for_complete("here").await.unwrap();
    assert_eq!(
        env.status("away-0").await.unwrap().phase,
        Phase::Inventory,
        "it is still being tried: {here:?}"
    );
    for name in ["away-0", "away-4"] {
        env.set_timeouts(name, json!({"apiUnavailable": "5s"})).await.unwrap();
        let status = env.wait_for_debris(name).await.unwrap();
        assert_eq!(status.debris[0].kind, "Cluster", "{status:?}");
        let complete = status.conditions.iter().find(|one| one.kind == "Complete").unwrap();
        assert_eq!(complete.reason, "CompletedWithDebris");
    }
    // A missing Secret is not an outage: the cluster may exist.
    env.wait_for_refusal("lost", "TargetReachable", "no-such-secret").await.unwrap();
    // The metric follows the status.
    env.wait("the metric of the refusal", async || {
        let metrics = deorbiter.metrics().await?;
        let refused = metrics.sum("deorbiter_access_refused", &[("name", "lost"), ("server", "target")]);
        Ok(refused == Some(1.0))
    })
    .await
    .unwrap();
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn d9_d15_a_failure_is_counted_and_reported_as_a_warning() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", "0d5c9f3e-0000-4000-8000-000000000009", "Delete").await.unwrap();
    // It may read everything, and delete nothing.
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "create"]},
            {"apiGroups": ["admissionregistration.k8s.io"], "resources": ["*"], "verbs": ["*"]}]});
    let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": env.namespace}]});
    use k8s_openapi::api::rbac::v1 as rbac;
    let params = PatchParams::apply("e2e").force();
    let roles = Api::<rbac::ClusterRole>::all(env.client.clone());
    roles.patch("reader", &params, &Patch::Apply(role)).await.unwrap();
    let bindings = Api::<rbac::ClusterRoleBinding>::all(env.client.clone());
    bindings.patch("reader", &params, &Patch::Apply(binding)).await.unwrap();
    let token = env.control_plane.service_account_token(&env.namespace, "reader").await.unwrap();
    let text = kubeconfig(
        &env.control_plane.url(),
        Some(&env.control_plane.ca_pem().unwrap()),
        &[("token", &token)],
    )
    .unwrap();
    env.secret("target", "value", &text).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"timeouts": {"total": "1h"}})).await.unwrap();
    env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    let counted = async |name: &str, labels: &[(&str, &str)]| {
        anyhow::Ok(deorbiter.metrics().await?.sum(name, labels).is_some_and(|count| count >= 1.0))
    };
    let of_deletes = [("method", "DeleteObject"), ("reason", "Forbidden")];
    env.wait("a failure", async || counted("deorbiter_operation_failures_total", &of_deletes).await)
        .await
        .unwrap();
    env.set_timeouts("run", json!({"total": "1s"})).await.unwrap();
    let status = env.wait_for_debris("run").await.unwrap();
    assert!(status.debris[0].reason.contains("forbidden"), "{status:?}");
    // The metric and the Event follow the status.
    let of_run = [("result", "CompletedWithDebris"), ("trigger", "Manual")];
    env.wait("the metric of the run", async || counted("deorbiter_runs_total", &of_run).await).await.unwrap();
    let runs = deorbiter.metrics().await.unwrap().sum("deorbiter_runs_total", &of_run);
    assert_eq!(runs, Some(1.0));
    let events = Api::<k8s_openapi::api::events::v1::Event>::namespaced(env.client.clone(), &env.namespace);
    let reported = |event: &k8s_openapi::api::events::v1::Event| {
        let note = event.note.as_deref().unwrap_or_default();
        event.type_.as_deref() == Some("Warning")
            && note.contains("delete PersistentVolumeClaim")
            && note.contains("forbidden")
    };
    env.wait("the Event", async || Ok(events.list(&ListParams::default()).await?.items.iter().any(reported)))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule"]
async fn d11_without_credentials_load_balancers_get_the_grace_period() {
    let env = TestEnv::start().await.unwrap();
    env.service("web", "0d5c9f3e-0000-4000-8000-00000000000b").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"timeouts": {"loadBalancerGrace": "6s"}})).await.unwrap();
    env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    let services = Api::<Service>::namespaced(env.client.clone(), &env.namespace);
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    services.patch("web", &PatchParams::default(), &free).await.unwrap();
    let status = env.wait_for_complete("run").await.unwrap();
    let took = status.completion_time.unwrap().duration_since(status.start_time.unwrap());
    assert!(took.as_secs() >= 6, "{took}");
    drop(deorbiter);
}

/// The API server drops class and status with the type; finalizer and annotation stay.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_whose_type_changed_is_recorded_while_its_load_balancer_is_deleted() {
    const ID: &str = "0d5c9f3e-0000-4000-8000-00000000000c";
    let env = TestEnv::start().await.unwrap();
    env.service("web", ID).await.unwrap();
    let services = Api::<Service>::namespaced(env.client.clone(), &env.namespace);
    let change = Patch::Merge(json!({"spec": {"type": "ClusterIP"}}));
    services.patch("web", &PatchParams::default(), &change).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"timeouts": {"loadBalancerGrace": "1s"}})).await.unwrap();
    let status = env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    assert_eq!(env.records("run").await.unwrap()[0]["id"], ID, "{status:?}");
    env.wait("the Service to be deleted", async || {
        Ok(services.get("web").await?.metadata.deletion_timestamp.is_some())
    })
    .await
    .unwrap();
    // The block allows the removal of the finalizer.
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    services.patch("web", &PatchParams::default(), &free).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    assert!(services.get_opt("web").await.unwrap().is_none());
    drop(deorbiter);
}

async fn resource_version(env: &TestEnv, name: &str) -> String {
    env.deorbits().get(name).await.unwrap().metadata.resource_version.unwrap()
}

async fn reconciles(deorbiter: &Program) -> f64 {
    deorbiter
        .metrics()
        .await
        .unwrap()
        .sum("controller_runtime_reconcile_total", &[("controller", "deorbit")])
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn d17_the_status_shows_progress_and_nothing_is_written_while_nothing_changes() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", "0d5c9f3e-0000-4000-8000-000000000011", "Delete").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    let status = env.wait_for_phase("run", Phase::Deleting).await.unwrap();
    let records = env.records("run").await.unwrap();
    assert_eq!((records.len(), status.remaining), (1, 1));
    assert_eq!(records[0]["id"], "0d5c9f3e-0000-4000-8000-000000000011");
    // The claim is deleted; its PersistentVolume stays, and nothing else changes.
    env.wait("the claim to go", async || Ok(claims(&env).get_opt("data").await?.is_none())).await.unwrap();
    let settled = reconciles(&deorbiter).await;
    env.wait("two reconciles", async || Ok(reconciles(&deorbiter).await >= settled + 2.0)).await.unwrap();
    let before = (resource_version(&env, "run").await, reconciles(&deorbiter).await);
    env.wait("three reconciles", async || Ok(reconciles(&deorbiter).await >= before.1 + 3.0)).await.unwrap();
    assert_eq!(resource_version(&env, "run").await, before.0);
    assert!(deorbiter.get("/statusz").await.unwrap().1.contains("phase      Deleting"));
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: the plan's tests have the rule, the test of a run that is protected has the API server"]
async fn a_protected_deorbit_does_nothing_and_a_kept_claim_stays() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", "0d5c9f3e-0000-4000-8000-000000000012", "Delete").await.unwrap();
    let keep = Patch::Merge(json!({"metadata": {"annotations": {"deorbiter.perimeter.dev/keep": "true"}}}));
    claims(&env).patch("data", &PatchParams::default(), &keep).await.unwrap();
    env.deorbit("run", json!({})).await.unwrap();
    let protect = |value: Option<&str>| {
        Patch::Merge(json!({"metadata": {"annotations": {"deorbiter.perimeter.dev/protect": value}}}))
    };
    env.deorbits().patch("run", &PatchParams::default(), &protect(Some("true"))).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.wait("the condition", async || {
        Ok(env.status("run").await?.conditions.iter().any(|one| one.kind == "Protected"))
    })
    .await
    .unwrap();
    assert_eq!(env.status("run").await.unwrap().phase, Phase::Pending);
    env.deorbits().patch("run", &PatchParams::default(), &protect(None)).await.unwrap();
    env.wait_for_complete("run").await.unwrap();
    assert_eq!(claims(&env).get("data").await.unwrap().metadata.deletion_timestamp, None);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "full: 700 claims; the tests of the records have the limit"]
async fn a_status_stays_small_with_many_objects() {
    const MANY: usize = 700;
    let env = TestEnv::start().await.unwrap();
    for number in 0..MANY {
        let id = format!("0d5c9f3e-0000-4000-9000-{number:012}");
        env.claim_of(&format!("data-{number}"), "cinder.csi.openstack.org", &id, "Delete").await.unwrap();
    }
    env.claim("last", "0d5c9f3e-0000-4000-9000-999999999999", "Delete").await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    env.deorbit("run", json!({"timeouts": {"total": "60s"}})).await.unwrap();
    let status = env.wait_for_debris("run").await.unwrap();
    let all = i64::try_from(MANY).unwrap() + 1;
    assert_eq!(status.debris_count, all);
    let size = serde_json::to_vec(&status).unwrap().len();
    assert!(size < 200_000, "{size} bytes");
    let maps = Api::<ConfigMap>::namespaced(env.client.clone(), &env.namespace);
    let map = maps.get(&status.records).await.unwrap();
    let owner = &map.metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Deorbit", "run"));
    assert!(map.data.unwrap()["records.json"].contains("0d5c9f3e-0000-4000-9000-000000000123"));
    let volumes = Api::<PersistentVolume>::all(env.client.clone());
    assert!(volumes.list(&ListParams::default()).await.unwrap().items.len() >= MANY);
    drop(deorbiter);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_dry_run_of_the_command_line_lists_what_a_real_run_deletes() {
    let env = TestEnv::start().await.unwrap();
    env.claim("data", "0d5c9f3e-0000-4000-8000-000000000013", "Delete").await.unwrap();
    env.claim("kept", "0d5c9f3e-0000-4000-8000-000000000014", "Retain").await.unwrap();
    let command = e2e::program::Program::binary("deorbiter").unwrap();
    let command = command.env("KUBECONFIG", env.control_plane.kubeconfig()).args([
        "--dry-run",
        "--log-filter",
        "error",
    ]);
    let run = command.start().unwrap();
    assert_eq!(run.wait_exit().await.unwrap().code(), Some(0));
    let text = run.output().lines().join("\n");
    let expected =
        format!("delete PersistentVolumeClaim {}/data (0d5c9f3e-0000-4000-8000-000000000013)", env.namespace);
    assert!(text.contains(&expected), "{text}");
    assert!(text.contains("0d5c9f3e-0000-4000-8000-000000000014") && text.contains("is Retain"), "{text}");
    env.deorbit("dry", json!({"dryRun": true})).await.unwrap();
    let deorbiter = env.deorbiter().unwrap();
    let holds = |status: &DeorbitStatus, kind: &str| {
        status.conditions.iter().any(|one| one.kind == kind && one.status == Status::True)
    };
    env.wait("the plan", async || Ok(holds(&env.status("dry").await?, "Planned"))).await.unwrap();
    let status = env.status("dry").await.unwrap();
    assert!(!status.phase.is_final() && !holds(&status, "Complete"), "{status:#?}");
    assert_eq!((status.phase, status.remaining, status.kept), (Phase::Planned, 1, 1));
    assert_eq!(env.records("dry").await.unwrap().len(), 2);
    assert_eq!(claims(&env).get("data").await.unwrap().metadata.deletion_timestamp, None);
    let runs = deorbiter.metrics().await.unwrap().sum("deorbiter_runs_total", &[]);
    assert_eq!(runs, Some(0.0), "it is no run");
    // Switched off, the same object deletes what it planned.
    let off = Patch::Merge(json!({"spec": {"dryRun": false}}));
    let _: Deorbit = env.deorbits().patch("dry", &PatchParams::default(), &off).await.unwrap();
    env.wait("the claim to be deleted", async || Ok(claims(&env).get_opt("data").await?.is_none()))
        .await
        .unwrap();
    drop(deorbiter);
}
