//! An Elastic IP that is to be given back, written before each act on it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Folder, Owned, Place};
use crate::aws;
use crate::cni::Error;

/// `<state directory>/elastic-ips/<container>@<interface>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElasticIp {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// The interface's name in the pod.
    pub interface: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// The configuration's `name`.
    pub network: String,
    /// The pod's namespace: when it is gone, so is the pod.
    pub place: Place,
    /// How far it came.
    pub state: aws::State,
}

impl Owned for ElasticIp {
    fn container_id(&self) -> &str {
        &self.container_id
    }

    fn interface(&self) -> &str {
        &self.interface
    }
}

/// The folder of all of the node's.
#[must_use]
pub fn folder(state_directory: &Path) -> Folder {
    Folder::new(state_directory, "elastic-ips", true)
}

/// The journal of one attachment.
pub struct Journal<'a> {
    /// Where to.
    pub folder: &'a Folder,
    /// Whose.
    pub identity: &'a crate::plan::Identity,
    /// The interface's name in the pod.
    pub interface: &'a str,
    /// The pod's namespace.
    pub place: &'a Place,
}

impl aws::Journal for Journal<'_> {
    fn write(&mut self, state: &aws::State) -> Result<(), Error> {
        self.folder.write(&ElasticIp {
            container_id: self.identity.container_id.clone(),
            interface: self.interface.to_owned(),
            ifname: self.identity.ifname.clone(),
            network: self.identity.network.clone(),
            place: self.place.clone(),
            state: state.clone(),
        })
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.folder.remove(&self.identity.container_id, self.interface)
    }
}
