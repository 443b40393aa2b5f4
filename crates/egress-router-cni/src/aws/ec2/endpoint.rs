//! The endpoint of EC2.

use crate::cni::Error;

/// The endpoint of EC2: a scheme and an authority, without a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) url: String,
    pub(super) host: String,
}

impl Endpoint {
    /// `https://host[:port]`, or `http` if the administrator configures it.
    ///
    /// # Errors
    ///
    /// Another scheme, a path, a query or user information.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let refuse =
            || Error::invalid_config(format!("the EC2 endpoint {text:?} is not https://host[:port]"));
        let (scheme, rest) = text.split_once("://").ok_or_else(refuse)?;
        let default = match scheme {
            "https" => ":443",
            "http" => ":80",
            _ => return Err(refuse()),
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
        if authority.is_empty() || !authority.chars().all(allowed) {
            return Err(refuse());
        }
        // The signed Host header must be the one that HTTP clients send, without a default port.
        let host = authority.strip_suffix(default).unwrap_or(authority).to_owned();
        Ok(Self { url: format!("{scheme}://{host}/"), host })
    }
}
