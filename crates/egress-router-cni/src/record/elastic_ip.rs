//! The record of an Elastic IP that is to be released, written before each request.

use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Folder, Owner};
use crate::aws;
use crate::cni::Error;

/// `<state directory>/elastic-ips/<container>@<interface>.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ElasticIp {
    /// The attachment.
    #[serde(flatten)]
    pub owner: Owner,
    /// The stage.
    pub state: aws::State,
}

impl AsRef<Owner> for ElasticIp {
    fn as_ref(&self) -> &Owner {
        &self.owner
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
    /// The attachment.
    pub owner: &'a Owner,
}

impl aws::Journal for Journal<'_> {
    fn write(&mut self, state: &aws::State) -> Result<(), Error> {
        self.folder.write(&ElasticIp { owner: self.owner.clone(), state: state.clone() })
    }

    fn clear(&mut self) -> Result<(), Error> {
        self.folder.remove(&self.owner.container_id, &self.owner.interface)
    }

    fn recorded(&self) -> Vec<Ipv4Addr> {
        let (records, _) = self.folder.all::<ElasticIp>();
        records.iter().map(|record| record.state.private.addr()).collect()
    }
}
