//! One call of the table: sent with a valid token, retried where that is harmless, parsed or turned into an error.

use std::collections::BTreeSet;
use std::time::Duration;

use ::http::header::IF_MATCH;
use ::http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Cloud;
use super::error::Error;
use super::page::{self, Page};
use super::rights::Call;
use super::service::Service;
use super::session::Session;
use crate::cloud::http::{self, Budget, Response, Retry, json_request, with_query};

/// For a read with its retries: two exchanges without a response, and a little.
const READ: Duration = Duration::from_secs(130);
/// For all pages of a list: 20,000 ports come in 40 pages, and Neutron takes seconds for one.
const LIST: Duration = Duration::from_secs(300);
/// For the attempts to connect for a write.
const WRITE: Duration = Duration::from_secs(30);
/// At 500 items a page, beyond every quota; a bound for a server that always names another page.
const MOST_PAGES: usize = 2000;
/// Since 2.69, servers of a cell that is down are listed as UNKNOWN instead of missing.
const MICROVERSION: [&str; 2] = ["compute 2.69", "2.69"];

/// A request to a service.
pub(super) struct ApiRequest<'a> {
    call: Call,
    /// For each `{id}` of the path.
    ids: Vec<&'a str>,
    query: String,
    body: Option<Value>,
    revision: Option<u64>,
}

impl<'a> ApiRequest<'a> {
    pub fn all(call: Call, query: &[(&str, &str)]) -> ApiRequest<'a> {
        let query = with_query("", query);
        ApiRequest { call, ids: Vec::new(), query, body: None, revision: None }
    }

    pub fn one(call: Call, id: &'a str) -> ApiRequest<'a> {
        ApiRequest::of(call, vec![id])
    }

    /// An object of another one.
    pub fn of(call: Call, ids: Vec<&'a str>) -> ApiRequest<'a> {
        ApiRequest { call, ids, query: String::new(), body: None, revision: None }
    }

    pub fn query(mut self, query: &[(&str, &str)]) -> ApiRequest<'a> {
        self.query = with_query("", query);
        self
    }

    /// `revision` makes the write conditional: 412 if the object has another one by now.
    pub fn body(mut self, body: Value, revision: Option<u64>) -> ApiRequest<'a> {
        self.body = Some(body);
        self.revision = revision;
        self
    }

    /// The path after the service's base, without the query.
    fn path(&self) -> Result<String, Error> {
        let right = self.call.right();
        self.ids.iter().try_fold(right.path.to_owned(), |path, id| match is_id(id) {
            true => Ok(path.replacen("{id}", id, 1)),
            // An ID may come from an annotation or spec that any client can write.
            false => Err(Error::setup(
                format!("{} {} {}", right.service, right.method, right.path),
                format!("{id:?} is not an ID: letters, digits, - and _ are allowed"),
            )),
        })
    }
}

impl Cloud {
    /// Sends a read or a write. Returns the object under `key` in the response.
    pub(super) async fn object<T: DeserializeOwned>(
        &self,
        request: &ApiRequest<'_>,
        key: &str,
    ) -> Result<T, Error> {
        let timeout = if request.call.right().method == Method::GET { READ } else { WRITE };
        let (call, response) = self.send(request, &mut Budget::with_timeout(timeout)).await?;
        let mut fields: Map<String, Value> =
            serde_json::from_slice(&response.body).map_err(|cause| Error::decode(&call, cause))?;
        let object = fields.remove(key);
        let object = object.ok_or_else(|| Error::decode(&call, format!("it has no \"{key}\"")))?;
        serde_json::from_value(object).map_err(|cause| Error::decode(&call, format!("\"{key}\": {cause}")))
    }

    /// The same; None if the service itself says that there is no such object.
    pub(super) async fn find<T: DeserializeOwned>(
        &self,
        request: &ApiRequest<'_>,
        key: &str,
    ) -> Result<Option<T>, Error> {
        absent(self.object(request, key).await)
    }

    /// Sends a DELETE. An object that is already gone is Ok.
    pub(super) async fn delete(&self, request: &ApiRequest<'_>) -> Result<(), Error> {
        absent(self.send(request, &mut Budget::with_timeout(WRITE)).await).map(|_| ())
    }

    /// All pages of a list, or an error.
    ///
    /// The next page is the link with `rel: next` in `<key>_links`. Only its query is used, because behind a proxy the server's own
    /// address is often wrong. A server without such links may have truncated the list at the limit: after a page of exactly that
    /// length, the items after the last one are requested.
    pub(super) async fn list<T: DeserializeOwned>(
        &self,
        request: ApiRequest<'_>,
        key: &str,
    ) -> Result<Vec<T>, Error> {
        self.list_kept(request, key, Some).await
    }

