//! natgw's manifests: flags, settings, ports and pods match the program.

use std::collections::BTreeSet;
use std::process::Command;

use e2e::kustomize::{self, manifests};
use e2e::natgw::{run, wait_for};
use e2e::program::{Program, variables};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, ListParams, ObjectMeta, PostParams};
use kube::{Client, ResourceExt};
use natgw::config::Config;
use serde_json::{Value, json};

use super::{apply, control_plane, render};

/// Variables without a flag: the Deployment uses one in another's value, and the runtime reads the name of this instance.
const NO_FLAGS: [&str; 2] = ["HOST_IP", "POD_NAME"];

fn kubectl() -> Command {
    kustomize::kubectl().unwrap()
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

#[tokio::test]
async fn pods_are_created_and_a_second_apply_changes_nothing() {
    let control_plane = control_plane().await;
    let client = control_plane.client();
    let folder = manifests().join("examples/natgw");
    apply(&control_plane, "-k", &folder, &[]);
    let pods = Api::<Pod>::namespaced(client.clone(), "natgw");
    wait_for("two pods of natgw", || async { Ok(pods.list(&ListParams::default()).await?.items.len() == 2) })
        .await
        .unwrap();
    let mut diff = kubectl();
    diff.args(["diff", "--kubeconfig"]).arg(control_plane.kubeconfig()).arg("-k").arg(&folder);
    let diff = diff.output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    restricted(client, &pods.list(&ListParams::default()).await.unwrap().items[0]).await;
}

/// Apart from the host network, natgw's pod meets the strictest level of Pod Security.
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

#[tokio::test]
async fn variables_flags_ports_and_files_match_the_program() {
    let (code, help) = run(&Program::binary("natgw").unwrap().arg("--help")).await.unwrap();
    assert_eq!(code, 0);
    let known: BTreeSet<&str> = variables(&help).into_iter().chain(NO_FLAGS).collect();
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
async fn the_configuration_is_valid_and_a_missing_network_is_reported_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |objects: &[Value]| {
        let file = folder.path().join("natgw.yaml");
        std::fs::write(&file, only(objects, "ConfigMap")["data"]["natgw.yaml"].as_str().unwrap()).unwrap();
        file
    };
    Config::load(&settings(&render(&manifests().join("examples/natgw")))).unwrap();

    let file = settings(&base());
    let natgw = Program::binary("natgw").unwrap().env("HCLOUD_TOKEN", "x").arg("--config").arg(&file);
    let (code, output) = run(&natgw).await.unwrap();
    assert_eq!(code, 2, "{output}");
    assert_eq!(output.lines().count(), 1, "{output}");
    assert!(
        output.contains("natgw.yaml") && output.contains("network: a name or an ID is needed"),
        "{output}"
    );
    // Nothing else is missing.
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("network: \"\"", "network: cluster")).unwrap();
    Config::load(&file).unwrap();
}

