//! Keystone: the application credential of the login.

use serde::Deserialize;

use super::Cloud;
use super::error::Error;
use super::request::ApiRequest;
use super::rights::Call;
use crate::cloud::or_empty;

/// The application credential that a token was issued for. The response to the login has all of it, so no access rule is needed to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationCredential {
    /// Its ID.
    pub id: String,
    /// ID of the user that it belongs to.
    pub user: String,
    /// It was created as unrestricted: Keystone allows only such a credential to delete itself.
    pub is_unrestricted: bool,
    /// It has no access rules, or one of them permits it to delete itself.
    pub permits_delete: bool,
}

/// The same, as a token has it.
#[derive(Deserialize)]
pub(super) struct OfToken {
    #[serde(default, deserialize_with = "or_empty")]
    id: String,
    #[serde(default)]
    restricted: Option<bool>,
    #[serde(default)]
    access_rules: Option<Vec<AccessRule>>,
}

#[derive(Deserialize)]
struct AccessRule {
    #[serde(default, deserialize_with = "or_empty")]
    service: String,
    #[serde(default, deserialize_with = "or_empty")]
    method: String,
    #[serde(default, deserialize_with = "or_empty")]
    path: String,
}

impl OfToken {
    /// The credential of this user.
    pub fn of(self, user: String) -> ApplicationCredential {
        let OfToken { id, restricted, access_rules } = self;
        let permits = |rule: &AccessRule| {
            rule.service == "identity" && rule.method == "DELETE" && covers(&rule.path, &user, &id)
        };
        let permits_delete = access_rules.is_none_or(|rules| rules.iter().any(permits));
        ApplicationCredential { is_unrestricted: restricted == Some(false), permits_delete, id, user }
    }
}

/// Whether the path of an access rule covers that of the credential. Only the ends are compared: behind a proxy, Keystone's path may begin
/// with another prefix than ours.
fn covers(rule: &str, user: &str, id: &str) -> bool {
    let path = [id, "application_credentials", user, "users"];
    for (part, expected) in rule.rsplit('/').zip(path) {
        if part.contains("**") {
            return true;
        }
        if part != expected && !part.contains(['*', '{']) {
            return false;
        }
    }
    true
}

impl Cloud {
    /// The application credential of the login; None for a login with a password or a token. Logs in if necessary.
    ///
    /// # Errors
    /// As [`Cloud::project_id`].
    pub async fn application_credential(&self) -> Result<Option<ApplicationCredential>, Error> {
        Ok(self.shared.session().await?.token.application_credential.clone())
    }

    /// `DELETE /users/{id}/application_credentials/{id}`. Gone already is Ok, also where it is the credential of this login.
    ///
    /// # Errors
    /// [`Error::is_forbidden`] if it is restricted; [`Error::is_unauthorized`] if its access rules do not permit this. Those of every
    /// write.
    pub async fn delete_application_credential(&self, user: &str, id: &str) -> Result<(), Error> {
        match self.delete(&ApiRequest::of(Call::DeleteApplicationCredential, vec![user, id])).await {
            Err(error) if error.is_credential_gone() => Ok(()),
            end => end,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(rules: Value) -> ApplicationCredential {
        let read = json!({"id": "c1", "name": "n", "restricted": false, "access_rules": rules});
        serde_json::from_value::<OfToken>(read).unwrap().of("u1".to_owned())
    }

    #[test]
    fn access_rules_permit_the_delete_if_one_of_them_covers_it() {
        assert!(of(Value::Null).permits_delete && of(Value::Null).is_unrestricted);
        let rule = |method: &str, path: &str| {
            let other = json!({"service": "compute", "method": "DELETE", "path": "/**"});
            of(json!([other, {"service": "identity", "method": method, "path": path}])).permits_delete
        };
        for path in [
            "/v3/users/*/application_credentials/*",
            "/identity/v3/users/u1/application_credentials/c1",
            "/v3/users/{user_id}/application_credentials/{id}",
            "/v3/**",
            "/v3/users/**/*",
        ] {
            assert!(rule("DELETE", path), "{path}");
            assert!(!rule("GET", path), "{path}");
        }
        for path in [
            "/v3/users/*/application_credentials/c2",
            "/v3/users/u2/application_credentials/*",
            "/v3/users/*/access_rules/*",
            "/v3/*",
            "",
        ] {
            assert!(!rule("DELETE", path), "{path}");
        }
    }
}
