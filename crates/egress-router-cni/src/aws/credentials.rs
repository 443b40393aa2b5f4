//! Credentials for EC2.

use std::ffi::OsString;
use std::fmt;

use serde::Deserialize;

use super::metadata::{self, Metadata};
use crate::cni::{Code, Error};

/// An access key. Its secret parts are in no `Debug`, error or log.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// `AKIA…` or `ASIA…`.
    pub key: String,
    /// The secret key, for signatures.
    pub secret: String,
    /// Sent with temporary credentials.
    pub session: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The metadata service's response for a role ("Retrieve security credentials from instance metadata").
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Role {
    code: Option<String>,
    access_key_id: Option<String>,
    secret_access_key: Option<String>,
    token: Option<String>,
}

impl Credentials {
    /// `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`: a plugin has the environment of its
    /// runtime, which the administrator sets.
    pub fn from_environment(get: impl Fn(&str) -> Option<OsString>) -> Option<Self> {
        let text =
            |name| get(name).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty());
        Some(Self {
            key: text("AWS_ACCESS_KEY_ID")?,
            secret: text("AWS_SECRET_ACCESS_KEY")?,
            session: text("AWS_SESSION_TOKEN"),
        })
    }

    /// Those of the instance's role, read in each call. The service renews them five minutes before they expire, and a call is shorter.
    ///
    /// # Errors
    ///
    /// The instance has no role, or the metadata service refuses, fails or sends an invalid response.
    pub fn of_instance(metadata: &Metadata<'_>) -> Result<Self, Error> {
        const PATH: &str = "iam/security-credentials/";
        let none = || {
            let message = "this instance has no IAM role: attach an instance profile with the rights of the plugin's policy";
            Error::new(Code::Aws, message)
        };
        let roles = metadata.find(PATH)?.ok_or_else(none)?;
        let role = roles.lines().next().map(str::trim).filter(|role| !role.is_empty()).ok_or_else(none)?;
        let response = metadata.get(&format!("{PATH}{role}"))?;
        // Serde's messages quote values, which may be secret.
        let malformed = |why| metadata::malformed(&format!("the credentials of role {role}"), why);
        let parsed: Role =
            serde_json::from_str(&response).map_err(|_| malformed("not the documented JSON"))?;
        if parsed.code.as_deref().is_some_and(|code| code != "Success") {
            return Err(malformed("its Code is not Success; see the role's trust policy"));
        }
        match (parsed.access_key_id, parsed.secret_access_key) {
            (Some(key), Some(secret)) if !key.is_empty() && !secret.is_empty() => {
                Ok(Self { key, secret, session: parsed.token.filter(|token| !token.is_empty()) })
            }
            _ => Err(malformed("AccessKeyId or SecretAccessKey is missing")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<OsString> {
        match name {
            "AWS_ACCESS_KEY_ID" => Some("AKID".into()),
            "AWS_SECRET_ACCESS_KEY" => Some("deep-secret".into()),
            "AWS_SESSION_TOKEN" => Some("session-secret".into()),
            _ => None,
        }
    }

    #[test]
    fn secrets_are_not_in_debug() {
        let credentials = Credentials::from_environment(environment).unwrap();
        let debug = format!("{credentials:?}");
        assert!(debug.contains("AKID") && !debug.contains("secret"), "{debug}");
    }

    #[test]
    fn an_incomplete_key_is_ignored() {
        let half = |name: &str| (name == "AWS_ACCESS_KEY_ID").then(|| "AKID".into());
        assert_eq!(Credentials::from_environment(half), None);
        let empty = |name: &str| environment(name).map(|_| OsString::new());
        assert_eq!(Credentials::from_environment(empty), None);
    }
}
