//! Waiting for what others do in their own time.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// A load balancer on a loaded machine takes half of it.
const WITHIN: Duration = Duration::from_secs(120);

/// How often it is looked at: each look is a request that costs the service tens of milliseconds.
const POLL: Duration = Duration::from_millis(200);

/// Looks until there is something; an error ends it at once.
pub(crate) async fn until<T>(what: &str, look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + WITHIN;
    loop {
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("no {what} after {WITHIN:?}");
        }
        sleep(POLL).await;
    }
}
