//! The network namespace of a machine or a pod. Sockets that are created in it can be used from any thread.

use std::fs::File;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use nix::sched::{CloneFlags, setns};

use super::Target;

/// The network namespace of a machine since its last boot, or of a pod. It exists for as long as a value does.
#[derive(Debug, Clone)]
pub struct Network {
    file: Arc<File>,
}

impl Network {
    pub(super) fn of(pid: u32) -> Result<Self> {
        let path = format!("/proc/{pid}/ns/net");
        let file = File::open(&path).with_context(|| format!("{path}: the machine does not run"))?;
        Ok(Self { file: Arc::new(file) })
    }

    /// The network of a running pod of any cluster of this machine, by its UID: the processes of a pod are in a cgroup of that name.
    ///
    /// # Errors
    /// No process of the pod runs.
    pub fn of_pod(uid: &str) -> Result<Self> {
        let group = format!("pod{uid}");
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let pid = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            // A process may have ended since it was listed.
            let groups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            if let (Some(pid), true) = (pid, groups.contains(&group)) {
                return Self::of(pid);
            }
        }
        bail!("no process of pod {uid} runs")
    }

    /// Runs `act` in it, in a new thread, because a namespace belongs to a thread.
    ///
    /// # Errors
    /// The error of `act`.
    pub fn within<T: Send + 'static>(&self, act: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        self.spawn(act)?.join().map_err(|_| anyhow!("a thread in the namespace of a machine panicked"))?
    }

    /// The last line of a server's response to a request from it. None: there was none in time.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub async fn request(&self, target: Target, timeout: Duration) -> Result<Option<String>> {
        let network = self.clone();
        let request = move || network.within(move || Ok(target.request(timeout)));
        tokio::task::spawn_blocking(request).await?
    }

    /// Runs `act` in it in the background.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn spawn<T: Send + 'static>(
        &self,
        act: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<JoinHandle<Result<T>>> {
        let file = Arc::clone(&self.file);
        let thread = std::thread::Builder::new().name("in a machine".into());
        Ok(thread.spawn(move || {
            setns(&file, CloneFlags::CLONE_NEWNET).context("the network of a machine cannot be entered")?;
            act()
        })?)
    }
}
