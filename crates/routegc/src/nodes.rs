//! The cluster's Nodes as one more source of live addresses: name, internal addresses, pod networks.

use common::api::routegc::NodesFrom;
use common::cache::{Builder, Cache, Change};
use common::cloud::openstack::ProviderId;
use common::cluster::error_chain;
use common::metrics::Metrics;
use common::routes::NodeSource;
use common::routes::snapshot::Node as Seen;
use common::runtime::Runtime;
use common::secret::KubeconfigClient;
use futures::FutureExt as _;
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, Resource};
use serde::{Deserialize, Serialize};

use crate::login;

/// A slim Node is 300 bytes, but the API server sends it whole: 500 of them are 5 MB.
const PAGE: u32 = 500;

/// The fields of a Node that routegc reads.
#[derive(Resource, Clone, Debug, Serialize, Deserialize)]
#[resource(inherit = core::Node)]
pub struct Node {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(rename = "podCIDRs")]
    pod_cidrs: Option<Vec<String>>,
    #[serde(rename = "podCIDR")]
    pod_cidr: Option<String>,
    #[serde(rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Status {
    addresses: Option<Vec<Address>>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Address {
    #[serde(rename = "type")]
    kind: String,
    address: String,
}

/// Reads the Nodes of a policy.
#[must_use]
pub fn source(client: Client) -> NodeSource {
    NodeSource::new(move || list(client.clone()).boxed())
}

/// Watches the Nodes, and calls `deleted` for each deleted one, also for those that were deleted while the watch was interrupted.
#[must_use]
pub fn watch(
    client: &Client,
    metrics: &Metrics,
    deleted: impl Fn() + Send + Sync + 'static,
) -> Cache<PartialObjectMeta<Node>> {
    let api = Api::<PartialObjectMeta<Node>>::all(client.clone());
    // Other fields of a Node change often and are not used.
    let slim = |node: &mut PartialObjectMeta<Node>| {
        let metadata = std::mem::take(&mut node.metadata);
        node.metadata = ObjectMeta {
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            ..ObjectMeta::default()
        };
    };
    let cache = Builder::metadata(api, &(), metrics).trim(slim).start();
    cache.subscribe(move |change| {
        if matches!(change, Change::Deleted(_)) {
            deleted();
        }
    });
    cache
}

/// A client of the cluster that the Nodes belong to. `kept` is that of the policy's last reconciliation.
///
/// # Errors
/// Why the kubeconfig cannot be used, with its Secret, for a person.
pub async fn client(
    runtime: &Runtime,
    from: &NodesFrom,
    kept: &mut KubeconfigClient,
) -> Result<Client, String> {
    let Some(reference) = &from.secret_ref else { return Ok(runtime.client.clone()) };
    let client = kept.get(runtime, &runtime.namespace, &reference.name, &reference.key, None).await;
    client.map_err(|error| login::explain(&error))
}

async fn list(client: Client) -> Result<Vec<Seen>, String> {
    let api = Api::<Node>::all(client);
    let mut parameters = ListParams::default().limit(PAGE);
    let mut nodes = Vec::new();
    loop {
        let page = api.list(&parameters).await.map_err(|error| error_chain(&error))?;
        nodes.extend(page.items.into_iter().map(seen));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            None => return Ok(nodes),
            Some(token) => parameters = parameters.continue_token(&token),
        }
    }
}

fn seen(node: Node) -> Seen {
    let addresses = node.status.addresses.unwrap_or_default();
    let internal = addresses.iter().filter(|one| one.kind == "InternalIP");
    let id = node.spec.provider_id.as_deref();
    let nets = node.spec.pod_cidrs.unwrap_or_default();
    Seen {
        name: node.metadata.name.unwrap_or_default(),
        addresses: internal.filter_map(|one| one.address.parse().ok()).collect(),
        pod_cidrs: nets.iter().chain(&node.spec.pod_cidr).filter_map(|net| net.parse().ok()).collect(),
        server: id.and_then(ProviderId::parse).map(|id| id.server.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_read() {
        let node: Node = serde_json::from_value(serde_json::json!({
            "metadata": { "name": "node-1" },
            "spec": { "podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24", "fd00::/64"], "providerID": "openstack://r1/abc" },
            "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.11" }, { "type": "ExternalIP", "address": "198.51.100.1" },
                { "type": "Hostname", "address": "node-1" }] }
        }))
        .unwrap();
        let seen = seen(node);
        assert_eq!((seen.addresses.len(), seen.server.as_deref()), (1, Some("abc")));
        assert!(seen.pod_cidrs.contains(&"fd00::/64".parse().unwrap()));
    }
}
