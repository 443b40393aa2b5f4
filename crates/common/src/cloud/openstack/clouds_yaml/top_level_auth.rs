//! Fields of `auth` at the top level of a cloud, where openstacksdk accepts them too.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer};

use super::file::selected_fields;
use super::filled;

/// Fields for which the top level has precedence over `auth` in openstacksdk.
const PREFERRED_AT_TOP_LEVEL: [&str; 12] = [
    "domain_id",
    "domain_name",
    "user_domain_id",
    "user_domain_name",
    "project_domain_id",
    "project_domain_name",
    "project_id",
    "project_name",
    "tenant_id",
    "tenant_name",
    "token",
    "auth_token",
];

/// Fields that are taken from the top level if `auth` does not have them.
const FALLBACK_AT_TOP_LEVEL: [&str; 12] = [
    "auth_url",
    "user_id",
    "username",
    "password",
    "default_domain_id",
    "default_domain",
    "default_domain_name",
    "application_credential_id",
    "application_credential_name",
    "application_credential_secret",
    "trust_id",
    "system_scope",
];

/// Whether a field is read at the top level.
pub(super) fn is_read(name: &str) -> bool {
    PREFERRED_AT_TOP_LEVEL.contains(&name) || FALLBACK_AT_TOP_LEVEL.contains(&name)
}

/// Fields of `auth` at the top level. All others are ignored. A hyphen in a name counts as an underscore.
#[derive(Clone, Default)]
pub(super) struct TopLevelAuth(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for TopLevelAuth {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TopLevelAuth, D::Error> {
        let found = selected_fields(from, is_read)?;
        Ok(TopLevelAuth(found.into_iter().filter_map(|(name, value)| Some((name, filled(value)?))).collect()))
    }
}

impl TopLevelAuth {
    /// Merged with the top-level fields of another file, which has precedence.
    pub(super) fn under(mut self, over: TopLevelAuth) -> TopLevelAuth {
        self.0.extend(over.0);
        self
    }

    /// All fields of a login, by names with underscores.
    pub(super) fn with(self, auth: BTreeMap<String, Option<String>>) -> BTreeMap<String, String> {
        let underscores = auth.into_iter().map(|(name, value)| (name.replace('-', "_"), filled(value)));
        let mut all: BTreeMap<String, String> =
            underscores.filter_map(|(name, value)| Some((name, value?))).collect();
        for (name, value) in self.0 {
            if PREFERRED_AT_TOP_LEVEL.contains(&name.as_str()) {
                all.insert(name, value);
            } else {
                all.entry(name).or_insert(value);
            }
        }
        all
    }
}
