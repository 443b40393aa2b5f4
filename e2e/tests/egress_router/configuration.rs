//! Network configurations: defects of the original (docs/egress-router-cni/defects.md).

use super::*;

#[test]
fn b02_pod_ip_works_and_ip_config_reads_a_config_map() {
    let scene = Scene::new();
    let table = json!({
        "other": {"addresses": ["192.168.50.31/24"]}, "p*": {"addresses": ["192.168.50.32/24"]},
        "po*": {"addresses": ["192.168.50.99/24"]}, "*": {"addresses": ["192.168.50.34/24"]},
    });
    let plugin = scene.env.plugin(&scene.pod, "net1", without_ip("podIP", table.clone())).unwrap();
    let result = plugin.add().unwrap();
    scene.outside_sees(OWN[0]);
    plugin.del(Some(&result)).unwrap();
    let mut exact = table;
    exact["pod"] = json!({"addresses": ["192.168.50.35/24"]});
    let plugin = scene.env.plugin(&scene.pod, "net1", without_ip("podIP", exact)).unwrap();
    let result = plugin.add().unwrap();
    scene.outside_sees("192.168.50.35");
    plugin.del(Some(&result)).unwrap();
    refused(&scene, without_ip("podIP", json!({"someone": {"addresses": ["192.168.50.9/24"]}})), 7, &["pod"]);
    let nameless = scene.env.plugin(
        &scene.pod,
        "net1",
        without_ip("podIP", json!({"*": {"addresses": ["192.168.50.9/24"]}})),
    );
    let refusal = nameless.unwrap().env("CNI_ARGS", "").refused().unwrap();
    assert!(
        matches!(refusal.error_code(), Some(4 | 7)) && refusal.words().contains("K8S_POD_NAME"),
        "{refusal:#?}"
    );
    let refusal = scene
        .env
        .plugin(&scene.pod, "net1", without_ip("ipConfig", json!({"name": "addresses"})))
        .unwrap()
        .refused()
        .unwrap();
    assert!(refusal.words().contains("kubeconfig"), "{refusal:#?}");
    scene.restored();
}

#[test]
fn b03_exactly_one_source_and_a_known_interface_type_are_required() {
    let scene = Scene::new();
    let one = json!({"addresses": ["192.168.50.99/24"]});
    let mut two = config(one.clone());
    two["podIP"] = json!({"*": one});
    refused(&scene, two, 7, &["ip", "podIP", "ipConfig"]);
    refused(
        &scene,
        json!({"cniVersion": "1.1.0", "name": "egress", "type": "egress-router"}),
        7,
        &["ip", "podIP", "ipConfig"],
    );
    let mut unknown = config(v4());
    unknown["interfaceType"] = json!("bridge");
    refused(&scene, unknown, 7, &["interfaceType", "macvlan", "ipvlan", "aws-elastic-ip"]);
    let mut mode = config(v4());
    mode["interfaceArgs"] = json!({"mode": "l2"});
    refused(&scene, mode, 7, &["mode", "l2", "bridge", "passthru"]);
    // `egress_router_kernel` tests ipvlan. A kernel without ipvlan gets an error that says so.
    let mut ipvlan = config(v4());
    ipvlan["interfaceType"] = json!("ipvlan");
    let output = scene.env.plugin(&scene.pod, "net1", ipvlan).unwrap();
    let output = output.call("ADD", &output.config.to_string()).unwrap();
    if output.code != Some(0) {
        println!("ipvlan is NOT TESTED here: this kernel has none");
        assert!(output.refusal().unwrap().words().contains("ipvlan"));
        scene.restored();
    }
}

#[test]
fn b06_every_address_is_configured_and_an_empty_list_is_refused() {
    let scene = Scene::new();
    let plugin = scene.plugin(json!({"addresses": ["192.168.50.99/24", "192.168.50.98/24"]}));
    let result = plugin.add().unwrap();
    let addresses = scene.pod.inside.sh("ip -o -4 addr show dev net1").unwrap();
    assert!(addresses.contains("192.168.50.99/24") && addresses.contains("192.168.50.98/24"), "{addresses}");
    plugin.del(Some(&result)).unwrap();
    for none in [
        json!({"addresses": []}),
        json!({}),
        json!({"addresses": ["nonsense"]}),
        json!({"addresses": ["192.168.50.99/33"]}),
    ] {
        refused(&scene, config(none), 7, &["addresses"]);
    }
}

