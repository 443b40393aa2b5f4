//! `cgw keeper-guard`: removes the VIPs of the node when the keeper does not run. No async runtime, and no API server: it must work
//! when everything else does not.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use super::args::HeartbeatArgs;
use super::node::Node;
use super::process;
use super::run_dir::{Record, RunDir};
use super::sys;

/// Between two observations: two small files and one line of /proc.
const TICK: Duration = Duration::from_millis(100);

/// keepalived's time for a priority-0 advert, before it is killed.
const GRACE: Duration = Duration::from_millis(150);

/// The shortest allowed age of a heartbeat: several heartbeats.
const LEAST_TIMEOUT: Duration = Duration::from_millis(500);

/// After SIGTERM, the keeper ends too: the guard waits for it, but not for longer than the kubelet does.
const DRAIN: Duration = Duration::from_secs(25);

/// Why the VIPs have to be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A signal has stopped the keeper.
    Stopped,
    /// The last heartbeat is too old.
    Silent(Duration),
    /// There is a record, but no heartbeat.
    NoHeartbeat,
}

/// Runs `cgw keeper-guard` until SIGTERM.
#[must_use]
pub fn run(args: HeartbeatArgs) -> ExitCode {
    if args.heartbeat_timeout < LEAST_TIMEOUT {
        eprintln!("cgw keeper-guard: --heartbeat-timeout must be at least {LEAST_TIMEOUT:?}");
        return ExitCode::from(2);
    }
    let mut node = match Node::open() {
        Ok(node) => node,
        Err(error) => {
            eprintln!("cgw keeper-guard: {error}");
            return ExitCode::FAILURE;
        }
    };
    sys::catch_terminate();
    let run_dir = RunDir::new(args.run_dir);
    let (mut last, mut drain) = (None, None);
    loop {
        let now = sys::monotonic();
        let cause = match observe(&run_dir, now, args.heartbeat_timeout) {
            Ok(Some((record, cause))) => {
                if last.is_none() {
                    eprintln!("cgw keeper-guard: the keeper does not run: {cause:?}");
                }
                guard(&mut node, &run_dir, &record);
                Some(cause)
            }
            Ok(None) => {
                if last.is_some() {
                    eprintln!("cgw keeper-guard: the keeper runs");
                }
                None
            }
            Err(error) => {
                eprintln!("cgw keeper-guard: reading {} failed: {error}", run_dir.path().display());
                last.clone()
            }
        };
        last = cause;
        if sys::is_terminated() {
            let end = *drain.get_or_insert(now.saturating_add(DRAIN));
            let ended = matches!(run_dir.record(), Ok(None)) || last.is_some();
            if ended || now >= end {
                return ExitCode::SUCCESS;
            }
        }
        sleep(TICK);
    }
}

/// Whether there is something to remove, and why.
///
/// # Errors
/// A file cannot be read.
pub fn observe(run_dir: &RunDir, now: Duration, limit: Duration) -> std::io::Result<Option<(Record, Cause)>> {
    // Without a record, nothing was added since the last start, or it was removed in order.
    let Some(record) = run_dir.record()? else { return Ok(None) };
    let cause = match run_dir.heartbeat()? {
        // Only a process of the same PID namespace has this ID and this start time.
        _ if record.keeper.stat().is_some_and(|stat| stat.is_stopped()) => Some(Cause::Stopped),
        None => Some(Cause::NoHeartbeat),
        Some(heartbeat) => {
            let age = now.saturating_sub(heartbeat);
            (age > limit).then_some(Cause::Silent(age))
        }
    };
    Ok(cause.map(|cause| (record, cause)))
}

/// Ends keepalived, so that it does not add the addresses again, and removes them.
fn guard(node: &mut Node, run_dir: &RunDir, record: &Record) {
    if let Some(leader) = record.keepalived {
        let begin = sys::monotonic();
        for process in process::keepalived_of(leader) {
            // It may have ended.
            let _ = sys::send(process.pid, libc::SIGTERM);
        }
        loop {
            let left = process::keepalived_of(leader).len();
            let late = sys::monotonic().saturating_sub(begin);
            if left == 0 || late > 10 * GRACE {
                break;
            }
            if late > GRACE {
                process::kill_keepalived(leader);
            }
            sleep(Duration::from_millis(10));
        }
    }
    match node.strip(record) {
        Ok(removed) => {
            for address in &removed {
                eprintln!("cgw keeper-guard: removed {address}");
            }
            // The keeper counts them when it runs again: the guard has no metrics.
            if !removed.is_empty()
                && let Err(error) = run_dir.add_stripped(removed.len())
            {
                eprintln!("cgw keeper-guard: recording the number of removed addresses failed: {error}");
            }
        }
        Err(error) => eprintln!("cgw keeper-guard: removing the VIPs failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use common::netlink::isolated::{ip, isolated};

    use super::super::config::Router;
    use super::super::process::Process;
    use super::*;

    fn record(keeper: Process) -> Record {
        Record::new(keeper, &Router::sample("192.168.50.201"))
    }

    #[test]
    fn the_number_of_removed_addresses_is_recorded_for_the_keeper() {
        isolated(|| {
            let folder = tempfile::tempdir().unwrap();
            let run_dir = RunDir::new(folder.path().to_owned());
            ip("link add eth0 type bridge");
            ip("address add 192.168.50.201/32 dev eth0");
            ip("address add 192.168.50.21/24 dev eth0");
            let (mut node, record) = (Node::open().unwrap(), record(Process::current().unwrap()));
            for _ in 0..2 {
                guard(&mut node, &run_dir, &record);
            }
            assert_eq!([(); 2].map(|()| run_dir.take_stripped().unwrap()), [1, 0]);
        });
    }

    #[test]
    fn a_keeper_without_heartbeats_is_silent() {
        let folder = tempfile::tempdir().unwrap();
        let run_dir = RunDir::new(folder.path().to_owned());
        let (limit, at) = (Duration::from_secs(1), Duration::from_secs);
        assert_eq!(observe(&run_dir, at(1), limit).unwrap(), None, "no keeper yet");
        let keeper = Process::current().unwrap();
        run_dir.write_record(&record(keeper)).unwrap();
        let cause = |now| observe(&run_dir, now, limit).unwrap().map(|(_, cause)| cause);
        assert_eq!(cause(at(1)), Some(Cause::NoHeartbeat));
        run_dir.heartbeats(at(5)).unwrap();
        assert_eq!(cause(at(6)), None);
        assert_eq!(cause(at(7)), Some(Cause::Silent(at(2))));
        run_dir.clear().unwrap();
        assert_eq!(cause(at(9)), None);
    }
}
