//! Cinder: volumes and snapshots. Most of its refusals have the status 400, where other services use 409.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Cloud;
use super::error::Error;
use super::request::ApiRequest;
use super::rights::Call;
use crate::cloud::or_empty;

/// A page; Cinder's cap is 1000.
const LIMIT: (&str, &str) = ("limit", "500");

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its ID.
    pub id: String,
    /// Its name; not unique.
    #[serde(default)]
    pub name: Option<String>,
    /// `available`, `in-use`, `deleting`, `error_deleting`, …
    pub status: String,
    /// Metadata that the creator of the volume has set.
    #[serde(default, deserialize_with = "or_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The project that it belongs to; empty where a policy hides it.
    #[serde(rename = "os-vol-tenant-attr:tenant_id", default, deserialize_with = "or_empty")]
    pub project_id: String,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its ID.
    pub id: String,
    /// Its name; not unique, may be empty.
    #[serde(default, deserialize_with = "or_empty")]
    pub name: String,
    /// `available`, `deleting`, `error_deleting`, …
    pub status: String,
    /// The volume it is of.
    pub volume_id: String,
    /// Metadata that the creator of the snapshot has set.
    #[serde(default, deserialize_with = "or_empty")]
    pub metadata: BTreeMap<String, String>,
    /// The project that it belongs to; empty where a policy hides it.
    #[serde(rename = "os-extended-snapshot-attributes:project_id", default, deserialize_with = "or_empty")]
    pub project_id: String,
}

impl Cloud {
    /// `GET /volumes/{id}` (role `reader`); None if Cinder says that there is none.
    ///
    /// # Errors
    /// Those of every read.
    pub async fn volume(&self, id: &str) -> Result<Option<Volume>, Error> {
        self.find(&ApiRequest::one(Call::Volume, id), "volume").await
    }

    /// `GET /volumes/detail` (role `reader`): what `keep` makes of each of the project's volumes. What it drops costs no memory, however
    /// many there are.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn volumes<K>(&self, keep: impl FnMut(Volume) -> Option<K>) -> Result<Vec<K>, Error> {
        self.list_kept(ApiRequest::all(Call::Volumes, &[LIMIT]), "volumes", keep).await
    }

    /// `DELETE /volumes/{id}` (role `member`): begins to delete it, with its snapshots if `cascade`. It is gone when
    /// [`Cloud::volume`] says so. Gone already is Ok.
    ///
    /// # Errors
    /// [`Error::is_bad_request`] while it is attached or has snapshots. Those of every write.
    pub async fn delete_volume(&self, id: &str, cascade: bool) -> Result<(), Error> {
        let request = ApiRequest::one(Call::DeleteVolume, id);
        let request = if cascade { request.query(&[("cascade", "true")]) } else { request };
        self.delete(&request).await
    }

    /// `GET /snapshots/{id}` (role `reader`); None if Cinder says that there is none.
    ///
    /// # Errors
    /// Those of every read.
    pub async fn snapshot(&self, id: &str) -> Result<Option<Snapshot>, Error> {
        self.find(&ApiRequest::one(Call::Snapshot, id), "snapshot").await
    }

    /// `GET /snapshots/detail` (role `reader`): what `keep` makes of each of the project's snapshots. What it drops costs no memory, however
    /// many there are.
    ///
    /// # Errors
    /// Those of every list.
    pub async fn snapshots<K>(&self, keep: impl FnMut(Snapshot) -> Option<K>) -> Result<Vec<K>, Error> {
        self.list_kept(ApiRequest::all(Call::Snapshots, &[LIMIT]), "snapshots", keep).await
    }

    /// `DELETE /snapshots/{id}` (role `member`): begins to delete it. It is gone when [`Cloud::snapshot`] says so. Gone already
    /// is Ok.
    ///
    /// # Errors
    /// [`Error::is_bad_request`] while it is in use. Those of every write.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), Error> {
        self.delete(&ApiRequest::one(Call::DeleteSnapshot, id)).await
    }
}
