//! A small OpenStack: one listener for all services, each below a path of its own, as behind one proxy.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use common::cloud::openstack::{Cloud, Credentials, Metrics};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use prometheus::Registry;
use serde_json::{Value, json};
use tokio::sync::Notify;

pub const SECRET: &str = "s3cr3t-of-the-credential";
/// Tokens are this and a number.
pub const TOKEN: &str = "t0k3n-that-must-not-leak";
pub const PROJECT: &str = "4aacf05d";
pub const LOGIN: &str = "POST /identity/v3/auth/tokens";

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

pub fn ok(body: &Value) -> Reply {
    reply(200, &body.to_string())
}

pub fn reply(status: u16, body: &str) -> Reply {
    let id = ("x-openstack-request-id", "req-1".to_owned());
    Reply { status, headers: vec![id], body: body.to_owned() }
}

impl Reply {
    pub fn with(mut self, name: &'static str, value: &str) -> Reply {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// A recorded request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// `GET /networking/v2.0/routers?limit=500`.
    pub line: String,
    pub headers: HeaderMap,
    pub body: Value,
}

pub struct State {
    /// Valid tokens.
    pub valid: BTreeSet<String>,
    pub issued: u32,
    /// Seconds that a token lives.
    pub life: i64,
    pub catalog: Value,
    /// Responses by method and path, or by method, path and query. The last one stays.
    replies: BTreeMap<String, VecDeque<Reply>>,
    pub seen: Vec<Seen>,
    /// Requests that a real OpenStack would refuse.
    pub wrong: Vec<String>,
    /// Number of requests whose token was refused.
    pub refused: usize,
    /// A login waits until this many requests were refused.
    pub hold: usize,
}

#[derive(Clone)]
pub struct Site {
    pub address: SocketAddr,
    pub registry: Registry,
    state: Arc<Mutex<State>>,
    refusal: Arc<Notify>,
}

impl Site {
    pub async fn start() -> (Site, Cloud) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            valid: BTreeSet::new(),
            issued: 0,
            life: 3600,
            catalog: catalog(&format!("http://{address}")),
            replies: BTreeMap::new(),
            seen: Vec::new(),
            wrong: Vec::new(),
            refused: 0,
            hold: 0,
        };
        let (registry, state) = (Registry::new(), Arc::new(Mutex::new(state)));
        let site = Site { address, registry, state, refusal: Arc::default() };
        site.serve(listener);
        let metrics = Metrics::register(&site.registry).unwrap();
        let cloud = Cloud::new(&site.credentials(""), "perimeter-test/1", &metrics).unwrap();
        (site, cloud)
    }

    /// Serves at one more address.
    pub fn serve(&self, listener: tokio::net::TcpListener) {
        let site = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let site = site.clone();
                let service = hyper::service::service_fn(move |request| site.clone().handle(request));
                let builder = hyper::server::conn::http1::Builder::new();
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
    }

    /// The credential, with these fields beside `auth`.
    pub fn credentials(&self, fields: &str) -> Credentials {
        let auth = format!(
            "{{auth_url: \"http://{}/identity\", application_credential_id: c, application_credential_secret: {SECRET}}}",
            self.address
        );
        let text = format!("clouds:\n  x:\n    auth: {auth}\n    region_name: RegionOne\n{fields}");
        Credentials::from_clouds_yaml(&text, None, None).unwrap()
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn on(&self, line: &str, replies: impl IntoIterator<Item = Reply>) {
        self.state().replies.insert(line.to_owned(), replies.into_iter().collect());
    }

    /// How many requests began with this.
    pub fn count(&self, line: &str) -> usize {
        self.state().seen.iter().filter(|seen| seen.line.starts_with(line)).count()
    }

    pub fn last(&self) -> Seen {
        self.state().seen.last().unwrap().clone()
    }

    /// Nothing came that a real one would not have taken.
    pub fn was_strict(&self) {
        let state = self.state();
        assert!(state.wrong.is_empty(), "{:#?}", state.wrong);
        assert!(!state.seen.is_empty());
    }

    async fn handle(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = head.uri.path().to_owned();
        let line = format!("{} {}", head.method, head.uri.path_and_query().unwrap());
        let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
        let seen = Seen { line: line.clone(), headers: head.headers.clone(), body: json };
        self.state().check(&seen, &body);
        let bare = format!("{} {path}", head.method);
        let login = bare == LOGIN;
        if login {
            self.released().await;
        }
        let reply = self.state().response(seen, &line, &bare, login);
        if reply.status == 401 && !login {
            self.refusal.notify_waiters();
        }
        let mut response = Response::builder().status(StatusCode::from_u16(reply.status).unwrap());
        for (name, value) in reply.headers {
            response = response.header(name, value);
        }
        Ok(response.body(Full::from(reply.body)).unwrap())
    }

    async fn released(&self) {
        loop {
            let next = self.refusal.notified();
            tokio::pin!(next);
            next.as_mut().enable();
            let ready = {
                let state = self.state();
                state.refused >= state.hold
            };
            if ready {
                return;
            }
            next.await;
        }
    }
}

