//! Waits for asynchronous changes.

use std::time::Duration;

use anyhow::{Result, anyhow};
use tokio::time::{Instant, sleep};

/// Limit of each wait: far longer than anything takes on a busy machine. Octavia's worker makes two load balancers at a time, and on a
/// machine with ten programs for each processor the next ones were not there after two minutes.
pub const TIMEOUT: Duration = Duration::from_secs(300);

/// Poll interval: a poll is a request that takes a service tens of milliseconds, or reads a status of up to 200 KB.
const POLL: Duration = Duration::from_millis(200);

/// Poll interval for what takes a service of OpenStack seconds.
const SLOW_POLL: Duration = Duration::from_secs(1);

/// Polls until there is a result; an error ends it immediately.
///
/// # Errors
/// There is none within [`TIMEOUT`]; or what the poll failed with.
pub async fn until<T>(what: &str, poll: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    until_each(POLL, OnError::End, what, poll).await
}

/// As [`until`], with a poll a second.
///
/// # Errors
/// As [`until`].
pub async fn until_slow<T>(what: &str, poll: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    until_each(SLOW_POLL, OnError::End, what, poll).await
}

/// As [`until`], but an error does not end it: the last one is the cause of the failure.
///
/// # Errors
/// There is no result within [`TIMEOUT`].
pub async fn until_ok<T>(what: &str, poll: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
    until_each(POLL, OnError::Retry, what, poll).await
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum OnError {
    End,
    Retry,
}

async fn until_each<T>(
    interval: Duration,
    on_error: OnError,
    what: &str,
    poll: impl AsyncFn() -> Result<Option<T>>,
) -> Result<T> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let cause = match poll().await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => None,
            Err(error) if on_error == OnError::End => return Err(error),
            Err(error) => Some(error),
        };
        if Instant::now() >= deadline {
            let late = format!("still waiting for {what} after {TIMEOUT:?}");
            return Err(match cause {
                Some(cause) => cause.context(late),
                None => anyhow!(late),
            });
        }
        sleep(interval).await;
    }
}
