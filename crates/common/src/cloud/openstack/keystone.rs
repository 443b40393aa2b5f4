//! A token: how it is asked for, what comes with it, how long it serves.

use std::time::Duration;

use ::http::HeaderValue;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::catalog::Catalog;
use super::credentials::{Login, Owned};
use crate::cloud::http::Answer;

/// A token of a project, with the catalogue that came with it.
pub(super) struct Token {
    /// Marked sensitive: a request's `Debug` does not show it.
    pub header: HeaderValue,
    pub project: String,
    pub catalog: Catalog,
    /// From then on a new one is asked for, while this one still serves.
    pub renew: Instant,
    /// From then on it no longer serves.
    pub expires: Instant,
}

impl Token {
    /// The token itself, to keep it out of messages.
    pub fn text(&self) -> &str {
        self.header.to_str().unwrap_or_default()
    }
}

/// The body of `POST /v3/auth/tokens`.
pub(super) fn request(login: &Login) -> Value {
    match login {
        Login::ApplicationCredential { credential, secret, .. } => {
            let mut named = json!({"secret": secret});
            match credential {
                Owned::Id(id) => set(&mut named, "id", json!(id)),
                Owned::Name { name, owner } => {
                    set(&mut named, "name", json!(name));
                    set(&mut named, "user", owned(owner));
                }
                Owned::Domain(name) => set(&mut named, "name", json!(name)),
            }
            let identity = json!({"methods": ["application_credential"], "application_credential": named});
            json!({"auth": {"identity": identity}})
        }
        Login::Password { user, password, project } => {
            let mut user = owned(user);
            set(&mut user, "password", json!(password));
            json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": owned(project)},
            }})
        }
        Login::Token { token, project } => {
            let identity = json!({"methods": ["token"], "token": {"id": token}});
            match project {
                Some(project) => {
                    json!({"auth": {"identity": identity, "scope": {"project": owned(project)}}})
                }
                None => json!({"auth": {"identity": identity}}),
            }
        }
    }
}

fn owned(of: &Owned) -> Value {
    match of {
        Owned::Id(id) => json!({"id": id}),
        Owned::Domain(name) => json!({"name": name}),
        Owned::Name { name, owner } => json!({"name": name, "domain": owned(owner)}),
    }
}

fn set(object: &mut Value, field: &str, value: Value) {
    if let Value::Object(fields) = object {
        fields.insert(field.to_owned(), value);
    }
}

#[derive(Deserialize)]
struct Body {
    token: Described,
}

#[derive(Deserialize)]
struct Described {
    expires_at: Timestamp,
    #[serde(default)]
    issued_at: Option<Timestamp>,
    #[serde(default)]
    project: Option<Project>,
    #[serde(default)]
    catalog: Option<Catalog>,
}

#[derive(Deserialize)]
struct Project {
    id: String,
}

/// The token in a 201. `asked`: when it was asked for. The error says what the answer lacks.
pub(super) fn token(answer: &Answer, login: &Login, asked: Instant, now: Timestamp) -> Result<Token, String> {
    let mut header = answer
        .headers
        .get("x-subject-token")
        .filter(|token| !token.is_empty() && token.to_str().is_ok())
        .cloned()
        .ok_or_else(|| "no token in it (X-Subject-Token)".to_owned())?;
    header.set_sensitive(true);
    let Body { token } = serde_json::from_slice(&answer.body).map_err(|cause| cause.to_string())?;
    let Project { id: project } = token
        .project
        .ok_or_else(|| "the token is not of a project: name one in the credential".to_owned())?;
    if let Login::ApplicationCredential { project: Some(wanted), .. } = login
        && *wanted != project
    {
        return Err(format!(
            "the application credential is of project {project}, but project_id is {wanted}: remove project_id, or use \
             the other credential"
        ));
    }
    let catalog = token.catalog.ok_or_else(|| "the token has no catalogue".to_owned())?;
    // Both times are the server's, so that its clock may differ from ours.
    let life = Duration::try_from(token.expires_at.duration_since(token.issued_at.unwrap_or(now)))
        .unwrap_or_default();
    Ok(Token { header, project, catalog, renew: asked + renewal(life), expires: asked + life })
}

/// At 80 % of its life, or when a minute is left, so that no long list outlives it; but not before half of its life: the token
/// of an application credential that is about to expire would be asked for with each call.
fn renewal(life: Duration) -> Duration {
    life.mul_f64(0.8).min(life.saturating_sub(Duration::from_secs(60))).max(life / 2)
}
