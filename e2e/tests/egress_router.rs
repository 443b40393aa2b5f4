//! egress-router as a runtime calls it, proven with packets: who outside sees whom, what of the cluster is still reached, and
//! that a namespace is afterwards as it was before, to the byte.
//!
//! The lab is made of namespaces of its own: root is needed only where the kernel forbids users to make them.
// Whatever is said of a family is said with its place in all the pairs of addresses.
#![allow(clippy::needless_range_loop)]

use e2e::egress_router::{
    BRIDGE, GATEWAY, NODE, OUTSIDE, PORT, Plugin, Pod, REMOTE, SERVICE, TestEnv, config,
};
use e2e::netns::{Meeting, Node, Snapshot, Transport};
use serde_json::{Value, json};

mod allowed;
mod attachments;
mod chained;
mod configuration;
mod crowd;
mod families;
mod lab;
mod libcni;
mod multus;
mod oddities;
mod peer;
mod protocol;
mod redirect;
mod undo;
mod ways;

/// The pod's own address outside, of either family.
const OWN: [&str; 2] = ["192.168.50.99", "2001:db8:50::99"];

/// A environment with one pod, and how both were before anything was called.
struct Scene {
    env: TestEnv,
    pod: Pod,
    pod_before: Snapshot,
    node_before: Snapshot,
}

impl Scene {
    fn new() -> Self {
        Self::with_interface("eth0")
    }

    fn with_interface(interface: &str) -> Self {
        let env = TestEnv::new().unwrap();
        let pod = env.pod_with("pod", interface).unwrap();
        let (pod_before, node_before) =
            (pod.inside.network_state().unwrap(), env.node.network_state().unwrap());
        Self { env, pod, pod_before, node_before }
    }

    /// egress-router for `net1`.
    fn plugin(&self, ip: Value) -> Plugin {
        self.attachment("net1", ip)
    }

    fn attachment(&self, ifname: &str, ip: Value) -> Plugin {
        self.env.plugin(&self.pod, ifname, config(ip)).unwrap()
    }

    /// What differs in the pod from how it was at first.
    fn changes(&self) -> Vec<String> {
        self.pod_before.changes(&self.pod.inside.network_state().unwrap())
    }

    /// The pod and the node are as they were, and the plugin has left no files.
    fn restored(&self) {
        assert_eq!(self.changes(), Vec::<String>::new());
        let node = self.node_before.changes(&self.env.node.network_state().unwrap());
        assert_eq!(node, Vec::<String>::new());
        let left = "find /run/egress-router/attachments /var/lib/cni -type f 2>/dev/null || true";
        assert_eq!(self.env.node.sh(left).unwrap(), "");
    }

    /// The pod's own network serves it as it did: node, bridge, another node's pod, a service, in both families or one.
    fn cluster_is_reached(&self, families: std::ops::Range<usize>) {
        for family in families {
            for there in [NODE, BRIDGE, REMOTE, SERVICE] {
                self.pod.inside.wait_seen_as(&self.pod.addresses[family], there[family], PORT).unwrap();
            }
        }
    }

    /// The outside sees the pod as `expected`.
    fn outside_sees(&self, expected: &str) {
        let family = usize::from(expected.contains(':'));
        self.pod.inside.wait_seen_as(expected, OUTSIDE[family], PORT).unwrap();
    }

    /// Who connects from elsewhere to the pod's address in its own network is answered.
    fn is_reached_from(&self, client: &Node, as_whom: &str) {
        let address = &self.pod.addresses[usize::from(as_whom.contains(':'))];
        let _server = self.pod.inside.listen(address, 8080).unwrap();
        client.wait_seen_as(as_whom, address, 8080).unwrap();
    }
}

fn v4() -> Value {
    json!({"addresses": ["192.168.50.99/24"]})
}

fn v6() -> Value {
    json!({"addresses": ["2001:db8:50::99/64"]})
}

fn dual() -> Value {
    json!({"addresses": ["192.168.50.99/24", "2001:db8:50::99/64"]})
}

/// An attempt that is refused before the time is up, not one that nobody answers.
fn refused_at_once(node: &Node, transport: Transport, address: &str, port: u16) -> String {
    let (meeting, took) = node.meets(transport, address, port).unwrap();
    let Meeting::Refused(words) = meeting else { panic!("{address}:{port}: {meeting:?} after {took:?}") };
    // A connection that is not refused is given up after 1 s.
    assert!(took.as_millis() < 500, "{address}:{port}: {words} after {took:?}");
    words
}

/// Refused with that code and those words, and nothing was touched.
fn refused(scene: &Scene, config: Value, code: u64, words: &[&str]) {
    let refusal = scene.env.plugin(&scene.pod, "net1", config.clone()).unwrap().refused().unwrap();
    assert_eq!(refusal.error_code(), Some(code), "{config}: {refusal:#?}");
    for word in words {
        assert!(refusal.words().contains(word), "{config}: no {word:?} in {:?}", refusal.words());
    }
    scene.restored();
}

fn without_ip(key: &str, value: Value) -> Value {
    json!({"cniVersion": "1.1.0", "name": "egress", "type": "egress-router", key: value})
}
