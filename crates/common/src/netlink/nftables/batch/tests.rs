use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

use super::*;
use crate::netlink::isolated::{ip, isolated, nft};
use crate::netlink::nftables::dump::{self, Dump};
use crate::netlink::nftables::expression::{Direction, Reject};
use crate::netlink::nftables::rule::{STATE_INVALID, STATE_NEW, STATE_UNTRACKED, STATUS_DNAT, STATUS_SNAT};
use crate::netlink::nftables::set::{backend_data, concatenated, service_key};
use crate::netlink::nftables::{ChainType, DataType as T, Field, Hook, Verdict, interval};
use crate::netlink::socket::Protocol;

mod listed;
use listed::LISTED;

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
        let from_to = [Field::SourceAddress, Field::Protocol, Field::DestinationPort];
        let client = |number, port| service_key(address(number), TCP, port);
        let match_chain = [
            Rule::new().iifname("eth0").oifname("vx0").accept(),
            Rule::new().iifname_not("eth0").drop(),
            Rule::new().l4proto(TCP).dport(443).counter(),
            Rule::new().l4proto(TCP).tcp_flags(SYN, SYN | RST).counter(),
            Rule::new().ct_state(STATE_INVALID | STATE_UNTRACKED).counter(),
            Rule::new().ct_direction(Direction::Reply).counter(),
            Rule::new().ct_status(STATUS_SNAT).counter(),
            Rule::new().ct_mark(0x20, 0xff00).counter(),
            Rule::new().daddr_is_local().counter(),
            Rule::new().in_set(&[Field::SourceAddress], "networks").jump("inner"),
            Rule::new().not_in_set(&[Field::SourceAddress], "networks").goto("inner"),
            Rule::new().ct_original_daddr_in("hosts").return_to_caller(),
            Rule::new().vmap(&fields, "services"),
            Rule::new().in_set(&from_to, "clients").counter(),
            Rule::new().comment("the last rule").l4proto(TCP).reject(Reject::Reset),
        ];
        let change_chain = [
            Rule::new().set_mark(0x100, 0xff00),
            Rule::new().set_mark(7, u32::MAX),
            Rule::new().set_ct_mark(0x100, 0xff00),
            Rule::new().set_ct_mark(7, u32::MAX),
            Rule::new().l4proto(TCP).tcp_flags(SYN, SYN | RST).clamp_mss(),
        ];
        let snat_chain = [Rule::new().snat_from_map(&[Field::SourceAddress], "sources")];
        let client_port = [Field::SourceAddress, Field::SourcePort];
        let dnat_chain = [Rule::new().l4proto(TCP).dnat_by_hash(&client_port, 7, 2, "backends")];
        let mut batch = batch(Family::Ipv4)
            .replace_table()
            .add_chain(&Chain::regular("inner"))
            .add_chain(&Chain::base("match", ChainType::Filter, Hook::Forward, -1).comment("matches"))
            .add_chain(&Chain::base("change", ChainType::Filter, Hook::Postrouting, -150))
            .add_chain(&Chain::base("reroute", ChainType::Route, Hook::Output, -150))
            .add_chain(&Chain::base("snat", ChainType::Nat, Hook::Postrouting, 100))
            .add_chain(&Chain::base("dnat", ChainType::Nat, Hook::Prerouting, -100))
            .add_chain(&Chain::base("input", ChainType::Filter, Hook::Input, 0))
            .add_set(&Set::networks("networks", false))
            .add_set(&Set::ranges("clients", &[T::Ipv4, T::Protocol, T::Service]))
            .add_set(&Set::new("hosts", &[T::Ipv4]))
            .add_set(&Set::map("marks", &[T::Ipv4], &[T::Mark]))
            .add_set(&Set::map("sources", &[T::Ipv4], &[T::Ipv4]))
            .add_set(&Set::map("backends", &[T::Index], &[T::Ipv4, T::Service]))
            .add_set(&Set::verdict_map("services", &[T::Ipv4, T::Protocol, T::Service]))
            .add_elements("networks", &interval::bounds(false, &["10.244.0.0/16".parse().unwrap()]))
            .add_elements(
                "clients",
                &[
                    Element::range(client(0x1_0000, 80), client(0x1_ffff, 80)),
                    Element::range(client(7, 80), client(7, 90)),
                ],
            )
            .add_elements("hosts", &[Element::new(address(4).octets())])
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
        for (head, expected) in LISTED {
            let expected: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            assert_eq!(block(&listed, head), expected, "{head}: {listed}");
        }
        let dump = dumped(&mut socket, Family::Ipv4);
        assert_eq!((dump.chains.len(), dump.sets.len()), (7, 7));
    });
}

