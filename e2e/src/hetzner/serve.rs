//! HTTP: reads a request and writes the response of the API.

use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::net::TcpListener;

use super::{
    api::{Call, handle},
    refusal::{Code, Refusal},
    state::{Request, Shared, State},
};

/// Far larger than any request of this API.
const LARGEST_BODY: usize = 1 << 20;
/// The prefix of all paths.
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
            let service = service_fn(move |request| respond(shared.clone(), request));
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection to the Hetzner stand-in ended");
            }
        });
    }
}

async fn respond(
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
    let (response, numbers) = shared.write(|state| {
        let number = record(state, &call, text(header::USER_AGENT));
        let outcome = admit(state, &call, text(header::AUTHORIZATION))
            .and_then(|()| handle(state, &call, Instant::now()));
        let (status, body) = match &outcome {
            Ok((status, body)) => (*status, body.to_string()),
            Err(refusal) => (refusal.code.status(), refusal.body().to_string()),
        };
        finish(state, number, status, outcome.err().map(|refusal| refusal.code));
        let mut response = Response::new(Full::new(Bytes::from(body)));
        *response.status_mut() = StatusCode::from_u16(status)?;
        anyhow::Ok((response, rate_limit_headers(state)))
    })?;
    let mut response = response;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, number) in numbers {
        response.headers_mut().insert(name, number.into());
    }
    Ok(response)
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
    // It is one of the last. A test may have cleared the history.
    if let Some(request) = state.requests.iter_mut().rev().find(|request| request.number == number) {
        request.status = Some(status);
        request.code = code.map(|code| code.as_str().to_owned());
    }
}

/// Rate limit, then token, in the order of the real API.
fn admit(state: &mut State, call: &Call<'_>, authorization: Option<&str>) -> Result<(), Refusal> {
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
    Ok(())
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
