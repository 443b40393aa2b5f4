//! Interprets the table's expressions, and compares the decision for any destinations and any packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use common::netlink::nftables::Verdict;
use common::netlink::nftables::expression::{Comparison, Ct, Expression, Header, Meta};
use ipnet::IpNet;
use proptest::prelude::*;

use super::*;

/// A packet and its metadata.
#[derive(Debug, Clone)]
struct Packet {
    iifname: &'static str,
    oifname: &'static str,
    to: IpAddr,
    protocol: u8,
    port: u16,
    /// None if not tracked.
    connection: Option<Tracked>,
}

#[derive(Debug, Clone)]
struct Tracked {
    state: u32,
    direction: u8,
    status: u32,
    mark: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Accepted,
    Fails,
}

impl Packet {
    fn header(&self, header: Header) -> Vec<u8> {
        match (header, self.to) {
            (Header::Network, IpAddr::V4(to)) => [&[0; 16][..], &to.octets()].concat(),
            (Header::Network, IpAddr::V6(to)) => [&[0; 24][..], &to.octets()].concat(),
            (Header::Link, _) => panic!("no rule of family inet reads it"),
            // ICMPv6: its type is the first byte. Others: the destination's port.
            (Header::Transport, _) => {
                [&self.port.to_be_bytes()[1..], &[0], &self.port.to_be_bytes()].concat()
            }
        }
    }

    fn meta(&self, key: Meta) -> Vec<u8> {
        let name = |name: &str| [name.as_bytes(), &[0; 16]].concat()[..16].to_vec();
        match key {
            Meta::InputName => name(self.iifname),
            Meta::OutputName => name(self.oifname),
            Meta::Family => vec![if self.to.is_ipv6() { 10 } else { 2 }],
            Meta::Protocol => vec![self.protocol],
            Meta::Mark => vec![0; 4],
            Meta::RouteClass => panic!("no rule of family inet reads it"),
        }
    }
}

impl Tracked {
    fn load(&self, key: Ct) -> Vec<u8> {
        match key {
            Ct::State => self.state.to_ne_bytes().to_vec(),
            Ct::Direction => vec![self.direction],
            Ct::Status => self.status.to_ne_bytes().to_vec(),
            Ct::Mark => self.mark.to_ne_bytes().to_vec(),
            other => panic!("no filter has {other:?}"),
        }
    }
}

/// The decision of the chain and those that it jumps to. None without a decision.
fn decide(ruleset: &Ruleset, chain: &str, packet: &Packet) -> Option<Outcome> {
    let (_, rules) = ruleset.chains.iter().find(|(other, _)| other.name == chain)?;
    rules.iter().find_map(|rule| run(ruleset, rule, packet))
}

fn run(ruleset: &Ruleset, rule: &Rule, packet: &Packet) -> Option<Outcome> {
    let mut register = Vec::new();
    for expression in &rule.expressions {
        match expression {
            Expression::Meta(key) => register = packet.meta(*key),
            Expression::Ct { key, .. } => register = packet.connection.as_ref()?.load(*key),
            Expression::Payload { header, offset, length, .. } => {
                let (start, length) = (*offset as usize, *length as usize);
                register = packet.header(*header)[start..start + length].to_vec();
            }
            Expression::Bitwise { mask, xor } => {
                let bits = register.iter().zip(mask).zip(xor);
                register = bits.map(|((byte, mask), xor)| byte & mask ^ xor).collect();
            }
            Expression::Compare { comparison, value } => {
                assert!(matches!(comparison, Comparison::Equal | Comparison::NotEqual));
                if (register == *value) != (*comparison == Comparison::Equal) {
                    return None;
                }
            }
            Expression::InSet { set: name, included: true } => {
                let (set, elements) = ruleset.sets.iter().find(|(set, _)| set.name == *name).unwrap();
                let below = elements.iter().rfind(|element| element.key <= register)?;
                if below.end || !set.interval && below.key != register {
                    return None;
                }
            }
            Expression::Verdict(Verdict::Accept) => return Some(Outcome::Accepted),
            Expression::Verdict(Verdict::Drop) | Expression::Reject(_) => return Some(Outcome::Fails),
            Expression::Verdict(Verdict::Jump(chain)) => return decide(ruleset, chain, packet),
            other => panic!("no filter has {other:?}"),
        }
    }
    None
}

