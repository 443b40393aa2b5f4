//! Kinds and modes of links on a master.

/// The mode of a macvlan (linux/if_link.h, MACVLAN_MODE_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MacvlanMode {
    /// `private`.
    Private = 1,
    /// `vepa`.
    Vepa = 2,
    /// `bridge`, the default.
    #[default]
    Bridge = 4,
    /// `passthru`.
    Passthru = 8,
}

/// The mode of an ipvlan (linux/if_link.h, IPVLAN_MODE_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IpvlanMode {
    /// `l2`, the default.
    #[default]
    L2 = 0,
    /// `l3`: no ARP, no gateway.
    L3 = 1,
    /// `l3s`: l3, with the host's netfilter.
    L3s = 2,
}

/// The kind and mode of a link on a master.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A macvlan.
    Macvlan(MacvlanMode),
    /// An ipvlan.
    Ipvlan(IpvlanMode),
}

/// The kernel's name of a link kind.
#[must_use]
pub fn name_of(kind: &Kind) -> &'static str {
    match kind {
        Kind::Macvlan(_) => "macvlan",
        Kind::Ipvlan(_) => "ipvlan",
    }
}

pub(super) const MACVLAN_MODES: [MacvlanMode; 4] =
    [MacvlanMode::Private, MacvlanMode::Vepa, MacvlanMode::Bridge, MacvlanMode::Passthru];
pub(super) const IPVLAN_MODES: [IpvlanMode; 3] = [IpvlanMode::L2, IpvlanMode::L3, IpvlanMode::L3s];

pub(super) fn macvlan_mode(number: u32) -> Option<MacvlanMode> {
    MACVLAN_MODES.into_iter().find(|mode| *mode as u32 == number)
}

pub(super) fn ipvlan_mode(number: u16) -> Option<IpvlanMode> {
    IPVLAN_MODES.into_iter().find(|mode| *mode as u16 == number)
}
