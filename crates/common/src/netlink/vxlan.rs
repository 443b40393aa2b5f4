//! VXLAN links (linux/if_link.h, IFLA_VXLAN_*).

use std::net::Ipv4Addr;

use super::link::{self, Link};
use super::message::{Attribute, FLAG_CREATE, FLAG_EXCLUSIVE, Malformed, Message, split};

/// The attributes of a VXLAN link, desired or observed. They cannot be changed: a link with other ones is deleted and created again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Vxlan {
    /// IFLA_VXLAN_ID: the VNI, 24 bits.
    pub vni: u32,
    /// IFLA_VXLAN_LOCAL: source address of the outer packets.
    pub local: Option<Ipv4Addr>,
    /// IFLA_VXLAN_PORT: UDP destination port of the outer packets, and the port on which they are received.
    pub port: u16,
    /// IFLA_VXLAN_LEARNING: forwarding entries are learned from received packets.
    pub learning: bool,
    /// IFLA_VXLAN_TTL: 0 is the kernel's choice.
    pub ttl: u8,
    /// IFLA_VXLAN_TOS: 0 is unset, 1 copies the inner packet's.
    pub tos: u8,
    /// IFLA_VXLAN_DF: 0 never sets the outer packet's bit "don't fragment", 1 always sets it, 2 copies the inner packet's.
    pub df: u8,
    /// IFLA_VXLAN_LINK: index of the underlay link.
    pub underlay: Option<u32>,
    /// IFLA_VXLAN_GROUP: the remote, or the multicast group, of frames without a forwarding entry.
    pub group: Option<Ipv4Addr>,
    /// IFLA_VXLAN_COLLECT_METADATA: an external control plane chooses VNI and remote of each packet.
    pub external: bool,
}

/// A VXLAN link to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVxlan {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    pub mac: [u8; 6],
    /// Its MTU in bytes: at most that of the underlay link less 50 bytes of headers (IPv4).
    pub mtu: u32,
    /// Its attributes.
    pub vxlan: Vxlan,
}

/// The kernel's name of the link kind.
const KIND: &str = "vxlan";

const ID: u16 = 1;
const GROUP: u16 = 2;
const UNDERLAY: u16 = 3;
const LOCAL: u16 = 4;
const TTL: u16 = 5;
const TOS: u16 = 6;
const LEARNING: u16 = 7;
const PORT: u16 = 15;
const EXTERNAL: u16 = 25;
const DF: u16 = 29;

impl Vxlan {
    /// A link that learns no forwarding entries, with the kernel's defaults for TTL, TOS and DF.
    #[must_use]
    pub fn new(vni: u32, local: Ipv4Addr, port: u16) -> Self {
        Self { vni, local: Some(local), port, ..Self::default() }
    }

    /// Reads the payload of an RTM_NEWLINK: the link, with its attributes if it is a VXLAN link.
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(payload: &[u8]) -> Result<(Link, Option<Self>), Malformed> {
        let link = Link::decode(payload)?;
        if link.kind != KIND {
            return Ok((link, None));
        }
        let (_, attributes) = split::<16>(payload)?;
        let mut vxlan = Self::default();
        for attribute in attributes {
            if let Some(data) = link::info_data(&attribute?)? {
                vxlan = Self::read(&data)?;
            }
        }
        Ok((link, Some(vxlan)))
    }

    /// Reads IFLA_INFO_DATA of a link of kind `vxlan`.
    fn read(data: &Attribute<'_>) -> Result<Self, Malformed> {
        let mut vxlan = Self::default();
        for part in data.nested() {
            let part = part?;
            match part.kind {
                ID => vxlan.vni = part.u32()?,
                GROUP => vxlan.group = Some(part.array::<4>()?.into()),
                UNDERLAY => vxlan.underlay = Some(part.u32()?).filter(|index| *index != 0),
                LOCAL => vxlan.local = Some(part.array::<4>()?.into()),
                TTL => vxlan.ttl = part.u8()?,
                TOS => vxlan.tos = part.u8()?,
                LEARNING => vxlan.learning = part.u8()? != 0,
                PORT => vxlan.port = u16::from_be_bytes(part.array()?),
                // A flag without a payload, or a byte.
                EXTERNAL => vxlan.external = part.payload.first() != Some(&0),
                DF => vxlan.df = part.u8()?,
                _ => {}
            }
        }
        Ok(vxlan)
    }

    fn write(&self, data: &mut Message) {
        data.u32(ID, self.vni);
        for (kind, address) in [(GROUP, self.group), (LOCAL, self.local)] {
            if let Some(address) = address {
                data.attribute(kind, &address.octets());
            }
        }
        if let Some(index) = self.underlay {
            data.u32(UNDERLAY, index);
        }
        data.attribute(PORT, &self.port.to_be_bytes()).u8(LEARNING, self.learning.into());
        for (kind, value) in
            [(TTL, self.ttl), (TOS, self.tos), (DF, self.df), (EXTERNAL, self.external.into())]
        {
            // Zero is the default. Kernels before 5.0 have no DF.
            if value != 0 {
                data.u8(kind, value);
            }
        }
    }
}

impl NewVxlan {
    /// Creates it, down. EEXIST if there is a link with this name, or a VXLAN link with this VNI, port and family.
    #[must_use]
    pub fn create(&self) -> Message {
        let mut message = link::request(libc::RTM_NEWLINK, FLAG_CREATE | FLAG_EXCLUSIVE, 0);
        link::named(&mut message, &self.name, self.mac, self.mtu);
        link::of_kind(&mut message, KIND, |data| self.vxlan.write(data));
        message
    }
}

#[cfg(test)]
mod tests;
