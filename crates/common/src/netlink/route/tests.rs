use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::netlink::isolated::{ip, isolated};
use crate::netlink::socket::{Protocol, Socket};

fn address_of(ipv6: bool, bytes: [u8; 16]) -> IpAddr {
    let [a, b, c, d, ..] = bytes;
    if ipv6 { IpAddr::from(bytes) } else { IpAddr::from([a, b, c, d]) }
}

prop_compose! {
    fn routes()(
        ipv6: bool,
        table in (1_u32..).prop_filter("not local", |table| *table != LOCAL_TABLE),
        bytes: [u8; 16],
        prefix in 0_u8..=32,
        gateway in of(any::<(bool, [u8; 16])>()),
        device in of(any::<u32>()),
        source in of(any::<[u8; 16]>()),
        metric in of(any::<u32>()),
        (protocol, scope, tos) in any::<(u8, u8, u8)>(),
        kind in proptest::sample::select(KINDS.to_vec()),
        flags in 0_u32..8,
        rest in vec((prop_oneof![Just(8_u16), Just(11), Just(22 | NESTED)], vec(any::<u8>(), 0..20)), 0..3),
    ) -> Route {
        Route {
            table,
            destination: IpNet::new(address_of(ipv6, bytes), prefix).unwrap().trunc(),
            gateway: gateway.map(|(ipv6, bytes)| address_of(ipv6, bytes)),
            device: device.map(Device::Index),
            source: source.map(|bytes| address_of(ipv6, bytes)),
            metric, protocol, scope, kind, tos, flags: flags & ASKED, rest,
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_cause_a_panic(bytes: Vec<u8>, family in prop_oneof![Just(2_u8), Just(10)], table: u8) {
        let _ = Route::decode(&bytes);
        let header = [family, 0, 0, 0, table, 4, 0, 1, 0, 0, 0, 0];
        let _ = Route::decode(&[header.as_slice(), &bytes].concat());
        let _ = (asked_paths(&bytes), nexthops(&bytes));
    }

    /// A route with a changed byte: if it is decoded, it can be requested.
    #[test]
    fn every_decoded_route_can_be_requested(route in routes(), place: prop::sample::Index, byte: u8) {
        let mut bytes = route.add(None).body().to_vec();
        *place.get_mut(&mut bytes) = byte;
        if let Ok(Some(read)) = Route::decode(&bytes) {
            let decoded = Route::decode(read.add(None).body());
            if read.rest.is_empty() {
                prop_assert_eq!(decoded, Ok(Some(read)));
            }
        }
    }

    #[test]
    fn a_request_decodes_like_an_existing_route(route in routes()) {
        for message in [route.add(None), route.append(None), route.replace(None), route.delete(None)] {
            prop_assert_eq!(Route::decode(message.body()), Ok(Some(route.clone())));
        }
    }
}

fn dump(socket: &mut Socket) -> Vec<Route> {
    socket.dump(&Route::all(None), |_, payload| Route::decode(payload)).unwrap()
}

/// The output of ip(8) in order, without lifetimes.
fn shown() -> String {
    ["-4", "-6"].map(|family| ip(&format!("-d {family} route show table all"))).concat()
}

#[test]
fn a_deleted_route_is_added_again_unchanged() {
    isolated(|| {
        for line in [
            "link set lo up",
            "link add eth0 type veth peer name eth1",
            // The kernel would add a route for a link-local address some time later.
            "link set eth0 addrgenmode none",
            "link set eth1 addrgenmode none",
            "link set eth0 up",
            "link set eth1 up",
            "addr add 10.1.0.2/24 dev eth0",
            "addr add 10.2.0.2/24 dev eth1",
            "addr add fd00:1::2/64 dev eth0 nodad",
            "addr add fd00:2::2/64 dev eth1 nodad",
            "nexthop add id 7 via 10.1.0.9 dev eth0",
            "route add 10.10.0.0/16 via 10.1.0.1",
            "route add 10.11.0.0/16 via 10.1.0.1 src 10.1.0.2 metric 77 mtu lock 1300 advmss 1200 proto 99",
            "route add 10.12.0.0/16 nexthop via 10.1.0.1 weight 3 nexthop via 10.2.0.1 weight 1",
            "route add 10.13.0.0/16 nhid 7",
            "route add 10.14.0.0/16 via inet6 fd00:1::1 dev eth0",
            "route add 10.15.0.0/16 via 192.0.2.1 dev eth0 onlink table 71001",
            "route add 10.16.0.0/16 dev eth0 scope link tos 0x10",
            "route add unreachable 10.17.0.0/16",
            "route add blackhole 10.18.0.0/16 metric 5",
            "route add prohibit 10.19.0.0/16",
            "route add throw 10.20.0.0/16 table 9",
            "route add 10.21.0.0/16 via 10.1.0.1 realm 5",
            "-6 nexthop add id 8 via fd00:1::9 dev eth0",
            "-6 route add fd00:13::/64 nhid 8",
            "route add default via 10.1.0.1",
            "route append default via 10.1.0.3 metric 9",
            "-6 route add fd00:10::/64 via fd00:1::1",
            "-6 route add fd00:11::/64 via fd00:1::1 src fd00:1::2 metric 77 mtu 1300 pref high",
            "-6 route add fd00:12::/64 nexthop via fd00:1::1 weight 3 nexthop via fd00:2::1 weight 1",
            "-6 route add fd00:14::/64 from fd00:99::/48 via fd00:1::1",
            "-6 route add fd00:15::/64 dev eth0 metric 5 table 71001",
            "-6 route add unreachable fd00:17::/64",
            "-6 route add blackhole fd00:18::/64",
            "-6 route add default via fd00:1::1",
        ] {
            ip(line);
        }
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let (before, text) = (dump(&mut socket), shown());
        assert!(before.len() >= 25, "{before:?}");
        let mut link = |name: &str| socket.link_by_name(name).unwrap().unwrap().index;
        let (eth0, eth1) = (link("eth0"), link("eth1"));
        let address = |text: &str| Some(text.parse::<IpAddr>().unwrap());
        for (destination, paths) in [
            ("10.10.0.0/16", vec![(eth0, address("10.1.0.1"))]),
            ("10.12.0.0/16", vec![(eth0, address("10.1.0.1")), (eth1, address("10.2.0.1"))]),
            ("10.14.0.0/16", vec![(eth0, address("fd00:1::1"))]),
            ("10.16.0.0/16", vec![(eth0, None)]),
            ("10.17.0.0/16", vec![]),
            ("fd00:12::/64", vec![(eth0, address("fd00:1::1")), (eth1, address("fd00:2::1"))]),
        ] {
            let destination: IpNet = destination.parse().unwrap();
            let route = before.iter().find(|route| route.destination == destination).unwrap();
            assert_eq!(route.paths(), paths, "{route}");
        }
        for route in before.iter().filter(|route| route.protocol != 2) {
            socket.request(&route.delete(None)).unwrap_or_else(|error| panic!("delete {route}: {error}"));
            assert!(!dump(&mut socket).contains(route), "{route} is still there");
            socket.request(&route.add(None)).unwrap_or_else(|error| panic!("add {route}: {error}"));
            assert_eq!(dump(&mut socket), before, "{route}");
        }
        assert_eq!(shown(), text);
    });
}

#[test]
fn a_replaced_default_route_is_restored() {
    isolated(|| {
        for line in [
            "link add eth0 type veth peer name eth1",
            // The kernel would add a route for a link-local address some time later.
            "link set eth0 addrgenmode none",
            "link set eth1 addrgenmode none",
            "link set eth0 up",
            "link set eth1 up",
            "addr add 10.1.0.2/24 dev eth0",
            "addr add fd00:1::2/64 dev eth0 nodad",
            "route add default via 10.1.0.1 metric 3",
            "-6 route add default via fd00:1::1",
        ] {
            ip(line);
        }
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let (before, text) = (dump(&mut socket), shown());
        let link = ip("-o link show eth1").split(':').next().unwrap().parse().unwrap();
        for old in before.iter().filter(|route| route.destination.prefix_len() == 0) {
            let new =
                Route { metric: old.metric, ..Route::unicast(99, 254, old.destination, None, Device::New) };
            assert!(new.rivals(old));
            socket.request(&new.replace(Some(link))).unwrap();
            assert!(!dump(&mut socket).contains(old));
            socket.request(&old.replace(None)).unwrap();
            assert_eq!(dump(&mut socket), before);
        }
        assert_eq!(shown(), text);
        assert!(
            socket
                .request(
                    &Route::unicast(99, 254, "10.9.0.0/16".parse().unwrap(), None, Device::New).add(None)
                )
                .is_err()
        );
    });
}
