//! Runs tests in their own network namespace. The feature `isolated` has it for the tests of other crates.
// Only tests call it: it panics as they do, and unshare has no safe interface in the standard library.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::{env, io, thread};

/// Programs of network administrators are in folders that not every user's PATH has.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

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
    run("ip", line.split_whitespace())
}

/// Runs `nft` with `commands` in the calling thread's namespace.
///
/// # Panics
/// When it is not installed, or fails.
pub fn nft(commands: &str) -> String {
    run("nft", [commands])
}

/// Runs `program` in the calling thread's namespace, and returns its output.
///
/// # Panics
/// When it is not installed, or fails.
pub fn run<'a>(program: &str, arguments: impl IntoIterator<Item = &'a str>) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).env("PATH", PATH).output();
    let output = output.unwrap_or_else(|error| {
        panic!("this test needs the program {program} (packages iproute2, nftables): {error}")
    });
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Makes `/proc/sys` read-only for the calling thread, as it is in a container without privileges.
///
/// # Panics
/// The kernel does not allow it.
pub fn read_only_sysctls() {
    // SAFETY: unshare takes a number; the other threads keep the mounts and the working directory that they have.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    assert_eq!(result, 0, "a new mount namespace: {}", io::Error::last_os_error());
    for line in ["--make-rprivate /", "--rbind /proc/sys /proc/sys", "-o remount,bind,ro /proc/sys"] {
        run("mount", line.split(' '));
    }
    let error = std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect_err("/proc/sys is read-only");
    assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
}

/// Moves the calling thread into `namespace`. Its open sockets stay in their namespaces.
///
/// # Errors
/// The descriptor is not that of a network namespace, or CAP_SYS_ADMIN is missing.
pub fn enter(namespace: &OwnedFd) -> io::Result<()> {
    // SAFETY: setns takes two numbers and does not access memory of this process; the descriptor is open as long as the borrow.
    match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
