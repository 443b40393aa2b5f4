//! `interfaceType` and `interfaceArgs`.

pub use common::netlink::link::{IpvlanMode, Kind, MacvlanMode};

use crate::cni::Error;
use crate::cni::call::{alternative_name, interface_name};
use crate::cni::field::{Dict, Field};

/// `interfaceType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterfaceType {
    /// `macvlan`, the default outside of AWS.
    Macvlan,
    /// `ipvlan`.
    Ipvlan,
    /// `aws-elastic-ip`, the default on AWS.
    AwsElasticIp,
}

impl InterfaceType {
    const ALL: [Self; 3] = [Self::Macvlan, Self::Ipvlan, Self::AwsElasticIp];

    /// As configurations write it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
            Self::AwsElasticIp => "aws-elastic-ip",
        }
    }

    pub(super) fn parse(field: &Field<'_>) -> Result<Option<Self>, Error> {
        let text = field.string()?;
        if text.is_empty() {
            return Ok(None);
        }
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).map(Some).ok_or_else(|| {
            field.invalid(format_args!("it must be one of {}", Self::ALL.map(Self::as_str).join(", ")))
        })
    }
}

/// The kinds by their modes' names. The first of a type is its default.
const MODES: [(&str, Kind); 7] = [
    ("bridge", Kind::Macvlan(MacvlanMode::Bridge)),
    ("private", Kind::Macvlan(MacvlanMode::Private)),
    ("vepa", Kind::Macvlan(MacvlanMode::Vepa)),
    ("passthru", Kind::Macvlan(MacvlanMode::Passthru)),
    ("l2", Kind::Ipvlan(IpvlanMode::L2)),
    ("l3", Kind::Ipvlan(IpvlanMode::L3)),
    ("l3s", Kind::Ipvlan(IpvlanMode::L3s)),
];

/// The name of a kind's mode. No two kinds have the same.
#[must_use]
pub fn mode_name(kind: Kind) -> &'static str {
    MODES.into_iter().find(|(_, other)| *other == kind).map_or("", |(name, _)| name)
}

/// The kind with this name of its mode; none: no kind has it.
#[must_use]
pub fn kind_named(mode: &str) -> Option<Kind> {
    MODES.into_iter().find(|(name, _)| *name == mode).map(|(_, kind)| kind)
}

/// A kind as the name of its mode, for serde.
pub mod by_mode {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    use super::{Kind, kind_named, mode_name};

    /// Writes the name.
    ///
    /// # Errors
    /// Those of `serializer`.
    pub fn serialize<S: Serializer>(kind: &Kind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(mode_name(*kind))
    }

    /// Reads it.
    ///
    /// # Errors
    /// There is no such mode.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
        let name = String::deserialize(deserializer)?;
        kind_named(&name).ok_or_else(|| D::Error::custom(format_args!("there is no mode {name:?}")))
    }
}

/// Combines `interfaceType` and `interfaceArgs.mode`; without a mode, the type's default.
///
/// # Errors
///
/// Code 7, with the modes of the type.
pub fn kind(interface_type: InterfaceType, mode: Option<&str>) -> Result<Kind, Error> {
    let of_type = |(_, kind): &(&str, Kind)| match interface_type {
        InterfaceType::Macvlan => matches!(kind, Kind::Macvlan(_)),
        InterfaceType::Ipvlan => matches!(kind, Kind::Ipvlan(_)),
        // A VPC delivers to known addresses through its gateway; an ipvlan in l3 uses no gateway.
        InterfaceType::AwsElasticIp => *kind == Kind::Ipvlan(IpvlanMode::L2),
    };
    let modes: Vec<(&str, Kind)> = MODES.into_iter().filter(of_type).collect();
    let found = modes.iter().find(|(name, _)| mode.is_none_or(|mode| *name == mode));
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let names: Vec<_> = modes.iter().map(|(name, _)| *name).collect();
        Error::invalid_config(format!(
            "interfaceArgs.mode is {:?}: for interfaceType {} it must be {}",
            mode.unwrap_or_default(),
            interface_type.as_str(),
            names.join(", ")
        ))
    })
}

