//! IPv4 neighbours, and forwarding entries (FDB) of VXLAN links (RTM_NEWNEIGH and its kin; linux/neighbour.h).

use std::fmt;
use std::net::Ipv4Addr;

use super::address::number;
use super::link::Mac;
use super::message::{FLAG_CREATE, FLAG_REPLACE, Malformed, Message, split};

/// An IPv4 neighbour: the hardware address of an IP address on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Neighbour {
    /// Index of its link.
    pub link: u32,
    /// NDA_DST: its address.
    pub address: Ipv4Addr,
    /// NDA_LLADDR: its hardware address. None: it is not resolved.
    pub mac: Option<[u8; 6]>,
    /// NUD_PERMANENT: the kernel neither probes nor removes it.
    pub permanent: bool,
}

/// A forwarding entry of a VXLAN link: frames to a hardware address are sent to a remote VTEP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ForwardingEntry {
    /// Index of the VXLAN link.
    pub link: u32,
    /// NDA_LLADDR: the destination of the frames. All zero: frames without an entry of their own.
    pub mac: [u8; 6],
    /// NDA_DST: the VTEP. None: an entry of a kind that this type cannot represent, for example an IPv6 VTEP.
    pub remote: Option<Ipv4Addr>,
    /// NUD_PERMANENT, and not NTF_EXT_LEARNED: it was added by an administrator.
    pub permanent: bool,
    /// It has a port, VNI or underlay link that differs from those of its VXLAN link.
    pub overrides: bool,
}

const DESTINATION: u16 = 1;
const HARDWARE_ADDRESS: u16 = 2;
const PORT: u16 = 6;
const VNI: u16 = 7;
const LINK: u16 = 8;
/// NUD_PERMANENT.
const PERMANENT: u16 = 0x80;
/// NTF_SELF: the entry belongs to the link itself, not to its bridge.
const SELF: u8 = 0x02;
/// NTF_EXT_LEARNED: a control plane of another kind added it.
const LEARNED: u8 = 0x10;

/// struct ndmsg.
fn fixed(family: i32, link: u32, state: u16, flags: u8) -> [u8; 12] {
    let [i0, i1, i2, i3] = link.to_ne_bytes();
    let [s0, s1] = state.to_ne_bytes();
    [number(family), 0, 0, 0, i0, i1, i2, i3, s0, s1, flags, 0]
}

/// The link of a struct ndmsg, its state and its flags.
fn header(fixed: [u8; 12]) -> (u32, u16, u8) {
    let [_, _, _, _, i0, i1, i2, i3, s0, s1, flags, _] = fixed;
    (u32::from_ne_bytes([i0, i1, i2, i3]), u16::from_ne_bytes([s0, s1]), flags)
}

/// A dump of `family`, of one link. Kernels before Linux 5.0 return those of all links.
fn dump(family: i32, link: u32) -> Message {
    // The header must be zero in a strict dump: the attribute has the link.
    let mut message = Message::new(libc::RTM_GETNEIGH, 0, &fixed(family, 0, 0, 0));
    message.u32(LINK, link);
    message
}

impl Neighbour {
    /// A permanent neighbour.
    #[must_use]
    pub fn permanent(link: u32, address: Ipv4Addr, mac: [u8; 6]) -> Self {
        Self { link, address, mac: Some(mac), permanent: true }
    }

