//! Any reply of a kernel about links, addresses, routes, rules and settings of devices is decoded or refused. A decoded route can be requested,
//! and is decoded unchanged.
#![no_main]

use common::netlink::address::Address;
use common::netlink::link::Link;
use common::netlink::message::{acknowledgement, messages};
use common::netlink::netconf::Netconf;
use common::netlink::route::Route;
use common::netlink::rule::Rule;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|datagram: &[u8]| {
    for (header, payload) in messages(datagram).flatten() {
        let _ = acknowledgement(header, payload);
        let _ = (Link::decode(payload), Address::decode(payload), Netconf::decode(payload));
        if let Ok(Some(rule)) = Rule::decode(payload) {
            assert_eq!(Rule::decode(rule.add().body()).map(|decoded| decoded.is_some()), Ok(true));
        }
        // Some other attributes are equivalent, so with them it must only be decodable.
        if let Ok(Some(route)) = Route::decode(payload) {
            let decoded = Route::decode(route.add(None).body());
            if route.rest.is_empty() {
                assert_eq!(decoded, Ok(Some(route)));
            }
        }
    }
});
