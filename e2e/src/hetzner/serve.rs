//! HTTP: takes a request, lets faults and the API decide, writes the answer.

use bytes::Bytes;
use http::{HeaderMap, Method, Response, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::Value;
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::net::TcpListener;

use super::{
    api::{Call, Outcome, handle},
    fault::{Answer, Fault},
    refusal::{Code, Refusal},
    state::{Request, Shared, State},
};

/// No request of this API comes near it.
const LARGEST_BODY: usize = 1 << 20;
/// The path that all others are below.
pub(super) const BASE: &str = "/v1";

/// Serves until the future is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the Hetzner stand-in could not accept a connection");
                // Out of file descriptors, mostly; accepting again at once would spin.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(shared.clone(), request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the Hetzner stand-in ended");
            }
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: http::Request<Incoming>,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body =
        Limited::new(body, LARGEST_BODY).collect().await.map_err(anyhow::Error::from_boxed)?.to_bytes();
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok());
    let path = head.uri.path().strip_prefix(BASE).filter(|path| path.starts_with('/'));
    let call = Call {
        method: &head.method,
        path: path.unwrap_or("/"),
        query: head.uri.query(),
        content_type: text(header::CONTENT_TYPE),
        body: &body,
    };
    let (number, admitted) = shared.write(|state| {
        let number = record(state, &call, text(header::USER_AGENT));
        (number, admit(state, &call, text(header::AUTHORIZATION)))
    });
    let act = || shared.write(|state| handle(state, &call, Instant::now()));
    let outcome = match admitted {
        Err(refusal) => Err(refusal),
        Ok(None) => act(),
        Ok(Some(fault)) => match faulty(fault, act).await? {
            Some(outcome) => outcome,
            None => return page(&shared, number, fault.answer),
        },
    };
    let (status, body) = match &outcome {
        Ok((status, body)) => (*status, body.clone()),
        Err(refusal) => (refusal.code.status(), refusal.body()),
    };
    let headers = shared.write(|state| {
        finish(state, number, status, outcome.as_ref().err().map(|refusal| refusal.code));
        rate_limit_headers(state)
    });
    respond(status, "application/json", headers, &body)
}

/// Ok(None): an answer that does not come from the API.
async fn faulty(fault: Fault, act: impl Fn() -> Outcome) -> anyhow::Result<Option<Outcome>> {
    let early = fault.acts.then(&act);
    match fault.answer {
        Answer::Refuse(code) => Ok(Some(Err(Refusal::new(code, format!("injected: {}", code.as_str()))))),
        Answer::Page(_) => Ok(None),
        Answer::Silence => std::future::pending().await,
        Answer::Cut => Err(anyhow::anyhow!("cut by an injected fault")),
        Answer::Late(wait) => {
            tokio::time::sleep(wait).await;
            Ok(Some(early.unwrap_or_else(act)))
        }
    }
}

fn record(state: &mut State, call: &Call<'_>, user_agent: Option<&str>) -> u64 {
    state.next_request += 1;
    state.requests.push(Request {
        at: Instant::now(),
        method: call.method.to_string(),
        path: call.path.to_owned(),
        query: call.query.map(str::to_owned),
        body: serde_json::from_slice(call.body).ok(),
        user_agent: user_agent.map(str::to_owned),
        status: None,
        code: None,
        number: state.next_request,
    });
    state.next_request
}

fn finish(state: &mut State, number: u64, status: u16, code: Option<Code>) {
    // From the end: it is one of the last. Gone if the test has cleared the history meanwhile.
    if let Some(request) = state.requests.iter_mut().rev().find(|request| request.number == number) {
        request.status = Some(status);
        request.code = code.map(|code| code.as_str().to_owned());
    }
}

/// Rate limit, then token, then faults, as a request meets them.
fn admit(state: &mut State, call: &Call<'_>, authorization: Option<&str>) -> Result<Option<Fault>, Refusal> {
    if !state.bucket.take(Instant::now()) {
        return Err(Refusal::new(Code::RateLimitExceeded, "limit of requests per hour reached"));
    }
    let token = authorization.and_then(|value| value.strip_prefix("Bearer "));
    let readonly = token == Some(state.settings.readonly_token.as_str());
    if !readonly && token != Some(state.settings.token.as_str()) {
        return Err(Refusal::new(Code::Unauthorized, "unable to authenticate"));
    }
    if readonly && call.method != Method::GET {
        return Err(Refusal::new(Code::TokenReadonly, "token is only allowed to perform GET requests"));
    }
    Ok(state.injections.take(call.method, call.path))
}

fn rate_limit_headers(state: &mut State) -> [(&'static str, u64); 3] {
    let now = Instant::now();
    let full =
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() + state.bucket.until_full(now);
    [
        ("RateLimit-Limit", state.bucket.limit().into()),
        ("RateLimit-Remaining", state.bucket.remaining(now)),
        // Rounded up: at that second the bucket is full.
        ("RateLimit-Reset", full.as_secs() + u64::from(full.subsec_nanos() > 0)),
    ]
}

fn page(shared: &Arc<Shared>, number: u64, answer: Answer) -> anyhow::Result<Response<Full<Bytes>>> {
    let Answer::Page(status) = answer else { anyhow::bail!("{answer:?} has no page") };
    let headers = shared.write(|state| {
        finish(state, number, status, None);
        rate_limit_headers(state)
    });
    let body = Value::String("<html><body>Bad Gateway</body></html>".to_owned());
    respond(status, "text/html", headers, &body)
}

fn respond(
    status: u16,
    kind: &'static str,
    numbers: [(&'static str, u64); 3],
    body: &Value,
) -> anyhow::Result<Response<Full<Bytes>>> {
    let mut headers = HeaderMap::new();
    for (name, number) in numbers {
        headers.insert(name, number.into());
    }
    let bytes = match body {
        Value::Null => Bytes::new(),
        Value::String(page) => Bytes::from(page.clone()),
        body => Bytes::from(body.to_string()),
    };
    let mut response = Response::builder().status(status).header(header::CONTENT_TYPE, kind);
    if let Some(own) = response.headers_mut() {
        own.extend(headers);
    }
    Ok(response.body(Full::new(bytes))?)
}
