//! Forwarding and reverse path filters of all devices at once (RTM_NEWNETCONF; linux/netconf.h): the values of
//! the files below `/proc/sys/net/*/conf`.

use super::address::number;
use super::message::{Malformed, Message, split};

/// The scope of settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// `conf/all`.
    All,
    /// `conf/default`.
    Default,
    /// One link.
    Link(u32),
}

/// The settings of one scope in one family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Netconf {
    /// The family.
    pub ipv6: bool,
    /// The scope.
    pub scope: Scope,
    /// NETCONFA_FORWARDING.
    pub forwarding: Option<i32>,
    /// NETCONFA_RP_FILTER, of IPv4 only.
    pub rp_filter: Option<i32>,
}

const INDEX: u16 = 1;
const FORWARDING: u16 = 2;
const RP_FILTER: u16 = 3;
/// NETCONFA_IFINDEX_ALL and NETCONFA_IFINDEX_DEFAULT.
const ALL: i32 = -1;
const DEFAULT: i32 = -2;

impl Netconf {
    /// Reads the payload of an RTM_NEWNETCONF: none for families other than IPv4 and IPv6.
    ///
    /// # Errors
    /// It is malformed, or has no scope.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let ([family, ..], attributes) = split::<4>(payload)?;
        let ipv6 = *family == number(libc::AF_INET6);
        if !ipv6 && *family != number(libc::AF_INET) {
            return Ok(None);
        }
        let (mut scope, mut forwarding, mut rp_filter) = (None, None, None);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                INDEX => scope = Some(attribute.u32()?.cast_signed()),
                FORWARDING => forwarding = Some(attribute.u32()?.cast_signed()),
                RP_FILTER => rp_filter = Some(attribute.u32()?.cast_signed()),
                _ => {}
            }
        }
        let scope = match scope.ok_or(Malformed("settings of no device"))? {
            ALL => Scope::All,
            DEFAULT => Scope::Default,
            index => Scope::Link(index.cast_unsigned()),
        };
        // IPv6 has no reverse path filter, and writes none.
        Ok(Some(Self { ipv6, scope, forwarding, rp_filter: rp_filter.filter(|_| !ipv6) }))
    }

    /// Requests those of all scopes in all families.
    #[must_use]
    pub fn all() -> Message {
        Message::new(libc::RTM_GETNETCONF, 0, &[0; 4])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = Netconf::decode(&bytes);
            let _ = Netconf::decode(&[&[2, 0, 0, 0], bytes.as_slice()].concat());
        }
    }
}
