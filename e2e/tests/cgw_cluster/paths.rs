//! Each way of a packet.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::time::Duration;

use e2e::cluster::{HOST, SEGMENT_GATEWAY, Target};
use e2e::wait::until;
use k8s_openapi::api::core::v1::Service;
use kube::Api;

use super::env::{A, B, C, PORT, SERVICES, TestEnv, bulk, pod, request, tcp, udp};
use super::story::Gateways;

/// Everything, with these gateways of A and B, and of C.
pub async fn all(env: &TestEnv, gateways: Gateways) {
    env.capture.reset().unwrap();
    egress(env).await;
    ingress(env).await;
    let wrong = env.wrong_sources(&[A, B, C]);
    assert_eq!(wrong, [], "packets with a wrong source");
    hairpin(env, &gateways).await;
    untouched(env).await;
    println!("egress, ingress, hairpin and what is not bound, with gateways {gateways:?}");
}

async fn both(env: &TestEnv, pod: &str, ip: Ipv4Addr) -> [String; 2] {
    let mut responses = [String::new(), String::new()];
    for (response, target) in responses.iter_mut().zip([tcp(ip, PORT), udp(ip, PORT)]) {
        *response = env.request(pod, target).await.unwrap_or_default();
    }
    responses
}

/// TCP, UDP and ICMP of pods on workers and on gateways, and packets of full size.
async fn egress(env: &TestEnv) {
    for name in env.bound() {
        let vip = env.vip(name).to_string();
        for target in [tcp(HOST, PORT), Target::ECHO, bulk(HOST, PORT)] {
            assert_eq!(env.request(name, target).await.as_ref(), Some(&vip), "{name} to {target:?}");
        }
        // Also a full packet of the tunnel, which must not be fragmented.
        let network = env.pods[name].network.clone();
        let host = HOST.to_string();
        for arguments in [&["-c1", "-W2"][..], &["-c1", "-W2", "-s1422", "-Mdo"][..]] {
            let arguments: Vec<&str> = arguments.iter().copied().chain([host.as_str()]).collect();
            let poll = async || Ok(network.run("ping", &arguments).is_ok().then_some(()));
            until(&format!("a reply of ping {arguments:?} in {name}"), poll).await.unwrap();
        }
    }
    let packets = env.capture.packets().unwrap();
    for vip in [A, B, C] {
        for protocol in ["tcp", "udp", "ping"] {
            let seen = packets.iter().any(|packets| packets.source == vip && packets.protocol == protocol);
            assert!(seen, "no {protocol} from {vip}: {packets:?}");
        }
    }
}

/// From outside with the client's address, by TCP and UDP, to each pod of the Service; and the Service's status.
async fn ingress(env: &TestEnv) {
    let client = SEGMENT_GATEWAY.to_string();
    for (namespace, name, vip) in SERVICES {
        let expected: BTreeSet<String> =
            env.bound().filter(|pod| env.vip(pod) == vip).map(str::to_owned).collect();
        for target in [tcp(vip, PORT), udp(vip, PORT), bulk(vip, PORT)] {
            // The client's port selects the pod: 200 requests miss one of four with a probability of 10^-25.
            let mut pods = BTreeSet::new();
            for _ in 0..200 {
                let response = request(&env.outside, target).await.unwrap_or_default();
                let (pod, seen) = response.split_once(' ').unwrap_or_default();
                assert_eq!(seen, client, "{target:?}: {response:?}");
                pods.insert(pod.to_owned());
                if pods == expected {
                    break;
                }
            }
            assert_eq!(pods, expected, "{target:?}");
        }
        let api: Api<Service> = Api::namespaced(env.cluster.client(), namespace);
        let service = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
        let ingress = &service["status"]["loadBalancer"]["ingress"];
        assert_eq!(ingress[0]["ip"], vip.to_string().as_str(), "{service}");
    }
}

/// Pods of one Service to the VIP of another, and to their own VIP.
async fn hairpin(env: &TestEnv, [first, second]: &Gateways) {
    let a = || env.bound().filter(|name| name.starts_with('a'));
    for name in a() {
        for (vip, server) in [(B, "b1"), (C, "c1")] {
            let expected = format!("{server} {A}");
            assert_eq!(both(env, name, vip).await, [expected.clone(), expected], "{name} to {vip}");
        }
    }
    for (client, own) in [("b1", B), ("c1", C), ("a1", A), ("a3", A)] {
        let (mut servers, expected) = (BTreeSet::new(), a().collect::<BTreeSet<&str>>());
        for _ in 0..200 {
            // A pod of the Service also reaches itself.
            if servers.len() == expected.len() {
                break;
            }
            for response in both(env, client, A).await {
                let (server, seen) = response.split_once(' ').unwrap_or_default();
                let server = expected.get(server).unwrap_or_else(|| panic!("{client} to {A}: {response:?}"));
                // A pod on the gateway of its client's VIP would reply to an address of its own node: it sees the VIP that the client used.
                let is_local = client == "c1" && first != second && env.pods[server].node == second;
                let source = if is_local { A } else { own };
                assert_eq!(seen, source.to_string(), "{client} to {A}: {response:?}");
                servers.insert(*server);
            }
        }
        assert_eq!(servers.len(), expected.len(), "{client} to {A}: {servers:?}");
    }
}

