//! Every history of two routes, explored to the end: next hops that die, come back and become invisible, routes that somebody
//! puts back, passes that are complete or cut short between any two writes, hours that go by.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::world::{policy, snapshot};
use crate::routes::plan::confirm::note;
use crate::routes::plan::{Memory, plan};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// Half of the time for which a route that was put back is left alone: two steps of the clock are enough to see its end.
const STEP: SignedDuration = SignedDuration::from_hours(12);
const ROUTES: [(&str, &str); 2] = [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12")];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hop {
    Lives,
    Dead,
    Hidden,
}

#[derive(Clone, Debug, PartialEq)]
struct World {
    present: [bool; 2],
    hops: [Hop; 2],
    memory: Memory,
    /// When each route was last removed, as nobody but the model knows it.
    removed: [Option<Timestamp>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Hours,
    Change(usize, Hop),
    PutBack(usize),
    Pass(Cut),
}

/// Where a pass is cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Never,
    BeforeAnything,
    AfterIntent,
    AfterRemoval,
}

fn policy_of_the_model() -> Policy {
    // One step of the clock makes a candidate old enough.
    Policy { min_age: STEP.unsigned_abs(), ..policy() }
}

fn see(world: &World) -> Snapshot {
    let present: Vec<_> =
        ROUTES.iter().zip(world.present).filter(|(_, there)| *there).map(|(route, _)| *route).collect();
    let mut seen = snapshot(&present);
    for ((_, nexthop), hop) in ROUTES.iter().zip(world.hops) {
        seen = match hop {
            Hop::Lives => seen.server(nexthop, nexthop),
            Hop::Dead => seen,
            Hop::Hidden => seen.pair("wide", None, "nodes", &format!("{nexthop}/32")),
        };
    }
    seen
}

fn route(index: usize) -> Route {
    Route::new(ROUTES[index].0, ROUTES[index].1)
}

/// The world after an event at `now`; what must never be seen, is seen here.
fn step(before: &World, event: Event, now: Timestamp) -> World {
    let mut world = before.clone();
    match event {
        Event::Hours => {}
        Event::Change(index, hop) => world.hops[index] = hop,
        Event::PutBack(index) => world.present[index] = true,
        Event::Pass(cut) => {
            let decision = plan(&policy_of_the_model(), &see(&world), &world.memory, None, now);
            if cut == Cut::BeforeAnything {
                return world;
            }
            let removals: Vec<Route> = decision.removals.iter().map(|one| one.route.clone()).collect();
            world.memory = Memory { removing: removals.clone(), ..decision.memory };
            if cut == Cut::AfterIntent {
                return world;
            }
            for index in 0..2 {
                if !removals.contains(&route(index)) {
                    continue;
                }
                assert_eq!(
                    before.hops[index],
                    Hop::Dead,
                    "removed, and its next hop is no corpse: {before:?}"
                );
                assert!(before.present[index]);
                if let Some(last) = before.removed[index] {
                    assert!(now.duration_since(last) >= STEP, "removed again and again: {before:?}");
                }
                world.present[index] = false;
                // Whoever ends before the record, and sees the route back at its next sight, cannot know that it was gone.
                world.removed[index] = (cut == Cut::Never).then_some(now);
            }
            if cut == Cut::AfterRemoval {
                return world;
            }
            for removal in &removals {
                note(&mut world.memory.removed, removal, now);
            }
            world.memory.removing.clear();
            world
                .memory
                .candidates
                .retain(|one| !removals.contains(&Route::new(&one.destination, &one.nexthop)));
        }
    }
    world
}

/// A key in which times are ages, as far as they matter, and counters end where the plan stops looking at them.
fn key(world: &World, now: Timestamp) -> String {
    let age = |time: Timestamp| (now.duration_since(time).as_secs() / STEP.as_secs()).min(3);
    let memory = &world.memory;
    let candidates: Vec<_> =
        memory.candidates.iter().map(|one| (&one.nexthop, age(one.first_seen), one.passes)).collect();
    let removed: BTreeMap<_, _> = memory.removed.iter().map(|one| (&one.nexthop, age(one.at))).collect();
    let contested: Vec<_> = memory.contested.iter().map(|one| (&one.nexthop, age(one.removed_at))).collect();
    let truly: Vec<_> = world.removed.iter().map(|time| time.map(age)).collect();
    format!(
        "{:?}{:?}{candidates:?}{removed:?}{contested:?}{:?}{truly:?}",
        world.present, world.hops, memory.removing
    )
}

#[test]
fn every_history_of_two_routes_is_safe_and_comes_to_rest() {
    let start = Timestamp::from_second(1_700_000_000).unwrap();
    let empty =
        World { present: [true; 2], hops: [Hop::Lives; 2], memory: Memory::default(), removed: [None; 2] };
    let mut events = vec![Event::Hours];
    for index in 0..2 {
        events.push(Event::PutBack(index));
        events.extend([Hop::Lives, Hop::Dead, Hop::Hidden].map(|hop| Event::Change(index, hop)));
    }
    events.extend([Cut::Never, Cut::BeforeAnything, Cut::AfterIntent, Cut::AfterRemoval].map(Event::Pass));
    let mut seen = BTreeMap::from([(key(&empty, start), ())]);
    let mut queue = VecDeque::from([(empty, start)]);
    let mut steps = 0_usize;
    while let Some((world, now)) = queue.pop_front() {
        comes_to_rest(&world, now);
        for event in &events {
            let then = if matches!(event, Event::Hours) { now + STEP } else { now };
            let next = step(&world, *event, then);
            steps += 1;
            if seen.insert(key(&next, then), ()).is_none() {
                queue.push_back((next, then));
            }
        }
    }
    println!("{} worlds, {steps} steps, 0 violations", seen.len());
    assert!(seen.len() > 1000, "the model is blind: {} worlds", seen.len());
}

/// Left alone, the router ends with no route to a corpse, and then nothing is written any more.
fn comes_to_rest(world: &World, start: Timestamp) {
    let (mut world, mut now) = (world.clone(), start);
    for _ in 0..6 {
        now += STEP;
        world = step(&world, Event::Pass(Cut::Never), now);
    }
    for index in 0..2 {
        assert!(!(world.present[index] && world.hops[index] == Hop::Dead), "still there: {world:?}");
    }
    let quiet = step(&world, Event::Pass(Cut::Never), now + STEP);
    assert_eq!(quiet, world, "something is written though nothing happens");
}
