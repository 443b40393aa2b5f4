//! A sweep runs one scenario many times: undisturbed, then with the process stopped at each of its writes, and with each fault at
//! each of its calls. Every run must reach the end state of the undisturbed run.
//!
//! ```text
//!   Victim        the process under test, which a stop kills
//!   Case          the stop or the fault of one run, made from the counts of the undisturbed run
//!   Case::arm     puts it in place; Armed::happened is an error if it did not occur
//!   Slice         the part of the faults that `make test` runs; `make test-full` runs all
//!   sweep         runs the cases and collects the Failures
//! ```

use std::fmt;
use std::hash::Hasher as _;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, stream};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::fault_proxy::{
    EventFilter, Fate, Fault, FaultProxy, Matcher, Recorded, Reply, RuleId, Then, When, WriteCounter,
};
use crate::program::{Launch, Program};

/// Delay of a call: longer than a call takes, shorter than any deadline.
const LATE: Duration = Duration::from_millis(300);
/// Delay of a watch event: longer than a reconciliation.
const LATE_EVENT: Duration = Duration::from_millis(1_500);

/// Part `part` of `of` of the faults: those whose number modulo `of` is `part - 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    part: u64,
    of: u64,
}

impl Slice {
    /// The slice that `SWEEP` names: `all`, or `k/n`. If it is not set: one of `slices`, the same in each run of the test `test`.
    ///
    /// # Errors
    /// `SWEEP` is neither, or k is not between 1 and n.
    pub fn chosen(test: &str, slices: u64) -> Result<Slice> {
        let Some(asked) = std::env::var("SWEEP").ok().filter(|asked| !asked.is_empty()) else {
            return Ok(Slice { part: hash(test) % slices.max(1) + 1, of: slices.max(1) });
        };
        Slice::parse(&asked)
            .with_context(|| format!("SWEEP={asked} is neither `all` nor `k/n` with k from 1 to n"))
    }

    fn parse(asked: &str) -> Result<Slice> {
        if asked == "all" {
            return Ok(Slice { part: 1, of: 1 });
        }
        let (part, of) = asked.split_once('/').context("no slash")?;
        let slice = Slice { part: part.parse()?, of: of.parse()? };
        ensure!((1..=slice.of).contains(&slice.part), "out of range");
        Ok(slice)
    }

    /// Whether the slice is all faults.
    pub fn is_whole(self) -> bool {
        self.of == 1
    }

    /// When a process is stopped: before and after a write. In a slice only after it, because both leave the same state behind: a write
    /// that was done, and one that was not begun.
    pub fn stops(self) -> &'static [When] {
        if self.is_whole() {
            &[When::BeforeForward, When::AfterServerActed]
        } else {
            &[When::AfterServerActed]
        }
    }

    /// The items of the slice. The order of all items must be the same in each run.
    pub fn pick<T>(self, all: impl IntoIterator<Item = T>) -> Vec<T> {
        (0..).zip(all).filter(|(number, _)| self.has(*number)).map(|(_, item)| item).collect()
    }

    /// Whether it has the fault with this number.
    pub fn has(self, number: u64) -> bool {
        number % self.of == self.part - 1
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Slice { part, of } = self;
        if *of == 1 {
            return f.write_str("all faults");
        }
        write!(f, "slice {part} of {of} of the faults (SWEEP={part}/{of} repeats it, SWEEP=all runs all)")
    }
}

/// A fault of a call, or of an event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The connection is refused.
    Refused,
    /// The proxy responds with this status. The server does not get the call.
    Rejected(u16),
    /// 429 with `Retry-After`. The server does not get the call.
    TooMany,
    /// 404 with an HTML body, as from a load balancer. It does not mean that the object does not exist.
    NoSuchPage,
    /// The server acts; the response is replaced by one with this status.
    Replaced(u16),
    /// The server acts; the connection is reset without a response.
    Swallowed,
    /// The response ends after a few bytes.
    Cut,
    /// The call reaches the server late.
    LateRequest,
    /// The response is late.
    LateResponse,
    /// The event of a watch is late, and so are those after it.
    LateEvent,
    /// The watch ends instead of its event.
    WatchEnded,
    /// The watch ends with an expired resource version (410) instead of its event.
    WatchExpired,
}

