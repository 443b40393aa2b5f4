//! Three nodes, two of them gateways, natgw, and a client that continuously reports its source address.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use e2e::cluster::{Cloud, Cluster, Installation, Machine, Probe, Prober, Servers};
use e2e::hetzner::Project;
use e2e::netns::Snapshot;
use e2e::wait::until;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use natgw::names::{BOOT_ID_ANNOTATION, CLIENT_ANNOTATION, FLOATING_IP_LABEL, ROLE_LABEL, SETUP_ANNOTATION};

/// Names of the gateways' Nodes, and of the client's Node.
pub const GATEWAYS: [&str; 2] = ["node-1", "node-2"];
pub const CLIENT: &str = "node-3";
/// The floating IPs of the gateways, and one that comes later.
pub const IPS: [Ipv4Addr; 2] = [Ipv4Addr::new(198, 51, 100, 7), Ipv4Addr::new(198, 51, 100, 8)];
pub const LATER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);

pub struct TestEnv {
    pub cluster: Cluster,
    pub cloud: Cloud,
    pub installation: Installation,
    /// State of all nodes before natgw was installed.
    pub before: BTreeMap<String, Snapshot>,
    /// On the client node.
    pub prober: Prober,
    _internet: Servers,
}

impl TestEnv {
    /// The cluster without natgw.
    pub async fn start() -> Self {
        let cluster = Cluster::builder().nodes(3).uplinks(2).start().await.unwrap();
        println!("three nodes Ready after {:.1} s", cluster.took().as_secs_f64());
        let cloud = cluster.cloud(2).await.unwrap();
        for (name, ip) in GATEWAYS.into_iter().zip(IPS) {
            cloud.floating_ip(ip, name).unwrap();
        }
        let network = cloud.network;
        let is_client = move |project: &Project| {
            let gateway = project.networks.get(&network).and_then(|network| network.default_gateway());
            gateway.and_then(|ip| project.server_at(network, ip)).is_some_and(|server| server.name == CLIENT)
        };
        cloud.hetzner.forbid("the default route leads to a Node that is no gateway", is_client);
        let fetch = cluster.programs().join("fetch").to_string_lossy().into_owned();
        let pause = cluster.programs().join("pause").to_string_lossy().into_owned();
        cluster.make_image("perimeter.dev/fetch:1", &[pause, fetch]).await.unwrap();
        // Its node's own: it must be there before natgw is, and before a snapshot of the node.
        let overrides = format!("--overrides={{\"spec\":{{\"nodeName\":\"{CLIENT}\"}}}}");
        cluster.kubectl(&["run", "fetch", "--image=perimeter.dev/fetch:1", &overrides]).await.unwrap();
        cluster.kubectl(&["wait", "--for=condition=Ready", "pod/fetch", "--timeout=600s"]).await.unwrap();
        let mut before = BTreeMap::new();
        for node in cluster.nodes() {
            before.insert(node.name().to_owned(), node.snapshot().await.unwrap());
        }
        let _internet = cluster.internet().unwrap();
        let prober = Prober::start(&cluster.machine(CLIENT)).unwrap();
        let installation = Installation::write(&cloud).unwrap();
        TestEnv { cluster, cloud, installation, before, prober, _internet }
    }

    pub fn machine(&self, name: &str) -> Machine {
        self.cluster.machine(name)
    }

    pub async fn node(&self, name: &str) -> Node {
        Api::<Node>::all(self.cluster.client()).get(name).await.unwrap()
    }

    pub async fn kubectl(&self, command: &str) -> String {
        self.cluster.kubectl(&command.split(' ').collect::<Vec<_>>()).await.unwrap()
    }

    /// Labels a Node with a floating IP, or takes the label off.
    pub async fn label(&self, name: &str, ip: Option<Ipv4Addr>) {
        let label =
            ip.map_or_else(|| format!("{FLOATING_IP_LABEL}-"), |ip| format!("{FLOATING_IP_LABEL}={ip}"));
        self.kubectl(&format!("label node {name} --overwrite {label}")).await;
    }

