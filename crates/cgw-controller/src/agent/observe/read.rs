//! From the watched kinds to the plain types of a snapshot: first trimmed to what is read, then read.

use std::{
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use common::cache::ObjectKey;
use ipnet::Ipv4Net;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::kinds;
use crate::{
    agent::{
        datapath::Protocol,
        snapshot::{Endpoint, EndpointState, Labels, Node, Pod, Port, Service, Slice, Store},
    },
    names,
};

/// Label of an EndpointSlice: the name of its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// `spec.sessionAffinityConfig.clientIP.timeoutSeconds`, where the API server has not set the default.
const AFFINITY_SECONDS: u32 = 10_800;

/// Annotations by which a CNI plugin gives a pod another source address: Calico's egress gateways (`egress.projectcalico.org/`), the
/// addresses of kube-ovn.
const FOREIGN_EGRESS: [&str; 5] = [
    "egress.projectcalico.org/selector",
    "egress.projectcalico.org/namespaceSelector",
    "egress.projectcalico.org/egressGatewayPolicy",
    "ovn.kubernetes.io/eip",
    "ovn.kubernetes.io/snat",
];

/// Annotation of Multus. A network with `default-route` replaces the primary interface's default route.
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";

/// Whether an annotation is one of ours on a tenant's Service.
fn is_ours(key: &str) -> bool {
    [names::VIP, names::NODE_IP, names::TUN_MAC, names::TUN_ID, names::EPOCH].contains(&key)
}

fn text(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Removes from a Service what is not read: everything from a Service without a VIP. `store` is the name of the store `binds`.
pub fn trim_service(service: &mut kinds::Service, store: &ObjectKey) {
    service.metadata.labels = None;
    service.metadata.deletion_timestamp = None;
    let is_store = ObjectKey::of(service) == *store;
    if let Some(annotations) = &mut service.metadata.annotations {
        annotations
            .retain(|key, _| if is_store { key.starts_with(names::BIND_PREFIX) } else { is_ours(key) });
    }
    if is_store || annotation(&service.metadata, names::VIP).is_none() {
        service.spec = kinds::ServiceSpec::default();
        service.metadata.creation_timestamp = None;
    }
    if !is_store && annotation(&service.metadata, names::VIP).is_none() {
        service.metadata.annotations = None;
    }
}

/// Removes from a pod what is not read.
pub fn trim_pod(pod: &mut kinds::Pod) {
    pod.metadata.creation_timestamp = None;
    let feature = foreign_egress(pod);
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.retain(|key, _| Some(key.as_str()) == feature);
    }
    if feature.is_none() {
        pod.metadata.annotations = None;
    }
    let first = ipv4(pod).map(|ip| ip.to_string());
    pod.status.pod_ip = first.unwrap_or_default();
    pod.status.pod_ips = Vec::new();
    // Running and Pending are the same here.
    if !is_finished(pod) {
        pod.status.phase = String::new();
    }
}

/// Removes from an EndpointSlice what is not read.
pub fn trim_slice(slice: &mut kinds::EndpointSlice) {
    let metadata = &mut slice.metadata;
    (metadata.annotations, metadata.creation_timestamp, metadata.deletion_timestamp) = (None, None, None);
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|key, _| key == SERVICE_NAME);
    }
    if slice.address_type != "IPv4" {
        (slice.endpoints, slice.ports) = (Vec::new(), Vec::new());
    }
    slice.endpoints.iter_mut().for_each(|endpoint| endpoint.addresses.truncate(1));
    slice.endpoints.shrink_to_fit();
}

/// Removes from a Node what is not read.
pub fn trim_node(node: &mut kinds::Node) {
    let metadata = &mut node.metadata;
    (metadata.annotations, metadata.creation_timestamp, metadata.deletion_timestamp) = (None, None, None);
    if let Some(labels) = &mut metadata.labels {
        labels.retain(|key, _| key == names::GATEWAY_LABEL);
    }
    let internal = node.status.addresses.iter().filter(|address| address.kind == "InternalIP");
    let first = internal.filter(|address| Ipv4Addr::from_str(&address.address).is_ok()).take(1).cloned();
    node.status.addresses = first.collect();
}

