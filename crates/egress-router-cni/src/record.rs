//! Files on the node: existing attachments (valid until a reboot, like their pods), and Elastic IPs to release (they survive a reboot).
//! Each file is a JSON object that only root can read.

pub mod attachment;
pub mod elastic_ip;

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use ring::digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cni::{Code, Error};
use crate::lock;
use crate::sys::Namespace;

pub use attachment::{Attachment, Made};
pub use elastic_ip::ElasticIp;

/// A longer container ID is shortened in the file's name, which is limited to 255 bytes; the file contains it completely.
const MAX_LENGTH: usize = 128;

/// Length of the prefix of a shortened ID: the IDs of runtimes have this length.
const PREFIX_LENGTH: usize = 64;

/// A folder of records of one kind.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    /// Whether a record must outlive a crash of the node.
    durable: bool,
}

/// A record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its network, if at least that can be read.
    pub network: Option<String>,
    /// Why not.
    pub error: Error,
}

/// A record that no other call gets until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Locked<T> {
    /// Its content, read after it was locked.
    pub record: T,
    _file: File,
}

/// The attachment that a record is about. DEL, GC and CHECK find it by its container, `CNI_IFNAME` and network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_IFNAME`; a chained attachment's interface has another name. Older reservations of ipvlan modes have neither this nor the network.
    #[serde(default)]
    pub ifname: String,
    /// The configuration's `name`.
    #[serde(default)]
    pub network: String,
    /// The interface's name in the pod.
    pub interface: String,
    /// The pod's namespace; without it, the pod no longer exists.
    pub netns: PodNetns,
}

impl AsRef<Self> for Owner {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// A pod's namespace, as it was at ADD.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodNetns {
    /// `CNI_NETNS`.
    pub path: PathBuf,
    /// Device and inode, because paths are reused.
    pub identity: (u64, u64),
}

impl PodNetns {
    /// Opens the namespace. None if it no longer exists, also if its path has another one.
    ///
    /// # Errors
    /// [`Code::Io`]: this is unknown. Then nothing of a pod that may exist is removed.
    pub fn open(&self) -> Result<Option<Namespace>, Error> {
        let unknown = |error: std::io::Error| {
            let message =
                format!("cannot find out whether the pod's network namespace {} exists", self.path.display());
            Error::new(Code::Io, message).details(error)
        };
        let namespace = match Namespace::open(&self.path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            namespace => namespace.map_err(unknown)?,
        };
        let same = namespace.identity().map_err(unknown)? == self.identity;
        Ok(same.then_some(namespace))
    }

    /// Whether it certainly no longer exists.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.open(), Ok(None))
    }
}

impl Folder {
    /// `directory/name`. It is created with the first record.
    #[must_use]
    pub fn new(directory: &Path, name: &str, durable: bool) -> Self {
        Self { path: directory.join(name), durable }
    }

    /// Replaces the record atomically.
    ///
    /// # Errors
    /// [`Code::Io`], with the path.
    pub fn write<T: AsRef<Owner> + Serialize>(&self, record: &T) -> Result<(), Error> {
        let owner: &Owner = record.as_ref();
        let path = self.file(&owner.container_id, &owner.interface);
        self.write_to(&path, record).map_err(|error| failed("write", &path, &error))
    }