#[test]
fn b07_an_invalid_destination_is_refused_before_anything_is_changed() {
    let scene = Scene::new();
    for wrong in [
        "80 TCP 203.0.113.26/30 80",
        "80 TCP nowhere",
        "80 ICMP 203.0.113.9",
        "TCP 80 203.0.113.9",
        "203.0.113.0/33",
        "",
        "80",
    ] {
        refused(
            &scene,
            config(json!({"addresses": ["192.168.50.99/24"], "destinations": [wrong]})),
            7,
            &["destinations"],
        );
    }
    // A CIDR block is not a redirect, and a redirect's target may be written as /32.
    let plugin = scene.plugin(json!({"addresses": ["192.168.50.99/24"], "destinations": ["203.0.113.9/32", "80 TCP 203.0.113.9/32 80"]}));
    plugin.add().unwrap();
    scene.outside_sees(OWN[0]);
}

#[test]
fn b18_invalid_and_duplicate_ports_are_refused() {
    let scene = Scene::new();
    let with = |destinations: Value| {
        config(json!({"addresses": ["192.168.50.99/24"], "destinations": destinations}))
    };
    for wrong in [
        json!(["0 TCP 203.0.113.9"]),
        json!(["65536 TCP 203.0.113.9"]),
        json!(["80 TCP 203.0.113.9 0"]),
        json!(["80 TCP 203.0.113.9", "80 tcp 203.0.113.10"]),
        json!(["203.0.113.9", "203.0.113.10"]),
    ] {
        refused(&scene, with(wrong), 7, &["destinations"]);
    }
    let plugin = scene
        .env
        .plugin(&scene.pod, "net1", with(json!(["80  TCP\t203.0.113.9", "80 udp 203.0.113.9"])))
        .unwrap();
    plugin.add().unwrap();
    scene.env.node2.wait_seen_as(OWN[0], &scene.pod.addresses[0], 80).unwrap();
}

#[test]
fn b21_a_config_map_is_read_with_the_nodes_kubeconfig() {
    let scene = Scene::new();
    // A server with one ConfigMap and its own certificate. No variable of a pod's environment is set.
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "addresses", "namespace": "default"},
        "data": {"ip": "{\"addresses\": [\"192.168.50.99/24\"]}", "note": "ignored"}});
    let body = map.to_string();
    let node = &scene.env.node;
    let output = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    node.write("/run/output", "0600", &output).unwrap();
    node.write("/run/serve", "0700", "#!/bin/bash\nwhile read -r line && [ \"$line\" != $'\\r' ]; do echo \"$line\" >>/run/asked; done\ncat /run/output\n").unwrap();
    node.sh("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=api -addext 'subjectAltName=IP:127.0.0.1' \
             -addext 'basicConstraints=critical,CA:FALSE' -days 2 -keyout /run/key -out /run/cert 2>/dev/null; cat /run/key /run/cert >/run/pem")
        .unwrap();
    let _server = node
        .start_process([
            "socat",
            "OPENSSL-LISTEN:6443,bind=127.0.0.1,fork,reuseaddr,cert=/run/pem,verify=0",
            "EXEC:/run/serve",
        ])
        .unwrap();
    e2e::netns::wait_until("it listens", || Ok(!node.sh("ss -Hltn src 127.0.0.1:6443")?.is_empty())).unwrap();
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "node",
        "clusters": [{"name": "node", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority": "/run/cert"}}],
        "users": [{"name": "node", "user": {"token": "the-nodes-own"}}],
        "contexts": [{"name": "node", "context": {"cluster": "node", "user": "node"}}],
    });
    node.write("/run/kubeconfig", "0600", &kubeconfig.to_string()).unwrap();
    let settings = json!({"kubeconfig": "/run/kubeconfig", "clusterNetworks": ["10.244.0.0/16"]});
    node.write("/etc/cni/net.d/egress-router.d/settings.json", "0600", &settings.to_string()).unwrap();
    let plugin =
        scene.env.plugin(&scene.pod, "net1", without_ip("ipConfig", json!({"name": "addresses"}))).unwrap();
    let result = plugin.add().unwrap();
    scene.outside_sees(OWN[0]);
    let asked = node.sh("cat /run/asked").unwrap();
    assert!(asked.contains("GET /api/v1/namespaces/default/configmaps/addresses HTTP/1.1"), "{asked}");
    assert!(asked.to_lowercase().contains("authorization: bearer the-nodes-own"), "{asked}");
    plugin.del(Some(&result)).unwrap();
    assert_eq!(scene.changes(), Vec::<String>::new());
    // Another tenant's ConfigMap is not read with the node's credentials.
    let elsewhere = without_ip("ipConfig", json!({"name": "addresses", "namespace": "kube-system"}));
    let refusal = scene.env.plugin(&scene.pod, "net1", elsewhere).unwrap().refused().unwrap();
    assert!(refusal.words().contains("kube-system"), "{refusal:#?}");
}
