//! Executes actions. The API server's response to each write goes into the caches, and the next plan reads it there.
//!
//! * Objects of the apinet cluster are applied on the server's side, by force: this program owns the fields that it applies. They are
//!   written as a whole, because a merge patch would make its fields those of another operation, and a list of targets is atomic.
//! * All else is a JSON merge patch with the resourceVersion that was read: a lost update is impossible, and aggregated API servers
//!   and CRDs serve it alike.

use std::sync::Arc;

use common::apply::FieldManager;
use common::cache::{Cache, ObjectKey};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::{ApiKind, ApiNetKind, LocalUidRef};
use crate::caches::{Caches, PolicyCaches};
use crate::clusters::{ApiNet, Source};
use crate::config::Config;
use crate::error::Error;
use crate::mapping::Mapping;
use crate::names::{Flavor, Kind};
use crate::origin::Keys;
use crate::plan::steps::{MetadataPatch, ObservedRef};
use crate::plan::{Act, Desired, Status};

/// Owns an address that was requested. The next apply, also one of the Go program, is that of the usual field manager without the address,
/// and would remove it if this manager owned it.
const ADDRESS_MANAGER: FieldManager = FieldManager::new("apinetlet.perimeter.dev");

/// The clients and caches of both clusters.
pub struct Apply {
    /// Names and namespace.
    pub config: Config,
    /// The source cluster.
    pub source: Source,
    /// The apinet cluster.
    pub apinet: ApiNet,
    /// Both get the responses.
    pub caches: Caches,
}

impl Apply {
    /// Executes an action of the source object with this key. The caller has asked for the leadership.
    ///
    /// # Errors
    /// [`Error::Outdated`] if the object was changed or deleted since it was read, and other errors of the API server.
    pub async fn run<M: Mapping>(&self, key: &ObjectKey, act: &Act) -> Result<(), Error> {
        match act {
            Act::AddFinalizer(name) => self.set_finalizers::<M>(key, |all| all.push(name.clone())).await,
            Act::RemoveFinalizer { finalizer, gone } => {
                if let (Some(name), Some(cache)) = (gone, M::counterparts(&self.caches)) {
                    self.check_gone(cache, M::KIND, name).await?;
                }
                self.set_finalizers::<M>(key, |all| all.retain(|one| one != finalizer)).await
            }
            Act::Apply(desired) => self.apply(desired).await,
            Act::Delete { name, uid, .. } => match M::counterparts(&self.caches) {
                Some(cache) => self.delete(cache, name, uid).await,
                None => Ok(()),
            },
            Act::SetProviderId { id, finalizer } => {
                let finalizers = self.finalizers::<M>(key, |all| all.extend(finalizer.clone()))?;
                let patch = json!({ "metadata": { "finalizers": finalizers }, "spec": { "providerID": id } });
                self.patch_source::<M>(key, None, patch).await
            }
            Act::SetStatus(status) => self.set_status::<M>(key, status).await,
            Act::Claim(one, metadata, configuration) | Act::Configure(one, metadata, configuration) => {
                self.patch_interface(one, metadata, serde_json::to_value(configuration)?).await
            }
            Act::Release(one, metadata) => {
                self.patch_interface(one, metadata, json!({ "publicIPs": null, "prefixes": null })).await
            }
            Act::ClaimVirtualIp(one) => {
                let uid = self.source_object::<M>(key)?.meta().uid.clone().unwrap_or_default();
                let target = LocalUidRef { name: key.name().to_owned(), uid };
                self.set_target(key, one, serde_json::to_value(target)?).await
            }
            Act::ReleaseVirtualIp(one) => self.set_target(key, one, Value::Null).await,
        }
    }

    /// The source object as it is cached now.
    fn source_object<M: Mapping>(&self, key: &ObjectKey) -> Result<Arc<M>, Error> {
        M::sources(&self.caches).and_then(|cache| cache.get(key)).ok_or(Error::Outdated)
    }

