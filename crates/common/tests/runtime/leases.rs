//! An API server that knows one Lease.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// An API server with at most one Lease.
#[derive(Clone, Default)]
pub struct Leases {
    /// resourceVersion and Lease
    pub state: Arc<Mutex<(u64, Option<Value>)>>,
    /// The holders that were written, in order, and when the last one was.
    pub written: Arc<Mutex<Vec<String>>>,
    pub last_write: Arc<Mutex<jiff::Timestamp>>,
}

impl Leases {
    /// Its URL.
    pub async fn serve(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let leases = self.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let leases = leases.clone();
                let response = service_fn(move |request: Request<Incoming>| {
                    let leases = leases.clone();
                    async move {
                        let (head, body) = request.into_parts();
                        let body = body.collect().await.unwrap().to_bytes();
                        let (code, body) = leases.respond(&head.method, head.uri.path(), &body);
                        let body = Full::new(Bytes::from(body.to_string()));
                        Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
                    }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), response));
            }
        });
        url
    }

    fn respond(&self, method: &Method, path: &str, body: &[u8]) -> (u16, Value) {
        assert!(path.starts_with("/apis/coordination.k8s.io/v1/namespaces/here/leases"), "{method} {path}");
        let refuse = |code: u16, reason: &str| {
            (
                code,
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": reason}),
            )
        };
        let (version, lease) = &mut *self.state.lock().unwrap();
        if method == Method::GET {
            return lease.clone().map_or_else(|| refuse(404, "NotFound"), |lease| (200, lease));
        }
        let mut new: Value = serde_json::from_slice(body).unwrap();
        let current = lease.as_ref().map(|lease| &lease["metadata"]["resourceVersion"]);
        if method == Method::PUT && Some(&new["metadata"]["resourceVersion"]) != current {
            return refuse(409, "Conflict");
        }
        *version += 1;
        *self.last_write.lock().unwrap() = jiff::Timestamp::now();
        new["metadata"]["resourceVersion"] = version.to_string().into();
        new["metadata"]["name"] = "smallest".into();
        self.written
            .lock()
            .unwrap()
            .push(new["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned());
        *lease = Some(new.clone());
        (if method == Method::POST { 201 } else { 200 }, new)
    }

    /// Another holder takes it, and renews it with each request.
    pub fn give_to(&self, holder: &str) {
        let (version, lease) = &mut *self.state.lock().unwrap();
        *version += 1;
        *lease = Some(json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "smallest", "namespace": "here", "resourceVersion": version.to_string()},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "leaseTransitions": 1,
                "acquireTime": "2026-11-21T12:00:00.000000Z", "renewTime": "2026-11-21T12:00:00.000000Z"}}));
    }
}
