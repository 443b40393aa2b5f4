//! Errors for the runtime and its user.

use common::netlink;
use serde::Serialize;

/// The specification's error codes ("Error" section) that the plugin uses, and its own from 100 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// 1: an unsupported version, or an operation that the configuration's version does not have.
    IncompatibleVersion,
    /// 2: a field that is not supported; key and value are in the message.
    UnsupportedField,
    /// 4: a variable of the environment is missing or wrong.
    InvalidEnvironment,
    /// 5: reading or writing failed.
    Io,
    /// 6: not JSON, or not of the expected shape.
    Decode,
    /// 7: the network configuration is not valid.
    InvalidConfig,
    /// 8: the network namespace cannot be used.
    InvalidNamespace,
    /// 11: a temporary failure; the same call may succeed later.
    TryAgain,
    /// 50: STATUS: ADD cannot be served.
    NotAvailable,
    /// 100: the kernel refused a step.
    Kernel,
    /// 101: CHECK: the state differs from what ADD configured.
    CheckFailed,
    /// 102: EC2 or the instance metadata service refused permanently.
    Aws,
    /// 103: the Kubernetes API refused permanently.
    Kubernetes,
}

impl Code {
    /// The number in the response.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::IncompatibleVersion => 1,
            Self::UnsupportedField => 2,
            Self::InvalidEnvironment => 4,
            Self::Io => 5,
            Self::Decode => 6,
            Self::InvalidConfig => 7,
            Self::InvalidNamespace => 8,
            Self::TryAgain => 11,
            Self::NotAvailable => 50,
            Self::Kernel => 100,
            Self::CheckFailed => 101,
            Self::Aws => 102,
            Self::Kubernetes => 103,
        }
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

    /// The same with details.
    #[must_use]
    pub fn details(mut self, details: impl Into<String>) -> Self {
        self.details = details.into();
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
        Error { errno: self.errno(), ..Error::new(code, message).details(self.to_string()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Code, Error};

    #[test]
    fn the_response_has_the_keys_of_the_specification() {
        let error = Error::new(Code::InvalidConfig, "ip.addresses is empty").details("x");
        let json: serde_json::Value = serde_json::from_str(&error.to_json("1.0.0")).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"cniVersion": "1.0.0", "code": 7, "msg": "ip.addresses is empty", "details": "x"})
        );
    }
}
