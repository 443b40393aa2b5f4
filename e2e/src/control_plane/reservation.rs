//! Control planes that one test at a time uses alone, for tests about a whole cluster that do not stop the programs.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use anyhow::{Context as _, Result};
use tokio::sync::{Semaphore, SemaphorePermit};

use super::{Cluster, ControlPlane, builder, kubeconfig};

/// Number of control planes in a test binary. Each takes half a GiB, and seconds of every processor to start. On an idle machine more of them
/// are faster: `E2E_CLUSTERS`.
const MOST: usize = 4;

static FREE: OnceLock<Semaphore> = OnceLock::new();
static POOL: Mutex<Pool> = Mutex::new(Pool { reserved: 0, idle: Vec::new() });

/// The control planes of the process that tests have released, and the number of reservations.
struct Pool {
    reserved: usize,
    idle: Vec<Arc<Cluster>>,
}

/// Keeps a control plane from other tests of the process until it is dropped; then the next one gets it, with all that is in it.
#[derive(Debug)]
pub struct Reservation {
    /// None until it is started.
    cluster: Option<Arc<Cluster>>,
    _permit: SemaphorePermit<'static>,
}

impl ControlPlane {
    /// The number for [`ControlPlane::reserve`]; one with an existing cluster.
    ///
    /// # Errors
    /// `E2E_CLUSTERS` is not a positive number.
    pub fn most_reserved() -> Result<usize> {
        if builder::takes_existing() {
            return Ok(1);
        }
        let Ok(asked) = std::env::var("E2E_CLUSTERS") else { return Ok(MOST) };
        let most = asked.parse().ok().filter(|most| *most > 0);
        most.with_context(|| format!("E2E_CLUSTERS={asked} is no number above 0"))
    }

    /// A control plane that no other test uses: a released one, or a new one. Waits if the maximum number is in use.
    ///
    /// # Errors
    /// As [`ControlPlane::start`].
    pub async fn reserve() -> Result<(Self, Reservation)> {
        let most = Self::most_reserved()?;
        let permit = FREE.get_or_init(|| Semaphore::new(most)).acquire().await?;
        let idle = {
            let mut pool = pool();
            pool.reserved += 1;
            pool.idle.pop()
        };
        let mut reservation = Reservation { cluster: None, _permit: permit };
        let control_plane = match idle {
            // A client's connections belong to the runtime of its test.
            Some(cluster) => Self { client: kubeconfig::client(&cluster.kubeconfig).await?, cluster },
            None => Self::start().await?,
        };
        reservation.cluster = Some(Arc::clone(&control_plane.cluster));
        Ok((control_plane, reservation))
    }
}

impl Drop for Reservation {
    /// The last one of the process, or of a while, stops them all: an idle one takes a fiftieth of a processor.
    fn drop(&mut self) {
        let unused = {
            let mut pool = pool();
            pool.reserved -= 1;
            pool.idle.extend(self.cluster.take());
            if pool.reserved == 0 { std::mem::take(&mut pool.idle) } else { Vec::new() }
        };
        // To stop them takes seconds, in which others may take and release one: the lock is free again.
        drop(unused);
    }
}

fn pool() -> MutexGuard<'static, Pool> {
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}
