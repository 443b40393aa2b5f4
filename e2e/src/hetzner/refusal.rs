//! Errors of the API: a code, its HTTP status, a message, details.

use serde_json::{Value, json};

/// An error code of the API. Clients decide by it, never by the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// The body is not JSON.
    JsonError,
    /// Token missing or unknown.
    Unauthorized,
    /// A read-only token tried to write.
    TokenReadonly,
    /// A limit of the project.
    ResourceLimitExceeded,
    /// No such object, or no such path.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// A change of the network runs.
    Conflict,
    /// The functionality was removed.
    DeprecatedApiEndpoint,
    /// The input was understood and refused.
    InvalidInput,
    /// The bucket is empty.
    RateLimitExceeded,
}

impl Code {
    /// The code as the API spells it, and its HTTP status as the API's own table of errors pairs them.
    const fn row(self) -> (&'static str, u16) {
        match self {
            Self::JsonError => ("json_error", 400),
            Self::Unauthorized => ("unauthorized", 401),
            Self::TokenReadonly => ("token_readonly", 403),
            Self::ResourceLimitExceeded => ("resource_limit_exceeded", 403),
            Self::NotFound => ("not_found", 404),
            Self::MethodNotAllowed => ("method_not_allowed", 405),
            Self::Conflict => ("conflict", 409),
            Self::DeprecatedApiEndpoint => ("deprecated_api_endpoint", 410),
            Self::InvalidInput => ("invalid_input", 422),
            Self::RateLimitExceeded => ("rate_limit_exceeded", 429),
        }
    }

    /// As the API spells it.
    pub const fn as_str(self) -> &'static str {
        self.row().0
    }

    /// The HTTP status that goes with it.
    pub const fn status(self) -> u16 {
        self.row().1
    }
}

/// One refused request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Refusal {
    pub code: Code,
    pub message: String,
    pub details: Value,
}

impl Refusal {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Value::Null }
    }

    pub fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(Code::NotFound, format!("{what} with ID '{id}' not found"))
    }

    /// `invalid_input` that names each field and its problem.
    pub fn fields(problems: &[(String, String)]) -> Self {
        let names: Vec<String> = problems.iter().map(|(name, _)| format!("'{name}'")).collect();
        let message = match problems {
            [(name, why)] => format!("invalid input in field '{name}': {why}"),
            _ => format!("invalid input in fields {}", names.join(", ")),
        };
        let fields: Vec<Value> =
            problems.iter().map(|(name, why)| json!({"name": name, "messages": [why]})).collect();
        Self { code: Code::InvalidInput, message, details: json!({"fields": fields}) }
    }

    pub fn field(name: &str, why: impl Into<String>) -> Self {
        Self::fields(&[(name.to_owned(), why.into())])
    }

    pub fn limit(name: &str, message: &str) -> Self {
        let details = json!({"limits": [{"name": name}]});
        Self { code: Code::ResourceLimitExceeded, message: message.to_owned(), details }
    }

    pub fn body(&self) -> Value {
        json!({"error": {"code": self.code.as_str(), "message": self.message, "details": self.details}})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_names_one_field_as_in_the_documentation() {
        let body = Refusal::field("broken_field", "is too long").body();
        let expected = json!({"error": {
            "code": "invalid_input",
            "message": "invalid input in field 'broken_field': is too long",
            "details": {"fields": [{"name": "broken_field", "messages": ["is too long"]}]},
        }});
        assert_eq!(body, expected);
    }

    #[test]
    fn message_names_several_fields() {
        let refusal = Refusal::fields(&[("a".into(), "x".into()), ("b".into(), "y".into())]);
        assert_eq!(refusal.message, "invalid input in fields 'a', 'b'");
        assert_eq!(refusal.details["fields"].as_array().unwrap().len(), 2);
    }
}
