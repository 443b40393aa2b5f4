use std::collections::BTreeSet;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::*;
use crate::netlink::isolated::{ip, isolated, nft, run};
use crate::netlink::nftables::dump::{self, Dump};
use crate::netlink::nftables::expression::{Direction, PERSISTENT, RANDOM_FULLY, Reject};
use crate::netlink::nftables::rule::{
    STATE_ESTABLISHED, STATE_NEW, STATE_RELATED, STATUS_DNAT, STATUS_SNAT, interface_name,
};
use crate::netlink::nftables::set::{backend_data, concatenated, service_key};
use crate::netlink::nftables::{ChainType, DataType as T, Field, Hook, Verdict, comment, interval};
use crate::netlink::socket::Protocol;

const TABLE: &str = "gateway";
const TCP: u8 = 6;
const UDP: u8 = 17;
const SYN: u8 = 2;
const RST: u8 = 4;

fn address(number: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a00_0000 | number)
}

fn batch(family: Family) -> Batch {
    Batch::new(family, TABLE)
}

fn socket() -> Socket {
    Socket::open(Protocol::Netfilter).unwrap()
}

fn dumped(socket: &mut Socket, family: Family) -> Dump {
    dump::table(socket, family, TABLE).unwrap().unwrap()
}

fn digest(dump: &Dump) -> Vec<u8> {
    let mut all = Vec::new();
    dump.digest(|part| all.extend_from_slice(part));
    all
}

/// The lines of a chain or set in `nft list table`, without their indentation.
fn block(listed: &str, head: &str) -> Vec<String> {
    let lines = listed.lines().map(str::trim);
    let inside = lines.skip_while(|line| *line != format!("{head} {{")).skip(1);
    inside.take_while(|line| *line != "}").map(str::to_owned).collect()
}

#[test]
fn matches_and_statements_are_listed_as_nft_writes_them() {
    isolated(|| {
        let mut socket = socket();
        let fields = [Field::DestinationAddress, Field::Protocol, Field::DestinationPort];
        let match_chain = [
            Rule::new().iifname("eth0").oifname("vx0").accept(),
            Rule::new().iifname_not("eth0").oifname_not("vx0").drop(),
            Rule::new().ip_saddr(address(1)).ip_daddr(address(2)).counter(),
            Rule::new().ip_protocol(UDP).counter(),
            Rule::new().l4proto(TCP).sport(80).dport(443).counter(),
            Rule::new().l4proto(TCP).tcp_flags(SYN, SYN | RST).counter(),
            Rule::new().mark(0x10, 0xff).counter(),
            Rule::new().mark(0x10, u32::MAX).counter(),
            Rule::new().ct_state(STATE_ESTABLISHED | STATE_RELATED).counter(),
            Rule::new().ct_direction(Direction::Reply).counter(),
            Rule::new().ct_status(STATUS_SNAT).counter(),
            Rule::new().ct_mark(0x20, 0xff00).counter(),
            Rule::new().ct_original_daddr(address(3)).counter(),
            Rule::new().daddr_is_local().counter(),
            Rule::new().in_set(&[Field::SourceAddress], "networks").jump("inner"),
            Rule::new().not_in_set(&[Field::SourceAddress], "networks").goto("inner"),
            Rule::new().ct_original_daddr_in("hosts").return_to_caller(),
            Rule::new().vmap(&fields, "services"),
            Rule::new().comment("the last rule").l4proto(TCP).reject(Reject::Reset),
        ];
        let change_chain = [
            Rule::new().set_mark(0x100, 0xff00),
            Rule::new().set_mark(7, u32::MAX),
            Rule::new().set_mark_from_ct(0xff),
            Rule::new().set_mark_from_map(&[Field::SourceAddress], "marks"),
            Rule::new().set_ct_mark(0x100, 0xff00),
            Rule::new().set_ct_mark(7, u32::MAX),
            Rule::new().set_ct_mark_from_mark(0xff),
            Rule::new().l4proto(TCP).tcp_flags(SYN, SYN | RST).clamp_mss(),
            Rule::new().l4proto(TCP).tcp_flags(SYN, SYN | RST).set_mss(1360),
        ];
        let snat_chain = [
            Rule::new().ip_saddr(address(1)).snat(address(9), None, 0),
            Rule::new().ip_saddr(address(2)).l4proto(TCP).snat(address(9), Some((1024, 2047)), RANDOM_FULLY),
            Rule::new().snat_from_map(&[Field::SourceAddress], "sources", PERSISTENT),
        ];
        let dnat_chain = [
            Rule::new().ip_daddr(address(1)).dnat(address(9), None),
            Rule::new().ip_daddr(address(2)).l4proto(TCP).dnat(address(9), Some(8080)),
            Rule::new().dnat_from_map(&[Field::DestinationAddress], "sources"),
            Rule::new().l4proto(TCP).dnat_by_hash(
                &[Field::SourceAddress, Field::SourcePort],
                7,
                2,
                "backends",
            ),
        ];
        let mut batch = batch(Family::Ipv4)
            .create_table(&comment::encode("of the agent"))
            .add_chain(&Chain::regular("inner"))
            .add_chain(&Chain::base("match", ChainType::Filter, Hook::Forward, -1).comment("matches"))
            .add_chain(&Chain::base("change", ChainType::Filter, Hook::Postrouting, -150))
            .add_chain(&Chain::base("reroute", ChainType::Route, Hook::Output, -150))
            .add_chain(&Chain::base("snat", ChainType::Nat, Hook::Postrouting, 100))
            .add_chain(&Chain::base("dnat", ChainType::Nat, Hook::Prerouting, -100))
            .add_chain(&Chain::base("input", ChainType::Filter, Hook::Input, 0))
            .add_set(&Set::networks("networks").comment("pods"))
            .add_set(&Set::new("hosts", &[T::Ipv4]))
            .add_set(&Set::new("links", &[T::InterfaceName]))
            .add_set(&Set::map("marks", &[T::Ipv4], &[T::Mark]))
            .add_set(&Set::map("sources", &[T::Ipv4], &[T::Ipv4]))
            .add_set(&Set::map("backends", &[T::Index], &[T::Ipv4, T::Service]))
            .add_set(&Set::verdict_map("services", &[T::Ipv4, T::Protocol, T::Service]))
            .add_elements("networks", &interval::bounds(false, &["10.244.0.0/16".parse().unwrap()]))
            .add_elements("hosts", &[Element::new(address(4).octets())])
            .add_elements("links", &[Element::new(interface_name("eth0"))])
            .add_elements("marks", &[Element::with_value(address(5).octets(), 0x20_u32.to_ne_bytes())])
            .add_elements("sources", &[Element::with_value(address(6).octets(), address(7).octets())])
            .add_elements(
                "backends",
                &[0_u32, 1].map(|index| {
                    Element::with_value(index.to_ne_bytes(), backend_data(address(index), 8080))
                }),
            )
            .add_elements(
                "services",
                &[
                    Element::with_verdict(service_key(address(8), TCP, 80), Verdict::Jump("inner".into())),
                    Element::with_verdict(service_key(address(8), UDP, 53), Verdict::Drop),
                ],
            );
        for (chain, rules) in [
            ("match", &match_chain[..]),
            ("change", &change_chain),
            ("snat", &snat_chain),
            ("dnat", &dnat_chain),
        ] {
            for rule in rules {
                batch = batch.add_rule(chain, rule);
            }
        }
        batch.commit(&mut socket).unwrap();
        let listed = nft("list table ip gateway");
        println!("{listed}");
        println!("{}", run("nft", ["--debug=netlink", "list", "table", "ip", "gateway"]));
    });
}
