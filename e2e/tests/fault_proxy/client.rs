//! The controller's side.

use std::error::Error;
use std::io;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use crate::fault_proxy::TIMEOUT;

/// The body of each request.
pub const BODY: &str = "{\"asked\":true}";

pub type Failure = Box<dyn Error + Send + Sync>;

#[derive(Debug)]
pub struct Received {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Received {
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Sends a request on a new connection, and returns when the head of the response is there.
pub async fn open(url: &str, method: Method, target: &str) -> Result<Response<Incoming>, Failure> {
    let client: Client<HttpConnector, Full<Bytes>> =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let request = Request::builder()
        .method(method)
        .uri(format!("{url}{target}"))
        .header("user-agent", "test/1")
        .header("authorization", "Bearer of-the-caller")
        .body(Full::new(Bytes::from_static(BODY.as_bytes())))?;
    Ok(tokio::time::timeout(TIMEOUT, client.request(request)).await??)
}

/// Sends a request, and reads the whole response.
pub async fn ask(url: &str, method: Method, target: &str) -> Result<Received, Failure> {
    let (head, body) = open(url, method, target).await?.into_parts();
    let body = tokio::time::timeout(TIMEOUT, body.collect()).await??.to_bytes();
    Ok(Received { status: head.status, headers: head.headers, body })
}

pub async fn get(url: &str, target: &str) -> Result<Received, Failure> {
    ask(url, Method::GET, target).await
}

pub async fn post(url: &str, target: &str) -> Result<Received, Failure> {
    ask(url, Method::POST, target).await
}

/// Whether an error in the chain is a reset of the connection.
pub fn is_reset(failure: &Failure) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(failure.as_ref());
    while let Some(error) = next {
        if error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
        {
            return true;
        }
        next = error.source();
    }
    false
}
