use std::net::IpAddr;

use super::*;
use crate::netlink::isolated::{ip, isolated};
use crate::netlink::route::{Device, Special};
use crate::netlink::socket::Protocol;

/// Unregistered in rt_protos.
const PROTOCOL: u8 = 154;
const TABLE: u32 = 73_001;

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn routes_of_a_table_are_added_replaced_and_deleted() {
    isolated(|| {
        for line in [
            "link add v0 type veth peer name v1",
            "link set v0 up",
            "link set v1 up",
            "addr add 192.0.2.9/32 dev v0",
        ] {
            ip(line);
        }
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let device = Device::Index(socket.link_by_name("v0").unwrap().unwrap().index);
        assert_eq!(socket.routes(Some(TABLE)).unwrap(), []);
        let gateway = Some(IpAddr::from([10, 244, 1, 0]));
        let default = Route::unicast(PROTOCOL, TABLE, net("0.0.0.0/0"), gateway, device)
            .onlink()
            .metrics(Some(1400), Some(1360));
        let host = Route::unicast(PROTOCOL, TABLE, net("203.0.113.7/32"), None, device);
        let throw = Route::special(PROTOCOL, TABLE, net("10.0.0.0/8"), Special::Throw);
        let elsewhere = Route::special(PROTOCOL, TABLE + 1, net("0.0.0.0/0"), Special::Blackhole);
        let all = [&default, &host, &throw];
        for route in all.into_iter().chain([&elsewhere]) {
            socket.replace_route(route).unwrap();
            socket.replace_route(route).unwrap();
        }
        let found = socket.routes(Some(TABLE)).unwrap();
        assert_eq!(found.len(), all.len(), "{found:?}");
        assert!(all.iter().all(|route| found.contains(route)), "{found:?}");
        let shown = ip(&format!("route show table {TABLE}"));
        assert!(
            shown.contains("default via 10.244.1.0 dev v0 proto 154 onlink mtu lock 1400 advmss 1360"),
            "{shown}"
        );
        assert!(shown.contains("throw 10.0.0.0/8 proto 154"), "{shown}");

        // The default becomes a blackhole: the type is no part of the key.
        let blackhole = Route::special(PROTOCOL, TABLE, net("0.0.0.0/0"), Special::Blackhole);
        socket.replace_route(&blackhole).unwrap();
        let found = socket.routes(Some(TABLE)).unwrap();
        assert!(found.contains(&blackhole) && !found.contains(&default), "{found:?}");

        ip(&format!("route add 10.9.0.0/16 dev v0 table {TABLE} proto static"));
        assert_eq!(socket.routes(Some(TABLE)).unwrap().len(), 4);
        assert_eq!(socket.routes_of_protocol(PROTOCOL).unwrap().len(), 4, "also in the other table");
        assert!(socket.delete_route(&blackhole).unwrap());
        assert!(!socket.delete_route(&blackhole).unwrap());
        assert!(!socket.routes(Some(TABLE)).unwrap().contains(&blackhole));
        let nowhere = Route::unicast(PROTOCOL, TABLE, net("10.3.0.0/16"), gateway, device);
        assert_eq!(
            socket.replace_route(&nowhere).unwrap_err().to_string(),
            format!(
                "replacing the route {nowhere} failed: Network is unreachable: Nexthop has invalid gateway"
            )
        );
        assert_eq!(blackhole.to_string(), format!("blackhole 0.0.0.0/0 table {TABLE}"));
    });
}

#[test]
fn rules_are_added_once_and_deleted() {
    isolated(|| {
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let rule = Rule::fwmark(PROTOCOL, 900, (0x10_0000, 0xff_0000), TABLE);
        assert!(socket.add_rule(&rule).unwrap());
        assert!(!socket.add_rule(&rule).unwrap());
        assert!(socket.rules().unwrap().contains(&rule));
        assert!(
            ip("rule show").contains("900:\tfrom all fwmark 0x100000/0xff0000 lookup 73001 proto 154"),
            "{}",
            ip("rule show")
        );
        assert!(socket.delete_rule(&rule).unwrap());
        assert!(!socket.delete_rule(&rule).unwrap());
        assert!(!socket.rules().unwrap().contains(&rule));
    });
}

#[test]
fn one_address_of_a_link_is_deleted() {
    isolated(|| {
        ip("link add v0 type veth peer name v1");
        ip("addr add 192.0.2.1/24 dev v1");
        let mut socket = Socket::open(Protocol::Route).unwrap();
        let link = socket.link_by_name("v0").unwrap().unwrap().index;
        let vips = [net("203.0.113.1/32"), net("203.0.113.2/32")];
        for vip in vips {
            ip(&format!("addr add {vip} dev v0"));
        }
        let mut found = socket.addresses_of(link).unwrap();
        found.sort_by_key(|address| address.net);
        assert_eq!(found.iter().map(|address| address.net).collect::<Vec<_>>(), vips);
        assert!(socket.delete_address(link, vips[0]).unwrap());
        assert!(!socket.delete_address(link, vips[0]).unwrap());
        assert_eq!(socket.addresses_of(link).unwrap()[0].net, vips[1]);
    });
}