    fn write_to<T: Serialize>(&self, path: &Path, record: &T) -> std::io::Result<()> {
        // The specification guarantees one call at a time for an attachment, so one temporary name is enough.
        let new = unfinished(path);
        let written = self.write_new(&new, record).and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written?;
        if self.durable { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }

    fn write_new<T: Serialize>(&self, path: &Path, record: &T) -> std::io::Result<()> {
        let mut file = self.create(path)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        if self.durable { file.sync_all() } else { Ok(()) }
    }

    /// Creates a file. Usually the folder exists and the file does not, so this is tried first.
    fn create(&self, path: &Path) -> std::io::Result<File> {
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match open() {
            // The folder does not exist yet.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
                open()
            }
            // The file of a killed call.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                remove_file(path)?;
                open()
            }
            file => file,
        }
    }

    /// Tests whether a record can be written, with another file.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub fn ready(&self) -> Result<(), Error> {
        let path = self.path.join(format!("status-{}.new", std::process::id()));
        let written = self.write_new(&path, &());
        let _ = fs::remove_file(&path);
        written.map_err(|error| failed("write", &path, &error))
    }

    /// The record of an attachment, if it exists.
    ///
    /// # Errors
    /// [`Code::Io`] or [`Code::Decode`], with the path.
    pub fn read<T: AsRef<Owner> + DeserializeOwned>(
        &self,
        container_id: &str,
        interface: &str,
    ) -> Result<Option<T>, Error> {
        let record = read::<T>(&self.file(container_id, interface))?;
        Ok(record.filter(|record| {
            let owner: &Owner = record.as_ref();
            owner.container_id == container_id && owner.interface == interface
        }))
    }

    /// The record of an attachment, which no other call gets until the result is dropped. None: there is none (any more).
    ///
    /// The file itself is locked: nothing is written, so it works on a full disk, and nothing must be removed.
    ///
    /// # Errors
    /// [`Code::TryAgain`]: another call has it until `deadline`; and as [`Self::read`].
    pub fn lock<T: AsRef<Owner> + DeserializeOwned>(
        &self,
        container_id: &str,
        interface: &str,
        deadline: Instant,
    ) -> Result<Option<Locked<T>>, Error> {
        let path = self.file(container_id, interface);
        lock::wait(deadline, &format!("with the record {}", path.display()), || {
            let file = match File::open(&path) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Some(None)),
                file => file.map_err(|error| failed("lock", &path, &error))?,
            };
            match file.try_lock() {
                // Otherwise the call that had it has replaced or removed it.
                Ok(()) if is_at(&file, &path) => {
                    let record = self.read(container_id, interface)?;
                    Ok(Some(record.map(|record| Locked { record, _file: file })))
                }
                Ok(()) | Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(failed("lock", &path, &error)),
            }
        })
    }

    /// Removes it. A missing record is not an error.
    ///
    /// # Errors
    /// [`Code::Io`], with the path.
    pub fn remove(&self, container_id: &str, interface: &str) -> Result<(), Error> {
        let path = self.file(container_id, interface);
        let removed = remove_file(&path).and_then(|()| remove_file(&unfinished(&path)));
        removed.map_err(|error| failed("remove", &path, &error))
    }

    /// All records, and the unreadable ones.
    #[must_use]
    pub fn all<T: DeserializeOwned>(&self) -> (Vec<T>, Vec<Unreadable>) {
        self.those(|_| true)
    }

    /// All records of one container, and the unreadable ones.
    #[must_use]
    pub fn of_container<T: AsRef<Owner> + DeserializeOwned>(
        &self,
        container_id: &str,
    ) -> (Vec<T>, Vec<Unreadable>) {
        let prefix = format!("{}@", short(container_id));
        let (mut records, errors) = self.those::<T>(|name| name.starts_with(&prefix));
        records.retain(|record| record.as_ref().container_id == container_id);
        (records, errors)
    }

    fn those<T: DeserializeOwned>(&self, of: impl Fn(&str) -> bool) -> (Vec<T>, Vec<Unreadable>) {
        let (mut records, mut errors) = (Vec::new(), Vec::new());
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return (records, errors),
            Err(error) => {
                let error = failed("read", &self.path, &error);
                return (records, vec![Unreadable { network: None, error }]);
            }
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_str().is_some_and(|name| name.ends_with(".json") && of(name)) {
                match read::<T>(&entry.path()) {
                    Ok(record) => records.extend(record),
                    Err(error) => errors.push(Unreadable { network: network_of(&entry.path()), error }),
                }
            }
        }
        (records, errors)
    }

    /// A container ID has no `@`.
    fn file(&self, container_id: &str, interface: &str) -> PathBuf {
        self.path.join(format!("{}@{interface}.json", short(container_id)))
    }
}

/// The records, without those that are not records of this program.
///
/// # Errors
/// [`Code::Io`]: one cannot be read now. It may be read later, so it is not as a lost one.
pub fn readable<T>((records, unreadable): (Vec<T>, Vec<Unreadable>)) -> Result<Vec<T>, Error> {
    match unreadable.into_iter().find(|one| one.error.code == Code::Io) {
        Some(unread) => Err(unread.error),
        None => Ok(records),
    }
}

/// A unique name for each ID. A shortened one has a hyphen and a hash of the rest, and is longer than any other.
fn short(container_id: &str) -> Cow<'_, str> {
    if container_id.len() <= MAX_LENGTH {
        return container_id.into();
    }
    let hash = digest::digest(&digest::SHA256, container_id.as_bytes());
    let bytes: &[u8] = hash.as_ref();
    let mut name = format!("{}-", container_id.get(..PREFIX_LENGTH).unwrap_or_default());
    for byte in bytes {
        name.push_str(&format!("{byte:02x}"));
    }
    name.into()
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, Error> {
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| {
            let message = format!("the record {} is not a record of this program", path.display());
            Error::new(Code::Decode, message).details(error)
        }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path, &error)),
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let (Ok(ours), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (ours.dev(), ours.ino()) == (there.dev(), there.ino())
}

fn network_of(path: &Path) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        network: String,
    }
    serde_json::from_slice::<Named>(&fs::read(path).ok()?).ok().map(|named| named.network)
}

/// The temporary name of a record.
fn unfinished(path: &Path) -> PathBuf {
    path.with_extension("new")
}

fn remove_file(path: &Path) -> std::io::Result<()> {
    let missing = |error: &std::io::Error| match error.kind() {
        ErrorKind::NotFound => true,
        // The kernel refuses this also if there is no such file.
        ErrorKind::ReadOnlyFilesystem => {
            fs::symlink_metadata(path).is_err_and(|error| error.kind() == ErrorKind::NotFound)
        }
        _ => false,
    };
    fs::remove_file(path).or_else(|error| if missing(&error) { Ok(()) } else { Err(error) })
}

fn failed(intent: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(Code::Io, format!("cannot {intent} the record {}", path.display())).details(error)
}

#[cfg(test)]
mod tests;
