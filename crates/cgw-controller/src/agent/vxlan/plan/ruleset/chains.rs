//! Chains of every node, with the parts of them that only gateway candidates have.

use common::netlink::nftables::expression::{
    Comparison, Ct, Direction, Expression, Header, Meta, Nat, Register, Reject,
};
use common::netlink::nftables::rule::{STATE_INVALID, STATE_UNTRACKED, STATUS_DNAT, STATUS_SNAT};
use common::netlink::nftables::{Chain, ChainType, Family, Field, Hook, Rule};

use super::super::table::Table;
use super::super::{ARRIVED, DEVICE, LEFT, TRANSLATED, to_pods};
use super::gateway;
use crate::agent::datapath::Protocol;
use crate::agent::vxlan::Config;

pub(super) const SOURCE: &[Field] = &[Field::SourceAddress];
const DESTINATION: &[Field] = &[Field::DestinationAddress];
/// TCP's flag SYN.
const SYN: u8 = 0x02;
/// TCP's flags FIN, SYN, RST and ACK.
const OPENING: u8 = 0x17;
/// TCP's flags SYN and RST.
const SYN_RST: u8 = 0x06;
/// The first register, which all values are loaded to.
pub(super) const R: Register = Register::FIRST;

/// A connection with the same client, port and pod came another way, and its entry is not yet deleted: conntrack has given this one another
/// port of the client, which the pod would reset. The client sends again.
const PORT_TAKEN: &str = "a client's port that an older connection has";

/// The chains of a node.
struct Chains<'a> {
    config: &'a Config,
    /// Whether the node is a gateway candidate.
    candidate: bool,
}

/// Adds the chains.
pub(super) fn add(table: &mut Table, config: &Config, candidate: bool) {
    let chains = Chains { config, candidate };
    Chains::classify(table);
    chains.dnat(table);
    chains.after_dnat(table);
    chains.snat(table);
    chains.guard(table);
    chains.guard_device(table);
    chains.filter(table);
}

