//! `cgw keeper` with the real keepalived: two gateway nodes on one network, and a stand-in for the API server and the controller, which
//! refuses everything but the calls of a keeper.
//!
//! keepalived has to be root on its node, and is the Debian package of this name.

pub mod lab;
mod standin;
mod sweep;

use std::time::{Duration, UNIX_EPOCH};

use e2e::netns::wait_until;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use lab::{Gateways, VIPS};

/// From an event to a node without VIPs. The goal is one second; a machine that runs other tests needs more.
const STRIPPED: Duration = Duration::from_secs(5);

/// Whether the controller has confirmed such a notification of a MASTER.
fn notified(lab: &Gateways, from: usize, matches: impl Fn(&Value) -> bool) -> bool {
    lab.standin.notifications().iter().skip(from).any(|notification| {
        notification.confirmed && notification.body["since"].is_number() && matches(&notification.body)
    })
}

#[test]
fn a_promotion_is_notified_and_a_terminated_keeper_is_replaced_at_once() {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.wait_master(0);
    lab.start_keeper(1);
    wait_until("two registrations", || Ok(lab.standin.hosts().len() == 2)).unwrap();
    lab.wait_state(1, "BACKUP");
    let expected = json!(VIPS);
    wait_until("the notification", || {
        Ok(notified(&lab, 0, |body| {
            body["node_ip"] == "10.9.0.1"
                && body["tun_mac"] == "02:63:0a:09:00:01"
                && body["vips"] == expected
        }))
    })
    .unwrap();
    let status = lab.status(0, "/status").unwrap();
    assert_eq!((status["state"].as_str(), status["vrid"].as_u64()), (Some("MASTER"), Some(51)));
    assert_eq!(lab.status(0, "/").unwrap(), json!({"node_ip": "10.9.0.1", "tun_mac": "02:63:0a:09:00:01"}));
    assert_eq!(lab.status(1, "/").unwrap(), json!({}));

    let before = lab.standin.notifications().len();
    lab.keeper(0).signal(Signal::SIGTERM).unwrap();
    lab.wait_master(1);
    lab.wait_stripped(0, STRIPPED);
    assert!(lab.wait_exit(0).success());
    wait_until("the notification", || {
        Ok(notified(&lab, before, |body| body["node_ip"] == "10.9.0.2" && body["vips"] == expected))
    })
    .unwrap();
    let hosts = lab.standin.hosts();
    assert_eq!(hosts.keys().collect::<Vec<_>>(), ["cgw-controller.perimeter.dev/host.10.9.0.2-63051"]);
    lab.standin.check();
}

#[test]
fn a_node_without_a_working_keepalived_has_no_vip() {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.wait_master(0);
    lab.start_keeper(1);
    lab.wait_state(1, "BACKUP");
    let mut master = 0;
    for (event, file, signal) in [
        ("the VRRP process is stopped", "vrrp.pid", Signal::SIGSTOP),
        ("the VRRP process is killed", "vrrp.pid", Signal::SIGKILL),
        ("keepalived is killed", "keepalived.pid", Signal::SIGKILL),
        ("keepalived is stopped", "keepalived.pid", Signal::SIGSTOP),
    ] {
        let before = lab.standin.notifications().len();
        lab.signal_keepalived(master, file, signal);
        let backup = 1 - master;
        let stripped = lab.wait_stripped(master, STRIPPED);
        lab.wait_master(backup);
        eprintln!("{event}: no VIPs after {stripped:?}");
        let address = lab.address(backup);
        wait_until("the notification", || Ok(notified(&lab, before, |body| body["node_ip"] == address)))
            .unwrap();
        // The supervisor starts it again, and it does not take over.
        lab.wait_state(master, "BACKUP");
        assert_eq!(lab.vips(master), Vec::<String>::new(), "{event}");
        master = backup;
    }
    lab.standin.check();
}

