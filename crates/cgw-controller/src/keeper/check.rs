//! `cgw keeper-check`: keepalived's check script. Two small files and two netlink requests.

use std::process::ExitCode;
use std::time::Duration;

use super::args::CheckArgs;
use super::node::Node;
use super::run_dir::RunDir;
use super::sys;

/// Exits with 0 if this node may carry the VIPs. keepalived does not read the output; a person does.
#[must_use]
pub fn run(args: CheckArgs) -> ExitCode {
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
    let age = sys::monotonic().saturating_sub(heartbeat.at);
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
    link(tunnel)?.map(|_| ()).ok_or_else(|| format!("the interface {tunnel} has no MAC address"))
}
