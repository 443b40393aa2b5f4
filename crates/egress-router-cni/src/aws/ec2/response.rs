//! EC2's responses about Elastic IPs and network interfaces, and its error documents. EC2 writes an empty element for a missing value.

use std::net::Ipv4Addr;
use std::str::FromStr;

use ipnet::Ipv4Net;
use quick_xml::Reader;
use quick_xml::events::Event;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::aws::error::{self, Error, Refusal};

/// An Elastic IP of DescribeAddresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `eipalloc-…`.
    pub allocation: String,
    /// Its association, if it has one.
    pub association: Option<Association>,
}

/// The association of an Elastic IP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Association {
    /// `eipassoc-…`; a new one with each association.
    pub id: String,
    /// `eni-…`.
    pub interface: Option<String>,
    /// `i-…`, where the interface is attached to an instance.
    pub instance: Option<String>,
    /// The interface's private address that it is associated with.
    pub private: Option<Ipv4Addr>,
}

/// An address of a network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Private {
    /// The address.
    pub address: Ipv4Addr,
    /// `eni-…` of its interface.
    pub interface: String,
    /// Whether it is the interface's primary address, which belongs to the node.
    pub primary: bool,
    /// The public address that is associated with it.
    pub public: Option<Ipv4Addr>,
}

/// The addresses in use of a network interface or a subnet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Single addresses.
    pub addresses: Vec<Private>,
    /// Whole prefixes, delegated to an interface.
    pub prefixes: Vec<Ipv4Net>,
}

impl Taken {
    /// The entry of `address`.
    #[must_use]
    pub fn find(&self, address: Ipv4Addr) -> Option<&Private> {
        self.addresses.iter().find(|private| private.address == address)
    }

    /// Whether `address` is in use.
    #[must_use]
    pub fn contains(&self, address: Ipv4Addr) -> bool {
        self.find(address).is_some() || self.prefixes.iter().any(|prefix| prefix.contains(&address))
    }
}

/// The elements of all responses that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Response {
    pub(super) addresses_set: List<ElasticItem>,
    pub(super) network_interface_set: List<InterfaceItem>,
    #[serde(deserialize_with = "filled")]
    pub(super) next_token: Option<String>,
    #[serde(deserialize_with = "filled")]
    pub(super) association_id: Option<String>,
}

/// A list of EC2.
#[derive(Debug, Deserialize)]
pub(super) struct List<T> {
    #[serde(default = "Vec::new")]
    pub(super) item: Vec<T>,
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self { item: Vec::new() }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ElasticItem {
    #[serde(deserialize_with = "filled")]
    pub(super) public_ip: Option<Ipv4Addr>,
    #[serde(deserialize_with = "filled")]
    allocation_id: Option<String>,
    #[serde(deserialize_with = "filled")]
    association_id: Option<String>,
    #[serde(deserialize_with = "filled")]
    network_interface_id: Option<String>,
    #[serde(deserialize_with = "filled")]
    instance_id: Option<String>,
    #[serde(deserialize_with = "filled")]
    private_ip_address: Option<Ipv4Addr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InterfaceItem {
    #[serde(deserialize_with = "filled")]
    pub(super) network_interface_id: Option<String>,
    private_ip_addresses_set: List<PrivateItem>,
    #[serde(rename = "ipv4PrefixSet")]
    prefixes: List<PrefixItem>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PrivateItem {
    #[serde(deserialize_with = "filled")]
    private_ip_address: Option<Ipv4Addr>,
    #[serde(deserialize_with = "filled")]
    primary: Option<bool>,
    association: PublicItem,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PublicItem {
    #[serde(deserialize_with = "filled")]
    public_ip: Option<Ipv4Addr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PrefixItem {
    #[serde(rename = "ipv4Prefix", deserialize_with = "filled")]
    prefix: Option<Ipv4Net>,
}

/// `<Response><Errors><Error>` of EC2, `<ErrorResponse><Error>` of other services.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Refused {
    errors: Errors,
    error: Vec<ErrorItem>,
    #[serde(rename = "RequestID", alias = "RequestId", deserialize_with = "filled")]
    request: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Errors {
    error: Vec<ErrorItem>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ErrorItem {
    #[serde(deserialize_with = "filled")]
    code: Option<String>,
    #[serde(deserialize_with = "filled")]
    message: Option<String>,
}

/// The value of an element; none if it is empty.
fn filled<'de, D: Deserializer<'de>, T: FromStr>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| D::Error::custom(format_args!("{text:?} is not valid")))
}

impl Response {
    /// The response to `action`.
    ///
    /// # Errors
    /// Why it is none.
    pub(super) fn parse(action: &str, document: &[u8]) -> Result<Self, String> {
        let document = std::str::from_utf8(document).map_err(|error| error.to_string())?;
        let root = root(document)?;
        if root.strip_suffix("Response") != Some(action) {
            return Err(format!("the response is a {root}"));
        }
        quick_xml::de::from_str(document).map_err(|error| error.to_string())
    }
}

/// The name of the root element, which serde does not compare.
fn root(document: &str) -> Result<String, String> {
    let mut reader = Reader::from_str(document);
    loop {
        match reader.read_event().map_err(|error| error.to_string())? {
            Event::Start(root) | Event::Empty(root) => return Ok(root.local_name().as_ref().to_owned()),
            Event::Eof => return Err("no element".into()),
            Event::DocType(_) => return Err("a document type".into()),
            _ => {}
        }
    }
}

/// EC2's error document; only the HTTP status if a proxy in between sent the response.
pub(super) fn refusal(status: u16, document: &[u8]) -> Refusal {
    let document = String::from_utf8_lossy(document);
    let Refused { errors, error, request } = quick_xml::de::from_str(&document).unwrap_or_default();
    let ErrorItem { code, message } = errors.error.into_iter().chain(error).next().unwrap_or_default();
    Refusal {
        status,
        code: code.unwrap_or_default(),
        message: message.unwrap_or_default(),
        request: request.unwrap_or_default(),
    }
}

impl ElasticItem {
    pub(super) fn read(self, action: &'static str) -> Result<Address, Error> {
        let allocation = self.allocation_id.ok_or_else(|| malformed(action, "no allocationId"))?;
        let (interface, instance) = (self.network_interface_id, self.instance_id);
        let private = self.private_ip_address;
        let association = self.association_id.map(|id| Association { id, interface, instance, private });
        Ok(Address { allocation, association })
    }
}

impl Taken {
    /// Adds the addresses of a network interface.
    pub(super) fn read(&mut self, action: &'static str, interface: InterfaceItem) -> Result<(), Error> {
        let id = interface
            .network_interface_id
            .ok_or_else(|| malformed(action, "a network interface without networkInterfaceId"))?;
        for item in interface.private_ip_addresses_set.item {
            let address = item
                .private_ip_address
                .ok_or_else(|| malformed(action, "an address without privateIpAddress"))?;
            let (primary, public) = (item.primary == Some(true), item.association.public_ip);
            self.addresses.push(Private { address, interface: id.clone(), primary, public });
        }
        self.prefixes.extend(interface.prefixes.item.into_iter().filter_map(|item| item.prefix));
        Ok(())
    }
}

pub(super) fn malformed(action: &str, why: &str) -> Error {
    Error::Other(error::malformed(&format!("EC2, asked for {action},"), why))
}
