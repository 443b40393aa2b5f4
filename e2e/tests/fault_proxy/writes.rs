//! Counting writes, and the three moments of one.

use std::sync::{Arc, Mutex};

use e2e::fault_proxy::{FaultProxy, Then, Upstream, When, WriteCounter};
use futures::FutureExt;
use futures::future::BoxFuture;
use http::Method;
use tokio::sync::oneshot;

use crate::fault_proxy::client::{ask, get, is_reset, post};
use crate::fault_proxy::server::Server;
use crate::fault_proxy::{TIMEOUT, env, soon};

/// An action that reports its start, and ends when the test sends its result.
fn paused() -> (impl FnOnce() -> BoxFuture<'static, Then> + Send, oneshot::Receiver<()>, oneshot::Sender<Then>)
{
    let (begin, begun) = oneshot::channel();
    let (end, ended) = oneshot::channel();
    let action = move || -> BoxFuture<'static, Then> {
        Box::pin(async move {
            begin.send(()).unwrap();
            ended.await.unwrap()
        })
    };
    (action, begun, end)
}

#[tokio::test]
async fn actions_of_a_write_run_at_their_moments() {
    for (when, acted, responded) in
        [(When::BeforeForward, 1, false), (When::AfterServerActed, 2, false), (When::AfterResponse, 2, true)]
    {
        let (server, proxy) = env().await;
        let (action, begun, end) = paused();
        let fired = proxy.on_write(2, when, action).unwrap();
        post(&proxy.url(), "/1").await.unwrap();
        let url = proxy.url();
        let second =
            tokio::spawn(async move { post(&url, "/2").await.map_err(|failure| failure.to_string()) });
        soon(begun).await.unwrap();
        assert_eq!(server.acted().len(), acted, "{when:?}");
        if responded {
            while !second.is_finished() {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(second.is_finished(), responded, "{when:?}");

        // A third write waits while the action runs; reads do not.
        let url = proxy.url();
        let third =
            tokio::spawn(async move { post(&url, "/3").await.map_err(|failure| failure.to_string()) });
        proxy.wait_for(|requests| requests.len() == 3, TIMEOUT).await.unwrap();
        get(&proxy.url(), "/").await.unwrap();
        assert_eq!(server.acted().len(), acted, "{when:?}");
        end.send(Then::GoOn).unwrap();
        let write = fired.wait(TIMEOUT).await.unwrap();
        assert_eq!((write.number, write.target.as_str()), (2, "/2"));
        soon(second).await.unwrap().unwrap();
        soon(third).await.unwrap().unwrap();
        assert_eq!(server.acted(), ["/1", "/2", "/3"]);
    }
}

#[tokio::test]
async fn cut_drops_writes_that_were_not_forwarded() {
    for (when, acted) in [(When::BeforeForward, 0), (When::AfterServerActed, 1)] {
        let (server, proxy) = env().await;
        let (action, begun, end) = paused();
        let fired = proxy.on_write(1, when, action).unwrap();
        let mut dying: Vec<_> = Vec::new();
        for number in 1..=4 {
            let url = proxy.url();
            dying.push(tokio::spawn(async move { post(&url, &format!("/{number}")).await }));
            proxy.wait_for(|requests| requests.len() == number, TIMEOUT).await.unwrap();
        }
        soon(begun).await.unwrap();
        end.send(Then::Cut).unwrap();
        fired.wait(TIMEOUT).await.unwrap();
        for dying in dying {
            let failure = soon(dying).await.unwrap().unwrap_err();
            assert!(is_reset(&failure), "{failure:?}");
        }
        post(&proxy.url(), "/after").await.unwrap();
        assert_eq!(server.acted().len(), acted + 1, "{when:?}");
        assert_eq!(proxy.counter().count(), 2);
    }
}

#[tokio::test]
async fn action_waits_for_the_writes_before_it() {
    let (server, proxy) = env().await;
    let fired = proxy.on_write(2, When::BeforeForward, || async { Then::GoOn }).unwrap();
    let url = proxy.url();
    let first = tokio::spawn(async move { post(&url, "/slow").await.map(|_| ()) });
    server.wait_seen(1).await;
    let url = proxy.url();
    let second = tokio::spawn(async move { post(&url, "/2").await.map(|_| ()) });
    proxy.wait_for(|requests| requests.len() == 2, TIMEOUT).await.unwrap();
    // The server has not responded to the first write yet, so the action of the second must not run.
    let mut fired = std::pin::pin!(fired.wait(TIMEOUT));
    get(&proxy.url(), "/").await.unwrap();
    assert!(fired.as_mut().now_or_never().is_none());
    server.respond_once();
    assert_eq!(fired.await.unwrap().target, "/2");
    soon(first).await.unwrap().unwrap();
    soon(second).await.unwrap().unwrap();
}

#[tokio::test]
async fn writes_without_actions_are_forwarded_concurrently() {
    let (server, proxy) = env().await;
    let url = proxy.url();
    let slow = tokio::spawn(async move { post(&url, "/slow").await.map(|_| ()) });
    server.wait_seen(1).await;
    post(&proxy.url(), "/fast").await.unwrap();
    server.respond_once();
    soon(slow).await.unwrap().unwrap();
}

#[tokio::test]
async fn leases_events_and_reviews_are_not_counted() {
    let (_server, proxy) = env().await;
    for uncounted in [
        "/apis/coordination.k8s.io/v1/namespaces/a/leases",
        "/apis/events.k8s.io/v1/namespaces/a/events",
        "/api/v1/namespaces/a/events",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ] {
        post(&proxy.url(), uncounted).await.unwrap();
    }
    get(&proxy.url(), "/api/v1/nodes").await.unwrap();
    assert_eq!(proxy.counter().count(), 0);
    for (number, method) in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].into_iter().enumerate()
    {
        ask(&proxy.url(), method, "/api/v1/nodes/n").await.unwrap();
        assert_eq!(proxy.counter().count(), number as u64 + 1);
    }
}

#[tokio::test]
async fn counter_orders_the_writes_to_two_servers() {
    let server = Server::start().await;
    let counter = WriteCounter::new();
    let kubernetes = FaultProxy::start_counted(Upstream::kubernetes(server.url()), &counter).await.unwrap();
    let hetzner = FaultProxy::start_counted(Upstream::hetzner(server.url()), &counter).await.unwrap();
    let log = Arc::new(Mutex::new(Vec::new()));
    for (n, when) in [(3, When::AfterServerActed), (2, When::BeforeForward), (2, When::AfterResponse)] {
        let log = log.clone();
        let action = move || async move {
            log.lock().unwrap().push((n, when));
            Then::GoOn
        };
        counter.on_write(n, when, action).unwrap();
    }
    post(&kubernetes.url(), "/k1").await.unwrap();
    post(&hetzner.url(), "/h2").await.unwrap();
    post(&kubernetes.url(), "/k3").await.unwrap();
    let expected = [(2, When::BeforeForward), (2, When::AfterResponse), (3, When::AfterServerActed)];
    assert_eq!(*log.lock().unwrap(), expected);
    assert_eq!(hetzner.writes()[0].write, Some(2));
    assert_eq!(kubernetes.writes().iter().map(|write| write.write).collect::<Vec<_>>(), [Some(1), Some(3)]);
}

#[tokio::test]
async fn action_that_cannot_happen_is_an_error() {
    let (_server, proxy) = env().await;
    proxy.on_write(0, When::BeforeForward, || async { Then::GoOn }).unwrap_err();
    let late = proxy.on_write(1, When::BeforeForward, || async { Then::GoOn }).unwrap();
    late.wait(std::time::Duration::from_millis(1)).await.unwrap_err();
    let forgotten = proxy.on_write(1, When::BeforeForward, || async { Then::GoOn }).unwrap();
    proxy.counter().forget_actions();
    let failure = forgotten.wait(TIMEOUT).await.unwrap_err();
    assert!(failure.to_string().contains("did not finish"), "{failure}");
}