    /// Waits until `met` holds for a Node.
    pub async fn until(&self, what: &str, name: &str, met: impl Fn(&Node) -> bool) {
        let what = format!("{name}: {what}");
        let waited = until(&what, async || Ok(met(&self.node(name).await).then_some(())));
        if let Err(error) = waited.await {
            let node = self.node(name).await.metadata;
            let pods = self.kubectl("get nodes,pods,jobs -A -o wide").await;
            let events = self.kubectl("get events -A --sort-by=.lastTimestamp").await;
            panic!("{error:#}; it is {node:#?}\n{pods}\n{events}");
        }
    }

    /// Waits until the Node is set up for that IP in this boot of its.
    pub async fn until_gateway(&self, name: &str, ip: Ipv4Addr) {
        self.until(&format!("set up for {ip}"), name, |node| {
            let boot =
                node.status.as_ref().and_then(|status| Some(status.node_info.as_ref()?.boot_id.clone()));
            annotation(node, SETUP_ANNOTATION) == Some(ip.to_string())
                && annotation(node, BOOT_ID_ANNOTATION) == boot
        })
        .await;
    }

    pub async fn until_client(&self, name: &str) {
        self.until("a client", name, |node| annotation(node, CLIENT_ANNOTATION).is_some()).await;
    }

    pub async fn until_ready(&self, name: &str, expected: &str) {
        self.until(&format!("Ready={expected}"), name, |node| ready(node) == expected).await;
    }

    /// natgw's leading pod, and the Node that it runs on.
    pub async fn leader(&self) -> (String, String) {
        Installation::another_leader(&self.cluster, None).await.unwrap()
    }

    /// Waits until the route leads to a gateway: natgw's first decision follows when the first Node is set up.
    pub async fn until_elected(&self) {
        until("a route to one of the gateways, which are set up", async || Ok(self.cloud.gateway()))
            .await
            .unwrap();
    }

    /// Index of the gateway that the route leads to.
    pub fn primary(&self) -> usize {
        let gateway = self.cloud.gateway().unwrap();
        GATEWAYS.iter().position(|name| *name == gateway).unwrap()
    }

    /// The Nodes that `kubectl get nodes` shows as gateway.
    pub async fn until_role(&self, name: &str) {
        self.until("the role", name, |node| {
            node.metadata.labels.iter().flatten().any(|(key, _)| key == ROLE_LABEL)
        })
        .await;
    }

    /// Waits until the client is seen as `ip`, and prints what that cost.
    pub async fn until_seen(&self, ip: Ipv4Addr, since: Instant, what: &str) -> Probe {
        let seen = match self.prober.wait(Some(ip), since).await {
            Ok(seen) => seen,
            Err(error) => {
                let state = self.kubectl("get nodes,pods,jobs -A -o wide").await;
                let logs = self
                    .kubectl("-n natgw logs --prefix --tail=40 -l app.kubernetes.io/component=controller")
                    .await;
                panic!("{what}: {error:#}; the route leads to {:?}\n{state}\n{logs}", self.cloud.gateway());
            }
        };
        let (gap, lost) = self.prober.gap_before(&seen);
        println!(
            "{what}: seen as {ip} after {:.2} s, a gap of {:.2} s ({lost} questions without an answer)",
            seen.at.duration_since(since).as_secs_f64(),
            gap.as_secs_f64()
        );
        seen
    }

    /// The source address of the pod on the client node, by HTTP.
    pub async fn pod_seen_as(&self) -> String {
        self.kubectl("exec fetch -- /fetch http://203.0.113.9/").await.trim().to_owned()
    }

    /// The difference to the state before natgw, without pods.
    pub async fn changes(&self, name: &str) -> Vec<String> {
        let now = self.machine(name).snapshot().await.unwrap();
        let changes = self.before[name].changes(&now);
        changes.into_iter().filter(|line| !line.contains("veth") && !line.contains("cni0")).collect()
    }
}

pub fn annotation(node: &Node, key: &str) -> Option<String> {
    node.metadata.annotations.as_ref()?.get(key).cloned()
}

pub fn ready(node: &Node) -> &str {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions
        .filter(|condition| condition.type_ == "Ready")
        .map(|condition| &*condition.status)
        .next()
        .unwrap_or("")
}
