//! Overrides of the endpoint of one service: openstacksdk's settings of single services.
//!
//! A name is a type of the service, with underscores, and the setting: `block_storage_region_name`. The official type has precedence
//! over its aliases, as in openstacksdk (`volumev3_region_name`, `volume_region_name`).

use std::collections::BTreeMap;

use serde::de::{Deserialize, Deserializer};

use super::catalog::{Interface, base};
use super::clouds_yaml::selected_fields;
use super::service::Service;
use crate::cloud::http::Endpoint;

/// The settings, and the older names of them.
const INTERFACE: &[&str] = &["interface", "endpoint_type"];
const REGION: &[&str] = &["region_name"];
const URL: &[&str] = &["endpoint_override", "endpoint"];
/// Its type in the catalogue.
const KIND: &[&str] = &["service_type"];

/// The overrides by service.
pub(super) type EndpointOverrides = BTreeMap<Service, EndpointOverride>;

/// The override of one service. None: as for all services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EndpointOverride {
    /// The interface.
    pub interface: Option<Interface>,
    /// The region.
    pub region: Option<String>,
    /// The URL instead of the catalogue's; it may have a placeholder for the project, as in a catalogue.
    pub url: Option<String>,
}

/// Settings by name, as they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings(BTreeMap<String, String>);

impl Settings {
    /// The settings that exist: `value` is called with the name of each.
    pub fn of(value: impl Fn(&str) -> Option<String>) -> Settings {
        let found = names().filter_map(|name| value(&name).map(|value| (name, value)));
        Settings(found.filter(|(_, value)| !value.trim().is_empty()).collect())
    }

    /// These settings. Missing ones are taken from `others`.
    pub fn over(self, others: Settings) -> Settings {
        let mut all = others.0;
        all.extend(self.0);
        Settings(all)
    }

    /// The endpoint overrides that these settings define, by service. The error names the setting and its fault.
    pub fn read(&self) -> Result<EndpointOverrides, String> {
        let mut endpoint_overrides = EndpointOverrides::new();
        for service in Service::ALL {
            let interface = match self.find(service, INTERFACE) {
                None => None,
                Some((name, word)) => Some(
                    Interface::parse(word)
                        .ok_or_else(|| format!("{name} \"{word}\" is unknown: public, internal or admin"))?,
                ),
            };
            if let Some((name, kind)) = self.find(service, KIND)
                && !service.types().contains(&kind)
            {
                let known = service.types().join(", ");
                return Err(format!("{name} \"{kind}\": the catalogue is asked for {known}"));
            }
            let url = self.find(service, URL);
            if let Some((name, url)) = &url {
                usable(service, url).map_err(|why| format!("{name}: {why}"))?;
            }
            let value = |found: Option<(String, &str)>| found.map(|(_, value)| value.to_owned());
            let endpoint_override =
                EndpointOverride { interface, region: value(self.find(service, REGION)), url: value(url) };
            if endpoint_override != EndpointOverride::default() {
                endpoint_overrides.insert(service, endpoint_override);
            }
        }
        Ok(endpoint_overrides)
    }

    /// The first of the settings' names that is there, by the service's types, and its value.
    fn find(&self, service: Service, settings: &[&str]) -> Option<(String, &str)> {
        let mut names = settings.iter().flat_map(|setting| of_types(service, setting));
        names.find_map(|name| self.0.get(&name).map(|value| (name, value.as_str())))
    }
}

/// Whether a URL that stands for the catalogue's can be used, whatever the project is.
fn usable(service: Service, url: &str) -> Result<(), String> {
    let base = base(service, url, "0").ok_or_else(|| {
        "it is of a version that is not spoken, or leaves something open that is not the project".to_owned()
    })?;
    Endpoint::parse(&base).map(drop).map_err(|cause| cause.to_string())
}

/// Whether a field of a cloud says how a service is reached; a hyphen in its name is an underscore.
pub(super) fn is_read(name: &str) -> bool {
    names().any(|one| one == name)
}

fn names() -> impl Iterator<Item = String> {
    let settings = || [INTERFACE, REGION, URL, KIND].concat().into_iter();
    Service::ALL
        .into_iter()
        .flat_map(move |service| settings().flat_map(move |setting| of_types(service, setting)))
}

fn of_types(service: Service, setting: &str) -> Vec<String> {
    service.types().iter().map(|kind| format!("{}_{setting}", kind.replace('-', "_"))).collect()
}

/// Out of the fields of a cloud; all others are passed over. A hyphen in a field's name is an underscore.
impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Settings, D::Error> {
        let found = selected_fields(from, is_read)?;
        let found: BTreeMap<String, String> =
            found.into_iter().map(|(name, value)| (name, value.unwrap_or_default())).collect();
        Ok(Settings::of(|name| found.get(name).cloned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        Settings::of(|name| pairs.iter().find(|(one, _)| *one == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn the_official_type_goes_before_its_aliases_and_an_empty_value_is_none() {
        let read = settings(&[
            ("volume_region_name", "A"),
            ("volumev3_region_name", "B"),
            ("block_storage_region_name", " "),
            ("load_balancer_endpoint_type", "internalURL"),
            ("network_endpoint", "https://a/net/%(project_id)s"),
            ("image_region_name", "C"),
            ("compute_service_type", "compute"),
        ])
        .read()
        .unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!(read[&Service::BlockStorage].region.as_deref(), Some("B"));
        assert_eq!(read[&Service::LoadBalancer].interface, Some(Interface::Internal));
        assert_eq!(read[&Service::Network].url.as_deref(), Some("https://a/net/%(project_id)s"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, value, why) in [
            ("compute_interface", "secret", "compute_interface \"secret\" is unknown"),
            ("network_endpoint_override", "a:9696", "network_endpoint_override: "),
            ("network_endpoint_override", "http://network.example.com", "use https"),
            (
                "volumev2_endpoint_override",
                "https://a/v2/p",
                "volumev2_endpoint_override: it is of a version",
            ),
            ("network_endpoint_override", "https://a/$(user_id)s", "leaves something open"),
            ("volume_service_type", "sharev2", "volume_service_type \"sharev2\": the catalogue is asked for"),
        ] {
            let error = settings(&[(name, value)]).read().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
