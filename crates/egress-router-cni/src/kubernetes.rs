//! One ConfigMap, read with the kubeconfig of the node.
//!
//! Source of the request and of its refusals: the Kubernetes API reference, `GET
//! /api/v1/namespaces/{namespace}/configmaps/{name}`.

pub mod kubeconfig;
pub mod request;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use common::validation::{is_dns_label, is_dns_subdomain};

use self::kubeconfig::Access;
use self::request::{Client, Response};
use crate::cni::{Code, Error};
use crate::http::retry::RetryBudget;

/// Timeout of one attempt: the API server responds within milliseconds, and another connection may reach another of its instances.
const ATTEMPT_TIMEOUT: Duration = Duration::from_millis(1500);

/// `data` of the ConfigMap `name` in `namespace`; `binaryData` is ignored.
///
/// All attempts and the pauses between them fit into `deadline`. After 401 the kubeconfig is read once more, because its token may have been
/// renewed.
///
/// # Errors
///
/// Code 5, 6 or 7 for a kubeconfig that cannot be read or used ([`Access::read`]); 11 if the API server was unreachable, throttled (429)
/// or failed (5xx) until the deadline, or did not accept the token (401), which the installer renews; 103 if it refused permanently: no such
/// ConfigMap, no permission to read it, or an untrusted certificate. No message contains a token or a key.
pub fn config_map(
    kubeconfig: &Path,
    namespace: &str,
    name: &str,
    deadline: Duration,
) -> Result<BTreeMap<String, String>, Error> {
    // Both become part of the URL, and the namespace comes from the runtime's arguments.
    for (what, text, is_valid, allowed) in [
        ("namespace", namespace, is_dns_label(namespace), "lower-case letters, digits and '-'"),
        ("ConfigMap", name, is_dns_subdomain(name), "lower-case letters, digits, '-' and '.'"),
    ] {
        if !is_valid {
            let message = format!("{text:?} is not a valid {what} name: {allowed} are allowed");
            return Err(Error::invalid_config(message));
        }
    }
    let mut retry = RetryBudget::until(Instant::now() + deadline).with_timeout(ATTEMPT_TIMEOUT);
    let mut client = Client::new(&Access::read(kubeconfig)?);
    let mut reread = false;
    let path = format!("/api/v1/namespaces/{namespace}/configmaps/{name}");
    let object = format!("ConfigMap {namespace}/{name}");
    let mut last = None;
    while let Some(timeout) = retry.request_timeout() {
        let reason = match client.get(&path, timeout) {
            Response::Data(data) => return Ok(data),
            Response::Refused { status: 401, .. } if !reread => {
                reread = true;
                client = Client::new(&Access::read(kubeconfig)?);
                continue;
            }
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
            Response::Retry(reason) => reason,
        };
        // The server's earlier response is more useful than the last attempt's timeout.
        if last.is_none() || retry.request_timeout().is_some() {
            last = Some(reason);
        }
        if !retry.backoff() {
            break;
        }
    }
    let message = format!("{object} could not be read within {} ms", deadline.as_millis());
    Err(Error::new(Code::TryAgain, message).details(last.unwrap_or_default()))
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
    Error::new(if status == 401 { Code::TryAgain } else { Code::Kubernetes }, message)
}

#[cfg(test)]
mod tests;
