//! Routes (RTM_NEWROUTE and its kin; linux/rtnetlink.h).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::address::{self, family, number, octets};
use super::message::{
    Attribute, FLAG_APPEND, FLAG_CREATE, FLAG_EXCLUSIVE, FLAG_REPLACE, Malformed, Message, NESTED,
    attributes, split,
};

mod builder;

pub use builder::Special;

/// The device of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Device {
    /// An existing link, by index.
    Index(u32),
    /// A link that does not exist yet. Requests get its index.
    New,
}

/// A unicast route, or a [`Special`] one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// 254 is main.
    pub table: u32,
    /// `0.0.0.0/0` and `::/0` are the defaults.
    pub destination: IpNet,
    /// RTA_GATEWAY; or RTA_VIA, where the families differ.
    pub gateway: Option<IpAddr>,
    /// RTA_OIF.
    pub device: Option<Device>,
    /// RTA_PREFSRC.
    pub source: Option<IpAddr>,
    /// RTA_PRIORITY: the metric. For IPv6 the kernel replaces 0 by 1024.
    pub metric: Option<u32>,
    /// RTPROT_*.
    pub protocol: u8,
    /// RT_SCOPE_*.
    pub scope: u8,
    /// RTN_*: 1 is unicast.
    pub kind: u8,
    /// rtm_tos.
    pub tos: u8,
    /// RTNH_F_ONLINK and RTNH_F_PERVASIVE; other flags are state.
    pub flags: u32,
    /// All other attributes of the configuration (metrics, multipath, encapsulation, preference, nexthop ID …), as type and raw payload.
    /// They are written back unchanged. State and the kernel's defaults (IPv6's medium preference) are omitted.
    pub rest: Vec<(u16, Vec<u8>)>,
}

const DESTINATION: u16 = 1;
/// RTA_SRC, of IPv6's source-specific routes: in [`Route::rest`] with rtm_src_len as one byte behind it.
const FROM: u16 = 2;
const DEVICE: u16 = 4;
const GATEWAY: u16 = 5;
const PRIORITY: u16 = 6;
const SOURCE: u16 = 7;
const MULTIPATH: u16 = 9;
/// RTA_CACHEINFO: state, except the remaining lifetime of an advertised route.
const STATE: u16 = 12;
const TABLE: u16 = 15;
const VIA: u16 = 18;
const PREFERENCE: u16 = 20;
const EXPIRES: u16 = 23;
const PADDING: u16 = 24;
const NEXTHOP_ID: u16 = 30;
/// RTNH_F_ONLINK.
const ONLINK: u32 = 4;
/// RTNH_F_PERVASIVE | RTNH_F_ONLINK: the flags of a request. RTNH_F_DEAD, RTNH_F_LINKDOWN and others are state.
const ASKED: u32 = 2 | ONLINK;
/// RTPROT_RA.
const ADVERTISED: u8 = 9;
/// RTM_F_CLONED: an entry of the cache, not of a table.
const CLONED: u32 = 0x200;
/// RT_TABLE_LOCAL.
const LOCAL_TABLE: u32 = 255;
/// RTN_UNICAST, RTN_BLACKHOLE, RTN_UNREACHABLE, RTN_PROHIBIT, RTN_THROW: the types that administrators configure.
const KINDS: [u8; 5] = [1, 6, 7, 8, 9];
impl Route {
    /// Reads the payload of an RTM_NEWROUTE: none for routes that the kernel creates itself (table local, the cache,
    /// broadcast, multicast) and for other families.
    ///
    /// # Errors
    /// It is malformed.
    pub fn decode(payload: &[u8]) -> Result<Option<Self>, Malformed> {
        let (fixed, attributes) = split::<12>(payload)?;
        let [family, to, from, tos, table, protocol, scope, kind, f0, f1, f2, f3] = *fixed;
        let flags = u32::from_ne_bytes([f0, f1, f2, f3]);
        let Some(everything) = everything(family) else { return Ok(None) };
        if flags & CLONED != 0 || !KINDS.contains(&kind) {
            return Ok(None);
        }
        let mut route = Self {
            table: table.into(),
            destination: address::net(everything, to)?,
            gateway: None,
            device: None,
            source: None,
            metric: None,
            protocol,
            scope,
            kind,
            tos,
            flags: flags & ASKED,
            rest: Vec::new(),
        };
        for attribute in attributes {
            let attribute = attribute?;
            match attribute.kind {
                DESTINATION => {
                    route.destination = address::net(address::read_of(family, &attribute)?, to)?.trunc()
                }
                DEVICE => route.device = Some(Device::Index(attribute.u32()?)),
                GATEWAY => route.gateway = Some(address::read_of(family, &attribute)?),
                VIA => route.gateway = Some(via(&attribute)?),
                PRIORITY => route.metric = Some(attribute.u32()?),
                SOURCE => route.source = Some(address::read_of(family, &attribute)?),
                TABLE => route.table = attribute.u32()?,
                FROM => route.rest.push((FROM, [attribute.payload, &[from]].concat())),
                MULTIPATH => route.rest.push((attribute.raw_kind, asked_paths(attribute.payload)?)),
                PREFERENCE if attribute.u8()? == 0 => {}
                STATE => route.rest.extend(time_left(&attribute)),
                PADDING => {}
                _ => route.rest.push((attribute.raw_kind, attribute.payload.to_vec())),
            }
        }
        Ok((route.table != LOCAL_TABLE).then_some(route))
    }

