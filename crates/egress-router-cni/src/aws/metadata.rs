//! The instance metadata service, version 2: properties of this instance, and its role's credentials.
//!
//! Source: "Instance metadata and user data" (EC2 User Guide). Version 1, which needs no token, is not used, as AWS
//! recommends against forged requests. The plugin runs on the host, so a hop limit of 1 is enough.

use std::cell::RefCell;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use ipnet::Ipv4Net;

use super::error::{self, unreachable};
use crate::cni::{Code, Error};
use crate::config::interface::{mac_bytes, mac_text};
use crate::http::retry::RetryBudget;
use crate::http::{Method, NoResponse, Request, Response, Transport, is_transient};

/// Its endpoint on every instance.
pub const ENDPOINT: &str = "http://169.254.169.254";

/// Lifetime of the token in seconds. A call is much shorter.
const TOKEN_SECONDS: &str = "300";
/// Limit of a response. The longest one, a role's credentials, is 1.5 KB.
const MAX_RESPONSE_BYTES: usize = 64 << 10;

/// A client of the service.
pub struct Metadata<'a> {
    transport: &'a dyn Transport,
    endpoint: &'a str,
    deadline: Instant,
    token: RefCell<Option<String>>,
}

/// One network interface of this instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// `eni-…`.
    pub id: String,
    /// Hardware address of the device on this node.
    pub mac: [u8; 6],
    /// `subnet-…`.
    pub subnet: String,
    /// The subnet's IPv4 block.
    pub block: Ipv4Net,
}

impl Interface {
    /// The subnet's router: the second address of its block ("Subnet sizing", VPC User Guide).
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.block.network()).saturating_add(1))
    }
}

impl<'a> Metadata<'a> {
    /// Creates the client. It sends no request. `endpoint` has no path.
    #[must_use]
    pub fn new(transport: &'a dyn Transport, endpoint: &'a str, deadline: Instant) -> Self {
        Self { transport, endpoint: endpoint.trim_end_matches('/'), deadline, token: RefCell::new(None) }
    }

    /// Whether the endpoint issues tokens. One attempt.
    #[must_use]
    pub fn is_there(&self) -> bool {
        let Some(timeout) = RetryBudget::until(self.deadline).request_timeout() else { return false };
        self.request_token(timeout).is_ok_and(|response| response.status == 200)
    }

