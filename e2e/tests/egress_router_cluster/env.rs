//! Two nodes with an additional interface each, and pods that report their clients' addresses.

use anyhow::ensure;
use e2e::cluster::{Cluster, SEGMENT_GATEWAY, Servers, image};
use e2e::kustomize::overlay;
use e2e::wait::{until, until_ok};
use serde_json::{Value, json};

pub const BUSYBOX: &str = "perimeter.dev/busybox:1";
/// The folder of attachments' records on a node.
const RECORDS: &str = "find /run/egress-router /var/lib/cni/egress-router -name '*.json' 2>/dev/null || :";
/// A CGI script that returns the client's address.
pub const SERVE: &str = "mkdir -p /www/cgi-bin; printf '#!/bin/sh\\necho; echo $REMOTE_ADDR\\n' >/www/cgi-bin/seen; \
    chmod +x /www/cgi-bin/seen; exec httpd -f -p 80 -h /www";

pub struct TestEnv {
    pub cluster: Cluster,
    _internet: Servers,
}

/// A pod with this server, and its Service.
pub struct Server {
    pub pod: String,
    pub service: String,
}

impl TestEnv {
    /// The cluster without the plugin.
    pub async fn start() -> Self {
        let cluster = Cluster::start(2).await.unwrap();
        println!("two nodes Ready after {:.1} s", cluster.took().as_secs_f64());
        cluster.segment().unwrap();
        let _internet = cluster.internet().unwrap();
        let names = ["busybox", "sh", "httpd", "mkdir", "chmod", "printf"];
        let mut applets: Vec<String> = names.iter().map(|name| format!("/bin/busybox:/bin/{name}")).collect();
        // A static busybox cannot resolve names; this program uses addresses.
        applets.push(cluster.programs().join("fetch").to_string_lossy().into_owned());
        cluster.make_image(BUSYBOX, &applets).await.unwrap();
        TestEnv { cluster, _internet }
    }

    /// Installs the plugin as its page describes: the image, `kubectl apply -k`, and containerd's RuntimeClasses.
    pub async fn install(&self) {
        let archive = image::build("egress-router-cni").await.unwrap();
        self.cluster.import_image(&archive).await.unwrap();
        let overlay = overlay("egress-router-cni", &[]).unwrap();
        // An overlay replaces the settings.
        let file = overlay.path().join("kustomization.yaml");
        let mut kustomization: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        kustomization["configMapGenerator"] = json!([{
            "name": "egress-router-cni-settings", "namespace": "egress-router-cni", "behavior": "replace",
            "files": ["settings.json"],
        }]);
        kustomization["generatorOptions"] = json!({"disableNameSuffixHash": true});
        std::fs::write(&file, kustomization.to_string()).unwrap();
        let settings = json!({"clusterNetworks": [self.cluster.range()]});
        std::fs::write(overlay.path().join("settings.json"), settings.to_string()).unwrap();
        self.kubectl(&["apply", "-k", &overlay.path().to_string_lossy()]).await;
        let status = ["rollout", "status", "daemonset/egress-router-cni", "--timeout=600s"];
        let namespaced: Vec<&str> = ["-n", "egress-router-cni"].into_iter().chain(status).collect();
        if let Err(error) = self.cluster.kubectl(&namespaced).await {
            let what = self.kubectl(&["-n", "egress-router-cni", "describe", "pods"]).await;
            let logs = self
                .cluster
                .kubectl(&[
                    "-n",
                    "egress-router-cni",
                    "logs",
                    "--all-containers",
                    "-l",
                    "app.kubernetes.io/name=egress-router-cni",
                ])
                .await;
            panic!("{error:#}\n{what}\n{logs:?}");
        }

        let gateway = SEGMENT_GATEWAY.to_string();
        let ip = |address: &str| json!({"addresses": [address], "gateway": gateway});
        let by_name = json!({"podIP": {"web-0": ip("198.18.50.80/24"), "db-*": ip("198.18.50.81/24")}});
        let from_map = json!({"ipConfig": {"name": "egress-addresses", "overrides": {
            "addresses": ["198.18.50.90", "198.18.50.91"], "gateway": gateway,
        }}});
        for (class, source) in [("egress", by_name), ("egress-config", from_map)] {
            self.runtime_class(class, &source).await;
        }
        self.restart_runtimes().await;
    }

    /// Restarts containerd on each node, which then reads its configuration.
    pub async fn restart_runtimes(&self) {
        for node in self.cluster.nodes() {
            // Its shims and pods keep running; process 1 restarts it.
            node.exec(&["bash", "-c", "kill $(pidof containerd)"]).await.unwrap();
            let version = ["/opt/perimeter/assets/ctr", "version"];
            until_ok(&format!("containerd on {}", node.name()), async || node.exec(&version).await.map(Some))
                .await
                .unwrap();
        }
    }

    /// Creates a RuntimeClass with the node's network list, followed by the plugin.
    async fn runtime_class(&self, class: &str, source: &Value) {
        let chained = |mut list: Value| {
            let mut plugin = source.clone();
            plugin["type"] = json!("egress-router");
            list["plugins"].as_array_mut().unwrap().insert(1, plugin);
            list
        };
        self.runtime(class, &format!("10-{class}.conflist"), chained).await;
    }

