//! One call at a time in a pod. Runtimes guarantee this for one container and network, but some call concurrently for several networks of
//! a pod.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::sys;

/// Held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct PodLock {
    _lock: File,
}

impl PodLock {
    /// Waits until no other call holds the lock of the namespace with this device and inode. None if the folder cannot be written: the call
    /// then fails to write its record, and concurrent calls are rare.
    ///
    /// All pods share an empty file, in which each has a byte, by its namespace's inode. So no call waits for another pod, and nothing must be
    /// removed. The namespace's own file is not used, because a program in the pod could open and lock it.
    #[must_use]
    pub fn wait(run_directory: &Path, (_, inode): (u64, u64)) -> Option<Self> {
        let path = run_directory.join("lock");
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let lock = open().or_else(|_| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(run_directory)?;
            open()
        });
        let lock = lock.ok()?;
        sys::lock_byte(&lock, inode).ok()?;
        Some(Self { _lock: lock })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_call_in_the_same_pod_waits_and_one_in_another_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        // Inode numbers of the kernel.
        let pod = (4, 0xf000_0100);
        let first = PodLock::wait(&run, pod).unwrap();
        let others = [pod.1 - 1, pod.1 + 1, pod.1 + 256].map(|inode| PodLock::wait(&run, (4, inode)));
        assert!(others.iter().all(Option::is_some));
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let run = &run;
            scope.spawn(move || sender.send(PodLock::wait(run, pod).is_some()).unwrap());
            let early = receiver.recv_timeout(Duration::from_millis(50));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
            drop(first);
            assert_eq!(receiver.recv_timeout(Duration::from_secs(10)), Ok(true));
        });
    }

    #[test]
    fn without_a_folder_there_is_no_lock() {
        assert!(PodLock::wait(Path::new("/proc/none"), (4, 1)).is_none());
    }
}
