//! The record of an Elastic IP that is to be released, written before each request.

use std::fs::{File, TryLockError};
use std::io;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Folder, Owned, PodNetns};
use crate::aws;
use crate::cni::{Code, Error};

/// Poll interval of the lock. Another call holds it for a few responses of EC2, 100 ms each.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

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
    /// The pod's namespace; without it, the pod no longer exists.
    pub netns: PodNetns,
    /// The stage.
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

/// The folder of all records of the node.
#[must_use]
pub fn folder(state_directory: &Path) -> Folder {
    Folder::new(state_directory, "elastic-ips", true)
}

/// The lock for releasing Elastic IPs: one call on the node at a time holds it, until it is dropped or the process exits.
///
/// A released private address is free for the next pod. A record that was read before must not be used afterwards: records are read, used
/// and removed while the lock is held.
#[derive(Debug)]
pub struct RecordsLock {
    _folder: File,
}

impl RecordsLock {
    /// Takes the lock if it is free. The folder itself is locked: nothing is written, so it works on a full disk.
    ///
    /// # Errors
    /// [`Code::Io`], with the path: there is no such folder, and therefore no record.
    pub fn take(folder: &Folder) -> Result<Option<Self>, Error> {
        let cannot = |error: io::Error| {
            let message = format!("cannot lock the records in {}", folder.path.display());
            Error::new(Code::Io, message).details(error.to_string())
        };
        let file = File::open(&folder.path).map_err(cannot)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _folder: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(cannot(error)),
        }
    }

    /// Waits for the lock.
    ///
    /// # Errors
    /// [`Code::TryAgain`] if it is not free until `deadline`, and as [`Self::take`].
    pub fn wait(folder: &Folder, deadline: Instant) -> Result<Self, Error> {
        loop {
            if let Some(lock) = Self::take(folder)? {
                return Ok(lock);
            }
            if Instant::now() + POLL_INTERVAL >= deadline {
                let message = "another call on this node is still releasing Elastic IPs";
                return Err(Error::new(Code::TryAgain, message));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Stores the state of one attachment.
pub struct Journal<'a> {
    /// The folder.
    pub folder: &'a Folder,
    /// Its identity.
    pub identity: &'a crate::plan::Identity,
    /// The interface's name in the pod.
    pub interface: &'a str,
    /// The pod's namespace.
    pub netns: &'a PodNetns,
}

impl aws::Journal for Journal<'_> {
    fn write(&mut self, state: &aws::State) -> Result<(), Error> {
        self.folder.write(&ElasticIp {
            container_id: self.identity.container_id.clone(),
            interface: self.interface.to_owned(),
            ifname: self.identity.ifname.clone(),
            network: self.identity.network.clone(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_at_a_time_holds_the_lock_and_waiting_ends_at_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let folder = folder(directory.path());
        assert_eq!(RecordsLock::take(&folder).unwrap_err().code, Code::Io, "no record has been written yet");
        folder.ready().unwrap();
        let lock = RecordsLock::take(&folder).unwrap().unwrap();
        assert!(RecordsLock::take(&folder).unwrap().is_none());
        assert_eq!(RecordsLock::wait(&folder, Instant::now()).unwrap_err().code, Code::TryAgain);
        std::thread::scope(|scope| {
            let waits =
                scope.spawn(|| RecordsLock::wait(&folder, Instant::now() + Duration::from_secs(10)).is_ok());
            drop(lock);
            assert!(waits.join().unwrap());
        });
        assert_eq!(folder.all::<ElasticIp>(), (Vec::new(), Vec::new()), "it is no record");
    }
}