    /// `i-…`.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn instance(&self) -> Result<String, Error> {
        self.get("instance-id")
    }

    /// Such as `eu-central-1`.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn region(&self) -> Result<String, Error> {
        self.get("placement/region")
    }

    /// The partition's, `amazonaws.com` almost everywhere.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn domain(&self) -> Result<String, Error> {
        Ok(self.find("services/domain")?.unwrap_or_else(|| "amazonaws.com".into()))
    }

    /// Hardware address of the device of the primary network interface.
    ///
    /// # Errors
    ///
    /// As [`Self::get`]; or the response is invalid.
    pub fn primary(&self) -> Result<[u8; 6], Error> {
        let text = self.get("mac")?;
        mac_bytes(&text).ok_or_else(|| malformed("mac", &format!("{text:?}")))
    }

    /// The interface whose device has the address `mac`; none: the primary one.
    ///
    /// # Errors
    ///
    /// As [`Self::get`]; or `mac` is not one of this instance, or the response is invalid.
    pub fn interface(&self, mac: Option<[u8; 6]>) -> Result<Interface, Error> {
        let mac = match mac {
            Some(mac) => mac,
            None => self.primary()?,
        };
        let text = mac_text(mac);
        let of = |what: &str| -> Result<String, Error> {
            self.find(&format!("network/interfaces/macs/{text}/{what}"))?.ok_or_else(|| {
                let message = format!(
                    "the device with MAC address {text} is no network interface of this instance with an IPv4 subnet ({what} is \
                     missing); interfaceArgs.master names another"
                );
                Error::new(Code::Aws, message)
            })
        };
        let id = of("interface-id")?;
        let subnet = of("subnet-id")?;
        let block = of("subnet-ipv4-cidr-block")?;
        let parsed: Ipv4Net =
            block.parse().map_err(|_| malformed("subnet-ipv4-cidr-block", &format!("{block:?}")))?;
        Ok(Interface { id, mac, subnet, block: parsed.trunc() })
    }

    /// The value of `latest/meta-data/<path>`.
    ///
    /// # Errors
    ///
    /// No response until the deadline, a refusal, or a response that is empty or not UTF-8.
    pub fn get(&self, path: &str) -> Result<String, Error> {
        let missing = || refused(path, 404, "every instance has it; check aws.metadataEndpoint");
        self.find(path)?.ok_or_else(missing)
    }

    /// As [`Self::get`]; none if the service responds with 404.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn find(&self, path: &str) -> Result<Option<String>, Error> {
        let mut retry = RetryBudget::until(self.deadline);
        let mut last = None;
        while let Some(timeout) = retry.request_timeout() {
            let header = ("x-aws-ec2-metadata-token", self.token()?);
            match self.send(Method::GET, &format!("meta-data/{path}"), header, timeout) {
                Ok(response) => match response.status {
                    200 => return text(path, &response.body).map(Some),
                    404 => return Ok(None),
                    // The token has expired, or the service was restarted.
                    401 => {
                        self.token.replace(None);
                        last = Some("it rejects the tokens that it issues".into());
                    }
                    status if is_transient(status) => last = Some(format!("status {status} to {path}")),
                    status => return Err(refused(path, status, advice(status))),
                },
                // The last attempt may have timed out; the service's earlier response is more useful.
                Err(no_response) => drop(last.get_or_insert(no_response.why)),
            }
            if !retry.backoff() {
                break;
            }
        }
        Err(self.unreachable(last.as_deref().unwrap_or("the deadline had passed")))
    }

    fn token(&self) -> Result<String, Error> {
        const PATH: &str = "latest/api/token";
        if let Some(token) = self.token.borrow().as_ref() {
            return Ok(token.clone());
        }
        let mut retry = RetryBudget::until(self.deadline);
        let mut last = String::from("the deadline had passed");
        while let Some(timeout) = retry.request_timeout() {
            match self.request_token(timeout) {
                Ok(Response { status: 200, body }) => {
                    let token = text(PATH, &body)?;
                    self.token.replace(Some(token.clone()));
                    return Ok(token);
                }
                Ok(Response { status, .. }) if is_transient(status) => {
                    last = format!("status {status} to {PATH}");
                }
                Ok(Response { status, .. }) => return Err(refused(PATH, status, advice(status))),
                Err(no_response) => last = no_response.why,
            }
            if !retry.backoff() {
                break;
            }
        }
        Err(self.unreachable(&last))
    }

    fn request_token(&self, timeout: Duration) -> Result<Response, NoResponse> {
        let header = ("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS.to_owned());
        self.send(Method::PUT, "api/token", header, timeout)
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        header: (&'static str, String),
        timeout: Duration,
    ) -> Result<Response, NoResponse> {
        let url = format!("{}/latest/{path}", self.endpoint);
        let request = Request { method, url: &url, headers: &[header], body: &[], timeout, proxy: false };
        self.transport.send(&request)
    }

    fn unreachable(&self, why: &str) -> Error {
        unreachable(&format!("the instance metadata service at {}", self.endpoint), why)
    }
}

/// An invalid response to a request for `what`.
pub(super) fn malformed(what: &str, why: &str) -> Error {
    error::malformed(&format!("the instance metadata service, asked for {what},"), why)
}

fn refused(path: &str, status: u16, advice: &str) -> Error {
    let message = format!("the instance metadata service responds with status {status} to {path}: {advice}");
    Error::new(Code::Aws, message)
}

fn advice(status: u16) -> &'static str {
    match status {
        403 => "it is switched off for this instance (HttpEndpoint of its metadata options)",
        404 | 405 => "it issues no tokens, so it is not version 2 of the service",
        _ => "see the metadata options of this instance",
    }
}

fn text(path: &str, body: &[u8]) -> Result<String, Error> {
    let malformed = |why| malformed(path, why);
    if body.len() > MAX_RESPONSE_BYTES {
        return Err(malformed("the response is too long"));
    }
    let text = std::str::from_utf8(body).map_err(|_| malformed("the response is not UTF-8"))?.trim();
    if text.is_empty() || text.chars().any(|c| c.is_control() && !c.is_ascii_whitespace()) {
        return Err(malformed("the response is empty, or not plain text"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_router_is_the_second_address_of_the_block() {
        let interface = Interface {
            id: "eni-1".into(),
            mac: [0; 6],
            subnet: "subnet-1".into(),
            block: "10.0.16.0/20".parse().unwrap(),
        };
        assert_eq!(interface.gateway(), Ipv4Addr::new(10, 0, 16, 1));
    }
}