impl Chains<'_> {
    /// Hook prerouting before DNAT: the mark of a VIP.
    fn classify(table: &mut Table) {
        table.chain(
            Chain::base("prerouting-mangle", ChainType::Filter, Hook::Prerouting, -150),
            [
                Rule::new().iifname(DEVICE).goto("arrived"),
                // Replies to packets that came another way (a NodePort, a direct route) leave that way.
                did_not_arrive(Rule::new().ct_direction(Direction::Reply)).accept(),
                // A VIP is outside, also if its network is excluded.
                Rule::new().in_set(DESTINATION, "vips").goto("classify"),
                did_not_arrive(Rule::new()).in_set(DESTINATION, "inside").accept(),
                Rule::new().ct_state(STATE_INVALID | STATE_UNTRACKED).in_set(DESTINATION, "inside").accept(),
                Rule::new().goto("classify"),
            ],
        );
        table.chain(
            Chain::regular("arrived"),
            [
                // No translation would apply to it: it would leave with the pod's address.
                drop(
                    Rule::new().ct_state(STATE_INVALID | STATE_UNTRACKED),
                    "from the tunnel, without a connection",
                ),
                Rule::new().ct_direction(Direction::Original).set_ct_mark(ARRIVED, ARRIVED),
            ],
        );
        let unknown = Rule::new().in_set(SOURCE, "pod-networks").not_in_set(SOURCE, "unbound");
        table.chain(
            Chain::regular("classify"),
            [Rule::new().vmap(SOURCE, "bound"), drop(unknown, "a pod that the agent has not read")],
        );
    }

    /// Hook prerouting, before kube-proxy's chains of priority -100, in both of its modes: it neither translates nor masquerades what these
    /// rules have translated.
    fn dnat(&self, table: &mut Table) {
        let on_gateway = self.candidate.then(|| [gateway::restrict("sources"), gateway::dnat()]);
        // Of a bound pod, kube-proxy would show the peer the pod's address; of a client outside, it would open a connection on a gateway
        // that has just lost the VIP. Pods that are not bound may reach a VIP without its gateway.
        let to_gateway = Rule::new().in_set(DESTINATION, "vips").not_in_set(SOURCE, "unbound");
        let rules = on_gateway.into_iter().flatten().chain([keep_destination(to_gateway)]);
        table.chain(Chain::base("prerouting-nat", ChainType::Nat, Hook::Prerouting, -110), rules);
    }

    /// Hook prerouting after DNAT and the reverse translation of replies: the routing table of pods, or none.
    fn after_dnat(&self, table: &mut Table) {
        let mask = self.config.mark_mask;
        let mut rules = Vec::new();
        if self.candidate {
            let original = translated(Rule::new().ct_direction(Direction::Original));
            rules.push(mark_to_pods(original, mask).accept());
            let reply = arrived(Rule::new().ct_direction(Direction::Reply));
            rules.push(mark_to_pods(reply.ct_status(STATUS_SNAT | STATUS_DNAT), mask).accept());
        }
        // Another program has translated it to an address inside (kube-proxy does): it is no longer the gateway's.
        rules.push(
            marked(Rule::new().iifname_not(DEVICE), mask)
                .ct_direction(Direction::Original)
                .ct_status(STATUS_DNAT)
                .in_set(DESTINATION, "inside")
                .set_mark(0, mask),
        );
        table.chain(Chain::base("prerouting-filter", ChainType::Filter, Hook::Prerouting, -90), rules);
    }

    /// Hook postrouting, before the masquerade of the CNI plugin and of kube-proxy.
    fn snat(&self, table: &mut Table) {
        let mut rules = Vec::new();
        if self.candidate {
            let translated = || translated(Rule::new());
            let both = [Field::SourceAddress, Field::DestinationAddress];
            let to_candidate = || translated().in_set(DESTINATION, "pods-on-candidates");
            rules.extend([
                // The source would be, or is, an address of the pod's own node: the reply would not return here.
                snat_to_vip(to_candidate().in_set(SOURCE, "pods-of-other-gateways")),
                translated().snat_from_map(SOURCE, "vip-of"),
                snat_to_vip(translated().in_set(&both, "colocated")),
                snat_to_vip(to_candidate().in_set(SOURCE, "vips")),
                // Both are on one bridge of this node: the reply would not be translated.
                snat_to_vip(translated().in_set(SOURCE, "unbound").in_set(DESTINATION, "pods")),
                keep_source(translated()),
            ]);
        }
        rules.extend([
            keep_source(Rule::new().oifname(DEVICE)),
            keep_source(arrived(Rule::new()).in_set(DESTINATION, "pods")),
        ]);
        if self.candidate {
            let outside = Rule::new().not_in_set(DESTINATION, "inside");
            // A reply of a connection that another gateway had: a plain SYN would be a connection of the pod's own.
            let replies = [Field::SourceAddress, Field::Protocol, Field::SourcePort];
            let (tcp, udp) = (Protocol::Tcp.number(), Protocol::Udp.number());
            rules.extend([
                snat_with_port(not_opening(Rule::new().l4proto(tcp)), &replies, "replies"),
                snat_with_port(Rule::new().l4proto(udp), &replies, "replies"),
            ]);
            rules.extend([
                Rule::new().in_set(DESTINATION, "vips").snat_from_map(SOURCE, "vip-of"),
                not_original_inside(outside).snat_from_map(SOURCE, "vip-of"),
            ]);
        }
        table.chain(Chain::base("postrouting-nat", ChainType::Nat, Hook::Postrouting, 90), rules);
    }

    /// Hook postrouting, after all translation: nothing of a bound pod leaves with another address than its VIP.
    fn guard(&self, table: &mut Table) {
        let mask = self.config.mark_mask;
        let reply = || Rule::new().ct_direction(Direction::Reply);
        let mut rules = Vec::new();
        if self.candidate {
            let set = Expression::InSet { set: "vips".into(), included: false };
            let other = translated(Rule::new()).ct_status(STATUS_SNAT).with([snat_address(R), set]);
            rules.push(drop(other, PORT_TAKEN));
        }
        table.chain(
            Chain::base("postrouting-filter", ChainType::Filter, Hook::Postrouting, 200),
            rules.into_iter().chain([
                // The outer packet would have the mark too, and the device would be its route again.
                Rule::new().oifname(DEVICE).set_mark(0, mask).goto("guard-device"),
                drop(arrived(reply()), "a reply that does not return through the tunnel"),
                reply().accept(),
                in_set(Rule::new(), source(Direction::Original), "pods").goto("guard-bound"),
                arrived(Rule::new()).goto("guard-arrived"),
                drop(Rule::new().ct_mark(LEFT, LEFT), "a connection that was bound before"),
                drop(
                    Rule::new().in_set(SOURCE, "pods").not_in_set(DESTINATION, "inside"),
                    "a bound pod without a connection",
                ),
            ]),
        );
        let pair = || Rule::new().goto("guard-pair");
        table.chain(
            Chain::regular("guard-bound"),
            [
                Rule::new().ct_original_daddr_in("vips").goto("guard-pair"),
                Rule::new().in_set(DESTINATION, "inside").accept(),
                Rule::new().ct_original_daddr_in("inside").accept(),
                pair(),
            ],
        );
        table.chain(
            Chain::regular("guard-arrived"),
            [
                Rule::new().ct_original_daddr_in("vips").goto("guard-pair"),
                drop(Rule::new().in_set(DESTINATION, "pods").ct_status(STATUS_SNAT), PORT_TAKEN),
                Rule::new().in_set(DESTINATION, "pods").accept(),
                pair(),
            ],
        );
        let mut rules = Vec::new();
        if self.candidate {
            let set = Expression::InSet { set: "pairs".into(), included: true };
            for subject in [source(Direction::Original), original_destination()] {
                rules.push(Rule::new().with([subject, snat_address(R.plus(1)), set.clone()]).accept());
            }
        }
        rules.push(drop(Rule::new(), "not with its VIP"));
        table.chain(Chain::regular("guard-pair"), rules);
    }

    /// The guard of packets that leave through the device.
    fn guard_device(&self, table: &mut Table) {
        let mut rules = vec![
            Rule::new().ct_direction(Direction::Reply).accept(),
            arrived(Rule::new()).goto("guard-pair"),
        ];
        if self.candidate {
            let of_pod = in_set(translated(Rule::new()), source(Direction::Original), "pods");
            rules.extend([of_pod.goto("guard-pair"), translated(Rule::new()).accept()]);
        }
        rules.extend([
            drop(Rule::new().ct_status(STATUS_SNAT), "SNAT before the tunnel"),
            Rule::new().ct_direction(Direction::Original).set_ct_mark(LEFT, LEFT),
        ]);
        table.chain(Chain::regular("guard-device"), rules);
    }

    /// Hooks forward and input: MSS, VXLAN packets that no node sent, and the gateway's own stack.
    fn filter(&self, table: &mut Table) {
        let tcp = |rule: Rule| rule.l4proto(Protocol::Tcp.number());
        let vxlan = |rule: Rule| rule.l4proto(Protocol::Udp.number()).dport(self.config.port);
        table.chain(
            Chain::base("forward-filter", ChainType::Filter, Hook::Forward, -10),
            [
                tcp(Rule::new().oifname(DEVICE)).tcp_flags(SYN, SYN_RST).clamp_mss(),
                drop(vxlan(Rule::new()).in_set(DESTINATION, "nodes"), "VXLAN that a pod sent"),
            ],
        );
        let of_no_node = vxlan(Rule::new().iifname_not("lo")).not_in_set(SOURCE, "nodes");
        let mut rules = vec![drop(of_no_node, "VXLAN that no node sent")];
        if self.candidate {
            rules.push(Rule::new().in_set(DESTINATION, "vips").goto("input-vip"));
            // The stack must not reset a connection that another gateway had, or serve a port of the host on a VIP.
            table.chain(
                Chain::regular("input-vip"),
                [
                    Rule::new().ct_direction(Direction::Reply).accept(),
                    Rule::new().ct_status(STATUS_DNAT).accept(),
                    drop(Rule::new().l4proto(Protocol::Udp.number()), "UDP to a VIP, no Service's"),
                    tcp(Rule::new()).tcp_flags(SYN, OPENING).reject(Reject::Reset),
                    drop(tcp(Rule::new()), "TCP to a VIP, of an unknown connection"),
                ],
            );
        }
        table.chain(Chain::base("input-filter", ChainType::Filter, Hook::Input, -10), rules);
    }
}

