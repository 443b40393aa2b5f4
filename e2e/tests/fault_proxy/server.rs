//! The server behind the proxy: it records the requests, and its watches send what the test sends.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc, watch};

use crate::fault_proxy::TIMEOUT;

/// How long `/big` is: more than one read of any buffer in between.
pub const BIG: usize = 300_000;

/// A request that reached the server.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub query: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

struct State {
    seen: watch::Sender<Vec<Seen>>,
    watches: Mutex<Vec<mpsc::UnboundedSender<Bytes>>>,
    /// Permits for responses to `/slow…`.
    slow: Semaphore,
}

#[derive(Clone)]
pub struct Server {
    address: SocketAddr,
    state: Arc<State>,
}

impl Server {
    pub async fn start() -> Server {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let state =
            State { seen: watch::Sender::default(), watches: Mutex::default(), slow: Semaphore::new(0) };
        let server = Server { address: listener.local_addr().unwrap(), state: Arc::new(state) };
        let state = server.state.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let state = state.clone();
                let service = service_fn(move |request| respond(state.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        server
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.state.seen.borrow().clone()
    }

    /// The paths of the writes that it acted on, in their order.
    pub fn acted(&self) -> Vec<String> {
        self.seen().into_iter().filter(|seen| seen.method != Method::GET).map(|seen| seen.path).collect()
    }

    pub async fn wait_seen(&self, count: usize) {
        let mut seen = self.state.seen.subscribe();
        let reached = seen.wait_for(|seen| seen.len() >= count);
        tokio::time::timeout(TIMEOUT, reached).await.expect("no request").unwrap();
    }

    /// Permits one more response to `/slow…`.
    pub fn respond_once(&self) {
        self.state.slow.add_permits(1);
    }

    /// Sends text to all watches.
    pub fn send(&self, text: &str) {
        for watch in self.state.watches.lock().unwrap().iter() {
            let _ = watch.send(Bytes::from(text.to_owned()));
        }
    }

    /// Sends an event to all watches.
    pub fn event(&self, event: &Value) {
        self.send(&format!("{event}\n"));
    }

    /// Returns once every client of a watch has left.
    pub async fn all_left(&self) {
        let watches = self.state.watches.lock().unwrap().clone();
        for watch in watches {
            tokio::time::timeout(TIMEOUT, watch.closed()).await.expect("a watch is still open");
        }
    }

    /// Ends all watches.
    pub fn hang_up(&self) {
        self.state.watches.lock().unwrap().clear();
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn respond(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let path = head.uri.path().to_owned();
    let watches = head.uri.query().is_some_and(|query| query.contains("watch=true"));
    let events = watches.then(|| {
        let (sender, receiver) = mpsc::unbounded_channel();
        state.watches.lock().unwrap().push(sender);
        receiver
    });
    let query = head.uri.query().unwrap_or_default().to_owned();
    let seen = Seen { method: head.method.clone(), path: path.clone(), query, headers: head.headers, body };
    state.seen.send_modify(|all| all.push(seen));
    if path.starts_with("/slow") {
        state.slow.acquire().await.unwrap().forget();
    }
    let (status, body) = match events {
        Some(receiver) => {
            let events = stream::unfold(receiver, |mut receiver| async {
                let text = receiver.recv().await?;
                Some((Ok(Frame::data(text)), receiver))
            });
            (StatusCode::OK, BodyExt::boxed_unsync(StreamBody::new(events)))
        }
        None if head.method != Method::GET => (StatusCode::CREATED, full(r#"{"acted":true}"#.into())),
        None if path == "/big" => (StatusCode::OK, full(vec![b'x'; BIG].into())),
        None => (StatusCode::OK, full("ok".into())),
    };
    Ok(Response::builder().status(status).header("content-type", "application/json").body(body).unwrap())
}

fn full(bytes: Bytes) -> Body {
    Full::new(bytes).boxed_unsync()
}
