//! `ipConfig`: a ConfigMap with the addresses, and its limits (`overrides`).

use std::collections::BTreeMap;

use common::validation::{is_dns_label, is_dns_subdomain};
use serde_json::Value;

use super::ip::Ip;
use super::overrides;
use super::pod_ip::PodIp;
use super::settings::Settings;
use crate::cni::field::Field;
use crate::cni::{Code, Error};

/// The ConfigMap and its limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpConfig {
    /// `namespace`; none: the pod's.
    pub namespace: Option<String>,
    /// `name`.
    pub name: String,
    /// `overrides`; `allowed: None` and empty lists set no limit.
    pub overrides: Option<Ip>,
}

impl IpConfig {
    /// An `ipConfig`.
    ///
    /// # Errors
    ///
    /// Code 2 for an unknown key, 6 for a wrong type, 7 for an invalid name or invalid overrides.
    pub fn parse(field: &Field<'_>) -> Result<Self, Error> {
        let dict = field.dict()?;
        dict.only(&["namespace", "name", "overrides"])?;
        let named = |key: &str, is_valid: fn(&str) -> bool, allowed: &str| {
            let rule = || format!("it must be a name as Kubernetes gives them: up to {allowed}");
            Ok::<_, Error>(dict.checked(key, |text| (!is_valid(text)).then(rule))?.map(str::to_owned))
        };
        Ok(Self {
            namespace: named("namespace", is_dns_label, "63 lower-case letters, digits and '-'")?,
            name: named("name", is_dns_subdomain, "253 lower-case letters, digits, '-' and '.'")?
                .ok_or_else(|| {
                    let path = dict.path_of("name");
                    Error::invalid_config(format!("{path} is missing: it must name a ConfigMap"))
                })?,
            overrides: dict.get("overrides").map(|field| Ip::parse_overrides(&field)).transpose()?,
        })
    }

    /// The namespace of the ConfigMap: `namespace`, or the pod's.
    ///
    /// The network configuration may be a tenant's, and the ConfigMap is read with the node's credentials. Therefore the administrator must
    /// allow another namespace than the pod's (`configMapNamespaces`).
    ///
    /// # Errors
    ///
    /// Code 4: the pod's namespace is needed but unknown. Code 7: the namespace is not allowed.
    pub fn namespace<'a>(&'a self, pod: Option<&'a str>, settings: &Settings) -> Result<&'a str, Error> {
        match (self.namespace.as_deref(), pod) {
            (None, Some(pod)) => Ok(pod),
            (None, None) => Err(Error::new(
                Code::InvalidEnvironment,
                "CNI_ARGS has no K8S_POD_NAMESPACE: without ipConfig.namespace the ConfigMap is read from the pod's namespace",
            )),
            (Some(named), pod) => {
                let allowed =
                    settings.config_map_namespaces.iter().any(|allowed| allowed == "*" || allowed == named);
                if allowed || pod == Some(named) {
                    return Ok(named);
                }
                Err(Error::invalid_config(format!(
                    "ipConfig.namespace is {named:?}: allowed are the pod's ({}) and those of configMapNamespaces in the \
                         node's settings",
                    pod.unwrap_or("not known")
                )))
            }
        }
    }

