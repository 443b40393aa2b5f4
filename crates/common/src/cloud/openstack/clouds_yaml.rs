//! `clouds.yaml`, as OpenStack's own clients read it, with `secure.yaml` laid over it, and under it the profile of
//! `clouds-public.yaml` that it names.
//!
//! A field that would change the login and is not supported is refused by name, never ignored. Fields of other services and programs
//! are ignored.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

mod file;
mod region;
mod top_level_auth;

use self::file::at;
pub(super) use self::file::selected_fields;
use self::region::{Region, in_region};
use self::top_level_auth::TopLevelAuth;
use super::credentials::{ConfigError, Credentials, Fields};
use super::endpoint_override::{self, Settings};

/// Reads the file that a field names; the error says why not.
pub(super) type ReadFile<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// The cloud that is used if there are several and none is named.
const USUAL: &str = "openstack";

type Names = BTreeMap<String, IgnoredAny>;

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<BTreeMap<String, Option<String>>>,
    #[serde(alias = "auth-type")]
    auth_type: Option<String>,
    #[serde(alias = "auth-plugin")]
    auth_plugin: Option<String>,
    /// Parsed separately: it may be a list.
    #[serde(skip)]
    region_name: Option<Vec<String>>,
    regions: Option<Vec<Region>>,
    interface: Option<String>,
    #[serde(alias = "endpoint-type")]
    endpoint_type: Option<String>,
    verify: Option<bool>,
    insecure: Option<bool>,
    cacert: Option<String>,
    cert: Option<String>,
    key: Option<String>,
    profile: Option<String>,
    cloud: Option<String>,
    #[serde(alias = "identity-api-version")]
    identity_api_version: Option<String>,
    #[serde(alias = "identity-endpoint-override")]
    identity_endpoint_override: Option<String>,
    /// Fields of `auth` that are written next to it.
    #[serde(skip)]
    top_level_auth: TopLevelAuth,
    /// Settings of single services. Parsed separately: there are forty of them.
    #[serde(skip)]
    settings: Settings,
}

/// Passes the fields of an [`Entry`] that are parsed as they are in the file to another macro.
macro_rules! plain_fields {
    ($then:ident) => {
        $then!(
            auth_type auth_plugin regions interface endpoint_type verify insecure cacert cert key profile cloud
            identity_api_version identity_endpoint_override
        )
    };
}

/// Whether a field of a cloud is read; its name has underscores.
fn is_read(name: &str) -> bool {
    macro_rules! names {
        ($($field:ident)*) => { [$(stringify!($field)),*] };
    }
    let plain = plain_fields!(names);
    // The choice of Keystone's endpoint affects the login as well.
    let others = ["auth", "region_name", "identity_interface", "identity_endpoint_type"];
    plain.contains(&name)
        || others.contains(&name)
        || top_level_auth::is_read(name)
        || endpoint_override::is_read(name)
}

/// The texts of `clouds.yaml`, `secure.yaml` and `clouds-public.yaml`, and how they are named in messages.
pub(super) struct Texts<'a> {
    pub place: &'a str,
    pub clouds: &'a str,
    pub secure: Option<(&'a str, &'a str)>,
    pub public: Option<(&'a str, &'a str)>,
}

/// `cloud`: None for the only one, or `openstack`. `authorities`: in PEM, instead of the file that `cacert` names.
pub(super) fn parse(
    texts: &Texts<'_>,
    cloud: Option<&str>,
    region: Option<&str>,
    authorities: Option<&[u8]>,
    read: ReadFile<'_>,
) -> Result<Credentials, ConfigError> {
    let (place, fields) = fields(texts, cloud, region, authorities, read)?;
    fields.check(&place)
}

/// The same, not yet checked, and the place for messages.
pub(super) fn fields(
    texts: &Texts<'_>,
    cloud: Option<&str>,
    region: Option<&str>,
    authorities: Option<&[u8]>,
    read: ReadFile<'_>,
) -> Result<(String, Fields), ConfigError> {
    let clouds = at::<Names>(texts.place, texts.clouds, &["clouds"])?.unwrap_or_default();
    let name = choose(texts.place, &clouds, cloud)?;
    let mut entry = entry_of(texts.place, texts.clouds, "clouds", &name)?.unwrap_or_default();
    if let Some((place, text)) = texts.secure {
        entry = entry.under(entry_of(place, text, "clouds", &name)?.unwrap_or_default());
    }
    if let (Some(profile), Some((place, text))) = (entry.profile(), texts.public)
        && let Some(public) = entry_of(place, text, "public-clouds", &profile)?
    {
        entry.profile = None;
        entry.cloud = None;
        entry = public.under(entry);
    }
    let place = format!("{}: cloud \"{name}\"", texts.place);
    let fields = entry.fields(&place, region, authorities, read)?;
    Ok((place, fields))
}

