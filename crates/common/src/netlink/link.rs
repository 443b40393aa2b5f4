//! Links (RTM_NEWLINK and its kin; linux/if_link.h).

use std::fmt;

use super::message::{Attribute, FLAG_CREATE, FLAG_EXCLUSIVE, Malformed, Message, split};

mod kind;

pub use kind::{IpvlanMode, Kind, MacvlanMode, name_of};
use kind::{ipvlan_mode, macvlan_mode};

/// An existing link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Its index in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// `macvlan`, `veth`, …; empty for hardware and loopback.
    pub kind: String,
    /// The mode of a macvlan or ipvlan.
    pub mode: Option<Kind>,
    /// Hardware address, where it has one of six bytes.
    pub mac: Option<[u8; 6]>,
    /// Bytes.
    pub mtu: u32,
    /// IFF_UP.
    pub up: bool,
    /// IFF_LOWER_UP: its lower layer has a signal. Only of a link that is up.
    pub carrier: bool,
    /// IFF_LOOPBACK.
    pub loopback: bool,
    /// IFLA_LINK: its master (or peer), an index in the namespace where that one is.
    pub parent: Option<u32>,
}

/// A link to create in another namespace, on a master in the socket's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLink {
    /// Its name there.
    pub name: String,
    /// Index of the master.
    pub master: u32,
    /// Its kind.
    pub kind: Kind,
    /// Bytes; none: the master's.
    pub mtu: Option<u32>,
    /// Hardware address; none: the kernel's choice (macvlan), the master's (ipvlan).
    pub mac: Option<[u8; 6]>,
}

const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LINK: u16 = 5;
const INFO: u16 = 18;
const SPECIFIC: u16 = 26;
const NAMESPACE: u16 = 28;
const ALTERNATIVE_NAME: u16 = 53;
const FILTER: u16 = 29;
/// IFLA_INFO_KIND, IFLA_INFO_DATA.
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
/// IFLA_MACVLAN_MODE (32 bits) and IFLA_IPVLAN_MODE (16 bits).
const MODE: u16 = 1;
/// RTEXT_FILTER_SKIP_STATS: omits counters, which are most of a reply.
const SKIP_COUNTERS: u32 = 1 << 3;
/// AF_INET, as the type of an attribute.
const INET: u16 = 2;
const UP: u32 = libc::IFF_UP.cast_unsigned();
const LOOPBACK: u32 = libc::IFF_LOOPBACK.cast_unsigned();
/// IFF_LOWER_UP.
const LOWER_UP: u32 = 1 << 16;

/// struct ifinfomsg.
fn fixed(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    let numbers = [index, flags, change].map(u32::to_ne_bytes);
    for (place, byte) in fixed.iter_mut().skip(4).zip(numbers.as_flattened()) {
        *place = *byte;
    }
    fixed
}

