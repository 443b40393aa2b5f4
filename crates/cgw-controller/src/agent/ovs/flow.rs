//! Flows of Open vSwitch: the ones that the driver writes, and the ones that `ovs-ofctl dump-flows` prints, in one canonical form.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::Ipv4Addr,
};

use ipnet::Ipv4Net;

use crate::api::TunMac;

/// Cookie of every flow of the driver. openshift-sdn's own flows have the cookie 0 or a 32-bit hash.
pub const COOKIE: u64 = 0xc6e0_0000_0000_0000;
/// The bits of a cookie that tell the driver's flows from others.
pub const COOKIE_MASK: u64 = 0xfff0_0000_0000_0000;

/// A condition of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// IPv4
    Ip,
    /// TCP over IPv4
    Tcp,
    /// Number of the port that the packet came from.
    InPort(u32),
    /// Source address.
    NwSrc(Ipv4Net),
    /// Destination address.
    NwDst(Ipv4Net),
    /// Source address of the VXLAN packet.
    TunSrc(Ipv4Addr),
    /// The tag of a bound pod.
    Reg3(u32),
    /// Conntrack's state, flags in the order that Open vSwitch prints.
    CtState(&'static str),
    /// Conntrack's zone of the last lookup.
    CtZone(u16),
    /// TCP flags.
    TcpFlags(&'static str),
    /// All clauses of the conjunction matched.
    Conjunction(u32),
}

impl Match {
    fn parts(self) -> (&'static str, String) {
        match self {
            Match::Ip => ("ip", String::new()),
            Match::Tcp => ("tcp", String::new()),
            Match::InPort(port) => ("in_port", port.to_string()),
            Match::NwSrc(net) => ("nw_src", network(net)),
            Match::NwDst(net) => ("nw_dst", network(net)),
            Match::TunSrc(address) => ("tun_src", address.to_string()),
            Match::Reg3(value) => ("reg3", format!("{value:#x}")),
            Match::CtState(flags) => ("ct_state", flags.into()),
            Match::CtZone(zone) => ("ct_zone", zone.to_string()),
            Match::TcpFlags(flags) => ("tcp_flags", flags.into()),
            Match::Conjunction(id) => ("conj_id", id.to_string()),
        }
    }
}

/// As Open vSwitch prints a network: a host without a length, the others by their network address.
fn network(net: Ipv4Net) -> String {
    if net.prefix_len() == 32 { net.addr().to_string() } else { net.trunc().to_string() }
}

/// An action of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// reg0: the VNID of the source.
    LoadReg0(u32),
    /// reg3: the tag of a bound pod.
    LoadReg3(u32),
    /// The VNID goes into the VXLAN header.
    VnidToTunnel,
    /// The VNID comes from the VXLAN header.
    VnidFromTunnel,
    /// Destination MAC address.
    SetEthDst(TunMac),
    /// The node that the VXLAN packet is sent to.
    SetTunDst(Ipv4Addr),
    /// Sends by a port.
    Output(u32),
    /// Continues in a later table.
    Goto(u8),
    /// Reads conntrack and continues in a table.
    CtTable(u8),
    /// Reads a zone of conntrack and continues in a table.
    CtZoneTable(u16, u8),
    /// Records the connection in conntrack.
    CtCommit,
    /// Records the connection in a zone of conntrack.
    CtCommitZone(u16),
    /// A clause of a conjunction: ID, number, count.
    Conjunction(u32, u8, u8),
    /// Drops the packet.
    Drop,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::LoadReg0(value) => write!(f, "load:{value:#x}->NXM_NX_REG0[]"),
            Action::LoadReg3(value) => write!(f, "load:{value:#x}->NXM_NX_REG3[]"),
            Action::VnidToTunnel => f.write_str("move:NXM_NX_REG0[]->NXM_NX_TUN_ID[0..31]"),
            Action::VnidFromTunnel => f.write_str("move:NXM_NX_TUN_ID[0..31]->NXM_NX_REG0[]"),
            Action::SetEthDst(mac) => write!(f, "set_field:{mac}->eth_dst"),
            Action::SetTunDst(address) => write!(f, "set_field:{address}->tun_dst"),
            Action::Output(port) => write!(f, "output:{port}"),
            Action::Goto(table) => write!(f, "goto_table:{table}"),
            Action::CtTable(table) => write!(f, "ct(table={table})"),
            Action::CtZoneTable(zone, table) => write!(f, "ct(table={table},zone={zone})"),
            Action::CtCommitZone(zone) => write!(f, "ct(commit,zone={zone})"),
            Action::CtCommit => f.write_str("ct(commit)"),
            Action::Conjunction(id, clause, count) => write!(f, "conjunction({id},{clause}/{count})"),
            Action::Drop => f.write_str("drop"),
        }
    }
}

