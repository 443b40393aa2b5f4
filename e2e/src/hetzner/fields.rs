//! Request bodies, read strictly: each wrong, missing or unknown field is named.

use ipnet::Ipv4Net;
use serde_json::{Map, Value};
use std::net::Ipv4Addr;

use super::refusal::{Code, Refusal};

/// What the API (a Python service, by its words) says of a field that is not there.
const MISSING: &str = "Missing data for required field.";

#[derive(Debug)]
pub(super) struct Fields {
    left: Map<String, Value>,
    problems: Vec<(String, String)>,
}

impl Fields {
    /// An empty body counts as an empty object: some actions take none.
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

    /// The field, if it is there and readable; null counts as absent.
    pub fn optional<T>(&mut self, name: &str, read: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        let value = self.left.remove(name).filter(|value| !value.is_null())?;
        read(&value).map_err(|why| self.problems.push((name.to_owned(), why))).ok()
    }

    pub fn required<T>(&mut self, name: &str, read: impl Fn(&Value) -> Result<T, String>) -> Option<T> {
        if self.left.get(name).is_none_or(Value::is_null) {
            self.left.remove(name);
            self.problems.push((name.to_owned(), MISSING.to_owned()));
            return None;
        }
        self.optional(name, read)
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

pub(super) fn integer(value: &Value) -> Result<u64, String> {
    value.as_u64().ok_or_else(|| "Not a valid integer.".to_owned())
}

pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "Not a valid boolean.".to_owned())
}

fn string(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "Not a valid string.".to_owned())
}

pub(super) fn address(value: &Value) -> Result<Ipv4Addr, String> {
    string(value)?.parse().map_err(|_| "Not a valid IPv4 address.".to_owned())
}

pub(super) fn addresses(value: &Value) -> Result<Vec<Ipv4Addr>, String> {
    value.as_array().ok_or_else(|| "Not a valid list.".to_owned())?.iter().map(address).collect()
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
    fn everything_wrong_is_named_at_once() {
        let mut fields = parse(r#"{"server": "1", "colour": "red", "ip": null}"#);
        assert_eq!(fields.required("server", integer), None);
        assert_eq!(fields.required("network", integer), None);
        assert_eq!(fields.optional("ip", address), None);
        let refusal = fields.finish().unwrap_err();
        assert_eq!(refusal.message, "invalid input in fields 'server', 'network', 'colour'");
        assert_eq!(refusal.details["fields"][0]["messages"][0], "Not a valid integer.");
        assert_eq!(refusal.details["fields"][1]["messages"][0], MISSING);
        assert_eq!(refusal.details["fields"][2]["messages"][0], "Unknown field.");
    }

    #[test]
    fn what_is_not_a_json_object_is_a_json_error() {
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
