//! A client that repeatedly requests its source address from the Internet, with a new connection each time.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::internet::{ECHO, HOST};
use super::{Machine, Network};

/// Interval of requests, which is the resolution of an interruption.
const EVERY: Duration = Duration::from_millis(20);
/// Timeout of a response, which takes less than a millisecond on an idle machine.
const RESPONSE_TIMEOUT: Duration = Duration::from_millis(100);
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// Its time.
    pub at: Instant,
    /// The source address at the host in the Internet; none without a response.
    pub seen: Option<Ipv4Addr>,
}

/// Sends requests until it is dropped.
#[derive(Debug)]
pub struct Prober {
    probes: Arc<Mutex<Vec<Probe>>>,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// From that machine, until its next boot.
    ///
    /// # Errors
    /// The machine does not run.
    pub fn start(machine: &Machine) -> Result<Self> {
        Self::start_in(&machine.network()?)
    }

    /// From that network.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start_in(network: &Network) -> Result<Self> {
        let (probes, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (sink, stopped) = (Arc::clone(&probes), Arc::clone(&stop));
        network.spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let at = Instant::now();
                let probe = Probe { at, seen: ask().unwrap_or_default() };
                sink.lock().unwrap_or_else(PoisonError::into_inner).push(probe);
                std::thread::sleep(EVERY.saturating_sub(at.elapsed()));
            }
            Ok(())
        })?;
        Ok(Self { probes, stop })
    }

    /// All requests so far.
    pub fn probes(&self) -> Vec<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last request.
    pub fn last(&self) -> Option<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).last().copied()
    }

    /// Waits until a request after `since` has the source address `expected` (`None`: until one has no response).
    ///
    /// # Errors
    /// The deadline has passed.
    pub async fn wait(&self, expected: Option<Ipv4Addr>, since: Instant, within: Duration) -> Result<Probe> {
        let end = Instant::now() + within;
        loop {
            let met = self.probes().into_iter().rev().take_while(|probe| probe.at >= since);
            if let Some(probe) = met.filter(|probe| probe.seen == expected).last() {
                return Ok(probe);
            }
            ensure!(
                Instant::now() < end,
                "after {within:?} still not seen as {expected:?}; the last was {:?}",
                self.last().map(|probe| probe.seen)
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The interruption before `first`: the time since the last reply before it, or since the first request, and the number of lost requests.
    pub fn gap_before(&self, first: &Probe) -> (Duration, usize) {
        let probes = self.probes();
        let before = probes.iter().rev().filter(|probe| probe.at < first.at);
        let lost: Vec<_> = before.clone().take_while(|probe| probe.seen.is_none()).collect();
        let last = before.clone().nth(lost.len()).or(lost.last().copied());
        (last.map_or(Duration::ZERO, |last| first.at.duration_since(last.at)), lost.len())
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// A new port each time, so that no conntrack entry exists for it.
fn ask() -> Result<Option<Ipv4Addr>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    socket.connect((HOST, ECHO))?;
    socket.send(b"?")?;
    let mut response = [0; 64];
    let length = socket.recv(&mut response)?;
    let text = String::from_utf8_lossy(response.get(..length).unwrap_or_default()).into_owned();
    Ok(text.parse().ok())
}