/// A Service with a VIP; None if it has none.
#[must_use]
pub fn service(service: &kinds::Service) -> Option<Service> {
    annotation(&service.metadata, names::VIP)?;
    let spec = &service.spec;
    let timeout = || {
        let config = spec.session_affinity_config.as_ref();
        config.and_then(|config| config.client_ip.as_ref()?.timeout_seconds).unwrap_or(AFFINITY_SECONDS)
    };
    let affinity = (spec.session_affinity == "ClientIP").then(|| Duration::from_secs(timeout().into()));
    Some(Service {
        key: ObjectKey::of(service),
        uid: text(&service.metadata.uid),
        created: service.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        annotations: service.metadata.annotations.clone().unwrap_or_default(),
        selector: spec.selector.clone(),
        ports: ports(&spec.ports),
        affinity,
        source_ranges: spec.load_balancer_source_ranges.clone(),
    })
}

/// The store `binds`.
#[must_use]
pub fn store(service: &kinds::Service) -> Store {
    service.metadata.annotations.as_ref().map(Store::read).unwrap_or_default()
}

/// A pod.
#[must_use]
pub fn pod(pod: &kinds::Pod) -> Pod {
    Pod {
        key: ObjectKey::of(pod),
        labels: Arc::new(pod.metadata.labels.as_ref().map(Labels::new).unwrap_or_default()),
        node: pod.spec.node_name.as_str().into(),
        ip: ipv4(pod),
        host_network: pod.spec.host_network,
        finished: is_finished(pod),
        terminating: pod.metadata.deletion_timestamp.is_some(),
        foreign_egress: foreign_egress(pod),
    }
}

/// Namespace and name of the Service of an EndpointSlice.
#[must_use]
pub fn service_of(slice: &kinds::EndpointSlice) -> Option<ObjectKey> {
    let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
    Some(ObjectKey::new(slice.metadata.namespace.as_deref().unwrap_or_default(), name))
}

/// An EndpointSlice; None if it is not of IPv4.
#[must_use]
pub fn slice(slice: &kinds::EndpointSlice) -> Option<Slice> {
    if slice.address_type != "IPv4" {
        return None;
    }
    let endpoint = |endpoint: &kinds::Endpoint| {
        let ip = endpoint.addresses.first()?.parse().ok()?;
        let conditions = &endpoint.conditions;
        let ready = conditions.ready.unwrap_or(true);
        let serves_terminating =
            conditions.terminating.unwrap_or(false) && conditions.serving.unwrap_or(ready);
        let state = match (ready, serves_terminating) {
            (true, _) => EndpointState::Ready,
            (false, true) => EndpointState::ServingTerminating,
            (false, false) => EndpointState::Unready,
        };
        Some(Endpoint { ip, state })
    };
    Some(Slice {
        ports: ports(&slice.ports),
        endpoints: slice.endpoints.iter().filter_map(endpoint).collect(),
    })
}

/// A Node.
#[must_use]
pub fn node(node: &kinds::Node) -> Node {
    let internal = node.status.addresses.iter().filter(|address| address.kind == "InternalIP");
    Node {
        name: text(&node.metadata.name),
        uid: text(&node.metadata.uid),
        ip: internal.filter_map(|address| address.address.parse().ok()).next(),
        pod_cidrs: node.spec.pod_cidrs.iter().filter_map(|cidr| cidr.parse::<Ipv4Net>().ok()).collect(),
        candidate: node
            .metadata
            .labels
            .as_ref()
            .is_some_and(|labels| labels.contains_key(names::GATEWAY_LABEL)),
    }
}

fn ports(ports: &[kinds::Port]) -> Vec<Port> {
    let port = |port: &kinds::Port| {
        let protocol = match port.protocol.as_str() {
            "" | "TCP" => Protocol::Tcp,
            "UDP" => Protocol::Udp,
            "SCTP" => Protocol::Sctp,
            _ => return None,
        };
        Some(Port { name: port.name.clone(), protocol, port: port.port.filter(|port| *port != 0)? })
    };
    ports.iter().filter_map(port).collect()
}

fn ipv4(pod: &kinds::Pod) -> Option<Ipv4Addr> {
    let addresses = pod.status.pod_ips.iter().map(|ip| ip.ip.as_str());
    addresses.chain([pod.status.pod_ip.as_str()]).find_map(|address| match address.parse() {
        Ok(IpAddr::V4(address)) => Some(address),
        _ => None,
    })
}

