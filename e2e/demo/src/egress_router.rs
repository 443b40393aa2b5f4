//! `demo egress-router`: a pod leaves the cluster through an address of its own, in network namespaces, with packets.

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::egress_router::{
    BRIDGE, ELSEWHERE, GATEWAY, NODE, OUTSIDE, PORT, Plugin, Pod, REMOTE, SERVICE, TestEnv, config,
};
use e2e::netns::{Meeting, Snapshot, Transport};
use serde_json::{Value, json};

use crate::screen::Screen;

/// The pod's egress addresses.
const EGRESS: &str = "192.168.50.99";
const EGRESS_V6: &str = "2001:db8:50::99";

const PICTURE: &str = "\
internet 203.0.113.9 ── router 192.168.50.1 ── LAN ── 192.168.50.2 node 10.244.1.1 ── pod
                                                └── second node, pod 10.244.2.5";

pub(crate) fn run(screen: &Screen) -> Result<()> {
    screen.title("1/6 ── A node with a pod, a second node, and a LAN with a router to the internet");
    screen.output(PICTURE);
    screen.say(
        "All of them are network namespaces on this machine, and the packets between them are real. Each ✓ is a connection \
         from the pod to the address on the left. The address on the right is the source address that the peer sees.",
    );
    let began = Instant::now();
    let env = TestEnv::new()?;
    let pod = env.pod("pod")?;
    let demo = EgressDemo { screen, before: pod.inside.network_state()?, env, pod };
    screen.fact("ready", &format!("after {:.1} s", began.elapsed().as_secs_f64()));
    demo.seen_as("the internet sees the node's address", OUTSIDE[0], NODE[0])?;
    demo.seen_as("the same with IPv6", OUTSIDE[1], NODE[1])?;

    screen.title("2/6 ── ADD: the pod gets an egress address of its own");
    screen.say(
        "The network configuration is that of a NetworkAttachmentDefinition. It names neither the node's interface nor the \
         gateway: egress-router infers both from the address.",
    );
    let plugin = demo.plugin(json!({"addresses": [format!("{EGRESS}/24"), format!("{EGRESS_V6}/64")]}))?;
    let result = demo.add(&plugin)?;
    demo.seen_as("the internet sees the pod's egress address", OUTSIDE[0], EGRESS)?;
    demo.seen_as("the same with IPv6, without delay", OUTSIDE[1], EGRESS_V6)?;

    screen.title("3/6 ── Traffic within the cluster is unchanged");
    screen.say(
        "The default route of the pod leads through the new interface. The cluster's networks, which the node's configuration \
         of the plugin lists, are still reached through the primary interface:",
    );
    let cluster = &demo.pod.addresses[0];
    demo.seen_as("the node", NODE[0], cluster)?;
    demo.seen_as("the bridge of the pod network", BRIDGE[0], cluster)?;
    demo.seen_as("a pod on the second node", REMOTE[0], cluster)?;
    demo.seen_as("a Service whose endpoint is that pod", SERVICE[0], cluster)?;
    screen.say(
        "A connection to the pod is answered through the interface on which it arrived, from any address:",
    );
    {
        let _server = demo.pod.inside.listen(cluster, 8080)?;
        demo.env.node2.wait_seen_as("10.1.0.2", cluster, 8080)?;
        screen.success("the second node connects to the pod's port 8080; the pod sees", "10.1.0.2");
    }
    screen.command("ip route    # in the pod");
    screen.output(&demo.pod.inside.sh("ip route")?);

    screen.title("4/6 ── DEL: the pod's network is as before");
    demo.del(&plugin, &result)?;

    screen.title("5/6 ── destinations: an allow-list and DNAT");
    screen.say(
        "An entry with a / is a network that the pod may reach through the new interface. An entry `port protocol address` \
         is a redirect: connections to this port of the pod are forwarded to the address (DNAT), with the pod's egress address \
         as their source (SNAT). cluster-network-operator writes an EgressRouter in this form.",
    );
    let plugin = demo.plugin(json!({
        "addresses": [format!("{EGRESS}/24")],
        "destinations": [format!("{}/32", OUTSIDE[0]), format!("8080 TCP {} 80", ELSEWHERE[0])],
    }))?;
    let result = demo.add(&plugin)?;
    demo.seen_as("a listed host", OUTSIDE[0], EGRESS)?;
    let (meeting, took) = demo.pod.inside.meets(Transport::Tcp, GATEWAY[0], PORT)?;
    let Meeting::Refused(error) = meeting else {
        bail!("{} is not listed, but was not refused: {meeting:?}", GATEWAY[0]);
    };
    let refused = format!("{}: a host that is not listed is refused without delay", GATEWAY[0]);
    screen.success(&refused, &format!("{error}, {} ms", took.as_millis()));
    demo.env.node2.wait_seen_as(EGRESS, cluster, 8080)?;
    let redirected = format!("the second node connects to the pod's port 8080; {} sees", ELSEWHERE[0]);
    screen.success(&redirected, EGRESS);

    screen.title("6/6 ── CHECK detects a change, and DEL cleans up nevertheless");
    let command = "ip route del 172.30.0.0/16";
    screen.command(&format!("{command}    # in the pod"));
    demo.pod.inside.sh(command)?;
    let check = plugin.check(&result)?;
    ensure!(check.code != Some(0), "CHECK did not detect the missing route");
    screen.command("CNI_COMMAND=CHECK egress-router <egress.json");
    screen.output(&check.words());
    demo.del(&plugin, &result)?;

    screen.title("What you have seen");
    screen.say(
        "The plugin, called as a container runtime calls it, with real interfaces, routes, packet filters and packets. \
         Everything ran in network namespaces of this machine and is removed now. docs/egress-router-cni.md describes the \
         installation.",
    );
    Ok(())
}