/// The identity of a flow in its bridge: a second flow of the same key replaces the first one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Table.
    pub table: u8,
    /// The largest number that matches wins.
    pub priority: u16,
    /// Conditions: name and value, which is empty for a protocol's name.
    pub matches: BTreeMap<String, String>,
}

impl Key {
    /// The value of a condition.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.matches.get(name).map(String::as_str)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table={},priority={}", self.table, self.priority)?;
        for (name, value) in &self.matches {
            let separator = if value.is_empty() { "" } else { "=" };
            write!(f, ",{name}{separator}{value}")?;
        }
        Ok(())
    }
}

/// A flow in its canonical form. Equal flows do the same with a packet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// Where and when.
    pub key: Key,
    /// Cookie, which tells the program that wrote it.
    pub cookie: u64,
    /// Actions in order, as text.
    pub actions: Vec<String>,
}

impl Flow {
    /// A flow of the driver.
    #[must_use]
    pub fn new(table: u8, priority: u16, matches: &[Match], actions: &[Action]) -> Flow {
        let matches = matches
            .iter()
            .map(|condition| {
                let (name, value) = condition.parts();
                (name.to_owned(), value)
            })
            .collect();
        Flow {
            key: Key { table, priority, matches },
            cookie: COOKIE,
            actions: actions.iter().map(ToString::to_string).collect(),
        }
    }

    /// Whether the driver wrote it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.cookie & COOKIE_MASK == COOKIE
    }
}

impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cookie={:#x},{},actions={}", self.cookie, self.key, self.actions.join(","))
    }
}

/// A line of `ovs-ofctl dump-flows` that is no flow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the line {line:?} of the flow table is no flow: {cause}")]
pub struct ParseError {
    /// The line, cut after 200 characters.
    pub line: String,
    /// The part that is not understood.
    pub cause: &'static str,
}

/// The flows that `ovs-ofctl dump-flows` printed.
///
/// # Errors
/// A line is no flow.
pub fn parse_dump(text: &str) -> Result<BTreeSet<Flow>, ParseError> {
    text.lines()
        .map(str::trim)
        // "OFPST_FLOW reply (OF1.3) (xid=0x2):", without or with flags.
        .filter(|line| !line.is_empty() && !line.contains("_FLOW reply"))
        .map(parse_line)
        .collect()
}

/// Counters and times of a flow.
const STATISTICS: [&str; 5] = ["duration", "n_packets", "n_bytes", "idle_age", "hard_age"];

fn parse_line(line: &str) -> Result<Flow, ParseError> {
    let error = |cause| ParseError { line: line.chars().take(200).collect(), cause };
    let (head, actions) = line.split_once("actions=").ok_or_else(|| error("it has no actions"))?;
    // Priority 32768 is the default and is not printed.
    let mut flow = Flow {
        key: Key { table: 0, priority: 0x8000, matches: BTreeMap::new() },
        cookie: 0,
        actions: split_actions(actions),
    };
    for part in head.split([',', ' ']).filter(|part| !part.is_empty()) {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        match name {
            "cookie" => {
                let digits = value.strip_prefix("0x").ok_or_else(|| error("its cookie is no number"))?;
                flow.cookie =
                    u64::from_str_radix(digits, 16).map_err(|_| error("its cookie is no number"))?;
            }
            "table" => flow.key.table = value.parse().map_err(|_| error("its table is no number"))?,
            "priority" => {
                flow.key.priority = value.parse().map_err(|_| error("its priority is no number"))?
            }
            name if STATISTICS.contains(&name) => {}
            name => {
                let value = value.strip_suffix("/32").unwrap_or(value);
                flow.key.matches.insert(name.to_owned(), value.to_owned());
            }
        }
    }
    Ok(flow)
}

