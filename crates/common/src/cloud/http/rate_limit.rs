//! The rate limit that a server reports.

use std::time::Duration;

use ::http::HeaderMap;

/// The `RateLimit-*` headers of the last response that had them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// `RateLimit-Limit`: requests an hour. The bucket refills evenly: one request each 3600 s / limit.
    pub limit: u64,
    /// `RateLimit-Remaining`: requests that may be made at once.
    pub remaining: u64,
    /// `RateLimit-Reset`: the Unix time in seconds when the bucket is full again, not when the next request is allowed.
    pub full_at: u64,
}

/// Hetzner's limit, for a response without the headers: 3600 requests an hour for a project.
const USUAL_LIMIT: u64 = 3600;

impl RateLimit {
    /// None unless all three are there and are numbers.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<RateLimit> {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse().ok();
        Some(RateLimit {
            limit: number("ratelimit-limit")?,
            remaining: number("ratelimit-remaining")?,
            full_at: number("ratelimit-reset")?,
        })
    }

    /// How long to wait after an empty bucket until `need` requests are allowed: one to two refills for each, because the
    /// bucket is shared with every other client of the project.
    #[must_use]
    pub fn refill(limit: Option<RateLimit>, need: u32) -> Duration {
        let limit = limit.map_or(USUAL_LIMIT, |limit| limit.limit.max(1));
        Duration::from_secs_f64(3600.0 / limit as f64).mul_f64(f64::from(need) * (1.0 + fastrand::f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn incomplete_headers_are_ignored() {
        let mut headers = HeaderMap::new();
        headers.insert("RateLimit-Limit", "3600".parse().unwrap());
        headers.insert("RateLimit-Remaining", "17".parse().unwrap());
        assert_eq!(RateLimit::of(&headers), None);
        headers.insert("RateLimit-Reset", "1731011315".parse().unwrap());
        let limit = RateLimit { limit: 3600, remaining: 17, full_at: 1_731_011_315 };
        assert_eq!(RateLimit::of(&headers), Some(limit));
        headers.insert("RateLimit-Remaining", "many".parse().unwrap());
        assert_eq!(RateLimit::of(&headers), None);
    }

    #[test]
    fn a_refill_is_one_to_two_seconds_for_each_request_of_3600_an_hour() {
        let limit = RateLimit { limit: 3600, remaining: 0, full_at: 0 };
        for limit in [None, Some(limit)] {
            for _ in 0..100 {
                let wait = RateLimit::refill(limit, 3).as_secs_f64();
                assert!((3.0..=6.0).contains(&wait), "{wait}");
            }
        }
        let slow = RateLimit { limit: 360, ..limit };
        assert!(RateLimit::refill(Some(slow), 1) >= Duration::from_secs(10));
        assert!(RateLimit::refill(Some(RateLimit { limit: 0, ..limit }), 1) < Duration::from_secs(7201));
    }
}
