//! System calls: the only unsafe code.
// The standard library has no safe interface for namespaces and netlink sockets, and a crate would add much more than these few calls.
#![allow(unsafe_code)]

#[cfg(test)]
pub(crate) mod isolated;
pub mod signal;

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// An open network namespace. It exists at least as long as this value.
#[derive(Debug)]
pub struct Namespace {
    file: File,
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

/// A netlink socket in the namespace in which it was opened. It communicates with the kernel only.
#[derive(Debug)]
pub struct Netlink {
    descriptor: OwnedFd,
}

impl Netlink {
    /// A socket of `protocol` (NETLINK_ROUTE, NETLINK_NETFILTER) with a receive timeout, extended and capped acknowledgements, and strict
    /// checks of dump requests.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn open(protocol: i32, timeout: Duration) -> io::Result<Self> {
        // SAFETY: socket takes three numbers and does not access memory of this process.
        let number = checked(unsafe {
            libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol)
        })?;
        // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        let socket = Self { descriptor };
        let on: libc::c_int = 1;
        socket.set(libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, &on)?;
        socket.set(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, &on)?;
        // Linux 4.20. Older kernels do not filter dumps; readers filter too.
        let _ = socket.set(libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, &on);
        let timeout = libc::timeval {
            // `time_t` is not named, because libc deprecates it for musl.
            tv_sec: timeout.as_secs().try_into().unwrap_or(i32::MAX.into()),
            tv_usec: timeout.subsec_micros().into(),
        };
        socket.set(libc::SOL_SOCKET, libc::SO_RCVTIMEO, &timeout)?;
        Ok(socket)
    }

    /// The namespace in which the socket was opened. This is cheaper than opening the thread's file in /proc.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN there.
    pub fn namespace(&self) -> io::Result<Namespace> {
        /// linux/sockios.h: a descriptor of the socket's namespace.
        const SIOCGSKNS: libc::Ioctl = 0x894C;
        // SAFETY: this request takes no argument, and does not access memory of this process.
        let number = checked(unsafe { libc::ioctl(self.descriptor.as_raw_fd(), SIOCGSKNS) })?;
        // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(number) };
        Ok(Namespace { file: descriptor.into() })
    }

    /// Raises the send buffer so that one send can have `bytes`, more than the default of about 200 KiB.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN.
    pub fn allow_sending(&self, bytes: usize) -> io::Result<()> {
        let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
        self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &bytes)
    }

    /// Sends `bytes` to the kernel, which has processed them when this returns.
    ///
    /// # Errors
    /// EMSGSIZE: call [`Self::allow_sending`] first.
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length are those of one live slice, which the kernel only reads. Without a destination a
        // netlink socket sends to the kernel.
        let sent = repeated(|| unsafe {
            libc::send(self.descriptor.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0)
        })?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    /// Receives the kernel's next datagram into `buffer`, up to its capacity. Returns the datagram's whole length; if it exceeds the
    /// capacity, the rest is lost. With `wait`, waits up to the socket's timeout.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; ENOBUFS if earlier datagrams were lost. The buffer is empty then.
    pub fn receive(&self, buffer: &mut Vec<u8>, wait: bool) -> io::Result<usize> {
        let flags = libc::MSG_TRUNC | if wait { 0 } else { libc::MSG_DONTWAIT };
        loop {
            buffer.clear();
            // Uninitialized memory, because replies are short and each touched page costs a page fault.
            let spare = buffer.spare_capacity_mut();
            let most = spare.len();
            // SAFETY: sockaddr_nl is plain numbers, for all of which zero is a value.
            let mut sender: libc::sockaddr_nl = unsafe { mem::zeroed() };
            let mut size = length_of(&sender);
            // SAFETY: pointer and length are those of memory of the buffer's own, which is not used otherwise meanwhile and which
            // is only written; sender and size are live, and size is sender's.
            let length = repeated(|| unsafe {
                libc::recvfrom(
                    self.descriptor.as_raw_fd(),
                    spare.as_mut_ptr().cast(),
                    most,
                    flags,
                    (&raw mut sender).cast(),
                    &raw mut size,
                )
            })?;
            // Port 0 is the kernel. Any process in the namespace may send to this socket.
            if sender.nl_pid == 0 {
                // SAFETY: that many bytes have just been written, and they are within the capacity.
                unsafe { buffer.set_len(length.min(most)) };
                return Ok(length);
            }
        }
    }

    fn set<T>(&self, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
        let (pointer, size) = ((&raw const *value).cast(), length_of(value));
        // SAFETY: pointer and size are those of one live value, which the kernel only reads; the callers pass the C type
        // that the option takes.
        checked(unsafe { libc::setsockopt(self.descriptor.as_raw_fd(), level, option, pointer, size) })
            .map(|_| ())
    }
}

/// Locks the byte `at` of `file`, which may be shorter, until `file` is closed. Waits for other descriptors' locks (F_OFD_SETLKW: the lock
/// belongs to the open file description, not to a thread).
///
/// # Errors
/// EINVAL: `at` is not a valid offset.
pub fn lock_byte(file: &File, at: u64) -> io::Result<()> {
    let start = i64::try_from(at).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: struct flock is plain numbers, for all of which zero is a value.
    let mut lock: libc::flock = unsafe { mem::zeroed() };
    lock.l_type = libc::F_WRLCK as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = start;
    lock.l_len = 1;
    // SAFETY: the request takes a struct flock, which outlives the call.
    let locked = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &raw const lock) };
    repeated(|| locked() as libc::ssize_t).map(|_| ())
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

fn length_of<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(mem::size_of_val(value)).unwrap_or(0)
}

/// The result of a system call, or errno.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The length that a system call returns; retried after EINTR.
fn repeated(mut call: impl FnMut() -> libc::ssize_t) -> io::Result<usize> {
    loop {
        match usize::try_from(call()) {
            Ok(length) => return Ok(length),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::isolated::{isolated, new_namespace};
    use super::{Namespace, Netlink, stay_on_processor};

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
            let socket = Netlink::open(libc::NETLINK_ROUTE, Duration::from_secs(1)).unwrap();
            new_namespace().enter().unwrap();
            assert!(socket.namespace().unwrap().same(&here).unwrap());
            socket.namespace().unwrap().enter().unwrap();
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
