//! The cluster, the pods of three Services and pods that are not bound, each with a server that sends clients its name and their address.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::{Duration, Instant};

use e2e::cgw::{GATEWAY_LABEL, GATEWAYS, Installation, KeeperState, NAMESPACE, Router};
use e2e::cluster::{
    Capture, Cluster, HOST, Machine, Network, Packets, PodNetwork, ProxyMode, Servers, Target,
};
use e2e::wait::until;
use k8s_openapi::api::core::v1::{Pod as PodObject, Service};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// VIPs of Services a and b, of one virtual router.
pub const A: Ipv4Addr = Ipv4Addr::new(198, 18, 50, 201);
pub const B: Ipv4Addr = Ipv4Addr::new(198, 18, 50, 202);
/// VIP of Service c, of another virtual router.
pub const C: Ipv4Addr = Ipv4Addr::new(198, 18, 50, 211);
/// Their virtual routers.
pub const FIRST: Router = Router { vrid: 51, vips: [A, B] };
pub const SECOND: Router = Router { vrid: 52, vips: [C, Ipv4Addr::new(198, 18, 50, 212)] };
/// Namespace, name and VIP. Namespace shop is bound, and its Service joins; the others are bound alone.
pub const SERVICES: [(&str, &str, Ipv4Addr); 3] = [("shop", "a", A), ("bank", "b", B), ("bank", "c", C)];
/// Pods and their nodes. The first letter of a name is the Service; u: not bound.
const PODS: [(&str, &str); 9] = [
    ("a1", "node-3"),
    ("a2", "node-4"),
    ("a3", "node-1"),
    ("a4", "node-2"),
    ("b1", "node-4"),
    ("c1", "node-3"),
    ("u1", "node-3"),
    ("u2", "node-4"),
    ("u3", "node-1"),
];
/// The port of the Services, and of the pods' servers.
pub const PORT: u16 = 80;
const SERVER_PORT: u16 = 8080;
/// Every node has it, with one program that waits.
const PAUSE_IMAGE: &str = "perimeter.dev/pause:1";
pub const BUSYBOX_IMAGE: &str = "perimeter.dev/busybox:1";
/// Far longer than anything takes on a busy machine.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Requests without a response before that is a result: a packet can be lost while neighbours are resolved.
const ATTEMPTS: usize = 3;

pub struct TestEnv {
    pub cluster: Cluster,
    pub installation: Installation,
    pub capture: Capture,
    pub outside: Network,
    pub pods: BTreeMap<&'static str, Pod>,
    _internet: Servers,
}

pub struct Pod {
    pub node: &'static str,
    pub ip: Ipv4Addr,
    pub network: Network,
    _servers: Servers,
}

impl Pod {
    fn vip(name: &str) -> Option<Ipv4Addr> {
        SERVICES.into_iter().find(|(_, service, _)| name.starts_with(service)).map(|(.., vip)| vip)
    }
}

impl TestEnv {
    /// The cluster with its pods, without cgw-controller. `routers`: those of the overlay.
    pub async fn start(routers: &[Router], proxy_mode: ProxyMode, pod_network: PodNetwork) -> TestEnv {
        // The pods of a gateway that fails are not evicted: they are back when it is.
        let cluster = Cluster::builder().nodes(4).eviction(Duration::from_secs(3600));
        let cluster = cluster.proxy_mode(proxy_mode).pod_network(pod_network).start().await.unwrap();
        println!("four nodes Ready after {:.1} s", cluster.took().as_secs_f64());
        cluster.segment_to_internet().unwrap();
        let capture = cluster.capture().unwrap();
        let outside = cluster.machine("internet").network().unwrap();
        let busybox = ["/bin/busybox", "/bin/sh"].map(|path| format!("/bin/busybox:{path}"));
        cluster.make_image(BUSYBOX_IMAGE, &busybox).await.unwrap();
        let _internet = cluster.internet().unwrap();
        let installation = Installation::write(&cluster, routers).await.unwrap();
        let mut env = TestEnv { cluster, installation, capture, outside, pods: BTreeMap::new(), _internet };
        env.create_pods().await;
        env
    }

    async fn create_pods(&mut self) {
        let mut objects = vec![namespace("shop"), namespace("bank")];
        objects.extend(SERVICES.map(|(namespace, name, _)| service(namespace, name, "LoadBalancer")));
        objects.push(service("bank", "u", "ClusterIP"));
        let mut local = service("bank", "b", "NodePort");
        local["metadata"]["name"] = json!("b-local");
        local["spec"]["externalTrafficPolicy"] = json!("Local");
        objects.push(local);
        objects.extend(PODS.map(|(name, node)| pod(name, node, false)));
        self.apply(&objects).await;
        self.start_servers(|_| true).await;
    }