/// The faults of a read from an API server.
pub const OF_READS: [Harm; 6] = [
    Harm::Refused,
    Harm::Rejected(500),
    Harm::Rejected(503),
    Harm::Rejected(403),
    Harm::Cut,
    Harm::LateResponse,
];

/// The faults of a write to an API server.
pub const OF_WRITES: [Harm; 11] = [
    Harm::Refused,
    Harm::Rejected(500),
    Harm::Rejected(503),
    Harm::Rejected(409),
    Harm::Rejected(403),
    Harm::Replaced(500),
    Harm::Replaced(504),
    Harm::Swallowed,
    Harm::Cut,
    Harm::LateRequest,
    Harm::LateResponse,
];

impl Harm {
    /// The fault of the proxy.
    ///
    /// # Errors
    /// The number is no HTTP status.
    pub fn fault(self) -> Result<Fault> {
        let reply = |status: u16| anyhow::Ok(Reply::status(StatusCode::from_u16(status)?));
        Ok(match self {
            Harm::Refused => Fault::Refuse,
            Harm::Rejected(status) => Fault::Reject(reply(status)?),
            Harm::TooMany => Fault::Reject(Reply::too_many_requests(1)),
            Harm::NoSuchPage => {
                let html = HeaderValue::from_static("text/html");
                Fault::Reject(reply(404)?.header(CONTENT_TYPE, html).body("<html>no such page</html>"))
            }
            Harm::Replaced(status) => Fault::Replace(reply(status)?),
            Harm::Swallowed => Fault::Swallow,
            Harm::Cut => Fault::CutResponse { after_bytes: 10 },
            Harm::LateRequest => Fault::DelayRequest(LATE),
            Harm::LateResponse => Fault::DelayResponse(LATE),
            Harm::LateEvent => Fault::Event(Fate::Delay(LATE_EVENT), EventFilter::all()),
            Harm::WatchEnded => Fault::end_watch(),
            Harm::WatchExpired => Fault::expire_watch(),
        })
    }
}

/// The requests to a server are counted by kind, so that writes get more faults than reads: whether the server has acted before a fault
/// makes no difference for a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// GET and HEAD.
    Read,
    /// POST, PUT, PATCH and DELETE.
    Write,
}

impl Kind {
    /// How many of these requests to a server are of each kind.
    pub fn count<Server: Copy>(server: Server, requests: &[Recorded]) -> [((Server, Kind), u64); 2] {
        let writes = requests.iter().filter(|request| !request.method.is_safe()).count();
        let reads = requests.len() - writes;
        [((server, Kind::Read), reads as u64), ((server, Kind::Write), writes as u64)]
    }

    /// The requests of this kind through the proxy, as the place of one fault.
    pub fn at(self, proxy: &FaultProxy) -> Place {
        let matcher = match self {
            Kind::Read => Matcher::reads(),
            Kind::Write => Matcher::writes(),
        };
        Place::new(proxy.clone(), matcher, 1)
    }
}

