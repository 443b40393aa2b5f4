//! Policy rules (RTM_NEWRULE and its kin; linux/fib_rules.h).

use std::fmt;

use ipnet::IpNet;

use super::address::{self, number};
use super::message::{FLAG_CREATE, FLAG_EXCLUSIVE, Malformed, Message, split};

/// A rule that selects a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// True for IPv6, false for IPv4.
    pub ipv6: bool,
    /// FRA_PRIORITY.
    pub priority: u32,
    /// FRA_FWMARK and FRA_FWMASK.
    pub mark: Option<(u32, u32)>,
    /// FRA_SRC.
    pub from: Option<IpNet>,
    /// FRA_TABLE.
    pub table: u32,
    /// FRA_PROTOCOL.
    pub protocol: u8,
}

const SOURCE: u16 = 2;
const PRIORITY: u16 = 6;
const MARK: u16 = 10;
const SUPPRESS_GROUP: u16 = 13;
const SUPPRESS_PREFIX: u16 = 14;
const TABLE: u16 = 15;
const MASK: u16 = 16;
const PADDING: u16 = 18;
const PROTOCOL: u16 = 21;
/// FR_ACT_TO_TBL.
const TO_TABLE: u8 = 1;
/// FIB_RULE_INVERT.
const INVERTED: u32 = 2;
/// The kernel's value if nothing is suppressed.
const NOTHING: u32 = u32::MAX;

impl Rule {
    /// The IPv4 rule of `protocol` (RTPROT_*): packets whose mark equals `mark` in the bits of `mask` use `table`.
    #[must_use]
    pub fn fwmark(protocol: u8, priority: u32, (mark, mask): (u32, u32), table: u32) -> Self {
        Self { ipv6: false, priority, mark: Some((mark, mask)), from: None, table, protocol }
    }

    /// Reads the payload of an RTM_NEWRULE: none for a rule with a condition or action that this type does not have.
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let (fixed, attributes) = split::<12>(payload)?;
        let [family, to, from, tos, table, _, _, action, f0, f1, f2, f3] = *fixed;
        let ipv6 = family == number(libc::AF_INET6);
        let inverted = u32::from_ne_bytes([f0, f1, f2, f3]) & INVERTED != 0;
        let known = ipv6 || family == number(libc::AF_INET);
        if !known || to != 0 || tos != 0 || action != TO_TABLE || inverted {
            return Ok(None);
        }
        let mut rule = Self { ipv6, priority: 0, mark: None, from: None, table: table.into(), protocol: 0 };
        let mut mask = u32::MAX;
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                PRIORITY => rule.priority = attribute.u32()?,
                MARK => rule.mark = Some((attribute.u32()?, 0)),
                MASK => mask = attribute.u32()?,
                SOURCE => rule.from = Some(address::net(address::read_of(family, &attribute)?, from)?),
                TABLE => rule.table = attribute.u32()?,
                PROTOCOL => rule.protocol = attribute.u8()?,
                SUPPRESS_GROUP | SUPPRESS_PREFIX if attribute.u32()? == NOTHING => {}
                PADDING => {}
                _ => return Ok(None),
            }
        }
        rule.mark = match (rule.mark, mask) {
            (Some((mark, _)), mask) => Some((mark, mask)),
            // Mark 0 is omitted; only its mask is written.
            (None, u32::MAX) => None,
            (None, mask) => Some((0, mask)),
        };
        Ok(Some(rule))
    }

    /// Requests all rules of all families.
    #[must_use]
    pub fn all() -> Message {
        Message::new(libc::RTM_GETRULE, 0, &[0; 12])
    }

    /// Adds it. EEXIST if there is an equal one.
    #[must_use]
    pub fn add(&self) -> Message {
        self.about(libc::RTM_NEWRULE, FLAG_CREATE | FLAG_EXCLUSIVE)
    }

    /// Deletes it. ENOENT if there is none.
    #[must_use]
    pub fn delete(&self) -> Message {
        self.about(libc::RTM_DELRULE, 0)
    }

    fn about(&self, kind: u16, flags: u16) -> Message {
        let family = number(if self.ipv6 { libc::AF_INET6 } else { libc::AF_INET });
        let from = self.from.map_or(0, |net| net.prefix_len());
        // RT_TABLE_UNSPEC: the attribute has the table.
        let fixed = [family, 0, from, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0];
        let mut message = Message::new(kind, flags, &fixed);
        message.u32(PRIORITY, self.priority).u32(TABLE, self.table).u8(PROTOCOL, self.protocol);
        if let Some((mark, mask)) = self.mark {
            message.u32(MARK, mark).u32(MASK, mask);
        }
        if let Some(from) = self.from {
            address::write(&mut message, SOURCE, from.network());
        }
        message
    }
}

/// As ip-rule(8) writes it.
impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: from ", self.priority)?;
        match self.from {
            Some(from) => write!(formatter, "{from}")?,
            None => formatter.write_str("all")?,
        }
        if let Some((mark, mask)) = self.mark {
            write!(formatter, " fwmark {mark:#x}/{mask:#x}")?;
        }
        write!(formatter, " lookup {}{}", self.table, if self.ipv6 { " (IPv6)" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;

    fn rules() -> impl Strategy<Value = Rule> {
        let from = (any::<[u8; 16]>(), 0_u8..=32);
        let marks = proptest::option::of((any::<u32>(), 0..u32::MAX));
        (any::<bool>(), any::<u32>(), marks, proptest::option::of(from), any::<u32>(), any::<u8>()).prop_map(
            |(ipv6, priority, mark, from, table, protocol)| {
                let from = from.map(|(bytes, prefix)| {
                    let [a, b, c, d, ..] = bytes;
                    let address = if ipv6 { IpAddr::from(bytes) } else { IpAddr::from([a, b, c, d]) };
                    IpNet::new(address, prefix).unwrap().trunc()
                });
                Rule { ipv6, priority, mark, from, table, protocol }
            },
        )
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = Rule::decode(&bytes);
            let header = [2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
            let _ = Rule::decode(&[header.as_slice(), &bytes].concat());
        }

        #[test]
        fn a_request_decodes_like_an_existing_rule(rule in rules()) {
            prop_assert_eq!(Rule::decode(rule.add().body()), Ok(Some(rule.clone())));
            prop_assert_eq!(Rule::decode(rule.delete().body()), Ok(Some(rule)));
        }
    }

    #[test]
    fn rules_with_other_conditions_are_ignored() {
        let mut message = Message::new(0, 0, &[2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0]);
        assert!(Rule::decode(message.body()).unwrap().is_some());
        message.string(3, "eth0");
        assert_eq!(Rule::decode(message.body()), Ok(None));
        for (place, value) in [(7, 6), (8, 2), (1, 24), (3, 4), (0, 128)] {
            let mut fixed = [2, 0, 0, 0, 254, 0, 0, 1, 0, 0, 0, 0];
            fixed[place] = value;
            assert_eq!(Rule::decode(&fixed), Ok(None), "byte {place} is {value}");
        }
    }
}
