//! What drivers have made in OpenStack whose object does not say so: they name it after the object's UID.

use std::collections::HashMap;

use common::api::deorbit::Kind;

use crate::names;
use crate::observe::snapshot::Cloud;

/// IDs of volumes and snapshots by their names; where two have one name, the first ID.
pub struct Made<'a>(HashMap<(Kind, &'a str), &'a str>);

impl<'a> Made<'a> {
    /// All that was read of a project.
    #[must_use]
    pub fn of(cloud: &'a Cloud) -> Made<'a> {
        let volumes = cloud.volumes.iter().rev().map(|(id, one)| ((Kind::Volume, &*one.name), &**id));
        let snapshots = cloud.snapshots.iter().rev().map(|(id, one)| ((Kind::Snapshot, &*one.name), &**id));
        Made(volumes.chain(snapshots).collect())
    }

    /// The ID of the volume or snapshot that was made for the object with this UID.
    #[must_use]
    pub fn id(&self, kind: Kind, uid: &str) -> Option<String> {
        self.0.get(&(kind, names::made_for(kind, uid).as_str())).map(|id| (*id).to_owned())
    }
}
