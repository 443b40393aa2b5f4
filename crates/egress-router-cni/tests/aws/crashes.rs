//! The process is killed at every point of ADD and DEL, and somebody comes after it: nothing leaks, nothing is stolen.

use super::node::{Fate, Snapshot, World};

/// Runs `story` for each point of an ADD at which it may be killed; it gets the world after the kill.
fn killed_adds(make: impl Fn() -> World, story: impl Fn(&World, u32)) {
    // Two descriptions, two acts, three writes; one point before and one after each. More where a choice was not free.
    for point in 0.. {
        let world = make();
        if world.a.add_until(&Fate::at(point)).is_ok() {
            assert!(point >= 14, "{point}");
            break;
        }
        story(&world, point);
    }
}

pub fn del_after_a_killed_add(make: impl Fn() -> World) {
    killed_adds(make, |world, point| {
        world.a.del().unwrap();
        assert_eq!(world.snapshot(), Snapshot::clean(), "killed at {point}");
        assert_eq!(world.a.state(), None);
    });
}

pub fn add_after_a_killed_add(make: impl Fn() -> World) {
    killed_adds(make, |world, point| {
        let acquired = world.a.add().unwrap();
        assert_eq!(world.snapshot(), Snapshot::only(&world.a, &acquired), "killed at {point}");
        assert!(world.gate.count("AssociateAddress") == 1, "killed at {point}: each remap may cost");
        world.a.del().unwrap();
        assert_eq!(world.snapshot(), Snapshot::clean(), "killed at {point}");
    });
}

pub fn the_other_node_after_a_killed_add(make: impl Fn() -> World) {
    killed_adds(make, |world, point| {
        let acquired = world.b.add().unwrap();
        // The first node's DEL, or its GC, comes late.
        world.a.del().unwrap();
        assert_eq!(world.snapshot(), Snapshot::only(&world.b, &acquired), "killed at {point}");
        world.b.del().unwrap();
        assert_eq!(world.snapshot(), Snapshot::clean(), "killed at {point}");
    });
}

/// `adds`: where the ADD before it was killed, if it was.
pub fn a_killed_del(make: impl Fn() -> World, adds: &[Option<u32>]) {
    for &add in adds {
        for point in 0.. {
            let world = make();
            match add {
                None => drop(world.a.add().unwrap()),
                Some(at) => drop(world.a.add_until(&Fate::at(at)).unwrap_err()),
            }
            let ended = world.a.del_until(&Fate::at(point)).is_ok();
            world.a.del().unwrap();
            assert_eq!(world.snapshot(), Snapshot::clean(), "ADD killed at {add:?}, DEL at {point}");
            if ended {
                break;
            }
        }
    }
}

pub fn the_other_node_after_a_killed_del(make: impl Fn() -> World) {
    for point in 0.. {
        let world = make();
        world.a.add().unwrap();
        let ended = world.a.del_until(&Fate::at(point)).is_ok();
        let acquired = world.b.add().unwrap();
        world.a.del().unwrap();
        assert_eq!(world.snapshot(), Snapshot::only(&world.b, &acquired), "DEL killed at {point}");
        if ended {
            break;
        }
    }
}

fn world() -> World {
    World::new().0
}

#[test]
fn del_after_a_killed_add_leaves_nothing() {
    del_after_a_killed_add(world);
}

#[test]
fn add_after_a_killed_add_finishes_it() {
    add_after_a_killed_add(world);
}

#[test]
fn the_other_node_takes_the_address_after_a_killed_add_and_keeps_it() {
    the_other_node_after_a_killed_add(world);
}

#[test]
fn del_that_is_killed_is_finished_by_the_next() {
    a_killed_del(world, &[None, Some(4), Some(8), Some(10)]);
}

#[test]
fn del_that_is_killed_takes_nothing_from_the_other_node() {
    the_other_node_after_a_killed_del(world);
}

#[test]
fn adds_that_are_killed_again_and_again_leave_nothing() {
    killed_adds(world, |world, first| {
        for second in 0.. {
            if world.a.add_until(&Fate::at(second)).is_ok() {
                break;
            }
        }
        let acquired = world.a.add().unwrap();
        assert_eq!(world.snapshot(), Snapshot::only(&world.a, &acquired), "killed at {first}");
        world.a.del().unwrap();
        assert_eq!(world.snapshot(), Snapshot::clean(), "killed at {first}");
    });
}

#[test]
fn another_program_on_the_same_interface_loses_nothing() {
    // Amazon's own CNI plugin assigns addresses to the same interface, whenever it likes.
    killed_adds(world, |world, point| {
        let other = "10.0.0.30";
        let form = [
            ("Action", "AssignPrivateIpAddresses"),
            ("Version", "2016-11-15"),
            ("NetworkInterfaceId", "eni-a"),
            ("PrivateIpAddress.1", other),
        ];
        let taken = world.snapshot().secondary.values().flatten().any(|address| address.to_string() == other)
            || world.a.state().is_some_and(|state| state.private.addr().to_string() == other);
        if taken {
            return;
        }
        world.backend.answer(&form.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        world.a.del().unwrap();
        let left = world.snapshot();
        assert_eq!(left.at, None);
        assert_eq!(
            left.secondary["eni-a"],
            [other.parse::<std::net::Ipv4Addr>().unwrap()],
            "killed at {point}"
        );
    });
}
