//! One call at a time in one pod. Runtimes promise it for one container and network; for several networks of a pod, some call at
//! the same time.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Pods share that many locks, so that none has to be removed: two calls for different pods wait for each other once in so many
/// pairs, for milliseconds.
const LOCKS: u64 = 256;

/// Held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct Turn {
    _lock: File,
}

impl Turn {
    /// Waits until no other call acts in the namespace of that device and inode. None where the folder cannot be written: the
    /// call then says so by its record, and one at a time is the usual case.
    ///
    /// Not the namespace's own file is locked: a program in the pod can open that one as well, and would keep DEL waiting.
    #[must_use]
    pub fn wait(run_directory: &Path, (_, inode): (u64, u64)) -> Option<Self> {
        let folder = run_directory.join("locks");
        let path = folder.join((inode % LOCKS).to_string());
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = open().or_else(|_| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            open()
        });
        let lock = lock.ok()?;
        lock.lock().ok()?;
        Some(Self { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_in_the_same_pod_waits() {
        let directory = tempfile::tempdir().unwrap();
        let first = Turn::wait(directory.path(), (4, 1000)).unwrap();
        let other_pod = Turn::wait(directory.path(), (4, 1001));
        assert!(other_pod.is_some());
        let path = directory.path().join("locks").join((1000 % LOCKS).to_string());
        let lock = File::options().write(true).open(path).unwrap();
        assert!(lock.try_lock().is_err());
        drop(first);
        lock.try_lock().unwrap();
    }

    #[test]
    fn without_a_folder_nobody_waits() {
        assert!(Turn::wait(Path::new("/proc/none"), (4, 1)).is_none());
    }
}
