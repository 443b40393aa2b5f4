//! `interfaceType` and `interfaceArgs`.

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

/// How a macvlan's siblings see each other (linux/if_link.h, MACVLAN_MODE_*).
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

/// On which layer an ipvlan forwards (linux/if_link.h, IPVLAN_MODE_*).
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

/// `interfaceArgs` of the type that was named, validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A macvlan.
    Macvlan(MacvlanMode),
    /// An ipvlan; AWS's too (l2).
    Ipvlan(IpvlanMode),
}
