//! Credentials: the login, the choice of endpoints, the trusted authorities.

use std::fmt;

use super::catalog::Interface;
use super::endpoint_override::{EndpointOverrides, Settings};
use crate::cloud::http::Trust;

/// A credential of one project, with the region and interface to use and the authority to trust. `Debug` shows no secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Keystone's base, which ends in `/v3`.
    pub(super) auth_url: String,
    pub(super) login: Login,
    pub(super) region: Option<String>,
    pub(super) interface: Interface,
    /// Overrides for single services.
    pub(super) endpoint_overrides: EndpointOverrides,
    pub(super) trust: Trust,
}

#[derive(Clone, PartialEq, Eq)]
pub(super) enum Login {
    /// Its project is fixed; Keystone refuses a scope in the request. `project`: the expected project, if the credential names
    /// one.
    ApplicationCredential {
        credential: Owned,
        secret: String,
        project: Option<String>,
    },
    Password {
        user: Owned,
        password: String,
        project: Owned,
    },
    /// A token that another program requested: it cannot be renewed.
    Token {
        token: String,
        project: Option<Owned>,
    },
}

/// An object of Keystone: by its ID, or by its name together with its owner (the domain of a user or project, the user of a
/// credential).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owned {
    Id(String),
    Name {
        name: String,
        owner: Box<Owned>,
    },
    /// A domain's name has no owner.
    Domain(String),
}

/// The fields of a credential as any of the formats has them, before they are checked.
#[derive(Clone, Default)]
pub(super) struct Fields {
    pub auth_type: Option<String>,
    pub auth_url: Option<String>,
    pub user_id: Option<String>,
    pub username: Option<String>,
    pub password: Option<String>,
    pub user_domain_id: Option<String>,
    pub user_domain_name: Option<String>,
    pub project_id: Option<String>,
    pub project_name: Option<String>,
    pub project_domain_id: Option<String>,
    pub project_domain_name: Option<String>,
    pub domain_id: Option<String>,
    pub domain_name: Option<String>,
    pub default_domain_id: Option<String>,
    pub default_domain_name: Option<String>,
    pub application_credential_id: Option<String>,
    pub application_credential_name: Option<String>,
    pub application_credential_secret: Option<String>,
    pub token: Option<String>,
    pub trust_id: Option<String>,
    pub system_scope: Option<String>,
    pub region: Option<String>,
    pub interface: Option<String>,
    /// Of single services.
    pub settings: Settings,
    /// The authorities, in PEM.
    pub authorities: Option<Vec<u8>>,
    pub unverified: bool,
}

impl Fields {
    /// The fields of a login under the names that `clouds.yaml` and the `OS_*` variables share, older names last.
    pub fn of_login(value: impl Fn(&str) -> Option<String>) -> Fields {
        let first = |names: &[&str]| names.iter().find_map(|name| value(name));
        Fields {
            auth_url: first(&["auth_url"]),
            user_id: first(&["user_id"]),
            username: first(&["username"]),
            password: first(&["password"]),
            user_domain_id: first(&["user_domain_id"]),
            user_domain_name: first(&["user_domain_name"]),
            project_id: first(&["project_id", "tenant_id"]),
            project_name: first(&["project_name", "tenant_name"]),
            project_domain_id: first(&["project_domain_id"]),
            project_domain_name: first(&["project_domain_name"]),
            domain_id: first(&["domain_id"]),
            domain_name: first(&["domain_name"]),
            default_domain_id: first(&["default_domain_id", "default_domain"]),
            default_domain_name: first(&["default_domain_name"]),
            application_credential_id: first(&["application_credential_id"]),
            application_credential_name: first(&["application_credential_name"]),
            application_credential_secret: first(&["application_credential_secret"]),
            token: first(&["token", "auth_token"]),
            trust_id: first(&["trust_id"]),
            system_scope: first(&["system_scope"]),
            ..Fields::default()
        }
    }

