//! The CNI protocol: defects of the original (docs/egress-router-cni/defects.md).

use e2e::egress_router::UPLINK;

use super::*;

#[test]
fn b01_a_failure_is_an_error_with_a_code_and_a_message() {
    let scene = Scene::new();
    let mut wrong = config(v4());
    wrong["interfaceArgs"] = json!({"master": "nosuch0"});
    let refusal = scene.env.plugin(&scene.pod, "net1", wrong).unwrap().refused().unwrap();
    assert!(refusal.words().contains("nosuch0"), "{refusal:#?}");
    assert_eq!(refusal.json["cniVersion"], "1.1.0");
    let plugin = scene.plugin(v4());
    for (verb, stdin) in
        [("ADD", "{"), ("ADD", ""), ("DEL", "[]"), ("CHECK", "null"), ("GC", "{}"), ("NONSENSE", "{}")]
    {
        let output = plugin.call(verb, stdin).unwrap();
        output.clone().refusal().unwrap_or_else(|error| panic!("{verb} {stdin:?}: {error}"));
        assert!(
            output.error_code().is_some_and(|code| (1..=8).contains(&code)),
            "{verb} {stdin:?}: {output:#?}"
        );
    }
    for variable in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"] {
        let refusal = plugin.clone().env(variable, "").refused().unwrap();
        assert_eq!(refusal.error_code(), Some(4), "{refusal:#?}");
        assert!(refusal.words().contains(variable), "{refusal:#?}");
    }
    scene.restored();
}

#[test]
fn b13_del_restores_a_running_pod() {
    let scene = Scene::new();
    let plugin =
        scene.plugin(json!({"addresses": ["192.168.50.99/24"], "destinations": ["80 TCP 203.0.113.9"]}));
    let result = plugin.add().unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.restored();
    scene.outside_sees(NODE[0]);
}

