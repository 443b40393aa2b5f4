//! Addresses (RTM_NEWADDR and its kin; linux/if_addr.h).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::message::{Attribute, FLAG_CREATE, FLAG_EXCLUSIVE, Malformed, Message, split};

/// An address of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// Index of its link.
    pub link: u32,
    /// IFA_LOCAL (or IFA_ADDRESS), with its prefix length.
    pub net: IpNet,
    /// RT_SCOPE_*: 0 is the universe, 253 the link.
    pub scope: u8,
    /// IFA_F_*.
    pub flags: u32,
}

const ADDRESS: u16 = 1;
const LOCAL: u16 = 2;
const BROADCAST: u16 = 4;
const FLAGS: u16 = 8;
/// IFA_F_NODAD: usable immediately. Duplicate address detection would delay an IPv6 address for one to two seconds.
const WITHOUT_DETECTION: u8 = 0x02;

/// struct ifaddrmsg.
fn fixed(family: i32, prefix: u8, flags: u8, scope: u8, link: u32) -> [u8; 8] {
    let [a, b, c, d] = link.to_ne_bytes();
    [number(family), prefix, flags, scope, a, b, c, d]
}

/// AF_*, which all fit a byte.
pub(super) fn number(family: i32) -> u8 {
    u8::try_from(family).unwrap_or(0)
}

/// AF_* of an address.
pub(super) fn family(address: IpAddr) -> i32 {
    if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// The bytes of an address, in network order.
#[must_use]
pub fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// Adds an attribute of an address.
pub(super) fn write(message: &mut Message, kind: u16, address: IpAddr) {
    message.attribute(kind, &octets(address));
}

/// An address of 4 or 16 bytes.
pub(super) fn read(bytes: &[u8]) -> Result<IpAddr, Malformed> {
    if let Ok(bytes) = <[u8; 4]>::try_from(bytes) {
        return Ok(IpAddr::from(bytes));
    }
    <[u8; 16]>::try_from(bytes).map(IpAddr::from).map_err(|_| Malformed("an address's length"))
}

/// An address of `family`'s length.
pub(super) fn read_of(family: u8, attribute: &Attribute<'_>) -> Result<IpAddr, Malformed> {
    let address = read(attribute.payload)?;
    if number(self::family(address)) == family { Ok(address) } else { Err(Malformed("an address's length")) }
}

/// Address and prefix length.
pub(super) fn net(address: IpAddr, prefix: u8) -> Result<IpNet, Malformed> {
    IpNet::new(address, prefix).map_err(|_| Malformed("a prefix length"))
}

impl Address {
    /// Reads the payload of an RTM_NEWADDR: none for families other than IPv4 and IPv6.
    ///
    /// # Errors
    /// When it is malformed, or has no address.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let (fixed, attributes) = split::<8>(payload)?;
        let [family, prefix, flags, scope, i0, i1, i2, i3] = *fixed;
        if ![libc::AF_INET, libc::AF_INET6].map(number).contains(&family) {
            return Ok(None);
        }
        let (mut local, mut address, mut flags) = (None, None, u32::from(flags));
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                LOCAL => local = Some(read_of(family, &attribute)?),
                ADDRESS => address = Some(read_of(family, &attribute)?),
                FLAGS => flags = attribute.u32()?,
                _ => {}
            }
        }
        let own = local.or(address).ok_or(Malformed("an address without an address"))?;
        let link = u32::from_ne_bytes([i0, i1, i2, i3]);
        Ok(Some(Self { link, net: net(own, prefix)?, scope, flags }))
    }

    /// Requests all addresses of all families.
    #[must_use]
    pub fn all() -> Message {
        Self::of(0)
    }

    /// Requests all addresses of the link with index `link`. Kernels before Linux 4.20 return those of all links.
    #[must_use]
    pub fn of(link: u32) -> Message {
        Message::new(libc::RTM_GETADDR, 0, &fixed(libc::AF_UNSPEC, 0, 0, 0, link))
    }
}

/// Adds the address `net` of a scope (RT_SCOPE_*) to the link with index `link`, usable immediately. Of scope link, it is not selected as the
/// source of packets to other networks.
#[must_use]
pub fn add(link: u32, net: IpNet, scope: u8) -> Message {
    let mut message = about(libc::RTM_NEWADDR, FLAG_CREATE | FLAG_EXCLUSIVE, link, net, scope);
    if let (IpNet::V4(net), 1..=30) = (net, net.prefix_len()) {
        // Networks up to /30 have a broadcast address, which other plugins set too.
        write(&mut message, BROADCAST, Ipv4Addr::into(net.broadcast()));
    }
    message
}

/// Deletes `net` from the link with index `link`.
#[must_use]
pub fn delete(link: u32, net: IpNet) -> Message {
    about(libc::RTM_DELADDR, 0, link, net, libc::RT_SCOPE_UNIVERSE)
}

fn about(kind: u16, flags: u16, link: u32, net: IpNet, scope: u8) -> Message {
    let address = net.addr();
    let detection = if address.is_ipv6() { WITHOUT_DETECTION } else { 0 };
    let fixed = fixed(family(address), net.prefix_len(), detection, scope, link);
    let mut message = Message::new(kind, flags, &fixed);
    write(&mut message, LOCAL, address);
    write(&mut message, ADDRESS, address);
    message
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    fn nets() -> impl Strategy<Value = IpNet> {
        prop_oneof![
            (any::<[u8; 4]>(), 0_u8..=32)
                .prop_map(|(bytes, prefix)| net(IpAddr::from(bytes), prefix).unwrap()),
            (any::<[u8; 16]>(), 0_u8..=128).prop_map(|(bytes, prefix)| net(
                Ipv6Addr::from(bytes).into(),
                prefix
            )
            .unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes: Vec<u8>, inet: bool) {
            let _ = Address::decode(&bytes);
            let mut valid = bytes;
            if let Some(family) = valid.first_mut() {
                *family = number(if inet { libc::AF_INET } else { libc::AF_INET6 });
            }
            let _ = Address::decode(&valid);
        }

        #[test]
        fn a_request_decodes_like_an_existing_address(link: u32, net in nets(), scope: u8) {
            let read = Address::decode(add(link, net, scope).body()).unwrap().unwrap();
            let flags = if net.addr().is_ipv6() { 2 } else { 0 };
            prop_assert_eq!(read, Address { link, net, scope, flags });
        }
    }

    #[test]
    fn other_families_are_ignored() {
        assert_eq!(Address::decode(&[7, 0, 0, 0, 1, 0, 0, 0]), Ok(None));
    }
}
