//! The plugin in one list after the one that creates the pod's primary interface.

use e2e::egress_router::debian;

use super::*;

fn bridge(version: &str) -> Value {
    json!({
        "cniVersion": version, "name": "cluster", "type": "bridge", "bridge": "cluster0", "isGateway": true, "isDefaultGateway": true,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.230", "gateway": "10.244.1.1"}]]},
    })
}

fn ours(version: &str, previous: &Value) -> Value {
    let mut config = config(v4());
    config["cniVersion"] = json!(version);
    config["name"] = json!("cluster");
    config["prevResult"] = previous.clone();
    config
}

#[test]
fn after_bridge_the_results_are_merged_and_both_are_removed() {
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let env = TestEnv::new().unwrap();
        let pod = env.bare_pod("chained").unwrap();
        let empty = pod.inside.network_state().unwrap();
        let bridge = env.other_plugin(debian("bridge").unwrap(), &pod, "eth0", bridge(version));
        let previous = bridge.add().unwrap();
        let before = pod.inside.network_state().unwrap();
        let plugin = env.plugin(&pod, "eth0", ours(version, &previous)).unwrap();
        let result = plugin.add().unwrap();
        let names: Vec<_> =
            result["interfaces"].as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
        assert_eq!(names.last(), Some(&json!("egress0")), "{result}");
        assert_eq!(names.len(), previous["interfaces"].as_array().unwrap().len() + 1, "{result}");
        assert_eq!(result["ips"][0]["address"], previous["ips"][0]["address"], "{result}");
        assert_eq!(result["ips"][1]["address"], "192.168.50.99/24", "{result}");
        assert_eq!(result["ips"][1]["interface"], names.len() - 1, "{result}");
        let address = previous["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap().to_owned();
        pod.inside.wait_seen_as(OWN[0], OUTSIDE[0], PORT).unwrap();
        for there in [NODE, BRIDGE, REMOTE, SERVICE] {
            pod.inside.wait_seen_as(&address, there[0], PORT).unwrap();
        }
        if version >= "0.4.0" {
            plugin.check_succeeds(&result).unwrap();
        }
        // DEL in reverse order, each with the result of the whole list.
        plugin.del(Some(&result)).unwrap();
        assert_eq!(before.changes(&pod.inside.network_state().unwrap()), Vec::<String>::new());
        bridge.del(Some(&result)).unwrap();
        assert_eq!(empty.changes(&pod.inside.network_state().unwrap()), Vec::<String>::new());
    }
}

#[test]
fn a_chained_interface_has_the_configured_name() {
    let env = TestEnv::new().unwrap();
    let pod = env.bare_pod("chained").unwrap();
    let bridge = env.other_plugin(debian("bridge").unwrap(), &pod, "eth0", bridge("1.0.0"));
    let previous = bridge.add().unwrap();
    let mut config = ours("1.0.0", &previous);
    config["interfaceArgs"] = json!({"name": "wan0"});
    let plugin = env.plugin(&pod, "eth0", config).unwrap();
    let before = pod.inside.network_state().unwrap();
    let result = plugin.add().unwrap();
    assert!(pod.inside.sh("ip -d link show wan0").unwrap().contains("macvlan"));
    pod.inside.wait_seen_as(OWN[0], OUTSIDE[0], PORT).unwrap();
    plugin.del(Some(&result)).unwrap();
    assert_eq!(before.changes(&pod.inside.network_state().unwrap()), Vec::<String>::new());
}

#[test]
fn cni_args_apply_to_the_interface_of_the_first_plugin() {
    let env = TestEnv::new().unwrap();
    let pod = env.bare_pod("chained").unwrap();
    let bridge = env.other_plugin(debian("bridge").unwrap(), &pod, "eth0", bridge("1.0.0"));
    let previous = bridge.add().unwrap();
    let before = pod.inside.network_state().unwrap();
    // libcni passes them to each plugin of a list.
    let arguments = "IgnoreUnknown=1;IP=10.244.1.230;MAC=02:00:5e:10:00:07";
    let plugin = env.plugin(&pod, "eth0", ours("1.0.0", &previous)).unwrap().env("CNI_ARGS", arguments);
    let result = plugin.add().unwrap();
    pod.inside.wait_seen_as(OWN[0], OUTSIDE[0], PORT).unwrap();
    assert!(!pod.inside.sh("ip link show egress0").unwrap().contains("02:00:5e:10:00:07"), "{result}");
    plugin.del(Some(&result)).unwrap();
    assert_eq!(before.changes(&pod.inside.network_state().unwrap()), Vec::<String>::new());
    // args.cni applies to this plugin.
    let mut config = ours("1.0.0", &previous);
    config["runtimeConfig"] = json!({"ips": ["192.168.50.98"]});
    let refusal = env.plugin(&pod, "eth0", config).unwrap().refused().unwrap();
    assert!(refusal.words().contains("allowRequestedIPs"), "{refusal:#?}");
}