/// FNV-1a. Unlike the hashes of std, it is the same on every machine and with every compiler.
fn hash(text: &str) -> u64 {
    struct Fnv(u64);
    impl std::hash::Hasher for Fnv {
        fn finish(&self) -> u64 {
            self.0
        }
        fn write(&mut self, bytes: &[u8]) {
            for byte in bytes {
                self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
    }
    let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// The process under test. Clones are handles of the same process.
#[derive(Clone, Debug, Default)]
pub struct Victim(Arc<Mutex<Option<Arc<Program>>>>);

impl Victim {
    /// Starts it, in place of one that ran before.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, launch: &Launch) -> Result<()> {
        // Held meanwhile, so that a stop at its first write finds it.
        let mut held = self.held();
        *held = Some(Arc::new(launch.start()?));
        Ok(())
    }

    /// The process; `None` before the first start.
    #[must_use]
    pub fn program(&self) -> Option<Arc<Program>> {
        self.held().clone()
    }

    /// Its output, once it has ended; `None` while it runs.
    ///
    /// # Errors
    /// It was not started, or it panicked.
    pub fn ended(&self) -> Result<Option<Vec<String>>> {
        let program = self.program().context("it was not started")?;
        if program.exited()?.is_none() {
            return Ok(None);
        }
        let lines = program.output().lines();
        ensure!(!lines.iter().any(|line| line.contains("panicked")), "{}", lines.join("\n"));
        Ok(Some(lines))
    }

    /// Its output so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        self.program().map(|program| program.output().lines()).unwrap_or_default()
    }

    /// Kills it (SIGKILL) and waits until it is gone; nothing happens if it does not run.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&self) -> Result<()> {
        self.program().map_or(Ok(()), |program| program.kill().map(drop))
    }

    fn held(&self) -> MutexGuard<'_, Option<Arc<Program>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The calls at which a fault occurs: those through a proxy that match.
pub struct Place {
    proxy: FaultProxy,
    matcher: Matcher,
    times: u64,
}

impl From<FaultProxy> for Place {
    /// All calls through the proxy; the fault occurs once.
    fn from(proxy: FaultProxy) -> Place {
        Place::new(proxy, Matcher::any(), 1)
    }
}

impl Place {
    /// The calls that match. The fault occurs at so many of them, one after the other.
    pub fn new(proxy: FaultProxy, matcher: Matcher, times: u64) -> Place {
        Place { proxy, matcher, times }
    }
}

/// The stop or the fault of one run. `Side` names the servers that the process calls, or kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case<Side> {
    /// None.
    Undisturbed,
    /// The process is killed at its `write`th write, counted from 1 over all sides.
    Stop {
        /// Number of the write, from 1.
        write: u64,
        /// Before or after the server acts.
        when: When,
    },
    /// A fault at the `call`th call to a side, counted from 0.
    Fault {
        /// The server, or the kind of call.
        side: Side,
        /// Number of the call to the side, from 0.
        call: u64,
        /// The fault of the call.
        harm: Harm,
    },
}

impl<Side: fmt::Debug> fmt::Display for Case<Side> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Case::Undisturbed => f.write_str("undisturbed"),
            Case::Stop { write, when } => write!(f, "stopped at write {write}, {when:?}"),
            Case::Fault { side, call, harm } => write!(f, "{harm:?} at call {} to {side:?}", call + 1),
        }
    }
}

impl<Side: Copy> Case<Side> {
    /// A stop at each of `writes` writes, in each of the ways of `whens`.
    pub fn stops(writes: u64, whens: &[When]) -> Vec<Case<Side>> {
        let stops = whens.iter().flat_map(|&when| (1..=writes).map(move |write| Case::Stop { write, when }));
        stops.collect()
    }

    /// Each of `harms` at each of the calls to a side.
    pub fn faults(calls: &[(Side, u64)], harms: &[Harm]) -> Vec<Case<Side>> {
        let faults = calls.iter().flat_map(|&(side, count)| {
            (0..count).flat_map(move |call| harms.iter().map(move |&harm| Case::Fault { side, call, harm }))
        });
        faults.collect()
    }

