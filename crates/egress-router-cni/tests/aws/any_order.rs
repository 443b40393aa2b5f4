//! Random calls on two nodes, killed at any point, with any faults: no foreign address is released, and no address leaks.

use std::net::Ipv4Addr;

use egress_router_cni::cni::Code;
use proptest::prelude::*;

use super::gate::Fault;
use super::node::{KillPoint, Node, Snapshot, TestEnv};

#[derive(Debug, Clone)]
enum Action {
    /// A call on the first or second node, killed at that point.
    Add(bool, Option<u32>),
    Del(bool, Option<u32>),
    /// A fault for one response of that action.
    Fault(usize, usize),
    /// Another program gets an address on the first node's interface.
    Other(u8),
    /// The administrator disassociates the Elastic IP.
    Disassociate,
}

const ACTIONS: [&str; 6] = [
    "DescribeAddresses",
    "DescribeNetworkInterfaces",
    "AssignPrivateIpAddresses",
    "AssociateAddress",
    "DisassociateAddress",
    "UnassignPrivateIpAddresses",
];

fn faults() -> [Fault; 4] {
    [
        Fault::Refuse(503, "RequestLimitExceeded"),
        Fault::Refuse(403, "UnauthorizedOperation"),
        Fault::CutBefore,
        Fault::CutAfter,
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let point = || proptest::option::weighted(0.6, 0..16u32);
    prop_oneof![
        4 => (any::<bool>(), point()).prop_map(|(node, point)| Action::Add(node, point)),
        3 => (any::<bool>(), point()).prop_map(|(node, point)| Action::Del(node, point)),
        2 => (0..ACTIONS.len(), 0..faults().len()).prop_map(|(action, fault)| Action::Fault(action, fault)),
        1 => (8..31u8).prop_map(Action::Other),
        1 => Just(Action::Disassociate),
    ]
}

fn run(acts: &[Action]) {
    let (env, ec2) = TestEnv::new();
    // Addresses of the other program.
    let mut others: Vec<Ipv4Addr> = Vec::new();
    for action in acts {
        let before = env.snapshot();
        let node = |first: bool| if first { (&env.a, &env.b) } else { (&env.b, &env.a) };
        let kill_point = |point: &Option<u32>| point.map_or_else(KillPoint::default, KillPoint::at);
        match action {
            Action::Add(first, point) => {
                let (own, other) = node(*first);
                match own.add_until(&kill_point(point)) {
                    Ok(Ok(acquired)) => {
                        assert_eq!(env.snapshot().at, Some((own.interface.clone(), acquired.private.addr())));
                    }
                    Ok(Err(error)) => assert!([Code::TryAgain, Code::Aws].contains(&error.code), "{error}"),
                    Err(_) => {}
                }
                unharmed(other, &before, &env.snapshot());
            }
            Action::Del(first, point) => {
                let (own, other) = node(*first);
                let _ = own.del_until(&kill_point(point));
                let after = env.snapshot();
                unharmed(other, &before, &after);
                let moved = after.at.is_some() && after.at != before.at;
                assert!(!moved, "DEL associates nothing");
                if before.at.as_ref().is_some_and(|(interface, _)| *interface == other.interface) {
                    assert_eq!(after.at, before.at, "DEL took it from the other node");
                }
            }
            Action::Fault(action, fault) => env.gate.plan(ACTIONS[*action], faults()[*fault].clone(), 1),
            Action::Other(last) => {
                let address = Ipv4Addr::new(10, 0, 0, *last);
                let chosen =
                    [&env.a, &env.b].iter().any(|n| n.state().is_some_and(|s| s.private.addr() == address));
                if !chosen && others.len() < 4 && !others.contains(&address) {
                    ec2.lock().unwrap().interfaces.get_mut("eni-a").unwrap().addresses.push(address);
                    others.push(address);
                }
            }
            Action::Disassociate => {
                ec2.lock().unwrap().elastics.get_mut(&env.public).unwrap().association = None;
            }
        }
    }
    env.gate.calm();
    for node in [&env.a, &env.b] {
        node.del().unwrap();
        assert_eq!(node.state(), None);
    }
    let left = env.snapshot();
    assert_eq!(left.at, None);
    let kept = left.secondary.get("eni-a").cloned().unwrap_or_default();
    assert_eq!(kept, others, "the other program's addresses, and no other");
    assert!(!left.secondary.contains_key("eni-b"), "{left:?}");
}

/// Asserts that the addresses of `node`'s interface are unchanged.
fn unharmed(node: &Node, before: &Snapshot, after: &Snapshot) {
    assert_eq!(before.secondary.get(&node.interface), after.secondary.get(&node.interface));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_address_leaks_and_no_foreign_address_is_released(acts in proptest::collection::vec(action(), 1..12)) {
        run(&acts);
    }
}
