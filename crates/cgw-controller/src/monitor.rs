//! Notifications of the kernel about links and addresses, for an async runtime.
#![allow(unsafe_code)]

use std::io;

use anyhow::Context;
use common::netlink::monitor::{Event, Monitor};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Notifications of the network namespace in which they were opened.
#[derive(Debug)]
pub struct Notifications(AsyncFd<Monitor>);

impl Notifications {
    /// Subscribes. Open it before the state is listed, so that no change is missed in between.
    ///
    /// # Errors
    /// The kernel refuses, or no descriptors are left.
    pub fn open() -> anyhow::Result<Notifications> {
        let monitor = Monitor::open()?;
        // SAFETY: a Monitor has one descriptor, which it returns each time and closes when it is dropped. Nothing here writes to it.
        let registered = unsafe { AsyncFd::register_with_interest(monitor, Interest::READABLE) };
        Ok(Notifications(registered.map_err(io::Error::from).context("registering a netlink socket")?))
    }

    /// Waits for changes. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// The system calls'. The state has to be listed: also a loss is a change.
    pub async fn next(&mut self) -> anyhow::Result<Vec<Event>> {
        let mut guard = self.0.readable_mut().await.context("waiting for notifications of the kernel")?;
        let events = guard.get_inner_mut().read();
        guard.clear_ready();
        events.context("receiving notifications of the kernel")
    }
}
