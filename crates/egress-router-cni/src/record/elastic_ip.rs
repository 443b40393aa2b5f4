//! The record of an Elastic IP that is to be released, written before each request.

use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Folder, Owned, PodNetns};
use crate::aws;
use crate::cni::Error;
use crate::plan::Identity;

/// `<state directory>/elastic-ips/<container>@<interface>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElasticIp {
    /// The attachment's identity.
    #[serde(flatten)]
    pub identity: Identity,
    /// The interface's name in the pod.
    pub interface: String,
    /// The pod's namespace; without it, the pod no longer exists.
    pub netns: PodNetns,
    /// The stage.
    pub state: aws::State,
}

impl Owned for ElasticIp {
    fn container_id(&self) -> &str {
        &self.identity.container_id
    }

    fn interface(&self) -> &str {
        &self.interface
    }
}

/// The folder of all records of the node.
#[must_use]
pub fn folder(state_directory: &Path) -> Folder {
    Folder::new(state_directory, "elastic-ips", true)
}

/// Stores the state of one attachment.
pub struct Journal<'a> {
    /// The folder.
    pub folder: &'a Folder,
    /// Its identity.
    pub identity: &'a Identity,
    /// The interface's name in the pod.
    pub interface: &'a str,
    /// The pod's namespace.
    pub netns: &'a PodNetns,
}

impl aws::Journal for Journal<'_> {
    fn write(&mut self, state: &aws::State) -> Result<(), Error> {
        self.folder.write(&ElasticIp {
            identity: self.identity.clone(),
            interface: self.interface.to_owned(),
            netns: self.netns.clone(),
            state: state.clone(),
        })
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.folder.remove(&self.identity.container_id, self.interface)
    }

    fn recorded(&self) -> Vec<Ipv4Addr> {
        let (records, _) = self.folder.all::<ElasticIp>();
        records.iter().map(|record| record.state.private.addr()).collect()
    }
}