/// The original direction of the connection arrived from the device.
pub(super) fn arrived(rule: Rule) -> Rule {
    rule.ct_mark(ARRIVED, ARRIVED)
}

fn did_not_arrive(rule: Rule) -> Rule {
    rule.ct_mark(0, ARRIVED)
}

/// The connection was translated from a VIP to a pod by this node. kube-proxy translates VIPs too, and its connections do not go
/// through the device.
pub(super) fn translated(rule: Rule) -> Rule {
    rule.ct_mark(TRANSLATED, TRANSLATED)
}

/// Sets the mark of packets to pods on other nodes.
pub(super) fn mark_to_pods(rule: Rule, mask: u32) -> Rule {
    rule.set_mark(to_pods(mask), mask)
}

/// Counts the packets, and drops them.
pub(super) fn drop(rule: Rule, comment: &str) -> Rule {
    rule.counter().drop().comment(comment)
}

/// Loads the source of a direction of the connection.
fn source(direction: Direction) -> Expression {
    Expression::Ct { to: R, key: Ct::Ipv4Source, direction: Some(direction) }
}

/// Loads the destination of the original direction, before DNAT.
fn original_destination() -> Expression {
    Expression::Ct { to: R, key: Ct::Ipv4Destination, direction: Some(Direction::Original) }
}