impl Link {
    /// Reads the payload of an RTM_NEWLINK.
    ///
    /// # Errors
    /// When it is malformed, or has no name.
    pub fn decode(payload: &[u8]) -> Result<Self, Malformed> {
        let (fixed, attributes) = split::<16>(payload)?;
        let [_, _, _, _, i0, i1, i2, i3, f0, f1, f2, f3, ..] = *fixed;
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let mut link = Self {
            index: u32::from_ne_bytes([i0, i1, i2, i3]),
            name: String::new(),
            kind: String::new(),
            mode: None,
            mac: None,
            mtu: 0,
            up: flags & UP != 0,
            carrier: flags & LOWER_UP != 0,
            loopback: flags & LOOPBACK != 0,
            parent: None,
        };
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                ADDRESS => link.mac = attribute.array().ok(),
                NAME => link.name = attribute.string(),
                MTU => link.mtu = attribute.u32()?,
                LINK => link.parent = Some(attribute.u32()?).filter(|index| *index != 0),
                INFO => (link.kind, link.mode) = info(&attribute)?,
                _ => {}
            }
        }
        if link.name.is_empty() { Err(Malformed("a link without a name")) } else { Ok(link) }
    }

    /// Requests all links.
    #[must_use]
    pub fn all() -> Message {
        let mut message = Message::new(libc::RTM_GETLINK, 0, &fixed(0, 0, 0));
        message.u32(FILTER, SKIP_COUNTERS);
        message
    }

    /// Requests the link `name`.
    #[must_use]
    pub fn by_name(name: &str) -> Message {
        let mut message = Self::all();
        // A name longer than IFNAMSIZ - 1 can only be an alternative name.
        message.string(if name.len() <= 15 { NAME } else { ALTERNATIVE_NAME }, name);
        message
    }

    /// Sets the link with this index up or down.
    #[must_use]
    pub fn set_up(index: u32, up: bool) -> Message {
        Message::new(libc::RTM_SETLINK, 0, &fixed(index, if up { UP } else { 0 }, UP))
    }

    /// The number of an IPv4 setting (linux/ip.h, IPV4_DEVCONF_*) without side effects: writing its sysctl equals
    /// [`Self::ipv4_setting`].
    #[must_use]
    pub fn ipv4_setting_named(sysctl: &str) -> Option<u16> {
        let settings = [("arp_announce", 18), ("arp_ignore", 19), ("arp_notify", 22)];
        settings.into_iter().find(|(name, _)| *name == sysctl).map(|(_, number)| number)
    }

    /// Sets an IPv4 setting of the link with this index, as its sysctl would, without opening a file.
    #[must_use]
    pub fn ipv4_setting(index: u32, setting: u16, value: u32) -> Message {
        let mut message = Message::new(libc::RTM_SETLINK, 0, &fixed(index, 0, 0));
        // IFLA_AF_SPEC, AF_INET, IFLA_INET_CONF.
        message.nest(SPECIFIC, |families| {
            families.nest(INET, |inet| {
                inet.nest(1, |settings| {
                    settings.u32(setting, value);
                });
            });
        });
        message
    }

    /// Requests the link with this index.
    #[must_use]
    pub fn by_index(index: u32) -> Message {
        let mut message = request(libc::RTM_GETLINK, 0, index);
        message.u32(FILTER, SKIP_COUNTERS);
        message
    }

    /// Sets the MTU of the link with this index, in bytes.
    #[must_use]
    pub fn set_mtu(index: u32, mtu: u32) -> Message {
        let mut message = request(libc::RTM_SETLINK, 0, index);
        message.u32(MTU, mtu);
        message
    }

    /// Renames the link with this index.
    #[must_use]
    pub fn rename(index: u32, name: &str) -> Message {
        let mut message = Message::new(libc::RTM_SETLINK, 0, &fixed(index, 0, 0));
        message.string(NAME, name);
        message
    }

    /// Deletes the link of this index.
    #[must_use]
    pub fn delete(index: u32) -> Message {
        Message::new(libc::RTM_DELLINK, 0, &fixed(index, 0, 0))
    }

    /// Tests whether the kernel has links of this kind (`macvlan`), without creating one: EOPNOTSUPP if it has not, any other refusal (the
    /// master is missing) if it has.
    #[must_use]
    pub fn probe(kind: &str) -> Message {
        let mut message = Message::new(libc::RTM_NEWLINK, FLAG_CREATE | FLAG_EXCLUSIVE, &fixed(0, 0, 0));
        message.nest(INFO, |info| {
            info.string(INFO_KIND, kind);
        });
        message
    }
}

