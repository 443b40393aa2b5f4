//! Messages and their attributes (linux/netlink.h): encoding, and strict decoding that never panics.
//!
//! Numbers are in host byte order, unless a protocol requires network order (nf_tables, addresses).

mod read;
mod refusal;
#[cfg(test)]
mod tests;

pub use read::{Attribute, Attributes, Header, Malformed, Messages, attributes, messages, split};
pub use refusal::{Refusal, acknowledgement};

/// NLA_F_NESTED.
pub const NESTED: u16 = 0x8000;
/// sizeof(struct nlmsghdr).
const HEADER: usize = 16;
/// sizeof(struct nlattr).
const ATTRIBUTE_HEADER: usize = 4;

/// A request. The socket sets its sequence number.
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

    /// Whether NLM_F_ACK is set: the kernel replies also on success.
    #[must_use]
    pub fn requests_ack(&self) -> bool {
        self.flags & FLAG_ACK != 0
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

    /// The payload after the message's header.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Adds an attribute. `kind` may have [`NESTED`].
    pub fn attribute(&mut self, kind: u16, payload: &[u8]) -> &mut Self {
        let length = ATTRIBUTE_HEADER.saturating_add(payload.len());
        // The field has 16 bits; Socket refuses to send a longer attribute.
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

    /// An attribute of four bytes in network order, as nf_tables has them.
    pub fn be32(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_be_bytes())
    }

    /// A text, with the zero byte at its end.
    pub fn string(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut payload = Vec::with_capacity(value.len().saturating_add(1));
        payload.extend_from_slice(value.as_bytes());
        payload.push(0);
        self.attribute(kind, &payload)
    }

    /// A nested attribute, filled by `fill`.
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

    /// Appends whole attributes, or a fixed header, and pads them.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.body.extend_from_slice(bytes);
        self.body.resize(self.body.len().next_multiple_of(4), 0);
    }
}

/// NLM_F_REQUEST.
pub const FLAG_REQUEST: u16 = 0x1;
/// NLM_F_ACK.
pub const FLAG_ACK: u16 = 0x4;
/// NLM_F_ECHO: the kernel also sends the object that the request has made, as a dump would show it.
pub const FLAG_ECHO: u16 = 0x8;
/// NLM_F_DUMP_INTR: the objects changed during the dump.
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
pub const FLAG_ACK_TLVS: u16 = 0x200;
