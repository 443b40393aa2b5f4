//! A token: the request, the response, and its lifetime.

use std::time::Duration;

use ::http::HeaderValue;
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::application_credential::{self, ApplicationCredential};
use super::catalog::Catalog;
use super::credentials::{Login, Owned};
use crate::cloud::http::Response;

/// A token of a project, with the catalogue that came with it.
pub(super) struct Token {
    /// Marked sensitive: a request's `Debug` does not show it.
    pub header: HeaderValue,
    pub project: String,
    /// The application credential that it was issued for.
    pub application_credential: Option<ApplicationCredential>,
    pub catalog: Catalog,
    /// When it is renewed, while it is still valid.
    pub renew: Instant,
    /// When it expires.
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
    #[serde(deserialize_with = "utc")]
    expires_at: Timestamp,
    #[serde(default, deserialize_with = "utc_or_none")]
    issued_at: Option<Timestamp>,
    #[serde(default)]
    project: Option<HasId>,
    #[serde(default)]
    user: Option<HasId>,
    #[serde(default)]
    application_credential: Option<application_credential::OfToken>,
    #[serde(default)]
    catalog: Option<Catalog>,
}

#[derive(Deserialize)]
struct HasId {
    id: String,
}

/// Keystone's times are in UTC, also without a zone.
fn utc<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(from)?;
    text.parse::<Timestamp>().or_else(|cause| time(&text).ok_or_else(|| D::Error::custom(cause)))
}

/// Without the time of issue, our own clock is used.
fn utc_or_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(from)?.unwrap_or_default();
    Ok(text.parse::<Timestamp>().ok().or_else(|| time(&text)))
}

