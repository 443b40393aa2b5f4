//! The rate limit that a server reports.

use std::time::Duration;

use ::http::HeaderMap;

/// The `RateLimit-*` headers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// `RateLimit-Limit`: requests an hour. The bucket refills evenly: one request each 3600 s / limit.
    pub limit: u64,
    /// `RateLimit-Remaining`: requests that may be made at once.
    pub remaining: u64,
}

/// Hetzner's limit, for a response without the headers: 3600 requests an hour for a project.
const USUAL_LIMIT: u64 = 3600;

impl RateLimit {
    /// None unless both are there and are numbers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<RateLimit> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse().ok();
        Some(RateLimit { limit: number("ratelimit-limit")?, remaining: number("ratelimit-remaining")? })
    }

    /// How long to wait after an empty bucket until a request is allowed: one to two refills, because the bucket is shared with
    /// every other client of the project.
    #[must_use]
    pub fn refill(limit: Option<RateLimit>) -> Duration {
        let limit = limit.map_or(USUAL_LIMIT, |limit| limit.limit.max(1));
        Duration::from_secs_f64(3600.0 / limit as f64).mul_f64(1.0 + fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_headers_are_ignored() {
        let mut headers = HeaderMap::new();
        headers.insert("RateLimit-Limit", "3600".parse().unwrap());
        assert_eq!(RateLimit::of(&headers), None);
        headers.insert("RateLimit-Remaining", "17".parse().unwrap());
        assert_eq!(RateLimit::of(&headers), Some(RateLimit { limit: 3600, remaining: 17 }));
        headers.insert("RateLimit-Remaining", "many".parse().unwrap());
        assert_eq!(RateLimit::of(&headers), None);
    }

    #[test]
    fn a_refill_is_one_to_two_seconds_at_3600_requests_an_hour() {
        let limit = RateLimit { limit: 3600, remaining: 0 };
        for limit in [None, Some(limit)] {
            for _ in 0..100 {
                let wait = RateLimit::refill(limit).as_secs_f64();
                assert!((1.0..=2.0).contains(&wait), "{wait}");
            }
        }
        let slow = RateLimit { limit: 360, ..limit };
        assert!(RateLimit::refill(Some(slow)) >= Duration::from_secs(10));
        assert!(RateLimit::refill(Some(RateLimit { limit: 0, ..limit })) < Duration::from_secs(7201));
    }
}
