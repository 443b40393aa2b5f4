//! Tests of the lab with Debian's plugins.

use e2e::egress_router::{
    BRIDGE, ELSEWHERE, GATEWAY, NODE, OUTSIDE, PORT, REMOTE, SERVICE, TestEnv, UPLINK, debian,
};
use serde_json::json;

#[test]
fn a_pod_reaches_everything_through_its_primary_interface_and_is_masqueraded_outside() {
    let env = TestEnv::new().unwrap();
    let pod = env.pod("pod").unwrap();
    for family in 0..2 {
        for (there, seen) in [
            (OUTSIDE, NODE[family]),
            (ELSEWHERE, NODE[family]),
            (GATEWAY, NODE[family]),
            (NODE, &pod.addresses[family]),
            (BRIDGE, &pod.addresses[family]),
            (REMOTE, &pod.addresses[family]),
            (SERVICE, &pod.addresses[family]),
        ] {
            pod.inside.wait_seen_as(seen, there[family], PORT).unwrap();
        }
    }
}

#[test]
fn debians_macvlan_leaves_with_its_address_and_is_removed_completely() {
    let env = TestEnv::new().unwrap();
    let pod = env.pod("pod").unwrap();
    let (before, node) = (pod.inside.network_state().unwrap(), env.node.network_state().unwrap());
    let config = json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": UPLINK, "ipam": {
        "type": "static", "addresses": [{"address": "192.168.50.99/24"}], "routes": [{"dst": "203.0.113.9/32", "gw": GATEWAY[0]}],
    }});
    let macvlan = env.other_plugin(debian("macvlan").unwrap(), &pod, "net1", config);
    let result = macvlan.add().unwrap();
    assert_eq!(result["ips"][0]["address"], "192.168.50.99/24", "{result}");
    pod.inside.wait_seen_as("192.168.50.99", OUTSIDE[0], PORT).unwrap();
    assert_ne!(before.changes(&pod.inside.network_state().unwrap()), Vec::<String>::new());
    macvlan.del(Some(&result)).unwrap();
    assert_eq!(before.changes(&pod.inside.network_state().unwrap()), Vec::<String>::new());
    assert_eq!(node.changes(&env.node.network_state().unwrap()), Vec::<String>::new());
    let refusal = macvlan
        .with(json!({"cniVersion": "1.0.0", "name": "lan", "type": "macvlan", "master": "none"}))
        .refused()
        .unwrap();
    assert!(refusal.words().contains("Link not found"), "{refusal:?}");
}
