//! A Service, as far as the controller reads it: a tenant's Service and the store Services.

use std::collections::BTreeMap;

use common::cache::ObjectKey;
use common::k8s::or_default;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::plan::{IpMode, Listed, Port, Publication, Tenant};
use crate::api::Vip;
use crate::api::service::Carried;
use crate::names::{EPOCH, LOAD_BALANCER_CLASS, TUN_ID, VIP};

/// Each annotation that is read begins with this; other annotations are not kept.
const PREFIX: &str = "cgw-controller.perimeter.dev/";

/// `v1/Service`. `metadata` has name, namespace, uid, resourceVersion, deletionTimestamp and our annotations; nothing else.
#[derive(Resource, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[resource(inherit = core::Service)]
pub struct Service {
    /// See above.
    #[serde(deserialize_with = "metadata")]
    pub metadata: ObjectMeta,
    /// The desired state.
    #[serde(default, deserialize_with = "or_default")]
    pub spec: Spec,
    /// The observed state.
    #[serde(default, deserialize_with = "or_default")]
    pub status: Status,
}

/// The read part of `spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type", deserialize_with = "or_default")]
    pub kind: String,
    /// The load balancer's implementation.
    pub load_balancer_class: Option<String>,
    /// The ports that clients use.
    #[serde(deserialize_with = "or_default")]
    pub ports: Vec<ServicePort>,
    /// Addresses whose packets kube-proxy DNATs.
    #[serde(rename = "externalIPs", deserialize_with = "or_default")]
    pub external_ips: Vec<String>,
}

/// The read part of `spec.ports[]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServicePort {
    /// `TCP` where it is absent.
    #[serde(deserialize_with = "or_default")]
    pub protocol: String,
    /// The port.
    pub port: u16,
}

/// The read part of `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// `status.loadBalancer`
    #[serde(deserialize_with = "or_default")]
    pub load_balancer: LoadBalancer,
}

/// `status.loadBalancer`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoadBalancer {
    /// With all their fields: foreign entries are written back as they are.
    #[serde(deserialize_with = "or_default")]
    pub ingress: Vec<Value>,
}

/// Of the annotations only ours are kept: tenants write others, and each change of them would look like a change.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut metadata = common::k8s::metadata(deserializer)?;
    metadata.labels = None;
    metadata.creation_timestamp = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.retain(|key, _| key.starts_with(PREFIX));
    }
    metadata.annotations.take_if(|annotations| annotations.is_empty());
    Ok(metadata)
}

/// How VIPs are shown to Kubernetes.
#[derive(Clone, Copy, Debug)]
pub struct IngressSettings {
    /// Mode of the entries in `status.loadBalancer.ingress`.
    pub ip_mode: IpMode,
    /// Whether the VIP is added to `spec.externalIPs` of Services that are not of type LoadBalancer.
    pub external_ips: bool,
}

impl Service {
    /// Its key in the cache.
    #[must_use]
    pub fn key(&self) -> ObjectKey {
        ObjectKey::of(self)
    }

    /// Our annotations.
    #[must_use]
    pub fn annotations(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.metadata.annotations.as_ref().unwrap_or(&NONE)
    }

    /// The VIP that it carries, as its index in the cache.
    #[must_use]
    pub fn index_by_vip(&self) -> Vec<String> {
        Carried::vip_of(self.annotations()).ok().flatten().map(|vip| vip.to_string()).into_iter().collect()
    }

    /// The VIPs that its `status.loadBalancer` shows, if the controller writes it.
    #[must_use]
    pub fn shown(&self) -> Vec<Vip> {
        if !self.has_our_class() {
            return Vec::new();
        }
        let listed = self.listed(Publication::Status(IpMode::Vip));
        listed.into_iter().filter_map(|one| Vip::new(one.ip).ok()).collect()
    }

    /// The same, as its index in the cache.
    #[must_use]
    pub fn index_by_ingress(&self) -> Vec<String> {
        self.shown().iter().map(ToString::to_string).collect()
    }

    /// As the plan reads it. None: it is being deleted, and so nothing is bound to it any more.
    #[must_use]
    pub fn tenant(&self, settings: IngressSettings) -> Option<Tenant> {
        if self.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let annotations = self.annotations();
        // Beside a VIP it is the controller's own.
        let tun_id = annotations.get(TUN_ID).filter(|_| !annotations.contains_key(VIP));
        let publication = self.publication(settings);
        Some(Tenant {
            name: self.key(),
            uid: text(&self.metadata.uid),
            version: text(&self.metadata.resource_version),
            vip: Carried::vip_of(annotations).ok().flatten(),
            carried: Carried::read(annotations).ok().flatten(),
            desired_tun_id: tun_id.map(|text| text.parse()),
            epoch: annotations.get(EPOCH).and_then(|text| text.parse().ok()).unwrap_or_default(),
            ports: self.spec.ports.iter().map(ServicePort::port).collect(),
            publication,
            listed: self.listed(publication),
        })
    }

    fn has_our_class(&self) -> bool {
        let Spec { kind, load_balancer_class, .. } = &self.spec;
        kind == "LoadBalancer" && load_balancer_class.as_deref() == Some(LOAD_BALANCER_CLASS)
    }

