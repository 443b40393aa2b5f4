//! Calls as Multus makes them.

use super::*;

#[test]
fn add_works_without_the_default_route() {
    let mut scene = Scene::new();
    // The routes of ovn-kubernetes when the annotation's `default-route` names this network.
    scene
        .pod
        .inside
        .sh("ip route del default; ip -6 route del default
             ip route add 10.244.0.0/16 via 10.244.1.1; ip route add 172.30.0.0/16 via 10.244.1.1
             ip -6 route add fd00:244::/32 via fd00:244:1::1; ip -6 route add fd00:172::/32 via fd00:244:1::1")
        .unwrap();
    scene.pod_before = scene.pod.inside.network_state().unwrap();
    let plugin = scene.plugin(dual());
    let result = plugin.add().unwrap();
    for family in 0..2 {
        scene.outside_sees(OWN[family]);
    }
    scene.cluster_is_reached(0..2);
    scene.is_reached_from(&scene.env.node2, "10.1.0.2");
    scene.is_reached_from(&scene.env.node2, "fd00:1::2");
    // After ADD, Multus adds the default route of the annotation itself.
    scene
        .pod
        .inside
        .sh("ip route del default dev net1; ip route add default via 192.168.50.1 dev net1")
        .unwrap();
    scene.outside_sees(OWN[0]);
    plugin.del(Some(&result)).unwrap();
    scene.restored();
}

#[test]
fn del_follows_a_failed_add() {
    let scene = Scene::new();
    let plugin = scene.plugin(json!({"addresses": ["198.18.0.9/24"]}));
    plugin.refused().unwrap();
    plugin.del(None).unwrap();
    scene.restored();
}

#[test]
fn the_whole_life_of_an_attachment() {
    let scene = Scene::new();
    let mut config = config(json!({"addresses": ["192.168.50.99/24"]}));
    // How Multus passes the annotation's `mac`.
    config["capabilities"] = json!({"mac": true});
    config["runtimeConfig"] = json!({"mac": "02:00:5e:00:53:09"});
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        config["cniVersion"] = json!(version);
        let plugin = scene.env.plugin(&scene.pod, "net1", config.clone()).unwrap();
        let plugin = plugin.env(
            "CNI_ARGS",
            "IgnoreUnknown=true;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod;MAC=02:00:5e:00:53:09",
        );
        let result = plugin.add().unwrap();
        assert_eq!(result["cniVersion"], version);
        assert_eq!(result["interfaces"][0]["mac"], "02:00:5e:00:53:09", "{result}");
        assert_eq!(result["interfaces"][0]["sandbox"], json!(scene.pod.netns), "{result}");
        assert_eq!(result["ips"][0]["gateway"], GATEWAY[0], "{result}");
        assert_eq!(result["ips"][0]["version"].is_string(), version < "1.0.0", "{result}");
        assert_eq!(result["interfaces"][0]["mtu"].is_u64(), version >= "1.1.0", "{result}");
        let check = plugin.check(&result).unwrap();
        assert_eq!(check.code == Some(0), version >= "0.4.0", "{version}: {check:#?}");
        plugin.del(Some(&result)).unwrap();
        scene.restored();
    }
}
