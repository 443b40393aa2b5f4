//! Request bodies, read strictly: the error names each wrong, missing or unknown field.

use ipnet::Ipv4Net;
use serde_json::{Map, Value};
use std::net::Ipv4Addr;

use super::refusal::{Code, Refusal};

/// The API's message for a field that is missing.
const MISSING: &str = "Missing data for required field.";

#[derive(Debug)]
pub(super) struct Fields {
    left: Map<String, Value>,
    problems: Vec<(String, String)>,
}

impl Fields {
    /// An empty body counts as an empty object.
    pub fn parse(content_type: Option<&str>, body: &[u8]) -> Result<Self, Refusal> {
        if body.is_empty() {
            return Ok(Self { left: Map::new(), problems: Vec::new() });
        }
        let media = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        if !media.eq_ignore_ascii_case("application/json") {
            return Err(Refusal::new(Code::JsonError, "Content-Type must be application/json"));
        }
        match serde_json::from_slice(body) {
            Ok(Value::Object(left)) => Ok(Self { left, problems: Vec::new() }),
            Ok(_) => Err(Refusal::new(Code::JsonError, "the body must be a JSON object")),
            Err(error) => Err(Refusal::new(Code::JsonError, format!("invalid JSON: {error}"))),
        }
    }

    /// The field, if it is there and readable. Null counts as absent.
    pub fn required<T>(&mut self, name: &str, read: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        let value = self.left.remove(name).filter(|value| !value.is_null());
        let read = value.map_or_else(|| Err(MISSING.to_owned()), |value| read(&value));
        read.map_err(|why| self.problems.push((name.to_owned(), why))).ok()
    }

    /// All errors, unknown fields included.
    pub fn refusal(mut self) -> Refusal {
        self.problems.extend(self.left.into_iter().map(|(name, _)| (name, "Unknown field.".to_owned())));
        Refusal::fields(&self.problems)
    }

    pub fn finish(self) -> Result<(), Refusal> {
        if self.problems.is_empty() && self.left.is_empty() { Ok(()) } else { Err(self.refusal()) }
    }
}

fn string(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "Not a valid string.".to_owned())
}

pub(super) fn address(value: &Value) -> Result<Ipv4Addr, String> {
    string(value)?.parse().map_err(|_| "Not a valid IPv4 address.".to_owned())
}

/// CIDR notation with a prefix length and without host bits.
pub(super) fn prefix(value: &Value) -> Result<Ipv4Net, String> {
    let net: Ipv4Net = string(value)?.parse().map_err(|_| "Not a valid IPv4 prefix.".to_owned())?;
    if net.trunc() == net { Ok(net) } else { Err("Has host bits set.".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(body: &str) -> Fields {
        Fields::parse(Some("application/json; charset=utf-8"), body.as_bytes()).unwrap()
    }

    #[test]
    fn wrong_missing_and_unknown_fields_are_all_named() {
        let mut fields = parse(r#"{"gateway": 1, "colour": "red", "destination": null}"#);
        assert_eq!(fields.required("gateway", address), None);
        assert_eq!(fields.required("destination", prefix), None);
        let refusal = fields.finish().unwrap_err();
        assert_eq!(refusal.message, "invalid input in fields 'gateway', 'destination', 'colour'");
        assert_eq!(refusal.details["fields"][0]["messages"][0], "Not a valid string.");
        assert_eq!(refusal.details["fields"][1]["messages"][0], MISSING);
        assert_eq!(refusal.details["fields"][2]["messages"][0], "Unknown field.");
    }

    #[test]
    fn body_without_a_json_object_is_a_json_error() {
        for (kind, body) in [(Some("application/json"), "{"), (Some("application/json"), "[]"), (None, "{}")]
        {
            assert_eq!(Fields::parse(kind, body.as_bytes()).unwrap_err().code, Code::JsonError);
        }
    }

    #[test]
    fn prefixes_need_a_length_and_no_host_bits() {
        assert!(prefix(&"10.0.0.0/8".into()).is_ok());
        for bad in ["10.0.0.1/8", "10.0.0.0", "fd00::/8", "x"] {
            assert!(prefix(&bad.into()).is_err(), "{bad}");
        }
    }
}