    /// Creates a RuntimeClass whose pods have the network configuration that `network` makes of the node's own list, in a file of this name.
    pub async fn runtime(&self, class: &str, file: &str, network: impl Fn(Value) -> Value) {
        for node in self.cluster.nodes() {
            let folder = format!("/etc/cni/{class}.d");
            let own = node.exec(&["cat", "/etc/cni/net.d/10-pods.conflist"]).await.unwrap();
            let network = network(serde_json::from_str(&own).unwrap());
            let runtime = format!(
                "[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.{class}]\n\
                 runtime_type = \"io.containerd.runc.v2\"\ncni_conf_dir = \"{folder}\"\ncni_max_conf_num = 1\n"
            );
            let script = format!(
                "mkdir -p {folder}; cat >{folder}/{file} <<'END'\n{network}\nEND\n\
                 cat >>/etc/containerd/config.toml <<'END'\n{runtime}END\n"
            );
            node.exec(&["bash", "-euc", &script]).await.unwrap();
        }
        self.apply(&json!({
            "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": class}, "handler": class,
        }))
        .await;
    }

    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(arguments).await.unwrap()
    }

    pub async fn apply(&self, object: &Value) {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), object.to_string()).unwrap();
        self.kubectl(&["apply", "-f", &file.path().to_string_lossy()]).await;
    }

    /// Creates a server pod on that node with the node's usual network.
    pub async fn server(&self, node: &str) -> Server {
        self.create("server", None, node).await;
        self.until_ready("server").await;
        self.kubectl(&["expose", "pod", "server", "--port=80"]).await;
        let service = self.kubectl(&["get", "service", "server", "-o", "jsonpath={.spec.clusterIP}"]).await;
        // Until each node's kube-proxy has the endpoint, the node refuses connections.
        for node in self.cluster.nodes() {
            let connect = format!("exec 3<>/dev/tcp/{service}/80");
            until_ok(&format!("{service} on {}", node.name()), async || {
                node.exec(&["bash", "-c", &connect]).await.map(Some)
            })
            .await
            .unwrap();
        }
        Server { pod: self.address("server").await, service }
    }

    /// Creates a pod of that class on that node, and waits until it is Ready. Returns its address in the cluster.
    pub async fn pod(&self, name: &str, class: &str, node: &str) -> String {
        self.create(name, Some(class), node).await;
        self.until_ready(name).await;
        self.address(name).await
    }

    /// Creates a pod that does not start. Returns the message of its Event.
    pub async fn refused(&self, name: &str, class: &str, node: &str) -> String {
        self.create(name, Some(class), node).await;
        // By UID, because an Event about an earlier pod of this name may come late.
        let uid = self.kubectl(&["get", "pod", name, "-o", "jsonpath={.metadata.uid}"]).await;
        let of = format!("involvedObject.uid={uid},reason=FailedCreatePodSandBox");
        let messages = ["get", "events", "--field-selector", &of, "-o", "jsonpath={.items[*].message}"];
        until(&format!("an Event FailedCreatePodSandBox of {name}"), async || {
            let message = self.kubectl(&messages).await;
            Ok((!message.is_empty()).then_some(message))
        })
        .await
        .unwrap()
    }

    async fn create(&self, name: &str, class: Option<&str>, node: &str) {
        let container = json!({
            "name": "web", "image": BUSYBOX, "command": ["/bin/sh", "-c", SERVE],
            "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 1},
        });
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
            "spec": {
                "nodeName": node, "runtimeClassName": class, "terminationGracePeriodSeconds": 0,
                "containers": [container],
            },
        }))
        .await;
    }

    pub async fn until_ready(&self, name: &str) {
        let pod = format!("pod/{name}");
        let ready = ["wait", "--for=condition=Ready", &pod, "--timeout=600s"];
        if let Err(error) = self.cluster.kubectl(&ready).await {
            panic!("{error:#}\n{}", self.kubectl(&["describe", &pod]).await);
        }
    }

    async fn address(&self, name: &str) -> String {
        self.kubectl(&["get", "pod", name, "-o", "jsonpath={.status.podIP}"]).await
    }

    pub async fn delete(&self, name: &str) {
        self.kubectl(&["delete", "pod", name, "--timeout=600s"]).await;
        self.kubectl(&["delete", "events", "--field-selector", &format!("involvedObject.name={name}")]).await;
    }

    /// The source address of a pod's request at a host.
    pub async fn asked(&self, pod: &str, host: &str) -> String {
        let url = format!("http://{host}/cgi-bin/seen");
        let response = self.cluster.kubectl(&["exec", pod, "--", "/fetch", &url]).await;
        let response = response.unwrap_or_else(|error| format!("{error:#}"));
        // busybox listens for both families on one socket.
        response.trim().trim_start_matches("[::ffff:").trim_end_matches(']').to_owned()
    }

    /// The network state of a pod.
    pub async fn inside(&self, pod: &str) -> String {
        let node = self.kubectl(&["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"]).await;
        let script = "for i in /proc/[0-9]*; do \
            if tr '\\0' ' ' <$i/cmdline | grep -q '^httpd -f'; then at=$i; \
            echo; nsenter --net=$at/ns/net bash -c 'ip addr; ip route show table all; ip rule; nft list ruleset'; fi; done";
        self.cluster
            .machine(&node)
            .exec(&["bash", "-c", script])
            .await
            .unwrap_or_else(|error| format!("{error:#}"))
    }

    /// `ip` of the ConfigMap that the class `egress-config` names.
    pub async fn config_map(&self, ip: &Value) {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "egress-addresses"},
            "data": {"ip": ip.to_string()},
        }))
        .await;
    }

    /// The attachments' records on a node.
    pub async fn records(&self, node: &str) -> String {
        self.cluster.machine(node).exec(&["bash", "-c", RECORDS]).await.unwrap()
    }

    /// Asserts that the nodes have no records after all pods are deleted.
    pub async fn nothing_is_left(&self) {
        for node in self.cluster.nodes() {
            until_ok(&format!("no records on {}", node.name()), async || {
                let left = self.records(node.name()).await;
                ensure!(left.is_empty(), "{left}");
                Ok(Some(()))
            })
            .await
            .unwrap();
        }
    }
}
