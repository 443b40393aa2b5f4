//! `cgw keeper-check`: keepalived's check script. Two small files and a few netlink requests.

use std::process::ExitCode;
use std::time::Duration;

use common::netlink::Error;
use common::netlink::nftables::{Family, dump};
use common::netlink::socket::{Protocol, Socket};

use super::args::HeartbeatArgs;
use super::node::Node;
use super::run_dir::RunDir;
use super::sys;
use crate::names::GUARDS;

/// Exits with 0 if this node may carry the VIPs. keepalived does not read the output; a person does.
#[must_use]
pub fn run(args: HeartbeatArgs) -> ExitCode {
    match check(&RunDir::new(args.run_dir), args.heartbeat_timeout) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("cgw keeper-check: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn check(run_dir: &RunDir, limit: Duration) -> Result<(), String> {
    let read = |error: std::io::Error| format!("reading {} failed: {error}", run_dir.path().display());
    let record = run_dir.record().map_err(read)?.ok_or("there is no keeper")?;
    let heartbeat = run_dir.heartbeat().map_err(read)?.ok_or("the keeper has no heartbeat")?;
    let age = sys::monotonic().saturating_sub(heartbeat);
    if age > limit {
        return Err(format!("the last heartbeat of the keeper is {age:?} old"));
    }
    let mut node = Node::open().map_err(|error| error.to_string())?;
    let mut link = |name: &str| match node.link_state(name) {
        Ok(Some((true, mac))) => Ok(mac),
        Ok(Some((false, _))) => Err(format!("the interface {name} is down")),
        Ok(None) => Err(format!("there is no interface {name}")),
        Err(error) => Err(error.to_string()),
    };
    link(&record.interface)?;
    let tunnel = &record.tunnel_interface;
    link(tunnel)?.ok_or_else(|| format!("the interface {tunnel} has no MAC address"))?;
    let guarded = is_guarded().map_err(|error| error.to_string())?;
    guarded.then_some(()).ok_or_else(|| "the agent has not programmed this node".to_owned())
}

/// Whether the agent has programmed the node, if it runs now or not. Without its chains, the packets of pods on other nodes would leave with
/// the node's address: driver `ovs` uses a tunnel that exists without it.
fn is_guarded() -> Result<bool, Error> {
    let mut socket = Socket::open(Protocol::Netfilter)?;
    for (table, chain) in GUARDS {
        if dump::has_chain(&mut socket, Family::Ipv4, table, chain)? {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use common::netlink::isolated::{ip, isolated, nft};

    use super::super::config::Router;
    use super::super::process::Process;
    use super::super::run_dir::Record;
    use super::*;

    #[test]
    fn a_node_may_carry_vips_only_with_keeper_interfaces_and_the_chains_of_the_agent() {
        isolated(|| {
            let folder = tempfile::tempdir().unwrap();
            let run_dir = RunDir::new(folder.path().to_owned());
            let problem = || check(&run_dir, Duration::from_secs(60)).err().unwrap_or_default();
            assert_eq!(problem(), "there is no keeper");
            let keeper = Process { pid: 7, start: 9 };
            let record = Record::new(keeper, &Router::sample("192.168.50.201"));
            run_dir.write_record(&record).unwrap();
            assert_eq!(problem(), "the keeper has no heartbeat");
            let heartbeats = run_dir.heartbeats(Duration::ZERO).unwrap();
            assert!(problem().starts_with("the last heartbeat of the keeper is "), "{}", problem());
            heartbeats.write(sys::monotonic()).unwrap();
            assert_eq!(problem(), "there is no interface eth0");
            ip("link add eth0 type bridge");
            assert_eq!(problem(), "the interface eth0 is down");
            ip("link set eth0 up");
            assert_eq!(problem(), "there is no interface cgw0");
            ip("link add cgw0 up type bridge");
            // Chains of other programs.
            nft("add table ip mangle; add chain ip mangle CGW; add table ip cgw; add chain ip cgw other");
            for (table, chain) in GUARDS {
                assert_eq!(problem(), "the agent has not programmed this node");
                nft(&format!("add chain ip {table} {chain}"));
                assert_eq!(problem(), "");
                nft(&format!("delete chain ip {table} {chain}"));
            }
        });
    }
}
