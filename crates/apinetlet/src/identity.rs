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
        config.source_cluster = Some(id(runtime).await.with_context(|| place(runtime))?);
    }
    tokio::select! {
        biased;
        () = runtime.shutdown.cancelled() => return Ok(config),
        () = caches.synced() => {}
    }
    check(&config, caches)?;
    Ok(config)
}

/// The same without a write: without the ConfigMap, a placeholder is the ID. The caches have synced.
///
/// # Errors
/// The ConfigMap cannot be read, or the apinet namespace has objects of another source cluster.
pub async fn read(runtime: &Runtime, caches: &Caches, mut config: Config) -> anyhow::Result<Config> {
    if config.source_cluster.is_none() {
        let found = existing(runtime).await.with_context(|| place(runtime))?;
        if found.is_none() {
            tracing::warn!("a run creates the ConfigMap {}/{CONFIG_MAP}", runtime.namespace);
        }
        config.source_cluster = Some(found.unwrap_or_else(|| UNKNOWN.to_owned()));
    }
    check(&config, caches)?;
    Ok(config)
}

/// Instead of the ID of a source cluster that has none yet.
const UNKNOWN: &str = "UID-OF-THE-CONFIGMAP";

fn place(runtime: &Runtime) -> String {
    let namespace = &runtime.namespace;
    format!(
        "ConfigMap {namespace}/{CONFIG_MAP}: its UID is the ID of the source cluster; --source-cluster-id replaces it"
    )
}

/// Refuses an apinet namespace with objects of another source cluster.
fn check(config: &Config, caches: &Caches) -> anyhow::Result<()> {
    let Some((object, mark)) = garbage::foreign(config, caches) else { return Ok(()) };
    let own = config.source_cluster.as_deref().unwrap_or_default();
    anyhow::bail!(
        "{object} in namespace {} of the apinet cluster belongs to the source cluster with the ID {mark}, and this one has the ID {own}: \
         two source clusters must not share a namespace. If this one had that ID, start with --source-cluster-id={mark}",
        config.namespace
    )
}

async fn existing(runtime: &Runtime) -> anyhow::Result<Option<String>> {
    let api = Api::<ConfigMap>::namespaced(runtime.client.clone(), &runtime.namespace);
    let found = api.get_opt(CONFIG_MAP).await.map_err(|error| anyhow::anyhow!("{}", error_chain(&error)))?;
    found.map(|found| found.uid().context("it has no UID")).transpose()
}

async fn id(runtime: &Runtime) -> anyhow::Result<String> {
    if let Some(id) = existing(runtime).await? {
        return Ok(id);
    }
    let api = Api::<ConfigMap>::namespaced(runtime.client.clone(), &runtime.namespace);
    let mut desired = ConfigMap::default();
    desired.metadata.name = Some(CONFIG_MAP.to_owned());
    let created = match api.create(&PostParams::default(), &desired).await {
        // Another replica was faster.
        Err(kube::Error::Api(status)) if status.code == 409 => api.get(CONFIG_MAP).await,
        created => created,
    };
    let created = created.map_err(|error| anyhow::anyhow!("{}", error_chain(&error)))?;
    created.uid().context("it has no UID")
}
