//! All names and numbers of the plugin.

/// The nf_tables table (family inet) of the attachment whose interface is `interface`.
#[must_use]
pub fn table(interface: &str) -> String {
    format!("egress_router_{interface}")
}

/// The message about a kernel without the egress hook.
pub const NO_FRAME_FILTER: &str = "the kernel has no nf_tables egress hook (Linux 5.16, CONFIG_NETFILTER_EGRESS, CONFIG_IP_ROUTE_CLASSID): the \
                                   allow-list does not cover frames of packet sockets, which need CAP_NET_RAW";

/// The default name of a chained attachment's interface (`interfaceArgs.name`).
pub const CHAINED_INTERFACE: &str = "egress0";

/// Prefix of a link's temporary name, if its final name is in use on the node; the process ID in hexadecimal follows. At most 15 bytes,
/// because process IDs have at most 22 bits.
pub const TEMPORARY_NAME: &str = "egr";

/// The protocol number (rtm_protocol, FRA_PROTOCOL) of the plugin's routes and rules. ip-route(8) leaves unregistered numbers from 99 on
/// to administrators.
pub const PROTOCOL: u8 = 153;

/// An attachment's slot, 1 to 255, is the smallest that is free in its pod. Its routing tables, rules and mark are derived from it.
pub const SLOTS: u32 = 255;

/// The bits of packet and connection marks that the plugin uses, only inside a pod.
pub const MARK_MASK: u32 = 0x00ff_0000;

/// The mark of slot `slot`.
#[must_use]
pub fn mark(slot: u32) -> u32 {
    slot << 16
}

/// The bits of fwmark and conntrack mark that identify the attachment of a redirected connection, and of a connection that arrived on an
/// attachment with an allow-list; only inside a pod. They do not overlap [`MARK_MASK`]: a redirected connection from the primary interface
/// has both.
pub const EGRESS_MARK_MASK: u32 = MARK_MASK << 8;

/// The mark of connections that the attachment with the mark `mark` redirects. A rule for it looks up [`egress_table`], so that they
/// leave by this attachment: in the main table, the newest attachment has the default route.
#[must_use]
pub fn egress_mark(mark: u32) -> u32 {
    mark << 8
}

/// Routing table of `slot` with the previous routes of the primary interface: for the reply direction, and for DEL to restore.
#[must_use]
pub fn primary_table(slot: u32) -> u32 {
    71_000 + slot
}

/// Routing table of `slot` with the routes of its own interface, for packets with its source address.
#[must_use]
pub fn egress_table(slot: u32) -> u32 {
    72_000 + slot
}

/// Priority of the rules of `slot`: before main (32766).
#[must_use]
pub fn rule_priority(slot: u32) -> u32 {
    7_100 + slot
}
