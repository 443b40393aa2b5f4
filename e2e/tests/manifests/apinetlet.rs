//! apinetlet's manifests: flags, variables and ports match the program, and the examples are valid. `apinetlet::rights` runs apinetlet with
//! their permissions.

use std::collections::BTreeSet;

use e2e::kustomize::{self, Overlay, manifests};
use e2e::natgw::run;
use e2e::program::{Program, variables};
use serde_json::{Value, json};

use super::{apply, control_plane, render};

/// A variable without a flag: the runtime reads the name of this instance.
const NO_FLAGS: [&str; 1] = ["POD_NAME"];

#[tokio::test]
async fn the_examples_are_valid() {
    let control_plane = control_plane().await;
    for example in ["apinetlet", "apinetlet/apinet-cluster", "apinetlet-kind"] {
        let folder = manifests().join("examples").join(example);
        let applied = apply(&control_plane, "-k", &folder, &[]);
        assert_eq!(applied.len(), render(&folder).len(), "{applied:?}");
    }
}

#[tokio::test]
async fn flags_variables_and_ports_match_the_program() {
    let (code, help) = run(&Program::binary("apinetlet").unwrap().arg("--help")).await.unwrap();
    assert_eq!(code, 0);
    let known: BTreeSet<&str> = variables(&help).into_iter().chain(NO_FLAGS).collect();
    let overlay = kustomize::overlay("apinetlet", &["apinetlet-kubeconfig"]).unwrap();
    let objects = render(overlay.path());
    let container =
        &kustomize::only(&objects, "Deployment").unwrap()["spec"]["template"]["spec"]["containers"][0];
    for variable in container["env"].as_array().unwrap() {
        assert!(known.contains(variable["name"].as_str().unwrap()), "{variable}");
    }
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    for argument in &arguments {
        let flag = argument.split('=').next().unwrap();
        let is_known = [" <", "[="].iter().any(|value| help.contains(&format!("{flag}{value}")));
        assert!(is_known, "apinetlet has no {flag}");
    }
    for (index, (port, flag)) in
        [("admin", "--health-probe-bind-address"), ("metrics", "--metrics-bind-address")].iter().enumerate()
    {
        let declared = &container["ports"][index];
        assert_eq!(declared["name"], *port);
        let argument = format!("{flag}=:{}", declared["containerPort"]);
        assert!(arguments.contains(&argument.as_str()), "{argument}: {arguments:?}");
    }
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "admin" }));
    }
}

/// In one cluster, the Role for the apinet objects is bound to the account of the Deployment.
#[test]
fn bindings_follow_namespace_and_prefix() {
    let overlay = Overlay {
        controllers: vec!["examples/apinetlet-kind"],
        namespace: Some("edge"),
        name_prefix: Some("acme-"),
        ..Overlay::default()
    };
    let objects = render(overlay.write().unwrap().path());
    let account = json!([{ "kind": "ServiceAccount", "name": "acme-apinetlet", "namespace": "edge" }]);
    assert_eq!(
        kustomize::only(&objects, "Deployment").unwrap()["spec"]["template"]["spec"]["serviceAccountName"],
        account[0]["name"]
    );
    let bindings: Vec<&Value> =
        objects.iter().filter(|object| object["kind"].as_str().unwrap().ends_with("Binding")).collect();
    assert_eq!(bindings.len(), 3);
    for binding in bindings {
        assert_eq!(binding["subjects"], account, "{binding}");
        let role = &binding["roleRef"];
        let is_bound = |object: &&Value| {
            object["kind"] == role["kind"]
                && object["metadata"]["name"] == role["name"]
                && object["metadata"]["namespace"] == binding["metadata"]["namespace"]
        };
        assert_eq!(objects.iter().filter(is_bound).count(), 1, "{binding}");
    }
}
