use proptest::prelude::*;

use super::*;

fn saved() -> impl Strategy<Value = Saved> {
    let rest = proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..4)), 0..2);
    let numbers = (any::<u32>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u8>(), any::<u32>());
    (
        any::<std::net::IpAddr>(),
        any::<Option<std::net::IpAddr>>(),
        any::<Option<std::net::IpAddr>>(),
        any::<Option<u32>>(),
        proptest::option::of("[a-z0-9.@_-]{1,15}"),
        numbers,
        rest,
    )
        .prop_map(
            |(to, gateway, source, metric, device, (table, protocol, scope, kind, tos, flags), rest)| {
                let route = Route {
                    table,
                    destination: IpNet::from(to),
                    gateway,
                    device: None,
                    source,
                    metric,
                    protocol,
                    scope,
                    kind,
                    tos,
                    flags,
                    rest: Vec::new(),
                };
                let mut saved = Saved { route, device };
                // If all the others have their maximum length, there is no space for it.
                let remaining = LIMIT - saved.line("default").len();
                let words =
                    |(kind, payload): &(u16, Vec<u8>)| format!(" rest {kind}:").len() + 2 * payload.len();
                saved.route.rest = rest.into_iter().filter(|one| words(one) <= remaining).collect();
                saved
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_written_record_is_read(
        slot in 1..=255_u32,
        order: u32,
        container_id in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,80}",
        network in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,80}",
        defaults in proptest::collection::vec(saved(), 0..3),
        routes in proptest::collection::vec(saved(), 0..3),
        default: bool,
    ) {
        let record = TableRecord {
            container_id, ifname: "net1".into(), network, slot, order,
            primary: [(Family::V4, Primary { interface: "eth0".into(), default })].into(),
            families: vec![Family::V4, Family::V6],
            defaults, routes,
            sysctls: vec![Changed {
                name: ["net", "ipv4", "conf", "a.b", "rp_filter"].map(str::to_owned).to_vec(),
                value: "2".into(),
                original: "1".into(),
            }],
        };
        let lines = record.lines();
        prop_assert!(lines.iter().all(|line| line.len() <= LIMIT), "{lines:?}");
        prop_assert_eq!(TableRecord::parse(&lines), Some(record));
    }

    #[test]
    fn no_line_causes_a_panic(lines in proptest::collection::vec("(slot|default|route|sysctl|home|) ?.{0,60}", 0..6)) {
        let _ = TableRecord::parse(&lines);
    }
}

#[test]
fn a_shortened_route_loses_only_its_other_attributes() {
    let mut route = super::super::route::unicast("0.0.0.0/0".parse().unwrap());
    route.gateway = Some("10.0.0.1".parse().unwrap());
    route.rest = vec![(9, vec![7; 200]), (8, vec![1, 2])];
    let saved = Saved { route, device: Some("eth0".into()) };
    let line = saved.line("default");
    assert_eq!(line, "default 0.0.0.0/0 via 10.0.0.1 dev eth0 proto 153 rest 8:0102");
}

/// The record of a pod of cluster-network-operator: each line is a rule.
#[test]
fn short_statements_share_a_line() {
    let mut route = super::super::route::unicast("0.0.0.0/0".parse().unwrap());
    route.gateway = Some("10.0.0.1".parse().unwrap());
    let record = TableRecord {
        slot: 1,
        order: 1,
        families: vec![Family::V4],
        primary: [(Family::V4, Primary { interface: "eth0".into(), default: true })].into(),
        defaults: vec![Saved { route, device: Some("eth0".into()) }],
        ..TableRecord::default()
    }
    .with_identity(&Identity {
        container_id: "c".repeat(64),
        ifname: "net1".into(),
        network: "egress".into(),
    });
    let lines = record.lines();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.len() <= comment::LIMIT), "{lines:?}");
    assert_eq!(TableRecord::parse(&lines), Some(record));
    // Lines with one statement each.
    let single =
        TableRecord::parse(&["slot 7 order 2", "container c", "ifname |", "network n", "home 4 ; default"]);
    let single = single.unwrap();
    assert_eq!(TableRecord::parse(&single.lines()), Some(single));
}

#[test]
fn identifiers_are_cut_when_written_and_compared() {
    let identity =
        Identity { container_id: "c".repeat(400), ifname: "net1".into(), network: "n".repeat(400) };
    let record = TableRecord { slot: 1, ..TableRecord::default() }.with_identity(&identity);
    assert!(record.belongs_to(&identity));
    assert_eq!(TableRecord::parse(&record.lines()), Some(record.clone()));
    assert!(record.is_of_network(&identity.network) && !record.is_of_network("m"));
    assert!(!record.belongs_to(&Identity { ifname: "net2".into(), ..identity }));
}

#[test]
fn a_record_without_a_slot_is_invalid() {
    assert_eq!(TableRecord::parse(&["network x"]), None);
    assert_eq!(TableRecord::parse(&["slot 256 order 1"]), None);
}
