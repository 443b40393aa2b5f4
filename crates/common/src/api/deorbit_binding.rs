//! `DeorbitBinding`: binds a kind of object to deorbiter. What is selected gets a finalizer; when it is deleted, a Deorbit
//! of its cluster runs first.

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::conditions::Condition;

/// Default of [`DeorbitBindingSpec::finalizer`].
pub const FINALIZER: &str = "deorbiter.perimeter.dev/cleanup";
/// First default of [`DeorbitBindingSpec::protection_annotations`]: ours.
pub const PROTECT_ANNOTATION: &str = "deorbiter.perimeter.dev/protect";
/// Second default of [`DeorbitBindingSpec::protection_annotations`]: Kubernikus's.
pub const KUBERNIKUS_PROTECT_ANNOTATION: &str = "kubernikus.cloud.sap/termination-protection";

/// The selection of objects that stand for clusters, and the template of their Deorbits.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.machineHook == 'None' || (self.targetRef.kind == 'Cluster' && self.targetRef.apiVersion.startsWith('cluster.x-k8s.io/'))").message("machineHook is for the kind Cluster of cluster.x-k8s.io")
)]
#[kube(
    group = "deorbiter.perimeter.dev",
    version = "v1alpha1",
    kind = "DeorbitBinding",
    plural = "deorbitbindings",
    category = "perimeter",
    shortname = "deob",
    status = "DeorbitBindingStatus",
    derive = "PartialEq",
    doc = "Binds a kind of object to deorbiter: what is selected gets a finalizer, and when it is deleted, a Deorbit of its cluster runs before the finalizer is taken off. Removing the binding takes the finalizer off everything that is not being deleted.",
    printcolumn = r#"{"name":"Kind","description":"Kind of the objects that stand for clusters.","type":"string","jsonPath":".spec.targetRef.kind"}"#,
    printcolumn = r#"{"name":"Ready","description":"Whether the binding is in force.","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].status"}"#,
    printcolumn = r#"{"name":"Reason","description":"Why, or why not.","type":"string","jsonPath":".status.conditions[?(@.type=='Ready')].reason"}"#,
    printcolumn = r#"{"name":"Bound","description":"Objects with the finalizer.","type":"integer","jsonPath":".status.bound"}"#,
    printcolumn = r#"{"name":"Deorbiting","description":"Objects that wait for their Deorbit.","type":"integer","jsonPath":".status.deorbiting"}"#,
    printcolumn = r#"{"name":"Held","description":"Objects that wait for a person.","type":"integer","jsonPath":".status.held"}"#,
    printcolumn = r#"{"name":"Age","description":"Age of this object.","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"Finalizer","description":"The finalizer of the objects.","type":"string","jsonPath":".spec.finalizer","priority":1}"#
)]
pub struct DeorbitBindingSpec {
    /// The objects that stand for clusters. Cannot be changed: make another binding and delete this one.
    #[x_kube(validation = Rule::new("self == oldSelf").message("targetRef cannot be changed; make another binding and delete this one"))]
    pub target_ref: TargetRef,
    /// The finalizer that is put on each of them. Kubernikus's own is `deorbiter`. Cannot be changed.
    #[serde(default = "finalizer")]
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")
    )]
    #[x_kube(validation = Rule::new("self == oldSelf").message("finalizer cannot be changed; make another binding and delete this one"))]
    pub finalizer: String,
    /// Only an object in this phase gets the finalizer. Without it each gets it at once. An object that is deleted before it
    /// was ever in that phase is not deorbited: leave this out unless another program relies on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer_when_phase: Option<PhaseRule>,
    /// The Deorbit of an object that is being deleted begins in this phase. Without it, it begins at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when_phase: Option<PhaseRule>,
    /// An object that carries one of these annotations, with any value but an empty one or `false`, is not deorbited and
    /// keeps its finalizer. A Deorbit that runs is aborted.
    #[serde(default = "protection_annotations")]
    #[schemars(length(max = 16), inner(length(min = 1, max = 317)), extend("x-kubernetes-list-type" = "set"))]
    pub protection_annotations: Vec<String>,
    /// PreTerminate, for Clusters of Cluster API: each Machine of a Cluster with the finalizer has the pre-terminate hook, so that its
    /// server stays until the finalizer is removed. Cluster API waits for no finalizer before it deletes the servers of a Cluster.
    /// Cannot be changed.
    #[serde(default)]
    #[x_kube(validation = Rule::new("self == oldSelf").message("machineHook cannot be changed; make another binding and delete this one"))]
    pub machine_hook: MachineHook,
    /// Template of the Deorbit of an object.
    pub template: DeorbitTemplate,
}

/// Hook on the Machines of a Cluster of Cluster API.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineHook {
    /// They have none.
    #[default]
    None,
    /// Annotation `pre-terminate.delete.hook.machine.cluster.x-k8s.io/deorbiter`.
    PreTerminate,
}

