//! The identity of the source cluster: the UID of a ConfigMap in this program's own namespace, which the Role for the election of
//! upstream's manifests permits. All apinet objects of this program have it as a label, so that one source cluster does not take the
//! objects of another one for garbage.

use anyhow::Context as _;
use common::cluster::error_chain;
use common::runtime::Runtime;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};

use crate::caches::Caches;
use crate::config::Config;
use crate::garbage;

/// The ConfigMap.
pub const CONFIG_MAP: &str = "apinetlet-source-cluster";

/// Waits for the lead, and adds the ID to the configuration if it is not given.
///
/// # Errors
/// The ConfigMap can neither be read nor created, or the apinet namespace has objects of another source cluster.
pub async fn identify(runtime: &Runtime, caches: &Caches, mut config: Config) -> anyhow::Result<Config> {
    if !runtime.leading().await {
        return Ok(config);
    }
    if config.source_cluster.is_none() {
        config.source_cluster = Some(id(runtime).await.with_context(|| {
            let namespace = &runtime.namespace;
            format!("ConfigMap {namespace}/{CONFIG_MAP}: its UID is the ID of the source cluster; --source-cluster-id replaces it")
        })?);
    }
    tokio::select! {
        biased;
        () = runtime.shutdown.cancelled() => return Ok(config),
        () = caches.synced() => {}
    }
    if let Some((object, mark)) = garbage::foreign(&config, caches) {
        let own = config.source_cluster.as_deref().unwrap_or_default();
        anyhow::bail!(
            "{object} in namespace {} of the apinet cluster belongs to the source cluster with the ID {mark}, and this one has the ID {own}: \
             two source clusters must not share a namespace. If this one had that ID, start with --source-cluster-id={mark}",
            config.namespace
        );
    }
    Ok(config)
}

async fn id(runtime: &Runtime) -> anyhow::Result<String> {
    let api = Api::<ConfigMap>::namespaced(runtime.client.clone(), &runtime.namespace);
    let failed = |error: kube::Error| anyhow::anyhow!("{}", error_chain(&error));
    if let Some(found) = api.get_opt(CONFIG_MAP).await.map_err(failed)? {
        return found.uid().context("it has no UID");
    }
    let mut desired = ConfigMap::default();
    desired.metadata.name = Some(CONFIG_MAP.to_owned());
    let created = match api.create(&PostParams::default(), &desired).await {
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => api.get(CONFIG_MAP).await,
        created => created,
    };
    created.map_err(failed)?.uid().context("it has no UID")
}