    async fn set_finalizers<M: Mapping>(
        &self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Vec<String>),
    ) -> Result<(), Error> {
        let finalizers = self.finalizers::<M>(key, change)?;
        self.patch_source::<M>(key, None, json!({ "metadata": { "finalizers": finalizers } })).await
    }

    fn finalizers<M: Mapping>(
        &self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Vec<String>),
    ) -> Result<Vec<String>, Error> {
        let mut finalizers = self.source_object::<M>(key)?.meta().finalizers.clone().unwrap_or_default();
        change(&mut finalizers);
        Ok(finalizers)
    }

    /// Writes the status; a field that the new one does not have is removed.
    async fn set_status<M: Mapping>(&self, key: &ObjectKey, status: &Status) -> Result<(), Error> {
        let observed = serde_json::to_value(&*self.source_object::<M>(key)?)?;
        let mut status = serde_json::to_value(status)?;
        let removed = observed.get("status").and_then(Value::as_object).into_iter().flat_map(Map::keys);
        if let Value::Object(fields) = &mut status {
            for field in removed {
                fields.entry(field).or_insert(Value::Null);
            }
        }
        self.patch_source::<M>(key, Some("status"), json!({ "status": status })).await
    }

    async fn patch_source<M: Mapping>(
        &self,
        key: &ObjectKey,
        subresource: Option<&str>,
        patch: Value,
    ) -> Result<(), Error> {
        let object = self.source_object::<M>(key)?;
        let patch = of_version(patch, object.meta().resource_version.as_deref());
        let api = self.source.api(key.namespace());
        let cache = M::sources(&self.caches).ok_or(Error::Outdated)?;
        merge(api, cache, key.name(), subresource, &patch).await
    }

    /// `key`: that of the NetworkInterface.
    async fn set_target(&self, key: &ObjectKey, one: &ObservedRef, target: Value) -> Result<(), Error> {
        let patch = of_version(json!({ "spec": { "targetRef": target } }), Some(&one.resource_version));
        let api = self.source.api(key.namespace());
        merge(api, &self.caches.virtual_ips, &one.name, None, &patch).await
    }

    async fn patch_interface(
        &self,
        one: &ObservedRef,
        metadata: &MetadataPatch,
        spec: Value,
    ) -> Result<(), Error> {
        let mut patch = json!({ "metadata": metadata, "spec": spec });
        if let Some(metadata) = patch.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("uid".to_owned(), one.uid.clone().into());
        }
        let patch = of_version(patch, Some(&one.resource_version));
        merge(self.apinet.api(), &self.caches.apinet.network_interfaces, &one.name, None, &patch).await
    }

    async fn apply(&self, desired: &Desired) -> Result<(), Error> {
        let caches = &self.caches.apinet;
        let names = self.config.flavor.names();
        let (manager, policies) = (names.field_manager, self.caches.policies.as_ref());
        match desired {
            Desired::Network(one) => self.apply_one(manager, Some(&caches.networks), one).await,
            Desired::Ip(one) => {
                let manager = if one.spec.ip.is_some() { ADDRESS_MANAGER } else { manager };
                self.apply_one(manager, Some(&caches.ips), one).await
            }
            Desired::NatGateway(one) => self.apply_one(manager, Some(&caches.nat_gateways), one).await,
            Desired::NatGatewayAutoscaler(one) => {
                self.apply_one(manager, Some(&caches.nat_gateway_autoscalers), one).await
            }
            Desired::LoadBalancer(one) => self.apply_one(manager, Some(&caches.load_balancers), one).await,
            Desired::LoadBalancerRouting(one) => {
                self.apply_one(manager, Some(&caches.load_balancer_routings), one).await
            }
            Desired::NetworkPolicy(one) => {
                let cache = policies.map(|PolicyCaches { counterparts, .. }| counterparts);
                self.apply_one(manager, cache, one).await
            }
            Desired::NetworkPolicyRule(one) => {
                let cache = policies.map(|PolicyCaches { rules, .. }| rules);
                self.apply_one(names.rule_field_manager, cache, one).await
            }
        }
    }

    async fn apply_one<K: ApiNetKind>(
        &self,
        manager: FieldManager,
        cache: Option<&Cache<K>>,
        desired: &K,
    ) -> Result<(), Error> {
        let Some(cache) = cache else { return Ok(()) };
        let name = desired.meta().name.as_deref().unwrap_or_default();
        let body = Body::new(desired, self.config.flavor);
        let parameters = PatchParams::apply(manager.name()).force();
        let writing = cache.writing();
        let written = self.apinet.api::<K>().patch(name, &parameters, &Patch::Apply(body)).await;
        cache.written(writing, written.map_err(Error::Kubernetes)?);
        Ok(())
    }

    /// Deletes an object of the apinet cluster if it has this UID.
    async fn delete<K: ApiNetKind>(&self, cache: &Cache<K>, name: &str, uid: &str) -> Result<(), Error> {
        let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
        let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let cached = cache.get(&ObjectKey::new(&self.config.namespace, name));
        let writing = cache.writing();
        let still_there = match self.apinet.api::<K>().delete(name, &parameters).await {
            Ok(response) => response.left(),
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            Err(error) => return Err(Error::of_update(error)),
        };
        match (still_there, cached) {
            // It has finalizers.
            (Some(object), _) => cache.written(writing, object),
            (None, Some(cached)) if cached.meta().uid.as_deref() == Some(uid) => cache.deleted(&*cached),
            (None, _) => {}
        }
        Ok(())
    }

    /// Asks the API server whether the counterpart of a source object of this kind is gone.
    async fn check_gone<K: ApiNetKind>(&self, cache: &Cache<K>, kind: Kind, name: &str) -> Result<(), Error> {
        let writing = cache.writing();
        let observed = self.apinet.api::<K>().get_opt(name).await.map_err(Error::Kubernetes)?;
        let Some(object) = observed else { return Ok(()) };
        let is_there = is_counterpart(self.config.flavor, kind, object.meta(), name);
        cache.written(writing, object);
        if is_there { Err(Error::Outdated) } else { Ok(()) }
    }
}

