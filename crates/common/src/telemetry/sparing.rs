//! A filter for the log lines of other crates. While its collector is away, the trace exporter logs an error every five seconds. kube's
//! client logs each response that it cannot decode, with the whole body.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// For the next line of the same event.
const INTERVAL: Duration = Duration::from_secs(600);

/// The lines that contain responses, which can be Secrets. Their callers log the errors.
pub(super) const RESPONSES: &str = "kube_client::client";

/// Lets each event of OpenTelemetry's crates through once in [`INTERVAL`], no [`RESPONSES`], and everything else always.
#[derive(Debug, Default)]
pub(super) struct Sparing {
    /// By name: those crates give each of their events one.
    logged: Mutex<BTreeMap<&'static str, Instant>>,
}

impl Sparing {
    fn allows(&self, target: &str, name: &'static str, now: Instant) -> bool {
        if !target.starts_with("opentelemetry") {
            return true;
        }
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let due = logged.get(name).is_none_or(|last| now.duration_since(*last) >= INTERVAL);
        if due {
            logged.insert(name, now);
        }
        due
    }
}

impl<S: Subscriber> Filter<S> for Sparing {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.target() != RESPONSES
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.allows(event.metadata().target(), event.metadata().name(), Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_the_exporter_is_logged_once_in_ten_minutes_and_other_lines_always() {
        let sparing = Sparing::default();
        let start = Instant::now();
        let is_logged =
            |seconds, target, name| sparing.allows(target, name, start + Duration::from_secs(seconds));
        assert!(is_logged(0, "opentelemetry-otlp", "Export.Failed"));
        assert!(!is_logged(5, "opentelemetry-otlp", "Export.Failed"));
        assert!(is_logged(5, "opentelemetry_sdk", "SpanDroppingStarted"), "another one");
        assert!(!is_logged(599, "opentelemetry-otlp", "Export.Failed"));
        assert!(is_logged(600, "opentelemetry-otlp", "Export.Failed"));
        assert!(is_logged(1, "natgw", "x") && is_logged(1, "natgw", "x"));
    }
}