    /// Whether it is an advertised default route.
    #[must_use]
    pub fn is_advertised_default(&self) -> bool {
        self.protocol == ADVERTISED && self.destination.prefix_len() == 0 && self.destination.addr().is_ipv6()
    }

    /// Its next hops: links with their gateways. Several for a multipath route.
    #[must_use]
    pub fn paths(&self) -> Vec<(u32, Option<IpAddr>)> {
        if let Some(Device::Index(index)) = self.device {
            return vec![(index, self.gateway)];
        }
        let several = self.rest.iter().filter(|(kind, _)| kind & !NESTED == MULTIPATH);
        several.flat_map(|(_, payload)| nexthops(payload)).collect()
    }

    /// Requests all routes of all families; of one table, if the kernel can filter (Linux 4.20).
    #[must_use]
    pub fn all(table: Option<u32>) -> Message {
        let mut message = Message::new(libc::RTM_GETROUTE, 0, &[0; 12]);
        if let Some(table) = table {
            message.u32(TABLE, table);
        }
        message
    }

    /// Requests the routes of a protocol (RTPROT_*), if the kernel can filter (Linux 4.20).
    #[must_use]
    pub fn of_protocol(protocol: u8) -> Message {
        Message::new(libc::RTM_GETROUTE, 0, &[0, 0, 0, 0, 0, protocol, 0, 0, 0, 0, 0, 0])
    }

    /// Adds it. EEXIST if there is one with the same destination, TOS and metric. `new` is the index of [`Device::New`].
    #[must_use]
    pub fn add(&self, new: Option<u32>) -> Message {
        self.about(libc::RTM_NEWROUTE, FLAG_CREATE | FLAG_EXCLUSIVE, new)
    }

    /// Appends it after those with the same destination, TOS and metric.
    #[must_use]
    pub fn append(&self, new: Option<u32>) -> Message {
        self.about(libc::RTM_NEWROUTE, FLAG_CREATE | FLAG_APPEND, new)
    }

    /// Replaces the first one with the same destination, TOS and metric. ENOENT if there is none.
    #[must_use]
    pub fn replace(&self, new: Option<u32>) -> Message {
        self.about(libc::RTM_NEWROUTE, FLAG_REPLACE, new)
    }

    /// Adds it, or replaces the first one with the same destination, TOS and metric.
    #[must_use]
    pub fn set(&self, new: Option<u32>) -> Message {
        self.about(libc::RTM_NEWROUTE, FLAG_CREATE | FLAG_REPLACE, new)
    }

    /// Deletes it. ESRCH if there is none.
    #[must_use]
    pub fn delete(&self, new: Option<u32>) -> Message {
        self.about(libc::RTM_DELROUTE, 0, new)
    }

    /// Whether a table can have only one of them, unless appended.
    #[must_use]
    pub fn rivals(&self, other: &Self) -> bool {
        (self.table, self.destination, self.tos, self.metric.unwrap_or(0))
            == (other.table, other.destination, other.tos, other.metric.unwrap_or(0))
    }

    fn about(&self, kind: u16, flags: u16, new: Option<u32>) -> Message {
        let from =
            self.rest.iter().find(|(kind, _)| *kind == FROM).and_then(|(_, payload)| payload.split_last());
        // RT_TABLE_UNSPEC: the attribute has the table.
        let table = 0;
        let [f0, f1, f2, f3] = self.flags.to_ne_bytes();
        let fixed = [
            number(family(self.destination.addr())),
            self.destination.prefix_len(),
            from.map_or(0, |(length, _)| *length),
            self.tos,
            table,
            self.protocol,
            self.scope,
            self.kind,
            f0,
            f1,
            f2,
            f3,
        ];
        let mut message = Message::new(kind, flags, &fixed);
        message.u32(TABLE, self.table);
        if self.destination.prefix_len() > 0 {
            address::write(&mut message, DESTINATION, self.destination.network());
        }
        // A nexthop object replaces device, gateway and paths. The kernel reports both, but accepts only one.
        let object = self.rest.iter().any(|(kind, _)| *kind == NEXTHOP_ID);
        if !object {
            self.write_nexthop(&mut message, new);
        }
        if let Some(metric) = self.metric {
            message.u32(PRIORITY, metric);
        }
        if let Some(source) = self.source {
            address::write(&mut message, SOURCE, source);
        }
        for (kind, payload) in &self.rest {
            match (*kind, from) {
                (FROM, Some((_, source))) => message.attribute(FROM, source),
                (kind, _) if object && kind & !NESTED == MULTIPATH => &mut message,
                (kind, _) => message.attribute(kind, payload),
            };
        }
        message
    }

