//! System calls of netlink sockets: the only unsafe code of this module.
// The standard library has no netlink sockets, and a crate would add much more than these few calls.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

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

    /// A descriptor of the namespace in which the socket was opened. This is cheaper than opening the thread's file in /proc.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN there.
    pub fn namespace(&self) -> io::Result<OwnedFd> {
        /// linux/sockios.h: a descriptor of the socket's namespace.
        const SIOCGSKNS: libc::Ioctl = 0x894C;
        // SAFETY: this request takes no argument, and does not access memory of this process.
        let number = checked(unsafe { libc::ioctl(self.descriptor.as_raw_fd(), SIOCGSKNS) })?;
        // SAFETY: the kernel has just made this descriptor, and nothing else knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(number) })
    }

    /// Receives the notifications of `groups` (RTMGRP_*).
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn subscribe(&self, groups: u32) -> io::Result<()> {
        // SAFETY: sockaddr_nl is plain numbers, for all of which zero is a value.
        let mut address: libc::sockaddr_nl = unsafe { mem::zeroed() };
        address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap_or_default();
        address.nl_groups = groups;
        let (pointer, size) = ((&raw const address).cast(), length_of(&address));
        // SAFETY: pointer and size are those of one live value, which the kernel only reads.
        checked(unsafe { libc::bind(self.descriptor.as_raw_fd(), pointer, size) }).map(|_| ())
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

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
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
