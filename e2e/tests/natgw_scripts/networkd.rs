//! The files for netplan, read by the real netplan and applied by the real systemd-networkd, through a boot.

use e2e::netns::{Iptables, Process, wait_until};

use super::*;

/// The state that the lab gives a gateway and a client, as netplan has it.
const GATEWAY: &str = "network:
  version: 2
  ethernets:
    eth0:
      link-local: []
      addresses: [192.0.2.11/32]
      routes: [{to: 172.31.1.1/32, scope: link}, {to: 0.0.0.0/0, via: 172.31.1.1, from: 192.0.2.11}]
    ens10:
      link-local: []
      addresses: [10.0.0.2/32]
      routes: [{to: 10.0.0.1/32, scope: link}, {to: 10.0.0.0/16, via: 10.0.0.1}]
";
const CLIENT: &str = "network:
  version: 2
  ethernets:
    ens10:
      link-local: []
      addresses: [10.0.1.4/32]
      routes: [{to: 10.0.0.1/32, scope: link}, {to: 10.0.0.0/16, via: 10.0.0.1}]
";

/// A node with systemd-networkd.
struct Machine<'a> {
    node: &'a Node,
    networkd: Option<Process>,
}

impl<'a> Machine<'a> {
    fn new(node: &'a Node, definitions: &str) -> Self {
        // With a writable /sys, systemd-networkd would wait for udev.
        node.sh("mount -t sysfs -o ro lab /sys; mkdir /etc/netplan").unwrap();
        node.write("/etc/netplan/50-cloud-init.yaml", "600", definitions).unwrap();
        let mut machine = Self { node, networkd: None };
        machine.boot();
        machine
    }

    /// Everything but files is lost. netplan's generator runs, then systemd-networkd.
    fn boot(&mut self) {
        self.stop();
        let boot = "
            for link in $(ls /sys/class/net); do ip addr flush dev $link; done
            for table in nat filter mangle; do iptables -t $table -F; iptables -t $table -X; done
            rm -rf /run/systemd /run/natgw*
            netplan generate
            mkdir -p /run/systemd/netif; chown systemd-network:systemd-network /run/systemd/netif";
        self.node.sh(boot).unwrap();
        self.start();
    }

    fn start(&mut self) {
        let start = "/lib/systemd/systemd-networkd & echo $! >/run/networkd.pid; wait";
        let networkd = self.node.start_process(["bash", "-c", start]).unwrap();
        networkd.wait_for("Enumeration completed").unwrap();
        self.networkd = Some(networkd);
        self.wait_for("ip -4 route show", "10.0.0.0/16 via 10.0.0.1");
    }

    fn stop(&mut self) {
        let Some(networkd) = self.networkd.take() else { return };
        self.node.sh("kill $(</run/networkd.pid)").unwrap();
        networkd.wait().unwrap();
    }

    fn wait_for(&self, command: &str, text: &str) {
        wait_until(&format!("{command} prints {text}"), || Ok(self.node.sh(command)?.contains(text)))
            .unwrap();
    }

    /// The files that netplan has generated.
    fn generated(&self) -> String {
        self.node.sh("tail -n +1 /run/systemd/network/*").unwrap()
    }
}

#[test]
fn the_floating_ip_is_back_after_a_boot_and_gone_after_a_teardown() {
    let env = TestEnv::new(Iptables::Nft);
    let mut machine = Machine::new(&env.gateway.node, GATEWAY);
    let addresses = "ip -4 addr show eth0";
    machine.wait_for(addresses, OWN[0]);
    env.network.wait_sees(&env.gateway.node, OWN[0]).unwrap();
    let before = machine.generated();
    let output = setup(&env.gateway, FIRST);
    assert_eq!(output.stderr, "", "netplan accepts the file");
    // The address is added to the interface's definition, and replaces nothing in it.
    let generated = machine.generated();
    let added: Vec<&str> =
        generated.lines().filter(|line| !before.lines().any(|other| other == *line)).collect();
    assert_eq!(added, ["Address=198.51.100.9/32"]);
    assert!(before.lines().all(|line| generated.contains(line)), "{generated}");
    env.client_is_seen_as(FIRST);
    machine.stop();
    machine.start();
    env.client_is_seen_as(FIRST);

    machine.boot();
    machine.wait_for(addresses, FIRST);
    env.client_is_cut_off();
    setup(&env.gateway, FIRST);
    env.client_is_seen_as(FIRST);

    teardown(&env.gateway, FIRST);
    assert_eq!(machine.generated(), before);
    for _ in 0..2 {
        assert!(!machine.node.sh(addresses).unwrap().contains(FIRST));
        machine.boot();
        machine.wait_for(addresses, OWN[0]);
    }
}

#[test]
fn the_route_of_a_client_is_back_after_a_boot_and_gone_after_a_teardown() {
    let env = TestEnv::new(Iptables::Nft);
    setup(&env.gateway, FIRST);
    let mut machine = Machine::new(&env.client.node, CLIENT);
    env.client_is_cut_off();
    let before = machine.generated();
    let variables = environment(&env.client, FIRST);
    assert_eq!(run(&env.client.node, CLIENT_SETUP, &variables).stderr, "");
    env.client_is_seen_as(FIRST);
    machine.boot();
    machine.wait_for(
        "ip -4 route show default",
        "default via 10.0.0.1 dev ens10 proto static metric 30000 onlink",
    );
    env.client_is_seen_as(FIRST);
    // A setup that finds the route by networkd leaves it as it is.
    assert_eq!(run(&env.client.node, CLIENT_SETUP, &variables).stderr, "");
    run(&env.client.node, CLIENT_TEARDOWN, &variables);
    assert_eq!(machine.generated(), before);
    machine.boot();
    env.client_is_cut_off();
}
