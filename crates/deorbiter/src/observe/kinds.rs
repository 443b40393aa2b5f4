//! Objects of the target as they come: only the fields that are read are decoded.

mod storage;

use std::collections::BTreeMap;

use common::cloud::openstack::ProviderId;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

pub use self::storage::{Attachment, Claim, Class, Content, Driver, Snapshot, Volume};
use super::snapshot as kept;
use crate::names;
use crate::settings::Scope;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    namespace: Option<String>,
    name: String,
    uid: String,
    resource_version: Option<String>,
    deletion_timestamp: Option<Timestamp>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
}

impl Meta {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    fn is_true(&self, key: &str) -> bool {
        self.annotation(key) == Some("true")
    }

    fn is_held_by(&self, finalizer: &str) -> bool {
        self.finalizers.iter().flatten().any(|one| one == finalizer)
    }

    fn kept(self) -> kept::Meta {
        let keep = self.is_true(names::KEEP);
        kept::Meta {
            namespace: self.namespace.unwrap_or_default(),
            name: self.name,
            uid: self.uid,
            version: self.resource_version.unwrap_or_default(),
            deleting: self.deletion_timestamp,
            keep,
        }
    }
}

/// An object of any kind.
#[derive(Debug, Deserialize)]
pub struct Object<S: Default, T: Default = ()> {
    #[serde(default)]
    metadata: Meta,
    #[serde(default)]
    spec: Option<S>,
    #[serde(default = "Option::default")]
    status: Option<T>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(rename = "type")]
    kind: String,
    load_balancer_class: Option<String>,
}

/// The status of a Service, and of an Ingress.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BalancedStatus {
    load_balancer: Ingresses,
}

impl BalancedStatus {
    fn addresses(self) -> Vec<String> {
        let all = self.load_balancer.ingress.unwrap_or_default();
        all.into_iter().filter_map(|address| address.ip).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Ingresses {
    ingress: Option<Vec<Address>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Address {
    ip: Option<String>,
}

/// A Service.
pub type Service = Object<ServiceSpec, BalancedStatus>;

impl Service {
    /// The fields of the Service that the observed state keeps; None if it has no load balancer.
    pub fn kept(self) -> Option<kept::Service> {
        let spec = self.spec.unwrap_or_default();
        let former = spec.kind != "LoadBalancer";
        (!former || self.metadata.is_held_by(names::LOAD_BALANCER_CLEANUP)).then(|| kept::Service {
            former,
            addresses: self.status.unwrap_or_default().addresses(),
            load_balancer: self.metadata.annotation(names::LOAD_BALANCER_ID).map(str::to_owned),
            keep_floating_ip: self.metadata.is_true(names::KEEP_FLOATING_IP),
            class: spec.load_balancer_class,
            meta: self.metadata.kept(),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IngressSpec {
    ingress_class_name: Option<String>,
}

/// An Ingress.
pub type Ingress = Object<IngressSpec, BalancedStatus>;

impl Ingress {
    /// The fields of the Ingress that the observed state keeps.
    pub fn kept(self) -> kept::Ingress {
        let class = self.spec.and_then(|spec| spec.ingress_class_name);
        // octavia-ingress-controller reads the annotation only.
        let annotated = self.metadata.annotation(names::INGRESS_CLASS_ANNOTATION).map(str::to_owned);
        kept::Ingress {
            class: annotated.or(class),
            addresses: self.status.unwrap_or_default().addresses(),
            names_floating_ip: self
                .metadata
                .annotation(names::INGRESS_FLOATING_IP)
                .is_some_and(|address| !address.is_empty()),
            keep_floating_ip: self.metadata.is_true(names::INGRESS_KEEP_FLOATING_IP),
            meta: self.metadata.kept(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    node_name: Option<String>,
    volumes: Option<Vec<PodVolume>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodVolume {
    name: String,
    persistent_volume_claim: Option<PodClaim>,
    ephemeral: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodClaim {
    claim_name: String,
}

/// A Pod.
pub type Pod = Object<PodSpec, IgnoredAny>;

impl Pod {
    /// The fields of the Pod that the observed state keeps; None if it names no claim.
    pub fn kept(self) -> Option<kept::Pod> {
        let PodSpec { node_name, volumes } = self.spec.unwrap_or_default();
        let (volumes, unscheduled) =
            (volumes.unwrap_or_default(), node_name.is_none_or(|name| name.is_empty()));
        let name = self.metadata.name.clone();
        let claims: Vec<String> = volumes
            .into_iter()
            .filter_map(|volume| match (volume.persistent_volume_claim, volume.ephemeral) {
                (Some(claim), _) => Some(claim.claim_name),
                (None, Some(_)) => Some(format!("{name}-{}", volume.name)),
                (None, None) => None,
            })
            .collect();
        (!claims.is_empty()).then(|| kept::Pod { meta: self.metadata.kept(), claims, unscheduled })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaseSpec {
    renew_time: Option<Timestamp>,
    lease_duration_seconds: Option<i64>,
}

/// A Lease.
pub type Lease = Object<LeaseSpec, IgnoredAny>;

impl Lease {
    /// The fields of the Lease that the observed state keeps; None if its holder deletes nothing in the cloud.
    pub fn kept(self, scope: Scope<'_>) -> Option<kept::Provider> {
        let name = &self.metadata.name;
        let spec = self.spec.unwrap_or_default();
        scope.has_lease(name).then(|| kept::Provider {
            name: name.clone(),
            renewed: spec.renew_time,
            seconds: spec.lease_duration_seconds.unwrap_or(15),
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeSpec {
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    addresses: Option<Vec<NodeAddress>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeAddress {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// A Node.
pub type Node = Object<NodeSpec, NodeStatus>;

impl Node {
    /// The fields of the Node that the observed state keeps.
    pub fn kept(self) -> kept::Node {
        let id = self.spec.and_then(|spec| spec.provider_id);
        let server = id.as_deref().and_then(ProviderId::parse);
        let addresses = self.status.and_then(|status| status.addresses).unwrap_or_default();
        let internal = addresses.iter().filter(|one| one.kind == "InternalIP");
        kept::Node {
            name: self.metadata.name,
            server: server.map(|id| (id.region.to_owned(), id.server.to_owned())),
            addresses: internal.filter_map(|one| one.address.parse().ok()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn service(kind: &str, finalizers: &[&str]) -> Option<kept::Service> {
        let service = json!({"metadata": {"name": "web", "finalizers": finalizers}, "spec": {"type": kind}});
        serde_json::from_value::<Service>(service).unwrap().kept()
    }

    #[test]
    fn a_service_has_a_load_balancer_as_long_as_it_has_the_finalizer() {
        let cleanup = "service.kubernetes.io/load-balancer-cleanup";
        assert!(!service("LoadBalancer", &[]).unwrap().former);
        assert!(!service("LoadBalancer", &[cleanup]).unwrap().former);
        assert!(service("ClusterIP", &["example.org/other", cleanup]).unwrap().former);
        assert_eq!(service("ClusterIP", &["example.org/other"]), None);
    }

    #[test]
    fn a_node_has_its_server_and_its_internal_addresses() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"providerID": "openstack://north/abc"}, "status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.5"}, {"type": "ExternalIP", "address": "203.0.113.5"}]}});
        let node = serde_json::from_value::<Node>(node).unwrap().kept();
        assert_eq!(node.server, Some(("north".to_owned(), "abc".to_owned())));
        assert_eq!(node.addresses, ["10.0.0.5".parse::<std::net::IpAddr>().unwrap()]);
    }
}
