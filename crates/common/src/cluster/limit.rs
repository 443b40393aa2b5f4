//! A limit of requests, as client-go has it: a bucket of `burst` tokens, which gets `qps` tokens a second.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use http::Request;
use kube::client::Body;
use tokio::time::{Instant, sleep_until};
use tower::{BoxError, filter::AsyncFilterLayer};

use crate::args::RateLimit;

type Permitted = BoxFuture<'static, Result<Request<Body>, BoxError>>;

/// Holds requests back until they are within the limit, in the order in which they come.
pub(super) fn layer(limit: RateLimit) -> AsyncFilterLayer<impl Fn(Request<Body>) -> Permitted + Clone> {
    let bucket = Bucket::new(limit);
    AsyncFilterLayer::new(move |request| -> Permitted {
        let permit = bucket.permit();
        Box::pin(async move {
            sleep_until(permit).await;
            Ok(request)
        })
    })
}

#[derive(Clone)]
struct Bucket {
    interval: Duration,
    /// How far the time of a request may be behind the even distribution.
    tolerance: Duration,
    /// The time of the next request, if all were evenly distributed.
    next: Arc<Mutex<Instant>>,
}

impl Bucket {
    fn new(limit: RateLimit) -> Bucket {
        let interval = Duration::from_secs_f32(1.0 / limit.qps);
        let tolerance = interval.saturating_mul(limit.burst.get() - 1);
        Bucket { interval, tolerance, next: Arc::new(Mutex::new(Instant::now())) }
    }

    /// When the request of now may be sent.
    fn permit(&self) -> Instant {
        let now = Instant::now();
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = (*next).max(now);
        *next = permit + self.interval;
        permit.checked_sub(self.tolerance).unwrap_or(now).max(now)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn bucket(qps: f32, burst: u32) -> Bucket {
        Bucket::new(RateLimit { qps, burst: NonZeroU32::new(burst).unwrap() })
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_sent_at_once_and_the_rest_evenly() {
        let bucket = bucket(4.0, 3);
        let start = Instant::now();
        let permits: Vec<u128> = (0..6).map(|_| (bucket.permit() - start).as_millis()).collect();
        assert_eq!(permits, [0, 0, 0, 250, 500, 750]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_fills_the_bucket_and_no_more() {
        let bucket = bucket(4.0, 2);
        for _ in 0..4 {
            sleep_until(bucket.permit()).await;
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let start = Instant::now();
        let permits: Vec<u128> = (0..4).map(|_| (bucket.permit() - start).as_millis()).collect();
        assert_eq!(permits, [0, 0, 250, 500]);
    }
}
