//! A limit of requests, as client-go has it: a bucket of `burst` tokens, which gets `qps` tokens a second.

use std::time::Duration;

use futures::future::BoxFuture;
use http::Request;
use kube::client::Body;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tower::{BoxError, filter::AsyncFilterLayer};

use crate::args::RateLimit;

type Permitted = BoxFuture<'static, Result<Request<Body>, BoxError>>;

/// Holds requests back until they are within the limit, in the order in which they come. A request whose caller gives up before it is
/// sent takes no token. Must be called inside a tokio runtime.
pub(super) fn layer(limit: RateLimit) -> AsyncFilterLayer<impl Fn(Request<Body>) -> Permitted + Clone> {
    let queue = Queue::new(limit);
    AsyncFilterLayer::new(move |request| -> Permitted {
        let permit = queue.permit();
        Box::pin(async move {
            permit.await?;
            Ok(request)
        })
    })
}

/// The requests that wait for the limit.
#[derive(Clone)]
struct Queue(mpsc::UnboundedSender<Waiting>);

struct Waiting {
    since: Instant,
    /// Closed if the caller gives up.
    permit: oneshot::Sender<()>,
}

impl Queue {
    /// Its task ends with the last clone.
    fn new(limit: RateLimit) -> Queue {
        let (queue, requests) = mpsc::unbounded_channel();
        tokio::spawn(Bucket::new(limit).permit(requests));
        Queue(queue)
    }

    /// For one request, which is the last one of the queue now.
    fn permit(&self) -> oneshot::Receiver<()> {
        let (permit, permitted) = oneshot::channel();
        // Without its task, as at the end of the runtime, the caller gets an error from the receiver.
        let _ended = self.0.send(Waiting { since: Instant::now(), permit });
        permitted
    }
}

struct Bucket {
    interval: Duration,
    /// How far the time of a request may be behind the even distribution.
    tolerance: Duration,
    /// The time of the next request, if all were evenly distributed.
    next: Instant,
}

impl Bucket {
    fn new(limit: RateLimit) -> Bucket {
        let interval = Duration::from_secs_f32(1.0 / limit.qps.max(RateLimit::MIN_QPS));
        let tolerance = interval.saturating_mul(limit.burst.get() - 1);
        Bucket { interval, tolerance, next: Instant::now() }
    }

    /// Permits one request after the other.
    async fn permit(mut self, mut requests: mpsc::UnboundedReceiver<Waiting>) {
        while let Some(Waiting { since, mut permit }) = requests.recv().await {
            let even = self.next.max(since);
            let due = even.checked_sub(self.tolerance).unwrap_or(since);
            if due > Instant::now() {
                tokio::select! {
                    () = permit.closed() => continue,
                    () = sleep_until(due) => {}
                }
            }
            if permit.send(()).is_ok() {
                self.next = even + self.interval;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use futures::future::join_all;

    use super::*;

    fn queue(qps: f32, burst: u32) -> Queue {
        Queue::new(RateLimit { qps, burst: NonZeroU32::new(burst).unwrap() })
    }

    /// When so many requests of now are permitted, in milliseconds.
    async fn permits(queue: &Queue, count: usize) -> Vec<u128> {
        let start = Instant::now();
        let permits = (0..count).map(|_| {
            let permit = queue.permit();
            async move {
                permit.await.unwrap();
                start.elapsed().as_millis()
            }
        });
        join_all(permits).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_sent_at_once_and_the_rest_evenly() {
        assert_eq!(permits(&queue(4.0, 3), 6).await, [0, 0, 0, 250, 500, 750]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_fills_the_bucket_and_no_more() {
        let queue = queue(4.0, 2);
        permits(&queue, 4).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(permits(&queue, 4).await, [0, 0, 250, 500]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_caller_gives_up_does_not_delay_the_next_ones() {
        let queue = queue(1.0, 1);
        permits(&queue, 1).await;
        let start = Instant::now();
        let tries: Vec<_> = (0..3).map(|_| queue.permit()).collect();
        let write = queue.permit();
        // The first try waits for its time already.
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(tries);
        write.await.unwrap();
        assert_eq!(start.elapsed().as_millis(), 1000);
    }
}
