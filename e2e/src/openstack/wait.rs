//! Waiting for what others do in their own time.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Octavia's worker makes two load balancers at a time, and on a machine with ten programs for each processor the next ones were
/// not there after two minutes.
const WITHIN: Duration = Duration::from_secs(300);

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
