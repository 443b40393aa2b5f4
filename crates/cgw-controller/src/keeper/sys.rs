//! System calls that the standard library does not have: the only unsafe code of the keeper.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// CLOCK_MONOTONIC: the same for all processes of the node.
#[must_use]
pub fn monotonic() -> Duration {
    // SAFETY: timespec is plain numbers, for all of which zero is a value.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: the pointer is that of one live value, which the kernel writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// Sends a signal of libc to one process.
///
/// # Errors
/// ESRCH: there is no such process.
pub fn send(pid: u32, signal: libc::c_int) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 1);
    let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: kill takes two numbers and does not access memory of this process.
    checked(unsafe { libc::kill(pid, signal) })
}

/// Creates a FIFO for its owner only.
///
/// # Errors
/// The kernel refuses. EEXIST: there is a file.
pub fn create_fifo(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the pointer is that of a live string that ends in zero.
    checked(unsafe { libc::mkfifo(path.as_ptr(), 0o600) })
}

/// The process that `command` starts gets SIGTERM when the calling thread ends, however it ends.
pub fn end_with_parent(command: &mut tokio::process::Command) {
    // SAFETY: between fork and exec, the closure only makes a system call that takes numbers.
    unsafe {
        command.pre_exec(|| checked(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM)));
    }
}

static TERMINATED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_terminate(_signal: libc::c_int) {
    TERMINATED.store(true, Ordering::Relaxed);
}

/// SIGTERM and SIGINT do not end the process from now on, but are reported by [`is_terminated`].
pub fn catch_terminate() {
    let handler = on_terminate as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for signal in [libc::SIGTERM, libc::SIGINT] {
        // SAFETY: the handler only stores to an atomic, which is allowed in a signal handler.
        unsafe { libc::signal(signal, handler) };
    }
}

/// Whether SIGTERM or SIGINT came after [`catch_terminate`].
#[must_use]
pub fn is_terminated() -> bool {
    TERMINATED.load(Ordering::Relaxed)
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let first = monotonic();
        assert!(first > Duration::ZERO && monotonic() >= first);
    }

    #[test]
    fn process_groups_and_init_get_no_signal() {
        for pid in [0, 1, u32::MAX] {
            assert!(send(pid, libc::SIGTERM).is_err());
        }
    }
}
