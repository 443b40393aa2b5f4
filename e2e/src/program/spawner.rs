//! One thread that starts every child.
//!
//! A parent-death signal is sent when the *thread* that created the child ends. Tests are short-lived threads, so shared children are created
//! by a thread that runs as long as the process.

use std::io;
use std::process::{Child, Command};
use std::sync::LazyLock;
use std::sync::mpsc::{Sender, channel};

type Order = (Command, Sender<io::Result<Child>>);

static SPAWNER: LazyLock<io::Result<Sender<Order>>> = LazyLock::new(|| {
    let (orders, queue) = channel::<Order>();
    std::thread::Builder::new().name("spawner".into()).spawn(move || {
        for (mut command, reply) in queue {
            // The requester waits for the reply.
            let _ = reply.send(command.spawn());
        }
    })?;
    Ok(orders)
});

pub(super) fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts programs is gone");
    let orders = SPAWNER.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
    let (reply, child) = channel();
    orders.send((command, reply)).map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}
