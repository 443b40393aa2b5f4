//! The work queue of the per-key controllers with 100,000 keys: each is added, processed, fails once and is retried after its
//! backoff, as at the start of a controller whose cloud is down.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use common::cache::ObjectKey;
use common::controller::queue::{RateLimiter, WorkQueue};

use crate::machine::Memory;
use crate::report::{Bench, count, mebibytes, microseconds, milliseconds};

const KEYS: usize = 100_000;
/// Queues, one after another.
const RUNS: usize = 7;

pub(crate) fn measure() -> Result<String> {
    let mut bench = Bench::begin(std::env::current_exe()?, Vec::new())?;
    let name = |key: usize| ObjectKey::new(&format!("team-{}", key % 100), &format!("object-{key:06}"));
    let keys: Vec<ObjectKey> = (0..KEYS).map(name).collect();
    let (mut times, mut memory) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let before = Memory::of(std::process::id())?.anonymous;
        let (began, now) = (Instant::now(), tokio::time::Instant::now());
        let mut queue = WorkQueue::new(RateLimiter { per_second: f64::INFINITY, ..RateLimiter::default() });
        keys.iter().for_each(|key| queue.add(key.clone(), now));
        while let Some((key, _)) = queue.get(now) {
            let delay = queue.backoff(key.clone(), now);
            queue.requeue_after(key.clone(), delay, now);
            queue.done(&key, now);
        }
        let failed = began.elapsed();
        memory.push(Memory::of(std::process::id())?.anonymous.saturating_sub(before));
        let (began, later, mut processed) = (Instant::now(), now + Duration::from_secs(1), 0);
        while let Some((key, _)) = queue.get(later) {
            queue.forget(&key);
            queue.done(&key, later);
            processed += 1;
        }
        times.push(failed + began.elapsed());
        ensure!(processed == KEYS, "{processed} of {KEYS} keys were retried");
    }
    // The allocator keeps what the first queue has given back, so only this one grows the process by all that it takes.
    let memory = memory.first().copied().unwrap_or_default();
    bench
        .row(format!("{KEYS} keys, twice each: time"), "", milliseconds(times.clone()))
        .means("Each key is added, processed, fails, waits for its backoff, is processed again and succeeds");
    let each = times.iter().map(|time| time.as_secs_f64() * 1e6 / (2 * KEYS) as f64);
    bench.row("One key, once: time", "", microseconds(each)).means("The part of one key and one attempt");
    bench
        .row(format!("{KEYS} keys: memory"), "", mebibytes([memory]))
        .means("While all keys wait for their backoff; without the keys' own text, which the caches share");
    bench.row("One key: bytes", "", count([memory as f64 / KEYS as f64])).means("The part of one key");
    bench.end("one thread")?;
    Ok(bench.to_string())
}
