//! The end of a process: the first SIGTERM or SIGINT drains, the second ends at once.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Exit code of a process that was asked twice to end: it did not finish its drain.
const CUT_SHORT: i32 = 1;

/// Listens for signals from now on, for as long as the process lives. The token is cancelled when the process is asked to end.
///
/// # Errors
/// When the kernel refuses a signal handler. Must be called inside a tokio runtime.
pub fn on_signals() -> std::io::Result<CancellationToken> {
    let shutdown = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let token = shutdown.clone();
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

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
