//! Locks: one call at a time changes a pod, checks and reserves the mode of a master's ipvlans, or works on a record. Runtimes guarantee the
//! first for one container and network, but some call concurrently for several networks of a pod.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use common::backoff::Backoff;

use crate::cni::{Code, Error};
use crate::sys;

/// Poll intervals of a held lock. A call that does not wait for AWS ends after a few milliseconds, and the longest interval is a fraction of
/// the time that a user notices.
const INTERVALS: Backoff = Backoff { base: Duration::from_millis(1), max: Duration::from_millis(32) };

/// The first byte of masters: inodes of namespaces have 32 bits.
const MASTERS: u64 = 1 << 32;

/// Held until it is dropped, or the process ends.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Waits until no other call holds the lock of the namespace with this device and inode. None if the folder cannot be written: the call
    /// then fails to write its record, and concurrent calls are rare.
    ///
    /// All pods share an empty file, in which each has a byte, by its namespace's inode. So no call waits for another pod, and nothing must be
    /// removed. The namespace's own file is not used, because a program in the pod could open and lock it.
    ///
    /// # Errors
    /// [`Code::TryAgain`]: another call holds it until `deadline`.
    pub fn of_pod(
        run_directory: &Path,
        (_, inode): (u64, u64),
        deadline: Instant,
    ) -> Result<Option<Self>, Error> {
        Self::byte(run_directory, inode, deadline, "in this pod")
    }

    /// The same for the ipvlans of the master with this index on the node.
    ///
    /// # Errors
    /// As [`Self::of_pod`].
    pub fn of_master(run_directory: &Path, index: u32, deadline: Instant) -> Result<Option<Self>, Error> {
        Self::byte(run_directory, MASTERS + u64::from(index), deadline, "on this master")
    }

    fn byte(run_directory: &Path, byte: u64, deadline: Instant, place: &str) -> Result<Option<Self>, Error> {
        let path = run_directory.join("lock");
        let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
        let file = open().or_else(|_| {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(run_directory)?;
            open()
        });
        let Ok(file) = file else { return Ok(None) };
        wait(deadline, place, || match sys::try_lock_byte(&file, byte) {
            Ok(true) => Ok(Some(true)),
            Ok(false) => Ok(None),
            Err(_) => Ok(Some(false)),
        })
        .map(|locked| locked.then_some(Self { _file: file }))
    }
}

/// Repeats `attempt` until it returns a value, with growing pauses. `place` is for the message.
///
/// # Errors
/// [`Code::TryAgain`]: it has none at `deadline`; and those of `attempt`.
pub fn wait<T>(
    deadline: Instant,
    place: &str,
    mut attempt: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    let mut polls = 0_u32;
    loop {
        if let Some(done) = attempt()? {
            return Ok(done);
        }
        if Instant::now() >= deadline {
            let message = format!("another call of this plugin {place} does not end");
            return Err(Error::new(Code::TryAgain, message));
        }
        polls = polls.saturating_add(1);
        std::thread::sleep(INTERVALS.delay(polls));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_second_call_in_the_same_pod_waits_and_one_in_another_does_not() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path().join("run");
        let end = Instant::now() + Duration::from_secs(300);
        // Inode numbers of the kernel.
        let pod = (4, 0xf000_0100);
        let first = Lock::of_pod(&run, pod, end).unwrap().unwrap();
        let others = [pod.1 - 1, pod.1 + 1, pod.1 + 256].map(|inode| Lock::of_pod(&run, (4, inode), end));
        assert!(others.iter().all(|other| matches!(other, Ok(Some(_)))));
        std::thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            let run = &run;
            scope.spawn(move || sender.send(matches!(Lock::of_pod(run, pod, end), Ok(Some(_)))).unwrap());
            let early = receiver.recv_timeout(Duration::from_millis(50));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
            drop(first);
            assert_eq!(receiver.recv_timeout(Duration::from_secs(300)), Ok(true));
        });
    }

    /// A call that hangs must not make every later call of the pod hang.
    #[test]
    fn a_call_does_not_wait_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let run = directory.path();
        let _first = Lock::of_pod(run, (4, 7), Instant::now()).unwrap().unwrap();
        let error = Lock::of_pod(run, (4, 7), Instant::now() + Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.code, Code::TryAgain);
        assert!(error.message.contains("in this pod"), "{error}");
    }

    #[test]
    fn without_a_folder_there_is_no_lock() {
        assert!(Lock::of_pod(Path::new("/proc/none"), (4, 1), Instant::now()).unwrap().is_none());
    }
}
