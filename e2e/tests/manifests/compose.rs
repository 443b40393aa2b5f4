//! Manifests compose: every controller alone, every pair and all of them, with their components, with `namespace:` and with
//! `namePrefix:`. Each combination is rendered once, checked for references and labels, and sent to a real API server as a
//! server-side dry run.

mod accepted;

use std::collections::BTreeSet;
use std::sync::OnceLock;

use apinetlet::identity::CONFIG_MAP;
use apinetlet::names::Flavor;
use e2e::kustomize::{self, Overlay, manifests};
use e2e::sweep::Slice;
use serde_json::{Value, json};

/// The controllers and their components: all that `manifests` has, as a test compares.
const CONTROLLERS: [(&str, &[&str]); 6] = [
    (
        "apinetlet",
        &[
            "ha/apinetlet",
            "networkpolicy/apinetlet",
            "monitoring/apinetlet",
            "otlp",
            "apinetlet-kubeconfig",
            "apinetlet-onmetal",
        ],
    ),
    (
        "cgw-controller",
        &["ha/cgw-controller", "networkpolicy/cgw-controller", "monitoring/cgw-controller", "otlp"],
    ),
    (
        "deorbiter",
        &[
            "ha/deorbiter",
            "networkpolicy/deorbiter",
            "monitoring/deorbiter",
            "otlp",
            "deorbiter-hook",
            "deorbiter-namespace",
        ],
    ),
    ("egress-router-cni", &["networkpolicy/egress-router-cni"]),
    ("natgw", &["ha/natgw", "monitoring/natgw", "otlp"]),
    (
        "routegc",
        &[
            "ha/routegc",
            "networkpolicy/routegc",
            "monitoring/routegc",
            "otlp",
            "routegc-nodes",
            "routegc-cluster-api",
        ],
    ),
];
/// The component that an overlay with `namespace:` and two controllers needs.
const SHARED: &str = "shared-namespace";
const EDGE: &str = "edge";
const PREFIX: &str = "acme-";
/// kubectl processes at the same time: each starts slowly on a machine that is busy with other tests.
const RENDERERS: usize = 8;

struct Rendering {
    overlay: Overlay<'static>,
    objects: Vec<Value>,
}

impl Rendering {
    /// The combination in one line, for the list of combinations and for messages.
    fn title(&self) -> String {
        let Overlay { controllers, components, namespace, name_prefix } = &self.overlay;
        format!(
            "{} + [{}] namespace: {} namePrefix: {}",
            controllers.join(" "),
            components.join(" "),
            namespace.unwrap_or("-"),
            name_prefix.unwrap_or("-")
        )
    }

    fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.objects.iter().filter(move |object| object["kind"] == kind)
    }

    fn has(&self, kind: &str, namespace: &Value, name: &Value) -> bool {
        self.of_kind(kind).any(|object| {
            object["metadata"]["name"] == *name && object["metadata"]["namespace"] == *namespace
        })
    }

    /// The workloads: (the controller, its object).
    fn workloads(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.of_kind("Deployment")
            .chain(self.of_kind("DaemonSet"))
            .map(|object| (object["metadata"]["labels"]["app.kubernetes.io/name"].as_str().unwrap(), object))
    }
}

/// `make test` takes one pair in so many, `make test-full` all.
const SLICES_OF_PAIRS: u64 = 3;

/// One, two, or all of the controllers.
fn groups() -> Vec<Vec<&'static str>> {
    let names: Vec<&str> = CONTROLLERS.iter().map(|(name, _)| *name).collect();
    let pairs = names
        .iter()
        .enumerate()
        .flat_map(|(index, first)| names[index + 1..].iter().map(|second| vec![*first, *second]));
    let pairs = Slice::chosen("pairs of controllers", SLICES_OF_PAIRS).unwrap().pick(pairs);
    names.iter().map(|name| vec![*name]).chain(pairs).chain([names.clone()]).collect()
}

fn components_of(group: &[&str]) -> Vec<&'static str> {
    let mut components = Vec::new();
    for (_, more) in CONTROLLERS.iter().filter(|(name, _)| group.contains(name)) {
        components
            .extend(more.iter().filter(|component| !components.contains(*component)).collect::<Vec<_>>());
    }
    components
}

/// The values of `namespace:` and `namePrefix:` in the overlays.
const PLACES: [(Option<&str>, Option<&str>); 3] =
    [(None, None), (Some(EDGE), None), (Some(EDGE), Some(PREFIX))];

/// Without components and with all of them, in each place; and a single controller with each component.
fn overlays() -> Vec<Overlay<'static>> {
    let mut overlays = Vec::new();
    for group in groups() {
        let all = components_of(&group);
        let mut choices = vec![(Vec::new(), &PLACES[..]), (all.clone(), &PLACES[..])];
        if group.len() == 1 && all.len() > 1 {
            choices.extend(all.iter().map(|component| (vec![*component], &PLACES[1..2])));
        }
        for (components, places) in choices {
            for (namespace, name_prefix) in places.iter().copied() {
                let mut components = components.clone();
                if namespace.is_some() && group.len() > 1 {
                    components.push(SHARED);
                }
                overlays.push(Overlay { controllers: group.clone(), components, namespace, name_prefix });
            }
        }
    }
    overlays
}

fn rendered() -> &'static [Rendering] {
    static RENDERED: OnceLock<Vec<Rendering>> = OnceLock::new();
    RENDERED.get_or_init(|| {
        let render = |overlay: Overlay<'static>| {
            let folder = overlay.write().unwrap();
            let objects = kustomize::objects(&kustomize::render(folder.path()).unwrap()).unwrap();
            Rendering { overlay, objects }
        };
        let overlays = overlays();
        std::thread::scope(|scope| {
            let chunks = overlays.chunks(overlays.len().div_ceil(RENDERERS));
            let threads: Vec<_> = chunks
                .map(|chunk| scope.spawn(move || chunk.iter().cloned().map(render).collect::<Vec<_>>()))
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        })
    })
}

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
