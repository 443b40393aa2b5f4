//! A client that asks the Internet again and again as whom it is seen: each time a connection of its own.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::Machine;
use super::internet::{ECHO, HOST};

/// Between two questions: what a gap is measured in.
const EVERY: Duration = Duration::from_millis(20);
/// An answer takes less than a millisecond; this is for a busy machine.
const ANSWER: Duration = Duration::from_millis(100);
/// How often a condition is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// One question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Probe {
    /// When it was asked.
    pub at: Instant,
    /// The source address that the Internet saw; none: no answer.
    pub seen: Option<Ipv4Addr>,
}

/// Asks on and on. Dropped: silent.
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
        let (probes, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let (sink, stopped) = (Arc::clone(&probes), Arc::clone(&stop));
        machine.network()?.spawn(move || {
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

    /// All questions so far.
    pub fn probes(&self) -> Vec<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last question.
    pub fn last(&self) -> Option<Probe> {
        self.probes.lock().unwrap_or_else(PoisonError::into_inner).last().copied()
    }

    /// Waits until a question that was asked after `since` is answered, and seen as `expected` (`None`: until it is not
    /// answered).
    ///
    /// # Errors
    /// It is not so within that time.
    pub async fn wait(&self, expected: Option<Ipv4Addr>, since: Instant, within: Duration) -> Result<Probe> {
        let end = Instant::now() + within;
        loop {
            let met = self.probes().into_iter().rev().take_while(|probe| probe.at >= since);
            if let Some(probe) = met.filter(|probe| probe.seen == expected).last() {
                return Ok(probe);
            }
            ensure!(
                Instant::now() < end,
                "waited {within:?} in vain to be seen as {expected:?}; the last was {:?}",
                self.last().map(|probe| probe.seen)
            );
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// How long nobody was heard before `first`: from the last answer before it on, or from the first question; and how many
    /// questions were lost meanwhile.
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

/// A new port each time: nobody on the way has seen the connection before.
fn ask() -> Result<Option<Ipv4Addr>> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(ANSWER))?;
    socket.connect((HOST, ECHO))?;
    socket.send(b"?")?;
    let mut answer = [0; 64];
    let length = socket.recv(&mut answer)?;
    let text = String::from_utf8_lossy(answer.get(..length).unwrap_or_default()).into_owned();
    Ok(text.parse().ok())
}
