//! Lists of any kind in pages. Each object is trimmed at once: a list needs the memory of one page.

use std::time::{Duration, Instant};

use common::cluster::error_chain;
use kube::Client;
use kube::api::ListParams;
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::snapshot::{Unread, Version};

/// Objects a page: client-go's own number.
const PAGE: u32 = 500;

#[derive(Deserialize)]
struct Page<T> {
    #[serde(default)]
    metadata: PageMeta,
    items: Option<Vec<T>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue", default)]
    next: Option<String>,
}

/// A failed read from the API server.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The server refuses, or does not respond.
    #[error("cannot read {what}: {}", error_chain(cause))]
    Kubernetes {
        /// Path of the request.
        what: String,
        /// The response.
        cause: kube::Error,
    },
    /// The response cannot be understood.
    #[error("cannot read {what}: {why}")]
    Odd {
        /// Path of the request.
        what: String,
        /// The problem of the response.
        why: String,
    },
}

impl Unreadable {
    fn status(&self) -> Option<u16> {
        match self {
            Unreadable::Kubernetes { cause: kube::Error::Api(status), .. } => Some(status.code),
            _ => None,
        }
    }

    /// Whether the server has no such kind.
    #[must_use]
    pub fn is_no_kind(&self) -> bool {
        self.status() == Some(404)
    }

    /// Classifies the error for the plan: only a server that does not respond, or cannot respond now, is unavailable.
    #[must_use]
    pub fn unread(&self) -> Unread {
        match self {
            Unreadable::Kubernetes { cause: kube::Error::Api(status), .. } if is_temporary(status.code) => {
                Unread::Failing(self.to_string())
            }
            Unreadable::Kubernetes { cause, .. } if is_no_response(cause) => {
                Unread::NoResponse(self.to_string())
            }
            _ => Unread::Refused(self.to_string()),
        }
    }

    /// Whether the rights are missing.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status() == Some(403)
    }
}

/// How often a read is tried: a server or a network that fails now and then must not look like an outage.
const ATTEMPTS: u32 = 3;
/// A request that took longer than this to fail is not tried again: the server is unavailable.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);

/// Sends a request to `path`, and repeats it until the server responds with anything but an error of its own.
async fn read<T: DeserializeOwned>(
    client: &Client,
    path: &str,
    request: http::Request<Vec<u8>>,
) -> Result<T, Unreadable> {
    let started = Instant::now();
    let mut tries = 1;
    loop {
        match client.request(request.clone()).await {
            Err(error) if tries < ATTEMPTS && is_passing(&error) && started.elapsed() < RETRY_TIMEOUT => {
                tracing::debug!(uri = %request.uri(), %error, "retrying");
                tokio::time::sleep(Duration::from_millis(200) * tries).await;
                tries += 1;
            }
            result => return result.map_err(|cause| Unreadable::Kubernetes { what: path.to_owned(), cause }),
        }
    }
}

fn is_passing(error: &kube::Error) -> bool {
    match error {
        // The client has retried these itself.
        kube::Error::Api(status) => status.code >= 500 && !matches!(status.code, 503 | 504),
        kube::Error::HttpError(_) | kube::Error::Auth(_) => false,
        _ => true,
    }
}

/// Whether no user has to act for the same request to succeed later: an error of the server itself, a timeout, priority and fairness (429),
/// or a list whose next page was compacted (410).
fn is_temporary(code: u16) -> bool {
    code >= 500 || matches!(code, 408 | 410 | 429)
}

/// Whether the server did not respond. A certificate that is not trusted is a response.
fn is_no_response(error: &kube::Error) -> bool {
    match error {
        kube::Error::HyperError(_) | kube::Error::ReadEvents(_) => true,
        kube::Error::Service(cause) => !is_tls(&**cause),
        _ => false,
    }
}

fn is_tls(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        // An io::Error does not name what it wraps as its source.
        let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if error.is::<rustls::Error>() || wrapped.is_some_and(|one| one.is::<rustls::Error>()) {
            return true;
        }
        next = error.source();
    }
    false
}

