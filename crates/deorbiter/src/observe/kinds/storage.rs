//! Claims, volumes, snapshots, and attachments of volumes to Nodes.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::{Meta, Object};
use crate::names;
use crate::observe::snapshot as kept;
use crate::settings::Scope;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    volume_name: Option<String>,
    storage_class_name: Option<String>,
}

/// A PersistentVolumeClaim.
pub type Claim = Object<ClaimSpec, IgnoredAny>;

impl Claim {
    /// The fields of the PersistentVolumeClaim that the observed state keeps.
    pub fn kept(self, scope: Scope<'_>) -> kept::Claim {
        let spec = self.spec.unwrap_or_default();
        let volume = spec.volume_name.filter(|name| !name.is_empty());
        if volume.is_some() {
            return kept::Claim { meta: self.metadata.kept(), volume, ..kept::Claim::default() };
        }
        let provisioner = names::STORAGE_PROVISIONER.iter().find_map(|key| self.metadata.annotation(key));
        kept::Claim {
            volume,
            provisioner_in_scope: provisioner.map(|name| scope.has_provisioner(name)),
            class: spec
                .storage_class_name
                .or_else(|| self.metadata.annotation(names::STORAGE_CLASS_ANNOTATION).map(str::to_owned)),
            meta: self.metadata.kept(),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    csi: Option<Csi>,
    cinder: Option<InTree>,
    aws_elastic_block_store: Option<InTree>,
    gce_persistent_disk: Option<InTree>,
    azure_disk: Option<InTree>,
    azure_file: Option<InTree>,
    vsphere_volume: Option<InTree>,
    portworx_volume: Option<InTree>,
    persistent_volume_reclaim_policy: Option<String>,
    claim_ref: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Csi {
    driver: String,
    volume_handle: String,
}

/// A volume of a cloud in its in-tree form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InTree {
    #[serde(
        rename = "volumeID",
        alias = "pdName",
        alias = "diskURI",
        alias = "shareName",
        alias = "volumePath"
    )]
    id: String,
}

