//! A controller as a process: start, readiness, requests, end.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use e2e::fault_proxy::{FaultProxy, Recorded};
use e2e::program::{Launch, Program, free_port};
use e2e::wait::TIMEOUT;
use nix::sys::signal::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::machine::Memory;
use crate::report::{Bench, mebibytes, milliseconds};

/// Between two polls of /readyz: short against a start, and little work for the machine.
const POLL: Duration = Duration::from_millis(2);
/// From ready to the measurement of the memory: the caches are filled, the first reconciliation is made, and the buffers of the
/// start are returned.
pub(crate) const STEADY: Duration = Duration::from_secs(10);
/// Starts for each pair of rows.
const STARTS: usize = 7;
/// The first ones run on until their memory is measured.
const STAYING: usize = 3;

/// Starts a controller; how long it took until /readyz responded with 200.
pub(crate) async fn until_ready(controller: &Launch) -> Result<(Program, Duration)> {
    let port = free_port()?;
    let launch = controller.clone().arg(format!("--admin-address=127.0.0.1:{port}"));
    let started = Instant::now();
    let program = launch.start()?;
    while !is_ready(port).await {
        if let Some(status) = program.exited()? {
            bail!("it ended before it was ready: {status}\n{}", program.output().lines().join("\n"));
        }
        ensure!(started.elapsed() < TIMEOUT, "it is not ready:\n{}", program.output().lines().join("\n"));
        tokio::time::sleep(POLL).await;
    }
    Ok((program, started.elapsed()))
}

/// False also while the port is closed.
async fn is_ready(port: u16) -> bool {
    let get = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n").await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        anyhow::Ok(response.starts_with("HTTP/1.1 200 "))
    };
    get.await.unwrap_or(false)
}

/// Ends a controller with SIGTERM.
pub(crate) async fn stop(controller: &Program) -> Result<()> {
    controller.signal(Signal::SIGTERM)?;
    let status = controller.wait_exit().await?;
    ensure!(status.success(), "it ended with {status}:\n{}", controller.output().lines().join("\n"));
    Ok(())
}

/// A controller's requests to an API server, recorded by a proxy.
pub(crate) struct Requests {
    /// Without the Lease and the watches.
    pub(crate) all: Vec<Recorded>,
    /// Writes of the Lease.
    pub(crate) lease: usize,
}

impl Requests {
    pub(crate) fn through(proxy: &FaultProxy) -> Self {
        let (lease, mut all): (Vec<_>, Vec<_>) =
            proxy.requests().into_iter().partition(|one| one.path.contains("/leases/"));
        all.retain(|one| !one.query.split('&').any(|pair| pair == "watch=true"));
        Self { all, lease: writes(&lease).count() }
    }

    /// A controller that does not renew its Lease was not measured at all.
    pub(crate) fn ensure_leader(&self) -> Result<()> {
        ensure!(self.lease > 0, "the controller did not renew its Lease");
        Ok(())
    }
}

pub(crate) fn writes<'a>(
    requests: impl IntoIterator<Item = &'a Recorded>,
) -> impl Iterator<Item = &'a Recorded> {
    requests.into_iter().filter(|one| one.method != "GET")
}

/// Rows of start and idle memory. `among` is what the controller finds, such as "5 Nodes".
pub(crate) async fn measure_start(controller: &Launch, among: &str, bench: &mut Bench) -> Result<()> {
    bench.progress(&format!("start and idle memory, {among}"));
    let (mut ready, mut memory) = (Vec::new(), Vec::new());
    for start in 0..STARTS {
        let (program, took) = until_ready(controller).await?;
        ready.push(took);
        if start < STAYING {
            tokio::time::sleep(STEADY).await;
            memory.push(Memory::of(program.pid())?);
        }
        stop(&program).await?;
    }
    bench
        .row(format!("Start to ready, {among}"), "≤ 500 ms", milliseconds(ready))
        .means("From the start of the process to the first 200 of /readyz (caches filled), with the API server over TLS");
    bench
        .row(format!("Idle memory (RSS), {among}"), "≤ 8 MiB", mebibytes(memory.iter().map(|one| one.rss)))
        .means(format!(
            "10 s after ready, with the pages of the program file that were used ({STAYING} processes, one after another)"
        ));
    bench
        .row(format!("Idle memory (PSS), {among}"), "", mebibytes(memory.iter().map(|one| one.pss)))
        .means("The same, with pages that other processes use too counted in part");
    bench
        .row(
            format!("Idle memory (anonymous), {among}"),
            "",
            mebibytes(memory.iter().map(|one| one.anonymous)),
        )
        .means("The part that is the controller's data, heap and stacks, and cannot be given back");
    Ok(())
}
