//! `cargo run --release -p common --features runtime --example workqueue`: what the work queue costs with 100,000 keys. Each
//! key is added, processed, fails once and comes back after its delay, as at the start of a controller whose cloud is away.

use std::time::{Duration, Instant};

use common::{
    cache::ObjectKey,
    controller::queue::{Backoff, WorkQueue},
};

const KEYS: usize = 100_000;

/// Resident memory in bytes; 0 where there is no /proc.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<usize>().ok());
    pages.unwrap_or(0) * 4096
}

fn main() {
    let before = resident();
    let keys: Vec<ObjectKey> = (0..KEYS)
        .map(|key| ObjectKey::new(&format!("team-{}", key % 100), &format!("object-{key:06}")))
        .collect();
    let of_keys = resident() - before;
    let start = Instant::now();
    let now = tokio::time::Instant::now();
    let mut queue = WorkQueue::new(Backoff { per_second: f64::INFINITY, ..Backoff::default() });
    keys.iter().for_each(|key| queue.add(key.clone(), now));
    while let Some((key, _)) = queue.get(now) {
        queue.add_rate_limited(key.clone(), now);
        queue.done(&key, now);
    }
    let full = resident() - before - of_keys;
    let later = now + Duration::from_secs(1);
    let mut processed = 0;
    while let Some((key, _)) = queue.get(later) {
        queue.forget(&key);
        queue.done(&key, later);
        processed += 1;
    }
    let took = start.elapsed();
    assert_eq!(processed, KEYS, "no key is lost");
    println!(
        "work queue, {KEYS} keys twice: {:.0} ms, {:.2} µs a key; {:.1} MiB while all are delayed, {} bytes a key",
        took.as_secs_f64() * 1e3,
        took.as_secs_f64() * 1e6 / (2 * KEYS) as f64,
        full as f64 / f64::from(1 << 20),
        full / KEYS
    );
}
