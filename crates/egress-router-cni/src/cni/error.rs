//! Errors for the runtime and its user.

use std::fmt;

use common::netlink;
use serde::Serialize;

/// The specification's error codes ("Error" section) that the plugin uses, and its own from 100 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// An unsupported version, or an operation that the configuration's version does not have.
    IncompatibleVersion = 1,
    /// A field that is not supported; key and value are in the message.
    UnsupportedField = 2,
    /// A variable of the environment is missing or wrong.
    InvalidEnvironment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// Not JSON, or not of the expected shape.
    Decode = 6,
    /// The network configuration is not valid.
    InvalidConfig = 7,
    /// The network namespace cannot be used.
    InvalidNamespace = 8,
    /// A temporary failure; the same call may succeed later.
    TryAgain = 11,
    /// STATUS: ADD cannot be served.
    NotAvailable = 50,
    /// The kernel refused a step.
    Kernel = 100,
    /// CHECK: the state differs from what ADD configured.
    CheckFailed = 101,
    /// EC2 or the instance metadata service refused permanently.
    Aws = 102,
    /// The Kubernetes API refused permanently.
    Kubernetes = 103,
}

impl Code {
    /// The number in the response.
    #[must_use]
    pub fn number(self) -> u32 {
        self as u32
    }
}

/// An error that is reported to the runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}{details}", if details.is_empty() { "" } else { ": " })]
pub struct Error {
    /// The code.
    pub code: Code,
    /// The operation that failed, its object or field, and the allowed values.
    pub message: String,
    /// The message of the kernel, EC2 or the API server, or empty.
    pub details: String,
    /// The errno, if the kernel refused a request of netlink.
    pub errno: Option<i32>,
}

impl Error {
    /// An error without details.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: String::new(), errno: None }
    }

    /// An error of [`Code::InvalidConfig`] without details.
    pub fn invalid_config(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidConfig, message)
    }

    /// The same with details.
    #[must_use]
    pub fn details(mut self, details: impl fmt::Display) -> Self {
        self.details = details.to_string();
        self
    }

    /// The same with another error among its details, behind `word`.
    #[must_use]
    pub fn with(mut self, word: &str, other: &Self) -> Self {
        let separator = if self.details.is_empty() { "" } else { "; " };
        self.details.push_str(&format!("{separator}{word}: {other}"));
        self
    }

    /// Several errors as one: the first, with the others among its details.
    ///
    /// # Errors
    /// The combined error, if there is one.
    pub fn first(errors: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let mut errors = errors.into_iter();
        let Some(first) = errors.next() else { return Ok(()) };
        Err(errors.fold(first, |first, other| first.with("also", &other)))
    }

    /// The JSON for standard output, in the format of `version`.
    #[must_use]
    pub fn to_json(&self, version: &str) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Output<'a> {
            cni_version: &'a str,
            code: u32,
            msg: &'a str,
            #[serde(skip_serializing_if = "str::is_empty")]
            details: &'a str,
        }
        let output = Output {
            cni_version: version,
            code: self.code.number(),
            msg: &self.message,
            details: &self.details,
        };
        serde_json::to_string(&output).unwrap_or_default()
    }
}

/// Errors of the kernel, as errors for the runtime.
pub trait ToCni {
    /// The error for the runtime: `message` has the operation and the object, the details have the kernel's message.
    #[must_use]
    fn to_cni(&self, message: impl Into<String>) -> Error;
}

impl ToCni for netlink::Error {
    fn to_cni(&self, message: impl Into<String>) -> Error {
        let code = if matches!(self, Self::DumpInterrupted(_)) { Code::TryAgain } else { Code::Kernel };
        Error { errno: self.errno(), ..Error::new(code, message).details(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::Error;

    #[test]
    fn the_response_has_the_keys_of_the_specification() {
        let error = Error::invalid_config("ip.addresses is empty").details("x");
        let json: serde_json::Value = serde_json::from_str(&error.to_json("1.0.0")).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"cniVersion": "1.0.0", "code": 7, "msg": "ip.addresses is empty", "details": "x"})
        );
    }
}
