//! A program that is measured: from its start until it is ready, to its end.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use e2e::program::{Launch, Program, free_port};
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Between two looks at /readyz: a hundredth of what is measured, and next to no work for the machine.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// Nothing here takes this long, unless it never comes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
/// From ready to the look at the memory: caches are filled, the first walk is made, buffers of the start are returned.
pub(crate) const STEADY: Duration = Duration::from_secs(10);

/// Starts a controller; how long it took from there until /readyz answered 200.
///
/// # Errors
/// It ends, or does not become ready.
pub(crate) async fn until_ready(controller: &Launch) -> Result<(Program, Duration)> {
    let port = free_port()?;
    let launch = controller.clone().args(["--admin-address".to_owned(), format!("127.0.0.1:{port}")]);
    let started = Instant::now();
    let program = launch.start()?;
    while !is_ready(port).await {
        if let Some(status) = program.exited()? {
            anyhow::bail!("it ended before it was ready: {status}\n{}", program.output().lines().join("\n"));
        }
        ensure!(started.elapsed() < TIMEOUT, "it is not ready:\n{}", program.output().lines().join("\n"));
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok((program, started.elapsed()))
}

/// Asks a controller to end and waits for it.
///
/// # Errors
/// It does not, or ends with a failure.
pub(crate) async fn stop(controller: &Program) -> Result<()> {
    controller.signal(Signal::SIGTERM)?;
    let status = controller.wait_exit(TIMEOUT).await?;
    ensure!(status.success(), "it ended with {status}:\n{}", controller.output().lines().join("\n"));
    Ok(())
}

/// Anything but a 200 is a no: nobody listens yet, or caches are not filled.
async fn is_ready(port: u16) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer.starts_with("HTTP/1.1 200 "))
    };
    ask.await.unwrap_or(false)
}

/// What was named, or the program of this name that was built with the bench.
///
/// # Errors
/// It was not.
pub(crate) fn binary(named: Option<&Path>, name: &str) -> Result<PathBuf> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let bench = std::env::current_exe().context("where is this program?")?;
    let built = bench.with_file_name(name);
    let release = if cfg!(debug_assertions) { "" } else { " --release" };
    ensure!(built.is_file(), "{} is not built: cargo build{release} -p {name}", built.display());
    Ok(built)
}
