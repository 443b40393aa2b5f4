//! A DeorbitBinding to Klusters: finalizer `deorbiter`, phases, termination protection.

use common::api::deorbit::{Deorbit, Phase};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::env::{TestEnv, example, wait, wait_for};

const PROTECTION: &str = "kubernikus.cloud.sap/termination-protection";

/// The example of the manifests, without OpenStack.
pub fn binding() -> Value {
    let mut spec = example("kluster-binding.yaml")["spec"].clone();
    spec["template"]["spec"] = json!({
        "kubeconfig": { "secretRef": { "name": "{.metadata.name}-kubeconfig" } },
        // The deletion of a run without a kubeconfig waits for its block so long.
        "timeouts": { "loadBalancerGrace": "0s", "apiUnavailable": "20s" },
    });
    spec
}

#[tokio::test]
async fn a_kluster_is_released_when_its_deorbit_is_complete() {
    let env = TestEnv::start().await;
    env.kluster("prod", "Creating").await;
    env.bind("klusters", binding()).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("the binding is in force", || async { env.ready("klusters").await.0 == "InForce" }).await;
    assert_eq!(env.finalizers("prod").await.unwrap(), ["groundctl"], "not before it runs");
    env.patch_kluster("prod", json!({ "status": { "phase": "Running" } })).await;
    wait("the finalizer", || async { env.finalizers("prod").await.unwrap() == ["groundctl", "deorbiter"] })
        .await;

    // Its deletion begins, but Kubernikus has not begun to terminate it.
    env.patch_kluster("prod", json!({ "metadata": { "annotations": { PROTECTION: "true" } } })).await;
    env.delete_kluster("prod").await;
    wait("it is held", || async { env.binding("klusters").await.unwrap()["status"]["held"] == 1 }).await;
    env.patch_kluster("prod", json!({ "metadata": { "annotations": { PROTECTION: null } } })).await;
    wait("it waits for its phase", || async {
        let status = env.binding("klusters").await.unwrap()["status"].clone();
        status["held"] == 0 && status["deorbiting"] == 1
    })
    .await;
    assert!(env.deorbits().await.is_empty());

    // Without its Secret the Deorbit does not begin, so it can be checked.
    env.patch_kluster("prod", json!({ "status": { "phase": "Terminating" } })).await;
    let deorbit = wait_for("a Deorbit", || async { env.deorbits().await.pop() }).await;
    let kluster = env.klusters().get("prod").await.unwrap();
    assert_eq!(deorbit.labels()["deorbiter.perimeter.dev/target-uid"], kluster.uid().unwrap());
    assert!(deorbit.name_any().starts_with("prod-") && deorbit.owner_references().is_empty());
    assert_eq!(deorbit.spec.kubeconfig.as_ref().unwrap().secret_ref.name, "prod-kubeconfig");

    // S9: only this Deorbit releases the Kluster.
    wait("the Kluster names its Deorbit", || async {
        let kluster = env.klusters().get("prod").await.unwrap();
        kluster.annotations().get("deorbiter.perimeter.dev/deorbit-uid") == deorbit.uid().as_ref()
    })
    .await;

    // When the Kluster is protected again, the Deorbit is aborted; without protection another one is created.
    env.patch_kluster("prod", json!({ "metadata": { "annotations": { PROTECTION: "yes" } } })).await;
    wait("it is aborted", || async { env.deorbits().await.is_empty() }).await;
    env.patch_kluster("prod", json!({ "metadata": { "annotations": { PROTECTION: null } } })).await;
    env.kubeconfig_secret("prod-kubeconfig").await;
    let done = env.wait_for_phase(Phase::Succeeded).await;
    assert_eq!(done.name_any(), deorbit.name_any());
    assert_ne!(done.uid(), deorbit.uid());
    wait("its finalizer is off", || async { env.finalizers("prod").await.unwrap() == ["groundctl"] }).await;

    // The other finalizers are removed too; the Deorbit stays.
    env.patch_kluster("prod", json!({ "metadata": { "finalizers": null } })).await;
    wait("it is gone", || async { env.finalizers("prod").await.is_none() }).await;
    assert_eq!(env.deorbits().await.len(), 1);
    drop(deorbiter);
}

