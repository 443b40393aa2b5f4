//! Fields of a login that stand beside `auth`, where openstacksdk takes them too.

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer};

use super::filled;
use crate::cloud::openstack::picked::picked;

/// What openstacksdk rather takes from beside `auth` than out of it.
const RATHER_BESIDE: [&str; 12] = [
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

/// What it takes from beside `auth` where that does not have it: all else that a login may need.
const ALSO_BESIDE: [&str; 12] = [
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

/// Whether a field is looked at beside `auth`.
pub(super) fn is_read(name: &str) -> bool {
    RATHER_BESIDE.contains(&name) || ALSO_BESIDE.contains(&name)
}

/// Fields of a login that stand beside `auth`. All others are passed over. A hyphen in a field's name is an underscore.
#[derive(Clone, Default)]
pub(super) struct Beside(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Beside {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Beside, D::Error> {
        let found = picked(from, is_read)?;
        Ok(Beside(found.into_iter().filter_map(|(name, value)| Some((name, filled(value)?))).collect()))
    }
}

impl Beside {
    /// With what stands beside `auth` in another place, which has the last word.
    pub(super) fn under(mut self, over: Beside) -> Beside {
        self.0.extend(over.0);
        self
    }

    /// All that a login has, by names with underscores.
    pub(super) fn with(self, auth: BTreeMap<String, Option<String>>) -> BTreeMap<String, String> {
        let underscores = auth.into_iter().map(|(name, value)| (name.replace('-', "_"), filled(value)));
        let mut all: BTreeMap<String, String> =
            underscores.filter_map(|(name, value)| Some((name, value?))).collect();
        for (name, value) in self.0 {
            if RATHER_BESIDE.contains(&name.as_str()) {
                all.insert(name, value);
            } else {
                all.entry(name).or_insert(value);
            }
        }
        all
    }
}
