//! A sweep plays one scenario again and again: undisturbed, then with the process stopped at each of its writes, and with each fault
//! at each of its calls. Every run must come to the end of the undisturbed one.
//!
//! ```text
//!   Victim        the process under test, which a stop kills
//!   Case          what is put in the way of one run; Case::all counts them from the calls of the undisturbed run
//!   Case::arm     puts it there; Armed::happened is an error if it never came
//!   Slice         which of the faults `make test` takes; `make test-full` takes all
//!   sweep         runs the cases and collects the violations
//! ```

use std::fmt;
use std::hash::Hasher as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};

use crate::fault_proxy::{Answer, Fault, FaultProxy, Matcher, RuleId, Then, When, WriteCounter};
use crate::program::{Launch, Program};

/// Late by this much: longer than a call, shorter than any deadline.
const LATE: Duration = Duration::from_millis(300);

/// Part `part` of `of` of the faults: every so manyth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    part: u64,
    of: u64,
}

impl Slice {
    /// What `SWEEP` asks for: `all`, or `k/n`; where it is not set, one of `slices`, always the same for a test of that name.
    ///
    /// # Errors
    /// `SWEEP` is neither, or k is not 1 to n.
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

    /// Whether it has the fault with this number, of all that there are in an order that stays.
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

/// What can happen to a call, to whomever it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// The connection is.
    Refused,
    /// With this status; the server never hears of the call.
    Rejected(u16),
    /// 429 that names a time.
    TooMany,
    /// 404 of somebody on the way, which says nothing about the object.
    NoSuchPage,
    /// The server has acted; the answer has this status.
    Replaced(u16),
    /// The server has acted, and nothing is answered.
    Swallowed,
    /// The answer ends after a few bytes.
    Cut,
    /// The server hears of the call late.
    LateRequest,
    /// The answer comes late.
    LateAnswer,
}

impl Harm {
    /// # Errors
    /// The number is no HTTP status.
    pub fn fault(self) -> Result<Fault> {
        let answer = |status: u16| anyhow::Ok(Answer::status(StatusCode::from_u16(status)?));
        Ok(match self {
            Harm::Refused => Fault::Refuse,
            Harm::Rejected(status) => Fault::Reject(answer(status)?),
            Harm::TooMany => Fault::Reject(Answer::too_many_requests(1)),
            Harm::NoSuchPage => {
                let html = HeaderValue::from_static("text/html");
                Fault::Reject(answer(404)?.header(CONTENT_TYPE, html).body("<html>no such page</html>"))
            }
            Harm::Replaced(status) => Fault::Replace(answer(status)?),
            Harm::Swallowed => Fault::Swallow,
            Harm::Cut => Fault::CutResponse { after_bytes: 10 },
            Harm::LateRequest => Fault::DelayRequest(LATE),
            Harm::LateAnswer => Fault::DelayResponse(LATE),
        })
    }
}

/// FNV-1a: the same number on every machine and with every compiler, which std's own hashes do not promise.
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

/// The process under test. Clones are the same one.
#[derive(Clone, Debug, Default)]
pub struct Victim(Arc<Mutex<Option<Program>>>);

impl Victim {
    /// Starts it, in place of one that ran before.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(&self, launch: &Launch) -> Result<()> {
        let program = launch.start()?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(program);
        Ok(())
    }

    /// What it has written, once it has ended; `None` while it runs.
    ///
    /// # Errors
    /// It was not started, or it panicked.
    pub fn ended(&self) -> Result<Option<Vec<String>>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let program = held.as_ref().context("it was not started")?;
        if program.exited()?.is_none() {
            return Ok(None);
        }
        let lines = program.output().lines();
        ensure!(!lines.iter().any(|line| line.contains("panicked")), "{}", lines.join("\n"));
        Ok(Some(lines))
    }

    /// What it has written so far.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map(|program| program.output().lines()).unwrap_or_default()
    }

    /// Kills it (SIGKILL); nothing happens if it does not run.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn kill(&self) -> Result<()> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().map_or(Ok(()), |program| program.kill().map(drop))
    }
}

/// What is put in the way of one run. `Side` names the servers that the process calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case<Side> {
    /// Nothing.
    Undisturbed,
    /// The process is killed at its `write`th write, counted from 1 over all sides.
    Stop {
        /// Which write.
        write: u64,
        /// Before or after the server acts.
        when: When,
    },
    /// A fault at the `call`th call to a side, counted from 0.
    Fault {
        /// Which server.
        side: Side,
        /// Which call.
        call: u64,
        /// What happens to it.
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
    /// A stop at each of `writes` writes in each of the ways of `whens`, then the slice of all faults: each of `harms` at each of
    /// the calls to a side.
    pub fn all(
        writes: u64,
        whens: &[When],
        calls: &[(Side, u64)],
        harms: &[Harm],
        slice: Slice,
    ) -> Vec<Case<Side>> {
        let stops = whens.iter().flat_map(|&when| (1..=writes).map(move |write| Case::Stop { write, when }));
        let faults = calls.iter().flat_map(|&(side, count)| {
            (0..count).flat_map(move |call| harms.iter().map(move |&harm| Case::Fault { side, call, harm }))
        });
        stops
            .chain((0..).zip(faults).filter(|(number, _)| slice.has(*number)).map(|(_, case)| case))
            .collect()
    }

    /// Puts it in the way of what happens from now on.
    ///
    /// # Errors
    /// A write is counted from 0.
    pub fn arm(
        self,
        writes: &WriteCounter,
        victim: &Victim,
        proxy: impl FnOnce(Side) -> FaultProxy,
    ) -> Result<Armed> {
        Ok(match self {
            Case::Undisturbed => Armed::Nothing,
            Case::Stop { write, when } => {
                let (victim, stopped) = (victim.clone(), Arc::new(AtomicBool::new(false)));
                let stop = stopped.clone();
                // What tells the waiting side is of no use here: whether it happened is asked at the end.
                let _ = writes.on_write(write, when, move || async move {
                    stop.store(victim.kill().is_ok(), Ordering::SeqCst);
                    Then::Cut
                })?;
                Armed::Stop { stopped, writes: writes.clone() }
            }
            Case::Fault { side, call, harm } => {
                let proxy = proxy(side);
                let rule = proxy.rule(Matcher::any().after(call).times(1), harm.fault()?);
                Armed::Fault { proxy, rule }
            }
        })
    }
}

