//! The rules of a binding, read from its spec: every error is found here, before an object is bound.

use common::api::deorbit::{ApplicationCredential, Choice, DeorbitSpec, OpenStack, OrphanPolicy, Provider};
use common::api::deorbit_binding::{
    DeorbitBindingSpec, DeorbitTemplate, LabelSelector, MachineHook, PhaseRule,
};
use common::api::identity::IdentityKind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1 as meta;
use kube::core::Selector;
use serde_json::{Map, Value};

use super::snapshot::{PhaseIs, Rules};
use super::template::Template;
use crate::names::CLUSTER_API_GROUP;

/// The selectors of a binding, for the objects of its kind.
#[derive(Clone, Debug)]
pub struct Selection {
    /// By their labels.
    pub labels: Selector,
    /// By the labels of their namespaces.
    pub namespaces: Option<Selector>,
}

/// Reads the rules; `namespaced` is the scope of the kind, if it is known.
///
/// # Errors
/// One sentence: what is wrong, and where.
pub fn rules(spec: &DeorbitBindingSpec, namespaced: Option<bool>) -> Result<Rules, String> {
    let kind = &spec.target_ref.kind;
    if namespaced == Some(false) && spec.target_ref.namespace_selector.is_some() {
        return Err(format!("targetRef.namespaceSelector: {kind} has no namespaces; leave it out"));
    }
    let group = spec.target_ref.api_version.split_once('/').map(|(group, _)| group);
    if spec.machine_hook != MachineHook::None
        && (group, kind.as_str()) != (Some(CLUSTER_API_GROUP), "Cluster")
    {
        return Err(format!(
            "machineHook: {kind} has no Machines; it is for the kind Cluster of {CLUSTER_API_GROUP}"
        ));
    }
    let template = template(&spec.template)?;
    if namespaced == Some(false) && !template.names_namespace() {
        return Err(format!(
            "template.namespace: {kind} has no namespaces; name the one that the Deorbits shall be in"
        ));
    }
    let phase = |at: &str, rule: &Option<PhaseRule>| {
        let read = |rule: &PhaseRule| match rule.path.parse() {
            Ok(path) => Ok(PhaseIs { path, equals: rule.equals.clone() }),
            Err(why) => Err(format!("{at}.path: {why}")),
        };
        rule.as_ref().map(read).transpose()
    };
    Ok(Rules {
        finalizer_when: phase("finalizerWhenPhase", &spec.finalizer_when_phase)?,
        when: phase("whenPhase", &spec.when_phase)?,
        protections: spec.protection_annotations.iter().cloned().collect(),
        template,
    })
}

/// Reads a template, and checks that it makes a valid Deorbit.
///
/// # Errors
/// One sentence: what is wrong, and where.
pub fn template(template: &DeorbitTemplate) -> Result<Template, String> {
    let read = Template::new(template)?;
    let spec: DeorbitSpec = serde_json::from_value(Value::Object(template.spec.clone()))
        .map_err(|error| format!("template.spec: {error}; see kubectl explain deorbit.spec"))?;
    let known = serde_json::to_value(&spec).unwrap_or_default();
    if let Some(field) = unknown(&template.spec, &known, "spec") {
        return Err(format!("template.{field} is no field of a Deorbit; see kubectl explain deorbit.spec"));
    }
    if spec.in_cluster || spec.kubeconfig.is_none() {
        return Err("template.spec.kubeconfig is missing: a trigger deorbits the cluster of an object, never the one that deorbiter runs in".to_owned());
    }
    if spec.dry_run {
        return Err("template.spec.dryRun: a Deorbit that deletes nothing would release the cluster with everything left".to_owned());
    }
    if let Some(why) = contradiction(&spec) {
        return Err(format!("template.spec.{why}"));
    }
    Ok(read)
}

