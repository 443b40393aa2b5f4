//! From any state, with any disturbance and any crash: no finalizer of others is removed, no object is released before its Deorbit
//! succeeded, and finally everything is as the bindings specify.

use proptest::prelude::*;

use super::env::{OTHERS, OURS, PROTECT, TestEnv};
use crate::names;
use crate::trigger::snapshot::End;

#[derive(Clone, Debug)]
enum Event {
    Object(u8, bool),
    Delete(u8),
    Label(u8, bool),
    Protect(u8, bool),
    OthersRelease(u8),
    Phase(u8, bool),
    Binding(u8),
    RemoveBinding(u8),
    Break(u8, bool),
    EndDeorbits(End),
    ForgetDeorbits,
    /// A user removes our finalizer from an object that is being deleted.
    TakeOff(u8),
    /// deorbiter stops between the creation of a Deorbit and the record of its UID.
    StopsAfterCreation(bool),
    /// Cluster API creates a Machine of an object.
    Machine(u8),
    /// It deletes a Machine: alone, or because its Cluster is deleted.
    DeleteMachine(u8),
    /// A user creates a Deorbit with the label of an object, and it ends.
    Forged(u8),
    /// deorbiter is stopped after so many steps of its reconciliation.
    Planner(usize),
}

fn event() -> impl Strategy<Value = Event> {
    let object = 0..4_u8;
    let binding = 0..2_u8;
    let end = prop::sample::select(vec![End::Complete, End::CompletedWithDebris, End::Failed]);
    prop_oneof![
        3 => (object.clone(), any::<bool>()).prop_map(|(n, adopted)| Event::Object(n, adopted)),
        3 => object.clone().prop_map(Event::Delete),
        2 => (object.clone(), any::<bool>()).prop_map(|(n, on)| Event::Label(n, on)),
        2 => (object.clone(), any::<bool>()).prop_map(|(n, on)| Event::Protect(n, on)),
        2 => object.clone().prop_map(Event::OthersRelease),
        1 => object.clone().prop_map(Event::TakeOff),
        1 => (object, any::<bool>()).prop_map(|(n, on)| Event::Phase(n, on)),
        2 => binding.clone().prop_map(Event::Binding),
        1 => binding.clone().prop_map(Event::RemoveBinding),
        1 => (binding, any::<bool>()).prop_map(|(n, on)| Event::Break(n, on)),
        3 => end.prop_map(Event::EndDeorbits),
        1 => Just(Event::ForgetDeorbits),
        1 => any::<bool>().prop_map(Event::StopsAfterCreation),
        1 => (0..4_u8).prop_map(Event::Forged),
        2 => (0..8_u8).prop_map(Event::Machine),
        2 => (0..8_u8).prop_map(Event::DeleteMachine),
        8 => (0..6_usize).prop_map(Event::Planner),
    ]
}

fn happen(event: &Event, env: &mut TestEnv) {
    let object = |n: &u8| format!("object-{n}");
    let binding = |n: &u8| format!("binding-{n}");
    match event {
        Event::Object(n, adopted) => {
            if !env.objects.contains_key(&object(n)) {
                let new = env.object(&object(n), "l");
                if *adopted {
                    new.finalizers.push(OURS.into());
                }
            }
        }
        Event::Delete(n) => env.edit(&object(n), |object| object.terminating = true),
        Event::Label(n, on) => env.edit(&object(n), |object| {
            object.labels.remove("l");
            if *on {
                object.labels.insert("l".into(), "x".into());
            }
        }),
        Event::Protect(n, on) => env.edit(&object(n), |object| {
            object.annotations.remove(PROTECT);
            if *on {
                object.annotations.insert(PROTECT.into(), "true".into());
            }
        }),
        Event::OthersRelease(n) => env.edit(&object(n), |object| {
            if object.terminating {
                object.finalizers.retain(|one| one != OTHERS);
            }
        }),
        Event::TakeOff(n) => env.edit(&object(n), |object| {
            if object.terminating {
                object.finalizers.retain(|one| one != OURS);
            }
        }),
        Event::Phase(n, on) => {
            env.edit(&object(n), |object| object.phase = if *on { "Running" } else { "Terminating" }.into());
        }
        Event::Binding(n) => {
            let one = env.binding(&binding(n), "l");
            one.hooks = true;
            if *n == 1 {
                one.when = Some("Terminating");
            }
        }
        Event::RemoveBinding(n) => {
            if let Some(binding) = env.bindings.get_mut(&binding(n)) {
                binding.terminating = true;
            }
            env.collect();
        }
        Event::Break(n, on) => {
            if let Some(binding) = env.bindings.get_mut(&binding(n)) {
                binding.rules = if *on { Err("broken".into()) } else { Ok(()) };
            }
        }
        Event::EndDeorbits(end) => env.end_deorbits(*end),
        Event::ForgetDeorbits => env.deorbits.retain(|one| one.end != Some(End::Failed)),
        Event::StopsAfterCreation(on) => env.stops_after_creation = *on,
        Event::Forged(n) => env.forge(&object(n)),
        // Two Machines for each object.
        Event::Machine(n) => env.machine(&format!("machine-{n}"), &object(&(n % 4))),
        Event::DeleteMachine(n) => env.delete_machine(&format!("machine-{n}")),
        Event::Planner(limit) => checked_reconcile(env, *limit),
    }
}

