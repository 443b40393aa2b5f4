//! A JSON value with its path, so that every message has the field, its value and the allowed values.
//!
//! serde's errors do not suffice, not even with serde_path_to_error: they have a text, and the specification wants a code (2 for an unknown
//! key, 6 for a wrong type, 7 for a value that is not allowed) and, of an unknown key, the value.

use std::fmt::Display;
use std::net::IpAddr;

use ipnet::IpNet;
use serde_json::{Map, Value};

use super::error::{Code, Error};

/// A value and its path (`ip.addresses[0]`). `null` counts as absent, as in the programs that write these configurations.
#[derive(Debug, Clone)]
pub struct Field<'a> {
    /// Its path.
    pub path: String,
    /// Its value.
    pub value: &'a Value,
}

/// A dictionary and its path.
#[derive(Debug, Clone)]
pub struct Dict<'a> {
    path: String,
    /// Its entries.
    pub entries: &'a Map<String, Value>,
}

impl<'a> Field<'a> {
    /// `value` at `path`.
    pub fn new(path: impl Into<String>, value: &'a Value) -> Self {
        Self { path: path.into(), value }
    }

    /// An error of code 7 about this value.
    pub fn invalid(&self, allowed: impl Display) -> Error {
        Error::invalid_config(format!("{} is {}: {allowed}", self.path, shown(self.value)))
    }

    fn shape(&self, desired: &str) -> Error {
        Error::new(Code::Decode, format!("{} is {}: it must be {desired}", self.path, shown(self.value)))
    }

    /// A dictionary, or code 6.
    pub fn dict(&self) -> Result<Dict<'a>, Error> {
        let entries = self.value.as_object().ok_or_else(|| self.shape("a dictionary"))?;
        Ok(Dict { path: self.path.clone(), entries })
    }

    /// A list's elements, or code 6.
    pub fn list(&self) -> Result<Vec<Field<'a>>, Error> {
        let elements = self.value.as_array().ok_or_else(|| self.shape("a list"))?;
        Ok(elements
            .iter()
            .enumerate()
            .map(|(index, value)| Field::new(format!("{}[{index}]", self.path), value))
            .collect())
    }

    /// A string, or code 6.
    pub fn string(&self) -> Result<&'a str, Error> {
        self.value.as_str().ok_or_else(|| self.shape("a string"))
    }

    /// `true` or `false`, or code 6.
    pub fn boolean(&self) -> Result<bool, Error> {
        self.value.as_bool().ok_or_else(|| self.shape("true or false"))
    }

    /// A whole number, which may be written as a string: the original took strings only.
    pub fn number(&self) -> Result<u64, Error> {
        match self.value {
            Value::String(text) if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok(),
            value => value.as_u64(),
        }
        .ok_or_else(|| self.shape("a whole number"))
    }

    /// An IP address.
    pub fn ip(&self) -> Result<IpAddr, Error> {
        let text = self.string()?;
        text.parse().map_err(|_| self.invalid("it must be an IP address (192.0.2.1, 2001:db8::1)"))
    }

    /// An IP address with a prefix length, its host bits as they are; without one it is the full length.
    pub fn cidr(&self) -> Result<IpNet, Error> {
        let parsed = cidr(self.string()?);
        parsed.ok_or_else(|| {
            self.invalid(
                "it must be an IP address, with a prefix length or without (192.0.2.9/24, 2001:db8::9/64)",
            )
        })
    }
}

impl<'a> Dict<'a> {
    /// The value of `key`; none if it is absent or `null`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Field<'a>> {
        let value = self.entries.get(key).filter(|value| !value.is_null())?;
        Some(Field::new(self.path_of(key), value))
    }

    /// The string of `key`; none if it is empty, as templates may leave it.
    pub fn text(&self, key: &str) -> Result<Option<&'a str>, Error> {
        Ok(match self.get(key) {
            Some(field) => Some(field.string()?).filter(|text| !text.is_empty()),
            None => None,
        })
    }

    /// As [`Self::text`]. Code 7 if the string violates a rule: `violated` returns that rule.
    pub fn checked<R: Display>(
        &self,
        key: &str,
        violated: impl Fn(&str) -> Option<R>,
    ) -> Result<Option<&'a str>, Error> {
        let text = self.text(key)?;
        match self.get(key).zip(text.and_then(violated)) {
            Some((field, rule)) => Err(field.invalid(rule)),
            None => Ok(text),
        }
    }

    /// The elements of the list `key`; none if it is absent.
    pub fn list(&self, key: &str) -> Result<Vec<Field<'a>>, Error> {
        self.get(key).map_or_else(|| Ok(Vec::new()), |field| field.list())
    }

    /// The path of `key`.
    #[must_use]
    pub fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The values, ordered by key.
    pub fn fields(&self) -> impl Iterator<Item = (&'a str, Field<'a>)> {
        self.entries.iter().map(|(key, value)| (key.as_str(), Field::new(self.path_of(key), value)))
    }

    /// Checks that all keys are in `allowed`.
    ///
    /// # Errors
    ///
    /// Code 2, with key and value, as the specification requires, and the allowed keys.
    pub fn only(&self, allowed: &[&str]) -> Result<(), Error> {
        let Some((key, value)) = self.entries.iter().find(|(key, _)| !allowed.contains(&key.as_str())) else {
            return Ok(());
        };
        Err(Error::new(
            Code::UnsupportedField,
            format!(
                "{} (it is {}) is not known here: allowed are {}",
                self.path_of(key),
                shown(value),
                allowed.join(", ")
            ),
        ))
    }

    /// All entries but those of `known`.
    #[must_use]
    pub fn rest(&self, known: &[&str]) -> Map<String, Value> {
        self.entries
            .iter()
            .filter(|(key, _)| !known.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }
}

