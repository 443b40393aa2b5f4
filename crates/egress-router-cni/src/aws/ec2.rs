//! EC2's Query API (2016-11-15): six calls, with signed requests and typed responses.

use std::net::Ipv4Addr;
use std::time::SystemTime;

pub use endpoint::Endpoint;
pub use response::{Address, Association, Private, Taken};

use response::{InterfaceItem, Response, malformed, refusal};

use super::credentials::Credentials;
use super::error::{self, Error, busy, reported};
use super::signature::{self, Scope};
use crate::cni::Code;
use crate::http::retry::RetryBudget;
use crate::http::{Method, Request, Transport};

mod endpoint;
mod response;

const VERSION: &str = "2016-11-15";
/// Network interfaces per page: an interface with 50 addresses takes 20 KB.
const PAGE: &str = "200";
/// A subnet has at most 65,531 addresses; so more pages are an endless loop.
const MAX_PAGES: usize = 400;

/// A client of EC2.
pub struct Ec2<'a> {
    transport: &'a dyn Transport,
    endpoint: Endpoint,
    region: String,
    credentials: Credentials,
    retry: RetryBudget,
}

impl<'a> Ec2<'a> {
    /// Creates the client. It sends no request.
    #[must_use]
    pub fn new(
        transport: &'a dyn Transport,
        endpoint: Endpoint,
        region: String,
        credentials: Credentials,
        retry: RetryBudget,
    ) -> Self {
        Self { transport, endpoint, region, credentials, retry }
    }

    /// Waits before the next attempt of a request whose result was read. False if the deadline would pass.
    #[must_use]
    pub fn retry(&self) -> RetryBudget {
        self.retry.clone()
    }

    /// DescribeAddresses: the Elastic IP `public`.
    ///
    /// # Errors
    ///
    /// `InvalidAddress.NotFound`: it is not allocated in this account and region; and as `read`.
    pub fn address(&self, public: Ipv4Addr) -> Result<Address, Error> {
        const ACTION: &str = "DescribeAddresses";
        let response = self.read(ACTION, &[("PublicIp.1", &public.to_string())])?;
        let item = response.addresses_set.item.into_iter().find(|item| item.public_ip == Some(public));
        item.ok_or_else(|| malformed(ACTION, &format!("{public} is not in the response")))?.read(ACTION)
    }

    /// DescribeNetworkInterfaces: the addresses in use on the interface `id`.
    ///
    /// # Errors
    ///
    /// `InvalidNetworkInterfaceID.NotFound`, and as `read`.
    pub fn on_interface(&self, id: &str) -> Result<Taken, Error> {
        const ACTION: &str = "DescribeNetworkInterfaces";
        let response = self.read(ACTION, &[("NetworkInterfaceId.1", id)])?;
        let mut taken = Taken::default();
        let named = |item: &InterfaceItem| item.network_interface_id.as_deref() == Some(id);
        for item in response.network_interface_set.item.into_iter().filter(named) {
            taken.read(ACTION, item)?;
        }
        if taken.addresses.is_empty() {
            return Err(malformed(ACTION, &format!("the response has no address of {id}")));
        }
        Ok(taken)
    }

