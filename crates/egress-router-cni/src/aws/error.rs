//! What EC2 and the metadata service refuse, in their words, and what a person does about it.

use crate::cni::{self, Code};

/// Others' words are cut here: an encoded authorization failure is longer, and a runtime logs all of it again and again.
const MAX_DETAILS: usize = 1024;

/// What went wrong on the way to an Elastic IP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No response in time.
    #[error("{peer} did not respond in time")]
    Unreachable {
        /// EC2 or the metadata service, with its endpoint.
        peer: String,
        /// The last attempt's fate.
        why: String,
    },
    /// Whoever answers there is not trusted, or is none of its kind.
    #[error(
        "{peer} fails TLS; check the endpoint, and whether AWS_CA_BUNDLE contains the CA of its certificate"
    )]
    Untrusted {
        /// EC2 or the metadata service, with its endpoint.
        peer: String,
        /// TLS's words.
        why: String,
    },
    /// It answered, and said that it is busy or broken, until the deadline.
    #[error("EC2 throttled or failed {action} until the deadline")]
    Busy {
        /// Of EC2's API.
        action: &'static str,
        /// What it said.
        refusal: Refusal,
    },
    /// It was asked, and whether it was carried out is not known.
    #[error("no response from EC2 to {action}: whether it was carried out is unknown")]
    Uncertain {
        /// Of EC2's API.
        action: &'static str,
        /// The attempt's fate.
        why: String,
    },
    /// EC2 refuses, and asking again changes nothing.
    #[error("EC2 refuses {action}: {}", advice(action, .refusal))]
    Refused {
        /// Of EC2's API.
        action: &'static str,
        /// What it said.
        refusal: Refusal,
    },
    /// The metadata service refuses.
    #[error("the instance metadata service responds with status {status} to {path}: {advice}")]
    Metadata {
        /// What was asked for.
        path: String,
        /// HTTP's.
        status: u16,
        /// What to do.
        advice: &'static str,
    },
    /// An answer that is not what the API documents.
    #[error("{peer} sent an invalid response")]
    Malformed {
        /// Who, and to what.
        peer: String,
        /// What is wrong with it.
        why: String,
    },
    /// A setting or a configuration cannot be served.
    #[error("{0}")]
    Configuration(String),
    /// Nothing is broken; what is asked for cannot be had.
    #[error("{0}")]
    Conflict(String),
    /// Another node took the address while this one was taking it.
    #[error("{0}")]
    Superseded(String),
}

/// EC2's error answer.
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
    /// Nothing was done, and the same request may be served later (EC2's "Request throttling" and "Server error codes").
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

    /// The server failed; whether it did what was asked is not known.
    #[must_use]
    pub fn is_fault(&self) -> bool {
        self.status >= 500
            || matches!(
                self.code.as_str(),
                "InternalError" | "InternalFailure" | "ServiceUnavailable" | "Unavailable"
            )
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
        // No answer of EC2's: something between answered.
        "" => format!("the response is HTTP status {} without EC2's error document; check the endpoint", refusal.status),
        code => code.into(),
    }
}

fn cut(words: &str) -> String {
    words.chars().filter(|c| !c.is_control()).take(MAX_DETAILS).collect()
}

impl From<Error> for cni::Error {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let describe = |refusal: &Refusal| {
            cut(&format!(
                "{}: {} (status {}, request {})",
                refusal.code, refusal.message, refusal.status, refusal.request
            ))
        };
        match &error {
            Error::Unreachable { why, .. } | Error::Uncertain { why, .. } => {
                Self::new(Code::TryAgain, message).details(cut(why))
            }
            Error::Busy { refusal, .. } => Self::new(Code::TryAgain, message).details(describe(refusal)),
            Error::Superseded(_) => Self::new(Code::TryAgain, message),
            Error::Refused { refusal, .. } => Self::new(Code::Aws, message).details(describe(refusal)),
            Error::Malformed { why, .. } | Error::Untrusted { why, .. } => {
                Self::new(Code::Aws, message).details(cut(why))
            }
            Error::Metadata { .. } | Error::Conflict(_) => Self::new(Code::Aws, message),
            Error::Configuration(_) => Self::new(Code::InvalidConfig, message),
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
    fn a_missing_right_is_named() {
        let error = refused("UnauthorizedOperation");
        assert_eq!(error.code, Code::Aws);
        assert!(error.message.contains("ec2:AssociateAddress"), "{error}");
        assert_eq!(error.details, "UnauthorizedOperation: noway (status 403, request r-1)");
    }

    #[test]
    fn a_code_that_is_not_known_is_said_as_it_is() {
        assert!(refused("OperationNotPermitted").message.ends_with("OperationNotPermitted"));
    }

    #[test]
    fn something_between_that_answers_is_not_taken_for_ec2() {
        let refusal = Refusal { status: 301, ..Refusal::default() };
        let error = cni::Error::from(Error::Refused { action: "DescribeAddresses", refusal });
        assert!(error.code == Code::Aws && error.message.contains("301"), "{error}");
    }

    #[test]
    fn what_may_pass_is_to_be_tried_again() {
        let refusal = Refusal { status: 503, code: "RequestLimitExceeded".into(), ..Refusal::default() };
        assert!(refusal.is_throttling());
        let error = cni::Error::from(Error::Busy { action: "DescribeAddresses", refusal });
        assert_eq!(error.code, Code::TryAgain);
    }

    #[test]
    fn others_words_are_bounded() {
        let refusal = Refusal { message: "x".repeat(9999), ..Refusal::default() };
        let error = cni::Error::from(Error::Refused { action: "AssociateAddress", refusal });
        assert_eq!(error.details.len(), MAX_DETAILS);
    }
}
