//! The shell against a Lease in memory, with a clock that stands still until all wait.

use super::*;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::json;

use super::super::{Leadership, run};

/// One Lease, its version, and how often it was written.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<Lease>>,
    writes: Mutex<Vec<(Instant, Record)>>,
}

impl Server {
    fn lease(&self) -> Lease {
        self.lease.lock().unwrap().clone().unwrap()
    }

    fn record(&self) -> Record {
        record_of(&self.lease())
    }

    fn respond(&self, method: &Method, body: &[u8]) -> (StatusCode, serde_json::Value) {
        let mut stored = self.lease.lock().unwrap();
        let status = |code: StatusCode| {
            let reason = if code == StatusCode::CONFLICT { "Conflict" } else { "NotFound" };
            let message = "not this time";
            (code, json!({"status": "Failure", "reason": reason, "message": message, "code": code.as_u16()}))
        };
        let current = stored.as_ref().map(|lease| lease.metadata.resource_version.clone());
        if method == Method::GET {
            return stored
                .as_ref()
                .map_or(status(StatusCode::NOT_FOUND), |lease| (StatusCode::OK, json!(lease)));
        }
        let mut lease: Lease = serde_json::from_slice(body).unwrap();
        let expected = (*method == Method::PUT).then(|| lease.metadata.resource_version.clone());
        if current != expected {
            return status(StatusCode::CONFLICT);
        }
        let mut writes = self.writes.lock().unwrap();
        writes.push((Instant::now(), record_of(&lease)));
        lease.metadata.resource_version = Some(writes.len().to_string());
        *stored = Some(lease.clone());
        (StatusCode::OK, json!(lease))
    }
}

