//! Messages and their attributes (linux/netlink.h): writing, and strict reading that no byte can make panic.
//!
//! Numbers are in the machine's byte order, but where a protocol says otherwise (nf_tables, addresses).

use std::fmt;

/// NLA_F_NESTED.
pub const NESTED: u16 = 0x8000;
/// NLA_TYPE_MASK.
const TYPE: u16 = 0x3fff;
/// sizeof(struct nlmsghdr).
const HEADER: usize = 16;
/// sizeof(struct nlattr).
const ATTRIBUTE_HEADER: usize = 4;

/// A request that is being written. Its sequence number is the socket's to give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
    too_long: bool,
}

impl Message {
    /// A message of type `kind`, flags `flags` beyond NLM_F_REQUEST, and the fixed header of its family.
    #[must_use]
    pub fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        let mut message =
            Self { kind, flags: flags | FLAG_REQUEST, body: Vec::with_capacity(128), too_long: false };
        message.append(fixed);
        message
    }

    /// NLM_F_ACK: an answer is wanted, even if nothing is refused.
    #[must_use]
    pub fn wants_answer(&self) -> bool {
        self.flags & FLAG_ACK != 0
    }

    /// NLM_F_*.
    #[must_use]
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// Adds flags.
    #[must_use]
    pub fn with_flags(mut self, flags: u16) -> Self {
        self.flags |= flags;
        self
    }

    /// nlmsg_type.
    #[must_use]
    pub fn kind(&self) -> u16 {
        self.kind
    }

    /// What follows the message's header.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// An attribute. `kind` may bear [`NESTED`].
    pub fn attribute(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        let length = ATTRIBUTE_HEADER.saturating_add(payload.len());
        // The field has 16 bits; Socket refuses to send what did not fit.
        self.too_long |= u16::try_from(length).is_err();
        self.body.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
        self.body.extend_from_slice(&kind.to_ne_bytes());
        self.append(payload);
        self
    }

    /// An attribute of one byte.
    pub fn u8(&mut self, kind: u16, value: u8) -> &mut Self {
        self.attribute(kind, &[value])
    }

    /// An attribute of two bytes.
    pub fn u16(&mut self, kind: u16, value: u16) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// An attribute of four bytes.
    pub fn u32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// An attribute of four bytes in network order, as nf_tables wants.
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// An attribute of eight bytes in network order, as nf_tables wants.
    pub fn be64(&mut self, kind: u16, value: u64) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// A text, with the zero byte at its end.
    pub fn string(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut payload = Vec::with_capacity(value.len().saturating_add(1));
        payload.extend_from_slice(value.as_bytes());
        payload.push(0);
        self.attribute(kind, &payload)
    }

    /// An attribute that holds those which `fill` writes.
    pub fn nest(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.body.len();
        self.attribute(kind | NESTED, &[]);
        fill(self);
        let length = self.body.len().saturating_sub(start);
        self.too_long |= u16::try_from(length).is_err();
        let length = u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes();
        if let Some(field) = self.body.get_mut(start..).and_then(|tail| tail.first_chunk_mut::<2>()) {
            *field = length;
        }
        self
    }

    /// Appends the whole message to `out`. False, and nothing appended, when an attribute is longer than 65,535 bytes.
    #[must_use]
    pub fn write(&self, sequence: u32, out: &mut Vec<u8>) -> bool {
        let Ok(length) = u32::try_from(HEADER.saturating_add(self.body.len())) else { return false };
        if self.too_long {
            return false;
        }
        out.extend_from_slice(&length.to_ne_bytes());
        out.extend_from_slice(&self.kind.to_ne_bytes());
        out.extend_from_slice(&self.flags.to_ne_bytes());
        out.extend_from_slice(&sequence.to_ne_bytes());
        // The port: the kernel fills it in.
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.body);
        true
    }

    fn append(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }
}