/// All objects at `path`, each through `keep`.
///
/// # Errors
/// Any page that could not be read: a list is complete or an error.
pub async fn list<T: DeserializeOwned, K>(
    client: &Client,
    path: &str,
    mut keep: impl FnMut(T) -> Option<K>,
) -> Result<Vec<K>, Unreadable> {
    let mut out = Vec::new();
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let request = Request::new(path).list(&params).map_err(kube::Error::BuildRequest);
        let request = request.map_err(|cause| Unreadable::Kubernetes { what: path.to_owned(), cause })?;
        let page: Page<T> = read(client, path, request).await?;
        out.extend(page.items.into_iter().flatten().filter_map(&mut keep));
        let Some(token) = page.metadata.next.filter(|token| !token.is_empty()) else { return Ok(out) };
        if params.continue_token.as_ref() == Some(&token) {
            let why = "the list continues at the page that it is on".to_owned();
            return Err(Unreadable::Odd { what: path.to_owned(), why });
        }
        params = params.continue_token(&token);
    }
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Version,
}

/// The version of the object at `path`; None where there is none.
///
/// # Errors
/// Anything but an object or a 404.
pub async fn version(client: &Client, path: &str) -> Result<Option<Version>, Unreadable> {
    match get::<Versioned>(client, path).await {
        Ok(found) => Ok(Some(found.metadata)),
        Err(error) if error.is_no_kind() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The object at `path`.
///
/// # Errors
/// Anything but a response that can be decoded.
pub async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Unreadable> {
    let request = http::Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError);
    let request = request.map_err(|cause| Unreadable::Kubernetes { what: path.to_owned(), cause })?;
    read(client, path, request).await
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use kube::client::Body;

    use super::*;

    /// A server with these responses in order, the last one for ever: a status code, or no response. And the number of requests.
    fn server(responses: &'static [Option<u16>]) -> (Client, Arc<Mutex<usize>>) {
        let requests = Arc::new(Mutex::new(0));
        let seen = Arc::clone(&requests);
        let service = tower::service_fn(move |_: http::Request<Body>| {
            let mut requests = seen.lock().unwrap();
            let response = responses[(*requests).min(responses.len() - 1)];
            *requests += 1;
            std::future::ready(match response {
                None => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                Some(code) => {
                    let text = r#"{"items": [{}], "kind": "Status", "status": "Failure", "code": CODE}"#;
                    let body = Body::from(text.replace("CODE", &code.to_string()).into_bytes());
                    Ok(http::Response::builder().status(code).body(body).unwrap())
                }
            })
        });
        (Client::new(service, "default"), requests)
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_server_that_does_not_respond_counts_as_unreachable() {
        for (response, reason) in [
            (None, "NoResponse"),
            (Some(500), "ServerError"),
            (Some(429), "ServerError"),
            (Some(410), "ServerError"),
            (Some(401), "Refused"),
            (Some(404), "Refused"),
        ] {
            let (client, _) = server(Vec::leak(vec![response]));
            let error = get::<serde::de::IgnoredAny>(&client, "/x").await.unwrap_err();
            assert_eq!(error.unread().reason(), reason);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_fails_is_retried_until_the_server_responds() {
        for (responses, tries, whole) in [
            (&[Some(200)][..], 1, true),
            (&[None, Some(200)], 2, true),
            (&[Some(500), None, Some(200)], 3, true),
            (&[Some(502), Some(500), None, Some(200)], 3, false),
            (&[Some(503), Some(200)], 1, false),
            (&[Some(403), Some(200)], 1, false),
            (&[Some(404), Some(200)], 1, false),
        ] {
            let (client, requests) = server(responses);
            let listed = list(&client, "/api/v1/pods", |one: serde::de::IgnoredAny| Some(one)).await;
            assert_eq!(
                (*requests.lock().unwrap(), listed.is_ok()),
                (tries, whole),
                "{responses:?}: {listed:?}"
            );
        }
    }
}
