//! Sets, maps and verdict maps.

use std::net::Ipv4Addr;

use super::value;
use super::verdict::Verdict;
use crate::netlink::message::{Malformed, Message, NESTED, attributes};

/// A set, or a map if it has data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Set {
    /// Unique in its table.
    pub name: String,
    /// Types of the key. Several are a concatenation.
    pub key: Vec<DataType>,
    /// The data of a map; none for a set.
    pub data: Option<MapData>,
    /// Keys are ranges and not values. Of one type: bounds, as [`super::interval::bounds`] has them. Of several: [`Element::range`].
    pub interval: bool,
}

/// The data of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapData {
    /// Values of these types. Several are a concatenation.
    Values(Vec<DataType>),
    /// Verdicts.
    Verdicts,
}

/// nft(8)'s types of values, with its numbers. The kernel keeps the number of a set's type, and `nft list` reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataType {
    /// integer: four bytes in host order.
    Index = 4,
    /// ipv4_addr.
    Ipv4 = 7,
    /// ipv6_addr.
    Ipv6 = 8,
    /// inet_proto: one byte.
    Protocol = 12,
    /// inet_service: a port, two bytes in network order.
    Service = 13,
    /// mark: four bytes in host order.
    Mark = 19,
    /// icmpv6_type: one byte.
    Icmpv6Type = 29,
}

/// An element of a set or map.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    /// The key, or a bound of a range. [`concatenated`] has the format of several values.
    pub key: Vec<u8>,
    /// NFT_SET_ELEM_INTERVAL_END: the first value that is no longer in the range before it.
    pub end: bool,
    /// The last values of the ranges that begin with `key`, of a set with ranges of several types.
    pub last: Option<Vec<u8>>,
    /// The data of a map's element.
    pub data: Option<ElementData>,
}

/// The data of a map's element.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ElementData {
    /// The bytes. [`concatenated`] has the format of several values.
    Value(Vec<u8>),
    /// A verdict.
    Verdict(Verdict),
}

/// NFT_SET_INTERVAL.
const INTERVAL: u32 = 4;
/// NFT_SET_MAP.
const MAP: u32 = 8;
/// NFT_SET_CONCAT.
const CONCATENATED: u32 = 0x80;
/// NFT_DATA_VERDICT.
const VERDICT: u32 = 0xffff_ff00;
/// NFT_SET_ELEM_INTERVAL_END.
const INTERVAL_END: u32 = 1;
/// NFTA_LIST_ELEM.
const ELEMENT: u16 = 1;
/// NFTA_SET_ELEM_LIST_ELEMENTS.
const ELEMENTS: u16 = 3;
/// The most bytes of one attribute with elements. The field for its length has 16 bits.
const CHUNK: usize = 60_000;