/// A [`Case`] that is in force.
#[must_use = "whether it happened has to be asked"]
pub enum Armed {
    /// Nothing is.
    Nothing,
    /// A stop.
    Stop {
        /// It was stopped.
        stopped: Arc<AtomicBool>,
        /// Whose writes are counted.
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

/// A case that never came about: the run had no such write or call.
#[derive(Debug)]
pub struct NeverHappened;

impl fmt::Display for NeverHappened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it never happened: the run had no such write or call")
    }
}

impl std::error::Error for NeverHappened {}

impl Armed {
    /// Takes it out of the way.
    ///
    /// # Errors
    /// [`NeverHappened`].
    pub fn happened(self) -> Result<()> {
        let happened = match self {
            Armed::Nothing => true,
            Armed::Stop { stopped, writes } => {
                writes.forget_actions();
                stopped.load(Ordering::SeqCst)
            }
            Armed::Fault { proxy, rule } => {
                let applied = proxy.applied(rule);
                proxy.remove(rule);
                applied > 0
            }
        };
        if happened { Ok(()) } else { bail!(NeverHappened) }
    }
}

/// Runs the cases one after the other; `recover` cleans up after a run that failed. A case that did not come about is run once more:
/// the number of calls before a fault can differ by one where two of them go out at once.
///
/// # Errors
/// Every violation, a case that never came about among them; or there was no case at all.
pub async fn sweep<Side: Copy + fmt::Debug>(
    cases: &[Case<Side>],
    run: impl AsyncFn(Case<Side>) -> Result<()>,
    recover: impl Fn(),
) -> Result<()> {
    ensure!(!cases.is_empty(), "a sweep without cases proves nothing");
    let mut violations = Vec::new();
    for (number, case) in (1..).zip(cases) {
        println!("{number} of {}: {case}", cases.len());
        let mut outcome = run(*case).await;
        if outcome.as_ref().is_err_and(|error| error.is::<NeverHappened>()) {
            recover();
            outcome = run(*case).await;
        }
        if let Err(error) = outcome {
            println!("violation: {error:#}");
            violations.push(format!("{case}: {error:#}"));
            recover();
        }
    }
    println!("{} runs, {} violations", cases.len(), violations.len());
    ensure!(violations.is_empty(), "{}", violations.join("\n"));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn the_parts_are_the_whole_and_share_nothing() {
        let parts: Vec<Slice> = (1..=7).map(|part| Slice::parse(&format!("{part}/7")).unwrap()).collect();
        for number in 0..100 {
            assert_eq!(parts.iter().filter(|part| part.has(number)).count(), 1);
            assert!(Slice::parse("all").unwrap().has(number));
        }
    }

    #[test]
    fn a_slice_depends_on_the_tests_name_alone() {
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c, "FNV-1a's own test vector");
    }

    #[test]
    fn cases_are_all_stops_and_the_slices_faults() {
        let all = Slice::parse("all").unwrap();
        let cases = |slice| {
            Case::all(
                2,
                &[When::BeforeForward, When::AfterServerActed],
                &[('a', 3), ('b', 1)],
                &[Harm::Refused, Harm::Cut],
                slice,
            )
        };
        assert_eq!(cases(all).len(), 2 * 2 + (3 + 1) * 2);
        let parts: usize = (1..=3).map(|part| cases(Slice { part, of: 3 }).len() - 4).sum();
        assert_eq!(parts, 8, "each fault is in one slice");
    }

    #[tokio::test]
    async fn a_case_that_never_happens_fails_the_sweep() {
        let case: Case<char> = Case::Stop { write: 1, when: When::BeforeForward };
        let runs = std::sync::atomic::AtomicU64::new(0);
        let run = async |case: Case<char>| {
            runs.fetch_add(1, Ordering::SeqCst);
            let armed = case.arm(&WriteCounter::new(), &Victim::default(), |_| unreachable!("no fault"))?;
            armed.happened()
        };
        let error = sweep(&[case], run, || ()).await.unwrap_err();
        assert!(error.to_string().contains("never happened"), "{error}");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        assert!(sweep::<char>(&[], async |_| Ok(()), || ()).await.is_err());
    }

    #[test]
    fn what_is_no_part_is_refused() {
        for wrong in ["", "1", "0/3", "4/3", "1/0", "a/b", "All"] {
            assert!(Slice::parse(wrong).is_err(), "{wrong}");
        }
    }
}