    /// These fields. Missing ones are taken from `others`.
    pub fn over(self, others: Fields) -> Fields {
        macro_rules! over {
            ($($field:ident)*) => {
                Fields {
                    unverified: self.unverified || others.unverified,
                    settings: self.settings.over(others.settings),
                    $($field: self.$field.or(others.$field),)*
                }
            };
        }
        over!(
            auth_type auth_url user_id username password user_domain_id user_domain_name project_id project_name
            project_domain_id project_domain_name domain_id domain_name default_domain_id default_domain_name
            application_credential_id application_credential_name application_credential_secret token trust_id
            system_scope region interface authorities
        )
    }

    /// `place` is for messages: the file and the cloud in it.
    pub fn check(self, place: &str) -> Result<Credentials, ConfigError> {
        let wrong = |why: String| ConfigError::new(place, why);
        for (field, value) in [("trust_id", &self.trust_id), ("system_scope", &self.system_scope)] {
            if value.is_some() {
                return Err(wrong(format!(
                    "{field} is not supported: use an application credential of the project"
                )));
            }
        }
        let auth_url = self.auth_url.as_deref().ok_or_else(|| wrong("auth_url is missing".to_owned()))?;
        let auth_url = identity(auth_url).map_err(&wrong)?;
        let interface = match self.interface.as_deref() {
            None => Interface::Public,
            Some(word) => Interface::parse(word).ok_or_else(|| {
                wrong(format!("interface \"{word}\" is unknown: public, internal or admin"))
            })?,
        };
        let endpoint_overrides = self.settings.read().map_err(&wrong)?;
        let trust = match (&self.authorities, self.unverified) {
            (_, true) => Trust::InsecureSkipVerify,
            (Some(pem), false) => Trust::only(pem).map_err(|cause| wrong(cause.to_string()))?,
            (None, false) => Trust::System,
        };
        let login = self.login().map_err(&wrong)?;
        Ok(Credentials { auth_url, login, region: self.region, interface, endpoint_overrides, trust })
    }

    fn login(&self) -> Result<Login, String> {
        match self.auth_type.as_deref() {
            Some("v3applicationcredential") => self.application_credential(),
            Some("password" | "v3password") => self.with_password(),
            Some("token" | "v3token") => self.with_token(),
            Some(other) => Err(format!(
                "auth_type \"{other}\" is not supported: v3applicationcredential, v3password or v3token"
            )),
            None if self.application_credential_id.is_some()
                || self.application_credential_name.is_some() =>
            {
                self.application_credential()
            }
            None if self.token.is_some() && self.password.is_none() => self.with_token(),
            None => self.with_password(),
        }
    }

    fn application_credential(&self) -> Result<Login, String> {
        let credential = match (&self.application_credential_id, &self.application_credential_name) {
            (Some(id), _) => Owned::Id(id.clone()),
            (None, Some(name)) => Owned::Name { name: name.clone(), owner: Box::new(self.user()?) },
            (None, None) => return Err("application_credential_id is missing".to_owned()),
        };
        let secret = self
            .application_credential_secret
            .clone()
            .ok_or_else(|| "application_credential_secret is missing".to_owned())?;
        Ok(Login::ApplicationCredential { credential, secret, project: self.project_id.clone() })
    }

    fn with_password(&self) -> Result<Login, String> {
        let user = self.user()?;
        let password = self.password.clone().ok_or_else(|| "password is missing".to_owned())?;
        let project = self.project()?.ok_or_else(|| {
            "project_id or project_name is missing: only a token of a project has a catalogue".to_owned()
        })?;
        Ok(Login::Password { user, password, project })
    }

    fn with_token(&self) -> Result<Login, String> {
        let token = self.token.clone().ok_or_else(|| "token is missing".to_owned())?;
        Ok(Login::Token { token, project: self.project()? })
    }