fn catalog(base: &str) -> Value {
    let entry = |kind: &str, path: &str| {
        let endpoint = |interface: &str, url: String| json!({"interface": interface, "region": "RegionOne", "region_id": "RegionOne", "url": url});
        let internal = "http://127.0.0.1:1/is-not-to-be-asked".to_owned();
        json!({"type": kind, "name": kind, "endpoints": [
            endpoint("internal", internal), endpoint("public", format!("{base}{path}")),
        ]})
    };
    json!([
        entry("network", "/networking"),
        entry("compute", "/compute/v2.1"),
        entry("volumev3", &format!("/volume/v3/{PROJECT}")),
        entry("block-storage", "/volume/v3"),
        entry("load-balancer", "/load-balancer"),
        entry("image", "/image"),
    ])
}

impl State {
    fn check(&mut self, seen: &Seen, body: &[u8]) {
        let mut wrong = |what: &str| self.wrong.push(format!("{what}: {} {:?}", seen.line, seen.headers));
        let header = |name: &str| seen.headers.get(name).map(|value| value.to_str().unwrap());
        if header("accept") != Some("application/json") || header("user-agent") != Some("perimeter-test/1") {
            wrong("accept, user-agent");
        }
        if header("transfer-encoding").is_some() {
            wrong("a body in chunks, which uWSGI does not read");
        }
        let with_body = seen.line.starts_with("PUT") || seen.line.starts_with("POST");
        if with_body
            && (header("content-length") != Some(&body.len().to_string())
                || header("content-type") != Some("application/json")
                || !seen.body.is_object())
        {
            wrong("a body of JSON and its length");
        }
        if !with_body && !body.is_empty() {
            wrong("a body");
        }
        let revision = header("if-match").map(|value| value.strip_prefix("revision_number=").unwrap_or("?"));
        if revision.is_some_and(|number| number.parse::<u64>().is_err()) {
            wrong("an If-Match that Neutron would ignore");
        }
        let versions = [header("openstack-api-version"), header("x-openstack-nova-api-version")];
        let selected = match seen.line.contains("/compute/") {
            true => [Some("compute 2.69"), Some("2.69")],
            false => [None, None],
        };
        if versions != selected {
            wrong("microversion");
        }
        if header("authorization").is_some() {
            wrong("authorization");
        }
    }

    fn response(&mut self, seen: Seen, line: &str, bare: &str, login: bool) -> Reply {
        let token = seen.headers.get("x-auth-token").map(|token| token.to_str().unwrap().to_owned());
        let body = seen.body.clone();
        self.seen.push(seen);
        if !login && token.is_none_or(|token| !self.valid.contains(&token)) {
            self.refused += 1;
            return reply(401, "<html>\n<h1>401 Unauthorized</h1></html>")
                .with("WWW-Authenticate", "Keystone uri=\"http://10.0.0.1:5000\"")
                .with("Content-Type", "text/html");
        }
        let key = if self.replies.contains_key(line) { line } else { bare };
        match self.replies.get_mut(key) {
            Some(replies) if replies.len() > 1 => replies.pop_front().unwrap(),
            Some(replies) if !replies.is_empty() => replies[0].clone(),
            _ if login => self.log_in(&body),
            _ => {
                self.wrong.push(format!("nothing is there: {line}"));
                reply(404, "<html>nothing here</html>")
            }
        }
    }

    fn log_in(&mut self, body: &Value) -> Reply {
        let credential = json!({"id": "c", "secret": SECRET});
        let selected = json!({"auth": {"identity": {
            "methods": ["application_credential"], "application_credential": credential,
        }}});
        if *body != selected {
            self.wrong.push("login".to_owned());
            return reply(401, r#"{"error": {"code": 401, "message": "no", "title": "Unauthorized"}}"#);
        }
        self.issued += 1;
        let token = format!("{TOKEN}-{}", self.issued);
        self.valid.insert(token.clone());
        let issued = jiff::Timestamp::from_second(1_700_000_000).unwrap();
        let expires = issued + jiff::SignedDuration::from_secs(self.life);
        let body = json!({"token": {
            "methods": ["application_credential"], "issued_at": issued.to_string(), "expires_at": expires.to_string(),
            "project": {"id": PROJECT, "name": "demo"}, "roles": [], "catalog": self.catalog,
        }});
        reply(201, &body.to_string()).with("X-Subject-Token", &token)
    }
}
