//! The engine around the queue, under paused time.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use kube::Client;

use super::*;
use crate::metrics::Metrics;

fn runtime() -> Runtime {
    let service = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
    });
    let client = Client::new(service, "default");
    let metrics = Metrics::new("test").unwrap();
    Runtime::new(crate::program!(), client, "default".to_owned(), metrics, "pod".to_owned())
}

#[derive(Clone, Copy, Debug, thiserror::Error)]
enum Failure {
    #[error("it failed")]
    Failed,
    #[error("it is outdated")]
    Outdated,
}
use Failure::{Failed, Outdated};

/// Duration and result of one reconciliation, by its key and its number among the reconciliations of that key.
type Script = Arc<dyn Fn(&str, usize) -> (Duration, Result<Next, Failure>) + Send + Sync>;

/// Records what it is asked for. Its memo counts the reconciliations of a key.
#[derive(Clone)]
struct Recorder {
    script: Script,
    log: Arc<Mutex<Vec<(String, Instant)>>>,
    running: Arc<Mutex<BTreeMap<String, usize>>>,
    most: Arc<AtomicUsize>,
}

impl Recorder {
    fn new(
        script: impl Fn(&str, usize) -> (Duration, Result<Next, Failure>) + Send + Sync + 'static,
    ) -> Recorder {
        Recorder {
            script: Arc::new(script),
            log: Arc::default(),
            running: Arc::default(),
            most: Arc::default(),
        }
    }

    fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().iter().map(|(text, _)| text.clone()).collect()
    }

    async fn until(&self, count: usize) {
        let wait = async {
            while self.log.lock().unwrap().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(7200), wait).await.expect("the reconciliations");
    }
}

/// Counts what runs, also where its future is dropped.
struct Running<'a>(&'a Recorder, String);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap().get_mut(&self.1).unwrap() -= 1;
    }
}

impl Reconciler for Recorder {
    type Key = String;
    type Memo = usize;
    type Error = Failure;

    fn memo(&self, _: &String) -> usize {
        0
    }

    async fn reconcile(&self, key: &String, memo: &mut usize) -> Result<Next, Failure> {
        *memo += 1;
        let running = {
            let mut running = self.running.lock().unwrap();
            let of_key = running.entry(key.clone()).or_default();
            assert_eq!(*of_key, 0, "{key} is reconciled twice at once");
            *of_key += 1;
            running.values().sum()
        };
        let _running = Running(self, key.clone());
        self.most.fetch_max(running, Ordering::Relaxed);
        self.log.lock().unwrap().push((format!("{key}{memo}"), Instant::now()));
        let (takes, result) = (self.script)(key, *memo);
        tokio::time::sleep(takes).await;
        result
    }

    fn is_outdated(error: &Failure) -> bool {
        matches!(error, Outdated)
    }
}