    /// The same, with `keep` applied to each item before the next one is decoded: only the kept values and the text of one page are in
    /// memory.
    pub(super) async fn list_kept<T: DeserializeOwned, K>(
        &self,
        request: ApiRequest<'_>,
        key: &str,
        mut keep: impl FnMut(T) -> Option<K>,
    ) -> Result<Vec<K>, Error> {
        let mut budget = Budget::with_timeout(LIST);
        let mut request = request;
        let mut items = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            let (call, response) = self.send(&request, &mut budget).await?;
            // A rate limiter that refuses every tenth request must not fail a list of fifty pages each time.
            budget.progressed();
            let page = page::read(&response.body, key, |item| items.extend(keep(item)));
            let page = page.map_err(|cause| Error::decode(&call, cause))?;
            let query = match &page.links {
                Some(links) => {
                    let Some(next) = links.iter().find(|link| link.rel == "next") else {
                        return Ok(items);
                    };
                    let query = query_of(&next.href).map(str::to_owned);
                    query.ok_or_else(|| Error::partial(&call, "the link to the next page has no query"))?
                }
                None => match behind(&request.query, &page) {
                    Some(query) => query,
                    None => return Ok(items),
                },
            };
            if !seen.insert(marker(&query).to_owned()) {
                let why = "the list links to a page that was already read; it is not used";
                return Err(Error::partial(&call, why));
            }
            if seen.len() >= MOST_PAGES {
                let why = format!("more than {MOST_PAGES} pages; the list is not used");
                return Err(Error::partial(&call, why));
            }
            request.query = format!("?{query}");
        }
    }

    /// The 2xx response, with the name of the call for messages. A read is retried within the budget; a write only while no connection
    /// can be made. A refused token is replaced once.
    async fn send(&self, request: &ApiRequest<'_>, budget: &mut Budget) -> Result<(String, Response), Error> {
        let right = request.call.right();
        let path = request.path()?;
        let mut session = self.shared.session().await?;
        let mut replaced = false;
        loop {
            let uri = session
                .endpoint(right.service)?
                .at(&format!("{path}{}", request.query))
                .map_err(|cause| Error::setup(format!("{} {path}", right.service), cause.to_string()))?;
            let call = format!("{} {} {}", right.service, right.method, uri.path());
            let end = match self.exchange(request, uri, &session, budget).await {
                Ok(response) if response.status.is_success() => return Ok((call, response)),
                Ok(response) if response.status == StatusCode::UNAUTHORIZED && !replaced => {
                    replaced = true;
                    session = self.shared.renewed(&session).await?;
                    continue;
                }
                Ok(response) => Error::response(&call, &response, &self.shared.secrets(Some(&session))),
                Err(cause) if right.method != Method::GET && !matches!(cause, http::Error::Connect(_)) => {
                    return Err(Error::transport(&call, cause));
                }
                Err(cause) => Error::transport(&call, cause),
            };
            let retry = match end.status() {
                // The caller finds out what a failed write has done.
                Some(_) if right.method != Method::GET => Retry::Never,
                _ => end.retry(),
            };
            let Some(wait) = budget.next_wait(retry) else { return Err(end) };
            tracing::debug!(error = %end, after = ?wait, "the request is retried");
            tokio::time::sleep(wait).await;
        }
    }

    async fn exchange(
        &self,
        request: &ApiRequest<'_>,
        uri: Uri,
        session: &Session,
        budget: &Budget,
    ) -> Result<Response, http::Error> {
        const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");
        let right = request.call.right();
        let path = uri.path().to_owned();
        let mut http_request =
            json_request(&right.method, uri, &self.shared.user_agent, request.body.as_ref());
        let headers = http_request.headers_mut();
        headers.insert(TOKEN, session.token.header.clone());
        if let Some(revision) = request.revision {
            // The only format that Neutron knows: it ignores any other, and the write is not conditional.
            let value = HeaderValue::try_from(format!("revision_number={revision}"));
            headers.insert(IF_MATCH, value.map_err(|cause| http::Error::Setup(cause.to_string()))?);
        }
        if right.service == Service::Compute {
            let [version, legacy] = MICROVERSION.map(HeaderValue::from_static);
            headers.insert(HeaderName::from_static("openstack-api-version"), version);
            headers.insert(HeaderName::from_static("x-openstack-nova-api-version"), legacy);
        }
        let deadline = match right.method {
            Method::GET => budget.deadline().min(self.shared.wire.deadline()),
            _ => self.shared.wire.deadline(),
        };
        self.shared.wire.exchange(http_request, right.service.name(), &path, deadline).await
    }
}

fn absent<T>(end: Result<T, Error>) -> Result<Option<T>, Error> {
    match end {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The query of a URL.
fn query_of(href: &str) -> Option<&str> {
    let (_, query) = href.split_once('?')?;
    query.split('#').next().filter(|query| !query.is_empty())
}

/// The query for the items after a page that is exactly as long as the limit; None for any other page.
fn behind(query: &str, page: &Page) -> Option<String> {
    let query = query.strip_prefix('?')?;
    let limit: usize = query.split('&').find_map(|pair| pair.strip_prefix("limit="))?.parse().ok()?;
    let last = page.last.as_deref().filter(|_| page.length == limit)?;
    let rest: Vec<&str> = query.split('&').filter(|pair| !pair.starts_with("marker=")).collect();
    Some(with_query("", &[("marker", last)]).replacen('?', &format!("{}&", rest.join("&")), 1))
}

/// Identifies a page by the `marker` of its query, or by the whole query if it has none.
fn marker(query: &str) -> &str {
    query.split('&').find_map(|pair| pair.strip_prefix("marker=")).unwrap_or(query)
}

/// Whether a text can be an ID in OpenStack: not empty, only letters, digits, `-` and `_`. Any client can write annotations, volume
/// handles and fields of a port; in a path, another text could mean something else.
#[must_use]
pub fn is_id(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_that_are_safe_in_a_path_are_ids() {
        assert!(is_id("0d5c9f3e-0000-4000-8000-000000000003") && is_id("web_1"));
        assert!(!is_id("") && !is_id("a/b") && !is_id("..") && !is_id("a?b=c") && !is_id("ü"));
    }
}
