//! EC2's responses about Elastic IPs and network interfaces.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

use crate::aws::error::Error;
use crate::aws::xml::Element;

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

impl Address {
    /// One item of `addressesSet`.
    pub(super) fn read(action: &'static str, item: &Element) -> Result<Self, Error> {
        let allocation = item.text_of("allocationId").ok_or_else(|| malformed(action, "no allocationId"))?;
        let association = match item.text_of("associationId") {
            None => None,
            Some(id) => Some(Association {
                id: id.to_owned(),
                interface: item.text_of("networkInterfaceId").map(Into::into),
                instance: item.text_of("instanceId").map(Into::into),
                private: parse(action, item, "privateIpAddress")?,
            }),
        };
        Ok(Self { allocation: allocation.to_owned(), association })
    }
}

impl Taken {
    /// Adds what one item of `networkInterfaceSet` has.
    pub(super) fn read(&mut self, action: &'static str, interface: &Element) -> Result<(), Error> {
        let id = interface
            .text_of("networkInterfaceId")
            .ok_or_else(|| malformed(action, "a network interface without networkInterfaceId"))?;
        for item in interface.items("privateIpAddressesSet") {
            let address = parse(action, item, "privateIpAddress")?
                .ok_or_else(|| malformed(action, "an address without privateIpAddress"))?;
            let public = match item.child("association") {
                Some(association) => parse(action, association, "publicIp")?,
                None => None,
            };
            let primary = item.text_of("primary") == Some("true");
            self.addresses.push(Private { address, interface: id.to_owned(), primary, public });
        }
        for item in interface.items("ipv4PrefixSet") {
            self.prefixes.extend(parse::<Ipv4Net>(action, item, "ipv4Prefix")?);
        }
        Ok(())
    }
}

fn parse<T: std::str::FromStr>(action: &'static str, item: &Element, name: &str) -> Result<Option<T>, Error> {
    item.text_of(name)
        .map(|text| text.parse().map_err(|_| malformed(action, format!("{name} is {text:?}"))))
        .transpose()
}

pub(super) fn malformed(action: &str, why: impl Into<String>) -> Error {
    Error::Malformed { peer: format!("EC2, asked for {action},"), why: why.into() }
}
