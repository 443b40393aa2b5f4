//! `demo egress-router`: a pod leaves through an address of its own, in network namespaces, with packets.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use e2e::egress_router::{
    BRIDGE, ELSEWHERE, GATEWAY, NODE, OUTSIDE, PORT, Plugin, Pod, REMOTE, SERVICE, TestEnv, config,
};
use e2e::netns::{Meeting, Snapshot, Transport};
use serde_json::{Value, json};

use crate::screen::Screen;

/// The pod's own address outside.
const OWN: &str = "192.168.50.99";
/// The same on IPv6.
const OWN_V6: &str = "2001:db8:50::99";

const PICTURE: &str = "\
outside 203.0.113.9 ── router 192.168.50.1 ── LAN ── 192.168.50.2 node 10.244.1.1 ── pod
                                                                   └── another node, pod 10.244.2.5";

/// Plays it. It returns when all was seen; every namespace is gone then, and also when this is dropped or killed.
pub(crate) fn play(screen: &Screen) -> Result<()> {
    screen.title("1/6 ── A node with a pod, another node, and a LAN with a way outside");
    screen.output(PICTURE);
    screen.say(
        "All of it is network namespaces on this machine, and what runs between them are real packets. Who is asked tells \
         which address it sees; that is what stands at the right.",
    );
    let begun = Instant::now();
    let env = TestEnv::new()?;
    let pod = env.pod("pod")?;
    let show = Show { screen, before: pod.inside.network_state()?, env, pod };
    screen.fact("ready", &format!("after {:.1} s", begun.elapsed().as_secs_f64()));
    show.seen("the outside sees the node, whichever pod it is", OUTSIDE[0], NODE[0])?;
    show.seen("the same on IPv6", OUTSIDE[1], NODE[1])?;

    screen.title("2/6 ── ADD: the pod gets an address of its own");
    screen.say(
        "A network configuration as it stands in a NetworkAttachmentDefinition. Neither the node's interface nor the gateway \
         is named: both follow from the address.",
    );
    let ip = json!({"addresses": [format!("{OWN}/24"), format!("{OWN_V6}/64")]});
    let plugin = show.plugin(ip)?;
    let result = show.add(&plugin)?;
    show.seen("the outside sees the pod's own address", OUTSIDE[0], OWN)?;
    show.seen("the same on IPv6, at once", OUTSIDE[1], OWN_V6)?;

    screen.title("3/6 ── The cluster stays where it was");
    screen.say(
        "The new interface is the default route now. The cluster's networks, which the node's own settings name, are still \
         reached by the old one:",
    );
    let cluster = &show.pod.addresses[0];
    show.seen("the node", NODE[0], cluster)?;
    show.seen("the bridge of the pods' network", BRIDGE[0], cluster)?;
    show.seen("a pod on another node", REMOTE[0], cluster)?;
    show.seen("a Service of which that pod is the endpoint", SERVICE[0], cluster)?;
    screen.say(
        "And who calls from an address that no configuration names is answered by the way the call came in:",
    );
    {
        let _server = show.pod.inside.listen(cluster, 8080)?;
        show.env.node2.wait_seen_as("10.1.0.2", cluster, 8080)?;
        screen.seen("the other node itself, at the pod's port 8080", "10.1.0.2");
    }
    screen.command("ip route    # in the pod");
    screen.output(&show.pod.inside.sh("ip route")?);

    screen.title("4/6 ── DEL: as if nothing had been");
    show.del(&plugin, &result)?;

    screen.title("5/6 ── destinations: where a pod may go, and what it hands on");
    screen.say(
        "An entry with a / is a list of what may be reached. `port protocol address` hands on what comes to the pod, from the \
         pod's own address: this is how cluster-network-operator writes an EgressRouter.",
    );
    let plugin = show.plugin(json!({
        "addresses": [format!("{OWN}/24")],
        "destinations": [format!("{}/32", OUTSIDE[0]), format!("8080 TCP {} 80", ELSEWHERE[0])],
    }))?;
    let result = show.add(&plugin)?;
    show.seen("the listed host", OUTSIDE[0], OWN)?;
    let (meeting, took) = show.pod.inside.meets(Transport::Tcp, GATEWAY[0], PORT)?;
    let Meeting::Refused(words) = meeting else {
        anyhow::bail!("{} is not listed, and was not refused: {meeting:?}", GATEWAY[0]);
    };
    let refused = format!("{}: a host that is not listed refuses at once", GATEWAY[0]);
    screen.seen(&refused, &format!("{words}, {} ms", took.as_millis()));
    show.env.node2.wait_seen_as(OWN, cluster, 8080)?;
    screen.seen(&format!("the other node calls the pod's port 8080; {} sees", ELSEWHERE[0]), OWN);

    screen.title("6/6 ── CHECK sees what somebody has changed, and DEL cleans up all the same");
    let command = "ip route del 172.30.0.0/16";
    screen.command(&format!("{command}    # somebody, in the pod"));
    show.pod.inside.sh(command)?;
    let check = plugin.check(&result)?;
    ensure!(check.code != Some(0), "CHECK saw nothing");
    screen.command("CNI_COMMAND=CHECK egress-router");
    screen.output(&check.words());
    show.del(&plugin, &result)?;

    screen.title("What you have seen");
    screen.say(
        "The program that a container runtime calls, called as it calls it; real interfaces, routes, packet filters and \
         packets. Nothing of it was outside of this machine's loopback and its own namespaces, and all of it is gone now. \
         docs/egress-router-cni.md says how to install it on a cluster.",
    );
    Ok(())
}

struct Show<'a> {
    screen: &'a Screen,
    before: Snapshot,
    pod: Pod,
    env: TestEnv,
}

impl Show<'_> {
    fn plugin(&self, ip: Value) -> Result<Plugin> {
        self.screen.command("cat egress.json");
        let config = config(ip);
        let lines: Vec<_> = ["cniVersion", "name", "type", "ip"]
            .into_iter()
            .filter_map(|key| Some(format!("  \"{key}\": {}", config.get(key)?)))
            .collect();
        self.screen.output(&format!("{{\n{}\n}}", lines.join(",\n")));
        self.env.plugin(&self.pod, "net1", config)
    }

    fn add(&self, plugin: &Plugin) -> Result<Value> {
        self.screen.command(&format!(
            "CNI_COMMAND=ADD CNI_NETNS={} CNI_IFNAME=net1 CNI_CONTAINERID=pod egress-router <egress.json",
            self.pod.netns
        ));
        let result = plugin.add()?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("-").to_owned();
        let ips = result.get("ips").and_then(Value::as_array).context("a result has addresses")?;
        for ip in ips {
            self.screen.fact("net1", &format!("{} via {}", text(ip.get("address")), text(ip.get("gateway"))));
        }
        Ok(result)
    }

    fn del(&self, plugin: &Plugin, result: &Value) -> Result<()> {
        self.screen.command("CNI_COMMAND=DEL … egress-router");
        plugin.del(Some(result))?;
        let changes = self.before.changes(&self.pod.inside.network_state()?);
        ensure!(changes.is_empty(), "the pod is not as it was: {changes:?}");
        self.screen
            .seen("links, addresses, routes, rules, packet filter and switches of the pod", "as before");
        self.seen("the outside sees the node's address again", OUTSIDE[0], NODE[0])
    }

    /// Asks until the pod is seen as it shall be.
    fn seen(&self, what: &str, address: &str, expected: &str) -> Result<()> {
        self.pod.inside.wait_seen_as(expected, address, PORT)?;
        self.screen.seen(&format!("{address}: {what}"), expected);
        Ok(())
    }
}
