//! Acknowledgements, and refusals with the kernel's own text (linux/netlink.h, enum nlmsgerr_attrs).

use std::fmt;

use super::{Attribute, FLAG_ACK_TLVS, FLAG_CAPPED, HEADER, Header, Malformed, attributes};

/// A refusal, with the kernel's message.
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

/// Decodes an NLMSG_ERROR (or an NLMSG_DONE, which has the same format without echo): none for an acknowledgement.
///
/// # Errors
/// When it is shorter than an error number. Unreadable attributes are ignored.
pub fn acknowledgement(header: Header, payload: &[u8]) -> Result<Option<Refusal>, Malformed> {
    let (number, rest) = payload.split_first_chunk::<4>().ok_or(Malformed("an acknowledgement"))?;
    let number = i32::from_ne_bytes(*number);
    if number == 0 {
        return Ok(None);
    }
    let text = extended(header, rest).map(|attribute| attribute.string()).unwrap_or_default();
    Ok(Some(Refusal { errno: number.saturating_abs(), text }))
}

/// NLMSGERR_ATTR_MSG of an acknowledgement whose payload is `rest` after its number.
fn extended(header: Header, rest: &[u8]) -> Option<Attribute<'_>> {
    /// NLMSG_DONE.
    const DONE: u16 = 3;
    /// NLMSGERR_ATTR_MSG.
    const TEXT: u16 = 1;
    if header.flags & FLAG_ACK_TLVS == 0 {
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
    attributes(rest.get(echo..)?).of_kind(TEXT).ok().flatten()
}