#[tokio::test]
#[ignore = "full: the plan's tests have the rule, the test of hooks has the API server"]
async fn a_deleted_binding_removes_its_finalizers_and_no_others() {
    let env = TestEnv::start().await;
    for name in ["one", "two"] {
        env.kluster(name, "Running").await;
    }
    // The original's own finalizer on a Kluster that is not selected.
    env.kluster("foreign", "Running").await;
    env.patch_kluster(
        "foreign",
        json!({ "metadata": { "finalizers": ["deorbiter", "groundctl"], "labels": { "left": "alone" } } }),
    )
    .await;
    let mut spec = binding();
    spec["targetRef"]["labelSelector"] =
        json!({ "matchExpressions": [{ "key": "left", "operator": "DoesNotExist" }] });
    env.bind("klusters", spec).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("both are bound", || async { env.binding("klusters").await.unwrap()["status"]["bound"] == 2 }).await;

    let bindings = Api::<common::api::deorbit_binding::DeorbitBinding>::all(env.client.clone());
    bindings.delete("klusters", &DeleteParams::default()).await.unwrap();
    wait("the binding is gone", || async { env.binding("klusters").await.is_none() }).await;
    for name in ["one", "two"] {
        assert_eq!(env.finalizers(name).await.unwrap(), ["groundctl"]);
        let marks = env.klusters().get(name).await.unwrap();
        assert!(!marks.annotations().contains_key("deorbiter.perimeter.dev/bound-by"));
    }
    assert_eq!(env.finalizers("foreign").await.unwrap(), ["deorbiter", "groundctl"]);
    drop(deorbiter);
}

#[tokio::test]
async fn an_unusable_binding_reports_it_in_its_condition_and_binds_nothing() {
    let env = TestEnv::start().await;
    env.kluster("prod", "Running").await;
    let mut spec = binding();
    spec["template"]["spec"]["kubeconfig"]["secretRef"]["name"] = json!("{.metadata.name[0]}-kubeconfig");
    env.bind("bad-path", spec).await;
    let mut spec = binding();
    spec["targetRef"]["kind"] = json!("Kaster");
    env.bind("no-kind", spec).await;
    let mut spec = binding();
    spec["targetRef"] = json!({ "apiVersion": "v1", "kind": "Secret" });
    env.bind("no-right", spec).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("a path is refused", || async {
        let (reason, message) = env.ready("bad-path").await;
        reason == "Invalid"
            && message.contains("template.spec.kubeconfig.secretRef.name: \".metadata.name[0]")
    })
    .await;
    wait("a kind is missing", || async { env.ready("no-kind").await.0 == "KindNotServed" }).await;
    wait("a right is missing", || async {
        let (reason, message) = env.ready("no-right").await;
        reason == "TargetsUnknown" && message.contains("forbidden")
    })
    .await;
    assert_eq!(env.finalizers("prod").await.unwrap(), ["groundctl"]);

    // The API server refuses at once a change that the schema forbids.
    let api = Api::<common::api::deorbit_binding::DeorbitBinding>::all(env.client.clone());
    let refused = async |patch: Value| {
        let patch = Patch::Merge(patch);
        let response = api.patch("bad-path", &PatchParams::default(), &patch).await;
        response.unwrap_err().to_string()
    };
    assert!(
        refused(json!({ "spec": { "finalizer": "another" } })).await.contains("finalizer cannot be changed")
    );
    assert!(
        refused(json!({ "spec": { "targetRef": { "kind": "Other" } } }))
            .await
            .contains("targetRef cannot be changed")
    );
    drop(deorbiter);
}

/// A missing right `get` for one kind stops the binding of that kind and no other.
#[tokio::test]
async fn a_kind_whose_objects_cannot_be_read_stops_only_its_own_binding() {
    let env = TestEnv::start().await;
    env.kluster("prod", "Running").await;
    env.create("example.com/v1", "Tower", "one", json!({ "status": { "phase": "Running" } })).await;
    let mut spec = binding();
    spec["targetRef"] = json!({ "apiVersion": "example.com/v1", "kind": "Tower" });
    env.bind("a-towers", spec).await;
    env.bind("klusters", binding()).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("a right is missing", || async {
        let (reason, message) = env.ready("a-towers").await;
        reason == "TargetsUnknown" && message.contains("forbidden")
    })
    .await;
    wait("the other is in force", || async { env.ready("klusters").await.0 == "InForce" }).await;
    wait("its object is bound", || async {
        env.finalizers("prod").await.unwrap() == ["groundctl", "deorbiter"]
    })
    .await;
    let towers = env.api("example.com/v1", "Tower");
    assert!(towers.get("one").await.unwrap().finalizers().is_empty());

    let rule = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": { "name": "e2e-targets" },
        "rules": [{ "apiGroups": ["example.com"], "resources": ["towers"], "verbs": ["get", "list", "watch", "patch"] }] });
    let roles = Api::<ClusterRole>::all(env.client.clone());
    roles.patch("e2e-targets", &PatchParams::apply("e2e"), &Patch::Apply(&rule)).await.unwrap();
    wait("it is in force", || async { env.ready("a-towers").await.0 == "InForce" }).await;
    wait("it is bound", || async { !towers.get("one").await.unwrap().finalizers().is_empty() }).await;
    drop(deorbiter);
}