    /// Starts the servers in the pods of these nodes. A pod has another network after its node was powered off.
    pub async fn start_servers(&mut self, is_of: impl Fn(&str) -> bool) {
        for (name, node) in PODS.into_iter().filter(|(_, node)| is_of(node)) {
            let (namespace, ready) = (namespace_of(name), format!("pod/{name}"));
            self.kubectl(&format!("-n {namespace} wait --for=condition=Ready {ready} --timeout=600s")).await;
            let api: Api<PodObject> = Api::namespaced(self.cluster.client(), namespace);
            // Until the kubelet has reported it, the status is that of before.
            let poll = async || {
                let object = api.get(name).await?;
                let ip = object.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
                let (Some(ip), Ok(network)) = (ip, Network::of_pod(&object.uid().unwrap())) else {
                    return Ok(None);
                };
                let has_address = network.run("ip", &["address"])?.contains(&format!(" {ip}/"));
                Ok(has_address.then_some((ip, network)))
            };
            let (ip, network) = until(&format!("the network of pod {name}"), poll).await.unwrap();
            let any = Ipv4Addr::UNSPECIFIED;
            let _servers = network.serve(name, any, SERVER_PORT, SERVER_PORT).unwrap();
            self.pods.insert(name, Pod { node, ip, network, _servers });
        }
    }

    /// Installs cgw-controller as its page describes, and waits until each virtual router has a MASTER.
    pub async fn install(&self, routers: &[Router]) {
        Installation::give_images(&self.cluster).await.unwrap();
        for node in GATEWAYS {
            self.kubectl(&format!("label node {node} {GATEWAY_LABEL}=")).await;
        }
        let since = Instant::now();
        self.installation.apply(&self.cluster).await.unwrap();
        for router in routers {
            self.master(router, |_| true).await;
        }
        println!("rolled out after {:.1} s", since.elapsed().as_secs_f64());
    }

    /// Binds these Services: a by its namespace, the others alone.
    pub async fn bind(&self, services: &[(&str, &str, Ipv4Addr)]) {
        for (namespace, service, vip) in services {
            if *namespace == "shop" {
                self.ctl(&format!("bind {vip} {namespace}")).await;
            }
            self.ctl(&format!("bind {vip} {namespace} {service}")).await;
        }
    }

    pub async fn ctl(&self, command: &str) -> String {
        Installation::ctl(&self.cluster, command).await.unwrap()
    }

    pub async fn kubectl(&self, command: &str) -> String {
        self.cluster.kubectl(&command.split(' ').collect::<Vec<_>>()).await.unwrap()
    }