/// Whether an apinet object that has the UID of a source object as name also names it as its source object. Another one is not
/// deleted with the source object, and must not keep its finalizer.
fn is_counterpart(flavor: Flavor, kind: Kind, observed: &ObjectMeta, uid: &str) -> bool {
    Keys::of(flavor, kind).read(observed).is_some_and(|origin| origin.uid == uid)
}

/// The body of a server-side apply. It is serialized without a [`Value`] between, which is larger than the request by far: a routing
/// can have thousands of targets. The types have no nulls, which no manager owns.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Body<'a, K> {
    api_version: String,
    kind: String,
    #[serde(flatten)]
    object: &'a K,
}

impl<'a, K: ApiNetKind> Body<'a, K> {
    /// Of an object with the fields that this program owns.
    #[must_use]
    pub fn new(object: &'a K, flavor: Flavor) -> Body<'a, K> {
        let (api_version, kind) = (K::api_version(&flavor).into_owned(), K::kind(&flavor).into_owned());
        Body { api_version, kind, object }
    }
}

/// The patch, to be refused if the object has another version.
fn of_version(mut patch: Value, resource_version: Option<&str>) -> Value {
    if let Some(fields) = patch.as_object_mut() {
        let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("resourceVersion".to_owned(), resource_version.into());
        }
    }
    patch
}