/// The API server's validation rules apply to a filled template.
#[tokio::test]
#[ignore = "full: the plan's tests have the rule, the test of a forbidden one has the API server"]
async fn an_object_whose_deorbit_is_refused_is_held_until_it_changes() {
    let env = TestEnv::start().await;
    env.kubeconfig_secret("prod-kubeconfig").await;
    env.kluster("prod", "Running").await;
    let note = |text: String| json!({ "metadata": { "annotations": { "note": text } } });
    env.patch_kluster("prod", note("x".repeat(300))).await;
    let mut spec = binding();
    spec["template"]["spec"]["clusterName"] = json!("{.metadata.annotations.note}");
    env.bind("klusters", spec).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("the finalizer", || async { env.finalizers("prod").await.unwrap() == ["groundctl", "deorbiter"] })
        .await;
    env.delete_kluster("prod").await;
    env.patch_kluster("prod", json!({ "status": { "phase": "Terminating" } })).await;
    wait("it is held", || async { env.binding("klusters").await.unwrap()["status"]["held"] == 1 }).await;
    let tries = async || {
        let metrics = deorbiter.metrics().await.unwrap();
        let failed = [("action", "CreateDeorbit"), ("result", "failed")];
        metrics.sum("perimeter_actions_total", &failed).unwrap_or_default()
    };
    let before = tries().await;
    assert!(before >= 1.0);
    // Two more reconciliations of all objects: the second begins after the first has ended.
    for other in ["other", "third"] {
        env.kluster(other, "Running").await;
        wait("a further reconciliation", || async {
            env.finalizers(other).await.unwrap() == ["groundctl", "deorbiter"]
        })
        .await;
    }
    assert_eq!(tries().await, before, "a refused creation is not repeated");
    env.patch_kluster("prod", note("prod".into())).await;
    env.wait_for_phase(Phase::Succeeded).await;
    wait("its finalizer is off", || async { env.finalizers("prod").await.unwrap() == ["groundctl"] }).await;
}

/// A policy, a quota and a namespace that is being deleted cause a 403, and fixing that does not change the object.
#[tokio::test]
async fn an_object_whose_deorbit_is_forbidden_is_held_until_that_is_lifted() {
    let env = TestEnv::start().await;
    env.kubeconfig_secret("prod-kubeconfig").await;
    env.kluster("prod", "Running").await;
    env.bind("klusters", binding()).await;
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": "not-today" },
        "spec": {
            "matchConstraints": { "resourceRules": [{ "apiGroups": ["deorbiter.perimeter.dev"], "apiVersions": ["*"],
                "operations": ["CREATE"], "resources": ["deorbits"] }] },
            "validations": [{ "expression": "false", "message": "not today", "reason": "Forbidden" }],
        },
    });
    let policies = Api::<ValidatingAdmissionPolicy>::all(env.client.clone());
    policies.patch("not-today", &PatchParams::apply("e2e"), &Patch::Apply(&policy)).await.unwrap();
    let in_force = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": "not-today" },
        "spec": { "policyName": "not-today", "validationActions": ["Deny"] },
    });
    let bindings = Api::<ValidatingAdmissionPolicyBinding>::all(env.client.clone());
    bindings.patch("not-today", &PatchParams::apply("e2e"), &Patch::Apply(&in_force)).await.unwrap();
    let deorbits = Api::<Deorbit>::namespaced(env.client.clone(), &env.namespace);
    let only_try = PostParams { dry_run: true, ..PostParams::default() };
    let probe = Deorbit::new("probe", serde_json::from_value(json!({ "inCluster": true })).unwrap());
    wait("the policy is in force", || async {
        let response = deorbits.create(&only_try, &probe).await;
        matches!(response, Err(kube::Error::Api(status)) if status.code == 403)
    })
    .await;

    let deorbiter = env.deorbiter().start().unwrap();
    wait("the finalizer", || async { env.finalizers("prod").await.unwrap() == ["groundctl", "deorbiter"] })
        .await;
    env.delete_kluster("prod").await;
    env.patch_kluster("prod", json!({ "status": { "phase": "Terminating" } })).await;
    wait("it is held", || async { env.binding("klusters").await.unwrap()["status"]["held"] == 1 }).await;
    assert!(env.deorbits().await.is_empty());
    bindings.delete("not-today", &DeleteParams::default()).await.unwrap();
    env.wait_for_phase(Phase::Succeeded).await;
    wait("its finalizer is off", || async { env.finalizers("prod").await.unwrap() == ["groundctl"] }).await;
    drop(deorbiter);
}

