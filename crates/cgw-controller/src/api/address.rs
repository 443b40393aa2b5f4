//! Addresses and numbers, each with one text form.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text is not in the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no {expected}")]
pub struct ParseError {
    /// The text, cut after 100 characters: it may come from anyone.
    pub text: String,
    /// The format, as a noun.
    pub expected: &'static str,
}

impl ParseError {
    /// An error about `text`.
    #[must_use]
    pub fn new(text: &str, expected: &'static str) -> ParseError {
        ParseError { text: text.chars().take(100).collect(), expected }
    }
}

/// A virtual IP address: unicast, not loopback, not link-local, not unspecified. IPv4-mapped IPv6 is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vip(IpAddr);

impl Vip {
    const EXPECTED: &str = "address that can be a VIP (unicast, not loopback, not link-local)";

    /// Checks the address.
    ///
    /// # Errors
    /// The address cannot be a VIP.
    pub fn new(address: IpAddr) -> Result<Vip, ParseError> {
        let usable = match address {
            IpAddr::V4(v4) => {
                !v4.is_unspecified()
                    && !v4.is_loopback()
                    && !v4.is_link_local()
                    && !v4.is_multicast()
                    && !v4.is_broadcast()
                    && v4.octets()[0] != 0
                    && v4.octets()[0] < 240
            }
            IpAddr::V6(v6) => {
                !v6.is_unspecified()
                    && !v6.is_loopback()
                    && !v6.is_multicast()
                    && !v6.is_unicast_link_local()
                    && v6.to_ipv4_mapped().is_none()
            }
        };
        usable.then_some(Vip(address)).ok_or_else(|| ParseError::new(&address.to_string(), Vip::EXPECTED))
    }

    /// The address.
    #[must_use]
    pub fn address(self) -> IpAddr {
        self.0
    }

    /// As the end of an annotation's key, which must not contain ':', and must end in a letter or digit.
    #[must_use]
    pub fn key(self) -> String {
        let key = key_of_ip(self.0);
        // `2001:db8::` is `2001:db8::0`, too.
        if key.ends_with('_') { key + "0" } else { key }
    }

    /// The inverse of [`Vip::key`].
    ///
    /// # Errors
    /// The text is no such key.
    pub fn of_key(key: &str) -> Result<Vip, ParseError> {
        let error = || ParseError::new(key, "IP address with '_' instead of ':'");
        let vip = Vip::new(key.replace('_', ":").parse().map_err(|_| error())?)?;
        // One entry has one key.
        if vip.key() == key { Ok(vip) } else { Err(error()) }
    }
}

/// An address as a part of an annotation's key: ':' becomes '_'.
#[must_use]
pub fn key_of_ip(address: IpAddr) -> String {
    address.to_string().replace(':', "_")
}

impl fmt::Display for Vip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Vip {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Vip, ParseError> {
        text.parse().map_err(|_| ParseError::new(text, Vip::EXPECTED)).and_then(Vip::new)
    }
}

/// MAC address of a gateway's tunnel interface: unicast and not zero. Text: six pairs of lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunMac([u8; 6]);

impl TunMac {
    const EXPECTED: &str = "unicast MAC address";

    /// Checks the address.
    ///
    /// # Errors
    /// The address is zero, or a group address.
    pub fn new(octets: [u8; 6]) -> Result<TunMac, ParseError> {
        let usable = octets != [0; 6] && octets[0] & 1 == 0;
        usable
            .then_some(TunMac(octets))
            .ok_or_else(|| ParseError::new(&TunMac(octets).to_string(), TunMac::EXPECTED))
    }

    /// The octets in the order of transmission.
    #[must_use]
    pub fn octets(self) -> [u8; 6] {
        self.0
    }
}

impl fmt::Display for TunMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for TunMac {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<TunMac, ParseError> {
        let error = || ParseError::new(text, TunMac::EXPECTED);
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts
                .next()
                .filter(|part| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit()));
            *octet = u8::from_str_radix(part.ok_or_else(error)?, 16).map_err(|_| error())?;
        }
        if parts.next().is_some() {
            return Err(error());
        }
        TunMac::new(octets)
    }
}

/// The number of a binding, the same on all nodes and unique in a cluster: 1 to 2^24-1. It is a key inside of nodes (reg3 of Open
/// vSwitch, the routing table of a VIP) and is not sent between nodes. Text: `0x` and eight hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TunId(u32);

impl TunId {
    /// The largest number.
    pub const MAX: u32 = (1 << 24) - 1;

