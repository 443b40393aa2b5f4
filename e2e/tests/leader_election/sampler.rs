//! The times at which each contender leads, sampled in real time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::leader::Leadership;

/// How often everybody is asked: short against the 400 ms in which anything happens here.
const EVERY: Duration = Duration::from_millis(1);

/// A time during which one contender said that it leads: from the first answer to the last, so never longer than the truth.
#[derive(Clone, Debug)]
pub struct Interval {
    pub who: String,
    pub from: Instant,
    pub to: Instant,
    open: bool,
}

/// Asks all contenders from a thread of its own, so that a busy runtime does not hide what they say.
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    contenders: Mutex<Vec<(String, Leadership)>>,
    intervals: Mutex<Vec<Interval>>,
    samples: Mutex<u64>,
    stop: AtomicBool,
}

impl Sampler {
    /// Samples no contender yet.
    pub fn start() -> Sampler {
        let shared = Arc::new(Shared::default());
        let samples = shared.clone();
        let thread = std::thread::spawn(move || {
            while !samples.stop.load(Ordering::Relaxed) {
                samples.sample();
                std::thread::sleep(EVERY);
            }
        });
        Sampler { shared, thread: Some(thread) }
    }

    /// Asks this one too, from now on.
    pub fn add(&self, who: &str, leadership: Leadership) {
        self.shared.contenders.lock().unwrap().push((who.to_owned(), leadership));
    }

    /// The intervals so far, in the order of their beginnings.
    pub fn intervals(&self) -> Vec<Interval> {
        self.shared.intervals.lock().unwrap().clone()
    }

    /// How often everybody was asked.
    pub fn samples(&self) -> u64 {
        *self.shared.samples.lock().unwrap()
    }

    /// No two intervals of different contenders have an instant in common. Returns a line that says what was seen.
    pub fn assert_never_two(&self) -> String {
        let intervals = self.intervals();
        for (number, one) in intervals.iter().enumerate() {
            for other in intervals.iter().skip(number + 1).filter(|other| other.who != one.who) {
                assert!(one.to < other.from || other.to < one.from, "two lead: {one:?} {other:?}");
            }
        }
        let led: Vec<String> = intervals
            .iter()
            .map(|each| format!("{} {:.1}s", each.who, each.to.duration_since(each.from).as_secs_f64()))
            .collect();
        format!("{} samples, led: {}", self.samples(), led.join(", "))
    }
}

impl Shared {
    fn sample(&self) {
        let contenders = self.contenders.lock().unwrap().clone();
        for (who, leadership) in contenders {
            let before = Instant::now();
            let leads = leadership.is_leading();
            let after = Instant::now();
            let mut intervals = self.intervals.lock().unwrap();
            match intervals.iter_mut().find(|each| each.open && each.who == who) {
                Some(open) if leads => open.to = before.max(open.from),
                Some(open) => open.open = false,
                None if leads => intervals.push(Interval { who, from: after, to: after, open: true }),
                None => {}
            }
        }
        *self.samples.lock().unwrap() += 1;
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
