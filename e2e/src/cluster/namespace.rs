//! The network namespace of a machine: sockets are made in it, and can then be used from anywhere.

use std::fs::File;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use nix::sched::{CloneFlags, setns};

/// The network of a machine, from its last boot on.
#[derive(Debug)]
pub struct Network {
    file: File,
}

impl Network {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/ns/net");
        Ok(Self { file: File::open(&path).with_context(|| format!("{path}: the machine does not run"))? })
    }

    /// Does something in there: on a thread of its own, because a namespace is a thread's.
    ///
    /// # Errors
    /// What `act` failed with.
    pub fn within<T: Send + 'static>(&self, act: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        self.spawn(act)?.join().map_err(|_| anyhow!("a thread in the namespace of a machine panicked"))?
    }

    /// Goes on doing something in there.
    ///
    /// # Errors
    /// The kernel has no thread for it.
    pub fn spawn<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let file = self.file.try_clone()?;
        let thread = std::thread::Builder::new().name("in a machine".into());
        Ok(thread.spawn(move || {
            setns(&file, CloneFlags::CLONE_NEWNET).context("the network of a machine cannot be entered")?;
            act()
        })?)
    }
}