fn in_set(rule: Rule, load: Expression, set: &str) -> Rule {
    rule.with([load, Expression::InSet { set: set.into(), included: true }])
}

/// The destination before DNAT is not in a network of the cluster.
fn not_original_inside(rule: Rule) -> Rule {
    let set = Expression::InSet { set: "inside".into(), included: false };
    rule.with([original_destination(), set])
}

/// Loads the bits of `mask` of the packet's mark.
pub(super) fn mark(mask: u32) -> [Expression; 2] {
    let bits = Expression::Bitwise { mask: mask.to_ne_bytes().into(), xor: vec![0; 4] };
    [Expression::Meta(Meta::Mark), bits]
}

/// The packet has a mark in the bits of `mask`.
pub(super) fn marked(rule: Rule, mask: u32) -> Rule {
    let compare = Expression::Compare { comparison: Comparison::NotEqual, value: vec![0; 4] };
    rule.with(mark(mask)).with([compare])
}

/// Not a plain SYN. After the protocol TCP.
fn not_opening(rule: Rule) -> Rule {
    let flags = Expression::Payload { to: R, header: Header::Transport, offset: 13, length: 1 };
    let masked = Expression::Bitwise { mask: vec![OPENING], xor: vec![0] };
    let compare = Expression::Compare { comparison: Comparison::NotEqual, value: vec![SYN] };
    rule.with([flags, masked, compare])
}

/// SNAT to the address and port of the fields in a map.
fn snat_with_port(rule: Rule, fields: &[Field], map: &str) -> Rule {
    let nat = Expression::Nat { kind: Nat::Source, family: Family::Ipv4, port: Some(R.plus(1)) };
    rule.load(fields).with([Expression::FromMap(map.into()), nat])
}

/// Loads the source that SNAT has given to the connection.
fn snat_address(to: Register) -> Expression {
    Expression::Ct { to, key: Ct::Ipv4Destination, direction: Some(Direction::Reply) }
}

/// SNAT to its own source: the first translation of a connection is the only one, so neither the CNI plugin nor kube-proxy masquerades.
fn keep_source(rule: Rule) -> Rule {
    rule.load(SOURCE).with([nat(Nat::Source)])
}

/// DNAT to its own destination, for the same reason.
fn keep_destination(rule: Rule) -> Rule {
    rule.load(DESTINATION).with([nat(Nat::Destination)])
}

/// SNAT to the VIP that the client used.
fn snat_to_vip(rule: Rule) -> Rule {
    rule.with([original_destination(), nat(Nat::Source)])
}

/// Translation to the address in the first register.
fn nat(kind: Nat) -> Expression {
    Expression::Nat { kind, family: Family::Ipv4, port: None }
}