/// Values as a concatenated key or as concatenated data: each is padded to a multiple of four bytes.
#[must_use]
pub fn concatenated(values: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16);
    for value in values {
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// The key `ipv4_addr . inet_proto . inet_service`, for example of a verdict map of services.
#[must_use]
pub fn service_key(address: Ipv4Addr, protocol: u8, port: u16) -> Vec<u8> {
    concatenated(&[&address.octets(), &[protocol], &port.to_be_bytes()])
}

/// The data `ipv4_addr . inet_service`, for example of a map of backends.
#[must_use]
pub fn backend_data(address: Ipv4Addr, port: u16) -> Vec<u8> {
    concatenated(&[&address.octets(), &port.to_be_bytes()])
}

impl DataType {
    /// Length in bytes.
    fn length(self) -> u32 {
        match self {
            Self::Index | Self::Ipv4 | Self::Mark => 4,
            Self::Ipv6 => 16,
            Self::Protocol | Self::Icmpv6Type => 1,
            Self::Service => 2,
        }
    }

    /// nft(8)'s enum byteorder: 1 is the host's, 2 is the network's.
    fn byte_order(self) -> u32 {
        match self {
            Self::Index | Self::Mark => 1,
            Self::Ipv4 | Self::Ipv6 | Self::Protocol | Self::Service | Self::Icmpv6Type => 2,
        }
    }
}

/// Number and length of a concatenation: nft(8) has six bits for each type.
fn type_of(types: &[DataType]) -> (u32, u32) {
    match types {
        [one] => (*one as u32, one.length()),
        several => several.iter().fold((0, 0), |(number, length), one| {
            (number << 6 | *one as u32, length.saturating_add(one.length().next_multiple_of(4)))
        }),
    }
}

impl Set {
    /// A set of values.
    #[must_use]
    pub fn new(name: impl Into<String>, key: &[DataType]) -> Self {
        Self { name: name.into(), key: key.to_vec(), data: None, interval: false }
    }

    /// A set of networks of one family. [`super::interval::bounds`] makes its elements.
    #[must_use]
    pub fn networks(name: impl Into<String>, ipv6: bool) -> Self {
        let key = if ipv6 { DataType::Ipv6 } else { DataType::Ipv4 };
        Self { interval: true, ..Self::new(name, &[key]) }
    }

    /// A set of several types, each with a range, whose elements are [`Element::range`]. Linux 5.6 or newer.
    #[must_use]
    pub fn ranges(name: impl Into<String>, key: &[DataType]) -> Self {
        Self { interval: true, ..Self::new(name, key) }
    }

    /// A map to values.
    #[must_use]
    pub fn map(name: impl Into<String>, key: &[DataType], data: &[DataType]) -> Self {
        Self { data: Some(MapData::Values(data.to_vec())), ..Self::new(name, key) }
    }

    /// A verdict map.
    #[must_use]
    pub fn verdict_map(name: impl Into<String>, key: &[DataType]) -> Self {
        Self { data: Some(MapData::Verdicts), ..Self::new(name, key) }
    }

    /// Writes the attributes of NFT_MSG_NEWSET behind the table; `id` is unique in the batch.
    pub fn write(&self, message: &mut Message, id: u32) {
        let (key, length) = type_of(&self.key);
        let ranges = self.interval && self.key.len() > 1;
        let mut flags = if self.interval { INTERVAL } else { 0 };
        flags |= if ranges { CONCATENATED } else { 0 };
        flags |= if self.data.is_some() { MAP } else { 0 };
        // NFTA_SET_NAME, _FLAGS, _KEY_TYPE, _KEY_LEN, _DATA_TYPE, _DATA_LEN, _DESC, _ID, _USERDATA.
        message.string(2, &self.name).be32(3, flags).be32(4, key).be32(5, length);
        match &self.data {
            Some(MapData::Verdicts) => {
                message.be32(6, VERDICT);
            }
            Some(MapData::Values(types)) => {
                let (number, length) = type_of(types);
                message.be32(6, number).be32(7, length);
            }
            None => {}
        }
        if ranges {
            // NFTA_SET_DESC_CONCAT, NFTA_LIST_ELEM, NFTA_SET_FIELD_LEN: the kernel needs the place of each range.
            message.nest(9, |message| {
                message.nest(2, |message| {
                    for field in &self.key {
                        message.nest(ELEMENT, |message| {
                            message.be32(1, field.length());
                        });
                    }
                });
            });
        }
        message.be32(10, id).attribute(13, &self.userdata());
    }

    /// The user data that `nft list` reads: NFTNL_UDATA_SET_KEYBYTEORDER, _DATABYTEORDER.
    fn userdata(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(16);
        let mut order = |kind: u8, types: &[DataType]| {
            if let [one] = types {
                bytes.extend_from_slice(&[kind, 4]);
                bytes.extend_from_slice(&one.byte_order().to_ne_bytes());
            }
        };
        order(0, &self.key);
        if let Some(MapData::Values(types)) = &self.data {
            order(1, types);
        }
        bytes
    }
}

impl Element {
    /// An element of a set.
    #[must_use]
    pub fn new(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into(), end: false, last: None, data: None }
    }

    /// An element of [`Set::ranges`]: each value is between that of `first` and that of `last`, which both have the format of
    /// [`concatenated`]. Elements must not overlap.
    #[must_use]
    pub fn range(first: impl Into<Vec<u8>>, last: impl Into<Vec<u8>>) -> Self {
        Self { last: Some(last.into()), ..Self::new(first) }
    }

    /// An element of a map.
    #[must_use]
    pub fn with_value(key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) -> Self {
        Self { data: Some(ElementData::Value(value.into())), ..Self::new(key) }
    }

    /// An element of a verdict map.
    #[must_use]
    pub fn with_verdict(key: impl Into<Vec<u8>>, verdict: Verdict) -> Self {
        Self { data: Some(ElementData::Verdict(verdict)), ..Self::new(key) }
    }

    /// Writes NFTA_LIST_ELEM.
    fn write(&self, message: &mut Message) {
        // NFTA_SET_ELEM_KEY, _KEY_END, _DATA, _FLAGS.
        message.nest(ELEMENT, |message| {
            value(message, 1, &self.key);
            if let Some(last) = &self.last {
                value(message, 10, last);
            }
            match &self.data {
                Some(ElementData::Value(bytes)) => {
                    value(message, 2, bytes);
                }
                Some(ElementData::Verdict(verdict)) => {
                    message.nest(2, |message| verdict.write(message));
                }
                None => {}
            }
            if self.end {
                message.be32(3, INTERVAL_END);
            }
        });
    }

    /// Reads the attributes in NFTA_LIST_ELEM.
    ///
    /// # Errors
    /// They are malformed, or have an unknown verdict.
    pub(super) fn read(raw: &[u8]) -> Result<Self, Malformed> {
        /// NFTA_DATA_VALUE.
        const VALUE: u16 = 1;
        let mut read = Self::new([]);
        for attribute in attributes(raw) {
            let attribute = attribute?;
            let first = || attribute.nested().next().ok_or(Malformed("an element of a set"));
            match attribute.kind {
                1 => read.key = first()??.payload.to_vec(),
                2 => {
                    let data = first()??;
                    read.data = Some(match data.kind {
                        VALUE => ElementData::Value(data.payload.to_vec()),
                        _ => ElementData::Verdict(Verdict::read(&data)?),
                    });
                }
                3 => read.end = attribute.be32()? & INTERVAL_END != 0,
                10 => read.last = Some(first()??.payload.to_vec()),
                _ => {}
            }
        }
        Ok(read)
    }
}

/// NFTA_SET_ELEM_LIST_ELEMENTS with all of `elements`, as many as needed. `add` adds each to a message.
pub(super) fn write_elements(elements: &[Element], mut add: impl FnMut(u16, &[u8])) {
    let mut chunk = Message::new(0, 0, &[]);
    for element in elements {
        let mut one = Message::new(0, 0, &[]);
        element.write(&mut one);
        if chunk.body().len().saturating_add(one.body().len()) > CHUNK {
            add(ELEMENTS | NESTED, chunk.body());
            chunk = Message::new(0, 0, &[]);
        }
        chunk.append(one.body());
    }
    if !chunk.body().is_empty() {
        add(ELEMENTS | NESTED, chunk.body());
    }
}

#[cfg(test)]
mod tests;