/// A client that is cut off, without a response, once the second value is set.
fn client(server: &Arc<Server>) -> (kube::Client, Arc<AtomicBool>) {
    let (server, cut) = (server.clone(), Arc::new(AtomicBool::new(false)));
    let wire = cut.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (server, wire) = (server.clone(), wire.clone());
        async move {
            if wire.load(Ordering::SeqCst) {
                std::future::pending::<()>().await;
            }
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes();
            // Each call takes its time, so that the times of request and response differ.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let (code, body) = server.respond(&parts.method, &body);
            let body = Body::from(serde_json::to_vec(&body).unwrap());
            Ok::<_, kube::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    (kube::Client::new(service, "default"), cut)
}

struct Contender {
    leadership: Leadership,
    election: tokio::task::JoinHandle<Ended>,
    release: CancellationToken,
    cut: Arc<AtomicBool>,
    changes: Arc<Mutex<Vec<bool>>>,
}

impl Contender {
    /// Fails, and does not hang, when no contender becomes leader in a minute of the stopped clock.
    async fn leads(&self) {
        let acquired = tokio::time::timeout(Duration::from_secs(60), self.leadership.acquired()).await;
        assert_eq!(acquired, Ok(true));
    }
}

fn contender(server: &Arc<Server>, identity: &str) -> Contender {
    let (client, cut) = client(server);
    let (release, changes) = (CancellationToken::new(), Arc::<Mutex<Vec<bool>>>::default());
    let record = changes.clone();
    let on_change = move |leading| record.lock().unwrap().push(leading);
    let (leadership, election) =
        run(client, Settings::new("ns", "lease", identity), release.clone(), on_change).unwrap();
    Contender { leadership, election: tokio::spawn(election), release, cut, changes }
}

#[tokio::test(start_paused = true)]
async fn creates_the_lease_and_renews_it() {
    let server = Arc::default();
    let a = contender(&server, "a");
    a.leads().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(a.leadership.is_leading());
    assert_eq!(a.leadership.holder(), "a");
    let writes = server.writes.lock().unwrap().clone();
    assert!((28..=30).contains(&writes.len()), "one write each 2.05 s: {}", writes.len());
    assert!(writes.iter().all(|(_, record)| record.transitions == 0 && record.lease_duration_seconds == 15));
    assert!(writes.iter().all(|(_, record)| record.acquire_time == writes[0].1.acquire_time));
    assert!(writes.windows(2).all(|pair| pair[0].1.renew_time < pair[1].1.renew_time));
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_from_the_dead_and_keeps_what_is_not_its_own() {
    let server = Arc::<Server>::default();
    let a = contender(&server, "a");
    a.leads().await;
    let mut labelled = server.lease();
    labelled.metadata.labels = Some([("team".to_owned(), "edge".to_owned())].into());
    labelled.metadata.resource_version = Some("labelled".to_owned());
    *server.lease.lock().unwrap() = Some(labelled.clone());
    let b = contender(&server, "b");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!b.leadership.is_leading());
    assert_eq!(b.leadership.holder(), "a");

    a.election.abort();
    let died = server.writes.lock().unwrap().last().unwrap().0;
    b.leads().await;
    let (took, record) = server.writes.lock().unwrap().last().unwrap().clone();
    // The lease duration from the change that b saw, which was up to a try late; then a try; and calls of 50 ms.
    let wait = took - died;
    assert!(
        wait >= Duration::from_secs(15) && wait < Duration::from_millis(15_000 + 2 * 4_400 + 200),
        "{wait:?}"
    );
    assert_eq!((record.holder.as_str(), record.transitions), ("b", 1));
    assert_eq!(server.lease().metadata.labels, labelled.metadata.labels);
    assert!(!a.leadership.is_leading(), "its clock says so, though its task is gone");
}

#[tokio::test(start_paused = true)]
async fn a_release_lets_the_successor_in_at_its_next_try() {
    let server = Arc::<Server>::default();
    let a = contender(&server, "a");
    a.leads().await;
    let b = contender(&server, "b");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let asked = Instant::now();
    a.release.cancel();
    assert_eq!(a.election.await.unwrap(), Ended::Stopped);
    assert!(!a.leadership.is_leading());
    assert_eq!((server.record().holder.as_str(), server.record().lease_duration_seconds), ("", 1));
    b.leads().await;
    assert!(asked.elapsed() < Duration::from_millis(4_400 + 400), "{:?}", asked.elapsed());
    assert_eq!((server.record().holder.as_str(), server.record().transitions), ("b", 1));
    assert_eq!(*a.changes.lock().unwrap(), [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_steps_down_releases_the_lease_and_contends_again_after_the_pause() {
    let server = Arc::<Server>::default();
    let a = contender(&server, "a");
    a.leads().await;
    let b = contender(&server, "b");
    tokio::time::sleep(Duration::from_secs(10)).await;
    let start = Instant::now();
    a.leadership.step_down(Duration::from_secs(20)).await;
    assert!(!a.leadership.is_leading());
    b.leads().await;
    assert!(start.elapsed() < Duration::from_millis(4_400 + 400), "{:?}", start.elapsed());
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(!a.leadership.is_leading() && b.leadership.is_leading());
    b.release.cancel();
    b.election.await.unwrap();
    a.leads().await;
    assert_eq!(*a.changes.lock().unwrap(), [false, true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_steps_down_alone_leads_again_after_the_pause_and_not_before() {
    let server = Arc::<Server>::default();
    let a = contender(&server, "a");
    a.leads().await;
    let start = Instant::now();
    a.leadership.step_down(Duration::from_secs(20)).await;
    a.leads().await;
    assert!(start.elapsed() >= Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(server.record().holder, "a");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_pause_of_a_step_down() {
    let server = Arc::<Server>::default();
    let a = contender(&server, "a");
    a.leads().await;
    let start = Instant::now();
    a.leadership.step_down(Duration::from_secs(3600)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.record().holder, "", "released before the pause");
    a.release.cancel();
    assert_eq!(a.election.await.unwrap(), Ended::Stopped);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    assert!(!a.leadership.acquired().await);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_has_lost_ten_seconds_after_its_last_renewal_was_sent() {
    let server = Arc::<Server>::default();
    let a = contender(&server, "a");
    a.leads().await;
    tokio::time::sleep(Duration::from_secs(7)).await;
    a.cut.store(true, Ordering::SeqCst);
    let sent = server.writes.lock().unwrap().last().unwrap().0 - Duration::from_millis(50);
    assert_eq!(a.election.await.unwrap(), Ended::Lost);
    let led = Instant::now() - sent;
    assert!(led >= Duration::from_secs(10) && led < Duration::from_millis(10_010), "{led:?}");
    assert!(!a.leadership.is_leading());
    assert!(!a.leadership.acquired().await);
    assert_eq!(server.record().holder, "a", "what is lost is not released");
    assert_eq!(*a.changes.lock().unwrap(), [false, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_is_cut_off_stops_at_once_and_writes_nothing() {
    let server = Arc::<Server>::default();
    let a = contender(&server, "a");
    a.leads().await;
    let b = contender(&server, "b");
    tokio::time::sleep(Duration::from_secs(5)).await;
    b.cut.store(true, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let asked = Instant::now();
    b.release.cancel();
    assert_eq!(b.election.await.unwrap(), Ended::Stopped);
    assert!(asked.elapsed() < Duration::from_millis(10));
    assert!(server.writes.lock().unwrap().iter().all(|(_, record)| record.holder == "a"));
    assert_eq!(*b.changes.lock().unwrap(), [false]);
}

#[test]
fn a_lease_reads_back_as_the_record_that_was_written() {
    let record = Record { transitions: 3, ..Record::first("a", 15, wall()) };
    let lease = Lease { spec: Some(spec_of(&record)), ..Lease::default() };
    let lease: Lease = serde_json::from_value(json!(lease)).unwrap();
    assert_eq!(record_of(&lease), record);
    assert_eq!(record_of(&Lease::default()), Record::default());
}

#[derive(Debug, thiserror::Error)]
#[error("client error (Connect)")]
struct ConnectError(#[source] std::io::Error);

#[test]
fn a_failed_call_is_reported_with_its_cause() {
    let cause = ConnectError(std::io::Error::other("connection refused"));
    let fault = Fault::Call(kube::Error::Service(Box::new(cause)));
    assert_eq!(fault.to_string(), "client error (Connect): connection refused");
}
