//! The requests through the proxy.

use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use anyhow::anyhow;
use bytes::Bytes;
use http::Method;
use tokio::sync::watch;

use super::call::Call;
use super::held;
use super::kube_request::KubeRequest;

/// Bodies are kept up to this size: larger than any object of the tests, small enough for tests of many writes.
const KEPT_BODY: usize = 64 * 1024;

/// A request and its response so far.
#[derive(Debug, Clone)]
pub struct Recorded {
    /// Its place in the order of arrival at this proxy, from 1.
    pub seq: u64,
    /// When it arrived.
    pub at: SystemTime,
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// The first 64 KiB of the body.
    pub body: Bytes,
    /// Its number, if it was counted as a write: its place among all writes of the counter.
    pub write: Option<u64>,
    /// It was sent to the server.
    pub forwarded: bool,
    /// The server's status.
    pub upstream_status: Option<u16>,
    /// The status that the controller got. None: none yet, or never (reset, cut, gave up).
    pub status: Option<u16>,
    /// The server could not be reached, and the controller's connection was reset.
    pub error: Option<String>,
    /// From its arrival to the head of the response.
    pub duration: Option<Duration>,
    started: Instant,
}

impl Recorded {
    /// The request to Kubernetes, if its path is that of a resource.
    pub fn kube(&self) -> Option<KubeRequest> {
        KubeRequest::parse(&self.method, &format!("{}?{}", self.path, self.query))
    }

    /// Whether the server has accepted it.
    pub fn is_accepted(&self) -> bool {
        self.upstream_status.is_some_and(|status| status < 300)
    }

    /// The body as JSON, if it is that.
    pub fn json(&self) -> Option<serde_json::Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// All requests of a proxy.
pub(super) struct Recorder {
    log: Mutex<Log>,
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct Log {
    last: u64,
    /// In the order of `seq`.
    requests: Vec<Recorded>,
}

impl Recorder {
    pub(super) fn new() -> Recorder {
        Recorder { log: Mutex::new(Log::default()), changed: watch::Sender::new(()) }
    }

    /// Records an arrival and returns its `seq`.
    pub(super) fn arrived(&self, call: &Call) -> u64 {
        let mut log = held(&self.log);
        log.last += 1;
        let seq = log.last;
        log.requests.push(Recorded {
            seq,
            at: SystemTime::now(),
            method: call.method.clone(),
            path: call.path.clone(),
            query: call.query.clone(),
            body: call.body.slice(..call.body.len().min(KEPT_BODY)),
            write: None,
            forwarded: false,
            upstream_status: None,
            status: None,
            error: None,
            duration: None,
            started: Instant::now(),
        });
        drop(log);
        self.changed.send_replace(());
        seq
    }

    /// Changes a record, unless it was forgotten.
    pub(super) fn update(&self, seq: u64, change: impl FnOnce(&mut Recorded)) {
        let mut log = held(&self.log);
        if let Ok(index) = log.requests.binary_search_by_key(&seq, |request| request.seq)
            && let Some(request) = log.requests.get_mut(index)
        {
            change(request);
        }
        drop(log);
        self.changed.send_replace(());
    }

    pub(super) fn responded(&self, seq: u64, status: u16) {
        self.update(seq, |request| {
            request.status = Some(status);
            request.duration = Some(request.started.elapsed());
        });
    }

    pub(super) fn all(&self) -> Vec<Recorded> {
        held(&self.log).requests.clone()
    }

    pub(super) fn writes(&self) -> Vec<Recorded> {
        let mut writes = self.all();
        writes.retain(|request| request.write.is_some());
        writes.sort_by_key(|request| request.write);
        writes
    }

    pub(super) fn clear(&self) {
        held(&self.log).requests.clear();
        self.changed.send_replace(());
    }

    pub(super) async fn wait_for<P>(&self, done: P, timeout: Duration) -> anyhow::Result<Vec<Recorded>>
    where
        P: Fn(&[Recorded]) -> bool,
    {
        let mut changed = self.changed.subscribe();
        let waiting = async {
            loop {
                let requests = self.all();
                if done(&requests) {
                    return requests;
                }
                // Fails only when the sender is gone, and it lives in self.
                let _ = changed.changed().await;
            }
        };
        tokio::time::timeout(timeout, waiting).await.map_err(|_| {
            let lines: Vec<String> = self
                .all()
                .iter()
                .map(|request| {
                    format!("{} {}?{}: {:?}", request.method, request.path, request.query, request.status)
                })
                .collect();
            anyhow!("no such request within {timeout:?}; seen:\n{}", lines.join("\n"))
        })
    }
}
