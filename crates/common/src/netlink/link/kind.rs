//! Kinds and modes of links on a master.

/// The mode of a macvlan (linux/if_link.h, MACVLAN_MODE_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MacvlanMode {
    /// `bridge`, the default.
    #[default]
    Bridge,
    /// `private`.
    Private,
    /// `vepa`.
    Vepa,
    /// `passthru`.
    Passthru,
}

/// The mode of an ipvlan (linux/if_link.h, IPVLAN_MODE_*).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IpvlanMode {
    /// `l2`, the default.
    #[default]
    L2,
    /// `l3`: no ARP, no gateway.
    L3,
    /// `l3s`: l3, with the host's netfilter.
    L3s,
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

pub(super) fn macvlan_number(mode: MacvlanMode) -> u32 {
    match mode {
        MacvlanMode::Private => 1,
        MacvlanMode::Vepa => 2,
        MacvlanMode::Bridge => 4,
        MacvlanMode::Passthru => 8,
    }
}

pub(super) fn ipvlan_number(mode: IpvlanMode) -> u16 {
    match mode {
        IpvlanMode::L2 => 0,
        IpvlanMode::L3 => 1,
        IpvlanMode::L3s => 2,
    }
}

pub(super) fn macvlan_mode(number: u32) -> Option<MacvlanMode> {
    MACVLAN_MODES.into_iter().find(|mode| macvlan_number(*mode) == number)
}

pub(super) fn ipvlan_mode(number: u16) -> Option<IpvlanMode> {
    IPVLAN_MODES.into_iter().find(|mode| ipvlan_number(*mode) == number)
}