    fn publication(&self, settings: IngressSettings) -> Publication {
        match self.spec.kind.as_str() {
            _ if self.has_our_class() => Publication::Status(settings.ip_mode),
            "ClusterIP" | "NodePort" if settings.external_ips => Publication::ExternalIps,
            _ => Publication::None,
        }
    }

    fn listed(&self, publication: Publication) -> Vec<Listed> {
        let text = |entry: &Value, field| entry.get(field).and_then(Value::as_str).map(str::to_owned);
        let of_entry = |entry: &Value| {
            Some(Listed { ip: text(entry, "ip")?.parse().ok()?, ip_mode: text(entry, "ipMode") })
        };
        match publication {
            Publication::None => Vec::new(),
            Publication::Status(_) => self.status.load_balancer.ingress.iter().filter_map(of_entry).collect(),
            Publication::ExternalIps => {
                let ips = self.spec.external_ips.iter().filter_map(|ip| ip.parse().ok());
                ips.map(|ip| Listed { ip, ip_mode: None }).collect()
            }
        }
    }
}

impl ServicePort {
    fn port(&self) -> Port {
        let protocol = if self.protocol.is_empty() { "TCP" } else { &self.protocol };
        Port { protocol: protocol.to_owned(), port: self.port }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SETTINGS: IngressSettings = IngressSettings { ip_mode: IpMode::Proxy, external_ips: true };

    fn decode(json: Value) -> Service {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn only_what_is_read_is_kept() {
        let service = decode(json!({
            "metadata": {
                "name": "a", "namespace": "x", "uid": "u", "resourceVersion": "7", "labels": { "a": "b" },
                "annotations": { "other": "x", "cgw-controller.perimeter.dev/vip": "192.168.50.201", "cgw-controller.perimeter.dev/epoch": "5" },
            },
            "spec": {
                "type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS, "selector": { "a": "b" },
                "ports": [{ "port": 80, "targetPort": "web" }, { "port": 53, "protocol": "UDP" }],
            },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.168.50.201", "ipMode": "Proxy" }, { "hostname": "h" }] } },
        }));
        assert!(service.metadata.labels.is_none());
        assert_eq!(service.annotations().len(), 2);
        assert_eq!(service.index_by_vip(), ["192.168.50.201"]);
        assert_eq!(service.index_by_ingress(), ["192.168.50.201"]);
        let tenant = service.tenant(SETTINGS).unwrap();
        let vip = tenant.vip.unwrap();
        assert_eq!((tenant.carried, tenant.epoch.0), (None, 5), "without tun-id");
        assert!(tenant.publication.shows(vip, &tenant.listed));
        let ports: Vec<String> = tenant.ports.iter().map(ToString::to_string).collect();
        assert_eq!(ports, ["TCP/80", "UDP/53"]);
    }

    #[test]
    fn a_tunnel_id_without_a_vip_is_desired_by_the_owner() {
        let of = |annotations: Value| {
            let service = decode(json!({ "metadata": { "name": "a", "annotations": annotations } }));
            service.tenant(SETTINGS).unwrap().desired_tun_id
        };
        let (vip, tun_id) = ("cgw-controller.perimeter.dev/vip", "cgw-controller.perimeter.dev/tun-id");
        assert_eq!(of(json!({})), None);
        assert_eq!(of(json!({ vip: "192.168.50.201", tun_id: "0x0000aabb" })), None);
        let desired = of(json!({ tun_id: "0x0000aabb" }));
        assert_eq!(desired.map(|id| id.map(|id| id.number())), Some(Ok(0xaabb)));
        assert!(of(json!({ tun_id: "0" })).is_some_and(|id| id.is_err()));
    }

    #[test]
    fn the_type_decides_where_the_vip_is_shown() {
        let of = |spec: Value, settings| {
            decode(json!({ "metadata": { "name": "a" }, "spec": spec })).tenant(settings).unwrap().publication
        };
        let without = IngressSettings { external_ips: false, ..SETTINGS };
        let ours = json!({ "type": "LoadBalancer", "loadBalancerClass": LOAD_BALANCER_CLASS });
        assert_eq!(of(ours, without), Publication::Status(IpMode::Proxy));
        for foreign in
            [json!({ "type": "LoadBalancer" }), json!({ "type": "LoadBalancer", "loadBalancerClass": "x/y" })]
        {
            assert_eq!(of(foreign.clone(), SETTINGS), Publication::None);
            let status = json!({ "loadBalancer": { "ingress": [{ "ip": "192.168.50.201" }] } });
            let service = json!({ "metadata": { "name": "a" }, "spec": foreign, "status": status });
            assert!(decode(service).shown().is_empty());
        }
        assert_eq!(of(json!({ "type": "ClusterIP" }), SETTINGS), Publication::ExternalIps);
        assert_eq!(of(json!({ "type": "ClusterIP" }), without), Publication::None);
    }

    #[test]
    fn a_service_that_is_being_deleted_is_absent() {
        let service =
            decode(json!({ "metadata": { "name": "a", "deletionTimestamp": "2026-11-21T12:00:00Z" } }));
        assert_eq!(service.tenant(SETTINGS), None);
    }
}
