//! Policy rules (RTM_NEWRULE and its kin; linux/fib_rules.h).

use ipnet::IpNet;

/// A rule that looks a table up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Which family.
    pub ipv6: bool,
    /// FRA_PRIORITY.
    pub priority: u32,
    /// FRA_FWMARK and FRA_FWMASK.
    pub mark: Option<(u32, u32)>,
    /// FRA_SRC.
    pub from: Option<IpNet>,
    /// FRA_TABLE.
    pub table: u32,
    /// FRA_PROTOCOL.
    pub protocol: u8,
}
