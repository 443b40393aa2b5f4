//! A plain client of the services, for tests.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Endpoints, Service};

/// Timeout of a response. With twenty programs per processor, Neutron took more than a minute to add the last of twelve subnets to its
/// router.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(240);

/// A login.
#[derive(Debug, Clone)]
pub enum Login {
    /// A user of the domain "default", in a project of it.
    Password {
        /// The user's name.
        user: String,
        /// The user's password.
        password: String,
        /// The project's name.
        project: String,
    },
    /// An application credential, which belongs to one project.
    ApplicationCredential {
        /// Its ID.
        id: String,
        /// Its secret.
        secret: String,
    },
}

/// A client with a login. Clones share the token.
#[derive(Debug, Clone)]
pub struct Api {
    endpoints: Endpoints,
    login: Login,
    token: Arc<Mutex<Option<String>>>,
}

/// The response of a service, with any status.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body: JSON mostly.
    pub body: Bytes,
    asked: String,
}

impl Response {
    /// The body as JSON; `null` where there is none or other text.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// The body of a success.
    ///
    /// # Errors
    /// It is not a success; the error has the request, the status and the body.
    pub fn ok(self) -> Result<Value> {
        let Self { status, asked, .. } = &self;
        ensure!(status.is_success(), "{asked}: {status}: {}", String::from_utf8_lossy(&self.body));
        Ok(self.json())
    }
}

impl Login {
    fn body(&self) -> Value {
        match self {
            Self::Password { user, password, project } => json!({ "auth": {
                "identity": { "methods": ["password"], "password": { "user": {
                    "name": user, "domain": { "id": "default" }, "password": password } } },
                "scope": { "project": { "name": project, "domain": { "id": "default" } } } } }),
            Self::ApplicationCredential { id, secret } => json!({ "auth": {
                "identity": { "methods": ["application_credential"],
                    "application_credential": { "id": id, "secret": secret } } } }),
        }
    }
}

impl Api {
    pub(super) fn new(endpoints: Endpoints, login: Login) -> Self {
        Self { endpoints, login, token: Arc::default() }
    }

    /// The endpoints.
    pub fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// A new token.
    ///
    /// # Errors
    /// Keystone refuses.
    pub async fn new_token(&self) -> Result<String> {
        let url = self.endpoints.base(Service::Identity)? + "/auth/tokens";
        let response = exchange(Method::POST, &url, &[], Some(&self.login.body())).await?;
        let token = response.headers.get("x-subject-token").map(|token| token.to_str().map(str::to_owned));
        response.ok()?;
        token.context("Keystone gave no token")?.context("a token")
    }

    /// Any request, unchanged, with any response. An expired token is replaced once.
    ///
    /// # Errors
    /// No response, or no token.
    pub async fn send(
        &self,
        method: Method,
        service: Service,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<Response> {
        let url = self.endpoints.base(service)? + path;
        let held = self.held().clone();
        let (token, fresh) = match held {
            Some(token) => (token, false),
            None => (self.new_token().await?, true),
        };
        let response = exchange(method.clone(), &url, &with(headers, &token), body).await?;
        *self.held() = Some(token);
        if response.status != StatusCode::UNAUTHORIZED || fresh {
            return Ok(response);
        }
        let token = self.new_token().await?;
        let response = exchange(method, &url, &with(headers, &token), body).await?;
        *self.held() = Some(token);
        Ok(response)
    }

    /// `GET`, which must succeed.
    ///
    /// # Errors
    /// No response, or not a success.
    pub async fn get(&self, service: Service, path: &str) -> Result<Value> {
        self.send(Method::GET, service, path, &[], None).await?.ok()
    }

    /// `POST`, which must succeed.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn post(&self, service: Service, path: &str, body: Value) -> Result<Value> {
        self.send(Method::POST, service, path, &[], Some(&body)).await?.ok()
    }

    /// `PUT`, which must succeed.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn put(&self, service: Service, path: &str, body: Value) -> Result<Value> {
        self.send(Method::PUT, service, path, &[], Some(&body)).await?.ok()
    }

    /// `DELETE`. A missing object is not an error.
    ///
    /// # Errors
    /// No response, or it is refused.
    pub async fn delete(&self, service: Service, path: &str) -> Result<()> {
        let response = self.send(Method::DELETE, service, path, &[], None).await?;
        if response.status != StatusCode::NOT_FOUND {
            response.ok()?;
        }
        Ok(())
    }

    /// `GET` of an object that may not exist: `None` for 404.
    ///
    /// # Errors
    /// No response, or neither a success nor 404.
    pub async fn find(&self, service: Service, path: &str) -> Result<Option<Value>> {
        let response = self.send(Method::GET, service, path, &[], None).await?;
        if response.status == StatusCode::NOT_FOUND { Ok(None) } else { response.ok().map(Some) }
    }

    /// Creates `one` by a `POST` to `path`, and returns it out of its envelope.
    ///
    /// # Errors
    /// As [`Api::get`].
    pub async fn create(&self, service: Service, path: &str, one: &str, body: Value) -> Result<Value> {
        let mut response = self.post(service, path, json!({ one: body })).await?;
        match response.get_mut(one).map(Value::take) {
            Some(created) => Ok(created),
            None => bail!("POST {path}: no {one} in {response}"),
        }
    }

    /// Uploads the data of an image.
    pub(super) async fn upload(&self, service: Service, path: &str, data: Vec<u8>) -> Result<()> {
        let url = self.endpoints.base(service)? + path;
        let request = http::Request::put(&url)
            .header("x-auth-token", self.new_token().await?)
            .header("content-type", "application/octet-stream")
            .body(Full::from(data))?;
        send(format!("PUT {url}"), request).await?.ok().map(drop)
    }

    fn held(&self) -> MutexGuard<'_, Option<String>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of a required field.
pub(super) fn text(of: &Value, field: &str) -> Result<String> {
    let text = of.get(field).and_then(Value::as_str);
    Ok(text.with_context(|| format!("no {field} in {of}"))?.to_owned())
}

fn with<'a>(headers: &[(&'a str, &'a str)], token: &'a str) -> Vec<(&'a str, &'a str)> {
    // A test may bring a token of its own.
    let own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("x-auth-token"));
    let token = (!own).then_some(("x-auth-token", token));
    headers.iter().copied().chain(token).collect()
}

/// One request over a connection of its own: tests come and go with their runtimes, and connections with them.
pub(super) async fn exchange(
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Result<Response> {
    let asked = format!("{method} {url}");
    let mut request = http::Request::builder().method(method).uri(url).header("accept", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = match body {
        Some(body) => {
            request.header("content-type", "application/json").body(Full::from(serde_json::to_vec(body)?))
        }
        None => request.body(Full::default()),
    }?;
    send(asked, request).await
}

async fn send(asked: String, request: http::Request<Full<Bytes>>) -> Result<Response> {
    let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build_http();
    let response = async {
        let (head, body) = client.request(request).await?.into_parts();
        anyhow::Ok((head, body.collect().await?.to_bytes()))
    };
    let (head, body) = timeout(RESPONSE_TIMEOUT, response)
        .await
        .with_context(|| format!("{asked}: no response within {RESPONSE_TIMEOUT:?}"))?
        .with_context(|| asked.clone())?;
    Ok(Response { status: head.status, headers: head.headers, body, asked })
}