    /// The `ip` of `pod`, from the `data` of the ConfigMap and within `overrides`.
    ///
    /// # Errors
    ///
    /// Code 7: `data` has not exactly one of `ip` and `podIP`, no entry for the pod, or exceeds the overrides. Code 4: the pod's name is
    /// needed but unknown. 2, 6 and 7 for invalid contents.
    pub fn resolve(&self, data: &BTreeMap<String, String>, pod: Option<&str>) -> Result<Ip, Error> {
        let place = format!("ConfigMap {}", self.name);
        let (key, text) = match (data.get("ip"), data.get("podIP")) {
            (Some(text), None) => ("ip", text),
            (None, Some(text)) => ("podIP", text),
            (found, _) => {
                let found = if found.is_some() { "both" } else { "neither" };
                return Err(Error::invalid_config(format!(
                    "{place}: data has {found} of ip and podIP: it must have exactly one"
                )));
            }
        };
        let path = format!("{place}: data.{key}");
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Error::new(Code::Decode, format!("{path} is not JSON")).details(error))?;
        let field = Field::new(path, &value);
        let ip = if key == "ip" {
            Ip::parse(&field)?
        } else {
            PodIp::parse(&field)?.of_pod(pod, &field.path)?.clone()
        };
        self.limit(ip, &field.path)
    }

    /// `ip` limited by `overrides`. `path` is for the message. It is idempotent.
    ///
    /// # Errors
    ///
    /// Code 7: it exceeds the overrides.
    pub fn limit(&self, ip: Ip, path: &str) -> Result<Ip, Error> {
        match &self.overrides {
            Some(limits) => overrides::apply(limits, ip, path),
            None => Ok(ip),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::IpConfig;
    use crate::cni::field::Field;
    use crate::cni::{Code, Error};
    use crate::config::settings::Settings;

    fn parse(value: &Value) -> Result<IpConfig, Error> {
        IpConfig::parse(&Field::new("ipConfig", value))
    }

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_valid_name_is_required() {
        assert_eq!(parse(&json!({"name": "addresses"})).unwrap().namespace, None);
        for value in [
            json!({}),
            json!({"name": ""}),
            json!({"name": "a/../b"}),
            json!({"name": "A"}),
            json!({"name": "a."}),
            json!({"name": "a", "namespace": "a.b"}),
        ] {
            assert_eq!(parse(&value).unwrap_err().code, Code::InvalidConfig, "{value}");
        }
        assert_eq!(parse(&json!({"name": "a", "key": "b"})).unwrap_err().code, Code::UnsupportedField);
        assert_eq!(parse(&json!({"name": 7})).unwrap_err().code, Code::Decode);
    }

    #[test]
    fn another_namespace_needs_the_administrators_permission() {
        let mut settings = Settings::default();
        let own = parse(&json!({"name": "a"})).unwrap();
        let other = parse(&json!({"name": "a", "namespace": "infra"})).unwrap();
        assert_eq!(own.namespace(Some("web"), &settings).unwrap(), "web");
        assert_eq!(own.namespace(None, &settings).unwrap_err().code, Code::InvalidEnvironment);
        assert_eq!(other.namespace(Some("infra"), &settings).unwrap(), "infra");
        assert_eq!(other.namespace(Some("web"), &settings).unwrap_err().code, Code::InvalidConfig);
        assert_eq!(other.namespace(None, &settings).unwrap_err().code, Code::InvalidConfig);
        settings.config_map_namespaces = vec!["infra".to_owned()];
        assert_eq!(other.namespace(Some("web"), &settings).unwrap(), "infra");
        settings.config_map_namespaces = vec!["*".to_owned()];
        assert_eq!(other.namespace(None, &settings).unwrap(), "infra");
    }

    #[test]
    fn exactly_one_of_ip_and_pod_ip_is_required_and_other_keys_are_ignored() {
        let config = parse(&json!({"name": "a"})).unwrap();
        let ip = r#"{"addresses": ["192.0.2.9/24"]}"#;
        assert!(config.resolve(&data(&[("ip", ip), ("note", "{")]), None).is_ok());
        for wrong in [data(&[]), data(&[("note", ip)]), data(&[("ip", ip), ("podIP", "{}")])] {
            let error = config.resolve(&wrong, None).unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig);
            assert!(error.message.starts_with("ConfigMap a: data has"), "{error}");
        }
        assert_eq!(config.resolve(&data(&[("ip", "{addresses}")]), None).unwrap_err().code, Code::Decode);
    }

    #[test]
    fn pod_ip_needs_the_pods_name() {
        let config = parse(&json!({"name": "a"})).unwrap();
        let pods = data(&[("podIP", r#"{"db-*": {"addresses": ["192.0.2.9/24"]}}"#)]);
        assert!(config.resolve(&pods, Some("db-0")).is_ok());
        assert_eq!(config.resolve(&pods, None).unwrap_err().code, Code::InvalidEnvironment);
        let error = config.resolve(&pods, Some("web")).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(error.message.contains("web") && error.message.contains("db-*"), "{error}");
    }
}
