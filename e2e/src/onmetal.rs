//! The kinds of onmetal-api and onmetal-api-net as custom resources, and a stand-in for what the servers of onmetal-api-net allocate.
//!
//! The servers of 2023 cannot be built any more: the Go proxy has neither onmetal-api v0.3.0 nor the programs of onmetal-api-net. So
//! this stands in for them. In one point it is stricter: an ID or an address is not allocated by the request that creates the object,
//! but some time after it, as by a controller.

use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result, bail};
use apinetlet::api::{ApiNetKind, IpFamily, LocalUidRef, apinet};
use apinetlet::names::Flavor;
use futures::TryStreamExt as _;
use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;

const FLAVOR: Flavor = Flavor::Onmetal;

/// One of `onmetal/kinds.yaml`.
#[derive(Deserialize)]
struct Kind {
    group: String,
    kind: String,
    plural: String,
    /// Whether it has the subresource.
    #[serde(default = "yes")]
    status: bool,
    properties: Value,
}

fn yes() -> bool {
    true
}

impl Kind {
    fn definition(&self) -> Result<CustomResourceDefinition> {
        let Kind { group, kind, plural, status, properties } = self;
        let names = FLAVOR.names();
        let group = match group.as_str() {
            "networking" => names.networking,
            "ipam" => names.ipam,
            "apinet" => names.apinet,
            other => bail!("the group {other}"),
        };
        let subresources = if *status { json!({ "status": {} }) } else { json!({}) };
        Ok(serde_json::from_value(json!({
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group, "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List") },
                "versions": [{
                    "name": "v1alpha1", "served": true, "storage": true, "subresources": subresources,
                    "schema": { "openAPIV3Schema": { "type": "object", "properties": properties } },
                }],
            },
        }))?)
    }
}

/// Defines all kinds of both clusters.
///
/// # Errors
/// The API server refuses, or does not serve them.
pub async fn define(control_plane: &ControlPlane) -> Result<()> {
    let kinds: Vec<Kind> = serde_yaml::from_str(include_str!("onmetal/kinds.yaml"))?;
    let define = async |kind: &Kind| control_plane.define(&kind.definition()?).await;
    try_join_all(kinds.iter().map(define)).await.map(drop)
}

/// Allocates IDs and addresses of objects of this namespace as they appear, and claims interfaces for NAT gateways. Never ends.
///
/// # Errors
/// The API server refuses a change that is not outdated.
pub async fn allocate(client: Client, namespace: String) -> Result<()> {
    let networks: Api<apinet::Network> = api(&client, &namespace);
    let of_networks = follow(networks.clone(), |network| {
        let spec = network.spec.id.is_empty().then(|| json!({ "id": next().to_string() }));
        set_spec(networks.clone(), network, spec)
    });
    let ips: Api<apinet::Ip> = api(&client, &namespace);
    let of_ips = follow(ips.clone(), |ip| {
        let spec = ip.spec.ip.is_none().then(|| json!({ "ip": address(ip.spec.ip_family) }));
        set_spec(ips.clone(), ip, spec)
    });
    let balancers: Api<apinet::LoadBalancer> = api(&client, &namespace);
    let of_balancers = follow(balancers.clone(), |balancer| {
        let mut ips = balancer.spec.ips.clone();
        for ip in &mut ips {
            ip.ip.get_or_insert_with(|| address(Some(ip.ip_family)));
        }
        let spec = (ips != balancer.spec.ips).then(|| json!({ "ips": ips }));
        set_spec(balancers.clone(), balancer, spec)
    });
    let gateways: Api<apinet::NatGateway> = api(&client, &namespace);
    let of_autoscalers = follow(api(&client, &namespace), |autoscaler| scale(gateways.clone(), autoscaler));
    let interfaces: Api<apinet::NetworkInterface> = api(&client, &namespace);
    let of_interfaces =
        follow(interfaces.clone(), |interface| claim(gateways.clone(), interfaces.clone(), interface));
    tokio::try_join!(of_networks, of_ips, of_balancers, of_autoscalers, of_interfaces).map(drop)
}

fn api<K: ApiNetKind>(client: &Client, namespace: &str) -> Api<K> {
    Api::namespaced_with(client.clone(), namespace, &FLAVOR)
}

/// Calls `change` with each object, and again after each change of it.
async fn follow<K: ApiNetKind, F: Future<Output = Result<bool>> + Send>(
    api: Api<K>,
    change: impl Fn(K) -> F + Send,
) -> Result<()> {
    let mut objects = pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    loop {
        // A watch that fails is repeated.
        let Ok(object) = objects.try_next().await else { continue };
        change(object.context("a watch has no end")?).await?;
    }
}

/// Patches the spec; false if the object has changed meanwhile, or is gone.
async fn set_spec<K: ApiNetKind>(api: Api<K>, object: K, spec: Option<Value>) -> Result<bool> {
    let Some(spec) = spec else { return Ok(true) };
    let patch = json!({ "metadata": { "resourceVersion": object.resource_version() }, "spec": spec });
    match api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Gives a gateway the fewest addresses that its autoscaler permits.
async fn scale(gateways: Api<apinet::NatGateway>, autoscaler: apinet::NatGatewayAutoscaler) -> Result<bool> {
    let min = autoscaler.spec.min_public_ips.unwrap_or_default();
    loop {
        let Some(gateway) = gateways.get_opt(&autoscaler.spec.nat_gateway_ref.name).await? else {
            return Ok(false);
        };
        let ip = |number| json!({ "name": format!("ip-{number}"), "ip": address(gateway.spec.ip_family) });
        let ips: Vec<_> = (0..min).map(ip).collect();
        let spec = (gateway.spec.ips.len() < ips.len()).then(|| json!({ "ips": ips }));
        if set_spec(gateways.clone(), gateway, spec).await? {
            return Ok(true);
        }
    }
}

/// Adds claims of gateways for the families in which an interface has neither a gateway nor a public address.
async fn claim(
    gateways: Api<apinet::NatGateway>,
    interfaces: Api<apinet::NetworkInterface>,
    interface: apinet::NetworkInterface,
) -> Result<bool> {
    let apinet::NetworkInterfaceSpec { network_ref, nat_gateways, public_ips, .. } = &interface.spec;
    let mut claims = nat_gateways.clone();
    for gateway in gateways.list(&ListParams::default()).await? {
        let is_of_network = gateway.spec.network_ref == *network_ref;
        let Some(ip_family) = gateway.spec.ip_family.filter(|_| is_of_network) else { continue };
        let is_translated = claims.iter().any(|claim| claim.ip_family == ip_family);
        let is_public = public_ips.iter().any(|ip| ip.ip_family == ip_family);
        if !is_translated && !is_public {
            let claim_ref = LocalUidRef { name: gateway.name_any(), uid: gateway.uid().unwrap_or_default() };
            claims.push(apinet::ClaimingNatGateway { ip_family, claim_ref });
        }
    }
    let spec = (claims != *nat_gateways).then(|| json!({ "natGateways": claims }));
    set_spec(interfaces, interface, spec).await
}

/// No ID and no address is allocated twice.
fn next() -> u32 {
    /// The smallest VNI of onmetal-api-net.
    static NEXT: AtomicU32 = AtomicU32::new(200);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn address(family: Option<IpFamily>) -> String {
    let number = next();
    match family {
        Some(IpFamily::IPv6) => format!("fdef:273d:a18c:ca25::{number:x}"),
        Some(IpFamily::IPv4) | None => format!("10.0.{}.{}", number / 256, number % 256),
    }
}