#[tokio::test]
async fn a_kind_that_is_deleted_and_recreated_is_noticed() {
    let env = TestEnv::start().await;
    let mut spec = binding();
    spec["targetRef"] = json!({ "apiVersion": "example.com/v1", "kind": "Castle" });
    for phase in ["whenPhase", "finalizerWhenPhase"] {
        spec.as_object_mut().unwrap().remove(phase);
    }
    env.bind("castles", spec).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("the binding is in force", || async { env.ready("castles").await.0 == "InForce" }).await;
    let definitions = Api::<CustomResourceDefinition>::all(env.client.clone());
    let mut definition = definitions.get("castles.example.com").await.unwrap();
    definitions.delete("castles.example.com", &DeleteParams::default()).await.unwrap();
    wait("the kind is gone", || async { env.ready("castles").await.0 == "KindNotServed" }).await;
    definition.metadata.resource_version = None;
    definition.status = None;
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    wait("the binding is in force again", || async { env.ready("castles").await.0 == "InForce" }).await;
    env.create("example.com/v1", "Castle", "one", json!({})).await;
    let castles = env.api("example.com/v1", "Castle");
    wait("it is bound", || async { !castles.get("one").await.unwrap().finalizers().is_empty() }).await;

    // The castle has no kubeconfig, so its Deorbit is refused and its finalizer stays: an administrator removes it.
    definitions.delete("castles.example.com", &DeleteParams::default()).await.unwrap();
    wait("the castle is being deleted", || async {
        castles.get("one").await.unwrap().metadata.deletion_timestamp.is_some()
    })
    .await;
    let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    castles.patch("one", &PatchParams::default(), &without).await.unwrap();
    wait("the kind is gone again", || async { env.ready("castles").await.0 == "KindNotServed" }).await;

    // A binding of a kind that is gone has no finalizer to remove.
    let bindings = Api::<common::api::deorbit_binding::DeorbitBinding>::all(env.client.clone());
    bindings.delete("castles", &DeleteParams::default()).await.unwrap();
    wait("the binding is gone", || async { env.binding("castles").await.is_none() }).await;
    drop(deorbiter);
}

/// Concurrent writes of other clients to the finalizers are not lost.
#[tokio::test]
#[ignore = "full: the patch's tests have the rule"]
async fn concurrent_writes_to_finalizers_are_not_lost() {
    let env = TestEnv::start().await;
    for number in 0..10 {
        env.kluster(&format!("k{number}"), "Running").await;
    }
    env.bind("klusters", binding()).await;
    let deorbiter = env.deorbiter().start().unwrap();
    // Another client adds finalizers while deorbiter adds its own.
    for number in 0..10 {
        let name = format!("k{number}");
        let api = env.klusters();
        let request = http::Request::patch(format!("{}/{name}", api.resource_url()))
            .header("content-type", "application/json-patch+json")
            .body(
                json!([{ "op": "add", "path": "/metadata/finalizers/-", "value": "example.org/other" }])
                    .to_string()
                    .into_bytes(),
            )
            .unwrap();
        env.client.request::<Value>(request).await.unwrap();
    }
    for number in 0..10 {
        let name = format!("k{number}");
        wait("all three are there", || async {
            let mut found = env.finalizers(&name).await.unwrap();
            found.sort();
            found == ["deorbiter", "example.org/other", "groundctl"]
        })
        .await;
    }
    drop(deorbiter);
}

/// Reconciliations without anything to do write nothing.
#[tokio::test]
async fn at_rest_nothing_is_written() {
    let env = TestEnv::start().await;
    env.kluster("prod", "Running").await;
    env.bind("klusters", binding()).await;
    let deorbiter = env.deorbiter().start().unwrap();
    wait("it is bound", || async { env.binding("klusters").await.unwrap()["status"]["bound"] == 1 }).await;
    let before = env.klusters().get("prod").await.unwrap().resource_version();
    for number in 2..5 {
        env.kluster(&format!("later-{number}"), "Running").await;
        wait("it is bound too", || async {
            env.binding("klusters").await.unwrap()["status"]["bound"] == number
        })
        .await;
    }
    assert_eq!(env.klusters().get("prod").await.unwrap().resource_version(), before, "it was not written");
    let metrics = deorbiter.metrics().await.unwrap();
    assert_eq!(metrics.sum("deorbiter_binding_bound", &[("binding", "klusters")]), Some(4.0));
    assert_eq!(metrics.sum("deorbiter_binding_ready", &[("binding", "klusters")]), Some(1.0));
}
