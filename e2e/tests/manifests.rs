//! What `kubectl apply -k` installs: accepted by a real API server with strict validation and its own admission, alone and with
//! each component; and true to natgw: its flags, its settings file, its ports.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use e2e::control_plane::ControlPlane;
use e2e::kustomize::{self, manifests};
use e2e::natgw::{run, wait_for};
use e2e::program::Program;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use natgw::config::Config;
use serde_json::{Value, json};
use tempfile::TempDir;

/// What is tested here; those with kinds of their own have tests of their own.
const COMPONENTS: [&str; 2] = ["ha", "networkpolicy"];
/// Who else reads a variable: the Deployment itself, in another's value; and the runtime, for the name of this instance.
const NO_FLAGS: [&str; 2] = ["HOST_IP", "POD_NAME"];

fn kubectl() -> Command {
    kustomize::kubectl().unwrap()
}

fn overlay(components: &[&str]) -> TempDir {
    kustomize::overlay("natgw", components).unwrap()
}

fn render(folder: &Path) -> Vec<Value> {
    kustomize::objects(&kustomize::render(folder).unwrap()).unwrap()
}

fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    kustomize::only(objects, kind).unwrap()
}

fn base() -> Vec<Value> {
    render(&manifests().join("natgw"))
}

/// natgw's container in the base.
fn container(objects: &[Value]) -> &Value {
    let containers = &only(objects, "Deployment")["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().unwrap().len(), 1);
    &containers[0]
}

fn apply(control_plane: &ControlPlane, from: &str, path: &Path, more: &[&str]) -> Vec<String> {
    kustomize::apply(control_plane, from, path, more).unwrap()
}

/// On a control plane of its own: the namespace is natgw's real one. A setting that an existing cluster cannot have keeps
/// this test away from one.
#[tokio::test]
async fn a_real_api_server_accepts_every_rendering_and_makes_the_pods() {
    let control_plane = ControlPlane::builder().controller_flag("--controllers=*").start().await.unwrap();
    let client = control_plane.client();
    // A dry run of a whole folder fails at what lies in a namespace that is not there.
    apply(&control_plane, "-f", &manifests().join("natgw/namespace.yaml"), &[]);

    let mut combinations: Vec<Vec<&str>> = vec![vec![]];
    combinations.extend(COMPONENTS.iter().map(|name| vec![*name]));
    combinations.push(COMPONENTS.to_vec());
    let mut folders: Vec<TempDir> = combinations.iter().map(|components| overlay(components)).collect();
    let example = manifests().join("examples/natgw");
    for folder in folders.iter().map(TempDir::path).chain([example.as_path()]) {
        let said = apply(&control_plane, "-k", folder, &["--dry-run=server"]);
        assert_eq!(said.len(), render(folder).len(), "{said:?}");
        assert!(said.iter().all(|line| line.ends_with("(server dry run)")), "{said:?}");
        println!("{} objects accepted: {}", said.len(), folder.display());
    }

    // Not only dry: admission of pods comes after that of their Deployment.
    let everything = folders.pop().unwrap();
    apply(&control_plane, "-k", everything.path(), &[]);
    let pods = Api::<Pod>::namespaced(client.clone(), "natgw");
    wait_for("two pods of natgw", || async { Ok(pods.list(&ListParams::default()).await?.items.len() == 2) })
        .await
        .unwrap();
    // What the API server makes of it is what was meant: a second look finds no difference.
    let mut diff = kubectl();
    diff.args(["diff", "--kubeconfig"]).arg(control_plane.kubeconfig()).arg("-k").arg(everything.path());
    let diff = diff.output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    restricted(client, &pods.list(&ListParams::default()).await.unwrap().items[0]).await;
}

/// But for the network of its Node, natgw's pod is one that the strictest level of Pod Security lets in.
async fn restricted(client: Client, pod: &Pod) {
    let metadata = ObjectMeta {
        name: Some("natgw-restricted".into()),
        labels: Some([("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned())].into()),
        ..ObjectMeta::default()
    };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some("natgw".into()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    let place = namespace.name_any();
    Api::namespaced(client.clone(), &place).create(&PostParams::default(), &account).await.unwrap();

    let pods = Api::<Pod>::namespaced(client, &place);
    let mut pod = Pod {
        metadata: ObjectMeta { name: Some("natgw".into()), ..ObjectMeta::default() },
        spec: pod.spec.clone(),
        status: None,
    };
    let Err(kube::Error::Api(refusal)) = pods.create(&PostParams::default(), &pod).await else {
        panic!("hostNetwork was let in")
    };
    let (_, reasons) = refusal.message.split_once("\"restricted:latest\": ").unwrap();
    assert_eq!(
        reasons,
        "host namespaces (hostNetwork=true), hostPort (container \"natgw\" uses hostPort 9470)"
    );
    let spec = pod.spec.as_mut().unwrap();
    spec.host_network = None;
    spec.containers[0].ports.as_mut().unwrap()[0].host_port = None;
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

#[test]
fn every_object_bears_the_recommended_labels() {
    for object in render(overlay(&COMPONENTS).path()) {
        let labels = &object["metadata"]["labels"];
        let named = format!("{} {}", object["kind"], object["metadata"]["name"]);
        for (key, value) in [
            ("name", "natgw"),
            ("part-of", "perimeter"),
            ("component", "controller"),
            ("managed-by", "kustomize"),
        ] {
            assert_eq!(labels[format!("app.kubernetes.io/{key}")], value, "{named}");
        }
    }
}

#[tokio::test]
async fn variables_flags_ports_and_files_are_those_that_natgw_knows() {
    let (code, help) = run(&Program::binary("natgw").unwrap().arg("--help")).await.unwrap();
    assert_eq!(code, 0);
    let known: BTreeSet<&str> = help
        .split("[env: ")
        .skip(1)
        .map(|rest| rest.split([']', '=']).next().unwrap())
        .chain(NO_FLAGS)
        .collect();
    let objects = base();
    let container = container(&objects);
    let environment = container["env"].as_array().unwrap();
    for variable in environment {
        let name = variable["name"].as_str().unwrap();
        assert!(known.contains(name), "natgw reads no {name}; it reads {known:?}");
    }
    for argument in container.get("args").and_then(Value::as_array).into_iter().flatten() {
        let flag = argument.as_str().unwrap().split('=').next().unwrap();
        assert!(help.contains(&format!("{flag} ")), "natgw has no {flag}");
    }

    let value = |name: &str| {
        let variable = environment.iter().find(|variable| variable["name"] == name).unwrap();
        variable["value"].as_str().unwrap()
    };
    let port = &container["ports"][0];
    assert_eq!(port["name"], "admin");
    assert_eq!(value("PERIMETER_ADMIN_ADDRESS"), format!("$(HOST_IP):{}", port["containerPort"]));
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "admin"}));
    }
    assert_eq!(container["resources"]["limits"], json!({"memory": "64Mi"}), "no limit of CPU");
    assert_eq!(container["resources"]["requests"]["memory"], "64Mi");

    let mounted = |volume: &str| {
        let mounts = container["volumeMounts"].as_array().unwrap();
        let mount = mounts.iter().find(|mount| mount["name"] == volume).unwrap();
        mount["mountPath"].as_str().unwrap().to_owned()
    };
    let volumes = &only(&objects, "Deployment")["spec"]["template"]["spec"]["volumes"];
    assert_eq!(volumes[0]["configMap"]["name"], only(&objects, "ConfigMap")["metadata"]["name"]);
    assert_eq!(volumes[1]["secret"]["secretName"], "hcloud");
    assert!(help.contains(&format!("[default: {}/natgw.yaml]", mounted("settings"))));
    assert_eq!(value("HCLOUD_TOKEN_FILE"), format!("{}/token", mounted("hcloud")));
}

#[tokio::test]
async fn settings_are_natgws_own_and_a_missing_network_is_said_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |objects: &[Value]| {
        let file = folder.path().join("natgw.yaml");
        std::fs::write(&file, only(objects, "ConfigMap")["data"]["natgw.yaml"].as_str().unwrap()).unwrap();
        file
    };
    Config::load(&settings(&render(&manifests().join("examples/natgw")))).unwrap();

    let file = settings(&base());
    let natgw = Program::binary("natgw").unwrap().env("HCLOUD_TOKEN", "x").arg("--config").arg(&file);
    let (code, said) = run(&natgw).await.unwrap();
    assert_eq!(code, 2, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("natgw.yaml") && said.contains("network: a name or an ID is needed"), "{said}");
    // Nothing else is missing.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("network: \"\"", "network: cluster")).unwrap();
    Config::load(&file).unwrap();
}

#[test]
fn two_replicas_keep_apart_and_their_selector_leaves_the_pods_of_jobs_alone() {
    let objects = render(overlay(&["ha"]).path());
    let deployment = &only(&objects, "Deployment")["spec"];
    assert_eq!(deployment["replicas"], 2);
    let pods = &deployment["selector"]["matchLabels"];
    // natgw's Jobs say which type they are in this label; their pods are natgw's by name, too.
    assert_eq!(pods["app.kubernetes.io/component"], "controller");
    let terms = &deployment["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        terms,
        &json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": pods}}])
    );
    let budget = only(&objects, "PodDisruptionBudget");
    assert_eq!(&budget["spec"]["selector"]["matchLabels"], pods);
    assert_eq!(budget["spec"]["minAvailable"], 1);
    assert_eq!(
        (&budget["metadata"]["name"], &budget["metadata"]["namespace"]),
        (&json!("natgw"), &json!("natgw"))
    );
    assert_eq!(deployment["strategy"]["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 1}));
}

#[test]
fn a_policy_shuts_the_namespace_and_opens_what_a_controller_needs() {
    let objects = render(overlay(&["networkpolicy"]).path());
    let policies: Vec<&Value> = objects.iter().filter(|object| object["kind"] == "NetworkPolicy").collect();
    assert_eq!(policies.len(), 2);
    assert!(policies.iter().all(|policy| policy["metadata"]["namespace"] == "natgw"));
    let by_name = |name: &str| *policies.iter().find(|policy| policy["metadata"]["name"] == name).unwrap();
    assert_eq!(by_name("nobody")["spec"], json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}));
    let deployment = &only(&objects, "Deployment")["spec"];
    assert_eq!(by_name("natgw")["spec"]["podSelector"], deployment["selector"]);
    let port = &by_name("natgw")["spec"]["ingress"][0]["ports"][0]["port"];
    assert_eq!(port, &container(&objects)["ports"][0]["name"]);
}
