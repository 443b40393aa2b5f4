//! Control planes that a test has to itself and hands on: for what is about a whole cluster, and leaves the programs alone.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Context as _, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Cluster, ControlPlane, builder, kubeconfig};

/// In a test binary: each is half a GiB and costs seconds of every processor to start, and tests of whole clusters wait more than
/// they work. Where nothing else runs, more of them are done sooner: `E2E_CLUSTERS`.
const MOST: usize = 4;

static FREE: OnceLock<Semaphore> = OnceLock::new();
static IDLE: Mutex<Vec<Arc<Cluster>>> = Mutex::new(Vec::new());

/// Keeps a control plane from other tests of the process until it is dropped; then the next one gets it, with all that is in it.
#[derive(Debug)]
pub struct Reservation {
    cluster: Arc<Cluster>,
    _permit: SemaphorePermit<'static>,
}

impl ControlPlane {
    /// How many [`ControlPlane::reserve`] lets be taken at a time: an existing cluster is the only one.
    ///
    /// # Errors
    /// `E2E_CLUSTERS` is no number above 0.
    pub fn most_reserved() -> Result<usize> {
        if builder::takes_existing() {
            return Ok(1);
        }
        let Ok(asked) = std::env::var("E2E_CLUSTERS") else { return Ok(MOST) };
        let most = asked.parse().ok().filter(|most| *most > 0);
        most.with_context(|| format!("E2E_CLUSTERS={asked} is no number above 0"))
    }

    /// A control plane that no other test has meanwhile: one that another test is done with, or a new one. Waits while as many
    /// are taken as there may be.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn reserve() -> Result<(Self, Reservation)> {
        let most = Self::most_reserved()?;
        let permit = FREE.get_or_init(|| Semaphore::new(most)).acquire().await?;
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