/// Few values, so that lists, redirects and packets match.
fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (0_u32..16).prop_map(|n| IpAddr::from(Ipv4Addr::from(0x0a00_0000 | n << 28 | n))),
        (0_u128..16).prop_map(|n| IpAddr::from(Ipv6Addr::from(0xfd << 120 | n << 100 | n))),
        prop_oneof![
            Just("2001:db8:50::1"),
            Just("2001:db8:51::1"),
            Just("fe80::1"),
            Just("ff02::1"),
            Just("ff05::1")
        ]
        .prop_map(|address| address.parse().unwrap()),
    ]
}

fn net() -> impl Strategy<Value = IpNet> {
    (address(), any::<prop::sample::Index>()).prop_map(|(address, length)| {
        let most = if address.is_ipv6() { 129 } else { 33 };
        IpNet::new(address, u8::try_from(length.index(most)).unwrap()).unwrap()
    })
}

fn destinations() -> impl Strategy<Value = Destinations> {
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)];
    let redirect = (1_u16..4, protocol, address(), proptest::option::of(1_u16..4))
        .prop_map(|(port, protocol, to, to_port)| Redirect { port, protocol, to, to_port });
    (
        proptest::option::of(proptest::collection::vec(net(), 0..4)),
        proptest::collection::vec(redirect, 0..4),
        proptest::option::of(address()),
    )
        .prop_map(|(allowed, redirects, fallback)| Destinations {
            allowed,
            redirects,
            fallback_v4: fallback.and_then(|to| if let IpAddr::V4(to) = to { Some(to) } else { None }),
            fallback_v6: fallback.and_then(|to| if let IpAddr::V6(to) = to { Some(to) } else { None }),
        })
}

fn packet() -> impl Strategy<Value = Packet> {
    let interface = || prop_oneof![Just("net1"), Just("eth0"), Just("net10"), Just("lo")];
    let mark = prop_oneof![
        Just(0),
        Just(names::mark(1)),
        Just(names::mark(2)),
        Just(names::egress_mark(names::mark(1))),
        Just(names::egress_mark(names::mark(2))),
        any::<u32>()
    ];
    // New, established or related; the bit of a translated destination, and others.
    let tracked = (
        prop_oneof![Just(8_u32), Just(2), Just(4)],
        0_u8..2,
        prop_oneof![Just(0_u32), Just(0x20), any::<u32>()],
        mark,
    )
        .prop_map(|(state, direction, status, mark)| Tracked { state, direction, status, mark });
    (
        interface(),
        interface(),
        address(),
        prop_oneof![Just(6_u8), Just(17), Just(132), Just(1), Just(58), any::<u8>()],
        prop_oneof![1_u16..5, 130_u16..144],
        proptest::option::of(tracked),
    )
        .prop_map(|(iifname, oifname, to, protocol, port, connection)| Packet {
            iifname,
            oifname,
            to,
            protocol,
            port,
            connection,
        })
}

/// Whether a local program may send this, computed from the destinations and not from the table.
fn may_leave(destinations: &Destinations, packet: &Packet) -> bool {
    let Some(allowed) = &destinations.allowed else { return true };
    // Of connections that arrived on the attachment.
    let arrived =
        packet.connection.as_ref().filter(|connection| connection.mark & 0xff00_0000 == 0x0100_0000);
    let reply_direction = arrived.is_some_and(|connection| connection.direction == 1);
    let related = arrived.is_some_and(|connection| connection.state == 4);
    let error = related && [1, 58].contains(&packet.protocol);
    let neighbours =
        near(packet.to) && packet.protocol == 58 && [131, 132, 133, 135, 136, 143].contains(&packet.port);
    let redirected = destinations.redirects.iter().any(|redirect| {
        let port = redirect.to_port.unwrap_or(redirect.port);
        (redirect.to, redirect.protocol.number(), port) == (packet.to, packet.protocol, packet.port)
    });
    let fallback = destinations.fallback_v4.map(IpAddr::V4) == Some(packet.to)
        || destinations.fallback_v6.map(IpAddr::V6) == Some(packet.to);
    packet.oifname != "net1"
        || reply_direction
        || error
        || neighbours
        || redirected
        || fallback
        || allowed.iter().any(|net| net.contains(&packet.to))
}

