//! Errors of EC2 and the metadata service, with their messages and what to do.

use crate::cni::{self, Code};

/// Limit of foreign messages: an encoded authorization failure is longer, and a runtime logs it repeatedly.
const MAX_DETAILS: usize = 1024;

/// An error of a request to EC2. Only the first two kinds tell a caller what to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// EC2 refuses permanently.
    Refused {
        /// Of EC2's API.
        action: &'static str,
        /// The error response of EC2.
        refusal: Refusal,
    },
    /// The request was sent, and whether it took effect is unknown.
    Uncertain {
        /// Of EC2's API.
        action: &'static str,
        /// The error of the attempt.
        why: String,
    },
    /// Any other error.
    Other(cni::Error),
}

/// EC2's error response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP's status.
    pub status: u16,
    /// `Code`, such as `UnauthorizedOperation`.
    pub code: String,
    /// `Message`.
    pub message: String,
    /// `RequestID`, which AWS Support asks for.
    pub request: String,
}

impl Refusal {
    /// Whether the request had no effect and may succeed later (EC2's "Request throttling" and "Server error codes").
    #[must_use]
    pub fn is_throttling(&self) -> bool {
        matches!(
            self.code.as_str(),
            "RequestLimitExceeded"
                | "Throttling"
                | "ThrottlingException"
                | "RequestThrottled"
                | "BandwidthLimitExceeded"
        ) || self.status == 429
    }

    /// Whether the server failed, so that the effect is unknown.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        self.status >= 500
            || matches!(
                self.code.as_str(),
                "InternalError" | "InternalFailure" | "ServiceUnavailable" | "Unavailable"
            )
    }

    fn describe(&self) -> String {
        format!("{}: {} (status {}, request {})", self.code, self.message, self.status, self.request)
    }
}

impl Error {
    /// Whether EC2 refused with one of `codes`.
    #[must_use]
    pub fn is_refused_as(&self, codes: &[&str]) -> bool {
        matches!(self, Self::Refused { refusal, .. } if codes.contains(&refusal.code.as_str()))
    }
}

fn advice(action: &str, refusal: &Refusal) -> String {
    match refusal.code.as_str() {
        "UnauthorizedOperation" => format!("the node's IAM role lacks the right ec2:{action}"),
        "AuthFailure" | "InvalidClientTokenId" | "SignatureDoesNotMatch" => {
            "the credentials are not valid; is AWS_ACCESS_KEY_ID set in the container runtime's environment by mistake?".into()
        }
        "ExpiredToken" | "RequestExpired" => "the credentials or the request have expired; is the node's clock right?".into(),
        "InvalidAddress.NotFound" | "InvalidAllocationID.NotFound" => {
            "the Elastic IP is not allocated in this account and region; allocate it, or correct ip.addresses".into()
        }
        "PrivateIpAddressLimitExceeded" => {
            "the node's network interface holds as many private addresses as its instance type allows".into()
        }
        "InsufficientFreeAddressesInSubnet" => "the subnet of the node's network interface has no free address".into(),
        "Resource.AlreadyAssociated" => {
            "the Elastic IP is associated elsewhere, and aws.allowReassociation is false in the settings".into()
        }
        // Not a response of EC2, but of a proxy in between.
        "" => format!("the response is HTTP status {} without EC2's error document; check the endpoint", refusal.status),
        code => code.into(),
    }
}

/// An error with the limited message of another program as its details.
pub(super) fn reported(code: Code, message: String, details: &str) -> cni::Error {
    let details: String = details.chars().filter(|c| !c.is_control()).take(MAX_DETAILS).collect();
    cni::Error::new(code, message).details(details)
}

/// No response of `peer` (EC2 or the metadata service, with its endpoint) in time. `why` is the error of the last attempt.
pub(super) fn unreachable(peer: &str, why: &str) -> cni::Error {
    reported(Code::TryAgain, format!("{peer} did not respond in time"), why)
}

/// A response that does not match the API's documentation. `peer` has the server and the request, `why` the problem or the invalid value.
pub(super) fn malformed(peer: &str, why: &str) -> cni::Error {
    reported(Code::Aws, format!("{peer} sent an invalid response"), why)
}

/// Until the deadline, each response reported throttling or a server error. `refusal` is the last one.
pub(super) fn busy(action: &str, refusal: &Refusal) -> cni::Error {
    let message = format!("EC2 throttled or failed {action} until the deadline");
    reported(Code::TryAgain, message, &refusal.describe())
}

impl From<Error> for cni::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused { action, refusal } => {
                let message = format!("EC2 refuses {action}: {}", advice(action, &refusal));
                reported(Code::Aws, message, &refusal.describe())
            }
            Error::Uncertain { action, why } => {
                let message =
                    format!("no response from EC2 to {action}: whether it was carried out is unknown");
                reported(Code::TryAgain, message, &why)
            }
            Error::Other(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> cni::Error {
        let refusal =
            Refusal { status: 403, code: code.into(), message: "no\nway".into(), request: "r-1".into() };
        Error::Refused { action: "AssociateAddress", refusal }.into()
    }

    #[test]
    fn a_missing_permission_is_named() {
        let error = refused("UnauthorizedOperation");
        assert_eq!(error.code, Code::Aws);
        assert!(error.message.contains("ec2:AssociateAddress"), "{error}");
        assert_eq!(error.details, "UnauthorizedOperation: noway (status 403, request r-1)");
    }

    #[test]
    fn an_unknown_code_is_reported_unchanged() {
        assert!(refused("OperationNotPermitted").message.ends_with("OperationNotPermitted"));
    }

    #[test]
    fn a_response_of_a_proxy_is_not_reported_as_one_of_ec2() {
        let refusal = Refusal { status: 301, ..Refusal::default() };
        let error = cni::Error::from(Error::Refused { action: "DescribeAddresses", refusal });
        assert!(error.code == Code::Aws && error.message.contains("301"), "{error}");
    }

    #[test]
    fn temporary_errors_have_code_11() {
        let refusal = Refusal { status: 503, code: "RequestLimitExceeded".into(), ..Refusal::default() };
        assert!(refusal.is_throttling());
        assert_eq!(busy("DescribeAddresses", &refusal).code, Code::TryAgain);
    }

    #[test]
    fn others_words_are_bounded() {
        let refusal = Refusal { message: "x".repeat(9999), ..Refusal::default() };
        let error = cni::Error::from(Error::Refused { action: "AssociateAddress", refusal });
        assert_eq!(error.details.len(), MAX_DETAILS);
    }
}