/// 5,000 elements of a map from addresses to marks.
fn many() -> Vec<Element> {
    (0..5000_u32).map(|number| Element::with_value(address(number).octets(), number.to_ne_bytes())).collect()
}

/// A table of family inet with a map of marks.
fn with_marks(elements: &[Element]) -> Batch {
    batch(Family::Inet)
        .replace_table()
        .add_set(&Set::map("marks", &[T::Ipv4], &[T::Mark]))
        .add_elements("marks", elements)
}

#[test]
fn a_map_of_5000_elements_is_written_read_and_changed() {
    isolated(|| {
        let mut socket = socket();
        let elements = many();
        with_marks(&elements).commit(&mut socket).unwrap();
        let map = [Set::map("marks", &[T::Ipv4], &[T::Mark])];
        let has = |socket: &mut Socket, elements: &[Element]| {
            dumped(socket, Family::Inet).is(&[], &[], &map, |_| elements.iter().collect())
        };
        assert!(has(&mut socket, &elements));
        let listed = nft("list map inet gateway marks");
        assert_eq!(listed.matches("10.0.").count(), 5000);
        assert!(listed.contains("10.0.19.135 : 0x00001387"), "the last one");

        // The same elements again change nothing; other data for a key are refused.
        batch(Family::Inet).add_elements("marks", &elements).commit(&mut socket).unwrap();
        let other = [Element::with_value(address(0).octets(), 9_u32.to_ne_bytes())];
        let error = batch(Family::Inet).add_elements("marks", &other).commit(&mut socket).unwrap_err();
        assert_eq!(
            error.to_string(),
            "nf_tables: table gateway: adding elements to the set marks failed: File exists"
        );
        // Replaced in one batch.
        let changed =
            batch(Family::Inet).delete_elements("marks", &elements[..1]).add_elements("marks", &other);
        changed.commit(&mut socket).unwrap();
        let replaced: Vec<_> = other.iter().chain(&elements[1..]).cloned().collect();
        assert!(has(&mut socket, &replaced));
        batch(Family::Inet).delete_elements("marks", &elements[1..]).commit(&mut socket).unwrap();
        assert!(has(&mut socket, &other));
        batch(Family::Inet).flush_set("marks").commit(&mut socket).unwrap();
        assert!(has(&mut socket, &[]));
    });
}

#[test]
fn the_dump_changes_when_another_program_changes_the_table() {
    isolated(|| {
        let mut socket = socket();
        assert_eq!(dump::table(&mut socket, Family::Inet, TABLE).unwrap(), None);
        let output = Chain::base("output", ChainType::Filter, Hook::Output, 0);
        let rule = Rule::new().comment("counts").counter();
        with_marks(&many())
            .add_chain(&output)
            .add_rule("output", &rule)
            .add_set(&Set::networks("networks", false))
            .commit(&mut socket)
            .unwrap();
        let before = dumped(&mut socket, Family::Inet);
        let generation = dump::generation(&mut socket).unwrap();
        assert_eq!(before.sets[0].elements.len(), 5000);

        // Counters and other tables do not count.
        ip("link set lo up");
        UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", "127.0.0.1:9").unwrap();
        assert!(!nft("list table inet gateway").contains("counter packets 0"));
        assert_eq!(dump::generation(&mut socket).unwrap(), generation);
        nft("add table inet other; add chain inet other output; add set inet other s { type ipv4_addr; }");
        assert_ne!(dump::generation(&mut socket).unwrap(), generation);
        assert_eq!(dumped(&mut socket, Family::Inet), before);

        let mut seen = vec![before];
        for change in [
            "add element inet gateway marks { 10.9.9.9 : 0x1 }",
            "delete element inet gateway marks { 10.0.0.1 }",
            "add element inet gateway networks { 10.0.0.0/8 }",
            "add rule inet gateway output drop",
            "insert rule inet gateway output accept",
            "add chain inet gateway other",
            "add set inet gateway other { type ipv4_addr; }",
            "add chain inet gateway output { policy drop; }",
            "add table inet gateway { flags dormant; }",
        ] {
            nft(change);
            let now = dumped(&mut socket, Family::Inet);
            assert!(!seen.contains(&now), "{change}");
            seen.push(now);
        }
        batch(Family::Inet).delete_table().commit(&mut socket).unwrap();
        assert_eq!(dump::table(&mut socket, Family::Inet, TABLE).unwrap(), None);
        let error = batch(Family::Inet).delete_table().commit(&mut socket).unwrap_err();
        assert!(error.is(&[libc::ENOENT]), "{error}");
    });
}

