//! From any state, through any disturbance: never an unsafe step, and in the end everything as the labels want it.

use proptest::prelude::*;

use super::world::{World, config, fip};
use crate::observe::snapshot::{Ready, Server};

/// Something that happens to a Node, or to natgw.
#[derive(Clone, Debug)]
enum Event {
    Label(u8, Option<u8>),
    Cordon(u8, bool),
    Ready(u8, Ready),
    Reboot(u8),
    Select(u8, bool),
    Detach(u8, bool),
    Stranger,
    EndJobs(bool),
    Walk,
    /// natgw is stopped after so many steps of its walk.
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
        1 => Just(Event::Stranger),
        4 => any::<bool>().prop_map(Event::EndJobs),
        6 => Just(Event::Walk),
        3 => (0..6_usize).prop_map(Event::Crash),
    ]
}

impl Event {
    fn happen(&self, world: &mut World) {
        match self {
            Event::Label(n, ip) => {
                world.edit(&format!("node-{n}"), |node| node.label = ip.map(|ip| fip(ip).to_string()));
                if let Some(ip) = ip {
                    world.assigned.insert(fip(*ip), Some((*n).into()));
                }
            }
            Event::Cordon(n, on) => world.edit(&format!("node-{n}"), |node| node.cordoned = *on),
            Event::Ready(n, ready) => world.edit(&format!("node-{n}"), |node| node.ready = *ready),
            Event::Reboot(n) => world.reboot(&format!("node-{n}")),
            Event::Select(n, on) => world.edit(&format!("node-{n}"), |node| node.selected = *on),
            Event::Detach(n, on) => world.edit(&format!("node-{n}"), |node| {
                node.server = Server::Cloud {
                    id: (*n).into(),
                    private_ip: (!on).then(|| super::world::private(n + 1)),
                };
            }),
            Event::Stranger => world.snapshot.network.default_route = Some(super::world::private(99)),
            Event::EndJobs(good) => {
                world.end_jobs(&|_| *good);
            }
            Event::Walk => {
                checked_walk(world, usize::MAX);
            }
            Event::Crash(limit) => {
                checked_walk(world, *limit);
            }
        }
    }
}

/// A walk that is looked at after each of its steps. The route may only be moved to a candidate.
fn checked_walk(world: &mut World, limit: usize) {
    let before = world.clone();
    let steps = before.plan().steps.len().min(limit);
    for done in 0..=steps {
        let mut partial = before.clone();
        partial.walk_up_to(done);
        partial.assert_safe();
        let route = partial.snapshot.network.default_route;
        if route != before.snapshot.network.default_route
            && let Some(route) = route
        {
            let node = before.snapshot.nodes.iter().find(|node| node.private_ip() == Some(route)).unwrap();
            assert!(node.ready == Ready::True && !node.cordoned && node.setup == node.label, "{node:?}");
        }
    }
    world.walk_up_to(limit);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn any_history_stays_safe_and_converges(events in prop::collection::vec(event(), 0..40)) {
        let mut world = World::new(config()).node(1, Some(fip(1))).node(2, None).node(3, None);
        for event in &events {
            event.happen(&mut world);
            world.assert_safe();
        }
        // The storm is over: every Node is well again, and time goes by.
        for n in 1..=3_u8 {
            world.edit(&format!("node-{n}"), |node| {
                node.ready = Ready::True;
                node.cordoned = false;
                node.server = Server::Cloud { id: n.into(), private_ip: Some(super::world::private(n + 1)) };
            });
        }
        // ... and the cloud agrees with the labels again, for one holder each.
        for n in 1..=3_u8 {
            let text = fip(n).to_string();
            let holder = world.snapshot.nodes.iter().find(|node| node.selected && node.label.as_ref() == Some(&text));
            let server = holder.and_then(|node| match node.server {
                Server::Cloud { id, .. } => Some(id),
                _ => None,
            });
            world.assigned.insert(fip(n), server);
        }
        for _ in 0..12 {
            world.settle();
            world.now += jiff::SignedDuration::from_mins(31);
        }
        world.settle();
        world.assert_safe();
        world.assert_settled();
        prop_assert!(world.plan().is_empty());
        let gateways = world.snapshot.nodes.iter().any(|node| node.selected && node.label.is_some());
        prop_assert_eq!(world.primary().len(), usize::from(gateways));
        if let [primary] = world.primary()[..] {
            prop_assert_eq!(world.snapshot.network.default_route, world.get(primary).private_ip());
        }
    }
}