struct EgressDemo<'a> {
    screen: &'a Screen,
    before: Snapshot,
    pod: Pod,
    env: TestEnv,
}

impl EgressDemo<'_> {
    fn plugin(&self, ip: Value) -> Result<Plugin> {
        let config = config(ip);
        let field = |of: &Value, key: &str| Some(format!("\"{key}\": {}", of.get(key)?));
        let ip = ["addresses", "destinations"].iter().filter_map(|key| field(config.get("ip")?, key));
        let ip = ip.collect::<Vec<_>>().join(",\n    ");
        let head = ["cniVersion", "name", "type"].iter().filter_map(|key| field(&config, key));
        let head = head.collect::<Vec<_>>().join(", ");
        self.screen.command("cat egress.json");
        self.screen.output(&format!("{{\n  {head},\n  \"ip\": {{\n    {ip}\n  }}\n}}"));
        self.env.plugin(&self.pod, "net1", config)
    }

    fn add(&self, plugin: &Plugin) -> Result<Value> {
        self.screen.command(&format!(
            "CNI_COMMAND=ADD CNI_NETNS={} CNI_IFNAME=net1 CNI_CONTAINERID=pod egress-router <egress.json",
            self.pod.netns
        ));
        let result = plugin.add()?;
        let ips = result.get("ips").and_then(Value::as_array).context("the result has no addresses")?;
        for ip in ips {
            let text = |key: &str| ip.get(key).and_then(Value::as_str).unwrap_or("-");
            self.screen.fact("net1", &format!("{} via {}", text("address"), text("gateway")));
        }
        Ok(result)
    }

    fn del(&self, plugin: &Plugin, result: &Value) -> Result<()> {
        self.screen.command("CNI_COMMAND=DEL … egress-router <egress.json");
        plugin.del(Some(result))?;
        let changes = self.before.changes(&self.pod.inside.network_state()?);
        ensure!(changes.is_empty(), "the pod's network has changed: {changes:?}");
        self.screen
            .success("links, addresses, routes, rules, packet filter and sysctls of the pod", "as before");
        self.seen_as("the internet sees the node's address again", OUTSIDE[0], NODE[0])
    }

    /// Connects from the pod until the peer sees the expected source address.
    fn seen_as(&self, what: &str, address: &str, expected: &str) -> Result<()> {
        self.pod.inside.wait_seen_as(expected, address, PORT)?;
        self.screen.success(&format!("{address}: {what}"), expected);
        Ok(())
    }
}