#[test]
fn two_replicas_run_on_two_nodes() {
    let objects = render(kustomize::overlay("natgw", &["ha/natgw"]).unwrap().path());
    let deployment = &only(&objects, "Deployment")["spec"];
    assert_eq!(deployment["replicas"], 2);
    let pods = &deployment["selector"]["matchLabels"];
    // The pods of natgw's Jobs have the same name label, but another component.
    assert_eq!(pods["app.kubernetes.io/component"], "controller");
    let terms = &deployment["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(
        terms,
        &json!([{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": pods}}])
    );
    let budget = only(&objects, "PodDisruptionBudget");
    assert_eq!(budget["spec"]["minAvailable"], 1);
    assert_eq!(deployment["strategy"]["rollingUpdate"], json!({"maxSurge": 0, "maxUnavailable": 1}));
}

/// NetworkPolicies do not apply to pods on the host network. A policy for natgw would be without effect.
#[test]
fn natgw_is_on_the_host_network_and_has_no_network_policy() {
    assert_eq!(only(&base(), "Deployment")["spec"]["template"]["spec"]["hostNetwork"], true);
    assert!(!manifests().join("components/networkpolicy/natgw").exists());
}

#[test]
fn a_network_policy_admits_metrics_dns_and_the_apis_that_the_controller_calls() {
    for (controller, ports) in [
        ("apinetlet", &[443, 6443, 53, 53, 5353, 5353, 4317][..]),
        ("routegc", &[443, 6443, 5000, 8774, 9696, 53, 53, 5353, 5353, 4317]),
        ("deorbiter", &[443, 6443, 5000, 8774, 8776, 9696, 9876, 53, 53, 5353, 5353, 4317]),
    ] {
        let component = format!("networkpolicy/{controller}");
        let objects = render(kustomize::overlay(controller, &[&component]).unwrap().path());
        let spec = &only(&objects, "NetworkPolicy")["spec"];
        assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
        let port = &spec["ingress"][0]["ports"][0]["port"];
        let container = &only(&objects, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(port, &container["ports"][0]["name"]);
        assert_eq!(spec["ingress"].as_array().unwrap().len(), 1);
        let opened: Vec<&Value> = spec["egress"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|rule| rule["ports"].as_array().unwrap())
            .collect();
        let opened: Vec<i64> = opened.iter().map(|port| port["port"].as_i64().unwrap()).collect();
        assert_eq!(opened, ports);
    }
    let objects =
        render(kustomize::overlay("cgw-controller", &["networkpolicy/cgw-controller"]).unwrap().path());
    let spec = &only(&objects, "NetworkPolicy")["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    assert_eq!(spec["ingress"][1], json!({"ports": [{"port": "api", "protocol": "TCP"}]}));
    let status = json!({"ports": [{"port": 63001, "endPort": 63255, "protocol": "TCP"}]});
    assert!(spec["egress"].as_array().unwrap().contains(&status), "the controller polls the keepers");
    let component = "networkpolicy/egress-router-cni";
    let objects = render(kustomize::overlay("egress-router-cni", &[component]).unwrap().path());
    let spec = &only(&objects, "NetworkPolicy")["spec"];
    assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
    assert!(spec.get("ingress").is_none() && spec.get("egress").is_none(), "the installer uses no network");
}

/// The certificate and the registration name the Service, whatever `namespace:` and `namePrefix:` say.
#[test]
fn the_hooks_certificate_and_registration_follow_namespace_and_prefix() {
    for (setting, service, namespace) in [
        ("", "deorbiter-hook", "deorbiter"),
        ("namespace: edge\n", "deorbiter-hook", "edge"),
        ("namePrefix: acme-\n", "acme-deorbiter-hook", "deorbiter"),
        ("namespace: edge\nnamePrefix: acme-\n", "acme-deorbiter-hook", "edge"),
    ] {
        let copy = tempfile::tempdir().unwrap();
        let copied = Command::new("cp").arg("-r").arg(manifests()).arg(copy.path()).status().unwrap();
        assert!(copied.success());
        let example = copy.path().join("manifests/examples/deorbiter-cluster-api");
        let file = example.join("kustomization.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, format!("{text}{setting}")).unwrap();

        let objects = render(&example);
        let metadata = &only(&objects, "Service")["metadata"];
        assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!(service), &json!(namespace)));
        let certificate = &only(&objects, "Certificate")["spec"];
        let host = format!("{service}.{namespace}.svc");
        assert_eq!(certificate["dnsNames"], json!([host, format!("{host}.cluster.local")]));
        assert_eq!(certificate["issuerRef"]["name"], only(&objects, "Issuer")["metadata"]["name"]);
        let volumes = &only(&objects, "Deployment")["spec"]["template"]["spec"]["volumes"];
        assert_eq!(certificate["secretName"], volumes[0]["secret"]["secretName"]);
        let extension = only(&objects, "ExtensionConfig");
        assert_eq!(
            extension["spec"]["clientConfig"]["service"],
            json!({"name": service, "namespace": namespace, "port": 443})
        );
        let from = &extension["metadata"]["annotations"]["runtime.cluster.x-k8s.io/inject-ca-from-secret"];
        assert_eq!(from, &json!(format!("{namespace}/deorbiter-hook")));
    }
}