    pub async fn apply(&self, objects: &[Value]) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        std::fs::write(file.path(), list.to_string()).unwrap();
        self.cluster.kubectl(&["apply", "-f", &file.path().to_string_lossy()]).await.unwrap();
    }

    /// Waits for an only MASTER that fits.
    pub async fn master(&self, router: &Router, fits: impl Fn(&str) -> bool) -> String {
        let poll = async || {
            let master = Installation::master(&self.cluster, router.vrid).await?;
            Ok(master.filter(|node| fits(node)))
        };
        match until(&format!("an only MASTER of virtual router {}", router.vrid), poll).await {
            Ok(master) => master,
            Err(error) => self.fail(&format!("{error:#}")).await,
        }
    }

    /// Waits until one keeper of a virtual router is MASTER and the others are BACKUP, the annotations of its Services name that
    /// gateway, and every node's agent has programmed it. Returns the gateway. On a busy machine it can move meanwhile.
    pub async fn settled(&self, router: &Router) -> String {
        let services = || SERVICES.into_iter().filter(|(.., vip)| router.vips.contains(vip));
        let poll = async || {
            let keepers = Installation::keepers(&self.cluster, router.vrid).await?;
            let is_backup = |keeper: &KeeperState| keeper.state == "BACKUP";
            let (backups, mut others): (Vec<_>, Vec<_>) = keepers.into_iter().partition(is_backup);
            let is_complete = backups.len() == GATEWAYS.len() - 1 && others.len() == 1;
            let Some(master) = others.pop().filter(|other| is_complete && other.state == "MASTER") else {
                return Ok(None);
            };
            let gateway = self.cluster.machine(&master.node).ip()?.to_string();
            for (namespace, name, _) in services() {
                let service = Api::<Service>::namespaced(self.cluster.client(), namespace).get(name).await?;
                if service.annotations().get("cgw-controller.perimeter.dev/node-ip") != Some(&gateway) {
                    return Ok(None);
                }
            }
            Ok(Some(master.node))
        };
        let what = format!("a MASTER and a BACKUP of virtual router {}, and its Services", router.vrid);
        let master = match until(&what, poll).await {
            Ok(master) => master,
            Err(error) => self.fail(&format!("{error:#}")).await,
        };
        for (.., vip) in services() {
            for pod in self.bound().filter(|name| Pod::vip(name) == Some(vip)) {
                self.until_source(pod, tcp(HOST, PORT), &vip.to_string()).await;
            }
        }
        master
    }

    /// The names of bound pods.
    pub fn bound(&self) -> impl Iterator<Item = &'static str> {
        self.pods.keys().copied().filter(|name| Pod::vip(name).is_some())
    }

    /// The VIP of a bound pod.
    pub fn vip(&self, pod: &str) -> Ipv4Addr {
        Pod::vip(pod).unwrap()
    }

    /// The address with which the pods of a node leave that are not bound, and the node itself.
    pub fn node_source(&self, node: &str) -> Ipv4Addr {
        self.cluster.machine(node).segment_ip().unwrap()
    }

    /// The response to a pod's request.
    pub async fn request(&self, pod: &str, target: Target) -> Option<String> {
        request(&self.pods[pod].network, target).await
    }

    /// Waits until a pod gets this response.
    pub async fn until_source(&self, pod: &str, target: Target, expected: &str) {
        let poll = async || Ok((self.request(pod, target).await.as_deref() == Some(expected)).then_some(()));
        if let Err(error) = until("the response", poll).await {
            let last = self.request(pod, target).await;
            self.fail(&format!("{error:#}: {pod} to {target:?} gets {last:?} in place of {expected}")).await;
        }
    }

    pub fn machine(&self, node: &str) -> Machine {
        self.cluster.machine(node)
    }

    /// Packets outside that are neither from one of the VIPs, nor a message of the network (ICMP) from a node.
    pub fn wrong_sources(&self, vips: &[Ipv4Addr]) -> Vec<Packets> {
        let nodes: Vec<Ipv4Addr> = self.cluster.nodes().map(|node| node.segment_ip().unwrap()).collect();
        let is_expected = |packets: &Packets| {
            vips.contains(&packets.source) || (packets.protocol == "icmp" && nodes.contains(&packets.source))
        };
        self.capture.packets().unwrap().into_iter().filter(|packets| !is_expected(packets)).collect()
    }

    /// Fails with the state of the installation.
    pub async fn fail(&self, why: &str) -> ! {
        let show = async |command: &str| {
            let shown = self.cluster.kubectl(&command.split(' ').collect::<Vec<_>>()).await;
            shown.unwrap_or_else(|error| format!("{error:#}"))
        };
        let pods = show("get nodes,pods -A -o wide").await;
        let services = show("get services -A -o yaml").await;
        let mut logs = String::new();
        for component in ["controller", "keeper", "agent"] {
            let of = format!("-l app.kubernetes.io/component={component}");
            logs += &show(&format!("-n {NAMESPACE} logs --prefix --all-containers --tail=60 {of}")).await;
        }
        for node in self.cluster.nodes() {
            let script =
                "ip -4 -o address; ip rule; ip route show table all | grep -v local; nft list table ip cgw";
            let state = node.exec(&["bash", "-c", script]).await;
            logs += &format!("--- {}\n{}", node.name(), state.unwrap_or_else(|error| format!("{error:#}")));
        }
        panic!("{why}\n{services}\n{logs}\n{pods}\n{:#?}\n{why}", self.capture.packets());
    }
}

/// The response to a request from a network, after a few attempts.
pub async fn request(network: &Network, target: Target) -> Option<String> {
    for _ in 0..ATTEMPTS {
        let response = network.request(target, RESPONSE_TIMEOUT).await.unwrap();
        if response.is_some() {
            return response;
        }
    }
    None
}

/// The server of a pod, or a port of a Service.
pub fn tcp(ip: Ipv4Addr, port: u16) -> Target {
    Target::Tcp(SocketAddrV4::new(ip, port))
}

pub fn udp(ip: Ipv4Addr, port: u16) -> Target {
    Target::Udp(SocketAddrV4::new(ip, port))
}

pub fn bulk(ip: Ipv4Addr, port: u16) -> Target {
    Target::Bulk(SocketAddrV4::new(ip, port))
}

fn namespace_of(pod: &str) -> &'static str {
    if pod.starts_with('a') { "shop" } else { "bank" }
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

fn service(namespace: &str, name: &str, kind: &str) -> Value {
    let port = |protocol: &str| json!({"name": protocol.to_lowercase(), "protocol": protocol, "port": PORT, "targetPort": SERVER_PORT});
    let mut service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"type": kind, "selector": {"app": name}, "ports": [port("TCP"), port("UDP")]},
    });
    if kind == "LoadBalancer" {
        service["spec"]["loadBalancerClass"] = json!("cgw-controller.perimeter.dev/vip");
    }
    service
}

/// A pod that waits, with the label of its Service.
pub fn pod(name: &str, node: &str, host_network: bool) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace_of(name), "labels": {"app": &name[..1]}},
        "spec": {
            "nodeName": node, "hostNetwork": host_network, "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 0, "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "pause", "image": PAUSE_IMAGE, "imagePullPolicy": "IfNotPresent"}],
        },
    })
}