/// Patches an object, and puts the response into its cache.
async fn merge<K: ApiKind>(
    api: Api<K>,
    cache: &Cache<K>,
    name: &str,
    subresource: Option<&str>,
    patch: &Value,
) -> Result<(), Error> {
    let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
    let writing = cache.writing();
    let written = match subresource {
        None => api.patch(name, &parameters, &patch).await,
        Some(subresource) => api.patch_subresource(subresource, name, &parameters, &patch).await,
    };
    cache.written(writing, written.map_err(Error::of_update)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::api::apinet::{
        Ip, LoadBalancer, LoadBalancerRouting, NatGateway, NatGatewayAutoscaler, Network,
    };
    use crate::api::network_policy::{NetworkPolicy, NetworkPolicyRule, ObjectIp, Peer, Rule, Spec};
    use crate::api::{IpFamily, apinet, network_policy};
    use crate::origin::{Layout, Origin};

    fn body<K: ApiNetKind>(object: &K) -> Value {
        serde_json::to_value(Body::new(object, Flavor::Ironcore)).unwrap()
    }

    #[test]
    fn a_body_has_its_type_and_the_fields_of_the_object() {
        let target_ref = apinet::DestinationTarget {
            uid: "i1".into(),
            name: "nic".into(),
            node_ref: crate::api::LocalRef { name: "node-1".into() },
        };
        let destination = apinet::Destination { ip: "10.0.0.1".into(), target_ref: Some(target_ref) };
        let mut routing = LoadBalancerRouting { destinations: vec![destination], ..Default::default() };
        routing.metadata.name = Some("u1".into());
        assert_eq!(
            body(&routing),
            json!({
                "apiVersion": "core.apinet.ironcore.dev/v1alpha1",
                "kind": "LoadBalancerRouting",
                "metadata": { "name": "u1" },
                "destinations": [
                    { "ip": "10.0.0.1", "targetRef": { "uid": "i1", "name": "nic", "nodeRef": { "name": "node-1" } } },
                ],
            })
        );
    }

    #[test]
    fn an_object_that_does_not_name_the_source_object_does_not_keep_its_finalizer() {
        let named = |uid: &str| {
            let origin = Origin { uid: uid.into(), namespace: "team".into(), name: "net".into() };
            let written = Keys::of(Flavor::Ironcore, Kind::Network).write(&origin, Layout::Annotated);
            ObjectMeta {
                name: Some("u1".into()),
                labels: Some(written.labels),
                annotations: Some(written.annotations),
                ..ObjectMeta::default()
            }
        };
        let unnamed = ObjectMeta { name: Some("u1".into()), ..ObjectMeta::default() };
        for (observed, kind, is_there) in [
            (named("u1"), Kind::Network, true),
            (named("u2"), Kind::Network, false),
            (named("u1"), Kind::LoadBalancer, false),
            (unnamed, Kind::Network, false),
        ] {
            assert_eq!(is_counterpart(Flavor::Ironcore, kind, &observed, "u1"), is_there, "{observed:?}");
        }
    }

    /// A null is a value that a field manager sets.
    #[test]
    fn a_body_has_no_nulls() {
        let peer = Peer { object_selector: Some(Default::default()), ip_block: Some(Default::default()) };
        let ingress =
            network_policy::Ingress { ports: vec![Default::default()], from: vec![peer, Default::default()] };
        let policy = NetworkPolicy {
            spec: Spec { ingress: vec![ingress], ..Default::default() },
            ..Default::default()
        };
        let ip = ObjectIp { ip_family: IpFamily::IPv4, prefix: None };
        let rule =
            Rule { ips: vec![ip], network_policy_ports: vec![Default::default()], ..Default::default() };
        let rule = NetworkPolicyRule {
            targets: vec![Default::default()],
            ingress: vec![rule],
            ..Default::default()
        };
        let mut network = Network::default();
        network.spec.peerings =
            vec![apinet::Peering { prefixes: vec![Default::default()], ..Default::default() }];
        let mut balancer = LoadBalancer::default();
        balancer.spec.ips = vec![apinet::NamedIp { name: "a".into(), ip_family: IpFamily::IPv4, ip: None }];
        balancer.spec.ports = vec![crate::api::Port { protocol: None, port: 1, end_port: None }];
        balancer.spec.template.spec.affinity = Some(Default::default());
        let mut gateway = NatGateway::default();
        gateway.spec.ips = vec![Default::default()];
        let routing = LoadBalancerRouting { destinations: vec![Default::default()], ..Default::default() };
        let bodies = [
            body(&network),
            body(&Ip::default()),
            body(&balancer),
            body(&routing),
            body(&gateway),
            body(&NatGatewayAutoscaler::default()),
            body(&policy),
            body(&rule),
        ];
        for body in bodies {
            assert!(!body.to_string().contains("null"), "{body}");
        }
    }
}
