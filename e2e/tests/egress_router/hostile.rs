//! A pod that tries to leave past its allow-list. Its packets are counted outside, behind the node's interface.

use e2e::egress_router::ELSEWHERE;
use e2e::netns::wait_until;

use super::*;

/// The attempts.
const PROGRAM: &str = include_str!("hostile.pl");
/// Its attempts, each for both families but the last. `redirected` needs a redirect.
const ATTEMPTS: [&str; 10] =
    ["datagram", "marks", "reply", "error", "hairpin", "translated", "raw", "segment", "frames", "discovery"];
/// One host of each family.
const LIST: [&str; 2] = ["203.0.113.9/32", "2001:db8:9::9/128"];

/// A pod whose packets to unlisted hosts are counted at the LAN's gateway, and dropped on their way through the primary interface.
struct Hostile {
    scene: Scene,
    environment: Vec<String>,
}

impl Hostile {
    fn new() -> Self {
        let scene = Scene::new();
        let [v4, v6] = ELSEWHERE;
        scene
            .env
            .node
            .sh(&format!(
                "nft 'add table inet past; add chain inet past forward {{ type filter hook forward priority 0; }}
                      add rule inet past forward ip daddr {v4} drop; add rule inet past forward ip6 daddr {v6} drop'"
            ))
            .unwrap();
        // Before the gateway's IP stack, which ignores frames to other hardware addresses.
        let [own4, own6] = OWN;
        let [listed4, listed6] = OUTSIDE;
        scene
            .env
            .outside
            .sh(&format!(
                "nft 'table netdev past {{
                   counter past {{ }}
                   counter listed {{ }}
                   chain arrived {{ type filter hook ingress device lan0 priority 0;
                     ip daddr {v4} counter name past
                     ip6 daddr {v6} counter name past
                     ip daddr {listed4} ip saddr != {own4} counter name past
                     ip6 daddr {listed6} ip6 saddr != {own6} counter name past
                     meta protocol != {{ ip, ip6, arp }} counter name past
                     ip daddr {listed4} counter name listed
                   }}
                 }}'"
            ))
            .unwrap();
        Self { scene, environment: Vec::new() }
    }

    /// Attaches the pod, with these destinations if there are any.
    fn attach(&mut self, destinations: &[&str]) -> Plugin {
        let mut ip = json!({"addresses": ["192.168.50.99/24", "2001:db8:50::99/64"]});
        if !destinations.is_empty() {
            ip["destinations"] = json!(destinations);
        }
        let plugin = self.scene.plugin(ip);
        plugin.add().unwrap();
        for own in OWN {
            self.scene.outside_sees(own);
        }
        let env = &self.scene.env;
        let link = |node: &Node, name: &str| {
            let line = node.sh(&format!("ip -o link show {name}")).unwrap();
            let mac = line.split_whitespace().skip_while(|word| *word != "link/ether").nth(1).unwrap();
            (line.split(':').next().unwrap().to_owned(), mac.to_owned())
        };
        let pod = &self.scene.pod.inside;
        let ((index, mac), (primary_index, primary_mac)) = (link(pod, "net1"), link(pod, "eth0"));
        let (gateway, node) = (link(&env.outside, "lan0").1, link(&env.node, "cluster0").1);
        self.environment = [
            ("INTERFACE", "net1".to_owned()),
            ("INDEX", index),
            ("MAC", mac),
            ("PRIMARY_INDEX", primary_index),
            ("PRIMARY_MAC", primary_mac),
            ("GATEWAY_MAC", gateway),
            ("NODE_MAC", node),
        ]
        .map(|(key, value)| format!("{key}={value}"))
        .to_vec();
        plugin
    }

    /// Makes an attempt with these capabilities. Returns the number of packets that it got out.
    fn attempts(&self, attempt: &str, family: usize, capabilities: &[&str]) -> u64 {
        let before = self.counted("past");
        let primary = format!("PRIMARY={}", self.scene.pod.addresses[family]);
        let listed = format!("LISTED={}", OUTSIDE[family]);
        let kept: String = capabilities.iter().map(|capability| format!(",+{capability}")).collect();
        let sets = ["--bounding-set", "--inh-caps"].map(|set| format!("{set}=-all{kept}"));
        let mut command = vec!["env", &primary, &listed];
        command.extend(self.environment.iter().map(String::as_str));
        command.extend(["setpriv", &sets[0], &sets[1]]);
        if capabilities.is_empty() {
            command.extend(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        }
        command.extend(["perl", "-", attempt, OWN[family], ELSEWHERE[family]]);
        let output = self.scene.pod.inside.run_with_input(command, PROGRAM).unwrap();
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{attempt}");
        // A packet that arrives after all of the attempt's.
        let fence = self.counted("listed");
        self.scene.outside_sees(OWN[0]);
        wait_until("a listed packet is counted", || Ok(self.counted("listed") > fence)).unwrap();
        self.counted("past") - before
    }

    /// All attempts: name, family, and the number of packets that it got out.
    fn all(&self, capabilities: &[&str]) -> Vec<(&'static str, usize, u64)> {
        let both = ATTEMPTS.into_iter().flat_map(|attempt| [(attempt, 0), (attempt, 1)]);
        both.filter(|tried| *tried != ("discovery", 0))
            .map(|(attempt, family)| (attempt, family, self.attempts(attempt, family, capabilities)))
            .collect()
    }

    fn counted(&self, counter: &str) -> u64 {
        let listed =
            self.scene.env.outside.sh(&format!("nft -j list counter netdev past {counter}")).unwrap();
        let listed: Value = serde_json::from_str(&listed).unwrap();
        let counters = listed["nftables"].as_array().unwrap().iter();
        counters.filter_map(|one| one["counter"]["packets"].as_u64()).sum()
    }
}

