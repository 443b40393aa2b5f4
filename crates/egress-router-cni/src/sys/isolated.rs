//! Runs tests in their own network namespace.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;
use std::{env, io, thread};

/// Runs `test` in a new thread in a new, empty network namespace, which is deleted with the thread and its sockets. Without root, the
/// calling test is started again as root of a user namespace.
///
/// # Panics
/// `test` panics, or the kernel allows neither namespace.
pub fn isolated(test: impl FnOnce() + Send + 'static) {
    // SAFETY: geteuid takes nothing, touches nothing and always succeeds.
    if unsafe { libc::geteuid() } == 0 {
        let inside = thread::Builder::new().name(thread::current().name().unwrap_or("isolated").to_owned());
        let handle = inside
            .spawn(move || {
                // SAFETY: unshare takes a number; without CLONE_FILES or CLONE_VM it does not access memory of this process.
                let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
                assert_eq!(result, 0, "a new network namespace: {}", io::Error::last_os_error());
                test();
            })
            .unwrap();
        if let Err(panic) = handle.join() {
            std::panic::resume_unwind(panic);
        }
        return;
    }
    let name = thread::current().name().expect("a test's thread bears its name").to_owned();
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .output()
        .expect("without root this test needs the program unshare (package util-linux)");
    assert!(
        output.status.success(),
        "without root this test needs a kernel that lets users make user namespaces \
         (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces>0):\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Runs `ip` with the words of `line` in the calling thread's namespace.
///
/// # Panics
/// When it is not installed, or fails.
pub fn ip(line: &str) -> String {
    let output = Command::new("ip")
        .args(line.split_whitespace())
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .expect("this test needs the program ip (package iproute2)");
    assert!(output.status.success(), "ip {line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

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
            super::length_of(&hops),
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
            super::length_of(&to),
        )
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
