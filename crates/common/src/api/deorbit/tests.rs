use kube::CustomResourceExt as _;

use super::*;

#[test]
fn the_smallest_spec_has_the_documented_defaults() {
    let spec: DeorbitSpec = serde_json::from_value(
        serde_json::json!({"kubeconfig": {"secretRef": {"name": "prod-7-kubeconfig"}}}),
    )
    .unwrap();
    assert_eq!(spec.kubeconfig.unwrap().secret_ref.key, "value");
    assert_eq!(
        (spec.retained_volumes, spec.creation_block, spec.orphan_policy),
        (RetainedVolumes::Keep, CreationBlock::Policy, OrphanPolicy::Report)
    );
    assert_eq!(spec.provider, Provider::OpenStack);
    assert_eq!((spec.resources.services, spec.resources.ingresses), (Choice::Delete, Choice::Keep));
    assert!(!spec.cluster_survives && spec.ttl_seconds_after_finished.is_none());
    assert_eq!(
        serde_json::to_value(spec.timeouts).unwrap(),
        serde_json::json!({"total": "24h", "apiUnavailable": "10m", "perObject": "30m", "loadBalancerGrace": "2m"})
    );
}

#[test]
fn the_schema_has_rules_defaults_and_columns_with_descriptions() {
    let crd = serde_json::to_value(Deorbit::crd()).unwrap();
    let version = &crd["spec"]["versions"][0];
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["x-kubernetes-validations"].as_array().unwrap().len(), 17);
    let credential = &spec["properties"]["openstack"]["properties"]["applicationCredential"];
    assert_eq!((&credential["default"], credential["enum"].as_array().unwrap().len()), (&"Keep".into(), 2));
    assert_eq!(spec["properties"]["timeouts"]["default"]["total"], "24h");
    assert_eq!(spec["properties"]["inCluster"]["default"], false);
    let columns = version["additionalPrinterColumns"].as_array().unwrap();
    let names: Vec<&str> = columns.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["Phase", "Reason", "Target", "Trigger", "Remaining", "Kept", "Debris", "Age", "Message"]
    );
    assert!(columns.iter().all(|one| one["description"].is_string()), "{columns:?}");
    assert_eq!(crd["metadata"]["name"], "deorbits.deorbiter.perimeter.dev");
    assert_eq!(crd["spec"]["names"]["shortNames"], serde_json::json!(["deo"]));
}

#[test]
fn phases_are_in_order_and_the_last_two_are_final() {
    assert!(Phase::ALL.is_sorted());
    assert_eq!(Phase::ALL.iter().filter(|phase| phase.is_final()).count(), 2);
    assert_eq!(Phase::Succeeded.to_string(), "Succeeded");
}

/// The API server validates a status when it is written, not when it is read.
#[test]
fn a_phase_of_another_version_is_readable_and_not_in_the_schema() {
    let status: DeorbitStatus = serde_json::from_value(serde_json::json!({"phase": "Wait"})).unwrap();
    assert_eq!((status.phase, status.phase.is_final()), (Phase::Unknown, false));
    let crd = serde_json::to_value(Deorbit::crd()).unwrap();
    let status = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"];
    let phases = status["properties"]["phase"]["enum"].as_array().unwrap();
    assert_eq!(phases.len(), Phase::ALL.len(), "{phases:?}");
}
