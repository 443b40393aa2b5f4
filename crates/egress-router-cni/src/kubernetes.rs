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
use self::request::{Answer, Client};
use crate::cni::{Code, Error};
use crate::config::ip_config::is_object_name;

/// How long a ConfigMap may take, if nobody says otherwise: an ADD holds up a pod, and kubelet tries again by itself.
pub const DEADLINE: Duration = Duration::from_secs(5);

/// Before the second attempt; doubled before each further one. An API server that restarts is away for some seconds.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

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
                "{text:?} is no name of a {what}: lower-case letters, digits, '-' and '.' are allowed"
            );
            return Err(Error::new(Code::InvalidConfig, message));
        }
    }
    let end = Instant::now() + deadline;
    let access = Access::read(kubeconfig)?;
    let client = Client::new(&access);
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let object = format!("ConfigMap {namespace}/{name}");
    let mut pause = FIRST_PAUSE;
    let mut said = None;
    loop {
        let again = match client.get(&path, end.saturating_duration_since(Instant::now())) {
            Answer::Data(data) => return Ok(data),
            Answer::Refused { status, words } => {
                return Err(refused(status, &object, kubeconfig, namespace).details(words));
            }
            Answer::Untrusted(words) => {
                let message = format!(
                    "{object} cannot be read: the API server's certificate is not trusted by {}",
                    kubeconfig.display()
                );
                return Err(Error::new(Code::Kubernetes, message).details(words));
            }
            Answer::Again(words) => words,
        };
        // What the server said tells more than that the last attempt was cut off by the deadline.
        let again = if Instant::now() < end { again } else { said.take().unwrap_or(again) };
        let wait = jittered(pause);
        if Instant::now() + wait >= end {
            let message = format!("{object} could not be read within {} ms", deadline.as_millis());
            return Err(Error::new(Code::TryAgain, message).details(again));
        }
        said = Some(again);
        std::thread::sleep(wait);
        pause *= 2;
    }
}

fn refused(status: u16, object: &str, kubeconfig: &Path, namespace: &str) -> Error {
    let kubeconfig = kubeconfig.display();
    let message = match status {
        401 => format!(
            "{object} cannot be read: the API server does not accept the token or certificate of {kubeconfig}"
        ),
        403 => format!(
            "{object} cannot be read: whom {kubeconfig} stands for lacks the right \"get\" on configmaps in the namespace {namespace}"
        ),
        404 => format!("{object} is not there"),
        _ => format!("{object} cannot be read: the API server answers with status {status}"),
    };
    Error::new(Code::Kubernetes, message)
}

/// Between half and all of `pause`, so that the pods of a node that start together do not ask together.
fn jittered(pause: Duration) -> Duration {
    use std::hash::{BuildHasher, Hasher};
    let noise = std::hash::RandomState::new().build_hasher().finish() % 1024;
    let half = pause / 2;
    half + half.mul_f64(f64::from(u16::try_from(noise).unwrap_or_default()) / 1024.0)
}

#[cfg(test)]
mod tests;
