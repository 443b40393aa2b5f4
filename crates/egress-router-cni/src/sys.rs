//! System calls: the only unsafe code.
// The standard library has no safe interface for namespaces, and a crate would add much more than these few calls.
#![allow(unsafe_code)]

#[cfg(test)]
pub(crate) mod isolated;
pub mod signal;

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// An open network namespace. It exists at least as long as this value.
#[derive(Debug)]
pub struct Namespace {
    file: File,
}

/// A descriptor of a namespace, as [`common::netlink::socket::Socket::namespace`] gives it.
impl From<OwnedFd> for Namespace {
    fn from(descriptor: OwnedFd) -> Self {
        Self { file: descriptor.into() }
    }
}

impl Namespace {
    /// The namespace whose file (`/var/run/netns/x`, `/proc/1/ns/net`) is `path`.
    ///
    /// # Errors
    /// There is no such file. Whether it is a network namespace is checked by [`Self::enter`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { file: File::open(path)? })
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn current() -> io::Result<Self> {
        // Not /proc/self, which is the process's first thread: a namespace belongs to a thread.
        Self::open("/proc/thread-self/ns/net")
    }

    /// A new, empty one. The calling thread stays where it is.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; ENOSPC at the limit (`user.max_net_namespaces`). If the return to the old namespace fails, the thread
    /// is in the new one.
    pub fn new() -> io::Result<Self> {
        let here = Self::current()?;
        // SAFETY: unshare takes a number; without CLONE_FILES or CLONE_VM it does not access memory of this process.
        checked(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
        let new = Self::current();
        here.enter()?;
        new
    }

    /// Moves the calling thread into the namespace. Its open sockets stay in their namespaces.
    ///
    /// # Errors
    /// EINVAL: the file is not a network namespace. EPERM: CAP_SYS_ADMIN is missing in either namespace.
    pub fn enter(&self) -> io::Result<()> {
        // SAFETY: setns takes two numbers and does not access memory of this process; the descriptor is open as long as `self`.
        checked(unsafe { libc::setns(self.file.as_raw_fd(), libc::CLONE_NEWNET) }).map(|_| ())
    }

    /// Whether both are the same namespace. Comparing paths is not enough, because a namespace can have several (bind mounts).
    ///
    /// # Errors
    /// The kernel's, from fstat.
    pub fn same(&self, other: &Self) -> io::Result<bool> {
        Ok(self.identity()? == other.identity()?)
    }

    /// Device and inode: unique among existing namespaces, and reused later.
    ///
    /// # Errors
    /// The kernel's, from fstat.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let metadata = self.file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// For IFLA_NET_NS_FD.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.file.as_raw_fd()
    }
}

/// Locks the byte `at` of `file`, which may be shorter, until `file` is closed (F_OFD_SETLK: the lock belongs to the open file description,
/// not to a thread). False: another descriptor has it.
///
/// # Errors
/// EINVAL: `at` is not a valid offset.
pub fn try_lock_byte(file: &File, at: u64) -> io::Result<bool> {
    let start = i64::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: struct flock is plain numbers, for all of which zero is a value.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start;
    lock.l_len = 1;
    // SAFETY: the request takes a struct flock, which outlives the call.
    match checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) }) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Pins the calling thread to its current processor. Objects that it leaves for the kernel to free then wait for one RCU grace period
/// instead of several: the slowest tenth of all deletions of a link become one or two ticks of 4 ms faster.
///
/// If this is forbidden, or there are more than 1,024 processors, it does nothing, and deletions take longer.
pub fn stay_on_processor() {
    // SAFETY: it takes nothing, and returns a number.
    let Ok(here) = usize::try_from(unsafe { libc::sched_getcpu() }) else { return };
    // SAFETY: struct cpu_set_t is plain numbers, for all of which zero is a value.
    let mut only: libc::cpu_set_t = unsafe { mem::zeroed() };
    if here >= mem::size_of_val(&only) * 8 {
        return;
    }
    // SAFETY: `here` is one of the set's bits.
    unsafe { libc::CPU_SET(here, &mut only) };
    // SAFETY: the call reads the set, which outlives it, and no more than its length; 0 is the calling thread.
    let _ = unsafe { libc::sched_setaffinity(0, mem::size_of_val(&only), &raw const only) };
}

/// The result of a system call, or errno.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use common::netlink::socket::{Protocol, Socket};

    use super::isolated::{isolated, new_namespace};
    use super::{Namespace, stay_on_processor};

    #[test]
    fn only_the_pinned_thread_stays_on_one_processor() {
        let allowed = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap().to_owned()
        };
        let before = allowed();
        let after = std::thread::spawn(move || {
            stay_on_processor();
            allowed()
        });
        let after = after.join().unwrap();
        assert!(after.trim_start_matches("Cpus_allowed_list:").trim().parse::<u32>().is_ok(), "{after}");
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_namespace_equals_itself_by_any_path() {
        let (current, own) = (Namespace::current().unwrap(), Namespace::open("/proc/self/ns/net").unwrap());
        assert!(current.same(&own).unwrap());
        assert!(!current.same(&Namespace::open("/proc/self/ns/mnt").unwrap()).unwrap());
    }

    #[test]
    fn a_socket_has_its_namespace_after_the_thread_moved() {
        isolated(|| {
            let here = Namespace::current().unwrap();
            let socket = Socket::open(Protocol::Route).unwrap();
            new_namespace().enter().unwrap();
            let opened = Namespace::from(socket.namespace().unwrap());
            assert!(opened.same(&here).unwrap());
            opened.enter().unwrap();
            assert!(Namespace::current().unwrap().same(&here).unwrap());
        });
    }

    #[test]
    fn a_file_that_is_not_a_namespace_cannot_be_entered() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(Namespace::open(file.path()).unwrap().enter().is_err());
        assert!(Namespace::open("/proc/self/ns/missing").is_err());
    }
}