#[test]
fn a_refused_batch_changes_nothing_and_its_error_has_the_object() {
    isolated(|| {
        let mut socket = socket();
        batch(Family::Ipv4).replace_table().add_chain(&Chain::regular("a")).commit(&mut socket).unwrap();
        let before = dumped(&mut socket, Family::Ipv4);
        let refused = batch(Family::Ipv4)
            .add_chain(&Chain::regular("b"))
            .add_rule("b", &Rule::new().accept())
            .add_rule("b", &Rule::new().comment("first").jump("missing"))
            .add_rule("b", &Rule::new().in_set(&[Field::SourceAddress], "missing"));
        let error = refused.commit(&mut socket).unwrap_err();
        assert_eq!(
            error.to_string(),
            "nf_tables: table gateway: adding rule 2 of the batch, to chain b (first) failed: No such file or directory"
        );
        assert_eq!(dumped(&mut socket, Family::Ipv4), before);
        let mut exists = |table, chain| dump::has_chain(&mut socket, Family::Ipv4, table, chain).unwrap();
        assert!(exists(TABLE, "a") && !exists(TABLE, "b") && !exists("other", "a"));
        batch(Family::Ipv4).commit(&mut socket).unwrap();
    });
}

#[test]
fn packets_reach_the_backend_that_the_hash_selects() {
    isolated(|| {
        ip("link set lo up");
        let mut socket = socket();
        let service = Ipv4Addr::new(127, 0, 0, 100);
        let backends = [2, 3].map(|last| UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).unwrap());
        let elements: Vec<_> = (0_u32..)
            .zip(&backends)
            .map(|(index, backend)| {
                let std::net::SocketAddr::V4(at) = backend.local_addr().unwrap() else { panic!("IPv4") };
                Element::with_value(index.to_ne_bytes(), backend_data(*at.ip(), at.port()))
            })
            .collect();
        let fields = [Field::DestinationAddress, Field::Protocol, Field::DestinationPort];
        let marked = Rule::new().ct_status(STATUS_DNAT).ct_state(STATE_NEW);
        batch(Family::Ipv4)
            .replace_table()
            .add_chain(&Chain::regular("service"))
            .add_chain(&Chain::base("dnat", ChainType::Nat, Hook::Output, -100))
            .add_chain(&Chain::base("count", ChainType::Filter, Hook::Output, 0))
            .add_set(&Set::verdict_map("services", &[T::Ipv4, T::Protocol, T::Service]))
            .add_elements(
                "services",
                &[
                    Element::with_verdict(service_key(service, UDP, 53), Verdict::Goto("service".into())),
                    Element::with_verdict(service_key(service, UDP, 54), Verdict::Drop),
                ],
            )
            .add_set(&Set::map("backends", &[T::Index], &[T::Ipv4, T::Service]))
            .add_elements("backends", &elements)
            .add_rule("dnat", &Rule::new().vmap(&fields, "services"))
            .add_rule(
                "service",
                &Rule::new().l4proto(UDP).dnat_by_hash(
                    &[Field::SourceAddress, Field::SourcePort],
                    7,
                    2,
                    "backends",
                ),
            )
            .add_rule("count", &marked.counter())
            .commit(&mut socket)
            .unwrap();
        for _ in 0..64 {
            UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", (service, 53)).unwrap();
        }
        for backend in &backends {
            backend.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(backend.recv(&mut [0; 9]).unwrap(), 1);
        }
        assert!(nft("list chain ip gateway count").contains("counter packets 64"), "{}", nft("list ruleset"));
        let dropped = UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"x", (service, 54));
        assert_eq!(dropped.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    });
}

#[test]
fn a_value_of_a_concatenation_is_padded() {
    assert_eq!(service_key(Ipv4Addr::new(1, 2, 3, 4), TCP, 80), [1, 2, 3, 4, 6, 0, 0, 0, 0, 80, 0, 0]);
    assert_eq!(concatenated(&[&[1, 2, 3, 4], &[5]]), [1, 2, 3, 4, 5, 0, 0, 0]);
}
