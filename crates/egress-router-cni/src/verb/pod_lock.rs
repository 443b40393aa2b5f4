//! One call at a time in one pod. Runtimes promise it for one container and network; for several networks of a pod, some call at
//! the same time.

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
    /// Waits until no other call acts in the namespace of that device and inode. None where the folder cannot be written: the
    /// call then says so by its record, and one at a time is the usual case.
    ///
    /// All pods share an empty file, in which each has a byte, by its namespace's number: no call waits for another pod's DEL,
    /// and nothing must be removed. Not the namespace's own file is locked: a program in the pod can open that one as well,
    /// and would keep DEL waiting.
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
        // As the kernel numbers them.
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
