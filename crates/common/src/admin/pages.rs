//! The response of each path.

use std::{fmt::Write, time::Instant};

use bytes::Bytes;
use http::{
    HeaderValue, Method, Request, StatusCode,
    header::{ACCEPT, ALLOW, CONTENT_TYPE},
};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::json;

use super::Admin;
use crate::{
    metrics::Metrics,
    readiness::{State, is_ready},
    server::Caller,
};

/// For `/statusz`, as in Kubernetes' own pages.
const WARNING: &str = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility \
                       guarantees and is for debugging purposes only.";

const PATHS: [&str; 7] = ["/flagz", "/healthz", "/livez", "/loglevel", "/metrics", "/readyz", "/statusz"];

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

type Response = http::Response<Full<Bytes>>;

/// The content of the pages, and since when the process runs.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) admin: Admin,
    pub(super) started: Timestamp,
    pub(super) start: Instant,
}

impl Site {
    pub(super) fn respond(&self, caller: &Caller, request: &Request<Bytes>) -> Response {
        let path = request.uri().path();
        if !PATHS.contains(&path) {
            return response(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("no such page; there are {}\n", PATHS.join(" ")),
            );
        }
        let reads = matches!(*request.method(), Method::GET | Method::HEAD);
        match path {
            "/loglevel" if !caller.is_local() => response(
                StatusCode::FORBIDDEN,
                TEXT,
                "only from this host; use kubectl exec or port-forward\n",
            ),
            "/loglevel" if request.method() == Method::PUT => self.set_log_level(request.body()),
            "/loglevel" if reads => {
                response(StatusCode::OK, TEXT, format!("{}\n", self.admin.log_level.get()))
            }
            "/loglevel" => not_allowed("GET, HEAD, PUT"),
            _ if !reads => not_allowed("GET, HEAD"),
            "/livez" => self.live(verbose(request)),
            "/metrics" => metrics(&self.admin.metrics),
            "/statusz" => self.status(accepts_json(request)),
            "/flagz" => self.flags(accepts_json(request)),
            _ => self.ready(verbose(request)),
        }
    }

    fn live(&self, verbose: bool) -> Response {
        let heartbeats = self.admin.status.heartbeats(self.admin.leadership.is_leading());
        let live = heartbeats.iter().all(|(_, stuck)| stuck.is_none());
        let report = heartbeats.into_iter().map(|(controller, stuck)| {
            let problem =
                stuck.map(|since| format!("leading, but the last heartbeat was {} s ago", since.as_secs()));
            (format!("heartbeat-{controller}"), State { ready: problem.is_none(), problem })
        });
        checks("livez", &report.collect::<Vec<_>>(), live, StatusCode::INTERNAL_SERVER_ERROR, verbose)
    }

    fn ready(&self, verbose: bool) -> Response {
        let report = self.admin.readiness.report();
        checks("readyz", &report, is_ready(&report), StatusCode::SERVICE_UNAVAILABLE, verbose)
    }

    fn status(&self, as_json: bool) -> Response {
        let Admin { program, status, leadership, .. } = &self.admin;
        let up = self.start.elapsed().as_secs();
        let (leading, holder) = (leadership.is_leading(), leadership.holder());
        let facts = status.facts();
        if as_json {
            let page = json!({
                "kind": "Statusz",
                "apiVersion": "config.k8s.io/v1alpha1",
                "metadata": { "name": program.name },
                "startTime": format!("{:.0}", self.started),
                "uptimeSeconds": up,
                "binaryVersion": program.version,
                "revision": program.revision,
                "rustcVersion": program.rustc,
                "paths": PATHS,
                "leading": leading,
                "leaseHolder": holder,
                "status": facts,
            });
            return response(StatusCode::OK, JSON, format!("{page}\n"));
        }
        let mut text = format!(
            "{} statusz\n{WARNING}\n\nStarted: {:.0}\nUp: {} hr {:02} min {:02} sec\nBinary version: {}\nRevision: {}\n\
             Compiler: rustc {}\nLeading: {leading}\nLease holder: {holder}\nPaths: {}\n",
            program.name,
            self.started,
            up / 3600,
            up / 60 % 60,
            up % 60,
            program.version,
            program.revision,
            program.rustc,
            PATHS.join(" "),
        );
        if !facts.is_empty() {
            text.push('\n');
        }
        for (key, fact) in facts {
            // Writing to a String cannot fail.
            let _infallible = writeln!(text, "{key}: {fact}");
        }
        response(StatusCode::OK, TEXT, text)
    }

    fn flags(&self, as_json: bool) -> Response {
        let Admin { program, flags, .. } = &self.admin;
        if as_json {
            let page = json!({
                "kind": "Flagz",
                "apiVersion": "config.k8s.io/v1alpha1",
                "metadata": { "name": program.name },
                "flags": flags,
            });
            return response(StatusCode::OK, JSON, format!("{page}\n"));
        }
        let mut text = format!("{} flagz\n{WARNING}\n\n", program.name);
        for (flag, value) in flags {
            let _infallible = writeln!(text, "{flag}={value}");
        }
        response(StatusCode::OK, TEXT, text)
    }

    fn set_log_level(&self, body: &[u8]) -> Response {
        let filter = String::from_utf8_lossy(body);
        match self.admin.log_level.set(filter.trim()) {
            Ok(()) => {
                let now = self.admin.log_level.get();
                tracing::warn!(filter = now, "log filter was changed");
                response(StatusCode::OK, TEXT, format!("{now}\n"))
            }
            Err(why) => response(StatusCode::BAD_REQUEST, TEXT, format!("{why}\n")),
        }
    }
}

/// As the API server writes it: `ok`, or one line for each check with `?verbose` or where one fails.
fn checks(
    page: &str,
    report: &[(String, State)],
    passed: bool,
    failure: StatusCode,
    verbose: bool,
) -> Response {
    if passed && !verbose {
        return response(StatusCode::OK, TEXT, "ok");
    }
    let mut text = String::new();
    for (name, State { ready, problem }) in report {
        // Writing to a String cannot fail.
        let _infallible = match (ready, problem) {
            (true, None) => writeln!(text, "[+]{name} ok"),
            (true, Some(problem)) => writeln!(text, "[+]{name} ok, but now: {problem}"),
            (false, problem) => {
                writeln!(text, "[-]{name} failed: {}", problem.as_deref().unwrap_or("unknown"))
            }
        };
    }
    if report.is_empty() {
        text.push_str("[-]no checks yet\n");
    }
    let _infallible = writeln!(text, "{page} check {}", if passed { "passed" } else { "failed" });
    response(if passed { StatusCode::OK } else { failure }, TEXT, text)
}

fn verbose(request: &Request<Bytes>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="))
}

fn accepts_json(request: &Request<Bytes>) -> bool {
    let accepts = request.headers().get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepts.into_iter().any(|accept| accept.contains(JSON))
}

fn not_allowed(allowed: &'static str) -> Response {
    let mut refusal = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, format!("allowed: {allowed}\n"));
    refusal.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    refusal
}

/// The response of `/metrics`, for a further server of a program.
#[must_use]
pub fn metrics(metrics: &Metrics) -> Response {
    match metrics.text() {
        Ok(text) => response(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text),
        Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
    }
}

fn response(code: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    response
}
