//! The kinds and classes that a cluster with Cinder has: storage, and snapshots of it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::storage::v1::{CSIDriver, StorageClass};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::wait;

/// The name of Cinder's driver.
pub const DRIVER: &str = "cinder.csi.openstack.org";

/// The StorageClass and the VolumeSnapshotClass whose volumes and snapshots go with what asked for them.
pub const DELETE: &str = "delete";

/// Those whose volumes and snapshots stay.
pub const RETAIN: &str = "retain";

/// A kind of `snapshot.storage.k8s.io/v1`, such as `VolumeSnapshot`.
#[must_use]
pub fn snapshot_resource(kind: &str) -> ApiResource {
    let plural = match kind {
        "VolumeSnapshotClass" => "volumesnapshotclasses".to_owned(),
        _ => format!("{}s", kind.to_lowercase()),
    };
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("snapshot.storage.k8s.io", "v1", kind), &plural)
}

/// Makes the cluster know the kinds of snapshots, from the files of `scripts/assets.sh providers`.
///
/// # Errors
/// The API server refuses, or does not serve them.
pub async fn install_snapshot_kinds(client: &Client, assets: &Path) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for kind in ["VolumeSnapshotClass", "VolumeSnapshotContent", "VolumeSnapshot"] {
        let resource = snapshot_resource(kind);
        let path = assets.join(format!("{}.yaml", resource.plural));
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let definition = serde_yaml::from_str(&text).with_context(|| path.display().to_string())?;
        create(&definitions, &definition).await.context(kind)?;
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        wait::until(&format!("the kind {kind}"), async || {
            Ok(objects.list(&Default::default()).await.is_ok().then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// Writes the driver, and the classes [`DELETE`] and [`RETAIN`] of volumes and of snapshots.
///
/// # Errors
/// The API server refuses.
pub async fn install_classes(client: &Client) -> Result<()> {
    let driver = json!({
        "metadata": { "name": DRIVER },
        "spec": { "attachRequired": true, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent"] },
    });
    create::<CSIDriver>(&Api::all(client.clone()), &serde_json::from_value(driver)?).await?;
    let resource = snapshot_resource("VolumeSnapshotClass");
    for (name, policy) in [(DELETE, "Delete"), (RETAIN, "Retain")] {
        let storage = json!({
            "metadata": { "name": name }, "provisioner": DRIVER,
            "reclaimPolicy": policy, "volumeBindingMode": "Immediate",
        });
        create::<StorageClass>(&Api::all(client.clone()), &serde_json::from_value(storage)?).await?;
        let mut snapshots = DynamicObject::new(name, &resource);
        snapshots.data = json!({ "driver": DRIVER, "deletionPolicy": policy });
        create(&Api::<DynamicObject>::all_with(client.clone(), &resource), &snapshots).await?;
    }
    Ok(())
}

/// Creates it, if it is not there.
pub(super) async fn create<K>(api: &Api<K>, object: &K) -> Result<()>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(()),
        Err(error) => bail!(error),
        Ok(_) => Ok(()),
    }
}
