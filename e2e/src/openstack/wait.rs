//! Waits for asynchronous changes.

use std::time::Duration;

use anyhow::{Result, bail};
use tokio::time::{Instant, sleep};

/// Octavia's worker makes two load balancers at a time, and on a machine with ten programs for each processor the next ones were
/// not there after two minutes.
const WITHIN: Duration = Duration::from_secs(300);

/// Poll interval: each poll is a request that takes the service tens of milliseconds.
const POLL: Duration = Duration::from_millis(200);

/// Polls until there is a result; an error ends it immediately.
pub(crate) async fn until<T>(what: &str, poll: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    let deadline = Instant::now() + WITHIN;
    loop {
        if let Some(found) = poll().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            bail!("no {what} after {WITHIN:?}");
        }
        sleep(POLL).await;
    }
}
