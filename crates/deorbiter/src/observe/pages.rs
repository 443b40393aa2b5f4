//! Lists of any kind in pages, each object reduced at once to what is kept of it: the memory of a list is that of one page.

use common::causes::with_causes;
use kube::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Objects a page: client-go's own number.
const PAGE: usize = 500;

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

/// What could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// The server refuses, or does not answer.
    #[error("cannot read {what}: {}", with_causes(cause))]
    Kubernetes {
        /// Where.
        what: String,
        /// What it said.
        cause: kube::Error,
    },
    /// The server says something that makes no sense, or that we do not know.
    #[error("cannot read {what}: {why}")]
    Odd {
        /// Where.
        what: String,
        /// What is odd.
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

    /// Whether the rights are missing.
    #[must_use]
    pub fn is_forbidden(&self) -> bool {
        self.status() == Some(403)
    }
}

/// All objects at `path`, each through `keep`.
///
/// # Errors
/// Any page that could not be read: a list is whole or none.
pub async fn list<T: DeserializeOwned, K>(
    client: &Client,
    path: &str,
    mut keep: impl FnMut(T) -> Option<K>,
) -> Result<Vec<K>, Unreadable> {
    let mut out = Vec::new();
    let mut next = String::new();
    loop {
        let unreadable = |cause| Unreadable::Kubernetes { what: path.to_owned(), cause };
        let uri = format!("{path}?limit={PAGE}{next}");
        let request = http::Request::get(uri)
            .body(Vec::new())
            .map_err(|error| unreadable(kube::Error::HttpError(error)))?;
        let page: Page<T> = client.request(request).await.map_err(unreadable)?;
        out.extend(page.items.into_iter().flatten().filter_map(&mut keep));
        let Some(token) = page.metadata.next.filter(|token| !token.is_empty()) else { return Ok(out) };
        let following = format!("&continue={}", escape(&token));
        if following == next {
            let why = "the list leads back to the page that it comes from".to_owned();
            return Err(Unreadable::Odd { what: path.to_owned(), why });
        }
        next = following;
    }
}

/// For a query: tokens are base64, whose `+`, `/` and `=` mean something there.
fn escape(token: &str) -> String {
    token.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

/// Whether there is something at `path`.
///
/// # Errors
/// Anything but an object or a 404.
pub async fn exists(client: &Client, path: &str) -> Result<bool, Unreadable> {
    let unreadable = |cause| Unreadable::Kubernetes { what: path.to_owned(), cause };
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| unreadable(kube::Error::HttpError(error)))?;
    match client.request::<serde::de::IgnoredAny>(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(cause) => Err(unreadable(cause)),
    }
}

/// What stands at `path`.
///
/// # Errors
/// Anything but an answer that can be read.
pub async fn get<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, Unreadable> {
    let unreadable = |cause| Unreadable::Kubernetes { what: path.to_owned(), cause };
    let request = http::Request::get(path)
        .body(Vec::new())
        .map_err(|error| unreadable(kube::Error::HttpError(error)))?;
    client.request(request).await.map_err(unreadable)
}