    /// Puts the stop or the fault in place; writes and calls are counted from now on.
    ///
    /// # Errors
    /// A write is counted from 0.
    pub fn arm<P: Into<Place>>(
        self,
        writes: &WriteCounter,
        victim: &Victim,
        place: impl FnOnce(Side) -> P,
    ) -> Result<Armed> {
        Ok(match self {
            Case::Undisturbed => Armed::Nothing,
            Case::Stop { write, when } => {
                let (victim, stopped) = (victim.clone(), Arc::new(AtomicBool::new(false)));
                let stop = stopped.clone();
                // The handle that waits for the write is not needed: Armed::happened reports it at the end.
                let _ = writes.on_write(write, when, move || async move {
                    stop.store(victim.kill().is_ok(), Ordering::SeqCst);
                    Then::Cut
                })?;
                Armed::Stop { stopped, writes: writes.clone() }
            }
            Case::Fault { side, call, harm } => {
                let Place { proxy, matcher, times } = place(side).into();
                let rule = proxy.rule(matcher.after(call).times(times), harm.fault()?);
                Armed::Fault { proxy, rule }
            }
        })
    }
}

impl<Server: Copy> Case<(Server, Kind)> {
    /// Each fault of `of_reads` at each read, and of `of_writes` at each write.
    pub fn faults_by_kind(
        calls: &[((Server, Kind), u64)],
        of_reads: &[Harm],
        of_writes: &[Harm],
    ) -> Vec<Case<(Server, Kind)>> {
        let of = |kind: Kind| if kind == Kind::Read { of_reads } else { of_writes };
        calls.iter().flat_map(|call| Case::faults(&[*call], of(call.0.1))).collect()
    }
}

/// A [`Case`] that is in place.
#[must_use = "the test has to check that it happened"]
pub enum Armed {
    /// Nothing.
    Nothing,
    /// A stop.
    Stop {
        /// The process was stopped.
        stopped: Arc<AtomicBool>,
        /// Counts the writes.
        writes: WriteCounter,
    },
    /// A fault.
    Fault {
        /// Between the process and the side.
        proxy: FaultProxy,
        /// The fault.
        rule: RuleId,
    },
}

/// A case that did not occur: the run had no such write or call.
#[derive(Debug)]
pub struct NeverHappened;

impl fmt::Display for NeverHappened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it never happened: the run had no such write or call")
    }
}

impl std::error::Error for NeverHappened {}

impl Armed {
    /// Whether the stop or the fault has occurred so far.
    pub fn has_happened(&self) -> bool {
        match self {
            Armed::Nothing => true,
            Armed::Stop { stopped, .. } => stopped.load(Ordering::SeqCst),
            Armed::Fault { proxy, rule } => proxy.applied(*rule) > 0,
        }
    }

    /// Removes it.
    ///
    /// # Errors
    /// [`NeverHappened`].
    pub fn happened(self) -> Result<()> {
        let happened = self.has_happened();
        match self {
            Armed::Nothing => {}
            Armed::Stop { writes, .. } => writes.forget_actions(),
            Armed::Fault { proxy, rule } => {
                proxy.remove(rule);
            }
        }
        if happened { Ok(()) } else { bail!(NeverHappened) }
    }
}

/// Runs the cases one after the other; `recover` cleans up after a run that failed. A case that did not occur is run once more,
/// because the number of calls before a fault can differ by one where two of them are sent at once.
///
/// # Errors
/// As [`Failures::end`]; or there was no case at all.
pub async fn sweep<C: Copy + fmt::Display>(
    cases: &[C],
    run: impl AsyncFn(C) -> Result<()>,
    recover: impl Fn(),
) -> Result<()> {
    sweep_at_once(1, cases, run, recover).await
}

/// As [`sweep`], with several runs at a time.
///
/// # Errors
/// As [`sweep`].
pub async fn sweep_at_once<C: Copy + fmt::Display>(
    at_once: usize,
    cases: &[C],
    run: impl AsyncFn(C) -> Result<()>,
    recover: impl Fn(),
) -> Result<()> {
    ensure!(!cases.is_empty(), "a sweep without cases proves nothing");
    let (run, recover) = (&run, &recover);
    let runs = (1..).zip(cases).map(|(number, case)| async move {
        println!("{number} of {}: {case}", cases.len());
        let mut outcome = run(*case).await;
        if outcome.as_ref().is_err_and(|error| error.is::<NeverHappened>()) {
            recover();
            outcome = run(*case).await;
        }
        let error = outcome.err()?;
        println!("{case}: {error:#}");
        recover();
        Some((case, error))
    });
    let mut failures = Failures::default();
    let mut runs = pin!(stream::iter(runs).buffer_unordered(at_once));
    while let Some(failed) = runs.next().await {
        failed.into_iter().for_each(|(case, error)| failures.add(case, &error));
    }
    failures.end(cases.len())
}