impl VolumeSpec {
    /// Driver and ID of the volume. None for one without a driver, as hostPath, local and NFS: nothing in a cloud belongs to it.
    fn handle(&mut self) -> Option<(String, String)> {
        let sources = [
            &mut self.cinder,
            &mut self.aws_elastic_block_store,
            &mut self.gce_persistent_disk,
            &mut self.azure_disk,
            &mut self.azure_file,
            &mut self.vsphere_volume,
            &mut self.portworx_volume,
        ];
        let mut in_tree = names::IN_TREE_PROVISIONERS.into_iter().zip(sources);
        let in_tree = in_tree.find_map(|(driver, source)| Some((driver.to_owned(), source.take()?.id)));
        in_tree.or_else(|| self.csi.take().map(|csi| (csi.driver, csi.volume_handle)))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    uid: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    phase: Option<String>,
}

/// A PersistentVolume.
pub type Volume = Object<VolumeSpec, VolumeStatus>;

impl Volume {
    /// The fields of the PersistentVolume that the observed state keeps; None if its driver is not in scope.
    pub fn kept(self, scope: Scope<'_>) -> Option<kept::Volume> {
        let mut spec = self.spec.unwrap_or_default();
        let (driver, handle) = spec.handle().filter(|(driver, _)| scope.has_driver(driver))?;
        Some(kept::Volume {
            meta: self.metadata.kept(),
            id: scope.id(&driver, handle),
            retain: spec.persistent_volume_reclaim_policy.as_deref() != Some("Delete"),
            claim: spec.claim_ref.map(|claim| claim.uid.unwrap_or_default()),
            phase: self.status.and_then(|status| status.phase).unwrap_or_default(),
        })
    }
}

/// A StorageClass, which has no spec.
#[derive(Debug, Deserialize)]
pub struct Class {
    metadata: Meta,
    #[serde(default)]
    provisioner: String,
}

impl Class {
    /// Its name, if its provisioner is in scope.
    pub fn kept(self, scope: Scope<'_>) -> Option<String> {
        scope.has_provisioner(&self.provisioner).then_some(self.metadata.name)
    }
}

/// A CSIDriver.
pub type Driver = Object<IgnoredAny, IgnoredAny>;

impl Driver {
    /// The driver's name.
    pub fn kept(self) -> String {
        self.metadata.name
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotSpec {
    source: Source,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    persistent_volume_claim_name: Option<String>,
    volume_snapshot_content_name: Option<String>,
    snapshot_handle: Option<String>,
    volume_handle: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SnapshotStatus {
    bound_volume_snapshot_content_name: Option<String>,
}

/// A VolumeSnapshot.
pub type Snapshot = Object<SnapshotSpec, SnapshotStatus>;

impl Snapshot {
    /// The fields of the VolumeSnapshot that the observed state keeps.
    pub fn kept(self) -> kept::VolumeSnapshot {
        let source = self.spec.unwrap_or_default().source;
        let bound = self.status.and_then(|status| status.bound_volume_snapshot_content_name);
        kept::VolumeSnapshot {
            meta: self.metadata.kept(),
            content: bound.or(source.volume_snapshot_content_name),
            claim: source.persistent_volume_claim_name,
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSpec {
    driver: String,
    deletion_policy: String,
    source: Source,
    volume_snapshot_ref: Reference,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentStatus {
    snapshot_handle: Option<String>,
}

/// A VolumeSnapshotContent.
pub type Content = Object<ContentSpec, ContentStatus>;

impl Content {
    /// The fields of the VolumeSnapshotContent that the observed state keeps; None if its driver is not in scope.
    pub fn kept(self, scope: Scope<'_>) -> Option<kept::Content> {
        let spec = self.spec.unwrap_or_default();
        let of = |handle: String| scope.id(&spec.driver, handle);
        let handle = self.status.and_then(|status| status.snapshot_handle).or(spec.source.snapshot_handle);
        scope.has_driver(&spec.driver).then(|| kept::Content {
            meta: self.metadata.kept(),
            id: handle.map(of),
            retain: spec.deletion_policy != "Delete",
            volume: spec.source.volume_handle.map(of),
            snapshot: spec.volume_snapshot_ref.uid,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpec {
    node_name: String,
    source: AttachmentSource,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSource {
    persistent_volume_name: Option<String>,
}

/// A VolumeAttachment.
pub type Attachment = Object<AttachmentSpec, IgnoredAny>;

impl Attachment {
    /// PersistentVolume and Node.
    pub fn kept(self) -> Option<(String, String)> {
        let spec = self.spec.unwrap_or_default();
        Some((spec.source.persistent_volume_name?, spec.node_name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use common::api::deorbit::Provider;
    use serde_json::{Value, json};

    use super::*;
    use crate::settings::Settings;

    /// IDs of a PersistentVolume with this source in mode OpenStack and in mode Any; None where it is not in scope.
    fn ids(source: Value) -> [Option<String>; 2] {
        let (settings, drivers) = (Settings::default(), BTreeSet::new());
        let volume = json!({"metadata": {"name": "pv"}, "spec": source});
        [Provider::OpenStack, Provider::Any].map(|provider| {
            let volume = serde_json::from_value::<Volume>(volume.clone()).unwrap();
            volume.kept(Scope::new(&settings, provider, &drivers)).map(|volume| volume.id)
        })
    }

    #[test]
    fn with_any_provider_a_volume_counts_if_it_has_a_driver() {
        let both = |a: &str, b: &str| [Some(a.to_owned()), Some(b.to_owned())];
        let any = |id: &str| [None, Some(id.to_owned())];
        let csi = |driver: &str| json!({"csi": {"driver": driver, "volumeHandle": "v-1"}});
        assert_eq!(ids(csi("cinder.csi.openstack.org")), both("v-1", "cinder.csi.openstack.org/v-1"));
        assert_eq!(ids(csi("ebs.csi.aws.com")), any("ebs.csi.aws.com/v-1"));
        for (source, id) in [
            (
                json!({"awsElasticBlockStore": {"volumeID": "aws://z/vol-1"}}),
                "kubernetes.io/aws-ebs/aws://z/vol-1",
            ),
            (
                json!({"gcePersistentDisk": {"pdName": "disk-1", "fsType": "ext4"}}),
                "kubernetes.io/gce-pd/disk-1",
            ),
            (
                json!({"azureDisk": {"diskName": "d", "diskURI": "/disks/d"}}),
                "kubernetes.io/azure-disk//disks/d",
            ),
            (json!({"azureFile": {"shareName": "s", "secretName": "x"}}), "kubernetes.io/azure-file/s"),
            (
                json!({"vsphereVolume": {"volumePath": "[ds] v.vmdk"}}),
                "kubernetes.io/vsphere-volume/[ds] v.vmdk",
            ),
            (json!({"portworxVolume": {"volumeID": "1"}}), "kubernetes.io/portworx-volume/1"),
        ] {
            assert_eq!(ids(source), any(id));
        }
        assert_eq!(ids(json!({"cinder": {"volumeID": "v-1"}})), both("v-1", "kubernetes.io/cinder/v-1"));
        for source in [
            json!({"hostPath": {"path": "/data"}}),
            json!({"local": {"path": "/mnt/a"}}),
            json!({"nfs": {"server": "s", "path": "/export"}}),
        ] {
            assert_eq!(ids(source), [None, None]);
        }
    }
}