    /// DescribeNetworkInterfaces: the addresses in use in the subnet `id`.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn in_subnet(&self, id: &str) -> Result<Taken, Error> {
        const ACTION: &str = "DescribeNetworkInterfaces";
        let mut taken = Taken::default();
        let mut next: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut parameters =
                vec![("Filter.1.Name", "subnet-id"), ("Filter.1.Value.1", id), ("MaxResults", PAGE)];
            if let Some(next) = &next {
                parameters.push(("NextToken", next));
            }
            let response = self.read(ACTION, &parameters)?;
            for item in response.network_interface_set.item {
                taken.read(ACTION, item)?;
            }
            match response.next_token {
                None => return Ok(taken),
                token => next = token,
            }
        }
        Err(malformed(ACTION, "more pages than a subnet has addresses"))
    }

    /// AssignPrivateIpAddresses: assigns `private` to `interface` as a secondary address, unless another interface has it.
    ///
    /// # Errors
    ///
    /// [`Error::Uncertain`] if the response was lost, and as `read`.
    pub fn assign(&self, interface: &str, private: Ipv4Addr) -> Result<(), Error> {
        let private = private.to_string();
        // AllowReassignment stays false, so that no other interface loses the address.
        let parameters = [("NetworkInterfaceId", interface), ("PrivateIpAddress.1", &private)];
        self.call_once("AssignPrivateIpAddresses", &parameters).map(drop)
    }

    /// UnassignPrivateIpAddresses. It is idempotent.
    ///
    /// # Errors
    ///
    /// As `read`.
    pub fn unassign(&self, interface: &str, private: Ipv4Addr) -> Result<(), Error> {
        let private = private.to_string();
        let parameters = [("NetworkInterfaceId", interface), ("PrivateIpAddress.1", &private)];
        self.read("UnassignPrivateIpAddresses", &parameters).map(drop)
    }

    /// AssociateAddress: associates the Elastic IP `allocation` with `private` of `interface`; with `reassociate`, also if it is associated
    /// elsewhere. Returns the ID of the new association.
    ///
    /// # Errors
    ///
    /// [`Error::Uncertain`] if the response was lost, and as `read`.
    pub fn associate(
        &self,
        allocation: &str,
        interface: &str,
        private: Ipv4Addr,
        reassociate: bool,
    ) -> Result<String, Error> {
        const ACTION: &str = "AssociateAddress";
        let private = private.to_string();
        let parameters = [
            ("AllocationId", allocation),
            ("NetworkInterfaceId", interface),
            ("PrivateIpAddress", &private),
            ("AllowReassociation", if reassociate { "true" } else { "false" }),
        ];
        let response = self.call_once(ACTION, &parameters)?;
        // It took effect, but the association ID is unknown: the caller describes the address.
        response.association_id.ok_or_else(|| Error::Uncertain {
            action: ACTION,
            why: "the response has no associationId".into(),
        })
    }

    /// DisassociateAddress, by the association's ID and never by the address. It is idempotent, because IDs are not reused.
    ///
    /// # Errors
    ///
    /// `InvalidAssociationID.NotFound`: the association no longer exists; and as `read`.
    pub fn disassociate(&self, association: &str) -> Result<(), Error> {
        self.read("DisassociateAddress", &[("AssociationId", association)]).map(drop)
    }

    /// An idempotent call.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`]; code 11 after attempts until the deadline.
    fn read(&self, action: &'static str, parameters: &[(&str, &str)]) -> Result<Response, Error> {
        self.call(action, parameters, true)
    }

    /// A call that is retried only if it certainly did not take effect.
    fn call_once(&self, action: &'static str, parameters: &[(&str, &str)]) -> Result<Response, Error> {
        self.call(action, parameters, false)
    }

    fn call(
        &self,
        action: &'static str,
        parameters: &[(&str, &str)],
        repeatable: bool,
    ) -> Result<Response, Error> {
        let mut retry = self.retry.clone();
        let body = form(action, parameters);
        let peer = format!("EC2 at {}", self.endpoint.url);
        let unreachable = |why: &str| Error::Other(error::unreachable(&peer, why));
        let mut last = unreachable("the deadline had passed");
        while let Some(timeout) = retry.request_timeout() {
            let mut headers =
                vec![("content-type", "application/x-www-form-urlencoded; charset=utf-8".to_owned())];
            let scope = Scope { region: &self.region, service: "ec2", time: SystemTime::now() };
            let added = signature::sign(
                "POST",
                &self.endpoint.host,
                &headers,
                body.as_bytes(),
                &self.credentials,
                scope,
            );
            headers.extend(added);
            let request = Request {
                method: Method::POST,
                url: &self.endpoint.url,
                headers: &headers,
                body: body.as_bytes(),
                timeout,
                proxy: true,
            };
            last = match self.transport.send(&request) {
                Err(no_response) if repeatable && no_response.cause.is_permanent() => {
                    let message = format!(
                        "{peer} fails TLS; check the endpoint, and whether AWS_CA_BUNDLE contains the CA of its certificate"
                    );
                    return Err(Error::Other(reported(Code::Aws, message, &no_response.why)));
                }
                Err(no_response) if repeatable => unreachable(&no_response.why),
                Err(no_response) => return Err(Error::Uncertain { action, why: no_response.why }),
                Ok(response) if response.status == 200 => {
                    return match Response::parse(action, &response.body) {
                        Ok(understood) => Ok(understood),
                        Err(why) if repeatable => Err(malformed(action, &why)),
                        Err(why) => Err(Error::Uncertain { action, why }),
                    };
                }
                Ok(response) => {
                    let refusal = refusal(response.status, &response.body);
                    if refusal.is_throttling() || (refusal.is_fault() && repeatable) {
                        Error::Other(busy(action, &refusal))
                    } else if refusal.is_fault() {
                        return Err(Error::Uncertain {
                            action,
                            why: format!("{}: {}", refusal.code, refusal.message),
                        });
                    } else {
                        return Err(Error::Refused { action, refusal });
                    }
                }
            };
            if !retry.backoff() {
                break;
            }
        }
        Err(last)
    }
}

fn form(action: &str, parameters: &[(&str, &str)]) -> String {
    let mut body = format!("Action={action}&Version={VERSION}");
    for (name, value) in parameters {
        body.push('&');
        body.push_str(name);
        body.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                body.push(char::from(byte));
            } else {
                body.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    body
}

#[cfg(test)]
mod tests;
