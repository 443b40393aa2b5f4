//! egress-router as a runtime calls it, tested with packets: the source address that external hosts see, the reachability of the cluster, and
//! that DEL restores the namespace completely. Names with `bNN` refer to docs/egress-router-cni/defects.md.
//!
//! The lab consists of network namespaces. Root is needed only if the kernel does not allow users to create them.
// A family is the index in pairs of addresses: 0 is IPv4, 1 is IPv6.
#![allow(clippy::needless_range_loop)]

use std::time::Duration;

use e2e::egress_router::{
    BRIDGE, GATEWAY, NODE, OUTSIDE, PORT, Plugin, Pod, REMOTE, SERVICE, TestEnv, config,
};
use e2e::netns::{Meeting, Node, Snapshot, Transport, wait_until};
use serde_json::{Value, json};

mod allowed;
mod attachments;
mod chained;
mod configuration;
mod crowd;
mod families;
mod hostile;
mod journal;
mod lab;
mod libcni;
mod multus;
mod oddities;
mod peer;
mod protocol;
mod redirect;
mod undo;
mod ways;

/// Of a TCP connection: the initial retransmission timeout of RFC 6298.
const FIRST_RETRANSMISSION: Duration = Duration::from_secs(1);
/// The pod's static external address, for each family.
const OWN: [&str; 2] = ["192.168.50.99", "2001:db8:50::99"];

/// An environment with one pod, and the initial state of node and pod.
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

    /// The plugin for `net1`.
    fn plugin(&self, ip: Value) -> Plugin {
        self.attachment("net1", ip)
    }

    fn attachment(&self, ifname: &str, ip: Value) -> Plugin {
        self.env.plugin(&self.pod, ifname, config(ip)).unwrap()
    }

    /// The difference between the pod's state and its initial state.
    fn changes(&self) -> Vec<String> {
        self.pod_before.changes(&self.pod.inside.network_state().unwrap())
    }

    /// Asserts that pod and node have their initial state, and that the plugin has left no files.
    fn restored(&self) {
        assert_eq!(self.changes(), Vec::<String>::new());
        let node = self.node_before.changes(&self.env.node.network_state().unwrap());
        assert_eq!(node, Vec::<String>::new());
        let left = "find /run/egress-router/attachments /var/lib/cni -type f 2>/dev/null || true";
        assert_eq!(self.env.node.sh(left).unwrap(), "");
    }

    /// Asserts that the pod reaches the cluster through its primary interface: node, bridge, another node's pod, a service.
    fn cluster_is_reached(&self, families: std::ops::Range<usize>) {
        for family in families {
            for there in [NODE, BRIDGE, REMOTE, SERVICE] {
                self.pod.inside.wait_seen_as(&self.pod.addresses[family], there[family], PORT).unwrap();
            }
        }
    }

    /// Asserts that external hosts see the pod with the source address `expected`.
    fn outside_sees(&self, expected: &str) {
        let family = usize::from(expected.contains(':'));
        self.pod.inside.wait_seen_as(expected, OUTSIDE[family], PORT).unwrap();
    }

    /// Asserts that an external host sees a connection with this source address, whichever attachment has the default route.
    fn leaves_with(&self, address: &str) {
        let to = format!("TCP4:{}:{PORT},bind={address},connect-timeout=1", OUTSIDE[0]);
        let mut seen = String::new();
        // On a busy machine, the host may take longer than a second.
        wait_until(&format!("a connection from {address}"), || {
            self.pod.inside.run(["socat", "-T1", "-u", &to, "-"])?.stdout.trim().clone_into(&mut seen);
            Ok(!seen.is_empty())
        })
        .unwrap();
        assert_eq!(seen, address);
    }

    /// Asserts that a client of the pod's primary address gets a reply.
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

/// An attempt that is rejected immediately, not at the first retransmission after 1 s, and not dropped. On a busy machine many attempts
/// may take longer, so they are repeated.
fn refused_at_once(node: &Node, transport: Transport, address: &str, port: u16) {
    let mut last = None;
    wait_until(&format!("{address}:{port} to reject immediately"), || {
        let (meeting, took) = node.meets(transport, address, port)?;
        let immediately = matches!(meeting, Meeting::Refused(_)) && took < FIRST_RETRANSMISSION;
        last = Some((meeting, took));
        Ok(immediately)
    })
    .unwrap_or_else(|error| panic!("{error:#}, last: {last:?}"));
}

/// Asserts that the configuration is refused with this code and text, and that nothing was changed.
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
