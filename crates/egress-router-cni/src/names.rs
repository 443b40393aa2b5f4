//! Every name of ours, in one place.

/// The nf_tables table (family inet) of the attachment whose interface is `interface`.
#[must_use]
pub fn table(interface: &str) -> String {
    format!("egress_router_{interface}")
}

/// What a chained attachment's interface is called, unless `interfaceArgs.name` says so.
pub const CHAINED_INTERFACE: &str = "egress0";

/// What a link is called on its way into a pod, where its own name is taken on the node: this, and the process's ID in
/// hexadecimal. At most 15 bytes: process IDs have at most 22 bits.
pub const TEMPORARY_NAME: &str = "egr";

/// Routes and rules that are ours bear this protocol number (rtm_protocol, FRA_PROTOCOL): ip-route(8) leaves 99 and above
/// that no daemon has registered in rt_protos to administrators.
pub const PROTOCOL: u8 = 153;

/// An attachment's slot, 1 to 255, is the smallest that is free in its pod. It gives its routing tables, rules and mark.
pub const SLOTS: u32 = 255;

/// Which bits of packet and connection marks are ours, and only inside a pod.
pub const MARK_MASK: u32 = 0x00ff_0000;

/// The mark of slot `slot`.
#[must_use]
pub fn mark(slot: u32) -> u32 {
    slot << 16
}

/// The bits of fwmark and conntrack mark that identify the attachment of a redirected connection; only inside a pod. They do not
/// overlap [`MARK_MASK`]: a redirected connection from the primary interface has both.
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
