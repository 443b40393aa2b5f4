//! Real callers of plugins: libcni (runtimes call a list, Multus one plugin) and cnitool, built from their pinned module.

use e2e::egress_router::{debian, plugin};
use e2e::netns::Output;

use super::*;

/// Every supported version.
const VERSIONS: [&str; 5] = ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// A `CNI_PATH` of the node with egress-router and Debian's plugins.
fn programs(env: &TestEnv) -> &'static str {
    let (ours, debians) = (plugin().unwrap(), debian("bridge").unwrap());
    let folder = debians.parent().unwrap().display();
    env.node
        .sh(&format!(
            "mkdir -p /run/cni; ln -sf -t /run/cni {folder}/*; ln -sf {} /run/cni/egress-router",
            ours.display()
        ))
        .unwrap();
    "/run/cni"
}

/// Runs one of the callers in the node.
fn run(env: &TestEnv, pod: &Pod, environment: &[&str], words: &[&str], stdin: &str) -> Output {
    let program = e2e::assets::cni().unwrap().join(words[0]).display().to_string();
    let own = [
        "env".to_owned(),
        "-i".into(),
        "PATH=/usr/sbin:/usr/bin:/sbin:/bin".into(),
        format!("CNI_PATH={}", programs(env)),
        format!("CNI_CONTAINERID={}", pod.name()),
        format!("CNI_NETNS={}", pod.netns),
    ];
    let command = own.into_iter().chain(environment.iter().map(|word| (*word).to_owned())).chain([program]);
    env.node.run_as_runtime(command.chain(words[1..].iter().map(|word| (*word).to_owned())), stdin).unwrap()
}

fn must(output: Output) -> String {
    assert!(output.success(), "{output:#?}");
    output.stdout
}

#[test]
fn a_single_plugin_works_in_every_version() {
    let scene = Scene::new();
    for version in VERSIONS {
        let mut config = config(dual());
        config["cniVersion"] = json!(version);
        config["capabilities"] = json!({"mac": true});
        let call = |verb: &str| {
            let environment = ["CNI_IFNAME=net1", r#"CAP_ARGS={"mac": "02:00:5e:00:53:07"}"#];
            run(&scene.env, &scene.pod, &environment, &["libcni", verb], &config.to_string())
        };
        assert_eq!(must(call("version")).trim(), "[0.3.0 0.3.1 0.4.0 1.0.0 1.1.0]");
        let result: Value = serde_json::from_str(&must(call("add"))).unwrap();
        assert_eq!(result["cniVersion"], version, "{result}");
        assert_eq!(result["interfaces"][0]["mac"], "02:00:5e:00:53:07", "{result}");
        for family in 0..2 {
            scene.outside_sees(OWN[family]);
        }
        let check = call("check");
        assert_eq!(check.success(), version >= "0.4.0", "{check:#?}");
        must(call("del"));
        must(call("del"));
        scene.restored();
    }
}

#[test]
fn a_list_behind_debians_bridge_is_added_and_deleted() {
    for version in ["0.3.1", "0.4.0", "1.0.0"] {
        let env = TestEnv::new().unwrap();
        let pod = env.bare_pod("chained").unwrap();
        let empty = pod.inside.network_state().unwrap();
        let list = json!({"cniVersion": version, "name": "cluster", "plugins": [
            {"type": "bridge", "bridge": "cluster0", "isGateway": true, "isDefaultGateway": true, "ipam": {"type": "host-local",
                "ranges": [[{"subnet": "10.244.1.0/24", "rangeStart": "10.244.1.230", "gateway": "10.244.1.1"}]]}},
            {"type": "egress-router", "ip": {"addresses": ["192.168.50.99/24"], "destinations": ["203.0.113.9/32"]}},
        ]});
        let call = |verb: &str| run(&env, &pod, &["CNI_IFNAME=eth0"], &["libcni", verb], &list.to_string());
        must(call("version"));
        let result: Value = serde_json::from_str(&must(call("add"))).unwrap();
        assert_eq!(result["ips"].as_array().unwrap().len(), 2, "{result}");
        pod.inside.wait_seen_as(OWN[0], OUTSIDE[0], PORT).unwrap();
        let own = result["ips"][0]["address"].as_str().unwrap().split('/').next().unwrap();
        pod.inside.wait_seen_as(own, SERVICE[0], PORT).unwrap();
        if version >= "0.4.0" {
            // bridge's CHECK expects every address of the result on its own interface, so it fails for any list that adds one. `chained` tests
            // the plugin's CHECK.
            let check = call("check");
            assert_eq!(
                check.stderr.trim(),
                "Failed to match addr 192.168.50.99/24 on interface eth0",
                "{check:#?}"
            );
        }
        must(call("del"));
        assert_eq!(empty.changes(&pod.inside.network_state().unwrap()), Vec::<String>::new());
        must(call("del"));
    }
}

#[test]
fn status_and_gc_of_a_1_1_0_list_work() {
    let scene = Scene::new();
    let other = scene.env.pod("other").unwrap();
    let list = |address: &str| {
        json!({"cniVersion": "1.1.0", "name": "egress", "plugins": [{"type": "egress-router", "ip": {"addresses": [address]}}]})
            .to_string()
    };
    let call = |pod: &Pod, verb: &str, address: &str| {
        run(&scene.env, pod, &["CNI_IFNAME=net1"], &["libcni", verb], &list(address))
    };
    must(call(&scene.pod, "status", "192.168.50.99/24"));
    must(call(&scene.pod, "add", "192.168.50.99/24"));
    let before = other.inside.network_state().unwrap();
    must(call(&other, "add", "192.168.50.98/24"));
    scene.outside_sees(OWN[0]);
    // Only the first is valid. libcni itself calls DEL for the other, whose result it has cached.
    must(call(&scene.pod, "gc", "192.168.50.99/24"));
    assert_eq!(before.changes(&other.inside.network_state().unwrap()), Vec::<String>::new());
    scene.outside_sees(OWN[0]);
    must(call(&scene.pod, "del", "192.168.50.99/24"));
    assert_eq!(scene.changes(), Vec::<String>::new());
}

#[test]
fn an_error_is_returned_by_libcni_unchanged() {
    let scene = Scene::new();
    let config = config(json!({"addresses": ["198.18.0.9/24"]}));
    let output = run(&scene.env, &scene.pod, &["CNI_IFNAME=net1"], &["libcni", "add"], &config.to_string());
    assert!(!output.success() && output.stderr.contains("192.168.50.2"), "the candidates: {output:#?}");
    scene.restored();
}

#[test]
fn cnitool_adds_checks_and_deletes() {
    let scene = Scene::new();
    let list =
        json!({"cniVersion": "1.1.0", "name": "egress", "plugins": [{"type": "egress-router", "ip": v4()}]});
    scene.env.node.sh("mkdir -p /run/networks").unwrap();
    scene.env.node.write("/run/networks/egress.conflist", "0600", &list.to_string()).unwrap();
    let call = |verb: &str| {
        let environment = ["NETCONFPATH=/run/networks", "CNI_IFNAME=net1"];
        run(&scene.env, &scene.pod, &environment, &["cnitool", verb, "egress", &scene.pod.netns], "")
    };
    must(call("add"));
    scene.outside_sees(OWN[0]);
    must(call("check"));
    must(call("status"));
    must(call("del"));
    scene.restored();
}