    /// Checks the number.
    ///
    /// # Errors
    /// The number is 0, or above [`TunId::MAX`].
    pub fn new(number: u32) -> Result<TunId, ParseError> {
        (1..=TunId::MAX)
            .contains(&number)
            .then_some(TunId(number))
            .ok_or_else(|| ParseError::new(&format!("{number:#x}"), "tunnel ID (0x00000001 to 0x00ffffff)"))
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for TunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

impl FromStr for TunId {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<TunId, ParseError> {
        let digits = text
            .strip_prefix("0x")
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        TunId::new(number.ok_or_else(|| ParseError::new(text, "tunnel ID (0x and hexadecimal digits)"))?)
    }
}

/// When a gateway became MASTER, in milliseconds since 1970. The largest one is in force. Text: decimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The first number that is no epoch. Another client can write the annotation, and after the largest number of the type no other
    /// gateway could ever be in force. All numbers below are exact as f64, too.
    const END: u64 = 9_000_000_000_000_000;

    /// Checks the number of milliseconds. None: it is the year 287168 or later.
    #[must_use]
    pub fn new(milliseconds: u64) -> Option<Epoch> {
        (milliseconds < Epoch::END).then_some(Epoch(milliseconds))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Epoch {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Epoch, ParseError> {
        let digits = !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.and_then(Epoch::new).ok_or_else(|| ParseError::new(text, "epoch (milliseconds since 1970)"))
    }
}

/// VIPs of a virtual router: one, or `first-last` of one family with at most 65,536 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VipRange {
    first: Vip,
    last: Vip,
}

impl VipRange {
    /// The most addresses of a range.
    pub const MOST: u128 = 1 << 16;

    /// Whether the VIP is in the range.
    #[must_use]
    pub fn contains(self, vip: Vip) -> bool {
        vip.0.is_ipv4() == self.first.0.is_ipv4() && (self.first..=self.last).contains(&vip)
    }

    /// The VIPs in ascending order.
    pub fn iter(self) -> impl Iterator<Item = Vip> {
        let (v4, first, last) = (self.first.0.is_ipv4(), bits(self.first.0), bits(self.last.0));
        (first..=last).filter_map(move |bits| {
            let address =
                if v4 { IpAddr::V4(u32::try_from(bits).ok()?.into()) } else { IpAddr::V6(bits.into()) };
            Vip::new(address).ok()
        })
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_bits().into(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl fmt::Display for VipRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { self.first.fmt(f) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

impl FromStr for VipRange {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<VipRange, ParseError> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last): (Vip, Vip) = (first.parse()?, last.parse()?);
        let (from, to) = (bits(first.0), bits(last.0));
        let usable = first.0.is_ipv4() == last.0.is_ipv4() && from <= to && to - from < VipRange::MOST;
        usable
            .then_some(VipRange { first, last })
            .ok_or_else(|| ParseError::new(text, "range of VIPs (first-last, one family, at most 65536)"))
    }
}

/// Serde through the text form.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

as_text!(Vip, TunMac, TunId, VipRange);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_back() {
        for text in ["192.168.50.201", "2001:db8::1", "fd00::2"] {
            let vip: Vip = text.parse().unwrap();
            assert_eq!((vip.to_string().as_str(), Vip::of_key(&vip.key())), (text, Ok(vip)));
        }
        for (text, key) in
            [("fd00::2", "fd00__2"), ("2001:db8::", "2001_db8__0"), ("1:2:3:4:5:6::", "1_2_3_4_5_6__0")]
        {
            let vip: Vip = text.parse().unwrap();
            assert_eq!((vip.key().as_str(), Vip::of_key(key)), (key, Ok(vip)));
        }
        assert_eq!("3a:a8:33:5f:e8:d9".parse::<TunMac>().unwrap().to_string(), "3a:a8:33:5f:e8:d9");
        assert_eq!("0xaabb".parse::<TunId>().unwrap().to_string(), "0x0000aabb");
        assert_eq!("1795171660739".parse::<Epoch>().unwrap(), Epoch(1_795_171_660_739));
        let range: VipRange = "10.0.0.254-10.0.1.1".parse().unwrap();
        let all: Vec<_> = range.iter().map(|vip| vip.to_string()).collect();
        assert_eq!(all, ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]);
        assert!(range.contains("10.0.1.0".parse().unwrap()) && !range.contains("10.0.1.2".parse().unwrap()));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "10.0.0",
            "127.0.0.1",
            "0.0.0.0",
            "0.1.2.3",
            "224.0.0.1",
            "255.255.255.255",
            "169.254.1.1",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            " 10.0.0.1",
            "10.0.0.01",
        ] {
            assert!(text.parse::<Vip>().is_err(), "{text}");
        }
        for key in ["2001:db8::1", "2001_db8_0__1", "2001_db8__", "10_0_0_1", ""] {
            assert!(Vip::of_key(key).is_err(), "{key}");
        }
        for text in [
            "",
            "00:00:00:00:00:00",
            "01:00:5e:00:00:01",
            "3a:a8:33:5f:e8",
            "3a:a8:33:5f:e8:d9:00",
            "3aa8335fe8d9",
            "+a:a8:33:5f:e8:d9",
        ] {
            assert!(text.parse::<TunMac>().is_err(), "{text}");
        }
        for text in ["", "0x", "0x0", "aabb", "0x1000000", "0x+1"] {
            assert!(text.parse::<TunId>().is_err(), "{text}");
        }
        for text in
            ["", "-1", "+1", "1.5", "9000000000000000", "18446744073709551615", "99999999999999999999"]
        {
            assert!(text.parse::<Epoch>().is_err(), "{text}");
        }
        for text in ["10.0.0.2-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.1-10.1.0.1", "10.0.0.1-", "-"] {
            assert!(text.parse::<VipRange>().is_err(), "{text}");
        }
    }
}