/// Why the API server would refuse a Deorbit of this spec, by the rules of its CustomResourceDefinition.
fn contradiction(spec: &DeorbitSpec) -> Option<&'static str> {
    let any = spec.provider == Provider::Any;
    let openstack = spec.openstack.as_ref();
    let deletes_login =
        openstack.filter(|openstack| openstack.application_credential == ApplicationCredential::Delete);
    let routes = spec.resources.routes.is_some();
    let orphans = spec.orphan_policy == OrphanPolicy::Delete;
    let is_shared = |openstack: &OpenStack| openstack.identity_ref.kind != IdentityKind::Secret;
    let rules = [
        (spec.cluster_gone.is_some(), "clusterGone: the cluster of an object has a kubeconfig"),
        (
            spec.discover_by_cluster_name && !crate::names::is_distinctive(&spec.cluster_name),
            "discoverByClusterName needs a clusterName, and not the default name \"kubernetes\"",
        ),
        (any && openstack.is_some(), "openstack: provider: Any reads no cloud"),
        (any && spec.discover_by_cluster_name, "discoverByClusterName needs provider: OpenStack"),
        (any && orphans, "orphanPolicy: Delete needs provider: OpenStack"),
        (any && routes, "resources.routes needs provider: OpenStack"),
        (
            any && spec.resources.ingresses == Choice::Delete,
            "resources.ingresses: Delete needs provider: OpenStack",
        ),
        (openstack.is_none() && spec.discover_by_cluster_name, "discoverByClusterName needs openstack"),
        (openstack.is_none() && orphans, "orphanPolicy: Delete needs openstack"),
        (openstack.is_none() && routes, "resources.routes needs openstack"),
        (
            deletes_login.is_some_and(is_shared),
            "openstack.applicationCredential: Delete needs a Secret: an OpenStackClusterIdentity is for many clusters",
        ),
        (
            deletes_login.is_some() && spec.cluster_survives,
            "openstack.applicationCredential: Delete: a cluster that survives may need its login",
        ),
    ];
    rules.into_iter().find_map(|(is_broken, rule)| is_broken.then_some(rule))
}

/// The first field that the type does not know: it would be dropped in silence.
fn unknown(given: &Map<String, Value>, known: &Value, at: &str) -> Option<String> {
    given.iter().find_map(|(key, value)| match (known.get(key), value) {
        (None, Value::Null) => None,
        (None, _) => Some(format!("{at}.{key}")),
        (Some(known), Value::Object(value)) => unknown(value, known, &format!("{at}.{key}")),
        (Some(_), _) => None,
    })
}

/// Reads the selectors.
///
/// # Errors
/// One sentence: what is wrong, and where.
pub fn selection(spec: &DeorbitBindingSpec) -> Result<Selection, String> {
    let read = |at: &str, selector: &Option<LabelSelector>| {
        let Some(selector) = selector else { return Ok(None) };
        let expressions = selector.match_expressions.iter().map(|one| meta::LabelSelectorRequirement {
            key: one.key.clone(),
            operator: format!("{:?}", one.operator),
            values: Some(one.values.clone()),
        });
        let selector = meta::LabelSelector {
            match_labels: Some(selector.match_labels.clone()),
            match_expressions: Some(expressions.collect()),
        };
        Selector::try_from(selector).map(Some).map_err(|error| format!("targetRef.{at}: {error}"))
    };
    Ok(Selection {
        labels: read("labelSelector", &spec.target_ref.label_selector)?.unwrap_or_default(),
        namespaces: read("namespaceSelector", &spec.target_ref.namespace_selector)?,
    })
}

#[cfg(test)]
mod tests {
    use kube::core::SelectorExt as _;
    use serde_json::json;

    use super::*;