    fn write_nexthop(&self, message: &mut Message, new: Option<u32>) {
        match self.device {
            Some(Device::Index(index)) => {
                message.u32(DEVICE, index);
            }
            Some(Device::New) => {
                // Index 0 before the link is created, which the kernel refuses.
                message.u32(DEVICE, new.unwrap_or(0));
            }
            None => {}
        }
        match self.gateway {
            Some(gateway) if gateway.is_ipv4() == self.destination.addr().is_ipv4() => {
                address::write(message, GATEWAY, gateway);
            }
            Some(gateway) => {
                // struct rtvia: the family, and the address.
                let family = u16::from(number(family(gateway))).to_ne_bytes();
                message.attribute(VIA, &[family.as_slice(), &octets(gateway)].concat());
            }
            None => {}
        }
    }
}

/// The address of `0.0.0.0/0` or `::/0`.
fn everything(family: u8) -> Option<IpAddr> {
    match i32::from(family) {
        libc::AF_INET => Some(Ipv4Addr::UNSPECIFIED.into()),
        libc::AF_INET6 => Some(Ipv6Addr::UNSPECIFIED.into()),
        _ => None,
    }
}

/// A gateway of another family than the route's.
fn via(attribute: &Attribute<'_>) -> Result<IpAddr, Malformed> {
    let (_, octets) = attribute.payload.split_first_chunk::<2>().ok_or(Malformed("a gateway"))?;
    address::read(octets)
}

/// RTA_EXPIRES in seconds, of a route with a lifetime.
fn time_left(attribute: &Attribute<'_>) -> Option<(u16, Vec<u8>)> {
    /// USER_HZ, in which struct rta_cacheinfo counts: 100 on every architecture in use.
    const TICKS: i32 = 100;
    let (_, rest) = attribute.payload.split_first_chunk::<8>()?;
    let ticks = i32::from_ne_bytes(*rest.first_chunk::<4>()?);
    let seconds = u32::try_from(ticks / TICKS).ok().filter(|seconds| *seconds > 0)?;
    Some((EXPIRES, seconds.to_ne_bytes().to_vec()))
}

/// Link and gateway of each struct rtnexthop (length, flags, hops, link; attributes). Ends at the first malformed one.
fn nexthops(mut rest: &[u8]) -> Vec<(u32, Option<IpAddr>)> {
    let mut found = Vec::new();
    while let Some((length, tail)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_ne_bytes(*length));
        let (Some(index), Some(own)) =
            (tail.get(2..).and_then(<[u8]>::first_chunk::<4>), rest.get(8..length))
        else {
            break;
        };
        let gateway = attributes(own).filter_map(Result::ok).find_map(|attribute| match attribute.kind {
            GATEWAY => address::read(attribute.payload).ok(),
            VIA => via(&attribute).ok(),
            _ => None,
        });
        found.push((u32::from_ne_bytes(*index), gateway));
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// The paths (struct rtnexthop and attributes) without their state, which a request must not have.
fn asked_paths(payload: &[u8]) -> Result<Vec<u8>, Malformed> {
    const BROKEN: Malformed = Malformed("a multipath route");
    let mut paths = payload.to_vec();
    let mut rest = paths.as_mut_slice();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk_mut::<2>().ok_or(BROKEN)?;
        let length = usize::from(u16::from_ne_bytes(*length));
        let flags = after.first_mut().ok_or(BROKEN)?;
        *flags &= u8::try_from(ASKED).unwrap_or(0);
        if length < 8 || length > rest.len() {
            return Err(BROKEN);
        }
        rest = rest.get_mut(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(paths)
}

/// As ip-route(8) writes it, with link indices.
impl fmt::Display for Route {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self.kind {
            6 => "blackhole ",
            7 => "unreachable ",
            8 => "prohibit ",
            9 => "throw ",
            _ => "",
        })?;
        write!(formatter, "{}", self.destination)?;
        if let Some(gateway) = self.gateway {
            write!(formatter, " via {gateway}")?;
        }
        match self.device {
            Some(Device::Index(index)) => write!(formatter, " dev {index}")?,
            Some(Device::New) => formatter.write_str(" dev (the new link)")?,
            None => {}
        }
        if let Some(metric) = self.metric {
            write!(formatter, " metric {metric}")?;
        }
        write!(formatter, " table {}", self.table)
    }
}

#[cfg(test)]
mod tests;
