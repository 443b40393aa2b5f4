//! `clouds.yaml`, as OpenStack's own clients read it, with `secure.yaml` laid over it, and under it the profile of
//! `clouds-public.yaml` that it names.
//!
//! What would change where or how we log in and is not supported is refused by name, never passed over. Fields of other
//! services and of other programs are not looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

mod beside;

use self::beside::Beside;
use super::config_error::ConfigError;
use super::credentials::{Credentials, Fields};
use super::reach::{self, Settings};

/// Reads the file that a field names; the error says why not.
pub(super) type ReadFile<'a> = &'a dyn Fn(&str) -> Result<Vec<u8>, String>;

/// The cloud that is taken where there are several and none is named.
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
    #[serde(alias = "region-name")]
    region_name: Option<Regions>,
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
    /// What belongs into `auth` and stands beside it.
    #[serde(skip)]
    beside: Beside,
    /// Of single services: read for itself, for there are forty of them.
    #[serde(skip)]
    settings: Settings,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Region {
    Name(String),
    Detailed {
        name: String,
        #[serde(default)]
        values: Option<BTreeMap<String, IgnoredAny>>,
    },
}

impl Region {
    fn name(&self) -> &str {
        match self {
            Region::Name(name) | Region::Detailed { name, .. } => name,
        }
    }

    /// Fields that the cloud has in this region only, as far as they say something about the login.
    fn values(&self) -> Vec<&str> {
        match self {
            Region::Name(_) => Vec::new(),
            Region::Detailed { values, .. } => {
                let names = values.iter().flatten().map(|(name, _)| name.as_str());
                names.filter(|name| is_read(&name.replace('-', "_"))).collect()
            }
        }
    }
}

/// `region_name`: one, or several as a list or joined with ','.
#[derive(Clone, Default)]
struct Regions(Vec<String>);

impl<'de> Deserialize<'de> for Regions {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Regions, D::Error> {
        struct Names;
        impl<'de> Visitor<'de> for Names {
            type Value = Regions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a region, or a list of names")
            }

            fn visit_str<E>(self, text: &str) -> Result<Regions, E> {
                let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
                Ok(Regions(names.map(str::to_owned).collect()))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Regions, E> {
                Ok(Regions(vec![value.to_string()]))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Regions, E> {
                Ok(Regions(vec![number.to_string()]))
            }

            fn visit_unit<E>(self) -> Result<Regions, E> {
                Ok(Regions::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Regions, A::Error> {
                let mut all = Vec::new();
                while let Some(name) = names.next_element::<String>()? {
                    all.push(name);
                }
                Ok(Regions(all))
            }
        }
        from.deserialize_any(Names)
    }
}

/// Whether we look at a field of a cloud, its name with underscores.
fn is_read(name: &str) -> bool {
    const FIELDS: [&str; 18] = [
        "auth",
        "auth_type",
        "auth_plugin",
        "region_name",
        "regions",
        "interface",
        "endpoint_type",
        "verify",
        "insecure",
        "cacert",
        "cert",
        "key",
        "profile",
        "cloud",
        "identity_api_version",
        "identity_endpoint_override",
        "identity_interface",
        "identity_endpoint_type",
    ];
    FIELDS.contains(&name) || beside::is_read(name) || reach::is_read(name)
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

/// One cloud of a file, whole; what the others look like is nobody's business. Settings of single services, and of a login beside
/// `auth`, are found by their names in readings of their own.
fn entry_of(place: &str, text: &str, section: &str, name: &str) -> Result<Option<Entry>, ConfigError> {
    let path = [section, name];
    let Some(mut entry) = at::<Entry>(place, text, &path)? else { return Ok(None) };
    entry.settings = at(place, text, &path)?.unwrap_or_default();
    entry.beside = at(place, text, &path)?.unwrap_or_default();
    Ok(Some(entry))
}

/// What stands at a path of keys, if anything does.
fn at<T: DeserializeOwned>(place: &str, text: &str, path: &[&str]) -> Result<Option<T>, ConfigError> {
    serde_yaml::with_deserializer_from_str(text, |from| At { path, of: PhantomData }.deserialize(from))
        .map_err(|error| broken(place, &error))
}

struct At<'a, T> {
    path: &'a [&'a str],
    of: PhantomData<T>,
}

impl<'de, T: DeserializeOwned> DeserializeSeed<'de> for At<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        if self.path.is_empty() { Option::deserialize(from) } else { from.deserialize_option(self) }
    }
}