fn is_finished(pod: &kinds::Pod) -> bool {
    matches!(pod.status.phase.as_str(), "Succeeded" | "Failed")
}

fn foreign_egress(pod: &kinds::Pod) -> Option<&'static str> {
    let annotation = |key| annotation(&pod.metadata, key);
    let known = FOREIGN_EGRESS.into_iter().find(|key| annotation(key).is_some());
    let multus = || annotation(NETWORKS).filter(|networks| networks.contains("\"default-route\""));
    known.or_else(|| multus().map(|_| NETWORKS))
}

#[cfg(test)]
mod tests {
    use serde::{Serialize, de::DeserializeOwned};
    use serde_json::json;

    use super::*;

    /// As a cache keeps it: decoded, trimmed, packed and decoded.
    fn cached<K: DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(
        object: serde_json::Value,
        trim: impl Fn(&mut K),
    ) -> (K, usize) {
        let mut object: K = serde_json::from_value(object).unwrap();
        trim(&mut object);
        let json = serde_json::to_vec(&object).unwrap();
        let packed: K = serde_json::from_slice(&json).unwrap();
        assert_eq!(packed, object, "a packed object must be equal");
        (packed, json.len())
    }

    fn service_json(annotations: serde_json::Value) -> serde_json::Value {
        json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "1", "labels": {"x": "y"},
                "creationTimestamp": "2026-11-21T12:00:00Z", "annotations": annotations},
            "spec": {"selector": {"app": "a"}, "clusterIP": "10.96.0.9", "type": "LoadBalancer",
                "loadBalancerSourceRanges": [" 10.0.0.0/8"], "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}},
                "ports": [{"name": "http", "port": 80, "targetPort": "web", "nodePort": 30080},
                    {"port": 53, "protocol": "UDP"}, {"port": 9, "protocol": "OTHER"}]},
            "status": {"loadBalancer": {}},
        })
    }

    #[test]
    fn a_service_without_a_vip_is_trimmed_to_its_name() {
        let store = ObjectKey::new("cgw-system", names::BINDS);
        let trim = |service: &mut kinds::Service| trim_service(service, &store);
        let (plain, size) = cached(service_json(json!({"other": "x", names::NODE_IP: ""})), trim);
        assert_eq!((super::service(&plain), plain.spec.clone()), (None, kinds::ServiceSpec::default()));
        assert!(size < 120, "{size} bytes");
        let (carrying, _) = cached(service_json(json!({"other": "x", names::VIP: "1.2.3.4"})), trim);
        let service = super::service(&carrying).unwrap();
        assert_eq!(service.annotations.len(), 1);
        assert_eq!((service.created, service.affinity), (1_795_262_400, Some(Duration::from_secs(60))));
        assert_eq!(service.source_ranges, [" 10.0.0.0/8"]);
        assert_eq!(
            service.ports,
            [
                Port { name: "http".into(), protocol: Protocol::Tcp, port: 80 },
                Port { name: String::new(), protocol: Protocol::Udp, port: 53 }
            ]
        );
    }

    #[test]
    fn the_store_keeps_its_bindings_only() {
        let store = ObjectKey::new("n", "a");
        let bind = r#"{"v":1,"scope":"namespace","namespace":"n","tunId":"0x00000001"}"#;
        let key = format!("{}192.168.50.201", names::BIND_PREFIX);
        let annotations = json!({key: bind, "other": "x", names::VIP: "1.2.3.4"});
        let (kept, _) = cached(service_json(annotations), |service| trim_service(service, &store));
        assert_eq!(kept.metadata.annotations.as_ref().map(|all| all.len()), Some(1));
        let store = super::store(&kept);
        assert!(store.admitting("192.168.50.201".parse().unwrap(), &ObjectKey::new("n", "any")).is_some());
        assert_eq!(super::service(&kept), None);
    }

    fn pod_json(annotations: serde_json::Value, status: serde_json::Value) -> serde_json::Value {
        json!({
            "metadata": {"name": "web-5d8f7c9b4d-x2x7z", "namespace": "shop", "uid": "0b6b3c52-5a9a-4c62-b5b1-2d8f9b3f4a11",
                "resourceVersion": "123456", "labels": {"app": "web", "pod-template-hash": "5d8f7c9b4d"},
                "creationTimestamp": "2026-11-21T12:00:00Z", "annotations": annotations,
                "ownerReferences": [{"kind": "ReplicaSet"}]},
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
            "status": status,
        })
    }

    #[test]
    fn of_a_pod_only_what_the_plan_reads_is_kept() {
        let status = json!({"phase": "Running", "podIP": "fd00::1", "podIPs": [{"ip": "fd00::1"}, {"ip": "10.244.1.2"}],
            "conditions": [{"type": "Ready"}]});
        let (kept, size) = cached(pod_json(json!({"a": "b"}), status), trim_pod);
        assert!(size < 330, "{size} bytes");
        let pod = super::pod(&kept);
        assert_eq!(
            (pod.ip, &*pod.node, pod.labels.get("app")),
            (Some(Ipv4Addr::new(10, 244, 1, 2)), "n1", Some("web"))
        );
        assert!(!pod.finished && !pod.terminating && !pod.host_network && pod.foreign_egress.is_none());
        // Running and Pending differ in nothing that is kept.
        let status = json!({"phase": "Pending", "podIP": "10.244.1.2"});
        assert_eq!(cached(pod_json(json!(null), status), trim_pod).0, kept);
    }

    #[test]
    fn finished_pods_and_egress_annotations_are_seen() {
        let (kept, _) =
            cached(pod_json(json!({}), json!({"phase": "Failed", "podIP": "10.244.1.2"})), trim_pod);
        assert!(super::pod(&kept).finished);
        for (annotations, expected) in [
            (json!({"egress.projectcalico.org/selector": "x"}), Some("egress.projectcalico.org/selector")),
            (json!({NETWORKS: "[{\"name\": \"a\", \"default-route\": [\"10.0.0.1\"]}]"}), Some(NETWORKS)),
            (json!({NETWORKS: "a"}), None),
        ] {
            let (kept, _) = cached(pod_json(annotations, json!({})), trim_pod);
            assert_eq!(super::pod(&kept).foreign_egress, expected);
        }
    }

    #[test]
    fn endpoints_are_ready_unless_they_are_not() {
        let slice = json!({
            "metadata": {"name": "a-x", "namespace": "n", "labels": {SERVICE_NAME: "a", "x": "y"}},
            "addressType": "IPv4",
            "endpoints": [
                {"addresses": ["10.244.1.1"], "conditions": {}, "nodeName": "n1"},
                {"addresses": ["10.244.1.2"], "conditions": {"ready": true, "serving": true}},
                {"addresses": ["10.244.1.3"], "conditions": {"ready": false, "serving": true, "terminating": true}},
                {"addresses": ["10.244.1.4"], "conditions": {"ready": false, "serving": false, "terminating": true}},
                {"addresses": ["10.244.1.5"], "conditions": {"ready": false}},
                {"addresses": [], "conditions": null},
            ],
            "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}, {"name": "any", "port": null}],
        });
        let (kept, _) = cached(slice.clone(), trim_slice);
        assert_eq!(super::service_of(&kept), Some(ObjectKey::new("n", "a")));
        let read = super::slice(&kept).unwrap();
        let states: Vec<EndpointState> = read.endpoints.iter().map(|endpoint| endpoint.state).collect();
        let (ready, unready) = (EndpointState::Ready, EndpointState::Unready);
        assert_eq!(states, [ready, ready, EndpointState::ServingTerminating, unready, unready]);
        assert_eq!(read.ports.len(), 1);
        let mut other = slice;
        other["addressType"] = json!("IPv6");
        assert_eq!(super::slice(&cached(other, trim_slice).0), None);
    }

    #[test]
    fn a_node_is_its_first_internal_ip_of_ipv4() {
        let object = json!({
            "metadata": {"name": "g1", "uid": "u", "labels": {names::GATEWAY_LABEL: "", "x": "y"}, "annotations": {"a": "b"}},
            "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00::/64"]},
            "status": {"addresses": [{"type": "Hostname", "address": "g1"}, {"type": "InternalIP", "address": "fd00::1"},
                {"type": "InternalIP", "address": "192.168.50.21"}, {"type": "InternalIP", "address": "192.168.50.22"}],
                "images": []},
        });
        let (kept, _) = cached(object, trim_node);
        let node = super::node(&kept);
        assert_eq!(
            (node.ip, node.pod_cidrs.len(), node.candidate),
            (Some(Ipv4Addr::new(192, 168, 50, 21)), 1, true)
        );
    }
}
