//! IPv4, IPv6, both, and several addresses.

use super::*;

fn leaves_by_its_own_address(ip: Value, families: std::ops::Range<usize>) {
    let scene = Scene::new();
    let plugin = scene.plugin(ip);
    let result = plugin.add().unwrap();
    for family in families.clone() {
        scene.outside_sees(OWN[family]);
        scene.pod.inside.wait_seen_as(OWN[family], GATEWAY[family], PORT).unwrap();
    }
    scene.cluster_is_reached(0..2);
    // A family without addresses of the attachment is not changed.
    for family in (0..2).filter(|family| !families.contains(family)) {
        scene.outside_sees(NODE[family]);
    }
    // Replies to another node, whose address is in no configuration, leave through the primary interface.
    scene.is_reached_from(&scene.env.node2, "10.1.0.2");
    scene.is_reached_from(&scene.env.node2, "fd00:1::2");
    let check = plugin.check(&result).unwrap();
    assert_eq!((check.code, check.stdout.as_str()), (Some(0), ""), "{check:#?}");
    plugin.del(Some(&result)).unwrap();
    for family in 0..2 {
        scene.outside_sees(NODE[family]);
    }
    scene.restored();
}

#[test]
fn ipv4() {
    leaves_by_its_own_address(v4(), 0..1);
}

#[test]
fn ipv6() {
    leaves_by_its_own_address(v6(), 1..2);
}

#[test]
fn both_families() {
    leaves_by_its_own_address(dual(), 0..2);
}

#[test]
fn the_first_of_several_addresses_is_the_source_and_all_are_reachable() {
    let scene = Scene::new();
    let all = ["192.168.50.99", "192.168.50.98", "2001:db8:50::99", "2001:db8:50::98"];
    let plugin = scene.plugin(json!({
        "addresses": ["192.168.50.99/24", "192.168.50.98/24", "2001:db8:50::99/64", "2001:db8:50::98/64"],
    }));
    let result = plugin.add().unwrap();
    assert_eq!(result["ips"].as_array().unwrap().len(), 4, "{result}");
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
    }
    for address in all {
        let _server = scene.pod.inside.listen(address, 8080).unwrap();
        let gateway = GATEWAY[usize::from(address.contains(':'))];
        scene.env.outside.wait_seen_as(gateway, address, 8080).unwrap();
    }
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn an_address_without_a_length_uses_an_on_link_gateway() {
    let scene = Scene::new();
    let plugin = scene.plugin(json!({"addresses": ["192.168.50.99", "2001:db8:50::99"]}));
    let result = plugin.add().unwrap();
    assert_eq!(result["ips"][0]["address"], "192.168.50.99/32", "{result}");
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
    }
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn every_mode_of_macvlan_mtu_and_mac_are_applied() {
    let scene = Scene::new();
    for mode in ["bridge", "private", "vepa", "passthru"] {
        let mut config = config(v4());
        config["interfaceArgs"] = json!({"mode": mode, "master": "uplink0", "mtu": "1400"});
        let mut requested = config.clone();
        requested["runtimeConfig"] = json!({"mac": "02:00:5e:00:53:01"});
        let mut words = vec![format!("macvlan mode {mode}"), "mtu 1400".into()];
        if mode == "passthru" {
            // It has the master's address: the kernel would ignore the requested one.
            refused(&scene, requested, 7, &["02:00:5e:00:53:01", "passthru"]);
        } else {
            config = requested;
            words.push("02:00:5e:00:53:01".into());
        }
        let plugin = scene.env.plugin(&scene.pod, "net1", config).unwrap();
        let result = plugin.add().unwrap();
        let link = scene.pod.inside.sh("ip -d -o link show net1").unwrap();
        for word in words {
            assert!(link.contains(&word), "{word}: {link}");
        }
        scene.outside_sees(OWN[0]);
        plugin.del(Some(&result)).unwrap();
    }
    assert_eq!(scene.changes(), Vec::<String>::new());
}

#[test]
fn neighbours_learn_immediately_that_an_address_has_moved() {
    // An address moves from pod to pod. The LAN has a neighbour entry for the old one, and the new pod sends no packet.
    let scene = Scene::new();
    let other = scene.env.pod("other").unwrap();
    let first = scene.plugin(dual());
    let result = first.add().unwrap();
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
    }
    let entry = |family: usize| {
        let line = scene.env.outside.sh(&format!("ip neigh show {} dev lan0", OWN[family])).unwrap();
        line.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).unwrap_or_default().to_owned()
    };
    let old = [entry(0), entry(1)];
    first.del(Some(&result)).unwrap();
    let mut config = config(dual());
    config["runtimeConfig"] = json!({"mac": "02:00:5e:00:53:02"});
    scene.env.plugin(&other, "net1", config).unwrap().add().unwrap();
    for family in 0..2 {
        e2e::netns::wait_until("the LAN has learnt it", || Ok(entry(family) == "02:00:5e:00:53:02"))
            .unwrap_or_else(|error| {
                panic!("{error}: {} was {}, is {}", OWN[family], old[family], entry(family))
            });
    }
}