/// `aa:bb:cc:dd:ee:ff`.
#[must_use]
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// The hardware address with this text.
#[must_use]
pub fn mac_bytes(text: &str) -> Option<[u8; 6]> {
    // `from_str_radix` would also accept "+1".
    let byte = |word: &str| {
        let is_hex = word.len() == 2 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        u8::from_str_radix(word, 16).ok().filter(|_| is_hex)
    };
    text.split(':').map(byte).collect::<Option<Vec<_>>>()?.try_into().ok()
}

/// An interface's name at `key`.
pub(super) fn name(args: &Dict<'_>, key: &str) -> Result<Option<String>, Error> {
    Ok(args.checked(key, interface_name)?.map(str::to_owned))
}

/// `interfaceArgs.master`: any of an interface's names.
pub(super) fn master(args: &Dict<'_>) -> Result<Option<String>, Error> {
    Ok(args.checked("master", alternative_name)?.map(str::to_owned))
}

/// `interfaceArgs.mtu`: at least what IPv4 needs (68, RFC 791), at most what fits in its length field. 0 counts as
/// unset, as in other plugins.
pub(super) fn mtu(args: &Dict<'_>) -> Result<Option<u32>, Error> {
    let Some(field) = args.get("mtu").filter(|field| field.value.as_str() != Some("")) else {
        return Ok(None);
    };
    let number = field.number()?;
    if number == 0 {
        return Ok(None);
    }
    u32::try_from(number)
        .ok()
        .filter(|mtu| (68..=65_535).contains(mtu))
        .map(Some)
        .ok_or_else(|| field.invalid("it must be 68 to 65535 bytes, or to be left out for the master's"))
}

#[cfg(test)]
mod tests {
    use super::{InterfaceType, IpvlanMode, Kind, MacvlanMode, kind, mac_bytes, mac_text};
    use crate::cni::Code;

    #[test]
    fn a_mac_address_is_parsed() {
        let mac = [0x02, 0, 0xff, 0x10, 0xab, 1];
        assert_eq!(mac_text(mac), "02:00:ff:10:ab:01");
        assert_eq!(mac_bytes(&mac_text(mac)), Some(mac));
        assert_eq!(mac_bytes("02:00:ff:10:ab"), None);
        assert_eq!(mac_bytes("02:00:ff:10:ab:01:02"), None);
        assert_eq!(mac_bytes("zz:00:ff:10:ab:01"), None);
        assert_eq!(mac_bytes("+2:00:ff:10:ab:1"), None);
    }

    #[test]
    fn each_type_has_its_modes_and_a_default() {
        assert_eq!(kind(InterfaceType::Macvlan, None).unwrap(), Kind::Macvlan(MacvlanMode::Bridge));
        assert_eq!(
            kind(InterfaceType::Macvlan, Some("passthru")).unwrap(),
            Kind::Macvlan(MacvlanMode::Passthru)
        );
        assert_eq!(kind(InterfaceType::Ipvlan, None).unwrap(), Kind::Ipvlan(IpvlanMode::L2));
        assert_eq!(kind(InterfaceType::Ipvlan, Some("l3s")).unwrap(), Kind::Ipvlan(IpvlanMode::L3s));
        assert_eq!(kind(InterfaceType::AwsElasticIp, None).unwrap(), Kind::Ipvlan(IpvlanMode::L2));
    }

    #[test]
    fn the_error_of_a_wrong_mode_lists_the_modes_of_the_type() {
        let error = kind(InterfaceType::Ipvlan, Some("bridge")).unwrap_err();
        assert_eq!(error.code, Code::InvalidConfig);
        assert_eq!(
            error.message,
            r#"interfaceArgs.mode is "bridge": for interfaceType ipvlan it must be l2, l3, l3s"#
        );
        assert!(kind(InterfaceType::Macvlan, Some("l2")).is_err());
        assert!(kind(InterfaceType::AwsElasticIp, Some("l3")).is_err());
    }
}
