//! Control planes that a test has to itself and hands on: for what is about a whole cluster, and leaves the programs alone.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Cluster, ControlPlane, builder, kubeconfig};

/// In a test binary: each is half a GiB and costs seconds of every processor to start, and tests of whole clusters wait more than
/// they work. Where nothing else runs, more of them are done sooner: `E2E_CLUSTERS`.
const MOST: usize = 3;

static FREE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(ControlPlane::most_reserved()));
static IDLE: Mutex<Vec<Arc<Cluster>>> = Mutex::new(Vec::new());

/// Keeps a control plane from other tests of the process until it is dropped; then the next one gets it, with all that is in it.
#[derive(Debug)]
pub struct Reservation {
    cluster: Arc<Cluster>,
    _permit: SemaphorePermit<'static>,
}

impl ControlPlane {
    /// How many [`ControlPlane::reserve`] lets be taken at a time: an existing cluster is the only one.
    pub fn most_reserved() -> usize {
        let asked = || std::env::var("E2E_CLUSTERS").ok()?.parse().ok().filter(|most| *most > 0);
        if builder::takes_existing() { 1 } else { asked().unwrap_or(MOST) }
    }

    /// A control plane that no other test has meanwhile: one that another test is done with, or a new one. Waits while as many
    /// are taken as there may be.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn reserve() -> Result<(Self, Reservation)> {
        let permit = FREE.acquire().await?;
        let idle = idle().pop();
        let control_plane = match idle {
            // A client's connections belong to the runtime of the test that made it.
            Some(cluster) => Self { client: kubeconfig::client(&cluster.kubeconfig).await?, cluster },
            None => Self::start().await?,
        };
        let cluster = Arc::clone(&control_plane.cluster);
        Ok((control_plane, Reservation { cluster, _permit: permit }))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        idle().push(Arc::clone(&self.cluster));
    }
}

fn idle() -> MutexGuard<'static, Vec<Arc<Cluster>>> {
    IDLE.lock().unwrap_or_else(PoisonError::into_inner)
}
