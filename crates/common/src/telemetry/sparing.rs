//! A filter for what the exporter of the traces says: it would complain every five seconds for as long as its collector is
//! away, and traces are a courtesy.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// As often as a person who follows the log wants to be reminded.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Lets each event of OpenTelemetry's crates through once in [`AGAIN_AFTER`], and everything else always.
#[derive(Debug, Default)]
pub(super) struct Sparing {
    /// By name: those crates give each of their events one.
    said: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Sparing {
    fn allows(&self, target: &str, name: &'static str, now: Instant) -> bool {
        if !target.starts_with("opentelemetry") {
            return true;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let due = said.get(name).is_none_or(|last| now.duration_since(*last) >= AGAIN_AFTER);
        if due {
            said.insert(name, now);
        }
        due
    }
}

impl<S: Subscriber> Filter<S> for Sparing {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.allows(event.metadata().target(), event.metadata().name(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complaint_is_repeated_after_ten_minutes_and_our_own_lines_always() {
        let sparing = Sparing::default();
        let start = Instant::now();
        let said = |seconds, target, name| sparing.allows(target, name, start + Duration::from_secs(seconds));
        assert!(said(0, "opentelemetry-otlp", "Export.Failed"));
        assert!(!said(5, "opentelemetry-otlp", "Export.Failed"));
        assert!(said(5, "opentelemetry_sdk", "SpanDroppingStarted"), "another one");
        assert!(!said(599, "opentelemetry-otlp", "Export.Failed"));
        assert!(said(600, "opentelemetry-otlp", "Export.Failed"));
        assert!(said(1, "natgw", "x") && said(1, "natgw", "x"));
    }
}