/// Splits at the commas that are outside of parentheses.
fn split_actions(text: &str) -> Vec<String> {
    let mut actions = vec![String::new()];
    let mut depth = 0_u32;
    for character in text.trim().chars() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                actions.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = actions.last_mut() {
            last.push(character);
        }
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Open vSwitch 3.1, flows of the driver and of openshift-sdn.
    const DUMP: &str = include_str!("tests/dump.txt");

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn dump_of_open_vswitch_equals_the_written_flows() {
        let mac: TunMac = "3a:a8:33:5f:e8:d9".parse().unwrap();
        let pod = net("10.128.0.10/32");
        let cluster = net("10.128.0.0/14");
        let written = BTreeSet::from([
            Flow::new(
                0,
                1120,
                &[
                    Match::InPort(1),
                    Match::Ip,
                    Match::CtState("-trk"),
                    Match::NwSrc(cluster),
                    Match::NwDst(net("224.0.0.0/4")),
                ],
                &[Action::CtTable(0)],
            ),
            Flow::new(
                0,
                1110,
                &[
                    Match::InPort(3),
                    Match::Tcp,
                    Match::TcpFlags("+rst"),
                    Match::CtState("-trk"),
                    Match::NwSrc(pod),
                ],
                &[Action::Goto(20)],
            ),
            Flow::new(
                0,
                210,
                &[
                    Match::InPort(1),
                    Match::TunSrc([192, 168, 50, 11].into()),
                    Match::Ip,
                    Match::NwSrc(cluster),
                ],
                &[Action::VnidFromTunnel, Action::SetEthDst(mac), Action::Goto(100)],
            ),
            Flow::new(
                20,
                110,
                &[Match::Ip, Match::InPort(3), Match::NwSrc(pod)],
                &[Action::LoadReg0(0x003f_6450), Action::LoadReg3(0xaabb), Action::CtTable(21)],
            ),
            Flow::new(
                100,
                160,
                &[Match::Ip, Match::CtState("+rpl+trk"), Match::Reg3(0xaabb)],
                &[Action::Goto(101)],
            ),
            Flow::new(
                100,
                140,
                &[Match::Ip, Match::Reg3(0xaabb)],
                &[
                    Action::CtCommit,
                    Action::SetEthDst(mac),
                    Action::VnidToTunnel,
                    Action::SetTunDst([192, 168, 50, 21].into()),
                    Action::Output(1),
                ],
            ),
            Flow::new(100, 140, &[Match::Ip, Match::Reg3(0xccdd)], &[Action::Drop]),
            Flow::new(100, 155, &[Match::Ip, Match::Reg3(0xaabb)], &[Action::Conjunction(50912, 1, 2)]),
            Flow::new(
                100,
                155,
                &[Match::Ip, Match::NwDst(net("192.168.50.11/32"))],
                &[Action::Conjunction(50912, 2, 2)],
            ),
            Flow::new(100, 155, &[Match::Ip, Match::Conjunction(50912)], &[Action::Goto(101)]),
        ]);
        let observed = parse_dump(DUMP).unwrap();
        let (ours, base): (BTreeSet<_>, BTreeSet<_>) = observed.into_iter().partition(Flow::is_ours);
        assert_eq!(ours, written);
        assert_eq!(base.len(), 4);
        let pod = base.iter().find(|flow| flow.key.table == 20 && flow.key.get("ip").is_some()).unwrap();
        assert_eq!((pod.key.get("in_port"), pod.key.get("nw_src")), (Some("3"), Some("10.128.0.10")));
        let default = base.iter().find(|flow| flow.key.table == 99).unwrap();
        assert_eq!((default.key.priority, default.key.matches.len()), (0x8000, 0));
    }

    #[test]
    fn canonical_text_is_parsed_into_the_same_flow() {
        for flow in parse_dump(DUMP).unwrap() {
            assert_eq!(parse_dump(&flow.to_string()).unwrap(), BTreeSet::from([flow]));
        }
    }

    #[test]
    fn line_that_is_no_flow_is_refused() {
        for line in
            ["ovs-ofctl: br0 is not a bridge", " cookie=zz, table=0 actions=drop", " table=300 actions=drop"]
        {
            assert!(parse_dump(line).is_err(), "{line}");
        }
    }
}
