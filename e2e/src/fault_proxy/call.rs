//! One request, as rules and tests see it.

use bytes::Bytes;
use http::{HeaderMap, Method};

use super::kube_request::KubeRequest;

/// A request as it came from the controller.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark; empty if there is none.
    pub query: String,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Call {
    /// Path and query, as on the request line.
    pub fn target(&self) -> String {
        if self.query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, self.query) }
    }

    /// POST, PUT, PATCH or DELETE.
    pub fn is_write(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(&self.method)
    }

    /// A Kubernetes watch.
    pub fn is_watch(&self) -> bool {
        self.kube().is_some_and(|request| request.verb == "watch")
    }

    /// The request to Kubernetes, if its path is that of a resource.
    pub fn kube(&self) -> Option<KubeRequest> {
        KubeRequest::parse(&self.method, &self.target())
    }
}
