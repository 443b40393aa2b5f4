//! One ConfigMap, read with the kubeconfig of the node.
//!
//! Source of the request and of its refusals: the Kubernetes API reference, `GET
//! /api/v1/namespaces/{namespace}/configmaps/{name}`.

pub mod kubeconfig;
pub mod request;
pub mod yaml;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use self::kubeconfig::Access;
use self::request::{Client, Response};
use crate::cni::{Code, Error};
use crate::config::ip_config::is_object_name;

/// How long a ConfigMap may take, if nobody says otherwise: an ADD holds up a pod, and kubelet tries again by itself.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Before the second attempt; doubled before each further one. An API server that restarts is away for some seconds.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);

/// `data` of the ConfigMap `name` in `namespace`; `binaryData` is not looked at.
///
/// All attempts and the pauses between them fit into `deadline`.
///
/// # Errors
///
/// Code 5, 6 or 7 for a kubeconfig that cannot be read or used ([`Access::read`]); 11 where the API server could not be
/// reached, was busy (429) or failed (5xx) until the deadline; 103 where it refused for good: no such ConfigMap, no right to
/// read it, a certificate that is not trusted. No message holds a token or a key.
pub fn config_map(
    kubeconfig: &Path,
    namespace: &str,
    name: &str,
    deadline: Duration,
) -> Result<BTreeMap<String, String>, Error> {
    // Both become a part of the URL, and the namespace comes from the runtime's arguments.
    for (what, text, longest) in [("namespace", namespace, 63), ("ConfigMap", name, 253)] {
        if !is_object_name(text, longest) {
            let message = format!(
                "{text:?} is not a valid {what} name: lower-case letters, digits, '-' and '.' are allowed"
            );
            return Err(Error::new(Code::InvalidConfig, message));
        }
    }
    let end = Instant::now() + deadline;
    let access = Access::read(kubeconfig)?;
    let client = Client::new(&access);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let object = format!("ConfigMap {namespace}/{name}");
    let mut backoff = INITIAL_BACKOFF;
    let mut last_error = None;
    loop {
        let retry_reason = match client.get(&path, end.saturating_duration_since(Instant::now())) {
            Response::Data(data) => return Ok(data),
            Response::Refused { status, details } => {
                return Err(refused(status, &object, kubeconfig, namespace).details(details));
            }
            Response::Untrusted(details) => {
                let message = format!(
                    "{object} cannot be read: the API server's certificate is not trusted by {}",
                    kubeconfig.display()
                );
                return Err(Error::new(Code::Kubernetes, message).details(details));
            }
            Response::Retry(details) => details,
        };
        // What the server said tells more than that the last attempt was cut off by the deadline.
        let retry_reason =
            if Instant::now() < end { retry_reason } else { last_error.take().unwrap_or(retry_reason) };
        let wait = jittered(backoff);
        if Instant::now() + wait >= end {
            let message = format!("{object} could not be read within {} ms", deadline.as_millis());
            return Err(Error::new(Code::TryAgain, message).details(retry_reason));
        }
        last_error = Some(retry_reason);
        std::thread::sleep(wait);
        backoff *= 2;
    }
}

fn refused(status: u16, object: &str, kubeconfig: &Path, namespace: &str) -> Error {
    let kubeconfig = kubeconfig.display();
    let message = match status {
        401 => format!(
            "{object} cannot be read: the API server does not accept the token or certificate of {kubeconfig}"
        ),
        403 => format!(
            "{object} cannot be read: the user of {kubeconfig} lacks the right \"get\" on configmaps in the namespace {namespace}"
        ),
        404 => format!("{object} does not exist"),
        _ => format!("{object} cannot be read: the API server responds with status {status}"),
    };
    Error::new(Code::Kubernetes, message)
}

/// Between half and all of `backoff`, so that the pods of a node that start together do not ask together.
fn jittered(backoff: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    let noise = std::hash::RandomState::new().build_hasher().finish() % 1024;
    let half = backoff / 2;
    half + half.mul_f64(f64::from(u16::try_from(noise).unwrap_or_default()) / 1024.0)
}

#[cfg(test)]
mod tests;
