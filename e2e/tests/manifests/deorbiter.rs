//! The objects that `kubectl apply -k` installs for deorbiter: pods that the namespace admits, valid examples, and deorbiter's own flags,
//! variables and ports.

use e2e::kustomize::{self, manifests};
use e2e::natgw::{run, wait_for};
use e2e::program::Program;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};

use super::{apply, control_plane, render};

const COMPONENTS: [&str; 3] = ["ha/deorbiter", "networkpolicy/deorbiter", "deorbiter-hook"];

#[tokio::test]
async fn pods_are_created_and_the_examples_are_valid() {
    let control_plane = control_plane().await;
    apply(&control_plane, "-k", &manifests().join("deorbiter/crds"), &["--server-side"]);
    // The namespace admits pods of the level `restricted` only, so that the pods show that they are.
    apply(&control_plane, "-k", kustomize::overlay("deorbiter", &COMPONENTS).unwrap().path(), &[]);
    let pods = Api::<Pod>::namespaced(control_plane.client(), "deorbiter");
    wait_for("two pods of deorbiter", || async {
        Ok(pods.list(&ListParams::default()).await?.items.len() == 2)
    })
    .await
    .unwrap();

    let examples = manifests().join("examples/deorbiter");
    let applied = apply(&control_plane, "-k", &examples, &["--dry-run=server"]);
    assert_eq!(applied.len(), render(&examples).len(), "{applied:?}");
    let folder = tempfile::tempdir().unwrap();
    let mut deorbits = 0;
    for entry in std::fs::read_dir(&examples).unwrap() {
        let file = entry.unwrap().path();
        let text = std::fs::read_to_string(&file).unwrap();
        if text.contains("\nkind: Deorbit\n") {
            deorbits += 1;
            // A dry run in a namespace that does not exist fails.
            let copy = folder.path().join(file.file_name().unwrap());
            std::fs::write(&copy, text.replace("namespace: clusters", "namespace: deorbiter")).unwrap();
            apply(&control_plane, "-f", &copy, &["--dry-run=server"]);
        }
    }
    assert!(deorbits > 0);
    for file in [
        "cluster-binding.yaml",
        "cluster-rights.yaml",
        "kluster-binding.yaml",
        "kluster-rights.yaml",
        "cluster-identity-rights.yaml",
    ] {
        apply(&control_plane, "-f", &examples.join(file), &["--dry-run=server"]);
    }
}

#[tokio::test]
async fn variables_ports_and_files_match_deorbiter_s_own() {
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

/// `networkpolicy/deorbiter` denies what it does not list, so `deorbiter-hook` has to admit Cluster API.
#[test]
fn the_network_policies_admit_requests_to_the_hook() {
    let objects = render(kustomize::overlay("deorbiter", &COMPONENTS).unwrap().path());
    let policies: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "NetworkPolicy").collect();
    let admitted = policies.iter().any(|policy| {
        policy["spec"]["ingress"].as_array().into_iter().flatten().any(|rule| {
            rule["ports"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|port| port["port"] == "hook" || port["port"] == 9443)
        })
    });
    assert!(admitted, "{policies:?}");
}

/// With the component, Secrets are read through a Role in deorbiter's own namespace, and only there.
#[tokio::test]
async fn for_one_namespace_a_role_replaces_the_right_on_all_secrets() {
    let (code, help) = run(&Program::binary("deorbiter").unwrap().arg("--help")).await.unwrap();
    assert_eq!(code, 0);
    let base = render(&manifests().join("deorbiter"));
    let one = render(kustomize::overlay("deorbiter", &["deorbiter-namespace"]).unwrap().path());
    let readers = |objects: &[Value], kind: &str| {
        let reads = |role: &&Value| {
            let rules = role["rules"].as_array().into_iter().flatten();
            role["kind"] == kind
                && rules.flat_map(|rule| rule["resources"].as_array().unwrap()).any(|it| it == "secrets")
        };
        objects.iter().filter(reads).count()
    };
    assert_eq!((readers(&base, "ClusterRole"), readers(&base, "Role")), (1, 0));
    assert_eq!((readers(&one, "ClusterRole"), readers(&one, "Role")), (0, 1));
    let cluster_wide = kustomize::only(&one, "ClusterRole").unwrap();
    for rule in cluster_wide["rules"].as_array().unwrap() {
        let resource = rule["resources"][0].as_str().unwrap();
        assert!(matches!(resource, "namespaces" | "deorbitbindings" | "deorbitbindings/status"), "{rule}");
    }
    let container =
        &kustomize::only(&one, "Deployment").unwrap()["spec"]["template"]["spec"]["containers"][0];
    let environment = container["env"].as_array().unwrap();
    let watched = environment.iter().find(|one| one["name"] == "PERIMETER_WATCH_NAMESPACE").unwrap();
    assert_eq!(watched["valueFrom"]["fieldRef"]["fieldPath"], "metadata.namespace");
    assert!(help.contains("[env: PERIMETER_WATCH_NAMESPACE"));
}