/// The cases of a sweep that failed.
#[derive(Debug, Default)]
pub struct Failures {
    violations: Vec<String>,
    /// Cases that did not occur.
    absent: Vec<String>,
}

impl Failures {
    /// Of this many cases, one need not occur: a slow run polls more often and writes its status more often than a fast
    /// one, so a fast one does not have the last reads and writes of the run in which they were counted.
    const MAY_BE_ABSENT: usize = 20;

    /// A case failed.
    pub fn add(&mut self, case: impl fmt::Display, error: &anyhow::Error) {
        let kind = if error.is::<NeverHappened>() { &mut self.absent } else { &mut self.violations };
        kind.push(format!("{case}: {error:#}"));
    }

    /// All cases have been run.
    ///
    /// # Errors
    /// All violations; with the cases that did not occur, where these are more than chance explains.
    pub fn end(self, cases: usize) -> Result<()> {
        let Failures { mut violations, absent } = self;
        println!("{cases} runs, {} did not occur, {} violations", absent.len(), violations.len());
        if absent.len() > cases / Self::MAY_BE_ABSENT {
            violations.extend(absent);
        }
        ensure!(violations.is_empty(), "{}", violations.join("\n"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn each_item_is_in_exactly_one_slice() {
        let parts: Vec<Slice> = (1..=7).map(|part| Slice::parse(&format!("{part}/7")).unwrap()).collect();
        for number in 0..100 {
            assert_eq!(parts.iter().filter(|part| part.has(number)).count(), 1);
            assert!(Slice::parse("all").unwrap().has(number));
        }
    }

    #[test]
    fn the_hash_of_the_tests_name_is_fnv_1a() {
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c, "FNV-1a's own test vector");
    }

    #[test]
    fn every_stop_and_every_fault_is_a_case_and_each_is_in_one_slice() {
        let all = Slice::parse("all").unwrap();
        assert_eq!(Case::<char>::stops(2, all.stops()).len(), 2 * 2);
        let faults = Case::faults(&[('a', 3), ('b', 1)], &[Harm::Refused, Harm::Cut]);
        assert_eq!(all.pick(faults.clone()).len(), (3 + 1) * 2);
        let parts = (1..=3).map(|part| Slice { part, of: 3 }).map(|slice| slice.pick(faults.clone()).len());
        assert_eq!(parts.sum::<usize>(), 8);
        assert_eq!(Case::<char>::stops(2, Slice { part: 1, of: 3 }.stops()).len(), 2);
    }

    #[tokio::test]
    async fn case_that_never_happens_is_run_twice_and_fails_the_sweep() {
        let case: Case<char> = Case::Stop { write: 1, when: When::BeforeForward };
        let runs = std::sync::atomic::AtomicU64::new(0);
        let run = async |case: Case<char>| {
            runs.fetch_add(1, Ordering::SeqCst);
            let armed = case.arm(&WriteCounter::new(), &Victim::default(), |_| -> FaultProxy {
                unreachable!("no fault")
            })?;
            armed.happened()
        };
        let error = sweep(&[case], run, || ()).await.unwrap_err();
        assert!(error.to_string().contains("never happened"), "{error}");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert!(sweep::<Case<char>>(&[], async |_| Ok(()), || ()).await.is_err());
    }

    #[test]
    fn invalid_value_of_sweep_is_refused() {
        for wrong in ["", "1", "0/3", "4/3", "1/0", "a/b", "All"] {
            assert!(Slice::parse(wrong).is_err(), "{wrong}");
        }
    }
}
