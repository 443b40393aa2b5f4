//! A model check of two routes: next hops that disappear, return and become invisible, routes that another client re-creates,
//! reconciliations that are complete or end between any two writes, and time that passes.

use std::collections::{BTreeMap, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::env::{policy_with, safety, snapshot};
use crate::api::period::Period;
use crate::api::routegc::Safety;
use crate::routes::plan::confirm::record_removal;
use crate::routes::plan::{History, plan};
use crate::routes::policy::Policy;
use crate::routes::route::Route;
use crate::routes::snapshot::Snapshot;

/// Half of the time for which a re-created route is not removed again: two steps of the clock reach its end.
const STEP: SignedDuration = SignedDuration::from_hours(12);
const ROUTES: [(&str, &str); 2] = [("10.244.1.0/24", "10.0.0.11"), ("10.244.2.0/24", "10.0.0.12")];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hop {
    Exists,
    Gone,
    Hidden,
}

#[derive(Clone, Debug, PartialEq)]
struct State {
    present: [bool; 2],
    hops: [Hop; 2],
    history: History,
    /// When each route was last removed, which only the model knows.
    removed: [Option<Timestamp>; 2],
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Hours,
    Change(usize, Hop),
    PutBack(usize),
    Reconcile(Cut),
}

/// The point at which a reconciliation ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Never,
    BeforeAnything,
    AfterIntent,
    AfterRemoval,
}

fn policy_of_the_model() -> Policy {
    // One step of the clock makes a candidate old enough.
    policy_with(&Safety { min_age: Period::seconds(STEP.unsigned_abs().as_secs()), ..safety() })
}

fn see(env: &State) -> Snapshot {
    let present: Vec<_> =
        ROUTES.iter().zip(env.present).filter(|(_, there)| *there).map(|(route, _)| *route).collect();
    let mut seen = snapshot(&present);
    for ((_, nexthop), hop) in ROUTES.iter().zip(env.hops) {
        seen = match hop {
            Hop::Exists => seen.server(nexthop, nexthop),
            Hop::Gone => seen,
            Hop::Hidden => seen.pair("wide", None, "nodes", &format!("{nexthop}/32")),
        };
    }
    seen
}

fn route(index: usize) -> Route {
    Route::new(ROUTES[index].0, ROUTES[index].1)
}

/// The state after an event at `now`. The invariants are checked here.
fn step(before: &State, event: Event, now: Timestamp) -> State {
    let mut env = before.clone();
    match event {
        Event::Hours => {}
        Event::Change(index, hop) => env.hops[index] = hop,
        Event::PutBack(index) => env.present[index] = true,
        Event::Reconcile(cut) => {
            let decision = plan(&policy_of_the_model(), &see(&env), &env.history, None, now);
            if cut == Cut::BeforeAnything {
                return env;
            }
            let removals: Vec<Route> = decision.removals.iter().map(|one| one.route.clone()).collect();
            env.history = History { removing: removals.clone(), ..decision.history };
            if cut == Cut::AfterIntent {
                return env;
            }
            for index in 0..2 {
                if !removals.contains(&route(index)) {
                    continue;
                }
                assert_eq!(
                    before.hops[index],
                    Hop::Gone,
                    "removed, although its next hop is not gone: {before:?}"
                );
                assert!(before.present[index]);
                if let Some(last) = before.removed[index] {
                    assert!(now.duration_since(last) >= STEP, "removed again within a day: {before:?}");
                }
                env.present[index] = false;
                // A process that ends before the record, and then finds the route re-created, cannot know that it was removed.
                env.removed[index] = (cut == Cut::Never).then_some(now);
            }
            if cut == Cut::AfterRemoval {
                return env;
            }
            for removal in &removals {
                record_removal(&mut env.history.removed, removal, now);
            }
            env.history.removing.clear();
            env.history
                .candidates
                .retain(|one| !removals.contains(&Route::new(&one.destination, &one.nexthop)));
        }
    }
    env
}

/// A key in which times are ages, as far as they matter, and counters end where the plan stops looking at them.
fn key(env: &State, now: Timestamp) -> String {
    let age = |time: Timestamp| (now.duration_since(time).as_secs() / STEP.as_secs()).min(3);
    let history = &env.history;
    let candidates: Vec<_> =
        history.candidates.iter().map(|one| (&one.nexthop, age(one.first_seen), one.observations)).collect();
    let removed: BTreeMap<_, _> = history.removed.iter().map(|one| (&one.nexthop, age(one.at))).collect();
    let recreated: Vec<_> = history.recreated.iter().map(|one| (&one.nexthop, age(one.removed_at))).collect();
    let truly: Vec<_> = env.removed.iter().map(|time| time.map(age)).collect();
    format!(
        "{:?}{:?}{candidates:?}{removed:?}{recreated:?}{:?}{truly:?}",
        env.present, env.hops, history.removing
    )
}

#[test]
fn every_history_of_two_routes_is_safe_and_converges() {
    let start = Timestamp::from_second(1_700_000_000).unwrap();
    let empty =
        State { present: [true; 2], hops: [Hop::Exists; 2], history: History::default(), removed: [None; 2] };
    let mut events = vec![Event::Hours];
    for index in 0..2 {
        events.push(Event::PutBack(index));
        events.extend([Hop::Exists, Hop::Gone, Hop::Hidden].map(|hop| Event::Change(index, hop)));
    }
    events
        .extend([Cut::Never, Cut::BeforeAnything, Cut::AfterIntent, Cut::AfterRemoval].map(Event::Reconcile));
    let mut seen = BTreeMap::from([(key(&empty, start), ())]);
    let mut queue = VecDeque::from([(empty, start)]);
    let mut steps = 0_usize;
    while let Some((env, now)) = queue.pop_front() {
        converges(&env, now);
        for event in &events {
            let then = if matches!(event, Event::Hours) { now + STEP } else { now };
            let next = step(&env, *event, then);
            steps += 1;
            if seen.insert(key(&next, then), ()).is_none() {
                queue.push_back((next, then));
            }
        }
    }
    println!("{} states, {steps} steps, 0 violations", seen.len());
    assert!(seen.len() > 1000, "the model explores too little: {} states", seen.len());
}

/// Without further events, the router ends without orphaned routes, and then nothing is written any more.
fn converges(env: &State, start: Timestamp) {
    let (mut env, mut now) = (env.clone(), start);
    for _ in 0..6 {
        now += STEP;
        env = step(&env, Event::Reconcile(Cut::Never), now);
    }
    for index in 0..2 {
        assert!(!(env.present[index] && env.hops[index] == Hop::Gone), "still there: {env:?}");
    }
    let quiet = step(&env, Event::Reconcile(Cut::Never), now + STEP);
    assert_eq!(quiet, env, "something is written although nothing changed");
}
