//! The process is killed at every point of ADD and DEL, and another call follows: no address leaks, and no foreign address is released.

use super::node::{KillPoint, Snapshot, TestEnv};

/// Runs `story` for each point of an ADD at which it may be killed; it gets the environment after the kill.
fn killed_adds(make: impl Fn() -> TestEnv, story: impl Fn(&TestEnv, u32)) {
    // Two reads, two changes, three writes; one point before and one after each. More if a chosen address was in use.
    for point in 0.. {
        let env = make();
        if env.a.add_until(&KillPoint::at(point)).is_ok() {
            assert!(point >= 14, "{point}");
            break;
        }
        story(&env, point);
    }
}

pub fn del_after_a_killed_add(make: impl Fn() -> TestEnv) {
    killed_adds(make, |env, point| {
        env.a.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::clean(), "killed at {point}");
        assert_eq!(env.a.state(), None);
    });
}

pub fn add_after_a_killed_add(make: impl Fn() -> TestEnv) {
    killed_adds(make, |env, point| {
        let acquired = env.a.add().unwrap();
        assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired), "killed at {point}");
        assert!(env.gate.count("AssociateAddress") == 1, "killed at {point}: each remap may cost");
        env.a.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::clean(), "killed at {point}");
    });
}

pub fn the_other_node_after_a_killed_add(make: impl Fn() -> TestEnv) {
    killed_adds(make, |env, point| {
        let acquired = env.b.add().unwrap();
        // A late DEL or GC of the first node.
        env.a.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::only(&env.b, &acquired), "killed at {point}");
        env.b.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::clean(), "killed at {point}");
    });
}

/// `adds`: the point at which the ADD before it was killed, if any.
pub fn a_killed_del(make: impl Fn() -> TestEnv, adds: &[Option<u32>]) {
    for &add in adds {
        for point in 0.. {
            let env = make();
            match add {
                None => drop(env.a.add().unwrap()),
                Some(at) => drop(env.a.add_until(&KillPoint::at(at)).unwrap_err()),
            }
            let ended = env.a.del_until(&KillPoint::at(point)).is_ok();
            env.a.del().unwrap();
            assert_eq!(env.snapshot(), Snapshot::clean(), "ADD killed at {add:?}, DEL at {point}");
            if ended {
                break;
            }
        }
    }
}

pub fn the_other_node_after_a_killed_del(make: impl Fn() -> TestEnv) {
    for point in 0.. {
        let env = make();
        env.a.add().unwrap();
        let ended = env.a.del_until(&KillPoint::at(point)).is_ok();
        let acquired = env.b.add().unwrap();
        env.a.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::only(&env.b, &acquired), "DEL killed at {point}");
        if ended {
            break;
        }
    }
}

fn env() -> TestEnv {
    TestEnv::new().0
}

#[test]
fn del_after_a_killed_add_leaves_nothing() {
    del_after_a_killed_add(env);
}

#[test]
fn add_after_a_killed_add_completes_it() {
    add_after_a_killed_add(env);
}

#[test]
fn the_other_node_takes_the_address_after_a_killed_add_and_keeps_it() {
    the_other_node_after_a_killed_add(env);
}

#[test]
fn a_killed_del_is_completed_by_the_next() {
    a_killed_del(env, &[None, Some(4), Some(8), Some(10)]);
}

#[test]
fn a_killed_del_does_not_affect_the_other_node() {
    the_other_node_after_a_killed_del(env);
}

#[test]
fn repeatedly_killed_adds_leave_nothing() {
    killed_adds(env, |env, first| {
        for second in 0.. {
            if env.a.add_until(&KillPoint::at(second)).is_ok() {
                break;
            }
        }
        let acquired = env.a.add().unwrap();
        assert_eq!(env.snapshot(), Snapshot::only(&env.a, &acquired), "killed at {first}");
        env.a.del().unwrap();
        assert_eq!(env.snapshot(), Snapshot::clean(), "killed at {first}");
    });
}

#[test]
fn addresses_of_another_program_on_the_interface_are_kept() {
    // Amazon's CNI plugin assigns addresses to the same interface at any time.
    killed_adds(env, |env, point| {
        let other = "10.0.0.30";
        let form = [
            ("Action", "AssignPrivateIpAddresses"),
            ("Version", "2016-11-15"),
            ("NetworkInterfaceId", "eni-a"),
            ("PrivateIpAddress.1", other),
        ];
        let taken = env.snapshot().secondary.values().flatten().any(|address| address.to_string() == other)
            || env.a.state().is_some_and(|state| state.private.addr().to_string() == other);
        if taken {
            return;
        }
        env.backend.respond(&form.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
        env.a.del().unwrap();
        let left = env.snapshot();
        assert_eq!(left.at, None);
        assert_eq!(
            left.secondary["eni-a"],
            [other.parse::<std::net::Ipv4Addr>().unwrap()],
            "killed at {point}"
        );
    });
}
