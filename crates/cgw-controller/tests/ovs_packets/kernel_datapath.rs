//! The same lab on the datapath of a stock Debian kernel, in a machine under QEMU: this test program, started again. An emulated machine is
//! slow, so only the three ways of packets are repeated, and what the userspace datapath cannot show.

use std::{
    net::IpAddr,
    path::Path,
    process::{Command, Stdio},
    sync::OnceLock,
};

use super::{
    Load, State,
    lab::{Counter, EXT, PORT, VIP_A, VIP_B, datapath, lab},
};

/// Debian's packages with the programs that the lab calls.
const PACKAGES: &str =
    "openvswitch-switch iptables ethtool conntrack iproute2 iputils-ping procps util-linux bash";
/// Those that the kernel does not load by itself.
const MODULES: &str = "openvswitch vport_vxlan vxlan veth bridge";
/// Deadline in seconds. Boot and tests take two minutes on an idle machine.
const LIMIT: &str = "1200";
/// MiB of memory. The machine's files are in it.
const MEMORY: &str = "2048";

/// Runs a test inside the machine. Outside, the first test boots it and runs all tests of this module in it, and each reads its own result.
fn inside(name: &str, test: impl FnOnce()) {
    if datapath() == "system" {
        return test();
    }
    let text = boot();
    let passed = format!("test kernel_datapath::{name} ... ok");
    assert!(text.lines().any(|line| line == passed), "on the stock kernel: {text}");
}

fn boot() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../e2e/stock-kernel/run.sh");
        let program = std::env::current_exe().unwrap();
        let output = Command::new(script)
            .args(["--with", PACKAGES, "--modules", MODULES, "--add"])
            .arg(format!("{}:/tests", program.display()))
            .args(["--", "env", "OVS_DATAPATH=system", "/tests"])
            .args(["kernel_datapath::", "--ignored", "--test-threads=1"])
            .envs([("LIMIT", LIMIT), ("MEM", MEMORY), ("RUST_BACKTRACE", "0")])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        println!("{}", text.join("\n"));
        text.join("\n")
    })
}

#[test]
#[ignore = "full: a stock kernel under qemu"]
fn packets_take_the_three_ways() {
    inside("packets_take_the_three_ways", || {
        super::egress_has_the_vip_and_unbound_pods_have_their_node();
        super::ingress_keeps_the_client_and_both_candidates_choose_the_same_backend();
        super::hairpin_has_the_vip_of_the_client();
    });
}

/// The userspace datapath ends with its program, together with the devices.
#[test]
#[ignore = "full: a stock kernel under qemu"]
fn a_killed_vswitchd_interrupts_egress_and_leaks_nothing() {
    inside("a_killed_vswitchd_interrupts_egress_and_leaks_nothing", || {
        let lab = lab();
        let state = State::new("g1", "g1");
        lab.reset(&state);
        let sources: [IpAddr; 2] = [VIP_A.parse().unwrap(), VIP_B.parse().unwrap()];
        let counter = Counter::new(&lab.ext, PORT, &sources);
        // Without the agent's flows, packets of bound pods do not leave their node. Those that have reached the gateway need only its SNAT.
        let cases: [(&str, &[_], bool); 2] =
            [("n1", &[("a1", VIP_A)], true), ("g1", &[("a1", VIP_A), ("a3", VIP_A), ("b1", VIP_B)], false)];
        for (node, clients, needs_flows) in cases {
            let load = Load::start(&lab, clients);
            load.succeeds();
            let member = &lab.nodes[node];
            member.restart_switch();
            load.fails();
            // openshift-sdn writes its flows when it sees the restart, and the agent its own at the next comparison.
            member.base(&lab);
            if needs_flows {
                load.fails();
            } else {
                load.succeeds();
            }
            assert!(!member.apply(lab.datapath(node, &state)).is_empty());
            load.succeeds();
            let (connected, failed) = load.stop();
            eprintln!("{node}: {connected} connections, {failed} failed");
        }
        let packets = counter.packets();
        eprintln!("packets with VIP A {}, VIP B {}, other sources {}", packets[0], packets[1], packets[2]);
        assert!(packets[0] > 40 && packets[1] > 10, "{packets:?}");
        assert_eq!(packets[2], 0, "{packets:?}");
        lab.ext.sh("iptables -t raw -F");
        assert_eq!(lab.pod("a1").seen(EXT, PORT).as_deref(), Some(VIP_A));
    });
}
