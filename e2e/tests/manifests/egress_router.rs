//! egress-router-cni's manifests: a pod that differs from the level `restricted` in two points only, and the least permissions.

use e2e::kustomize::{self, manifests, only};
use e2e::rights::{Grant, Rights};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::{Value, json};

use super::{apply, control_plane, render};

const NAME: &str = "egress-router-cni";

fn rendered(folder: &str) -> Vec<Value> {
    render(&manifests().join(folder))
}

#[tokio::test]
async fn a_real_api_server_accepts_the_example_and_the_installers_pod() {
    let control_plane = control_plane().await;
    let example = manifests().join("examples/egress-router-cni");
    apply(&control_plane, "-k", &example, &[]);
    apply(&control_plane, "-f", &example.join("containerd/runtime-class.yaml"), &["--dry-run=server"]);
    // It has no namespace; the user sets it.
    for namespace in ["default", "kube-public"] {
        apply(&control_plane, "-f", &example.join("configmap-reader.yaml"), &["--namespace", namespace]);
    }
    let mut diff = kustomize::kubectl().unwrap();
    diff.args(["diff", "--kubeconfig"]).arg(control_plane.kubeconfig()).arg("-k").arg(&example);
    let diff = diff.output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    nearly_restricted(control_plane.client()).await;
}

/// Apart from root and two folders of its node, the installer's pod meets the strictest level of Pod Security.
async fn nearly_restricted(client: kube::Client) {
    let labels = [("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned())].into();
    let named = |name: &str| ObjectMeta { name: Some(name.into()), ..ObjectMeta::default() };
    let metadata = ObjectMeta { labels: Some(labels), ..named("egress-router-restricted") };
    let create = PostParams::default();
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&create, &namespace).await.unwrap();
    let account = ServiceAccount { metadata: named(NAME), ..ServiceAccount::default() };
    Api::namespaced(client.clone(), "egress-router-restricted").create(&create, &account).await.unwrap();

    let template = only(&rendered(NAME), "DaemonSet").unwrap()["spec"]["template"]["spec"].clone();
    let mut pod = Pod {
        metadata: named("installer"),
        spec: serde_json::from_value(template).unwrap(),
        ..Pod::default()
    };
    let pods = Api::<Pod>::namespaced(client, "egress-router-restricted");
    let Err(kube::Error::Api(refusal)) = pods.create(&create, &pod).await else { panic!("it was let in") };
    let (_, reasons) = refusal.message.split_once("\"restricted:latest\": ").unwrap();
    assert_eq!(
        reasons,
        "restricted volume types (volumes \"bin\", \"node-settings\" use restricted volume type \"hostPath\"), \
         runAsNonRoot != true (pod or containers \"install\", \"installer\" must set \
         securityContext.runAsNonRoot=true), runAsUser=0 (pod must not set runAsUser=0)"
    );
    let spec = pod.spec.as_mut().unwrap();
    spec.volumes.as_mut().unwrap().iter_mut().filter(|volume| volume.host_path.is_some()).for_each(
        |volume| {
            volume.host_path = None;
            volume.empty_dir = Some(Default::default());
        },
    );
    let context = spec.security_context.as_mut().unwrap();
    (context.run_as_user, context.run_as_non_root) = (Some(65532), Some(true));
    pods.create(&create, &pod).await.unwrap();
}

/// One verb on one resource. `egress_router_cluster` tests that it is enough.
#[test]
fn the_plugin_may_read_config_maps_and_nothing_else() {
    let grants = Rights::of(NAME).unwrap().grants().unwrap();
    let expected = Grant {
        namespace: None,
        group: String::new(),
        resource: "configmaps".into(),
        name: None,
        verb: "get".into(),
    };
    assert_eq!(grants, [expected]);
    // The example grants the same in single namespaces only.
    let example = rendered("examples/egress-router-cni");
    assert!(example.iter().all(|object| object["kind"] != "ClusterRoleBinding"));
    assert!(example.iter().all(|object| object["kind"] != "RoleBinding"));
    let file = manifests().join("examples/egress-router-cni/configmap-reader.yaml");
    let binding: Value = serde_yaml::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(binding["metadata"].get("namespace").is_none(), "the user gives it");
    let account = json!([{"kind": "ServiceAccount", "name": NAME, "namespace": NAME}]);
    assert_eq!((&binding["roleRef"]["name"], &binding["subjects"]), (&json!(NAME), &account));
}

/// Both containers have the same mounts and arguments; one of them keeps running.
#[test]
fn the_installer_writes_two_folders_of_its_node_as_root_without_capabilities() {
    let objects = rendered(NAME);
    let daemon_set = &only(&objects, "DaemonSet").unwrap()["spec"];
    let pod = &daemon_set["template"]["spec"];
    let (first, second) = (&pod["initContainers"][0], &pod["containers"][0]);
    for key in ["image", "resources", "securityContext", "volumeMounts"] {
        assert_eq!(first[key], second[key], "{key}");
    }
    let mut arguments = first["args"].as_array().unwrap().clone();
    arguments.push(json!("--watch"));
    assert_eq!(second["args"], json!(arguments));
    assert_eq!(
        first["securityContext"],
        json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}})
    );
    for absent in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod.get(absent).is_none(), "{absent}");
    }
    let paths: Vec<&Value> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|volume| volume.pointer("/hostPath/path"))
        .collect();
    assert_eq!(paths, [&json!("/opt/cni/bin"), &json!("/etc/cni/net.d/egress-router.d")]);
    let map = &only(&objects, "ConfigMap").unwrap()["metadata"]["name"];
    assert_eq!(&pod["volumes"][2]["configMap"]["name"], map);
}
