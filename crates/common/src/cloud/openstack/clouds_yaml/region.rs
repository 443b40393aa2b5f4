//! The choice of a cloud's region.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::file::{at, broken};
use crate::cloud::openstack::credentials::ConfigError;

/// One of `regions`.
#[derive(Clone, Deserialize)]
#[serde(untagged)]
pub(super) enum Region {
    Name(String),
    Detailed {
        name: String,
        #[serde(default)]
        values: Option<BTreeMap<String, IgnoredAny>>,
    },
}

impl Region {
    pub(super) fn name(&self) -> &str {
        match self {
            Region::Name(name) | Region::Detailed { name, .. } => name,
        }
    }

    /// Fields of the login that the cloud has in this region only.
    pub(super) fn values(&self) -> Vec<&str> {
        match self {
            Region::Name(_) => Vec::new(),
            Region::Detailed { values, .. } => {
                let names = values.iter().flatten().map(|(name, _)| name.as_str());
                names.filter(|name| super::is_read(&name.replace('-', "_"))).collect()
            }
        }
    }
}

/// `region_name` of a cloud: one, or several as a list or joined with ','. None where there is no such field.
///
/// # Errors
/// It is of another kind, or there twice.
pub(super) fn named(place: &str, text: &str, cloud: [&str; 2]) -> Result<Option<Vec<String>>, ConfigError> {
    let [section, name] = cloud;
    let read = |field| {
        let path = [section, name, field];
        // A value that is no string is parsed as a list; if it is no list either, the error is that of the list.
        match at::<String>(place, text, &path) {
            Ok(one) => Ok(one.map(|one| one.split(',').map(|name| name.trim().to_owned()).collect())),
            Err(_) => at::<Vec<String>>(place, text, &path),
        }
    };
    let found = match (read("region_name")?, read("region-name")?) {
        (Some(_), Some(_)) => return Err(broken(place, None)),
        (one, other) => one.or(other),
    };
    Ok(found.map(|names| names.into_iter().filter(|name| !name.is_empty()).collect()))
}

/// A URL that may leave the region open, as profiles of clouds with several have it.
pub(super) fn in_region(url: &str, region: Option<&str>) -> Result<String, String> {
    const OPEN: &str = "{region_name}";
    match (url.contains(OPEN), region) {
        (false, _) => Ok(url.to_owned()),
        (true, Some(region)) => Ok(url.replace(OPEN, region)),
        (true, None) => Err(format!("auth_url has {OPEN}, and no region is named")),
    }
}