fn text(runtime: &Runtime) -> String {
    String::from_utf8(runtime.metrics.text().unwrap()).unwrap()
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn workers_share_the_keys_and_the_metrics_count_them() {
    let (runtime, recorder) = (runtime(), Recorder::new(|_, _| (SECOND, Ok(Next::OnChange))));
    let controller = Controller::new(&runtime, "test", recorder.clone()).max_concurrent_reconciles(3);
    let queue = controller.queue();
    (0..10).for_each(|key| queue.add(format!("k{key}-")));
    queue.add("k0-".to_owned());
    let task = tokio::spawn(controller.run());
    recorder.until(10).await;
    assert_eq!(recorder.most.load(Ordering::Relaxed), 3);
    let busy = text(&runtime);
    for line in ["workqueue_unfinished_work_seconds{name=\"test\"} 0", "workqueue_depth{name=\"test\"} 0"] {
        assert!(busy.contains(line), "{line} is not in\n{busy}");
    }
    runtime.shutdown.cancel();
    task.await.unwrap().unwrap();
    let text = text(&runtime);
    for line in [
        "workqueue_adds_total{name=\"test\"} 10",
        "workqueue_queue_duration_seconds_count{name=\"test\"} 10",
        "workqueue_work_duration_seconds_count{name=\"test\"} 10",
        "workqueue_retries_total{name=\"test\"} 0",
        "workqueue_longest_running_processor_seconds{name=\"test\"} 0",
        "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 10",
        "controller_runtime_reconcile_total{controller=\"test\",result=\"error\"} 0",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_reconciliation_is_followed_by_another_one() {
    let (runtime, recorder) = (runtime(), Recorder::new(|_, _| (SECOND, Ok(Next::OnChange))));
    let controller = Controller::new(&runtime, "test", recorder.clone()).max_concurrent_reconciles(9);
    let queue = controller.queue();
    queue.add("a".to_owned());
    let _task = tokio::spawn(controller.run());
    recorder.until(1).await;
    queue.add("a".to_owned());
    queue.add("a".to_owned());
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(recorder.log(), ["a1", "a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_fails_comes_back_ever_later_and_a_key_that_asks_for_it_when_it_asks() {
    let script = |key: &str, _: usize| match key {
        "fails" => (Duration::ZERO, Err(Failed)),
        _ => (Duration::ZERO, Ok(Next::After(10 * SECOND))),
    };
    let (runtime, recorder) = (runtime(), Recorder::new(script));
    let backoff = Backoff { base: SECOND, max: 4 * SECOND };
    let controller = Controller::new(&runtime, "test", recorder.clone()).backoff(backoff);
    ["fails", "asks"].iter().for_each(|key| controller.queue().add((*key).to_owned()));
    let start = Instant::now();
    let _task = tokio::spawn(controller.run());
    recorder.until(9).await;
    let at = |name: &str| -> Vec<u64> {
        let log = recorder.log.lock().unwrap();
        log.iter().filter(|(key, _)| key.starts_with(name)).map(|(_, at)| (*at - start).as_secs()).collect()
    };
    assert_eq!(at("fails")[..6], [0, 1, 3, 7, 11, 15]);
    assert_eq!(at("asks")[..2], [0, 10]);
    assert!(text(&runtime).contains("controller_runtime_reconcile_errors_total{controller=\"test\"} "));
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_too_early_keeps_its_failures() {
    let script = |_: &str, count: usize| match count {
        2 => (Duration::ZERO, Ok(Next::NotYet(30 * SECOND))),
        _ => (Duration::ZERO, Err(Failed)),
    };
    let (runtime, recorder) = (runtime(), Recorder::new(script));
    let backoff = Backoff { base: SECOND, max: 1000 * SECOND };
    let controller = Controller::new(&runtime, "test", recorder.clone()).backoff(backoff);
    controller.queue().add("a".to_owned());
    let start = Instant::now();
    let _task = tokio::spawn(controller.run());
    recorder.until(4).await;
    let log = recorder.log.lock().unwrap();
    let at: Vec<u64> = log.iter().map(|(_, at)| (*at - start).as_secs()).collect();
    assert_eq!(at, [0, 1, 31, 33], "the second failure waits for two seconds");
}

/// The delays before the reconciliations of one key after its first one, in units of 100 ms, and the metrics at the end.
async fn delays(results: &'static [Result<Next, Failure>]) -> (Vec<u128>, String) {
    let script = |_: &str, count: usize| (Duration::ZERO, results.get(count - 1).copied().unwrap());
    let (runtime, recorder) = (runtime(), Recorder::new(script));
    let backoff = Backoff { base: SECOND, max: 60 * SECOND };
    let controller = Controller::new(&runtime, "test", recorder.clone()).backoff(backoff);
    controller.queue().add("a".to_owned());
    let task = tokio::spawn(controller.run());
    recorder.until(results.len()).await;
    runtime.shutdown.cancel();
    task.await.unwrap().unwrap();
    let log = recorder.log.lock().unwrap();
    let delays = log.windows(2).map(|two| (two[1].1 - two[0].1).as_millis() / 100).collect();
    (delays, text(&runtime))
}

#[tokio::test(start_paused = true)]
async fn an_outdated_key_comes_back_soon_and_becomes_a_failure_after_ten_in_a_row() {
    let (delays, text) = delays(&[Err(Outdated); 12]).await;
    assert_eq!(delays, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
    for line in [
        "controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 9",
        "controller_runtime_reconcile_total{controller=\"test\",result=\"error\"} 3",
        "controller_runtime_reconcile_errors_total{controller=\"test\"} 3",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_result_ends_a_row_of_outdated_ones_and_one_that_is_too_early_does_not() {
    let (after, _) =
        delays(&[Err(Outdated), Err(Outdated), Ok(Next::After(SECOND)), Err(Outdated), Err(Failed)]).await;
    assert_eq!(after, [2, 4, 10, 2]);
    let (failed, _) =
        delays(&[Err(Outdated), Err(Outdated), Err(Failed), Err(Outdated), Err(Failed), Err(Failed)]).await;
    assert_eq!(failed, [2, 4, 10, 2, 20], "its failures still count");
    let (early, _) =
        delays(&[Err(Outdated), Err(Outdated), Ok(Next::NotYet(SECOND)), Err(Outdated), Err(Failed)]).await;
    assert_eq!(early, [2, 4, 10, 8]);
}

/// A server's Retry-After is longer than the backoff.
#[tokio::test(start_paused = true)]
async fn the_reconciler_may_ask_for_another_delay_after_a_failure() {
    struct Patient(Recorder);
    impl Reconciler for Patient {
        type Key = String;
        type Memo = usize;
        type Error = Failure;
        fn memo(&self, key: &String) -> usize {
            self.0.memo(key)
        }
        async fn reconcile(&self, key: &String, memo: &mut usize) -> Result<Next, Failure> {
            self.0.reconcile(key, memo).await
        }
        fn retry_after(&self, memo: &mut usize, _: &Failure, backoff: Duration) -> Duration {
            assert_eq!(*memo, 1, "the memo of the failed key");
            backoff.max(60 * SECOND)
        }
    }
    let recorder =
        Recorder::new(|_, count| (Duration::ZERO, if count == 1 { Err(Failed) } else { Ok(Next::OnChange) }));
    let runtime = runtime();
    let controller = Controller::new(&runtime, "test", Patient(recorder.clone()));
    controller.queue().add("a".to_owned());
    let start = Instant::now();
    let _task = tokio::spawn(controller.run());
    recorder.until(2).await;
    assert_eq!(start.elapsed().as_secs(), 60);
}

#[tokio::test(start_paused = true)]
async fn the_memo_of_a_key_that_is_gone_is_dropped() {
    let script = |key: &str, _: usize| match key {
        "gone" => (Duration::ZERO, Ok(Next::Gone)),
        _ => (Duration::ZERO, Ok(Next::OnChange)),
    };
    let (runtime, recorder) = (runtime(), Recorder::new(script));
    let controller = Controller::new(&runtime, "test", recorder.clone());
    let queue = controller.queue();
    let _task = tokio::spawn(controller.run());
    for (key, count) in [("gone", 1), ("stays", 2), ("gone", 3), ("stays", 4)] {
        queue.add(key.to_owned());
        recorder.until(count).await;
    }
    assert_eq!(recorder.log(), ["gone1", "stays1", "gone1", "stays2"]);
}

#[tokio::test(start_paused = true)]
async fn on_shutdown_what_runs_is_finished_and_nothing_is_begun() {
    let (runtime, recorder) = (runtime(), Recorder::new(|_, _| (10 * SECOND, Ok(Next::After(SECOND)))));
    let controller = Controller::new(&runtime, "test", recorder.clone());
    ["a", "b"].iter().for_each(|key| controller.queue().add((*key).to_owned()));
    let task = tokio::spawn(controller.run());
    recorder.until(1).await;
    let start = Instant::now();
    runtime.shutdown.cancel();
    task.await.unwrap().unwrap();
    assert!(start.elapsed() > 9 * SECOND);
    assert_eq!(recorder.log(), ["a1"]);
    assert!(
        text(&runtime)
            .contains("controller_runtime_reconcile_total{controller=\"test\",result=\"success\"} 1")
    );
}

/// As when the lease is lost: what a reconciliation was doing may already be done by the next leader.
#[tokio::test(start_paused = true)]
async fn dropping_the_controller_ends_what_runs() {
    let (runtime, recorder) = (runtime(), Recorder::new(|_, _| (3600 * SECOND, Ok(Next::OnChange))));
    let controller = Controller::new(&runtime, "test", recorder.clone()).max_concurrent_reconciles(2);
    ["a", "b"].iter().for_each(|key| controller.queue().add((*key).to_owned()));
    tokio::select! {
        _ = controller.run() => panic!("it ended"),
        () = recorder.until(2) => {}
    }
    tokio::task::yield_now().await;
    assert!(recorder.running.lock().unwrap().values().all(|running| *running == 0), "{:?}", recorder.running);
    assert!(
        text(&runtime).contains("controller_runtime_reconcile_total{controller=\"test\",result=\"error\"} 2")
    );
}

#[tokio::test(start_paused = true)]
async fn once_reconciles_every_key_once_and_reports_the_first_failure() {
    let script = |key: &str, _: usize| match key {
        "a" => (SECOND, Err(Failed)),
        _ => (SECOND, Ok(Next::After(SECOND))),
    };
    let (runtime, recorder) = (runtime(), Recorder::new(script));
    let controller = Controller::new(&runtime, "test", recorder.clone());
    let queue = controller.queue();
    ["a", "b", "c"].iter().for_each(|key| queue.add((*key).to_owned()));
    // Its own write of a status is a change too.
    let (queue_of_task, watched) = (queue.clone(), recorder.clone());
    tokio::spawn(async move {
        watched.until(1).await;
        queue_of_task.add("a".to_owned());
    });
    let result = controller.once().await;
    assert_eq!(result.unwrap_err().to_string(), "it failed");
    assert_eq!(recorder.log(), ["a1", "b1", "c1"]);

    let recorder = Recorder::new(|_, _| (SECOND, Ok(Next::OnChange)));
    let controller = Controller::new(&runtime, "other", recorder.clone());
    controller.queue().add("a".to_owned());
    controller.once().await.unwrap();
    assert_eq!(recorder.log(), ["a1"]);

    let controller = Controller::new(&runtime, "outdated", Recorder::new(|_, _| (SECOND, Err(Outdated))));
    controller.queue().add("a".to_owned());
    assert_eq!(controller.once().await.unwrap_err().to_string(), "it is outdated", "no other one follows");
    assert!(text(&runtime).contains("controller_runtime_reconcile_errors_total{controller=\"outdated\"} 1"));
}

#[tokio::test(start_paused = true)]
async fn a_busy_or_idle_controller_sends_heartbeats() {
    let (runtime, recorder) = (runtime(), Recorder::new(|_, _| (3600 * SECOND, Ok(Next::OnChange))));
    let controller = Controller::new(&runtime, "test", recorder.clone());
    let queue = controller.queue();
    let _task = tokio::spawn(controller.run());
    for minutes in [1, 60] {
        tokio::time::sleep(minutes * 60 * SECOND).await;
        assert_eq!(runtime.status.heartbeats(true), [("test", None)], "idle");
    }
    queue.add("a".to_owned());
    tokio::time::sleep(1800 * SECOND).await;
    assert_eq!(runtime.status.heartbeats(true), [("test", None)], "one reconciliation lasts long");
    let busy = text(&runtime);
    assert!(busy.contains("workqueue_longest_running_processor_seconds{name=\"test\"} 1"), "{busy}");
}

#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_process_have_series_of_their_own_and_one_name_only_once() {
    let runtime = runtime();
    let make = |name| Controller::new(&runtime, name, Recorder::new(|_, _| (SECOND, Ok(Next::OnChange))));
    runtime.shutdown.cancel();
    make("one").run().await.unwrap();
    make("two").run().await.unwrap();
    let text = text(&runtime);
    for name in ["one", "two"] {
        assert!(text.contains(&format!("workqueue_adds_total{{name=\"{name}\"}} 0")), "{text}");
    }
    assert_eq!(text.matches("# TYPE workqueue_depth gauge").count(), 1);
    assert!(make("one").run().await.is_err());
}
