//! Manifests compose: every controller alone, every pair and all of them, with their components, with `namespace:` and with
//! `namePrefix:`. Each combination is rendered once, checked for references and labels, and sent to a real API server as a
//! server-side dry run.

mod accepted;
mod combinations;

use std::collections::BTreeSet;

use apinetlet::identity::CONFIG_MAP;
use apinetlet::names::Flavor;
use e2e::kustomize::{Overlay, manifests};
use serde_json::{Value, json};

use combinations::{CONTROLLERS, Rendering, SHARED, components_of, rendered};

#[test]
fn all_controllers_and_components_of_the_folder_are_combined() {
    let folders = |path: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(manifests().join(path)).unwrap().map(Result::unwrap);
        entries
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    };
    let names: BTreeSet<String> = CONTROLLERS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let bases: BTreeSet<String> = folders(".")
        .into_iter()
        .filter(|name| !["components", "crds", "examples"].contains(&name.as_str()))
        .collect();
    assert_eq!(bases, names);

    let mut components = BTreeSet::new();
    for name in folders("components") {
        let own = folders(&format!("components/{name}"));
        components.extend(own.iter().map(|controller| format!("{name}/{controller}")));
        if own.is_empty() {
            components.insert(name);
        }
    }
    let all: Vec<&str> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
    let combined = components_of(&all).into_iter().chain([SHARED]).map(str::to_owned).collect();
    assert_eq!(components, combined);
}

/// A pair is the union of its parts: no base and no component changes the objects of another controller.
#[test]
fn controllers_in_one_overlay_render_as_they_render_alone() {
    let key = |object: &Value| object.to_string();
    for rendering in rendered().iter().filter(|rendering| rendering.overlay.namespace.is_none()) {
        let Overlay { controllers, components, .. } = &rendering.overlay;
        let together: BTreeSet<String> = rendering.objects.iter().map(key).collect();
        let mut apart = BTreeSet::new();
        for controller in controllers {
            let own = components_of(&[*controller]);
            let alone = rendered()
                .iter()
                .find(|other| {
                    let these: Vec<&str> =
                        own.iter().filter(|name| components.contains(*name)).copied().collect();
                    other.overlay.controllers == [*controller]
                        && other.overlay.components == these
                        && other.overlay.namespace.is_none()
                })
                .unwrap();
            apart.extend(alone.objects.iter().map(key));
        }
        assert_eq!(together, apart, "{}", rendering.title());
        assert_eq!(together.len(), rendering.objects.len(), "{}", rendering.title());
    }
}

#[test]
fn namespace_and_prefix_apply_to_every_object_and_reference() {
    for rendering in rendered() {
        let title = rendering.title();
        let Overlay { namespace, name_prefix, .. } = &rendering.overlay;
        for object in &rendering.objects {
            let (kind, metadata) = (object["kind"].as_str().unwrap(), &object["metadata"]);
            let name = metadata["name"].as_str().unwrap();
            if kind == "Namespace" {
                assert_eq!(name, namespace.unwrap_or(name), "{title}");
            } else {
                assert!(name.starts_with(name_prefix.unwrap_or_default()), "{kind} {name}: {title}");
                if let (Some(expected), Some(actual)) = (namespace, metadata["namespace"].as_str()) {
                    assert_eq!(actual, *expected, "{kind} {name}: {title}");
                }
            }
            if let Some(own) = metadata.get("namespace") {
                assert!(rendering.of_kind("Namespace").any(|it| it["metadata"]["name"] == *own), "{title}");
            }
        }
    }
}

#[test]
fn every_binding_refers_to_a_role_and_an_account_of_the_same_overlay() {
    for rendering in rendered() {
        let title = rendering.title();
        for binding in rendering.of_kind("RoleBinding").chain(rendering.of_kind("ClusterRoleBinding")) {
            let (role, namespace) = (&binding["roleRef"], &binding["metadata"]["namespace"]);
            let place = if role["kind"] == "Role" { namespace } else { &Value::Null };
            assert!(rendering.has(role["kind"].as_str().unwrap(), place, &role["name"]), "{role}: {title}");
            for subject in binding["subjects"].as_array().unwrap() {
                assert!(
                    rendering.has("ServiceAccount", &subject["namespace"], &subject["name"]),
                    "{subject}: {title}"
                );
            }
        }
        for (_, workload) in rendering.workloads() {
            let account = &workload["spec"]["template"]["spec"]["serviceAccountName"];
            assert!(rendering.has("ServiceAccount", &workload["metadata"]["namespace"], account), "{title}");
        }
    }
}