impl<'de, T: DeserializeOwned> Visitor<'de> for At<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("clouds by their names")
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        from.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        let (first, rest) = self.path.split_first().unwrap_or((&"", &[]));
        while let Some(key) = fields.next_key::<String>()? {
            if key == *first {
                found = fields.next_value_seed(At { path: rest, of: PhantomData })?;
            } else {
                fields.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// The parser's own message has an excerpt of the text, and the text has secrets.
fn broken(place: &str, error: &serde_yaml::Error) -> ConfigError {
    let line = error.location().map(|at| format!("line {}: ", at.line())).unwrap_or_default();
    ConfigError::new(
        place,
        format!("{line}this is no YAML, or a field of another kind than clouds.yaml has there"),
    )
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
    /// The profile that it stands on.
    fn profile(&self) -> Option<String> {
        filled(self.profile.clone()).or(filled(self.cloud.clone()))
    }

    /// This one with all that `over` has laid over it.
    fn under(self, over: Entry) -> Entry {
        let mut auth = self.auth.unwrap_or_default();
        auth.extend(over.auth.unwrap_or_default());
        let beside = self.beside.under(over.beside);
        macro_rules! over {
            ($($field:ident)*) => {
                Entry {
                    auth: Some(auth),
                    beside,
                    settings: over.settings.over(self.settings),
                    $($field: over.$field.or(self.$field),)*
                }
            };
        }
        over!(
            auth_type auth_plugin region_name regions interface endpoint_type verify insecure cacert cert key profile cloud
            identity_api_version identity_endpoint_override
        )
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
        let named = self.region_name.unwrap_or_default().0;
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
        let mut auth = self.beside.with(self.auth.unwrap_or_default());
        let mut take = |names: &[&str]| {
            names.iter().fold(None, |found: Option<String>, name| {
                let value = auth.remove(*name);
                found.or(value)
            })
        };
        let auth_url = match take(&["auth_url"]).map(|url| in_region(&url, region.as_deref())).transpose() {
            Ok(url) => url,
            Err(why) => return wrong(why),
        };
        Ok(Fields {
            auth_type: filled(self.auth_type).or(filled(self.auth_plugin)),
            auth_url,
            user_id: take(&["user_id"]),
            username: take(&["username"]),
            password: take(&["password"]),
            user_domain_id: take(&["user_domain_id"]),
            user_domain_name: take(&["user_domain_name"]),
            project_id: take(&["project_id", "tenant_id"]),
            project_name: take(&["project_name", "tenant_name"]),
            project_domain_id: take(&["project_domain_id"]),
            project_domain_name: take(&["project_domain_name"]),
            domain_id: take(&["domain_id"]),
            domain_name: take(&["domain_name"]),
            default_domain_id: take(&["default_domain_id", "default_domain"]),
            default_domain_name: take(&["default_domain_name"]),
            application_credential_id: take(&["application_credential_id"]),
            application_credential_name: take(&["application_credential_name"]),
            application_credential_secret: take(&["application_credential_secret"]),
            token: take(&["token", "auth_token"]),
            trust_id: take(&["trust_id"]),
            system_scope: take(&["system_scope"]),
            region,
            interface: filled(self.interface).or(filled(self.endpoint_type)),
            settings: self.settings,
            authorities,
            unverified,
        })
    }
}

/// A URL that may leave the region open, as profiles of clouds with several have it.
fn in_region(url: &str, region: Option<&str>) -> Result<String, String> {
    const OPEN: &str = "{region_name}";
    match (url.contains(OPEN), region) {
        (false, _) => Ok(url.to_owned()),
        (true, Some(region)) => Ok(url.replace(OPEN, region)),
        (true, None) => Err(format!("auth_url has {OPEN}, and no region is named")),
    }
}

/// An empty value is none: environments and templates leave them behind.
pub(super) fn filled(value: Option<String>) -> Option<String> {
    value.filter(|value| !value.trim().is_empty())
}

#[cfg(test)]
mod tests;