/// Selection of objects of one kind, by their labels and by the labels of their namespaces.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("!self.apiVersion.startsWith('deorbiter.perimeter.dev/')").message("an object of deorbiter's own stands for no cluster"))]
pub struct TargetRef {
    /// Group and version: `kubernikus.sap.cc/v1`.
    #[schemars(
        length(min = 1, max = 317),
        regex(pattern = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*$")
    )]
    pub api_version: String,
    /// Kind: `Kluster`.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Z][A-Za-z0-9]*$"))]
    pub kind: String,
    /// Selects objects by their labels. If not set, objects with any labels are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<LabelSelector>,
    /// Selects objects by the labels of their namespaces. If not set, objects of all namespaces are selected. Refused
    /// for a kind without namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// A selector with Kubernetes' meaning: all of its parts must hold; an empty one selects everything.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels and the values that they must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 32))]
    pub match_labels: BTreeMap<String, String>,
    /// Conditions on labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub match_expressions: Vec<LabelExpression>,
}

/// A condition on one label.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.operator in ['In', 'NotIn'] ? size(self.values) > 0 : size(self.values) == 0").message("In and NotIn take values, Exists and DoesNotExist none")
)]
pub struct LabelExpression {
    /// Key of the label, with its prefix if it has one.
    #[schemars(length(min = 1, max = 317))]
    pub key: String,
    /// Condition that the label must meet.
    pub operator: LabelOperator,
    /// The values, for In and NotIn.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 63)))]
    pub values: Vec<String>,
}

/// Condition that a label must meet.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelOperator {
    /// Its value is one of these.
    In,
    /// It is absent, or its value is none of these.
    NotIn,
    /// It is there.
    Exists,
    /// It is absent.
    DoesNotExist,
}

/// A field and the value that it must have.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PhaseRule {
    /// A field path: `.status.phase`, or `.metadata.annotations['example.org/state']`.
    #[schemars(length(min = 2, max = 253), regex(pattern = r"^\.[A-Za-z_]"))]
    pub path: String,
    /// Its value, as text.
    #[schemars(length(max = 253))]
    pub equals: String,
}

/// Template of a Deorbit. Texts may hold field paths of the object in braces: `{.metadata.name}-kubeconfig`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeorbitTemplate {
    /// Its namespace. Default: that of the object; must be given for a kind without namespaces. Its Secrets are looked for
    /// there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub namespace: Option<String>,
    /// Labels of the Deorbit. Those that deorbiter itself puts on it win.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 32))]
    pub labels: BTreeMap<String, String>,
    /// Annotations of the Deorbit.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(length(max = 32))]
    pub annotations: BTreeMap<String, String>,
    /// Its spec: what `kubectl explain deorbit.spec` shows, with field paths where texts are allowed.
    #[schemars(schema_with = "any_object")]
    pub spec: Map<String, Value>,
}

/// State of a binding as deorbiter last observed it.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DeorbitBindingStatus {
    /// The generation of the spec that all of this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Objects that carry the finalizer for this binding.
    #[serde(default)]
    pub bound: i32,
    /// Of these, objects that are being deleted and whose Deorbit is not at its end.
    #[serde(default)]
    pub deorbiting: i32,
    /// Of these, objects that are being deleted and go no further until a person acts: protected, or their Deorbit failed or
    /// could not be made. Their Events say why.
    #[serde(default)]
    pub held: i32,
    /// Ready: whether the binding is in force.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "super::schema::conditions")]
    pub conditions: Vec<Condition>,
}

fn finalizer() -> String {
    FINALIZER.to_owned()
}

fn protection_annotations() -> Vec<String> {
    [PROTECT_ANNOTATION, KUBERNIKUS_PROTECT_ANNOTATION].map(str::to_owned).to_vec()
}

/// An object whose fields another kind's schema checks.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

#[cfg(test)]
mod tests {
    use kube::core::crd::CustomResourceExt as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_has_the_documented_defaults() {
        let spec: DeorbitBindingSpec = serde_json::from_value(json!({
            "targetRef": { "apiVersion": "kubernikus.sap.cc/v1", "kind": "Kluster" },
            "template": { "spec": { "kubeconfig": { "secretRef": { "name": "{.metadata.name}-kubeconfig" } } } },
        }))
        .unwrap();
        assert_eq!(spec.finalizer, FINALIZER);
        assert_eq!(spec.protection_annotations, [PROTECT_ANNOTATION, KUBERNIKUS_PROTECT_ANNOTATION]);
        assert_eq!((spec.when_phase, spec.finalizer_when_phase), (None, None));
        assert_eq!(spec.machine_hook, MachineHook::None);
    }

    #[test]
    fn the_schema_holds_the_rules_that_the_api_server_checks() {
        let crd = serde_json::to_value(DeorbitBinding::crd()).unwrap();
        let text = crd.to_string();
        for rule in [
            "targetRef cannot be changed",
            "finalizer cannot be changed",
            "machineHook cannot be changed",
            "machineHook is for the kind Cluster",
            "stands for no cluster",
            "In and NotIn take values",
        ] {
            assert!(text.contains(rule), "{rule}");
        }
        assert_eq!(crd["spec"]["scope"], "Cluster");
        let version = &crd["spec"]["versions"][0];
        assert_eq!(version["subresources"], json!({ "status": {} }));
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        assert_eq!(spec["finalizer"]["default"], FINALIZER);
        assert_eq!(spec["template"]["properties"]["spec"]["x-kubernetes-preserve-unknown-fields"], true);
        assert_eq!(version["additionalPrinterColumns"].as_array().unwrap().len(), 8);
    }
}
