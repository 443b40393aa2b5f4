//! routegc's manifests: the example is valid, variables and ports match the program, and no permission is missing or unused.

use std::collections::{BTreeMap, BTreeSet};

use e2e::fault_proxy::KubeRequest;
use e2e::kustomize::{self, manifests};
use e2e::natgw::run;
use e2e::program::{Program, variables};
use e2e::rights::{Grant, Rights};
use e2e::routegc::TestEnv;
use serde_json::json;

use super::{apply, control_plane, render};

/// A variable without a flag: the runtime reads the name of this instance.
const NO_FLAGS: [&str; 1] = ["POD_NAME"];

/// The components that have permissions.
const COMPONENTS: [&str; 2] = ["routegc-nodes", "routegc-cluster-api"];

#[tokio::test]
async fn the_example_is_valid_and_kubectl_shows_columns_and_explanations() {
    let control_plane = control_plane().await;
    apply(&control_plane, "-k", &manifests().join("routegc/crds"), &[]);
    let wait = kustomize::kubectl()
        .unwrap()
        .args(["wait", "--for=condition=Established", "--timeout=600s"])
        .args(["crd/routegcs.routegc.perimeter.dev", "--kubeconfig"])
        .arg(control_plane.kubeconfig())
        .output()
        .unwrap();
    assert!(wait.status.success());
    let example = manifests().join("examples/routegc");
    let applied = apply(&control_plane, "-k", &example, &[]);
    assert_eq!(applied.len(), render(&example).len(), "{applied:?}");
    let kubectl = |arguments: &[&str]| {
        let mut kubectl = kustomize::kubectl().unwrap();
        let output =
            kubectl.args(arguments).arg("--kubeconfig").arg(control_plane.kubeconfig()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let table = kubectl(&["-n", "routegc", "get", "routegcs"]);
    let header: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "MODE", "READY", "REASON", "ROUTES", "ORPHANS", "AGE"]);
    // kubectl wraps the text.
    let explained = kubectl(&["explain", "routegc.spec.podCIDRs"]);
    let explained = explained.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(explained.contains("foreign and never removed"), "{explained}");
}

#[tokio::test]
async fn variables_and_ports_match_the_program() {
    let (code, help) = run(&Program::binary("routegc").unwrap().arg("--help")).await.unwrap();
    assert_eq!(code, 0);
    let known: BTreeSet<&str> = variables(&help).into_iter().chain(NO_FLAGS).collect();
    let objects = render(&manifests().join("routegc"));
    let container =
        &kustomize::only(&objects, "Deployment").unwrap()["spec"]["template"]["spec"]["containers"][0];
    for variable in container["env"].as_array().unwrap() {
        assert!(known.contains(variable["name"].as_str().unwrap()), "{variable}");
    }
    assert_eq!(container["ports"][0]["name"], "admin");
    assert!(help.contains(&format!("[default: [::]:{}]", container["ports"][0]["containerPort"])));
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({ "path": path, "port": "admin" }));
    }
}

/// No request of routegc is refused, and each permission of `rbac.yaml` and of its components is used.
#[tokio::test]
async fn every_permission_is_used_and_none_is_missing() {
    let env = TestEnv::start().await.unwrap();
    env.populate(2, 1).await.unwrap();
    for component in COMPONENTS {
        env.grant(component).await.unwrap();
    }
    let node = env.cluster_node(1, "10.7.1.1", "s-1").await.unwrap();
    let more =
        json!({ "nodesFrom": { "inCluster": true }, "safety": { "confirmations": 1, "minAge": "0s" } });
    env.policy("prod", more).await.unwrap();
    env.dry_run(&[]).await.unwrap();
    // There is no such OpenStackCluster, which is another refusal than that of RBAC.
    let managed = json!({ "routerID": null, "openStackClusterRef": { "name": "managed" } });
    env.policy("managed", managed).await.unwrap();
    let routegc = env.routegc().unwrap().start().unwrap();
    env.wait_for_reason("prod", "NoOrphans").await.unwrap();
    // The same problem with another message updates the first Event to a series: a list that exceeds the threshold, then a longer one.
    for index in 4..=6 {
        env.orphaned_route(index).await.unwrap();
    }
    env.allow("prod", "second").await.unwrap();
    env.wait_for_reason("prod", "!SafetyThreshold").await.unwrap();
    env.orphaned_route(7).await.unwrap();
    env.allow("prod", "third").await.unwrap();
    let all = COMPONENTS.iter().fold(Rights::of("routegc").unwrap(), |rights, one| rights.and(one).unwrap());
    let grants = all.grants().unwrap();
    let unused = || {
        let mut used: BTreeMap<&Grant, u32> = grants.iter().map(|grant| (grant, 0)).collect();
        for request in env.api_proxy.requests() {
            let asked = request.kube().unwrap_or_else(|| panic!("{} is no resource", request.path));
            let namespace =
                asked.namespace.map(|it| if it == env.namespace { "routegc".to_owned() } else { it });
            let asked = KubeRequest { namespace, ..asked };
            let covering: Vec<&Grant> = grants.iter().filter(|grant| grant.covers(&asked)).collect();
            assert!(!covering.is_empty(), "not granted: {} {}", request.method, request.path);
            assert_ne!(request.status, Some(403), "{} {}", request.method, request.path);
            for grant in covering {
                *used.entry(grant).or_default() += 1;
            }
        }
        used.into_iter()
            .filter(|(_, count)| *count == 0)
            .map(|(grant, _)| format!("{grant:?}"))
            .collect::<Vec<_>>()
    };
    // The Event and the renewal of the Lease come later.
    let used =
        e2e::natgw::wait_for("every permission to be used", || async { Ok(unused().is_empty()) }).await;
    assert!(used.is_ok(), "granted but unused: {:#?}", unused());
    env.delete_cluster_node(&node).await.unwrap();
    drop(routegc);
}