    fn user(&self) -> Result<Owned, String> {
        let domain = self.domain(&self.user_domain_id, &self.user_domain_name);
        owned(&self.user_id, &self.username, domain)
            .ok_or_else(|| "user_id, or username and user_domain_name, is missing".to_owned())?
            .ok_or_else(|| {
                "user_domain_id or user_domain_name is missing: a user's name is unique in its domain"
                    .to_owned()
            })
    }

    fn project(&self) -> Result<Option<Owned>, String> {
        let domain = self
            .domain(&self.project_domain_id, &self.project_domain_name)
            .or_else(|| self.domain(&self.user_domain_id, &self.user_domain_name));
        match owned(&self.project_id, &self.project_name, domain) {
            None => Ok(None),
            Some(Some(project)) => Ok(Some(project)),
            Some(None) => {
                Err("project_domain_id or project_domain_name is missing: a project's name is unique in its \
                               domain"
                    .to_owned())
            }
        }
    }

    fn domain(&self, id: &Option<String>, name: &Option<String>) -> Option<Owned> {
        [
            (id, name),
            (&self.domain_id, &self.domain_name),
            (&self.default_domain_id, &self.default_domain_name),
        ]
        .into_iter()
        .find_map(|(id, name)| match (id, name) {
            (Some(id), _) => Some(Owned::Id(id.clone())),
            (None, Some(name)) => Some(Owned::Domain(name.clone())),
            (None, None) => None,
        })
    }
}

/// Outer None: neither an ID nor a name. Inner None: a name without its owner.
fn owned(id: &Option<String>, name: &Option<String>, owner: Option<Owned>) -> Option<Option<Owned>> {
    match (id, name) {
        (Some(id), _) => Some(Some(Owned::Id(id.clone()))),
        (None, Some(name)) => {
            Some(owner.map(|owner| Owned::Name { name: name.clone(), owner: Box::new(owner) }))
        }
        (None, None) => None,
    }
}

/// Keystone's base. `auth_url` may end in `/v3`, in a slash, in an older version or in a path of the operator.
fn identity(auth_url: &str) -> Result<String, String> {
    crate::cloud::http::Endpoint::parse(auth_url).map_err(|cause| format!("auth_url: {cause}"))?;
    let url = auth_url.trim_end_matches('/');
    if url.ends_with("/v2.0") {
        return Err("auth_url is Keystone's v2.0: give its v3, or the URL without a version".to_owned());
    }
    Ok(format!("{}/v3", url.strip_suffix("/v3").unwrap_or(url).trim_end_matches('/')))
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Credentials { auth_url, login, region, interface, endpoint_overrides, trust } = self;
        let trust = match trust {
            Trust::Plain | Trust::System => "the system's authorities",
            Trust::Only(_) => "own authorities",
            Trust::InsecureSkipVerify => "InsecureSkipVerify",
        };
        f.debug_struct("Credentials")
            .field("auth_url", auth_url)
            .field("login", login)
            .field("region", region)
            .field("interface", interface)
            .field("of services", endpoint_overrides)
            .field("trust", &trust)
            .finish()
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Login::ApplicationCredential { credential, .. } => {
                write!(f, "application credential {credential:?}, secret [redacted]")
            }
            Login::Password { user, project, .. } => {
                write!(f, "user {user:?}, project {project:?}, password [redacted]")
            }
            Login::Token { project, .. } => write!(f, "token [redacted], project {project:?}"),
        }
    }
}

impl Login {
    /// The secret part.
    pub fn secret(&self) -> &str {
        match self {
            Login::ApplicationCredential { secret, .. } => secret,
            Login::Password { password, .. } => password,
            Login::Token { token, .. } => token,
        }
    }
}

/// A configuration error in one line: the wrong text, its field and what is allowed, without any value of a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct ConfigError {
    place: String,
    why: String,
}

impl ConfigError {
    /// `place`: the file, Secret or section.
    pub(super) fn new(place: impl fmt::Display, why: impl Into<String>) -> ConfigError {
        ConfigError { place: place.to_string(), why: why.into() }
    }

    /// The place of the error: a file or Secret, and the cloud in it.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }
}
