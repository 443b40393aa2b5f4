//! Removes what an earlier test left in a cluster that tests use one after another.

use anyhow::Result;
use common::api::deorbit::Deorbit;
use common::api::deorbit_binding::DeorbitBinding;
use futures::{StreamExt as _, stream};
use k8s_openapi::api::admissionregistration::v1 as admission;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::json;

/// A test of many objects leaves more than a thousand.
const WIPED_AT_ONCE: usize = 16;

/// Removes all that concerns deorbiter: its own objects, its block, Nodes, claims, volumes, Pods, and Services with a load balancer.
///
/// # Errors
/// A kind cannot be listed.
pub async fn clear(client: &Client) -> Result<()> {
    for resource in [
        ApiResource::erase::<DeorbitBinding>(&()),
        ApiResource::erase::<Deorbit>(&()),
        ApiResource::erase::<admission::ValidatingAdmissionPolicyBinding>(&()),
        ApiResource::erase::<admission::ValidatingAdmissionPolicy>(&()),
        ApiResource::erase::<admission::ValidatingWebhookConfiguration>(&()),
        ApiResource::erase::<Node>(&()),
        ApiResource::erase::<Pod>(&()),
        ApiResource::erase::<PersistentVolumeClaim>(&()),
        ApiResource::erase::<PersistentVolume>(&()),
    ] {
        wipe(client, &resource, |_| true).await?;
    }
    wipe(client, &ApiResource::erase::<Service>(&()), |service| {
        service.data.pointer("/spec/type").is_some_and(|kind| kind == "LoadBalancer")
            || !service.finalizers().is_empty()
    })
    .await
}

/// Deletes the objects of a kind that `select` picks, in all namespaces, including their finalizers. A kind that is not served has none.
///
/// # Errors
/// They cannot be listed.
pub async fn wipe(
    client: &Client,
    resource: &ApiResource,
    select: impl Fn(&DynamicObject) -> bool,
) -> Result<()> {
    let all = Api::<DynamicObject>::all_with(client.clone(), resource);
    let found = match all.list(&ListParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        other => other?.items,
    };
    stream::iter(found.into_iter().filter(select))
        .for_each_concurrent(WIPED_AT_ONCE, async |object| {
            let api = match object.namespace() {
                Some(namespace) => {
                    Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, resource)
                }
                None => all.clone(),
            };
            // Deleted first: then no controller adds a finalizer again. Either fails if the object is gone.
            let name = object.name_any();
            let _ = api.delete(&name, &DeleteParams::default().grace_period(0)).await;
            let without = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            let _ = api.patch(&name, &PatchParams::default(), &without).await;
        })
        .await;
    Ok(())
}