/// Pods that are not bound, nodes, ClusterIPs, NodePorts and pods' own addresses.
async fn untouched(env: &TestEnv) {
    let api: Api<Service> = Api::namespaced(env.cluster.client(), "bank");
    let service = api.get("u").await.unwrap().spec.unwrap();
    let cluster_ip: Ipv4Addr = service.cluster_ip.unwrap().parse().unwrap();
    for name in ["u1", "u2", "u3"] {
        let node = env.node_source(env.pods[name].node).to_string();
        assert_eq!(env.request(name, tcp(HOST, PORT)).await, Some(node), "{name}");
        for response in both(env, name, B).await {
            assert!(response.starts_with("b1 "), "{name} to {B}: {response:?}");
        }
    }
    for node in env.cluster.nodes() {
        let network = node.network().unwrap();
        let source = env.node_source(node.name()).to_string();
        assert_eq!(request(&network, tcp(HOST, PORT)).await, Some(source), "{}", node.name());
        let response = request(&network, tcp(B, PORT)).await.unwrap_or_default();
        assert!(response.starts_with("b1 "), "{} to {B}: {response:?}", node.name());
    }
    for name in ["a1", "a3"] {
        let own = env.pods[name].ip;
        for server in ["b1", "u2", "u3"] {
            let response = env.request(name, tcp(env.pods[server].ip, 8080)).await;
            assert_eq!(response, Some(format!("{server} {own}")), "{name}");
        }
        let response = env.request(name, tcp(cluster_ip, PORT)).await.unwrap_or_default();
        assert!(response.starts_with('u') && response.ends_with(&format!(" {own}")), "{name}: {response:?}");
    }
    node_ports(env).await;
}

/// Of a bound pod, from this machine: its reply leaves through the node that the client used.
async fn node_ports(env: &TestEnv) {
    let api: Api<Service> = Api::namespaced(env.cluster.client(), "bank");
    let this_machine = env.cluster.this_machine().to_string();
    for (name, nodes) in [("b", &["node-1", "node-2", "node-3", "node-4"][..]), ("b-local", &["node-4"][..])]
    {
        let ports = api.get(name).await.unwrap().spec.unwrap().ports.unwrap();
        let port = |protocol: &str| {
            let port = ports.iter().find(|port| port.protocol.as_deref() == Some(protocol)).unwrap();
            u16::try_from(port.node_port.unwrap()).unwrap()
        };
        for node in nodes {
            let ip = env.machine(node).ip().unwrap();
            for target in [tcp(ip, port("TCP")), udp(ip, port("UDP"))] {
                let request = move || target.request(Duration::from_secs(2));
                let poll = async || Ok(tokio::task::spawn_blocking(request).await?);
                let response = until(&format!("NodePort of {name} on {node}"), poll).await.unwrap();
                let (pod, client) = response.split_once(' ').unwrap_or_default();
                assert_eq!(pod, "b1", "{name} on {node}: {response:?}");
                assert!(name == "b" || client == this_machine, "{name} on {node}: {response:?}");
            }
        }
    }
}

/// A pod with `hostNetwork` behind a bound Service: its node keeps its address, and the VIP does not lead to it.
pub async fn host_network(env: &TestEnv) {
    env.apply(&[pod("a-host", "node-3", true)]).await;
    env.kubectl("-n shop wait --for=condition=Ready pod/a-host --timeout=600s").await;
    let ip = env.machine("node-3").ip().unwrap().to_string();
    until("the endpoint of the node", async || {
        let path =
            ["-n", "shop", "get", "endpointslices", "-o", "jsonpath={.items[*].endpoints[*].addresses[0]}"];
        Ok(env.cluster.kubectl(&path).await?.split(' ').any(|address| address == ip).then_some(()))
    })
    .await
    .unwrap();
    until("the agent's problem HostNetwork", async || {
        let metrics = super::metrics::agent(env, "node-3").await?;
        Ok(metrics.contains("cgw_agent_problems{reason=\"HostNetwork\"} 1").then_some(()))
    })
    .await
    .unwrap();
    let network = env.machine("node-3").network().unwrap();
    let source = env.node_source("node-3").to_string();
    assert_eq!(request(&network, tcp(HOST, PORT)).await, Some(source));
    for _ in 0..32 {
        let response = request(&env.outside, tcp(A, PORT)).await.unwrap_or_default();
        assert!(env.pods.contains_key(response.split(' ').next().unwrap()), "{response:?}");
    }
    env.kubectl("-n shop delete pod a-host --timeout=600s").await;
}
