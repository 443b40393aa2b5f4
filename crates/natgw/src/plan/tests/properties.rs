//! Properties of random histories: every step is safe, and the state converges to the one that the labels require.

use proptest::prelude::*;

use super::env::{TestEnv, config, fip};
use crate::observe::snapshot::{Ready, Server};

/// One event of a random history: a change of the environment, or a reconciliation of natgw.
#[derive(Clone, Debug)]
enum Event {
    Label(u8, Option<u8>),
    Cordon(u8, bool),
    Ready(u8, Ready),
    Reboot(u8),
    Select(u8, bool),
    Detach(u8, bool),
    Foreign,
    EndJobs(bool),
    Reconcile,
    /// natgw is stopped after so many steps of its reconciliation.
    Crash(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let node = 1..=3_u8;
    prop_oneof![
        3 => (node.clone(), prop::option::of(1..=3_u8)).prop_map(|(n, ip)| Event::Label(n, ip)),
        2 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Event::Cordon(n, on)),
        2 => (node.clone(), prop::sample::select(vec![Ready::True, Ready::False, Ready::Unknown]))
            .prop_map(|(n, ready)| Event::Ready(n, ready)),
        2 => node.clone().prop_map(Event::Reboot),
        1 => (node.clone(), any::<bool>()).prop_map(|(n, on)| Event::Select(n, on)),
        1 => (node, any::<bool>()).prop_map(|(n, on)| Event::Detach(n, on)),
        1 => Just(Event::Foreign),
        4 => any::<bool>().prop_map(Event::EndJobs),
        6 => Just(Event::Reconcile),
        3 => (0..6_usize).prop_map(Event::Crash),
    ]
}

impl Event {
    fn happen(&self, env: &mut TestEnv) {
        match self {
            Event::Label(n, ip) => {
                env.edit(&format!("node-{n}"), |node| node.label = ip.map(|ip| fip(ip).to_string()));
                if let Some(ip) = ip {
                    env.assigned.insert(fip(*ip), Some((*n).into()));
                }
            }
            Event::Cordon(n, on) => env.edit(&format!("node-{n}"), |node| node.cordoned = *on),
            Event::Ready(n, ready) => env.edit(&format!("node-{n}"), |node| node.ready = *ready),
            Event::Reboot(n) => env.reboot(&format!("node-{n}")),
            Event::Select(n, on) => env.edit(&format!("node-{n}"), |node| node.selected = *on),
            Event::Detach(n, on) => env.edit(&format!("node-{n}"), |node| {
                node.server =
                    Server::Cloud { id: (*n).into(), private_ip: (!on).then(|| super::env::private(n + 1)) };
            }),
            Event::Foreign => env.snapshot.network.default_route = Some(super::env::private(99)),
            Event::EndJobs(good) => {
                env.end_jobs(&|_| *good);
            }
            Event::Reconcile => {
                checked_reconcile(env, usize::MAX);
            }
            Event::Crash(limit) => {
                checked_reconcile(env, *limit);
            }
        }
    }
}

/// A reconciliation with a check after each of its steps. The route may only be moved to a candidate.
fn checked_reconcile(env: &mut TestEnv, limit: usize) {
    let before = env.clone();
    let steps = before.plan().steps.len().min(limit);
    for done in 0..=steps {
        let mut partial = before.clone();
        partial.reconcile_up_to(done);
        partial.assert_safe();
        let route = partial.snapshot.network.default_route;
        if route != before.snapshot.network.default_route
            && let Some(route) = route
        {
            let node = before.snapshot.nodes.iter().find(|node| node.private_ip() == Some(route)).unwrap();
            assert!(node.ready == Ready::True && !node.cordoned && node.setup == node.label, "{node:?}");
        }
    }
    env.reconcile_up_to(limit);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_history_stays_safe_and_converges(events in prop::collection::vec(event(), 0..40)) {
        let mut env = TestEnv::new(config()).node(1, Some(fip(1))).node(2, None).node(3, None);
        for event in &events {
            event.happen(&mut env);
            env.assert_safe();
        }
        // There are no more disturbances: every Node is Ready, schedulable and attached to the network.
        for n in 1..=3_u8 {
            env.edit(&format!("node-{n}"), |node| {
                node.ready = Ready::True;
                node.cordoned = false;
                node.server = Server::Cloud { id: n.into(), private_ip: Some(super::env::private(n + 1)) };
            });
        }
        // Each floating IP is assigned to the server of the first selected Node that has it in its label, or to none.
        for n in 1..=3_u8 {
            let text = fip(n).to_string();
            let holder = env.snapshot.nodes.iter().find(|node| node.selected && node.label.as_ref() == Some(&text));
            let server = holder.and_then(|node| match node.server {
                Server::Cloud { id, .. } => Some(id),
                _ => None,
            });
            env.assigned.insert(fip(n), server);
        }
        for _ in 0..12 {
            env.settle();
            env.now += jiff::SignedDuration::from_mins(31);
        }
        env.settle();
        env.assert_safe();
        env.assert_settled();
        prop_assert!(env.plan().is_empty());
        let gateways = env.snapshot.nodes.iter().any(|node| node.selected && node.label.is_some());
        prop_assert_eq!(env.primary().len(), usize::from(gateways));
        if let [primary] = env.primary()[..] {
            prop_assert_eq!(env.snapshot.network.default_route, env.get(primary).private_ip());
        }
    }
}
