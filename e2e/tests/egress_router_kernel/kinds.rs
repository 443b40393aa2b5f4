//! Kinds and modes of links.

use serde_json::{Value, json};

use crate::egress_router_kernel::env::{FAR, OUTSIDE, OUTSIDE_6, RESPONSE_TIMEOUT, TestEnv, config, run};
use crate::egress_router_kernel::machine::inside;

const EGRESS: &str = "192.168.50.77";
const EGRESS_6: &str = "2001:db8:50::77";

fn attachment(kind: &str, mode: &str, ip: Value) -> Value {
    config(json!({"interfaceType": kind, "interfaceArgs": {"mode": mode, "master": "up0"}, "ip": ip}))
}

/// ADD, connectivity, CHECK, DEL, and the initial state.
fn prove(config: &Value, seen: &[(&str, &str)]) -> Value {
    let env = TestEnv::new();
    let before = env.state();
    let result = env.succeed("ADD", config);
    for (host, expected) in seen {
        assert_eq!(env.seen_by(host).as_deref(), Some(*expected), "seen by {host}; {}", env.state());
    }
    assert_eq!(env.seen_by(FAR).as_deref(), Some("10.244.1.10"), "a pod on another node; {}", env.state());
    env.check(config, &result);
    env.succeed("DEL", config);
    env.until_state(&before);
    env.succeed("DEL", config);
    result
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn ipvlan_l2_leaves_with_its_own_address() {
    inside(|| {
        let config = attachment("ipvlan", "l2", json!({"addresses": ["192.168.50.77/24"]}));
        let result = prove(&config, &[(OUTSIDE, EGRESS)]);
        assert_eq!(result["ips"][0]["address"], "192.168.50.77/24");
        assert_eq!(result["ips"][0]["gateway"], "192.168.50.1");
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn ipvlan_l2_leaves_by_both_families() {
    inside(|| {
        let ip = json!({"addresses": ["192.168.50.77/24", "2001:db8:50::77/64"]});
        prove(&attachment("ipvlan", "l2", ip), &[(OUTSIDE, EGRESS), (OUTSIDE_6, EGRESS_6)]);
    });
}

/// Neither ARP nor gateway: the node forwards, and the LAN has a route to the address.
fn layer_3(mode: &str) {
    let env = TestEnv::new();
    run("ip -n lan route add 10.99.7.7/32 via 192.168.50.2");
    let before = env.state();
    let config = attachment("ipvlan", mode, json!({"addresses": ["10.99.7.7/32"]}));
    let result = env.succeed("ADD", &config);
    assert_eq!(env.seen_by(OUTSIDE).as_deref(), Some("10.99.7.7"), "{}", env.state());
    assert_eq!(env.seen_by(FAR).as_deref(), Some("10.244.1.10"), "{}", env.state());
    assert!(run("ip -n pod -d link show net1").contains(&format!("ipvlan  mode {mode} ")));
    env.check(&config, &result);
    env.succeed("DEL", &config);
    env.until_state(&before);
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn ipvlan_l3_needs_no_gateway() {
    inside(|| layer_3("l3"));
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn ipvlan_l3s_needs_no_gateway() {
    inside(|| layer_3("l3s"));
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn macvlan_works_on_this_kernel_too() {
    inside(|| {
        let ip = json!({"addresses": ["192.168.50.77/24", "2001:db8:50::77/64"]});
        prove(&attachment("macvlan", "bridge", ip), &[(OUTSIDE, EGRESS), (OUTSIDE_6, EGRESS_6)]);
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn unlisted_destinations_are_rejected_immediately() {
    inside(|| {
        let env = TestEnv::new();
        run("ip -n lan address add 203.0.113.10/32 dev lo");
        let ip = json!({"addresses": ["192.168.50.77/24"], "destinations": ["203.0.113.9/32"]});
        let config = attachment("ipvlan", "l2", ip);
        let result = env.succeed("ADD", &config);
        assert_eq!(env.seen_by(OUTSIDE).as_deref(), Some(EGRESS));
        let asked = std::time::Instant::now();
        assert_eq!(env.seen_by("203.0.113.10"), None);
        assert!(asked.elapsed() < RESPONSE_TIMEOUT / 2, "it was dropped, not rejected");
        env.check(&config, &result);
        // CHECK reports a removed rule.
        run("ip netns exec pod nft flush ruleset");
        let (succeeded, output) =
            env.call("CHECK", &crate::egress_router_kernel::env::with(&config, "prevResult", result));
        assert!(!succeeded && output["code"] == 101, "{output}");
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn an_ipvlan_never_changes_the_mode_of_others_on_its_master() {
    inside(|| {
        let mut env = TestEnv::new();
        let standing = attachment("ipvlan", "l2", json!({"addresses": ["192.168.50.77/24"]}));
        env.succeed("ADD", &standing);
        let before = env.state();
        env.environment.push(("CNI_IFNAME", "net2".to_owned()));
        let (succeeded, output) =
            env.call("ADD", &attachment("ipvlan", "l3", json!({"addresses": ["10.99.7.7/32"]})));
        assert!(!succeeded && output["code"] == 7, "{output}");
        assert!(output["msg"].as_str().unwrap().contains("mode l2"), "{output}");
        assert_eq!(env.state(), before);
        env.environment.clear();
        assert_eq!(env.seen_by(OUTSIDE).as_deref(), Some(EGRESS));
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn the_error_of_an_unknown_ipvlan_mode_lists_the_modes() {
    inside(|| {
        let env = TestEnv::new();
        let before = env.state();
        let config = attachment("ipvlan", "bridge", json!({"addresses": ["192.168.50.77/24"]}));
        let (succeeded, output) = env.call("ADD", &config);
        assert!(!succeeded && output["code"] == 7, "{output}");
        for mode in ["l2", "l3", "l3s"] {
            assert!(output["msg"].as_str().unwrap().contains(mode), "{output}");
        }
        assert_eq!(env.state(), before);
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn an_ipvlan_with_a_larger_mtu_than_its_master_is_refused() {
    inside(|| {
        let env = TestEnv::new();
        let before = env.state();
        let mut config = attachment("ipvlan", "l2", json!({"addresses": ["192.168.50.77/24"]}));
        config["interfaceArgs"]["mtu"] = json!(9000);
        let (succeeded, output) = env.call("ADD", &config);
        assert!(!succeeded && output["code"] == 7, "{output}");
        assert_eq!(output["msg"], "interfaceArgs.mtu is 9000: its master up0 has 1500");
        assert_eq!(env.state(), before);
    });
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn status_succeeds() {
    inside(|| {
        let env = TestEnv::new();
        let mut config = attachment("ipvlan", "l2", json!({"addresses": ["192.168.50.77/24"]}));
        config["cniVersion"] = json!("1.1.0");
        env.succeed("STATUS", &config);
    });
}
