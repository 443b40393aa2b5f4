//! Runs the cases of a sweep on several stages at a time: a run waits for its next reconciliation most of the time.

use std::fmt::Debug;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use futures::future::join_all;

use crate::control_plane::ControlPlane;
use crate::program::Launch;
use crate::sweep::{Case, Failures, NeverHappened, Victim};

/// Cases for which a further stage is set up, which takes some seconds.
const CASES_PER_STAGE: usize = 3;

/// How often a case is run until it happens: the number of polls and status writes of a run depends on how fast it is.
const ATTEMPTS: usize = 3;

/// Plays the cases on `first` and on further stages from `set`. `run` gets a name of its own for each run; `recover` cleans up after
/// one that failed.
///
/// # Errors
/// As [`Failures::end`]; there is no case; a stage could not be set up.
pub async fn sweep_on_stages<S, Side: Copy + Debug>(
    first: S,
    set: impl AsyncFn() -> Result<S>,
    cases: Vec<Case<Side>>,
    run: impl AsyncFn(&S, &str, Case<Side>) -> Result<()>,
    recover: impl Fn(&S),
) -> Result<()> {
    ensure!(!cases.is_empty(), "a sweep without cases proves nothing");
    let count = cases.len();
    let stages = count.div_ceil(CASES_PER_STAGE).min(ControlPlane::most_reserved()?);
    let (cases, failures) = (Mutex::new((1..).zip(cases)), Mutex::new(Failures::default()));
    // API servers that start at the same time slow each other down by minutes.
    let setting = tokio::sync::Mutex::new(());
    let on_one = async |stage: Option<S>| {
        let stage = match stage {
            Some(stage) => stage,
            None => {
                let _alone = setting.lock().await;
                set().await?
            }
        };
        loop {
            let Some((number, case)) = locked(&cases).next() else { return anyhow::Ok(()) };
            let mut outcome = Ok(());
            for attempt in 1..=ATTEMPTS {
                outcome = run(&stage, &format!("run-{number}-{attempt}"), case).await;
                let Err(error) = &outcome else { break };
                recover(&stage);
                if !error.is::<NeverHappened>() {
                    break;
                }
            }
            match outcome {
                Ok(()) => println!("{number} of {count}: {case}: as undisturbed"),
                Err(error) => {
                    println!("{number} of {count}: {case}: {error:#}");
                    locked(&failures).add(case, &error);
                }
            }
        }
    };
    let more = (1..stages).map(|_| None);
    for ended in join_all(std::iter::once(Some(first)).chain(more).map(on_one)).await {
        ended?;
    }
    std::mem::take(&mut *locked(&failures)).end(count)
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Restarts the process when a stop has ended it.
///
/// # Errors
/// It ended in a case without a stop, or cannot be started.
pub async fn keep_running<Side: Debug>(victim: &Victim, launch: &Launch, case: &Case<Side>) -> Result<()> {
    loop {
        if let Some(lines) = victim.ended()? {
            if !matches!(case, Case::Stop { .. }) {
                bail!("deorbiter exited: {}", lines.join("\n"));
            }
            victim.start(launch)?;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
