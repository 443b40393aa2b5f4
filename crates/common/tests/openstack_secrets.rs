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
    let heard = Everything::default();
    let _guard = tracing::subscriber::set_default(heard.clone());
    let (site, cloud) = Site::start().await;
    let mut said = format!("{cloud:?} {:?}", site.credentials(""));
    // What a server says that repeats what it was sent.
    let told = |token: u32| format!("you sent {SECRET} and X-Auth-Token: {TOKEN}-{token}");
    let envelope = |kind: &str| json!({ kind: {"code": 400, "message": told(2)} }).to_string();
    let volume = "GET /volume/v3/volumes/v1";
    site.on(volume, [reply(503, &told(1)), ok(&json!({"volume": {"id": "v1", "status": "a", "size": 1}}))]);
    cloud.volume("v1").await.unwrap().unwrap();
    site.state().valid.clear();
    for answer in [
        reply(400, &envelope("badRequest")),
        reply(400, &told(2)),
        reply(400, &json!({"NeutronError": {"type": told(2), "message": told(2)}}).to_string()),
        reply(400, &json!({"faultcode": told(2), "faultstring": told(2)}).to_string()),
        reply(500, &format!("<html>{}{}</html>", "x".repeat(200), told(2))).with("Retry-After", "3600"),
    ] {
        site.on(volume, [answer]);
        let error = cloud.volume("v1").await.unwrap_err();
        let kind = error.kind().unwrap_or_default();
        write!(said, "\n{error} {error:?} {} {kind}", error.message()).unwrap();
    }
    assert_eq!(site.count(LOGIN), 2);
    site.state().valid.clear();
    site.on(LOGIN, [reply(400, &envelope("error"))]);
    let error = cloud.volume("v1").await.unwrap_err();
    write!(said, "\n{error} {error:?}").unwrap();
    assert!(said.matches("[redacted]").count() > 10, "{said}");
    said.push_str(&heard.0.lock().unwrap());
    assert!(said.contains("span cloud request") && said.contains("url.path"), "{said}");
    assert!(said.contains("the request is retried"), "{said}");
    for line in said.lines() {
        assert!(!line.contains(SECRET) && !line.contains(TOKEN), "{line}");
    }
}