#[test]
fn a_keeper_that_does_not_run_is_guarded() {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.wait_master(0);
    lab.start_keeper(1);
    lab.wait_state(1, "BACKUP");
    lab.start_guard(0);
    lab.start_guard(1);

    lab.keeper(0).pause().unwrap();
    let stripped = lab.wait_stripped(0, STRIPPED);
    eprintln!("the keeper is stopped: no VIPs after {stripped:?}");
    lab.wait_master(1);
    lab.keeper(0).resume().unwrap();
    lab.wait_state(0, "BACKUP");

    // Neither of both can act.
    lab.signal_keepalived(1, "vrrp.pid", Signal::SIGSTOP);
    lab.keeper(1).pause().unwrap();
    let stripped = lab.wait_stripped(1, STRIPPED);
    eprintln!("keeper and keepalived are stopped: no VIPs after {stripped:?}");
    lab.wait_master(0);
    lab.keeper(1).resume().unwrap();
    lab.wait_state(1, "BACKUP");

    lab.keeper(0).kill().unwrap();
    lab.wait_stripped(0, STRIPPED);
    lab.wait_master(1);
    lab.start_keeper(0);
    lab.wait_state(0, "BACKUP");
    lab.standin.check();
}

#[test]
fn changes_of_a_master_are_notified_until_the_controller_confirms() {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.wait_master(0);
    lab.start_keeper(1);
    lab.wait_state(1, "BACKUP");
    let since = || lab.status(0, "/status").unwrap()["since"].as_f64().unwrap();

    let before = lab.standin.notifications().len();
    lab.standin.refuse(true);
    lab.node(0).sh("ip link set cgw0 address 02:63:0a:09:00:77").unwrap();
    wait_until("two refused notifications", || Ok(lab.standin.notifications().len() >= before + 2)).unwrap();
    lab.standin.refuse(false);
    wait_until("the notification of the MAC address", || {
        Ok(notified(&lab, before, |body| body["tun_mac"] == "02:63:0a:09:00:77"))
    })
    .unwrap();

    // keepalived adds it again.
    let before = lab.standin.notifications().len();
    lab.node(0).sh("ip addr del 10.9.0.201/32 dev eth0").unwrap();
    wait_until("the VIP", || Ok(lab.vips(0).len() == VIPS.len())).unwrap();
    wait_until("the notification of all VIPs", || {
        Ok(notified(&lab, before, |body| body["vips"] == json!(VIPS)))
    })
    .unwrap();
    lab.wait_state(0, "MASTER");

    let (before, master_since) = (lab.standin.notifications().len(), since());
    lab.configure("[10.9.0.201-10.9.0.203, 'fd00::201']");
    wait_until("one more VIP", || Ok(lab.vips(0).len() == VIPS.len() + 1)).unwrap();
    wait_until("the notification of one more VIP", || {
        Ok(notified(&lab, before, |body| {
            body["vips"].as_array().is_some_and(|vips| vips.len() == VIPS.len() + 1)
        }))
    })
    .unwrap();
    wait_until("both registrations with one more VIP", || {
        Ok(lab.standin.hosts().values().all(|entry| entry.contains("10.9.0.203")))
    })
    .unwrap();
    assert!((since() - master_since).abs() < f64::EPSILON, "the reload lost the mastership");
    assert_eq!(lab.vips(1), Vec::<String>::new());

    // An entry that vanishes is written again.
    lab.standin.forget_hosts();
    wait_until("two registrations", || Ok(lab.standin.hosts().len() == 2)).unwrap();

    // A mistake has no effect.
    lab.configure("[]");
    lab.keeper_line(0, "the changed configuration is not used");
    lab.wait_state(0, "MASTER");
    lab.standin.check();
}