    fn spec(changes: Value) -> DeorbitBindingSpec {
        let mut spec = json!({
            "targetRef": { "apiVersion": "kubernikus.sap.cc/v1", "kind": "Kluster" },
            "template": { "spec": { "kubeconfig": { "secretRef": { "name": "{.metadata.name}-kubeconfig" } } } },
        });
        for (key, value) in changes.as_object().unwrap() {
            spec[key] = value.clone();
        }
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn the_smallest_binding_is_read() {
        let rules = rules(&spec(json!({})), Some(true)).unwrap();
        assert_eq!(rules.protections.len(), 2);
        let selection = selection(&spec(json!({}))).unwrap();
        assert!(selection.labels.matches(&Default::default()), "everything");
    }

    #[test]
    fn invalid_rules_are_refused_with_the_field() {
        let refused = |changes: Value, namespaced| rules(&spec(changes), Some(namespaced)).unwrap_err();
        let template = |spec: Value| json!({ "template": { "spec": spec } });
        let kubeconfig = json!({ "secretRef": { "name": "a" } });
        for (changes, namespaced, words) in [
            (
                json!({ "whenPhase": { "path": ".status[0]", "equals": "x" } }),
                true,
                "whenPhase.path: \".status[0]\" is no field path",
            ),
            (
                json!({ "finalizerWhenPhase": { "path": ".", "equals": "x" } }),
                true,
                "finalizerWhenPhase.path",
            ),
            (json!({ "machineHook": "PreTerminate" }), true, "machineHook: Kluster has no Machines"),
            (json!({}), false, "template.namespace: Kluster has no namespaces"),
            (
                template(json!({ "kubeconfig": { "secretRef": { "name": "{.x" } } })),
                true,
                "template.spec.kubeconfig.secretRef.name",
            ),
            (template(json!({ "kubeconfig": kubeconfig, "dryRun": true })), true, "template.spec.dryRun"),
            (template(json!({ "inCluster": true })), true, "template.spec.kubeconfig is missing"),
            (template(json!({})), true, "template.spec.kubeconfig is missing"),
            (
                template(json!({ "kubeconfig": kubeconfig, "creationBlok": "None" })),
                true,
                "template.spec.creationBlok is no field",
            ),
            (
                template(json!({ "kubeconfig": kubeconfig, "timeouts": { "totals": "1h" } })),
                true,
                "template.spec.timeouts.totals is no field",
            ),
            (
                template(json!({ "kubeconfig": kubeconfig, "creationBlock": "Maybe" })),
                true,
                "template.spec: unknown variant",
            ),
        ] {
            let why = refused(changes, namespaced);
            assert!(why.contains(words), "{why}");
        }
    }

    #[test]
    fn a_template_that_the_api_server_would_refuse_is_refused_with_the_field() {
        let openstack = |more: Value| {
            let mut openstack = json!({ "identityRef": { "name": "login" } });
            openstack.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            openstack
        };
        let routes = json!({ "routes": { "routerID": "r", "podCIDRs": ["10.0.0.0/8"] } });
        let delete = json!({ "applicationCredential": "Delete" });
        let shared = json!({ "name": "login", "type": "ClusterIdentity" });
        for (fields, words) in [
            (json!({ "clusterGone": { "projectID": "p" } }), "clusterGone: the cluster of an object"),
            (json!({ "orphanPolicy": "Delete" }), "orphanPolicy: Delete needs openstack"),
            (json!({ "resources": routes }), "resources.routes needs openstack"),
            (
                json!({ "discoverByClusterName": true, "clusterName": "prod-7" }),
                "discoverByClusterName needs openstack",
            ),
            (
                json!({ "discoverByClusterName": true, "clusterName": "kubernetes", "openstack": openstack(json!({})) }),
                "discoverByClusterName needs a clusterName",
            ),
            (
                json!({ "provider": "Any", "openstack": openstack(json!({})) }),
                "openstack: provider: Any reads no cloud",
            ),
            (
                json!({ "provider": "Any", "discoverByClusterName": true, "clusterName": "prod-7" }),
                "discoverByClusterName needs provider: OpenStack",
            ),
            (
                json!({ "provider": "Any", "orphanPolicy": "Delete" }),
                "orphanPolicy: Delete needs provider: OpenStack",
            ),
            (json!({ "provider": "Any", "resources": routes }), "resources.routes needs provider: OpenStack"),
            (
                json!({ "provider": "Any", "resources": { "ingresses": "Delete" } }),
                "resources.ingresses: Delete needs provider: OpenStack",
            ),
            (
                json!({ "openstack": openstack(json!({ "applicationCredential": "Delete", "identityRef": shared })) }),
                "openstack.applicationCredential: Delete needs a Secret",
            ),
            (
                json!({ "clusterSurvives": true, "openstack": openstack(delete.clone()) }),
                "openstack.applicationCredential: Delete: a cluster that survives",
            ),
        ] {
            let mut template = json!({ "kubeconfig": { "secretRef": { "name": "a" } } });
            template.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let why = rules(&spec(json!({ "template": { "spec": template } })), Some(true)).unwrap_err();
            assert!(why.starts_with(&format!("template.spec.{words}")), "{why}");
        }
        let fine = json!({ "kubeconfig": { "secretRef": { "name": "a" } }, "openstack": openstack(delete) });
        assert!(rules(&spec(json!({ "template": { "spec": fine } })), Some(true)).is_ok());
    }

    #[test]
    fn selectors_are_read() {
        let selection = selection(&spec(json!({ "targetRef": {
            "apiVersion": "v1", "kind": "A",
            "labelSelector": { "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "c", "operator": "DoesNotExist" }] },
        } })))
        .unwrap();
        let labels = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert!(selection.labels.matches(&labels(&[("a", "b")])));
        assert!(!selection.labels.matches(&labels(&[("a", "b"), ("c", "")])));
        assert!(!selection.labels.matches(&labels(&[])));
    }
}
