//! A plain HTTP client: status, headers, body.

use bytes::Bytes;
use e2e::hetzner::{Hetzner, NewNetwork};
use e2e::wait::until;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client as Hyper, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::Value;
use std::time::Duration;

/// Long enough to read a running action.
pub const ACTION: Duration = Duration::from_millis(50);

pub struct Client {
    hyper: Hyper<HttpConnector, Full<Bytes>>,
    url: String,
    pub token: String,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Reply {
    /// The code of an error.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.body["error"]["message"].as_str().unwrap_or_default()
    }

    pub fn number(&self, header: &str) -> u64 {
        self.headers[header].to_str().unwrap().parse().unwrap()
    }
}

impl Client {
    pub fn of(hetzner: &Hetzner) -> Self {
        Self::at(&hetzner.url(), &hetzner.token())
    }

    pub fn at(url: &str, token: &str) -> Self {
        let hyper = Hyper::builder(TokioExecutor::new()).build_http();
        Self { hyper, url: url.to_owned(), token: token.to_owned() }
    }

    pub async fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        if !self.token.is_empty() {
            request = request.header("authorization", format!("Bearer {}", self.token));
        }
        if !kind.is_empty() {
            request = request.header("content-type", kind);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let (head, body) = self.hyper.request(request).await.unwrap().into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        Reply { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, "", "").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.send("POST", path, "application/json", &body.to_string()).await
    }

    /// Polls the action until it has ended.
    pub async fn finished(&self, reply: &Reply) -> Value {
        assert_eq!(reply.status, 201, "{:?}", reply.body);
        let path = format!("/actions/{}", reply.body["action"]["id"]);
        until(&format!("the end of {path}"), async || {
            let action = self.get(&path).await.body["action"].clone();
            Ok((action["status"] != "running").then_some(action))
        })
        .await
        .unwrap()
    }
}

/// A stand-in with the network that most tests need: `cluster`, 10.0.0.0/16, nodes in 10.0.0.0/24.
pub async fn cluster() -> (Hetzner, Client, u64) {
    let hetzner = Hetzner::start_quick(ACTION).await.unwrap();
    let client = Client::of(&hetzner);
    let network = NewNetwork::new("cluster", "10.0.0.0/16").subnet("10.0.0.0/24").vswitch("10.0.9.0/24");
    let network = hetzner.add_network(network).unwrap();
    (hetzner, client, network)
}
