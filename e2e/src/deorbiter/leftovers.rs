//! Removes what an earlier test left in a cluster that tests use one after another.

use anyhow::{Context, Result};
use common::api::deorbit::Deorbit;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod, Service};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::TestEnv;

/// A test of many objects leaves more than a thousand.
const WIPED_AT_ONCE: usize = 16;

impl TestEnv {
    /// Removes what an earlier test left, including finalizers.
    pub(super) async fn clear(&self) -> Result<()> {
        use k8s_openapi::api::admissionregistration::v1 as admission;
        wipe::<Deorbit>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<admission::ValidatingAdmissionPolicyBinding>(Api::all(self.client.clone()), &self.client)
            .await?;
        wipe::<admission::ValidatingAdmissionPolicy>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<admission::ValidatingWebhookConfiguration>(Api::all(self.client.clone()), &self.client)
            .await?;
        wipe::<Pod>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<PersistentVolumeClaim>(Api::all(self.client.clone()), &self.client).await?;
        wipe::<PersistentVolume>(Api::all(self.client.clone()), &self.client).await?;
        let services = Api::<Service>::all(self.client.clone()).list(&ListParams::default()).await?.items;
        for service in services {
            let kind = service.spec.as_ref().and_then(|spec| spec.type_.as_deref());
            if kind == Some("LoadBalancer") || service.metadata.finalizers.is_some() {
                let namespace = service.metadata.namespace.clone().unwrap_or_default();
                remove(&Api::<Service>::namespaced(self.client.clone(), &namespace), service).await?;
            }
        }
        Ok(())
    }
}

async fn wipe<K>(all: Api<K>, client: &Client) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let found = all.list(&ListParams::default()).await?.items;
    let gone = found.into_iter().map(|object| wipe_one(&all, client, object));
    stream::iter(gone).buffer_unordered(WIPED_AT_ONCE).try_collect().await
}

async fn wipe_one<K>(all: &Api<K>, client: &Client, object: K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let Some(namespace) = object.meta().namespace.clone() else { return remove(all, object).await };
    let name = object.meta().name.clone().unwrap_or_default();
    force(client, &format!("{}/{name}", K::url_path(&(), Some(&namespace)))).await
}

async fn force(client: &Client, path: &str) -> Result<()> {
    let body = serde_json::to_vec(&json!({"metadata": {"finalizers": null}}))?;
    let patch =
        http::Request::patch(path).header("content-type", "application/merge-patch+json").body(body)?;
    let _ = client.request::<Value>(patch).await;
    let body = serde_json::to_vec(&json!({"gracePeriodSeconds": 0}))?;
    let _ = client
        .request::<Value>(http::Request::delete(path).header("content-type", "application/json").body(body)?)
        .await;
    Ok(())
}

async fn remove<K>(api: &Api<K>, object: K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let name = object.meta().name.clone().context("a name")?;
    let free = json!({"metadata": {"finalizers": null}});
    let _ = api.delete(&name, &DeleteParams::default()).await;
    let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(free)).await;
    Ok(())
}
