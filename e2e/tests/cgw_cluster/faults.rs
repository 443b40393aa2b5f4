//! The faults of the fail-over table: each acts on the MASTER, waits for its outcome, and repairs what it broke.

use e2e::cgw::{GATEWAYS, Installation};
use e2e::cluster::Machine;
use e2e::wait::until;

use super::env::{FIRST, TestEnv};
use super::failover::{Probes, STREAK};

/// The agents, keepers and controllers, as their command lines begin.
const AGENT: &str = "/cgw agent ";
const KEEPER: &str = "/cgw keeper ";
const CONTROLLER: &str = "/cgw controller ";
const KEEPALIVED: &str = "/usr/sbin/keepalived ";
const API_SERVER: &str = "kube-apiserver ";

/// A row of the table in docs/cgw-controller.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    Sigterm,
    Kill,
    Frozen,
    Link,
    Power,
    Agent,
    Controller,
    ApiServer,
    Split,
}

impl Fault {
    pub const ALL: [Fault; 9] = [
        Fault::Sigterm,
        Fault::Kill,
        Fault::Frozen,
        Fault::Link,
        Fault::Power,
        Fault::Agent,
        Fault::Controller,
        Fault::ApiServer,
        Fault::Split,
    ];

    /// First and last column of the table.
    pub fn names(self) -> (&'static str, &'static str) {
        match self {
            Fault::Sigterm => ("keeper gets SIGTERM", "sigterm"),
            Fault::Kill => ("keepalived is killed (`kill -9`)", "kill"),
            Fault::Frozen => ("keeper and keepalived are frozen (SIGSTOP)", "frozen"),
            Fault::Link => ("link cut", "link"),
            Fault::Power => ("node powered off", "power"),
            Fault::Agent => ("agents killed, then a flip", "agent"),
            Fault::Controller => ("controllers killed, then a flip", "controller"),
            Fault::ApiServer => ("API server stopped, then a flip", "apiserver"),
            Fault::Split => ("both nodes MASTER (split brain)", "split"),
        }
    }

    /// Acts, and returns when it is repaired. `master`: the MASTER before.
    pub async fn run(self, env: &mut TestEnv, probes: &Probes, master: &str) {
        let machine = env.machine(master);
        let moved = async || env.master(&FIRST, |node| node != master).await;
        match self {
            Fault::Sigterm => {
                signal(&machine, "TERM", KEEPER).await;
                moved().await;
            }
            Fault::Kill => {
                signal(&machine, "KILL", KEEPALIVED).await;
                moved().await;
            }
            Fault::Frozen => {
                // At once: the guard ends the keepalived of a frozen keeper.
                signal_all(&machine, "STOP", &[KEEPER, KEEPALIVED]).await;
                moved().await;
                until("the guard removes the VIPs of a frozen keeper", async || {
                    let addresses =
                        machine.exec(&["ip", "-4", "-o", "address", "show", "dev", "eth1"]).await?;
                    Ok(FIRST.vips.iter().all(|vip| !addresses.contains(&format!("{vip}/"))).then_some(()))
                })
                .await
                .unwrap();
                probes.work(env, STREAK).await;
                signal(&machine, "CONT", KEEPER).await;
            }
            Fault::Link => {
                machine.cut().await.unwrap();
                moved().await;
                probes.work(env, STREAK).await;
                machine.join().await.unwrap();
            }
            Fault::Power => {
                machine.stop().await.unwrap();
                moved().await;
                probes.work(env, STREAK).await;
                machine.start().await.unwrap();
                machine.connect().unwrap();
                machine.route_to_internet().unwrap();
            }
            Fault::Agent => {
                for node in env.cluster.nodes() {
                    signal(&node, "KILL", AGENT).await;
                }
                signal(&machine, "TERM", KEEPER).await;
                moved().await;
            }
            Fault::Controller => {
                let mut killed = 0;
                for node in env.cluster.nodes() {
                    if !processes(&node, CONTROLLER).await.is_empty() {
                        signal(&node, "KILL", CONTROLLER).await;
                        killed += 1;
                    }
                }
                assert!(killed > 0, "no controller runs");
                signal(&machine, "TERM", KEEPER).await;
                moved().await;
            }
            Fault::ApiServer => {
                let control_plane = env.machine("control-plane");
                signal(&control_plane, "STOP", API_SERVER).await;
                signal(&machine, "TERM", KEEPER).await;
                moved().await;
                // The gateway that the nodes use has no VIP any more: nothing may leave with another address.
                probes.requests(STREAK).await;
                signal(&control_plane, "CONT", API_SERVER).await;
            }
            Fault::Split => split(env, probes).await,
        }
        for node in GATEWAYS {
            let ready = format!("wait --for=condition=Ready node/{node} --timeout=600s");
            env.kubectl(&ready).await;
        }
        if self == Fault::Power {
            env.start_servers(|node| node == master).await;
        }
    }
}

/// Adverts are lost in both directions, so both gateways are MASTER and have the VIPs.
async fn split(env: &TestEnv, probes: &Probes) {
    let rule = "ip protocol 112 drop";
    let chain = format!("type filter hook input priority -300;\n{rule}\n");
    let table = format!("table ip split {{\nchain input {{\n{chain}}}\n}}");
    for node in GATEWAYS {
        env.machine(node).exec(&["nft", &table]).await.unwrap();
    }
    until("both gateways are MASTER", async || {
        let keepers = Installation::keepers(&env.cluster, FIRST.vrid).await?;
        Ok((keepers.iter().filter(|keeper| keeper.state == "MASTER").count() == 2).then_some(()))
    })
    .await
    .unwrap();
    probes.requests(STREAK).await;
    for node in GATEWAYS {
        env.machine(node).exec(&["nft", "delete", "table", "ip", "split"]).await.unwrap();
    }
}

/// IDs of the processes of a machine with a command line that begins with this.
async fn processes(machine: &Machine, command: &str) -> Vec<String> {
    let script = "for p in /proc/[0-9]*; do c=$(tr '\\0' ' ' <$p/cmdline) || continue; \
        [[ $c != \"$0\"* ]] || echo ${p#/proc/}; done 2>/dev/null";
    let pids = machine.exec(&["bash", "-c", script, command]).await.unwrap();
    pids.split_whitespace().map(str::to_owned).collect()
}

async fn signal(machine: &Machine, signal: &str, command: &str) {
    signal_all(machine, signal, &[command]).await;
}

async fn signal_all(machine: &Machine, signal: &str, commands: &[&str]) {
    let mut pids = Vec::new();
    for command in commands {
        let of_command = processes(machine, command).await;
        assert!(!of_command.is_empty(), "{command}does not run on {}", machine.name());
        pids.extend(of_command);
    }
    let signal = format!("-{signal}");
    let arguments: Vec<&str> = ["kill", &signal].into_iter().chain(pids.iter().map(String::as_str)).collect();
    machine.exec(&arguments).await.unwrap();
}
