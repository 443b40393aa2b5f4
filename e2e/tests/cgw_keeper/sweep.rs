//! A keeper that is killed after any of its writes to the store or to the controller.

use e2e::netns::wait_until;
use e2e::sweep::Slice;
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::lab::{Gateways, VIPS};

/// More than a keeper has: registration, notifications of a promotion (VIPs are added one by one) and of a changed configuration, the
/// second entry, its removal.
const WRITES: u64 = 20;
/// Registration, second entry and removal. How many notifications there are depends on who is MASTER, and on how many VIPs a keeper sees
/// at once.
const LEAST: u64 = 3;

/// The last notification of a MASTER that the controller has confirmed: address and VIPs.
fn confirmed(lab: &Gateways) -> Option<(Value, Value)> {
    let notifications = lab.standin.notifications().into_iter().rev();
    let mut of_masters = notifications.filter(|one| one.confirmed && one.body["since"].is_number());
    of_masters.next().map(|one| (one.body["node_ip"].clone(), one.body["vips"].clone()))
}

/// Whether one node has all VIPs and the other one has none, as the controller knows it.
fn is_settled(lab: &Gateways, vips: &[&str]) -> bool {
    (0..2).any(|master| {
        let backup = 1 - master;
        lab.state(master).as_deref() == Some("MASTER")
            && lab.state(backup).as_deref() == Some("BACKUP")
            && lab.vips(master).len() == vips.len()
            && lab.vips(backup).is_empty()
            && confirmed(lab) == Some((json!(lab.address(master)), json!(vips)))
            && lab.standin.hosts().len() == 2
    })
}

/// Starts the first keeper again if it was killed.
fn revive(lab: &mut Gateways) {
    if lab.keeper(0).exited().unwrap().is_some() {
        lab.start_keeper(0);
    }
}

/// Two keepers, one more VIP, and the end of the first keeper, which is killed after its write `write`. False: it has fewer writes.
fn killed(write: u64) -> bool {
    let mut lab = Gateways::new();
    lab.start_keeper(0);
    lab.standin.kill_after(&lab.address(0), write, lab.keeper(0).pid());
    lab.start_keeper(1);
    (0..2).for_each(|index| lab.start_guard(index));
    wait_until("one MASTER", || {
        revive(&mut lab);
        Ok(is_settled(&lab, &VIPS))
    })
    .unwrap();

    lab.configure("[10.9.0.201-10.9.0.203, 'fd00::201']");
    let more = [&VIPS[..2], &["10.9.0.203"], &VIPS[2..]].concat();
    wait_until("one more VIP", || {
        revive(&mut lab);
        let is_registered = lab.standin.hosts().values().all(|entry| entry.contains("10.9.0.203"));
        Ok(is_registered && is_settled(&lab, &more))
    })
    .unwrap();

    // Its last notification may have been the write after which it is killed. Then it is started again below.
    let _ended = lab.keeper(0).signal(Signal::SIGTERM);
    wait_until("the end of the first keeper", || {
        let Some(status) = lab.keeper(0).exited()? else { return Ok(false) };
        let is_removed = lab.standin.hosts().len() == 1;
        if !status.success() && !is_removed {
            lab.start_keeper(0);
            lab.keeper_line(0, "registered");
            lab.keeper(0).signal(Signal::SIGTERM)?;
        }
        Ok(is_removed)
    })
    .unwrap();
    lab.wait_master(1);
    let expected = Some((json!(lab.address(1)), json!(more)));
    wait_until("the notification of the second keeper", || {
        Ok(confirmed(&lab) == expected && lab.vips(0).is_empty())
    })
    .unwrap();
    lab.standin.check();
    lab.standin.has_killed()
}

#[test]
fn a_keeper_that_is_killed_after_any_write_leaves_nothing_that_its_successor_does_not_finish() {
    let slice = Slice::chosen("cgw_keeper::sweep", 3).unwrap();
    println!("{slice}");
    for write in (1..=WRITES).filter(|write| slice.has(*write)) {
        let is_killed = killed(write);
        println!("killed after write {write}: {is_killed}");
        assert!(is_killed || write > LEAST, "write {write} did not happen");
        if !is_killed {
            return;
        }
    }
    panic!("more than {WRITES} writes");
}