impl NewLink {
    /// Creates the link `name` in the namespace of the descriptor `namespace`.
    #[must_use]
    pub fn create(&self, name: &str, namespace: i32) -> Message {
        let mut message = Message::new(libc::RTM_NEWLINK, FLAG_CREATE | FLAG_EXCLUSIVE, &fixed(0, 0, 0));
        message.string(NAME, name).u32(LINK, self.master).attribute(NAMESPACE, &namespace.to_ne_bytes());
        if let Some(mtu) = self.mtu {
            message.u32(MTU, mtu);
        }
        if let Some(mac) = self.mac {
            message.attribute(ADDRESS, &mac);
        }
        of_kind(&mut message, name_of(&self.kind), |data| {
            match self.kind {
                Kind::Macvlan(mode) => data.u32(MODE, mode as u32),
                Kind::Ipvlan(mode) => data.u16(MODE, mode as u16),
            };
        });
        message
    }
}

/// A hardware address, as ip-link(8) writes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// A request about the link with this index, or about a new one (0).
pub(super) fn request(kind: u16, flags: u16, index: u32) -> Message {
    Message::new(kind, flags, &fixed(index, 0, 0))
}

/// Adds the name, hardware address and MTU of a new link.
pub(super) fn named(message: &mut Message, name: &str, mac: [u8; 6], mtu: u32) {
    message.string(NAME, name).attribute(ADDRESS, &mac).u32(MTU, mtu);
}

/// Adds IFLA_LINKINFO: a kind, and its attributes.
pub(super) fn of_kind(message: &mut Message, kind: &str, fill: impl FnOnce(&mut Message)) {
    message.nest(INFO, |info| {
        info.string(INFO_KIND, kind).nest(INFO_DATA, fill);
    });
}

/// IFLA_INFO_DATA, if `attribute` is IFLA_LINKINFO.
pub(super) fn info_data<'a>(attribute: &Attribute<'a>) -> Result<Option<Attribute<'a>>, Malformed> {
    if attribute.kind != INFO {
        return Ok(None);
    }
    attribute.nested().of_kind(INFO_DATA)
}

/// IFLA_LINKINFO: the kind, and the mode of a macvlan or ipvlan.
fn info(attribute: &Attribute<'_>) -> Result<(String, Option<Kind>), Malformed> {
    let (mut kind, mut data) = (String::new(), None);
    for part in attribute.nested() {
        let part = part?;
        match part.kind {
            INFO_KIND => kind = part.string(),
            INFO_DATA => data = Some(part),
            _ => {}
        }
    }
    let mut mode = None;
    if matches!(kind.as_str(), "macvlan" | "ipvlan") {
        for part in data.iter().flat_map(Attribute::nested) {
            let part = part?;
            match (kind.as_str(), part.kind) {
                ("macvlan", MODE) => mode = macvlan_mode(part.u32()?).map(Kind::Macvlan),
                ("ipvlan", MODE) => mode = ipvlan_mode(part.u16()?).map(Kind::Ipvlan),
                _ => {}
            }
        }
    }
    Ok((kind, mode))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::kind::{IPVLAN_MODES, MACVLAN_MODES};
    use super::*;

    fn kinds() -> impl Strategy<Value = Kind> {
        prop_oneof![
            proptest::sample::select(MACVLAN_MODES.to_vec()).prop_map(Kind::Macvlan),
            proptest::sample::select(IPVLAN_MODES.to_vec()).prop_map(Kind::Ipvlan),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
            let _ = Link::decode(&bytes);
        }

        #[test]
        fn a_request_decodes_like_an_existing_link(
            kind in kinds(),
            name in "[a-z]{1,15}",
            master in 1_u32..,
            mtu in proptest::option::of(68_u32..65_536),
            mac: Option<[u8; 6]>,
        ) {
            let new = NewLink { name, master, kind, mtu, mac };
            let read = Link::decode(new.create(&new.name, 7).body()).unwrap();
            prop_assert_eq!(&read.name, &new.name);
            prop_assert_eq!(read.kind, name_of(&new.kind));
            prop_assert_eq!(read.mode, Some(new.kind));
            prop_assert_eq!((read.parent, read.mac, read.mtu), (Some(master), mac, mtu.unwrap_or(0)));
        }
    }
}