/// NLM_F_REQUEST.
pub const FLAG_REQUEST: u16 = 0x1;
/// NLM_F_MULTI: one of several, until NLMSG_DONE.
pub const FLAG_MULTI: u16 = 0x2;
/// NLM_F_ACK.
pub const FLAG_ACK: u16 = 0x4;
/// NLM_F_DUMP_INTR: what is dumped changed meanwhile.
pub const FLAG_INTERRUPTED: u16 = 0x10;
/// NLM_F_DUMP.
pub const FLAG_DUMP: u16 = 0x300;
/// NLM_F_REPLACE: of a NEW request.
pub const FLAG_REPLACE: u16 = 0x100;
/// NLM_F_EXCL: of a NEW request.
pub const FLAG_EXCLUSIVE: u16 = 0x200;
/// NLM_F_CREATE: of a NEW request.
pub const FLAG_CREATE: u16 = 0x400;
/// NLM_F_APPEND: of a NEW request.
pub const FLAG_APPEND: u16 = 0x800;
/// NLM_F_CAPPED: a refusal without the request's echo.
pub const FLAG_CAPPED: u16 = 0x100;
/// NLM_F_ACK_TLVS: a refusal with attributes.
pub const FLAG_ANSWER_ATTRIBUTES: u16 = 0x200;

/// What was read is not what the protocol says. Says where.
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
    /// Of the request that it answers.
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

/// An attribute that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attribute<'a> {
    /// Its type, without flags.
    pub kind: u16,
    /// Its type as it came, with [`NESTED`] and NLA_F_NET_BYTEORDER.
    pub raw_kind: u16,
    /// Its payload.
    pub payload: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The payload as exactly `N` bytes.
    ///
    /// # Errors
    /// When it has another length.
    pub fn array<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.payload.try_into().map_err(|_| Malformed("an attribute's length"))
    }

    /// A number of one byte.
    ///
    /// # Errors
    /// When it has another length.
    pub fn u8(&self) -> Result<u8, Malformed> {
        self.array().map(u8::from_ne_bytes)
    }

    /// A number of two bytes.
    ///
    /// # Errors
    /// When it has another length.
    pub fn u16(&self) -> Result<u16, Malformed> {
        self.array().map(u16::from_ne_bytes)
    }

    /// A number of four bytes.
    ///
    /// # Errors
    /// When it has another length.
    pub fn u32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_ne_bytes)
    }

    /// A number of four bytes in network order.
    ///
    /// # Errors
    /// When it has another length.
    pub fn be32(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// A number of eight bytes in network order.
    ///
    /// # Errors
    /// When it has another length.
    pub fn be64(&self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// A text, up to its first zero byte.
    ///
    /// # Errors
    /// When it is not UTF-8.
    pub fn string(&self) -> Result<String, Malformed> {
        let text = self.payload.split(|byte| *byte == 0).next().unwrap_or_default();
        std::str::from_utf8(text).map(str::to_owned).map_err(|_| Malformed("a text"))
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

/// What the kernel does not do, and why, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The error number, positive.
    pub errno: i32,
    /// NLMSGERR_ATTR_MSG, or empty.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = std::io::Error::from_raw_os_error(self.errno).to_string();
        write!(formatter, "{}", name.split(" (os error").next().unwrap_or_default())?;
        if self.text.is_empty() { Ok(()) } else { write!(formatter, ": {}", self.text) }
    }
}

/// Reads an NLMSG_ERROR (or an NLMSG_DONE, which is of the same make, without echo): none is an acknowledgement.
///
/// # Errors
/// When it is shorter than an error number. Attributes that cannot be read are left out: the number is what counts.
pub fn acknowledgement(header: Header, payload: &[u8]) -> Result<Option<Refusal>, Malformed> {
    let (number, rest) = payload.split_first_chunk::<4>().ok_or(Malformed("an acknowledgement"))?;
    let number = i32::from_ne_bytes(*number);
    if number == 0 {
        return Ok(None);
    }
    let text = extended(header, rest).and_then(|attribute| attribute.string().ok()).unwrap_or_default();
    Ok(Some(Refusal { errno: number.saturating_abs(), text }))
}

/// NLMSGERR_ATTR_MSG of an acknowledgement whose payload is `rest` after its number.
fn extended(header: Header, rest: &[u8]) -> Option<Attribute<'_>> {
    /// NLMSG_DONE.
    const DONE: u16 = 3;
    /// NLMSGERR_ATTR_MSG.
    const TEXT: u16 = 1;
    if header.flags & FLAG_ANSWER_ATTRIBUTES == 0 {
        return None;
    }
    let echo = if header.kind == DONE {
        0
    } else if header.flags & FLAG_CAPPED != 0 {
        HEADER
    } else {
        let length = rest.first_chunk::<4>().map(|length| u32::from_ne_bytes(*length))?;
        usize::try_from(length).ok()?.checked_next_multiple_of(4)?
    };
    attributes(rest.get(echo..)?).filter_map(Result::ok).find(|attribute| attribute.kind == TEXT)
}

#[cfg(test)]
mod tests;
