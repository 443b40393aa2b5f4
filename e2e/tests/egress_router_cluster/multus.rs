//! Multus itself, which the runtime calls for each pod of a RuntimeClass: it calls the node's own network, and a network of this plugin for
//! each name of the pod's annotation.

use e2e::assets;
use e2e::cluster::SEGMENT_GATEWAY;
use serde_json::{Value, json};

use super::env::{BUSYBOX, SERVE, TestEnv};

const IMAGE: &str = "perimeter.dev/multus:1";
/// Copies the program as an installer does: under another name first.
const INSTALL: &str =
    "cp /multus /bin-dir/multus.new && mv /bin-dir/multus.new /bin-dir/multus && exec sleep 1000000";
/// Its kubeconfig on the nodes.
const KUBECONFIG: &str = "/etc/cni/net.d/multus.d/multus.kubeconfig";

/// Installs it on the nodes, and the RuntimeClass `multus`.
pub async fn install(env: &TestEnv) {
    let mut programs = vec![format!("{}:/multus", assets::multus().unwrap().display())];
    programs.extend(["cp", "mv", "sh", "sleep"].map(|name| format!("/bin/busybox:/bin/{name}")));
    env.cluster.make_image(IMAGE, &programs).await.unwrap();
    // Upstream's manifest (deployments/multus-daemonset.yml), less what the test does not need.
    let names = json!({"plural": "network-attachment-definitions", "singular": "network-attachment-definition",
        "kind": "NetworkAttachmentDefinition", "shortNames": ["net-attach-def"]});
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"config": {"type": "string"}}}}});
    env.apply(&json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "network-attachment-definitions.k8s.cni.cncf.io"},
        "spec": {"group": "k8s.cni.cncf.io", "scope": "Namespaced", "names": names,
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    }))
    .await;
    let definition = "crd/network-attachment-definitions.k8s.cni.cncf.io";
    let established = ["wait", "--for=condition=Established", definition, "--timeout=600s"];
    env.kubectl(&established).await;
    env.kubectl(&["-n", "kube-system", "create", "serviceaccount", "multus"]).await;
    let rules = json!([
        {"apiGroups": ["k8s.cni.cncf.io"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get", "list", "update", "watch"]},
        {"apiGroups": ["", "events.k8s.io"], "resources": ["events"], "verbs": ["create", "patch", "update"]},
    ]);
    let (group, name) = ("rbac.authorization.k8s.io", json!({"name": "multus"}));
    env.apply(&json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRole", "metadata": name, "rules": rules})).await;
    env.apply(&json!({
        "apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding", "metadata": name,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "multus"},
        "subjects": [{"kind": "ServiceAccount", "name": "multus", "namespace": "kube-system"}],
    }))
    .await;
    let token = env.kubectl(&["-n", "kube-system", "create", "token", "multus", "--duration=24h"]).await;
    let config = json!({
        "cniVersion": "1.0.0", "name": "multus", "type": "multus", "kubeconfig": KUBECONFIG,
        "clusterNetwork": "/etc/cni/net.d/10-pods.conflist",
    });
    env.runtime("multus", "10-multus.conf", |_| config.clone()).await;
    for node in env.cluster.nodes() {
        // This plugin's kubeconfig has the server and its CA.
        let own = node.exec(&["cat", "/etc/cni/net.d/egress-router.d/kubeconfig"]).await.unwrap();
        let mut kubeconfig: Value = serde_json::from_str(&own).unwrap();
        kubeconfig["users"][0]["user"]["token"] = json!(token.trim());
        let script = format!("mkdir -p ${{1%/*}}; umask 077; cat >$1 <<'END'\n{kubeconfig}\nEND\n");
        node.exec(&["bash", "-euc", &script, "kubeconfig", KUBECONFIG]).await.unwrap();
        let pod = format!("multus-{}", node.name());
        let container = json!({
            "name": "install", "image": IMAGE, "command": ["/bin/sh", "-c", INSTALL],
            "volumeMounts": [{"name": "bin-dir", "mountPath": "/bin-dir"}],
        });
        env.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod},
            "spec": {"nodeName": node.name(), "terminationGracePeriodSeconds": 0, "containers": [container],
                "volumes": [{"name": "bin-dir", "hostPath": {"path": "/opt/cni/bin"}}]},
        }))
        .await;
        env.until_ready(&pod).await;
    }
    env.restart_runtimes().await;
}

/// A pod with two networks of this plugin has both interfaces, and leaves with the address of the second. Without the pod, nothing is left.
pub async fn two_networks(env: &TestEnv) {
    let server = env.server("node-2").await;
    for (name, ip) in [
        ("one", json!({"addresses": ["198.18.50.60/24"], "gateway": SEGMENT_GATEWAY.to_string()})),
        ("two", json!({"addresses": ["198.18.50.61/24"], "gateway": SEGMENT_GATEWAY.to_string()})),
    ] {
        let config = json!({"cniVersion": "1.0.0", "name": name, "type": "egress-router", "ip": ip});
        env.apply(&json!({
            "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "metadata": {"name": name},
            "spec": {"config": config.to_string()},
        }))
        .await;
    }
    let container = json!({
        "name": "web", "image": BUSYBOX, "command": ["/bin/sh", "-c", SERVE],
        "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
    });
    env.apply(&json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "two", "annotations": {"k8s.v1.cni.cncf.io/networks": "one,two"}},
        "spec": {"nodeName": "node-1", "runtimeClassName": "multus", "terminationGracePeriodSeconds": 0,
            "containers": [container]},
    }))
    .await;
    env.until_ready("two").await;
    let status = r"jsonpath={.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}";
    let status: Vec<Value> =
        serde_json::from_str(&env.kubectl(&["get", "pod", "two", "-o", status]).await).unwrap();
    let of = |interface: &str| {
        status.iter().find(|one| one["interface"] == interface).unwrap_or_else(|| panic!("{status:?}"))
    };
    assert_eq!(
        (&of("net1")["ips"], &of("net2")["ips"]),
        (&json!(["198.18.50.60"]), &json!(["198.18.50.61"]))
    );
    assert_eq!(env.asked("two", "203.0.113.9").await, "198.18.50.61", "{}", env.inside("two").await);
    // The cluster's network is its default one.
    let own = env.kubectl(&["get", "pod", "two", "-o", "jsonpath={.status.podIP}"]).await;
    for host in [&server.service, &server.pod] {
        assert_eq!(env.asked("two", host).await, own, "{}", env.inside("two").await);
    }
    assert_eq!(env.asked("server", &own).await, server.pod, "{}", env.inside("two").await);
    assert_eq!(env.records("node-1").await.lines().count(), 2);
    env.delete("two").await;
    env.nothing_is_left().await;
}