/// `text` as an address with its prefix length, or the full length if it has none.
pub(crate) fn cidr(text: &str) -> Option<IpNet> {
    let Some((address, length)) = text.split_once('/') else {
        return text.parse::<IpAddr>().ok().map(IpNet::from);
    };
    // `u8` would also accept "+8"; and "013" is 13 for some parsers and 11 for others.
    let digits =
        length.bytes().all(|byte| byte.is_ascii_digit()) && (length == "0" || !length.starts_with('0'));
    IpNet::new(address.parse().ok()?, length.parse().ok().filter(|_| digits)?).ok()
}

/// `value` as JSON, cut to one line.
fn shown(value: &Value) -> String {
    // A message is shown in an Event, so a long value is cut.
    const FITS: usize = 80;
    let text = value.to_string();
    match text.char_indices().nth(FITS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Field;
    use crate::cni::Code;

    #[test]
    fn an_error_has_the_path_the_value_and_the_allowed_values() {
        let value = json!({"addresses": ["192.168.1.300/24"]});
        let dict = Field::new("ip", &value).dict().unwrap();
        let error = dict.list("addresses").unwrap()[0].cidr().unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert!(
            error.message.starts_with(r#"ip.addresses[0] is "192.168.1.300/24": it must be an IP address"#)
        );
    }

    #[test]
    fn the_error_of_an_unknown_key_has_its_value_and_the_known_keys() {
        let value = json!({"gatewy": "192.0.2.1"});
        let error = Field::new("ip", &value).dict().unwrap().only(&["addresses", "gateway"]).unwrap_err();
        assert_eq!(error.code, Code::UnsupportedField);
        assert_eq!(
            error.message,
            r#"ip.gatewy (it is "192.0.2.1") is not known here: allowed are addresses, gateway"#
        );
    }

    #[test]
    fn numbers_may_be_strings() {
        for value in [json!(1500), json!("1500")] {
            assert_eq!(Field::new("mtu", &value).number().unwrap(), 1500);
        }
        for value in [
            json!(-1),
            json!(1.5),
            json!(""),
            json!("+1"),
            json!("0x10"),
            json!(true),
            json!("99999999999999999999"),
        ] {
            assert_eq!(Field::new("mtu", &value).number().unwrap_err().code, Code::Decode);
        }
    }

    #[test]
    fn an_address_has_one_spelling() {
        for text in ["192.0.2.1", "192.0.2.1/24", "::1", "fd00::1/64", "::ffff:192.0.2.1/128"] {
            assert!(super::cidr(text).is_some(), "{text}");
        }
        for text in [
            "",
            "/",
            "192.0.2/24",
            "192.0.2.01",
            "192.0.2.1/",
            "192.0.2.1/+8",
            "192.0.2.1/33",
            "fd00::1/129",
            "1/8",
            "[fd00::1]",
            "fe80::1%eth0",
            " 192.0.2.1",
            "192.0.2.1/24/24",
        ] {
            assert!(super::cidr(text).is_none(), "{text}");
        }
    }

    #[test]
    fn null_is_absent() {
        let value = json!({"a": null, "b": ""});
        let dict = Field::new("", &value).dict().unwrap();
        assert!(dict.get("a").is_none() && dict.text("b").unwrap().is_none());
        assert!(dict.list("a").unwrap().is_empty());
    }

    #[test]
    fn a_long_value_is_cut() {
        let value = json!("ä".repeat(1000));
        assert!(Field::new("ip", &value).dict().unwrap_err().message.chars().count() < 150);
    }
}