/// docs/egress-router-cni/threat-model.md: raw IP sockets and packet sockets.
#[test]
fn no_attempt_with_raw_sockets_leaves_past_the_list() {
    let mut pod = Hostile::new();
    // The control: without a list, each attempt gets something out.
    let plugin = pod.attach(&[]);
    for (attempt, family, out) in pod.all(&["net_raw"]) {
        assert!(out > 0, "{attempt} of family {family} is no attempt");
    }
    plugin.del(None).unwrap();
    pod.attach(&LIST);
    for (attempt, family, out) in pod.all(&["net_raw"]) {
        assert_eq!(out, 0, "{attempt} of family {family} leaves past the list");
    }
    // Clients of the attachment get replies, and errors.
    let scene = &pod.scene;
    for family in 0..2 {
        let _server = scene.pod.inside.listen(OWN[family], 8080).unwrap();
        scene.env.outside.wait_seen_as(GATEWAY[family], OWN[family], 8080).unwrap();
        wait_until("an error for a closed port", || {
            let (meeting, _) = scene.env.outside.meets(Transport::Udp, OWN[family], 8081)?;
            Ok(matches!(meeting, Meeting::Refused(_)))
        })
        .unwrap();
    }
}

/// IPv6 lets any program send from any address.
#[test]
fn no_attempt_without_a_capability_leaves_past_the_list() {
    let mut pod = Hostile::new();
    let plugin = pod.attach(&[]);
    let left: Vec<_> = pod.all(&[]).into_iter().filter(|(_, _, out)| *out > 0).collect();
    for attempt in [("datagram", 0), ("datagram", 1), ("reply", 1), ("translated", 1)] {
        assert!(left.iter().any(|(name, family, _)| (*name, *family) == attempt), "{attempt:?}: {left:?}");
    }
    plugin.del(None).unwrap();
    pod.attach(&LIST);
    for (attempt, family, out) in pod.all(&[]) {
        assert_eq!(out, 0, "{attempt} of family {family} leaves past the list");
    }
}

#[test]
fn a_made_reply_of_a_redirected_connection_does_not_leave_past_the_list() {
    let mut pod = Hostile::new();
    let redirects = ["53 udp 203.0.113.9", "53 udp 2001:db8:9::9"];
    let out = |pod: &Hostile| [0, 1].map(|family| pod.attempts("redirected", family, &["net_raw"]));
    let plugin = pod.attach(&redirects);
    let left = out(&pod);
    assert!(left.iter().all(|out| *out > 0), "the control: {left:?}");
    plugin.del(None).unwrap();
    pod.attach(&[&LIST[..], &redirects].concat());
    assert_eq!(out(&pod), [0, 0]);
}

/// With NET_ADMIN, a pod adds to its own network. It gets past its list only by the acts that the threat model lists.
#[test]
fn own_routes_rules_and_chains_do_not_open_the_list() {
    let mut pod = Hostile::new();
    pod.attach(&LIST);
    let [v4, v6] = ELSEWHERE;
    let lines = format!(
        "for table in main 71001 72001; do
           ip route replace {v4} via {} dev net1 table $table; ip -6 route replace {v6} via {} dev net1 table $table
         done
         ip rule add pref 1 to {v4} lookup 72001; ip -6 rule add pref 1 to {v6} lookup 72001
         nft 'table inet own {{
           chain untracked {{ type filter hook output priority -500; ip daddr {v4} notrack; ip6 daddr {v6} notrack; }}
           chain marked {{ type route hook output priority -160; meta mark set 0x10000 accept; }}
           chain translated {{
             type nat hook output priority 100;
             ip daddr {{ {}, {} }} dnat ip to {v4}; ip6 daddr {{ {}, {} }} dnat ip6 to {v6};
           }}
           chain accepted {{ type filter hook postrouting priority 300; accept; }}
         }}'",
        GATEWAY[0], GATEWAY[1], OUTSIDE[0], OWN[0], OUTSIDE[1], OWN[1]
    );
    pod.scene.pod.inside.sh(&lines).unwrap();
    let out = |pod: &Hostile| {
        let before = pod.counted("past");
        // The pod's own address: such a packet has the route to the loopback before it is translated.
        for host in [ELSEWHERE, OUTSIDE, OWN].concat() {
            let _ = pod.scene.pod.inside.meets(Transport::Tcp, host, PORT).unwrap();
            pod.scene.pod.inside.pings(host).unwrap();
        }
        pod.counted("past") - before
    };
    assert_eq!(out(&pod), 0);
    pod.scene.pod.inside.sh("nft delete table inet own").unwrap();
    for (attempt, family, out) in pod.all(&["net_raw", "net_admin"]) {
        assert_eq!(out, 0, "{attempt} of family {family} leaves past the list");
    }
    // The control, and the page's yes: it deletes the table.
    pod.scene.pod.inside.sh("nft delete table inet egress_router_net1").unwrap();
    assert!(out(&pod) > 0);
}
