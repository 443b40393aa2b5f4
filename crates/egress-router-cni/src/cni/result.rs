//! Results of ADD, and `prevResult` of chained calls.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::Serialize;
use serde_json::{Map, Value};

use super::error::Error;
use super::field::{Dict, Field};
use super::version::Version;

/// Keys of `interfaces` and `routes` since 1.1.0; omitted in older versions.
const INTERFACE_1_1: [&str; 3] = ["mtu", "socketPath", "pciID"];
const ROUTE_1_1: [&str; 5] = ["mtu", "advmss", "priority", "table", "scope"];

/// An ADD result in the format of 1.1.0; other versions are derived from it. Unknown keys of a `prevResult` are kept in `rest` and
/// returned unchanged.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Result {
    /// `interfaces`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
    /// `ips`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ips: Vec<Ip>,
    /// `routes`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// `dns`, unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dns: Option<Value>,
    /// Other keys of a `prevResult`, returned unchanged.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One of `interfaces`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// `aa:bb:cc:dd:ee:ff`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<String>,
    /// Path of the namespace it is in, not empty; none: the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// From 1.1.0 on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// Other keys of a `prevResult`, returned unchanged.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One of `ips`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Ip {
    /// With its prefix length.
    pub address: IpNet,
    /// The default gateway for its subnet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Index into `interfaces`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// Other keys of a `prevResult`, returned unchanged.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// One of `routes`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Route {
    /// `dst`.
    #[serde(rename = "dst")]
    pub destination: IpNet,
    /// `gw`.
    #[serde(rename = "gw", skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// Other keys of a `prevResult` (1.1.0: mtu, advmss, priority, table, scope), returned unchanged in versions that have them.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Result {
    /// Parses a `prevResult` of any supported version. Their formats differ only in optional keys.
    ///
    /// # Errors
    ///
    /// Code 6 for a wrong type, 7 for an invalid address, 1 for an unsupported `cniVersion`; each names the field.
    pub fn parse(value: &Value) -> std::result::Result<Self, Error> {
        let dict = Field::new("prevResult", value).dict()?;
        if let Some(version) = dict.text("cniVersion")? {
            Version::parse(version)
                .map_err(|error| Error { message: format!("prevResult: {}", error.message), ..error })?;
        }
        let result = Self {
            interfaces: each(&dict, "interfaces", Interface::parse)?,
            ips: each(&dict, "ips", Ip::parse)?,
            routes: each(&dict, "routes", Route::parse)?,
            dns: dict.get("dns").map(|field| field.value.clone()),
            rest: dict.rest(&["cniVersion", "interfaces", "ips", "routes", "dns"]),
        };
        for (index, ip) in result.ips.iter().enumerate() {
            if let Some(interface) = ip.interface
                && interface >= result.interfaces.len()
            {
                let value = Value::from(interface);
                return Err(Field::new(format!("prevResult.ips[{index}].interface"), &value).invalid(
                    format_args!(
                        "it must be an index into prevResult.interfaces, which has {}",
                        result.interfaces.len()
                    ),
                ));
            }
        }
        Ok(result)
    }

    /// The result of ADD in the format of `version`.
    #[must_use]
    pub fn to_json(&self, version: Version) -> String {
        let Ok(Value::Object(mut json)) = serde_json::to_value(self) else { return String::new() };
        json.insert("cniVersion".to_owned(), version.as_str().into());
        if version < Version::V1_1_0 {
            elements(&mut json, "interfaces").for_each(|interface| {
                interface.retain(|key, _| !INTERFACE_1_1.contains(&key.as_str()));
            });
            elements(&mut json, "routes").for_each(|route| {
                route.retain(|key, _| !ROUTE_1_1.contains(&key.as_str()));
            });
        }
        if version < Version::V1_0_0 {
            for (ip, json) in self.ips.iter().zip(elements(&mut json, "ips")) {
                let family = if ip.address.addr().is_ipv4() { "4" } else { "6" };
                json.insert("version".to_owned(), family.into());
            }
        }
        Value::Object(json).to_string()
    }
}

impl Interface {
    fn parse(dict: &Dict<'_>) -> std::result::Result<Self, Error> {
        let owned = |key| Ok::<_, Error>(dict.text(key)?.map(str::to_owned));
        let mtu = match dict.get("mtu") {
            Some(field) => {
                let mtu =
                    u32::try_from(field.number()?).map_err(|_| field.invalid("it must be below 2^32"))?;
                // Go writes 0 for unset, as the specification has it.
                Some(mtu).filter(|mtu| *mtu > 0)
            }
            None => None,
        };
        Ok(Self {
            name: owned("name")?.unwrap_or_default(),
            mac: owned("mac")?,
            sandbox: owned("sandbox")?,
            mtu,
            rest: dict.rest(&["name", "mac", "sandbox", "mtu"]),
        })
    }
}

impl Ip {
    fn parse(dict: &Dict<'_>) -> std::result::Result<Self, Error> {
        let interface = match dict.get("interface") {
            // Go plugins have written -1 for none.
            Some(field) if field.value.as_i64().is_some_and(|index| index < 0) => None,
            Some(field) => usize::try_from(field.number()?).ok(),
            None => None,
        };
        Ok(Self {
            address: required(dict, "address")?.cidr()?,
            gateway: address(dict, "gateway")?,
            interface,
            rest: dict.rest(&["version", "address", "gateway", "interface"]),
        })
    }
}

impl Route {
    fn parse(dict: &Dict<'_>) -> std::result::Result<Self, Error> {
        Ok(Self {
            destination: required(dict, "dst")?.cidr()?,
            gateway: address(dict, "gw")?,
            rest: dict.rest(&["dst", "gw"]),
        })
    }
}

fn each<T>(
    dict: &Dict<'_>,
    key: &str,
    parse: impl Fn(&Dict<'_>) -> std::result::Result<T, Error>,
) -> std::result::Result<Vec<T>, Error> {
    dict.list(key)?.iter().map(|element| parse(&element.dict()?)).collect()
}

fn required<'a>(dict: &Dict<'a>, key: &str) -> std::result::Result<Field<'a>, Error> {
    dict.get(key).ok_or_else(|| Field::new(dict.path_of(key), &Value::Null).invalid("it must be there"))
}

/// An optional address; Go plugins write "" for none.
fn address(dict: &Dict<'_>, key: &str) -> std::result::Result<Option<IpAddr>, Error> {
    dict.get(key).filter(|field| field.value.as_str() != Some("")).map(|field| field.ip()).transpose()
}

/// The elements of the list `key`.
fn elements<'a>(
    json: &'a mut Map<String, Value>,
    key: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    json.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests;