fn time(text: &str) -> Option<Timestamp> {
    let time: civil::DateTime = text.parse().ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// The token in a 201. `asked`: when it was requested. The error says what is missing.
pub(super) fn token(
    response: &Response,
    login: &Login,
    asked: Instant,
    now: Timestamp,
) -> Result<Token, String> {
    let mut header = response
        .headers
        .get("x-subject-token")
        .filter(|token| !token.is_empty() && token.to_str().is_ok())
        .cloned()
        .ok_or_else(|| "no token in it (X-Subject-Token)".to_owned())?;
    header.set_sensitive(true);
    let Body { token } = serde_json::from_slice(&response.body).map_err(|cause| cause.to_string())?;
    let HasId { id: project } = token
        .project
        .ok_or_else(|| "the token is not of a project: name one in the credential".to_owned())?;
    if let Login::ApplicationCredential { project: Some(selected), .. } = login
        && *selected != project
    {
        return Err(format!(
            "the application credential is of project {project}, but project_id is {selected}: remove project_id, or use \
             the other credential"
        ));
    }
    // A login with a token has none of its own: the token may be of another program's credential.
    let of_login =
        token.application_credential.filter(|_| matches!(login, Login::ApplicationCredential { .. }));
    let application_credential = of_login.zip(token.user).map(|(credential, user)| credential.of(user.id));
    let catalog = token.catalog.ok_or_else(|| "the token has no catalogue".to_owned())?;
    // Both times are the server's, so that its clock may differ from ours.
    let life = Duration::try_from(token.expires_at.duration_since(token.issued_at.unwrap_or(now)))
        .unwrap_or_default();
    Ok(Token {
        header,
        project,
        application_credential,
        catalog,
        renew: asked + renewal(life),
        expires: asked + life,
    })
}

/// Renewal at 80 % of the lifetime, or when a minute is left, so that a long list does not outlive the token; but not before half of
/// the lifetime: otherwise, for an application credential that expires soon, each call would request a token.
fn renewal(life: Duration) -> Duration {
    life.mul_f64(0.8).min(life.saturating_sub(Duration::from_secs(60))).max(life / 2)
}

#[cfg(test)]
mod tests {
    use ::http::{HeaderMap, StatusCode};

    use super::*;

    fn id(id: &str) -> Owned {
        Owned::Id(id.to_owned())
    }

    fn named(name: &str, owner: Owned) -> Owned {
        Owned::Name { name: name.to_owned(), owner: Box::new(owner) }
    }

    #[test]
    fn the_body_has_a_scope_only_where_one_is_allowed() {
        let secret = "s".to_owned();
        let by_id = Login::ApplicationCredential {
            credential: id("c"),
            secret: secret.clone(),
            project: Some("p".to_owned()),
        };
        assert_eq!(
            request(&by_id),
            json!({"auth": {"identity": {
                "methods": ["application_credential"], "application_credential": {"id": "c", "secret": "s"},
            }}})
        );
        let user = named("u", Owned::Domain("Default".to_owned()));
        let by_name = Login::ApplicationCredential {
            credential: named("c", user.clone()),
            secret: secret.clone(),
            project: None,
        };
        assert_eq!(
            request(&by_name)["auth"]["identity"]["application_credential"],
            json!({"name": "c", "secret": "s", "user": {"name": "u", "domain": {"name": "Default"}}})
        );
        let password = Login::Password { user, password: secret.clone(), project: named("p", id("default")) };
        assert_eq!(
            request(&password),
            json!({"auth": {
                "identity": {"methods": ["password"], "password": {"user": {
                    "name": "u", "domain": {"name": "Default"}, "password": "s",
                }}},
                "scope": {"project": {"name": "p", "domain": {"id": "default"}}},
            }})
        );
        let token = Login::Token { token: secret.clone(), project: Some(id("p")) };
        assert_eq!(
            request(&token),
            json!({"auth": {
                "identity": {"methods": ["token"], "token": {"id": "s"}}, "scope": {"project": {"id": "p"}},
            }})
        );
        assert!(request(&Login::Token { token: secret, project: None })["auth"].get("scope").is_none());
    }

    fn read(token: Option<&'static str>, body: &Value) -> Result<Token, String> {
        let mut headers = HeaderMap::new();
        if let Some(token) = token {
            headers.insert("X-Subject-Token", HeaderValue::from_static(token));
        }
        let response = Response { status: StatusCode::CREATED, headers, body: body.to_string().into() };
        let login = Login::ApplicationCredential {
            credential: id("c"),
            secret: "s".to_owned(),
            project: Some("p".to_owned()),
        };
        super::token(&response, &login, Instant::now(), "2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn the_life_of_a_token_is_the_servers_to_say() {
        let project = json!({"id": "p"});
        let good = json!({"token": {
            "expires_at": "2018-01-15T22:14:05.000000Z", "issued_at": "2018-01-15T21:14:05.000000Z",
            "project": project, "catalog": [],
        }});
        let token = read(Some("t"), &good).unwrap();
        assert_eq!((token.text(), token.project.as_str()), ("t", "p"));
        assert!(token.header.is_sensitive());
        assert_eq!(token.renew - Instant::now(), Duration::from_secs(2880), "80 % of an hour");
        assert_eq!(token.expires - Instant::now(), Duration::from_secs(3600));
        let plain = json!({"token": {
            "expires_at": "2026-01-01T00:10:00.000000", "issued_at": "today", "project": project, "catalog": [],
        }});
        let token = read(Some("t"), &plain).unwrap();
        assert_eq!(token.expires - Instant::now(), Duration::from_secs(600), "of UTC, and by our clock");
        for (token, body, why) in [
            (None, good.clone(), "X-Subject-Token"),
            (
                Some("t"),
                json!({"token": {"expires_at": "2026-01-01T01:00:00Z", "catalog": []}}),
                "not of a project",
            ),
            (
                Some("t"),
                json!({"token": {"expires_at": "2026-01-01T01:00:00Z", "catalog": [], "project": {"id": "q"}}}),
                "is of project q, but project_id is p",
            ),
            (
                Some("t"),
                json!({"token": {"expires_at": "2026-01-01T01:00:00Z", "project": project}}),
                "no catalogue",
            ),
            (Some("t"), json!({"token": {"expires_at": "soon", "project": project}}), "line 1"),
            (Some("t"), json!({}), "missing field"),
        ] {
            let error = read(token, &body).err().unwrap();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn a_short_token_is_not_renewed_with_each_call() {
        for (life, renew) in [(3600, 2880), (300, 240), (150, 90), (100, 50), (10, 5), (0, 0)] {
            assert_eq!(renewal(Duration::from_secs(life)), Duration::from_secs(renew), "{life}");
        }
    }
}