/// Each step alone keeps the invariants.
fn checked_reconcile(env: &mut TestEnv, limit: usize) {
    for _ in 0..limit {
        let before = env.clone();
        if env.reconcile(1) == 0 {
            return;
        }
        for (name, old) in &before.objects {
            let still = env.objects.get(name);
            let now = still.map_or(&[][..], |object| object.finalizers.as_slice());
            if still.is_some() {
                let others =
                    |list: &[String]| list.iter().filter(|one| *one != OURS).cloned().collect::<Vec<_>>();
                assert_eq!(others(now), others(&old.finalizers), "a foreign finalizer");
            }
            assert!(now.iter().filter(|one| *one == OURS).count() <= 1, "twice");
            let had = old.finalizers.iter().any(|one| one == OURS);
            let has = now.iter().any(|one| one == OURS);
            if had && !has && old.terminating {
                assert!(!old.annotations.contains_key(PROTECT), "a protected object was released");
                let end = before
                    .deorbits
                    .iter()
                    .find(|one| old.annotations.get(names::DEORBIT_UID_ANNOTATION) == Some(&one.uid))
                    .and_then(|one| one.end);
                assert!(
                    matches!(end, Some(End::Complete | End::CompletedWithDebris)),
                    "released without a Deorbit: {end:?}"
                );
            }
            if had && !has && !old.terminating {
                assert!(old.annotations.contains_key(names::BOUND_BY_ANNOTATION), "not ours");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_invariants_and_converges(events in prop::collection::vec(event(), 0..60)) {
        let mut env = TestEnv::default();
        for event in &events {
            happen(event, &mut env);
        }
        // The disturbances end: rules are fixed, phases are right, protections are removed, failed Deorbits are retried.
        for binding in env.bindings.values_mut() {
            binding.rules = Ok(());
        }
        for n in 0..4_u8 {
            happen(&Event::Protect(n, false), &mut env);
            env.edit(&format!("object-{n}"), |object| {
                object.phase = if object.terminating { "Terminating" } else { "Running" }.into();
            });
        }
        env.stops_after_creation = false;
        env.deorbits.retain(|one| !one.name.starts_with("forged-"));
        for _ in 0..5 {
            happen(&Event::ForgetDeorbits, &mut env);
            checked_reconcile(&mut env, 100);
            env.end_deorbits(End::Complete);
        }
        checked_reconcile(&mut env, 100);
        prop_assert!(env.plan().plan.is_empty(), "{}", env.plan().plan);
        let alive: Vec<&str> = env.bindings.values().filter(|one| !one.terminating).map(|one| one.name.as_str()).collect();
        prop_assert!(env.bindings.len() == alive.len(), "a removed binding hangs");
        for machine in env.machines.values() {
            let cluster = env.objects.get(&machine.cluster);
            let bound = cluster.is_some_and(|object| {
                object.finalizers.iter().any(|one| one == OURS)
                    && object.annotations.contains_key(names::BOUND_BY_ANNOTATION)
            });
            prop_assert_eq!(machine.hook.is_some(), bound, "{:?}", machine);
        }
        for object in env.objects.values() {
            let ours = object.finalizers.iter().any(|one| one == OURS);
            let selected = object.labels.contains_key("l");
            if !object.terminating && selected && !alive.is_empty() {
                prop_assert!(ours && alive.contains(&object.annotations[names::BOUND_BY_ANNOTATION].as_str()));
            }
            if ours && object.annotations.contains_key(names::BOUND_BY_ANNOTATION) && alive.is_empty() {
                prop_assert!(false, "nothing releases it: {object:?}");
            }
            if object.terminating && selected && !alive.is_empty() {
                prop_assert!(!ours, "it still waits: {object:?}");
            }
        }
    }
}
