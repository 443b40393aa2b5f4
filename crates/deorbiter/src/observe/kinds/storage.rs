//! Claims, volumes, snapshots, and attachments of volumes to Nodes.

use serde::Deserialize;

use super::{Ignored, Meta, Object};
use crate::names;
use crate::observe::snapshot as kept;
use crate::settings::Settings;

/// `spec`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    volume_name: Option<String>,
    storage_class_name: Option<String>,
}

/// A PersistentVolumeClaim.
pub type Claim = Object<ClaimSpec, Ignored>;

impl Claim {
    /// The fields of the PersistentVolumeClaim that the observed state keeps.
    pub fn kept(self) -> kept::Claim {
        let spec = self.spec.unwrap_or_default();
        let volume = spec.volume_name.filter(|name| !name.is_empty());
        if volume.is_some() {
            return kept::Claim { meta: self.metadata.kept(), volume, ..kept::Claim::default() };
        }
        let provisioner = names::STORAGE_PROVISIONER.iter().find_map(|key| self.metadata.annotation(key));
        kept::Claim {
            volume,
            provisioner: provisioner.map(str::to_owned),
            class: spec
                .storage_class_name
                .or_else(|| self.metadata.annotation(names::STORAGE_CLASS_ANNOTATION).map(str::to_owned)),
            meta: self.metadata.kept(),
        }
    }
}

/// `spec`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    csi: Option<Csi>,
    cinder: Option<Cinder>,
    persistent_volume_reclaim_policy: Option<String>,
    claim_ref: Option<Reference>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Csi {
    driver: String,
    volume_handle: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Cinder {
    #[serde(rename = "volumeID")]
    volume_id: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reference {
    uid: Option<String>,
}

/// `status`
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VolumeStatus {
    phase: Option<String>,
}

/// A PersistentVolume.
pub type Volume = Object<VolumeSpec, VolumeStatus>;

impl Volume {
    /// The fields of the PersistentVolume that the observed state keeps; None if it is not Cinder's.
    pub fn kept(self, settings: &Settings) -> Option<kept::Volume> {
        let spec = self.spec.unwrap_or_default();
        let id = match (spec.cinder, spec.csi) {
            (Some(cinder), _) => cinder.volume_id,
            (None, Some(csi)) if settings.is_cinder(&csi.driver) => csi.volume_handle,
            _ => return None,
        };
        Some(kept::Volume {
            meta: self.metadata.kept(),
            id,
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
    /// Its name, where its provisioner is Cinder.
    pub fn kept(self, settings: &Settings) -> Option<String> {
        settings.is_cinder(&self.provisioner).then_some(self.metadata.name)
    }
}

/// `spec`
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

/// `status`
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

/// `spec`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentSpec {
    driver: String,
    deletion_policy: String,
    source: Source,
    volume_snapshot_ref: Reference,
}

/// `status`
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContentStatus {
    snapshot_handle: Option<String>,
}

/// A VolumeSnapshotContent.
pub type Content = Object<ContentSpec, ContentStatus>;

impl Content {
    /// The fields of the VolumeSnapshotContent that the observed state keeps; None if it is not Cinder's.
    pub fn kept(self, settings: &Settings) -> Option<kept::Content> {
        let spec = self.spec.unwrap_or_default();
        settings.is_cinder(&spec.driver).then(|| kept::Content {
            meta: self.metadata.kept(),
            id: self.status.and_then(|status| status.snapshot_handle).or(spec.source.snapshot_handle),
            retain: spec.deletion_policy != "Delete",
            volume: spec.source.volume_handle,
            snapshot: spec.volume_snapshot_ref.uid,
        })
    }
}

/// `spec`
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
pub type Attachment = Object<AttachmentSpec, Ignored>;

impl Attachment {
    /// PersistentVolume and Node.
    pub fn kept(self) -> Option<(String, String)> {
        let spec = self.spec.unwrap_or_default();
        Some((spec.source.persistent_volume_name?, spec.node_name))
    }
}
