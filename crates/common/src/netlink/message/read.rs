//! Decodes datagrams, messages and attributes. No input makes it panic or loop.

use super::{ATTRIBUTE_HEADER, HEADER};

/// NLA_TYPE_MASK.
const TYPE: u16 = 0x3fff;

/// The input violates the protocol; with the position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed netlink data: {0}")]
pub struct Malformed(pub &'static str);

/// A message that was read, without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// nlmsg_type.
    pub kind: u16,
    /// NLM_F_*.
    pub flags: u16,
    /// Sequence number of the request.
    pub sequence: u32,
}

/// The messages of a datagram, each with its payload. Ends after the first that is malformed.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

/// Reads a datagram.
#[must_use]
pub fn messages(datagram: &[u8]) -> Messages<'_> {
    Messages { rest: datagram }
}

impl<'a> Messages<'a> {
    fn take(&mut self) -> Option<(Header, &'a [u8])> {
        let bytes = self.rest;
        let (length, tail) = bytes.split_first_chunk::<4>()?;
        let (kind, tail) = tail.split_first_chunk::<2>()?;
        let (flags, tail) = tail.split_first_chunk::<2>()?;
        let (sequence, _) = tail.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_ne_bytes(*length)).ok()?;
        let payload = bytes.get(HEADER..length)?;
        let header = Header {
            kind: u16::from_ne_bytes(*kind),
            flags: u16::from_ne_bytes(*flags),
            sequence: u32::from_ne_bytes(*sequence),
        };
        self.rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((header, payload))
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<(Header, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.take().ok_or_else(|| {
            self.rest = &[];
            Malformed("a message's header")
        }))
    }
}

/// A decoded attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Its raw type, with NLA_F_NESTED and NLA_F_NET_BYTEORDER.
    pub raw_kind: u16,
    /// Its payload.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The payload as exactly `N` bytes.
    ///
    /// # Errors
    /// It has another length.
    pub fn array<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.payload.try_into().map_err(|_| Malformed("an attribute's length"))
    }

    /// A number of one byte.
    ///
    /// # Errors
    /// It has another length.
    pub fn u8(&self) -> Result<u8, Malformed> {
        self.array().map(u8::from_ne_bytes)
    }

    /// A number of two bytes.
    ///
    /// # Errors
    /// It has another length.
    pub fn u16(&self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    /// A number of four bytes.
    ///
    /// # Errors
    /// It has another length.
    pub fn u32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    /// A number of four bytes in network order.
    ///
    /// # Errors
    /// It has another length.
    pub fn be32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// A text, up to its first zero byte. Invalid UTF-8 is replaced by U+FFFD, because the kernel allows any bytes in
    /// names and aliases.
    #[must_use]
    pub fn string(&self) -> String {
        let text = self.payload.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    /// The attributes in it.
    #[must_use]
    pub fn nested(&self) -> Attributes<'a> {
        attributes(self.payload)
    }
}

/// Attributes, one after the other. Ends after the first that is malformed.
#[derive(Debug, Clone)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

/// Reads attributes.
#[must_use]
pub fn attributes(bytes: &[u8]) -> Attributes<'_> {
    Attributes { rest: bytes }
}

impl<'a> Attributes<'a> {
    /// The first attribute of this type, if there is one.
    ///
    /// # Errors
    /// One before it is malformed.
    pub fn of_kind(mut self, kind: u16) -> Result<Option<Attribute<'a>>, Malformed> {
        self.find(|one| one.is_err() || one.is_ok_and(|one| one.kind == kind)).transpose()
    }

    fn take(&mut self) -> Option<Attribute<'a>> {
        let bytes = self.rest;
        let (length, tail) = bytes.split_first_chunk::<2>()?;
        let (kind, _) = tail.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_ne_bytes(*length));
        let raw_kind = u16::from_ne_bytes(*kind);
        let payload = bytes.get(ATTRIBUTE_HEADER..length)?;
        self.rest = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Attribute { kind: raw_kind & TYPE, raw_kind, payload })
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Result<Attribute<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        Some(self.take().ok_or_else(|| {
            self.rest = &[];
            Malformed("an attribute's header")
        }))
    }
}

/// Splits the fixed header of a family from the attributes behind it.
///
/// # Errors
/// When there are fewer than `N` bytes.
pub fn split<const N: usize>(payload: &[u8]) -> Result<(&[u8; N], Attributes<'_>), Malformed> {
    let (fixed, rest) = payload.split_first_chunk::<N>().ok_or(Malformed("a family's header"))?;
    Ok((fixed, attributes(rest)))
}
