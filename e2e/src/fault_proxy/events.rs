//! Watches: their responses are forwarded event by event, under the rules and the orders of the test.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use futures::stream;
use http::{Response, StatusCode, header};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;
use tokio::select;
use tokio::sync::mpsc;

use super::body::{self, BodyError, ResponseBody};
use super::call::Call;
use super::fault::{Fate, expired_event};
use super::held;
use super::matcher::Matcher;
use super::rules::RuleId;
use super::server::Shared;

/// The watches that are open.
#[derive(Default)]
pub(super) struct Streams(Mutex<Vec<(Arc<Call>, mpsc::UnboundedSender<Fate>)>>);

impl Streams {
    fn opened(&self, call: Arc<Call>) -> mpsc::UnboundedReceiver<Fate> {
        let (sender, orders) = mpsc::unbounded_channel();
        let mut streams = held(&self.0);
        streams.retain(|(_, sender)| !sender.is_closed());
        streams.push((call, sender));
        orders
    }

    /// Ends the matching watches in this way; returns their number.
    pub(super) fn order(&self, matcher: &Matcher, fate: Fate) -> usize {
        let streams = held(&self.0);
        streams.iter().filter(|(call, sender)| matcher.matches(call) && sender.send(fate).is_ok()).count()
    }
}

/// Whether the response is a stream of JSON events. Watches in another encoding are forwarded unchanged.
pub(super) fn are_in(call: &Call, response: &Response<Incoming>) -> bool {
    let json = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|value| value.starts_with("application/json"));
    json && response.status() == StatusCode::OK
        && call.is_watch()
        && !response.headers().contains_key(header::CONTENT_ENCODING)
}

/// The response, with its events under the rules.
pub(super) fn forward(
    proxy: Arc<Shared>,
    call: Arc<Call>,
    response: Response<Incoming>,
) -> Response<ResponseBody> {
    let (mut head, body) = response.into_parts();
    // Events may be missing from it, or added.
    head.headers.remove(header::CONTENT_LENGTH);
    let orders = proxy.streams.opened(call.clone());
    let events =
        Events { proxy, call, source: Source { body, buffer: BytesMut::new() }, orders, ended: false };
    let events = stream::unfold(events, |mut events| async {
        let next = events.next().await?;
        Some((next, events))
    });
    Response::from_parts(head, body::chunks(events))
}

struct Events {
    proxy: Arc<Shared>,
    call: Arc<Call>,
    source: Source,
    orders: mpsc::UnboundedReceiver<Fate>,
    ended: bool,
}

impl Events {
    async fn next(&mut self) -> Option<Result<Bytes, BodyError>> {
        if self.ended {
            return None;
        }
        loop {
            let line = select! {
                biased;
                Some(fate) = self.orders.recv() => return self.end(fate),
                line = self.source.line() => match line? {
                    Ok(line) => line,
                    Err(error) => return Some(Err(error)),
                },
            };
            if !self.proxy.rules.watch_events(&self.call) {
                return Some(Ok(line));
            }
            // A line that is no event (a Status at the end) is not under the rules.
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { return Some(Ok(line)) };
            match self.fate(&event).await {
                None => return Some(Ok(line)),
                Some(Fate::Drop) => {}
                Some(fate) => return self.end(fate),
            }
        }
    }

    /// The fate of the event, once no rule holds it any more. None: it is forwarded.
    async fn fate(&mut self, event: &Value) -> Option<Fate> {
        loop {
            let rule: RuleId = match self.proxy.rules.of_event(&self.call, event)? {
                (id, Fate::Hold) => id,
                (_, Fate::Delay(delay)) => {
                    tokio::time::sleep(delay).await;
                    return None;
                }
                (_, fate) => return Some(fate),
            };
            select! {
                biased;
                Some(fate) = self.orders.recv() => return Some(fate),
                () = self.proxy.rules.removed(rule) => {}
            }
        }
    }

    fn end(&mut self, fate: Fate) -> Option<Result<Bytes, BodyError>> {
        self.ended = true;
        (fate == Fate::Expire).then(|| Ok(expired_event()))
    }
}

/// The server's stream, cut into lines.
struct Source {
    body: Incoming,
    buffer: BytesMut,
}

impl Source {
    /// The next line with its end, or the rest without one. It can be dropped half-way without loss.
    async fn line(&mut self) -> Option<Result<Bytes, BodyError>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Some(Ok(self.buffer.split_to(end + 1).freeze()));
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Ok(chunk) = frame.into_data() {
                        self.buffer.extend_from_slice(&chunk);
                    }
                }
                Some(Err(error)) => return Some(Err(error.into())),
                None if self.buffer.is_empty() => return None,
                None => return Some(Ok(self.buffer.split().freeze())),
            }
        }
    }
}