#[test]
fn b14_check_reports_every_difference_in_every_version() {
    let scene = Scene::new();
    let plugin = scene.plugin(json!({
        "addresses": ["192.168.50.99/24", "2001:db8:50::99/64"], "destinations": ["80 TCP 203.0.113.9", "203.0.113.9/32", "2001:db8::/32"],
    }));
    for (change, word) in [
        ("ip link del net1", "net1"),
        ("ip link set net1 down", "net1"),
        ("ip link set net1 mtu 1300", "mtu"),
        ("ip addr del 192.168.50.99/24 dev net1", "192.168.50.99"),
        ("ip -6 addr del 2001:db8:50::99/64 dev net1", "2001:db8:50::99"),
        ("ip route del default", "default"),
        ("ip -6 route replace default via fd00:244:1::1 dev eth0", ""),
        ("ip route del 192.168.50.2", "192.168.50.2"),
        ("ip route del 172.30.0.0/16", "172.30.0.0/16"),
        ("ip rule | sed -n 's/^\\(71[0-9]*\\):.*/\\1/p' | xargs -n1 ip rule del priority", "rule"),
        ("echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter", "rp_filter"),
        ("echo 0 >/proc/sys/net/ipv4/conf/eth0/forwarding", "forwarding"),
        ("nft flush table inet egress_router_net1", "net1"),
        ("nft delete table inet egress_router_net1", "net1"),
    ] {
        scene.pod.inside.sh("echo 1 >/proc/sys/net/ipv4/conf/eth0/rp_filter").unwrap();
        let result = plugin.add().unwrap();
        plugin.check_succeeds(&result).unwrap();
        scene.pod.inside.sh(change).unwrap();
        let check =
            plugin.check(&result).unwrap().refusal().unwrap_or_else(|error| panic!("{change}: {error:#}"));
        assert!(check.words().contains(word), "{change}: {check:#?}");
        plugin.del(Some(&result)).unwrap();
    }
    let versions = plugin.call("VERSION", "").unwrap().result().unwrap();
    assert_eq!(
        versions["supportedVersions"],
        json!(["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]),
        "{versions}"
    );
    let status = plugin.call("STATUS", &plugin.config.to_string()).unwrap();
    assert_eq!(status.code, Some(0), "{status:#?}");
    let mut old = plugin.config.clone();
    old["cniVersion"] = json!("1.0.0");
    for verb in ["STATUS", "GC"] {
        let output = plugin.call(verb, &old.to_string()).unwrap();
        assert_eq!(output.error_code(), Some(1), "{verb}: {output:#?}");
    }
    old["cniVersion"] = json!("0.2.0");
    assert_eq!(plugin.with(old).refused().unwrap().error_code(), Some(1));
}

#[test]
fn check_accepts_changes_of_later_plugins() {
    let scene = Scene::new();
    let plugin = scene.plugin(v4());
    let mut result = plugin.add().unwrap();
    scene.pod.inside.sh("ip link set net1 mtu 1400 address 02:00:5e:10:00:07").unwrap();
    // The difference is reported unless `prevResult` has it, as in the result of `tuning`.
    for (key, value) in [("mac", json!("02:00:5e:10:00:07")), ("mtu", json!(1400))] {
        let check = plugin.check(&result).unwrap();
        assert!(check.words().contains(key), "{check:#?}");
        result["interfaces"].as_array_mut().unwrap().last_mut().unwrap()[key] = value;
    }
    plugin.check_succeeds(&result).unwrap();
    // Before 1.1.0 the result has no MTU.
    result["interfaces"].as_array_mut().unwrap().last_mut().unwrap().as_object_mut().unwrap().remove("mtu");
    plugin.check_succeeds(&result).unwrap();
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn del_works_with_any_version_of_the_configuration() {
    let scene = Scene::new();
    let plugin = scene.plugin(v4());
    for version in [None, Some(json!("0.2.0")), Some(json!(7))] {
        plugin.add().unwrap();
        let mut edited = plugin.config.clone();
        match version {
            Some(version) => edited["cniVersion"] = version,
            None => drop(edited.as_object_mut().unwrap().remove("cniVersion")),
        }
        let edited = plugin.with(edited);
        assert!(edited.refused().unwrap().error_code().is_some_and(|code| [1, 6].contains(&code)));
        edited.del(None).unwrap();
        scene.restored();
    }
}

#[test]
fn b14_gc_removes_exactly_the_attachments_that_are_not_valid() {
    let scene = Scene::new();
    let other = scene.env.pod("other").unwrap();
    let kept = scene.plugin(v4());
    let lost = scene.env.plugin(&other, "net1", config(json!({"addresses": ["192.168.50.98/24"]}))).unwrap();
    let mut foreign = config(json!({"addresses": ["192.168.50.97/24"]}));
    foreign["name"] = json!("another-network");
    let foreign = scene.env.plugin(&other, "net2", foreign).unwrap();
    let before = other.inside.network_state().unwrap();
    kept.add().unwrap();
    foreign.add().unwrap();
    lost.add().unwrap();
    let mut gc = config(v4());
    gc["cni.dev/valid-attachments"] = json!([{"containerID": "pod", "ifname": "net1"}]);
    let output = kept.call("GC", &gc.to_string()).unwrap();
    assert_eq!(output.code, Some(0), "{output:#?}");
    assert!(other.inside.sh("ip link show net1").is_err(), "not named");
    other.inside.wait_seen_as("192.168.50.97", OUTSIDE[0], PORT).unwrap();
    scene.outside_sees(OWN[0]);
    // libcni writes null for an empty list. Without a list, the valid attachments are unknown.
    gc.as_object_mut().unwrap().remove("cni.dev/valid-attachments");
    assert_eq!(kept.call("GC", &gc.to_string()).unwrap().error_code(), Some(7));
    scene.outside_sees(OWN[0]);
    gc["cni.dev/valid-attachments"] = Value::Null;
    let output = kept.call("GC", &gc.to_string()).unwrap();
    assert_eq!(output.code, Some(0), "{output:#?}");
    assert_eq!(scene.changes(), Vec::<String>::new());
    other.inside.wait_seen_as("192.168.50.97", OUTSIDE[0], PORT).unwrap();
    foreign.del(None).unwrap();
    assert_eq!(before.changes(&other.inside.network_state().unwrap()), Vec::<String>::new());
}

#[test]
fn invalid_settings_do_not_block_del_and_refuse_add() {
    let scene = Scene::new();
    let file = "/etc/cni/net.d/egress-router.d/settings.json";
    scene.env.node.sh(&format!("cp {file} {file}.right")).unwrap();
    for wrong in ["{", r#"{"platfrom": "none"}"#] {
        for verb in ["DEL", "GC"] {
            let plugin = scene.plugin(v4());
            let result = plugin.add().unwrap();
            scene.env.node.sh(&format!("echo '{wrong}' >{file}")).unwrap();
            let refusal = plugin.refused().unwrap();
            assert!(refusal.words().contains(file), "{refusal:#?}");
            let mut config = plugin.after(Some(&result));
            config["cni.dev/valid-attachments"] = json!([]);
            let output = plugin.call(verb, &config.to_string()).unwrap();
            assert_eq!(output.code, Some(0), "{verb} {wrong}: {output:#?}");
            scene.restored();
            scene.env.node.sh(&format!("cp {file}.right {file}")).unwrap();
        }
    }
}

#[test]
fn b15_the_previous_result_is_merged_and_the_result_has_routes() {
    let scene = Scene::new();
    let pod = &scene.pod.addresses[0];
    let mut config = config(v4());
    config["prevResult"] = json!({
        "cniVersion": "1.1.0", "interfaces": [{"name": "veth9"}, {"name": "eth0", "sandbox": scene.pod.netns}],
        "ips": [{"address": format!("{pod}/24"), "gateway": "10.244.1.1", "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.1.1"}, {"dst": "10.96.0.0/12", "gw": "10.244.1.1"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    });
    let result = scene.env.plugin(&scene.pod, "net1", config).unwrap().add().unwrap();
    let names: Vec<_> =
        result["interfaces"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["veth9", "eth0", "net1"], "{result}");
    assert_eq!(
        (&result["ips"][0]["interface"], &result["ips"][1]["interface"]),
        (&json!(1), &json!(2)),
        "{result}"
    );
    assert_eq!(result["dns"]["nameservers"], json!(["10.96.0.10"]), "{result}");
    let routes = result["routes"].as_array().unwrap();
    let has = |dst: &str, gw: &str| routes.iter().any(|route| route["dst"] == dst && route["gw"] == gw);
    assert!(has("0.0.0.0/0", GATEWAY[0]) && has("10.96.0.0/12", "10.244.1.1"), "{result}");
    assert!(!has("0.0.0.0/0", "10.244.1.1"), "it is no longer valid: {result}");
}

#[test]
fn b16_the_log_has_the_configured_level_and_is_not_readable_for_all() {
    let scene = Scene::new();
    let size = |level: &str| {
        let file = format!("/var/log/egress-router/{level}");
        let mut config = config(v4());
        config["log_file"] = json!(format!("/tmp/{level}"));
        config["log_level"] = json!(level);
        let plugin = scene.env.plugin(&scene.pod, "net1", config).unwrap();
        let result = plugin.add().unwrap();
        plugin.del(Some(&result)).unwrap();
        let stat = scene.env.node.sh(&format!("stat -c '%a %s' {file} 2>/dev/null || echo 640 0")).unwrap();
        let (mode, size) = stat
            .trim()
            .split_once(' ')
            .map(|(mode, size)| (mode.to_owned(), size.parse::<u64>().unwrap()))
            .unwrap();
        assert_eq!(mode, "640");
        size
    };
    let (error, verbose, debug) = (size("error"), size("verbose"), size("debug"));
    assert_eq!(error, 0);
    assert!(0 < verbose && verbose < debug, "{verbose} {debug}");
    // ADD succeeds although the log cannot be written.
    let node = &scene.env.node;
    node.sh(
        "mkdir /run/precious; mv /var/log/egress-router /run/old; ln -s /run/precious /var/log/egress-router",
    )
    .unwrap();
    let mut config = config(v4());
    config["log_file"] = json!("log");
    let plugin = scene.env.plugin(&scene.pod, "net1", config).unwrap();
    let result = plugin.add().unwrap();
    plugin.del(Some(&result)).unwrap();
    assert_eq!(node.sh("ls /run/precious").unwrap(), "");
}

#[test]
fn b20_the_plugin_starts_no_other_program() {
    let scene = Scene::new();
    let trace = "/run/trace";
    let words = ["strace", "-f", "-qqq", "-o", trace, "-e", "trace=execve,clone,clone3,fork,vfork"];
    let plugin = scene
        .plugin(json!({"addresses": ["192.168.50.99/24"], "destinations": ["80 TCP 203.0.113.9"]}))
        .wrapped(words);
    let result = plugin.add().unwrap();
    assert_eq!(scene.env.node.sh(&format!("wc -l <{trace}")).unwrap().trim(), "1", "one exec: its own");
    plugin.del(Some(&result)).unwrap();
    assert_eq!(scene.env.node.sh(&format!("wc -l <{trace}")).unwrap().trim(), "1", "one exec: its own");
}

/// The cost of an ADD that does not depend on the machine. docs/benchmarks.md has the same numbers.
#[test]
fn an_add_sends_few_requests_to_the_kernel() {
    let scene = Scene::new();
    let trace = "/run/trace";
    let requests = |ip: Value, master: Value| {
        let mut config = config(ip);
        config["interfaceArgs"] = master;
        let plugin = scene.env.plugin(&scene.pod, "net1", config).unwrap();
        let words = ["strace", "-f", "-qqq", "-o", trace, "-e", "trace=sendto,sendmsg"];
        plugin.clone().wrapped(words).add().unwrap();
        let sent = scene.env.node.sh(&format!("grep -c nlmsg_len {trace}")).unwrap();
        plugin.del(None).unwrap();
        sent.trim().parse::<u32>().unwrap()
    };
    let named = json!({"addresses": ["192.168.50.99/24"], "gateway": GATEWAY[0]});
    let whole = json!({"addresses": ["192.168.50.99/24", "2001:db8:50::99/64"],
        "destinations": ["203.0.113.0/24", "2001:db8:9::/64", "80 tcp 203.0.113.9", "81 tcp 203.0.113.10"]});
    assert_eq!(requests(named, json!({"master": UPLINK})), 13);
    assert_eq!(requests(whole, json!({})), 16);
}