#[test]
fn a_cut_link_moves_the_vips() {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.wait_master(0);
    lab.start_keeper(1);
    lab.wait_state(1, "BACKUP");
    let before = lab.standin.notifications().len();
    lab.lan().sh("ip link set g0 down").unwrap();
    lab.wait_master(1);
    lab.wait_stripped(0, STRIPPED);
    wait_until("the notification", || Ok(notified(&lab, before, |body| body["node_ip"] == "10.9.0.2")))
        .unwrap();
    lab.lan().sh("ip link set g0 up").unwrap();
    lab.wait_state(0, "BACKUP");

    // A node without a tunnel interface cannot be a gateway.
    lab.node(1).sh("ip link del cgw0").unwrap();
    lab.wait_master(0);
    lab.wait_stripped(1, STRIPPED);
    lab.wait_state(1, "FAULT");

    // Nor one that the agent has not programmed.
    lab.tunnel(1);
    lab.wait_state(1, "BACKUP");
    lab.node(0).sh("nft delete table ip cgw").unwrap();
    lab.wait_master(1);
    lab.wait_stripped(0, STRIPPED);
    lab.wait_state(0, "FAULT");
    lab.standin.check();
}

#[test]
fn the_one_of_two_masters_that_becomes_backup_has_the_controller_poll() {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.wait_master(0);
    lab.start_keeper(1);
    lab.wait_state(1, "BACKUP");
    let since = lab.status(0, "/status").unwrap()["since"].clone();
    // Both reach the controller, and neither one the other.
    lab.lan().sh("bridge link set dev g0 isolated on; bridge link set dev g1 isolated on").unwrap();
    lab.wait_master(1);
    wait_until("the notification", || Ok(notified(&lab, 0, |body| body["node_ip"] == "10.9.0.2"))).unwrap();

    let before = lab.standin.notifications().len();
    lab.lan().sh("bridge link set dev g0 isolated off; bridge link set dev g1 isolated off").unwrap();
    lab.wait_state(1, "BACKUP");
    lab.wait_stripped(1, STRIPPED);
    wait_until("the notification of the BACKUP", || {
        Ok(lab.standin.notifications().iter().skip(before).any(|notification| {
            let Value::Object(body) = &notification.body else { return false };
            notification.confirmed
                && !body.contains_key("since")
                && body["node_ip"] == "10.9.0.2"
                && body["vips"] == json!(VIPS)
        }))
    })
    .unwrap();
    // Nothing has changed for the other one.
    let status = lab.status(0, "/status").unwrap();
    assert_eq!((&status["state"], &status["since"]), (&json!("MASTER"), &since));
    assert!(!notified(&lab, before, |body| body["node_ip"] == "10.9.0.1"));
    lab.standin.check();
}

#[test]
fn a_master_that_is_killed_while_its_peer_starts_is_replaced() {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.wait_master(0);
    let mut master = 0;
    // The peer has heard no advert, one, or several of them.
    for lines in ["keepalived is started", "Starting VRRP child process", "Entering BACKUP STATE"] {
        let peer = 1 - master;
        lab.start_keeper(peer);
        lab.keeper_line(peer, lines);
        // Read before the signal: the peer may be MASTER before this thread runs again.
        let (begin, killed) = (std::time::Instant::now(), UNIX_EPOCH.elapsed().unwrap().as_secs_f64());
        lab.signal_keepalived(master, "vrrp.pid", Signal::SIGKILL);
        // The status of the one that was killed is not read.
        let promoted = |index| {
            let status = lab.status(index, "/status")?;
            (status["state"] == "MASTER" && status["since"].as_f64()? > killed).then_some(index)
        };
        let mut found = None;
        wait_until("a MASTER", || {
            found = (0..2).find_map(promoted);
            Ok(found.is_some())
        })
        .unwrap();
        eprintln!("killed after {lines:?}: a MASTER after {:?}", begin.elapsed());
        // 0.8 s: three adverts and the skew; the rest is for other tests on this machine.
        assert!(begin.elapsed() < Duration::from_secs(5), "both stayed BACKUP for {:?}", begin.elapsed());
        master = found.unwrap();
        lab.keeper(1 - master).signal(Signal::SIGTERM).unwrap();
        lab.wait_exit(1 - master);
        lab.wait_master(master);
    }
    lab.standin.check();
}
