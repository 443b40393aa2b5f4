//! The cluster's Nodes as one more witness: name, internal addresses, pod networks.

use std::time::Duration;

use common::api::routegc::NodesFrom;
use common::causes::with_causes;
use common::routes::NodeSource;
use common::routes::snapshot::Node as Seen;
use futures::FutureExt as _;
use k8s_openapi::{api::core::v1 as core, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Resource};
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::login;

/// As the runtime's own client: an API server answers in less.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(9);

/// A slim Node is 300 bytes, but the API server sends it whole: 500 of them are 5 MB.
const PAGE: u32 = 500;

#[derive(Resource, Clone, Debug, Serialize, Deserialize)]
#[resource(inherit = core::Node)]
struct Node {
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

/// Where the Nodes of a policy are read from.
///
/// # Errors
/// When the kubeconfig cannot be used; the message names its Secret.
pub async fn source(client: &Client, namespace: &str, from: &NodesFrom) -> Result<NodeSource, Error> {
    let client = match &from.secret_ref {
        None => client.clone(),
        Some(reference) => {
            let place = format!("Secret {namespace}/{}, key {}", reference.name, reference.key);
            let failed =
                |why: String| Error::Unseen(common::routes::Unseen::Nodes(format!("{place}: {why}")));
            let data = login::secret(client, namespace, &reference.name).await.map_err(failed)?;
            let kubeconfig =
                data.get(&reference.key).ok_or_else(|| failed("there is no such key".to_owned()))?;
            connect(kubeconfig).await.map_err(failed)?
        }
    };
    Ok(NodeSource::new(move || list(client.clone()).boxed()))
}

/// A kubeconfig that somebody else wrote may not make us run programs or read our own files.
async fn connect(kubeconfig: &[u8]) -> Result<Client, String> {
    let text = std::str::from_utf8(kubeconfig).map_err(|_| "it is no text".to_owned())?;
    // The parser's own message may quote a secret.
    let kubeconfig = Kubeconfig::from_yaml(text).map_err(|_| "it is no kubeconfig".to_owned())?;
    for user in &kubeconfig.auth_infos {
        let Some(user) = &user.auth_info else { continue };
        if user.exec.is_some() || user.auth_provider.is_some() {
            return Err("it logs in by a program; a token or a client certificate is needed".to_owned());
        }
        if user.token_file.is_some() || user.client_certificate.is_some() || user.client_key.is_some() {
            return Err("it names files; the data itself is needed".to_owned());
        }
    }
    for cluster in &kubeconfig.clusters {
        if cluster.cluster.as_ref().is_some_and(|cluster| cluster.certificate_authority.is_some()) {
            return Err("it names files; the data itself is needed".to_owned());
        }
    }
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| with_causes(&error))?;
    config.connect_timeout = Some(ANSWER_TIMEOUT);
    config.read_timeout = Some(ANSWER_TIMEOUT);
    Client::try_from(config).map_err(|error| with_causes(&error))
}

async fn list(client: Client) -> Result<Vec<Seen>, String> {
    let api = Api::<Node>::all(client);
    let mut parameters = ListParams::default().limit(PAGE);
    let mut nodes = Vec::new();
    loop {
        let page = api.list(&parameters).await.map_err(|error| with_causes(&error))?;
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
    let nets = node.spec.pod_cidrs.unwrap_or_default();
    Seen {
        name: node.metadata.name.unwrap_or_default(),
        addresses: internal.filter_map(|one| one.address.parse().ok()).collect(),
        pod_cidrs: nets.iter().chain(&node.spec.pod_cidr).filter_map(|net| net.parse().ok()).collect(),
        server: node.spec.provider_id.as_deref().and_then(server),
    }
}

/// `openstack:///<id>` and `openstack://<region>/<id>`.
fn server(provider_id: &str) -> Option<String> {
    let rest = provider_id.strip_prefix("openstack://")?;
    rest.rsplit('/').next().filter(|id| !id.is_empty()).map(str::to_owned)
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
        assert_eq!(server("openstack:///abc").as_deref(), Some("abc"));
        assert_eq!(server("hcloud://1"), None);
    }

    #[tokio::test]
    async fn a_kubeconfig_that_runs_a_program_or_reads_our_files_is_refused() {
        let with = |user: &str| {
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
                 clusters: [{{name: k, cluster: {{server: 'https://127.0.0.1:1'}}}}]\nusers: [{{name: u, user: {user}}}]\n"
            )
        };
        let program = with(
            "{exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}",
        );
        assert!(connect(program.as_bytes()).await.err().unwrap().contains("by a program"));
        assert!(
            connect(with("{tokenFile: /etc/passwd}").as_bytes()).await.err().unwrap().contains("names files")
        );
        assert_eq!(connect(b"users: [{token: s3cret").await.err().unwrap(), "it is no kubeconfig");
    }
}