    /// Reads the payload of an RTM_NEWNEIGH: none for families other than IPv4.
    ///
    /// # Errors
    /// It is malformed, or has no address.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let (fixed, attributes) = split::<12>(payload)?;
        if fixed.first() != Some(&number(libc::AF_INET)) {
            return Ok(None);
        }
        let (link, state, _) = header(*fixed);
        let (mut address, mut mac) = (None, None);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                DESTINATION => address = Some(Ipv4Addr::from(attribute.array()?)),
                // Tunnels have hardware addresses of other lengths.
                HARDWARE_ADDRESS => mac = attribute.array().ok(),
                _ => {}
            }
        }
        let address = address.ok_or(Malformed("a neighbour without an address"))?;
        Ok(Some(Self { link, address, mac, permanent: state & PERMANENT != 0 }))
    }

    /// Requests the IPv4 neighbours of the link with index `link`.
    #[must_use]
    pub fn of(link: u32) -> Message {
        dump(libc::AF_INET, link)
    }

    /// Adds it as a permanent neighbour, or replaces the one with this address.
    #[must_use]
    pub fn replace(&self) -> Message {
        let fixed = fixed(libc::AF_INET, self.link, PERMANENT, 0);
        let mut message = Message::new(libc::RTM_NEWNEIGH, FLAG_CREATE | FLAG_REPLACE, &fixed);
        message.attribute(DESTINATION, &self.address.octets());
        if let Some(mac) = &self.mac {
            message.attribute(HARDWARE_ADDRESS, mac);
        }
        message
    }

    /// Deletes the neighbour with this address. ENOENT if there is none.
    #[must_use]
    pub fn delete(&self) -> Message {
        let mut message = Message::new(libc::RTM_DELNEIGH, 0, &fixed(libc::AF_INET, self.link, 0, 0));
        message.attribute(DESTINATION, &self.address.octets());
        message
    }
}

impl ForwardingEntry {
    /// A permanent entry: frames to `mac` are sent to `remote`.
    #[must_use]
    pub fn permanent(link: u32, mac: [u8; 6], remote: Ipv4Addr) -> Self {
        Self { link, mac, remote: Some(remote), permanent: true, overrides: false }
    }

    /// Reads the payload of an RTM_NEWNEIGH: none for families other than AF_BRIDGE, and for entries of a bridge.
    ///
    /// # Errors
    /// It is malformed, or has no hardware address.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let (fixed, attributes) = split::<12>(payload)?;
        let (link, state, flags) = header(*fixed);
        if fixed.first() != Some(&number(libc::AF_BRIDGE)) || flags & SELF == 0 {
            return Ok(None);
        }
        let (mut mac, mut remote, mut overrides) = (None, None, false);
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                HARDWARE_ADDRESS => mac = Some(attribute.array()?),
                DESTINATION => remote = attribute.array::<4>().ok().map(Ipv4Addr::from),
                PORT | VNI | LINK => overrides = true,
                _ => {}
            }
        }
        let mac = mac.ok_or(Malformed("a forwarding entry without a hardware address"))?;
        let permanent = state & PERMANENT != 0 && flags & LEARNED == 0;
        Ok(Some(Self { link, mac, remote, permanent, overrides }))
    }

    /// Requests the entries of the VXLAN link with index `link`.
    #[must_use]
    pub fn of(link: u32) -> Message {
        dump(libc::AF_BRIDGE, link)
    }

    /// Adds it as a permanent entry, or replaces the remote of the one with this hardware address. The kernel refuses to replace an entry
    /// with several remotes, or with the hardware address zero.
    #[must_use]
    pub fn replace(&self) -> Message {
        self.about(libc::RTM_NEWNEIGH, FLAG_CREATE | FLAG_REPLACE, PERMANENT)
    }

    /// Deletes it: the remote of this hardware address. ENOENT if there is none.
    #[must_use]
    pub fn delete(&self) -> Message {
        self.about(libc::RTM_DELNEIGH, 0, 0)
    }

    fn about(&self, kind: u16, flags: u16, state: u16) -> Message {
        let mut message = Message::new(kind, flags, &fixed(libc::AF_BRIDGE, self.link, state, SELF));
        message.attribute(HARDWARE_ADDRESS, &self.mac);
        if let Some(remote) = self.remote {
            message.attribute(DESTINATION, &remote.octets());
        }
        message
    }
}

/// As ip-neighbour(8) writes it, with the link's index.
impl fmt::Display for Neighbour {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} dev {}", self.address, self.link)?;
        self.mac.map_or(Ok(()), |mac| write!(formatter, " lladdr {}", Mac(mac)))
    }
}

/// As bridge(8) writes it, with the link's index.
impl fmt::Display for ForwardingEntry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} dev {}", Mac(self.mac), self.link)?;
        self.remote.map_or(Ok(()), |remote| write!(formatter, " dst {remote}"))
    }
}

#[cfg(test)]
mod tests;