/// One cloud of a file; the other clouds are ignored. Settings of single services and the fields of `auth` at the top level are parsed
/// separately, by their names.
fn entry_of(place: &str, text: &str, section: &str, name: &str) -> Result<Option<Entry>, ConfigError> {
    let path = [section, name];
    let Some(mut entry) = at::<Entry>(place, text, &path)? else { return Ok(None) };
    entry.settings = at(place, text, &path)?.unwrap_or_default();
    entry.top_level_auth = at(place, text, &path)?.unwrap_or_default();
    entry.region_name = region::named(place, text, path)?;
    Ok(Some(entry))
}

fn choose(place: &str, clouds: &Names, cloud: Option<&str>) -> Result<String, ConfigError> {
    let found = || match clouds.is_empty() {
        true => "none".to_owned(),
        false => clouds.keys().cloned().collect::<Vec<_>>().join(", "),
    };
    match cloud {
        Some(name) if clouds.contains_key(name) => Ok(name.to_owned()),
        Some(name) => Err(ConfigError::new(place, format!("has no cloud \"{name}\"; it has {}", found()))),
        None => match clouds.keys().next() {
            Some(only) if clouds.len() == 1 => Ok(only.clone()),
            _ if clouds.contains_key(USUAL) => Ok(USUAL.to_owned()),
            _ => Err(ConfigError::new(place, format!("name the cloud to use; it has {}", found()))),
        },
    }
}

impl Entry {
    /// The profile that it extends.
    fn profile(&self) -> Option<String> {
        filled(self.profile.clone()).or(filled(self.cloud.clone()))
    }

    /// This one, with the fields that `over` sets.
    fn under(self, over: Entry) -> Entry {
        let mut auth = self.auth.unwrap_or_default();
        auth.extend(over.auth.unwrap_or_default());
        let top_level_auth = self.top_level_auth.under(over.top_level_auth);
        macro_rules! over {
            ($($field:ident)*) => {
                Entry {
                    auth: Some(auth),
                    top_level_auth,
                    settings: over.settings.over(self.settings),
                    region_name: over.region_name.or(self.region_name),
                    $($field: over.$field.or(self.$field),)*
                }
            };
        }
        plain_fields!(over)
    }

    fn fields(
        self,
        place: &str,
        region: Option<&str>,
        authorities: Option<&[u8]>,
        read: ReadFile<'_>,
    ) -> Result<Fields, ConfigError> {
        let wrong = |why: String| Err(ConfigError::new(place, why));
        if let Some(profile) = self.profile() {
            return wrong(format!(
                "profile \"{profile}\" is in no clouds-public.yaml: write its auth_url, region_name and interface into \
                 the cloud"
            ));
        }
        if filled(self.cert).or(filled(self.key)).is_some() {
            return wrong("cert and key: client certificates are not supported".to_owned());
        }
        if filled(self.identity_api_version).is_some_and(|version| !version.starts_with('3')) {
            return wrong("identity_api_version must be 3".to_owned());
        }
        if filled(self.identity_endpoint_override).is_some() {
            return wrong(
                "identity_endpoint_override is not supported: auth_url is where Keystone is".to_owned(),
            );
        }
        let unverified = self.verify == Some(false) || self.insecure == Some(true);
        let authorities = match (authorities, filled(self.cacert)) {
            _ if unverified => None,
            (Some(pem), _) => Some(pem.to_owned()),
            (None, Some(path)) => match read(&path) {
                Ok(pem) => Some(pem),
                Err(why) => return wrong(format!("cacert: {why}")),
            },
            (None, None) => None,
        };
        let regions = self.regions.unwrap_or_default();
        let named = self.region_name.unwrap_or_default();
        let names: Vec<&str> = match named.len() {
            0 => regions.iter().map(Region::name).collect(),
            _ => named.iter().map(String::as_str).collect(),
        };
        let region = match (region.map(str::to_owned), names.as_slice()) {
            (Some(region), _) => Some(region),
            (None, []) => None,
            (None, [only]) => Some((*only).to_owned()),
            (None, many) => return wrong(format!("name one of the regions {}", many.join(", "))),
        };
        let chosen = regions.iter().find(|one| Some(one.name()) == region.as_deref());
        if let Some(values) = chosen.map(Region::values).filter(|values| !values.is_empty()) {
            return wrong(format!(
                "values of a region are not supported: write {} into the cloud itself",
                values.join(", ")
            ));
        }
        let auth = self.top_level_auth.with(self.auth.unwrap_or_default());
        let login = Fields::of_login(|name| auth.get(name).cloned());
        let auth_url = login.auth_url.as_deref().map(|url| in_region(url, region.as_deref())).transpose();
        let auth_url = match auth_url {
            Ok(url) => url,
            Err(why) => return wrong(why),
        };
        Ok(Fields {
            auth_type: filled(self.auth_type).or(filled(self.auth_plugin)),
            auth_url,
            region,
            interface: filled(self.interface).or(filled(self.endpoint_type)),
            settings: self.settings,
            authorities,
            unverified,
            ..login
        })
    }
}

/// An empty value is none: environments and templates leave them behind.
pub(super) fn filled(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty())
}

#[cfg(test)]
mod tests;
