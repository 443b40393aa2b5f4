//! What `kubectl apply -k` installs for deorbiter: accepted by a real API server with strict validation and its own admission,
//! alone, with each component, and with the examples; and true to deorbiter: its flags, variables and ports.

use std::path::Path;

use e2e::control_plane::ControlPlane;
use e2e::kustomize::{self, manifests};
use e2e::natgw::{run, wait_for};
use e2e::program::Program;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

const COMPONENTS: [&str; 3] = ["ha", "networkpolicy", "deorbiter-hook"];

fn render(folder: &Path) -> Vec<Value> {
    kustomize::objects(&kustomize::render(folder).unwrap()).unwrap()
}

fn apply(control_plane: &ControlPlane, from: &str, path: &Path, more: &[&str]) -> Vec<String> {
    kustomize::apply(control_plane, from, path, more).unwrap()
}

#[tokio::test]
async fn a_real_api_server_accepts_everything_and_makes_the_pods() {
    let control_plane = ControlPlane::builder().controller_flag("--controllers=*").start().await.unwrap();
    apply(&control_plane, "-k", &manifests().join("deorbiter/crds"), &["--server-side"]);
    apply(&control_plane, "-f", &manifests().join("deorbiter/namespace.yaml"), &[]);
    let mut folders: Vec<_> =
        COMPONENTS.iter().map(|name| kustomize::overlay("deorbiter", &[name]).unwrap()).collect();
    folders.push(kustomize::overlay("deorbiter", &[]).unwrap());
    folders.push(kustomize::overlay("deorbiter", &COMPONENTS).unwrap());
    let example = manifests().join("examples/deorbiter");
    for folder in folders.iter().map(tempfile::TempDir::path).chain([example.as_path()]) {
        let said = apply(&control_plane, "-k", folder, &["--dry-run=server"]);
        assert_eq!(said.len(), render(folder).len(), "{said:?}");
    }
    // Pods have admission of their own; the namespace lets in what the strictest level of Pod Security does.
    apply(&control_plane, "-k", folders.pop().unwrap().path(), &[]);
    let pods = Api::<Pod>::namespaced(control_plane.client(), "deorbiter");
    wait_for("two pods of deorbiter", || async {
        Ok(pods.list(&ListParams::default()).await?.items.len() == 2)
    })
    .await
    .unwrap();

    // The examples, as our own kinds have them.
    let namespace = example.join("deorbit.yaml");
    let text =
        std::fs::read_to_string(&namespace).unwrap().replace("namespace: clusters", "namespace: deorbiter");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("deorbit.yaml"), text).unwrap();
    apply(&control_plane, "-f", &folder.path().join("deorbit.yaml"), &["--dry-run=server"]);
    for file in ["kluster-binding.yaml", "kluster-rights.yaml"] {
        apply(&control_plane, "-f", &example.join(file), &["--dry-run=server"]);
    }
}

#[tokio::test]
async fn variables_ports_and_files_are_those_that_deorbiter_knows() {
    let (code, help) = run(&Program::binary("deorbiter").unwrap().arg("--help")).await.unwrap();
    assert_eq!(code, 0);
    let objects = render(kustomize::overlay("deorbiter", &COMPONENTS).unwrap().path());
    let pod = &kustomize::only(&objects, "Deployment").unwrap()["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    for variable in container["env"].as_array().unwrap() {
        let name = variable["name"].as_str().unwrap();
        // The runtime reads the pod's name for Events and the Lease.
        assert!(help.contains(&format!("[env: {name}")) || name == "POD_NAME", "deorbiter reads no {name}");
    }
    let port = |name: &str| {
        let ports = container["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].clone()
    };
    assert!(help.contains("[default: [::]:8080]"));
    assert_eq!((port("admin"), port("hook")), (json!(8080), json!(9443)));
    let service = kustomize::only(&objects, "Service").unwrap();
    assert_eq!(service["spec"]["ports"][0]["targetPort"], "hook");
    assert_eq!(service["spec"]["ports"][0]["port"], 443);
    assert!(
        help.contains(&format!("[default: {}]", container["volumeMounts"][0]["mountPath"].as_str().unwrap()))
    );
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "deorbiter-hook");
    let selected = service["spec"]["selector"].as_object().unwrap();
    let labels = &kustomize::only(&objects, "Deployment").unwrap()["spec"]["template"]["metadata"]["labels"];
    assert!(selected.iter().all(|(key, value)| labels[key] == *value));
}

#[test]
fn every_object_bears_the_recommended_labels() {
    for object in render(kustomize::overlay("deorbiter", &COMPONENTS).unwrap().path()) {
        let labels = &object["metadata"]["labels"];
        for (key, value) in [("name", "deorbiter"), ("part-of", "perimeter"), ("component", "controller")] {
            let named = format!("{} {}", object["kind"], object["metadata"]["name"]);
            assert_eq!(labels[format!("app.kubernetes.io/{key}")], value, "{named}");
        }
    }
}

/// A policy that shuts the namespace must let Cluster API in.
#[test]
fn the_hook_is_reachable_where_the_network_is_shut() {
    let objects = render(kustomize::overlay("deorbiter", &COMPONENTS).unwrap().path());
    let policies: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "NetworkPolicy").collect();
    let lets_in = policies.iter().any(|policy| {
        policy["spec"]["ingress"].as_array().into_iter().flatten().any(|rule| {
            rule["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|port| port["port"] == "hook" || port["port"] == 9443)
        })
    });
    assert!(lets_in, "{policies:?}");
}
