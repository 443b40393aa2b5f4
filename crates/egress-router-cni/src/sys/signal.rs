//! SIGTERM and SIGINT, blocked and waited for.

use std::io;
use std::mem;
use std::ptr;
use std::time::Duration;

/// SIGTERM and SIGINT. The first process of a container has no default reaction to them.
pub struct Termination {
    signals: libc::sigset_t,
}

impl Termination {
    /// Blocks both signals in this thread and in threads that it starts later. Call it before any thread is started.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn hold() -> io::Result<Self> {
        // SAFETY: a sigset_t is plain data, for which zeroes are a value; sigemptyset gives it the one that is meant.
        let mut signals: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the set is ours, and both numbers are signals.
        unsafe {
            libc::sigemptyset(&raw mut signals);
            libc::sigaddset(&raw mut signals, libc::SIGTERM);
            libc::sigaddset(&raw mut signals, libc::SIGINT);
        }
        // SAFETY: the set outlives the call, and the old mask is not asked for.
        match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signals, ptr::null_mut()) } {
            0 => Ok(Self { signals }),
            number => Err(io::Error::from_raw_os_error(number)),
        }
    }

    /// Waits up to `time`. Returns whether one of them arrived.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn within(&self, time: Duration) -> io::Result<bool> {
        let time = libc::timespec {
            // musl's `time_t` is deprecated for what it will be on 32 bits; here it has 64.
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: set and time outlive the call, and what came is not asked for.
        let came = unsafe { libc::sigtimedwait(&raw const self.signals, ptr::null_mut(), &raw const time) };
        if came > 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            // The timeout, or another signal: the caller waits again.
            error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EINTR)) => Ok(false),
            error => Err(error),
        }
    }
}