/// The names that a program has compiled in, or that its user gives: a prefix must not change them.
#[test]
fn leases_config_maps_and_secrets_in_roles_keep_their_names() {
    for rendering in rendered() {
        for role in rendering.of_kind("Role") {
            let controller = role["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap();
            for rule in
                role["rules"].as_array().unwrap().iter().filter(|rule| rule["resourceNames"].is_array())
            {
                let expected = match (controller, rule["resources"][0].as_str().unwrap()) {
                    ("apinetlet", "leases")
                        if rendering.overlay.components.contains(&"apinetlet-onmetal") =>
                    {
                        Flavor::Onmetal.names().lease
                    }
                    ("apinetlet", "leases") => Flavor::Ironcore.names().lease,
                    ("apinetlet", "configmaps") => CONFIG_MAP,
                    ("apinetlet", _) => "apinet-kubeconfig",
                    (_, "leases") => controller,
                    _ => "cloud-config",
                };
                assert_eq!(rule["resourceNames"], json!([expected]), "{}", rendering.title());
            }
        }
    }
}

/// Objects of the manifests themselves: a prefix changes their names in cgw-controller's ClusterRoles too.
#[test]
fn services_and_accounts_in_cluster_roles_follow_the_prefix() {
    for rendering in rendered() {
        for role in rendering.of_kind("ClusterRole") {
            if role["metadata"]["labels"]["app.kubernetes.io/name"] != "cgw-controller" {
                continue;
            }
            for rule in
                role["rules"].as_array().unwrap().iter().filter(|rule| rule["resourceNames"].is_array())
            {
                follows_prefix(rule["resources"][0].as_str().unwrap(), &rule["resourceNames"], rendering);
            }
        }
    }
}

fn follows_prefix(kind: &str, names: &Value, rendering: &Rendering) {
    let expected = match kind {
        "services" => "cgw-hosts",
        "serviceaccounts/token" => "cgw-admin",
        other => panic!("{other}: {}", rendering.title()),
    };
    let prefix = rendering.overlay.name_prefix.unwrap_or_default();
    assert_eq!(names, &json!([format!("{prefix}{expected}")]), "{}", rendering.title());
}

/// Names of objects in variables of cgw-controller's containers are names of objects of the same overlay.
#[test]
fn variables_with_names_of_objects_follow_the_prefix() {
    for rendering in rendered() {
        let title = rendering.title();
        for (_, workload) in rendering.workloads().filter(|(name, _)| *name == "cgw-controller") {
            let namespace = &workload["metadata"]["namespace"];
            for container in workload["spec"]["template"]["spec"]["containers"].as_array().unwrap() {
                for variable in container["env"].as_array().into_iter().flatten() {
                    let kind = match variable["name"].as_str().unwrap() {
                        "PERIMETER_KEEPER_SERVICE_ACCOUNT" => "ServiceAccount",
                        name if name.ends_with("_SERVICE") => "Service",
                        _ => continue,
                    };
                    assert!(rendering.has(kind, namespace, &variable["value"]), "{variable}: {title}");
                }
            }
        }
    }
}

/// Selectors of PodDisruptionBudgets, NetworkPolicies, Services, PodMonitors and anti-affinity select the pods of exactly one
/// workload.
#[test]
fn every_selector_matches_the_pods_of_its_own_controller_only() {
    for rendering in rendered() {
        let title = rendering.title();
        let check = |owner: &Value, selector: &Value| {
            let selector = selector.as_object().unwrap();
            assert!(!selector.is_empty(), "{title}");
            let matched: Vec<&str> = rendering
                .workloads()
                .filter(|(_, workload)| {
                    let labels = &workload["spec"]["template"]["metadata"]["labels"];
                    selector.iter().all(|(key, value)| labels[key] == *value)
                })
                .map(|(name, _)| name)
                .collect();
            let name = owner["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap();
            assert_eq!(matched, [name], "{} {name}: {title}", owner["kind"]);
        };
        for object in &rendering.objects {
            let spec = &object["spec"];
            match object["kind"].as_str().unwrap() {
                // A store of cgw-controller has no pods.
                "Service" if spec.get("selector").is_none() => {
                    assert_eq!(spec["clusterIP"], "None", "{title}")
                }
                "Service" => check(object, &spec["selector"]),
                "NetworkPolicy" => check(object, &spec["podSelector"]["matchLabels"]),
                "PodDisruptionBudget" | "PodMonitor" | "DaemonSet" => {
                    check(object, &spec["selector"]["matchLabels"]);
                }
                "Deployment" => {
                    check(object, &spec["selector"]["matchLabels"]);
                    let terms = &spec["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
                    for term in terms.as_array().into_iter().flatten() {
                        check(object, &term["labelSelector"]["matchLabels"]);
                    }
                }
                _ => {}
            }
        }
    }
}

#[test]
fn every_object_and_pod_has_the_recommended_labels() {
    let version = env!("CARGO_PKG_VERSION");
    for rendering in rendered() {
        let check = |labels: &Value, what: &Value| {
            let label = |key: &str| labels[format!("app.kubernetes.io/{key}")].as_str();
            let title = rendering.title();
            let name = label("name").unwrap_or_else(|| panic!("{what}: {title}"));
            assert!(rendering.overlay.controllers.contains(&name) || name == "perimeter", "{what}: {title}");
            let component = match (name, label("component")) {
                ("perimeter", _) => "namespace",
                ("egress-router-cni", _) => "installer",
                ("cgw-controller", Some(role @ ("keeper" | "agent"))) => role,
                _ => "controller",
            };
            for (key, expected) in [
                ("instance", name),
                ("version", version),
                ("component", component),
                ("part-of", "perimeter"),
                ("managed-by", "kustomize"),
            ] {
                assert_eq!(label(key), Some(expected), "{key} of {what}: {title}");
            }
        };
        for object in &rendering.objects {
            check(&object["metadata"]["labels"], &object["kind"]);
        }
        for (_, workload) in rendering.workloads() {
            check(&workload["spec"]["template"]["metadata"]["labels"], &json!("pod"));
        }
    }
}

/// A limit of memory above the request makes a pod that the kernel may kill when the Node runs out of memory.
#[test]
fn every_container_requests_the_memory_of_its_limit_and_has_no_limit_of_cpu() {
    for (name, workload) in rendered().iter().flat_map(Rendering::workloads) {
        let pod = &workload["spec"]["template"]["spec"];
        for field in ["initContainers", "containers"] {
            for container in pod[field].as_array().into_iter().flatten() {
                let resources = &container["resources"];
                assert_eq!(resources["limits"], json!({"memory": resources["requests"]["memory"]}), "{name}");
                assert!(resources["requests"]["cpu"].is_string(), "{name}");
            }
        }
    }
}
