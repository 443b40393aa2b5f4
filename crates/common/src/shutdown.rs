//! The end of a process: the first SIGTERM or SIGINT drains, the second ends at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that was asked twice to end: it did not finish its drain.
const CUT_SHORT: i32 = 1;

/// The request that this process ends. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    token: CancellationToken,
}

impl Shutdown {
    /// Nothing is asked yet, and no signal is listened to.
    #[must_use]
    pub fn new() -> Self {
        Shutdown::default()
    }

    /// Listens for signals from now on, for as long as the process lives.
    ///
    /// # Errors
    /// When the kernel refuses a signal handler. Must be called inside a tokio runtime.
    pub fn on_signals() -> std::io::Result<Self> {
        let shutdown = Shutdown::new();
        let (mut terminate, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let token = shutdown.token.clone();
        tokio::spawn(async move {
            let name = next(&mut terminate, &mut interrupt).await;
            tracing::info!(signal = name, "draining; a second signal ends at once");
            token.cancel();
            let name = next(&mut terminate, &mut interrupt).await;
            tracing::warn!(signal = name, "second signal: ending at once, undrained");
            std::process::exit(CUT_SHORT);
        });
        Ok(shutdown)
    }

    /// Asks for the end.
    pub fn ask(&self) {
        self.token.cancel();
    }

    /// Cancelled once the end is asked for.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Whether the end is asked for.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.token.is_cancelled()
    }

    /// Returns once the end is asked for.
    pub async fn asked(&self) {
        self.token.cancelled().await;
    }
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_clone_hears_it() {
        let shutdown = Shutdown::new();
        let (clone, token) = (shutdown.clone(), shutdown.token());
        assert!(!clone.is_asked());
        shutdown.ask();
        clone.asked().await;
        assert!(token.is_cancelled() && clone.is_asked());
    }
}
