//! The only reader: what stands on the node, and what stands in the pod.

use std::collections::BTreeMap;

use crate::netlink::address::Address;
use crate::netlink::link::Link;
use crate::netlink::route::Route;
use crate::netlink::rule::Rule;

/// What inference needs of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Host {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// Routes of the table main.
    pub routes: Vec<Route>,
}

/// What a plan needs of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pod {
    /// All links.
    pub links: Vec<Link>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// Unicast (and unreachable, blackhole, prohibit, throw) routes of all tables but local.
    pub routes: Vec<Route>,
    /// All rules.
    pub rules: Vec<Rule>,
    /// Sysctls that a plan may change, by the parts of their names (`["net", "ipv4", "conf", "eth0", "rp_filter"]`).
    pub sysctls: BTreeMap<Vec<String>, String>,
    /// Our tables: interface name to its notes.
    pub attachments: BTreeMap<String, Vec<String>>,
}
