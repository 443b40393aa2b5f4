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
        (spec.retained, spec.freeze, spec.leftovers),
        (Retained::Keep, Freeze::Policy, Leftovers::Report)
    );
    assert_eq!((spec.resources.services, spec.resources.ingresses), (Choice::Delete, Choice::Keep));
    assert_eq!(
        serde_json::to_value(spec.timeouts).unwrap(),
        serde_json::json!({"hang": "24h", "apiUnavailable": "10m", "perObject": "30m", "loadBalancerGrace": "2m"})
    );
}

#[test]
fn the_schema_has_rules_defaults_and_columns() {
    let crd = serde_json::to_value(Deorbit::crd()).unwrap();
    let version = &crd["spec"]["versions"][0];
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"];
    assert_eq!(spec["x-kubernetes-validations"].as_array().unwrap().len(), 8);
    assert_eq!(spec["properties"]["timeouts"]["default"]["hang"], "24h");
    assert_eq!(spec["properties"]["inCluster"]["default"], false);
    let columns: Vec<&str> = version["additionalPrinterColumns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns, ["Phase", "Remaining", "Debris", "Age", "Message"]);
    assert_eq!(crd["metadata"]["name"], "deorbits.deorbiter.perimeter.dev");
}

#[test]
fn phases_are_in_order_and_the_last_three_are_final() {
    assert!(Phase::ALL.is_sorted());
    assert_eq!(Phase::ALL.iter().filter(|phase| phase.is_final()).count(), 3);
    assert_eq!(Phase::CompletedWithDebris.to_string(), "CompletedWithDebris");
}
