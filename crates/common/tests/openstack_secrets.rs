//! Secrets do not leak: neither the token nor the secret is in an error, a log, a span or a `Debug`, even if a server
//! repeats them. Alone in its program: what other threads do decides which spans tracing shows to ours.
#![cfg(feature = "openstack")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use site::{LOGIN, SECRET, Site, TOKEN, ok, reply};

#[path = "openstack/site.rs"]
#[allow(dead_code)]
mod site;

/// Everything that any crate logs through tracing, spans and their later fields included.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

impl Visit for Everything {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0.lock().unwrap(), " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        write!(self.0.lock().unwrap(), "\nspan {}", span.metadata().name()).unwrap();
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        write!(self.0.lock().unwrap(), "\nevent").unwrap();
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn no_error_log_span_or_debug_shows_a_token_or_a_secret() {
    let logged = Everything::default();
    let _guard = tracing::subscriber::set_default(logged.clone());
    let (site, cloud) = Site::start().await;
    let mut output = format!("{cloud:?} {:?}", site.credentials(""));
    // A response that contains what the request contained.
    let echo = |token: u32| format!("you sent {SECRET} and X-Auth-Token: {TOKEN}-{token}");
    let envelope = |kind: &str| json!({ kind: {"code": 400, "message": echo(2)} }).to_string();
    let volume = "GET /volume/v3/volumes/v1";
    site.on(volume, [reply(503, &echo(1)), ok(&json!({"volume": {"id": "v1", "status": "a", "size": 1}}))]);
    cloud.volume("v1").await.unwrap().unwrap();
    site.state().valid.clear();
    for response in [
        reply(400, &envelope("badRequest")),
        reply(400, &echo(2)),
        reply(400, &json!({"NeutronError": {"type": echo(2), "message": echo(2)}}).to_string()),
        reply(400, &json!({"faultcode": echo(2), "faultstring": echo(2)}).to_string()),
        reply(500, &format!("<html>{}{}</html>", "x".repeat(200), echo(2))).with("Retry-After", "3600"),
    ] {
        site.on(volume, [response]);
        let error = cloud.volume("v1").await.unwrap_err();
        let kind = error.kind().unwrap_or_default();
        write!(output, "\n{error} {error:?} {kind}").unwrap();
    }
    assert_eq!(site.count(LOGIN), 2);
    site.state().valid.clear();
    site.on(LOGIN, [reply(400, &envelope("error"))]);
    let error = cloud.volume("v1").await.unwrap_err();
    write!(output, "\n{error} {error:?}").unwrap();
    assert!(output.matches("[redacted]").count() > 10, "{output}");
    output.push_str(&logged.0.lock().unwrap());
    assert!(output.contains("span cloud request") && output.contains("url.path"), "{output}");
    assert!(output.contains("the request is retried"), "{output}");
    for line in output.lines() {
        assert!(!line.contains(SECRET) && !line.contains(TOKEN), "{line}");
    }
}
