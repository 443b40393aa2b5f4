//! EC2's Query API (2016-11-15): six calls, with signed requests and typed responses.

use std::net::Ipv4Addr;
use std::time::SystemTime;

pub use endpoint::Endpoint;
pub use response::{Address, Association, Private, Taken};

use response::malformed;

use super::credentials::Credentials;
use super::error::{Error, Refusal};
use super::signature::{self, Scope};
use super::xml::Element;
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
        let root = self.read(ACTION, &[("PublicIp.1", &public.to_string())])?;
        let text = public.to_string();
        let Some(item) = root.items("addressesSet").find(|item| item.text_of("publicIp") == Some(&text))
        else {
            return Err(malformed(ACTION, format!("{text} is not in the response")));
        };
        Address::read(ACTION, item)
    }

    /// DescribeNetworkInterfaces: the addresses in use on the interface `id`.
    ///
    /// # Errors
    ///
    /// `InvalidNetworkInterfaceID.NotFound`, and as `read`.
    pub fn on_interface(&self, id: &str) -> Result<Taken, Error> {
        const ACTION: &str = "DescribeNetworkInterfaces";
        let root = self.read(ACTION, &[("NetworkInterfaceId.1", id)])?;
        let mut taken = Taken::default();
        for item in
            root.items("networkInterfaceSet").filter(|item| item.text_of("networkInterfaceId") == Some(id))
        {
            taken.read(ACTION, item)?;
        }
        if taken.addresses.is_empty() {
            return Err(malformed(ACTION, format!("the response has no address of {id}")));
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
            let root = self.read(ACTION, &parameters)?;
            for item in root.items("networkInterfaceSet") {
                taken.read(ACTION, item)?;
            }
            match root.text_of("nextToken") {
                None => return Ok(taken),
                Some(token) => next = Some(token.to_owned()),
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
        let root = self.call_once(ACTION, &parameters)?;
        // It took effect, but the association ID is unknown: the caller describes the address.
        root.text_of("associationId").map(Into::into).ok_or_else(|| Error::Uncertain {
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
    /// [`Error::Refused`]; after attempts until the deadline [`Error::Busy`] or [`Error::Unreachable`].
    fn read(&self, action: &'static str, parameters: &[(&str, &str)]) -> Result<Element, Error> {
        self.call(action, parameters, true)
    }

    /// A call that is retried only if it certainly did not take effect.
    fn call_once(&self, action: &'static str, parameters: &[(&str, &str)]) -> Result<Element, Error> {
        self.call(action, parameters, false)
    }

    fn call(
        &self,
        action: &'static str,
        parameters: &[(&str, &str)],
        repeatable: bool,
    ) -> Result<Element, Error> {
        let mut retry = self.retry.clone();
        let body = form(action, parameters);
        let mut last = self.unreachable("the deadline had passed".into());
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
                method: Method::Post,
                url: &self.endpoint.url,
                headers: &headers,
                body: body.as_bytes(),
                timeout,
                proxy: true,
            };
            last = match self.transport.send(&request) {
                Err(no_response) if repeatable && no_response.cause.is_permanent() => {
                    return Err(Error::Untrusted { peer: self.peer(), why: no_response.why });
                }
                Err(no_response) if repeatable => self.unreachable(no_response.to_string()),
                Err(no_response) => return Err(Error::Uncertain { action, why: no_response.to_string() }),
                Ok(response) if response.status == 200 => {
                    let document = Element::parse(&response.body);
                    let understood = document.map_err(|why| why.to_string()).and_then(|root| {
                        let expected = root.name.strip_suffix("Response") == Some(action);
                        if expected { Ok(root) } else { Err(format!("the response is a {}", root.name)) }
                    });
                    return match understood {
                        Ok(root) => Ok(root),
                        Err(why) if repeatable => Err(malformed(action, why)),
                        Err(why) => Err(Error::Uncertain { action, why }),
                    };
                }
                Ok(response) => {
                    let refusal = refusal(response.status, &response.body);
                    if refusal.is_throttling() || (refusal.is_fault() && repeatable) {
                        Error::Busy { action, refusal }
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

    fn unreachable(&self, why: String) -> Error {
        Error::Unreachable { peer: self.peer(), why }
    }

    fn peer(&self) -> String {
        format!("EC2 at {}", self.endpoint.url)
    }
}

/// EC2's error document; only the HTTP status if a proxy in between sent the response.
fn refusal(status: u16, body: &[u8]) -> Refusal {
    let Ok(root) = Element::parse(body) else { return Refusal { status, ..Refusal::default() } };
    let error = root.child("Errors").and_then(|errors| errors.child("Error")).or_else(|| root.child("Error"));
    let text = |name| error.and_then(|error| error.text_of(name)).unwrap_or_default().to_owned();
    let request =
        root.text_of("RequestID").or_else(|| root.text_of("RequestId")).unwrap_or_default().to_owned();
    Refusal { status, code: text("Code"), message: text("Message"), request }
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
