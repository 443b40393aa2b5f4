//! Addresses (RTM_NEWADDR and its kin; linux/if_addr.h).

use ipnet::IpNet;

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