/// A host on the link, a link-local address or a link-local group.
fn near(to: IpAddr) -> bool {
    let IpAddr::V6(to) = to else { return false };
    let [first, second, third, ..] = to.segments();
    to.is_unicast_link_local() || first == 0xff02 || [first, second, third] == [0x2001, 0xdb8, 0x50]
}

fn both_families(destinations: Destinations) -> Firewall {
    firewall(&["192.168.50.10", "2001:db8:50::10"], destinations)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The final routing decision is before the postrouting chain; a packet may be rerouted, and its destination translated, after the chain
    /// `output` has seen its first interface.
    #[test]
    fn packets_of_local_programs_are_accepted_only_if_allowed(destinations in destinations(), packet in packet()) {
        let may = may_leave(&destinations, &packet);
        let limited = destinations.allowed.is_some() && packet.oifname == "net1";
        let mark = packet.connection.as_ref().map_or(0, |connection| connection.mark);
        let of_primary = mark & 0x00ff_0000 != 0;
        let stood = of_primary && mark & 0xff00_0000 == 0;
        let is_reply = packet.connection.as_ref().is_some_and(|connection| connection.direction == 1);
        let lost = stood || of_primary && is_reply;
        let redirected = destinations.redirect() && mark & 0xff00_0000 == 0x0100_0000
            && packet.connection.as_ref().is_some_and(|connection| connection.status & 0x20 != 0 && connection.direction == 0);
        let ruleset = both_families(destinations).ruleset();
        let accepted = |chain: &str| decide(&ruleset, chain, &packet) != Some(Outcome::Fails);
        // Routed to another interface.
        prop_assert_eq!(accepted("output"), may || stood);
        // By the attachment.
        prop_assert_eq!(accepted("output") && accepted("postrouting_filter"), may && !(limited && lost));
        // By the attachment, after the chain `output` has seen another interface.
        prop_assert_eq!(accepted("postrouting_filter"), !limited || !lost && (may || redirected));
    }

    #[test]
    fn forwarded_packets_were_redirected_by_this_attachment(destinations in destinations(), packet in packet()) {
        let redirects = destinations.redirect();
        let ours = packet.connection.as_ref().is_some_and(|connection| {
            connection.status & 0x20 != 0 && connection.mark & 0xff00_0000 == 0x0100_0000
        });
        let way = (packet.iifname, packet.oifname, packet.connection.as_ref().map(|connection| connection.direction));
        let concerns = packet.iifname == "net1" || packet.oifname == "net1";
        let may = !concerns
            || redirects && ours && [("eth0", "net1", Some(0)), ("net1", "eth0", Some(1))].contains(&way);
        let ruleset = both_families(destinations).ruleset();
        let accepted = decide(&ruleset, "forward", &packet) != Some(Outcome::Fails);
        prop_assert_eq!(accepted, may);
    }

    /// Between other interfaces: redirects of another attachment, and what the pod forwarded before.
    #[test]
    fn redirects_do_not_enable_other_forwarding(destinations in destinations(), packet in packet(), v4: bool, v6: bool) {
        let forwards = Forwards { v4, v6 };
        let redirects = destinations.redirect();
        let alone = decide(&both_families(destinations.clone()).ruleset(), "forward", &packet);
        let translated =
            packet.connection.as_ref().is_some_and(|connection| connection.status & 0x20 != 0);
        let newly = if packet.to.is_ipv6() { v6 } else { v4 && packet.iifname == "eth0" };
        let ruleset = Firewall { forwards, ..both_families(destinations) }.ruleset();
        let accepted = decide(&ruleset, "forward", &packet) != Some(Outcome::Fails);
        let others = packet.iifname != "net1" && packet.oifname != "net1";
        let is_reply = packet.iifname == "eth0"
            && packet.connection.as_ref().is_some_and(|connection| connection.direction == 1);
        let refused = redirects && others && newly && !translated && !is_reply;
        prop_assert_eq!(accepted, alone != Some(Outcome::Fails) && !refused);
    }

    #[test]
    fn without_a_primary_interface_nothing_is_forwarded(destinations in destinations(), packet in packet()) {
        let concerns = packet.iifname == "net1" || packet.oifname == "net1";
        let ruleset = Firewall { primary: BTreeMap::new(), ..both_families(destinations) }.ruleset();
        prop_assert_eq!(decide(&ruleset, "forward", &packet) == Some(Outcome::Fails), concerns);
    }
}
