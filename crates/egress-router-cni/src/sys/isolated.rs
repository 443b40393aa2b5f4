//! Network namespaces of tests.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

pub use common::netlink::isolated::{ip, isolated};

/// A new, empty network namespace; the calling thread stays where it is.
///
/// # Panics
/// When the kernel gives none.
pub fn new_namespace() -> super::Namespace {
    super::Namespace::new().unwrap()
}

/// Sends a router advertisement from the link-local address of the link with index `link`, with a lifetime of half an hour (RFC 4861, 4.2).
///
/// # Errors
/// The kernel's: the link may not be up yet.
pub fn advertise_router(link: u32) -> io::Result<()> {
    let hops: libc::c_int = 255;
    let message: [u8; 16] = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: every pointer is that of a live value, with its own size; the descriptor is closed by its owner.
    let sent = unsafe {
        let number = super::checked(libc::socket(
            libc::AF_INET6,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            libc::IPPROTO_ICMPV6,
        ))?;
        let socket = OwnedFd::from_raw_fd(number);
        super::checked(libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IPV6,
            libc::IPV6_MULTICAST_HOPS,
            (&raw const hops).cast(),
            length_of(&hops),
        ))?;
        let mut to: libc::sockaddr_in6 = std::mem::zeroed();
        to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
        to.sin6_addr.s6_addr = std::net::Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
        to.sin6_scope_id = link;
        libc::sendto(
            socket.as_raw_fd(),
            message.as_ptr().cast(),
            message.len(),
            0,
            (&raw const to).cast(),
            length_of(&to),
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sends a frame by the link with index `link`, and claims that it is of `protocol` (ETH_P_*).
///
/// # Errors
/// The kernel's.
pub fn send_frame(link: u32, protocol: u16, frame: &[u8]) -> io::Result<()> {
    // SAFETY: every pointer is that of a live value, with its own size; the descriptor is closed by its owner.
    let sent = unsafe {
        let number = super::checked(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0))?;
        let socket = OwnedFd::from_raw_fd(number);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = libc::AF_PACKET as libc::sa_family_t;
        to.sll_protocol = protocol.to_be();
        to.sll_ifindex = i32::try_from(link).unwrap();
        to.sll_halen = 6;
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            length_of(&to),
        )
    };
    // An egress hook that drops the frame is an error of the sender.
    let error = io::Error::last_os_error();
    if sent < 0 && error.raw_os_error() != Some(libc::ENOBUFS) { Err(error) } else { Ok(()) }
}

fn length_of<T>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(std::mem::size_of_val(value)).unwrap()
}
