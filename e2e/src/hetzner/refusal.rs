//! What the API says no with: a code, its HTTP status, a message, details.

use serde_json::{Value, json};

/// An error code of the API. Clients decide by it, never by the HTTP status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The body is not JSON.
    JsonError,
    /// Token missing or unknown.
    Unauthorized,
    /// A read-only token tried to write.
    TokenReadonly,
    /// Insufficient permissions.
    Forbidden,
    /// The platform is being maintained.
    Maintenance,
    /// More of something than the project may have.
    ResourceLimitExceeded,
    /// No such entity, or no such path.
    NotFound,
    /// The path exists, the method does not.
    MethodNotAllowed,
    /// A name or address is taken.
    UniquenessError,
    /// A change of the network is under way, or it changed during the request.
    Conflict,
    /// The functionality was removed.
    DeprecatedApiEndpoint,
    /// Not available at the moment, for example not for order.
    ResourceUnavailable,
    /// The input was understood and refused.
    InvalidInput,
    /// Error within a service.
    ServiceError,
    /// The resource does not support the action.
    UnsupportedError,
    /// The floating IP is already assigned to that server.
    FloatingIpAssigned,
    /// The server is already in the network.
    ServerAlreadyAttached,
    /// The wanted address is taken or outside of the subnets.
    IpNotAvailable,
    /// No subnet with a free address.
    NoSubnetAvailable,
    /// The network overlaps with another one of the server.
    NetworksOverlap,
    /// An action is running on the resource.
    Locked,
    /// The resource is protected.
    Protected,
    /// The bucket is empty.
    RateLimitExceeded,
    /// Error within the backend.
    ServerError,
    /// A gateway in front of the backend gave up; not in the API's table, but hcloud-go knows it.
    BadGateway,
    /// A service is not available at the moment.
    Unavailable,
    /// Not answered in time.
    Timeout,
}

impl Code {
    /// The code as the API spells it, and its HTTP status as the API's own table of errors pairs them.
    const fn row(self) -> (&'static str, u16) {
        match self {
            Self::JsonError => ("json_error", 400),
            Self::Unauthorized => ("unauthorized", 401),
            Self::TokenReadonly => ("token_readonly", 403),
            Self::Forbidden => ("forbidden", 403),
            Self::Maintenance => ("maintenance", 403),
            Self::ResourceLimitExceeded => ("resource_limit_exceeded", 403),
            Self::NotFound => ("not_found", 404),
            Self::MethodNotAllowed => ("method_not_allowed", 405),
            Self::UniquenessError => ("uniqueness_error", 409),
            Self::Conflict => ("conflict", 409),
            Self::DeprecatedApiEndpoint => ("deprecated_api_endpoint", 410),
            Self::ResourceUnavailable => ("resource_unavailable", 412),
            Self::InvalidInput => ("invalid_input", 422),
            Self::ServiceError => ("service_error", 422),
            Self::UnsupportedError => ("unsupported_error", 422),
            Self::FloatingIpAssigned => ("floating_ip_assigned", 422),
            Self::ServerAlreadyAttached => ("server_already_attached", 422),
            Self::IpNotAvailable => ("ip_not_available", 422),
            Self::NoSubnetAvailable => ("no_subnet_available", 422),
            Self::NetworksOverlap => ("networks_overlap", 422),
            Self::Locked => ("locked", 423),
            Self::Protected => ("protected", 423),
            Self::RateLimitExceeded => ("rate_limit_exceeded", 429),
            Self::ServerError => ("server_error", 500),
            Self::BadGateway => ("bad_gateway", 502),
            Self::Unavailable => ("unavailable", 503),
            Self::Timeout => ("timeout", 504),
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

    /// `invalid_input` that names each field and what is wrong with it.
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
    fn one_field_is_named_in_the_message_as_in_the_documentation() {
        let body = Refusal::field("broken_field", "is too long").body();
        let expected = json!({"error": {
            "code": "invalid_input",
            "message": "invalid input in field 'broken_field': is too long",
            "details": {"fields": [{"name": "broken_field", "messages": ["is too long"]}]},
        }});
        assert_eq!(body, expected);
    }

    #[test]
    fn several_fields_are_all_named() {
        let refusal = Refusal::fields(&[("a".into(), "x".into()), ("b".into(), "y".into())]);
        assert_eq!(refusal.message, "invalid input in fields 'a', 'b'");
        assert_eq!(refusal.details["fields"].as_array().unwrap().len(), 2);
    }
}
