//! Tests in a network namespace of their own.

use std::process::Command;
use std::{env, io, thread};

/// Runs `test` in a new thread in a new, empty network namespace, which ends with the thread and with its sockets. Without
/// root, the calling test starts once more by itself, as the root of a user namespace.
///
/// # Panics
/// When `test` does, or when the kernel gives neither.
pub fn isolated(test: impl FnOnce() + Send + 'static) {
    // SAFETY: geteuid takes nothing, touches nothing and always succeeds.
    if unsafe { libc::geteuid() } == 0 {
        let inside = thread::Builder::new().name(thread::current().name().unwrap_or("isolated").to_owned());
        let handle = inside
            .spawn(move || {
                // SAFETY: unshare takes a number; without CLONE_FILES or CLONE_VM it touches no memory of ours.
                let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
                assert_eq!(answer, 0, "a new network namespace: {}", io::Error::last_os_error());
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
pub fn another() -> super::Namespace {
    let here = super::Namespace::current().unwrap();
    // SAFETY: as in `isolated`.
    let answer = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    assert_eq!(answer, 0, "a new network namespace: {}", io::Error::last_os_error());
    let new = super::Namespace::current().unwrap();
    here.enter().unwrap();
    new
}
