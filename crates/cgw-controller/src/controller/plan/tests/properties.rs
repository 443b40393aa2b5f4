//! Properties of any state.

use proptest::prelude::*;

use super::super::repair::repair;
use super::model::State;
use super::*;

fn owner() -> impl Strategy<Value = Owner> {
    prop_oneof![
        prop::sample::select(vec!["x", "y"]).prop_map(namespace),
        prop::sample::select(vec![("x", "a"), ("x", "same"), ("y", "c")]).prop_map(|(x, s)| service(x, s)),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![owner().prop_map(Request::Bind), owner().prop_map(Request::Unbind)]
}

fn some_master() -> impl Strategy<Value = Option<Master>> {
    prop::option::of((21..23_u8, 0..4_u64).prop_map(|(last, epoch)| master(last, epoch)))
}

prop_compose! {
    fn snapshot()(
        records in prop::collection::vec((owner(), any::<bool>(), any::<bool>()), 0..3),
        carried in prop::collection::vec((0..4_usize, any::<bool>(), 1..4_u32, some_master()), 0..4),
        is_served in any::<bool>(),
        now in some_master(),
    ) -> Snapshot {
        let mut snapshot = Snapshot { is_served, master: now, ..free() };
        for (number, (owner, is_ours, unbinding)) in records.into_iter().enumerate() {
            let number = u32::try_from(number).unwrap() + 1;
            let address = if is_ours { VIP } else { OTHER };
            Arc::make_mut(&mut snapshot.binds).insert(vip(address), Bind { unbinding, ..record(owner, number) });
        }
        let names: Vec<_> = snapshot.services.keys().cloned().collect();
        for (index, is_ours, number, master) in carried {
            let tenant = tenant(names[index].namespace(), names[index].name(), 80);
            put(&mut snapshot, carrying(tenant, if is_ours { VIP } else { OTHER }, number, master));
        }
        snapshot
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// From any state, a request alone ends, by the writes that the first plan has; a repetition of it writes nothing. No number is used
    /// twice and no epoch decreases.
    #[test]
    fn requests_converge(snapshot in snapshot(), request in request()) {
        let mut state = State::of(&snapshot);
        let first = plan(&request, &Progress::default(), &snapshot);
        let (reply, writes) = state.complete(&request, &snapshot);
        prop_assert_eq!(&writes, &first.writes);
        prop_assert_eq!(reply.code, first.reply.code);
        let (_, writes) = state.complete(&request, &snapshot);
        prop_assert!(writes.is_empty(), "{:?}", writes);
    }

    /// A refusal writes nothing, but for the unbind of a namespace that is given up.
    #[test]
    fn refusals_write_nothing(snapshot in snapshot(), request in request()) {
        let verdict = plan(&request, &Progress::default(), &snapshot);
        if matches!(verdict.reply.code, 404 | 409 | 422) {
            let is_resumed = |write: &Write| matches!(write, Write::Record { bind, .. } if !bind.unbinding);
            prop_assert!(verdict.writes.iter().all(is_resumed), "{:?}", verdict);
        }
    }

    /// Repairs converge from any state, and leave a state without half a binding.
    #[test]
    fn repairs_converge(snapshot in snapshot()) {
        let mut state = State::of(&snapshot);
        state.repair(&snapshot);
        let repaired = state.observe(&snapshot);
        let left = repair(&repaired);
        prop_assert!(left.delayed.is_empty() && left.refresh.is_empty(), "{:?}", left);
        prop_assert!(repaired.record().is_none_or(|record| !record.unbinding));
    }

    /// The gateway in force is the same in whichever order masters are reported.
    #[test]
    fn masters_may_be_reported_in_any_order(mut masters in prop::collection::vec((21..24_u8, 0..5_u64), 1..6)) {
        let apply = |masters: &[(u8, u64)]| {
            masters.iter().fold((None, Epoch(0)), |(gateway, epoch), (last, since)| {
                let next = master::newer(gateway, epoch, Some(&master(*last, *since)));
                assert!(next.1 >= epoch);
                next
            })
        };
        let in_order = apply(&masters);
        masters.reverse();
        prop_assert_eq!(apply(&masters), in_order);
        masters.extend(masters.clone());
        prop_assert_eq!(apply(&masters), in_order);
    }
}
