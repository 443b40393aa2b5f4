//! Attachments are added, deleted and fail in every order, in different pods.

use proptest::prelude::*;

use super::super::simulated::{PRIMARY, Simulated, link, net, pod, there};
use super::*;

prop_compose! {
    fn any_pod()(
        default_v4 in proptest::option::of(proptest::option::of(1..200_u32)),
        default_v6 in proptest::option::of(1..2000_u32),
        advertised in proptest::option::of(prop_oneof![Just("0"), Just("1")]),
        second in proptest::option::of(300..400_u32),
        tos in proptest::option::of(proptest::option::of(1..500_u32)),
        twin: bool,
        gateway_routes: bool,
        cluster_there: bool,
        other_interface: bool,
        sysctls in proptest::collection::vec(prop_oneof![Just("0"), Just("1"), Just("2")], 12),
        without_ipv6: bool,
        attributes in proptest::collection::vec((any::<u16>(), proptest::collection::vec(any::<u8>(), 0..150)), 0..3),
    ) -> Simulated {
        let mut simulated = pod();
        let pod = &mut simulated.pod;
        pod.routes.retain(|route| route.destination.prefix_len() != 0);
        pod.routes.extend(default_v4.map(|metric| Route {
            rest: attributes, ..there("0.0.0.0/0", Some("10.244.1.1"), PRIMARY, metric)
        }));
        let twin = default_v4.filter(|_| twin);
        pod.routes.extend(twin.map(|metric| there("0.0.0.0/0", Some("10.244.1.3"), PRIMARY, metric)));
        let advertised = default_v6.and(advertised);
        pod.routes.extend(default_v6.map(|metric| Route {
            protocol: if advertised.is_some() { 9 } else { 3 },
            ..there("::/0", Some("fe80::1"), PRIMARY, Some(metric))
        }));
        pod.routes.extend(second.map(|metric| there("0.0.0.0/0", Some("10.244.1.2"), PRIMARY, Some(metric))));
        pod.routes.extend(tos.map(|metric| Route {
            tos: 0x10, ..there("0.0.0.0/0", Some("10.244.1.4"), PRIMARY, metric)
        }));
        pod.routes.extend(gateway_routes.then(|| there("10.128.0.0/14", Some("10.244.1.1"), PRIMARY, None)));
        pod.routes.extend(cluster_there.then(|| there("172.30.0.0/16", Some("10.244.1.1"), PRIMARY, Some(5))));
        if other_interface {
            pod.links.push(link(3, "eth1", "veth"));
            pod.addresses.push(Address { link: 3, net: net("10.9.0.5/24"), scope: 0, flags: 0 });
            pod.routes.push(there("10.9.0.0/24", None, 3, None));
        }
        for (value, random) in pod.sysctls.values_mut().zip(sysctls) {
            random.clone_into(value);
        }
        for (name, value) in &mut pod.sysctls {
            if name.last().is_some_and(|key| key == "forwarding") && value == "2" {
                "1".clone_into(value);
            }
        }
        if let Some(value) = advertised {
            pod.sysctls.insert(sysctl::routers("eth0"), value.into());
        }
        if without_ipv6 {
            pod.sysctls.retain(|name, _| name[1] == "ipv4");
        }
        simulated
    }
}

prop_compose! {
    fn any_desired(number: u8)(kinds in 0..3_usize, redirects: bool, listed: bool, chained: bool) -> Desired {
        let families = [&[Family::V4][..], &[Family::V6], BOTH][kinds];
        let mut desired = if redirects { redirecting(number, families) } else { desired(number, families) };
        desired.destinations.allowed = listed.then(|| vec![net("203.0.113.0/24")]);
        if chained {
            desired.previous = Some(Previous { interface: "eth0".into(), gateways: vec!["10.244.1.1".parse().unwrap()] });
        }
        desired
    }
}

fn any_three() -> impl Strategy<Value = [Desired; 3]> {
    (any_desired(1), any_desired(2), any_desired(3)).prop_map(|(one, two, three)| [one, two, three])
}

/// A kernel without IPv6 gets no IPv6 requests.
fn without_ipv6(simulated: &Simulated, desired: Desired) -> Desired {
    if simulated.pod.sysctls.keys().any(|name| name[1] == "ipv6") {
        return desired;
    }
    let number = desired.interface.trim_start_matches("net").parse().unwrap();
    super::simulated::desired(number, &[Family::V4])
}

fn with_ipv4_only_kernel(mut simulated: Simulated) -> Simulated {
    // The model copies IPv6's sysctls of a new link from the default.
    if !simulated.pod.sysctls.keys().any(|name| name[1] == "ipv6") {
        simulated.pod.addresses.retain(|address| address.net.addr().is_ipv4());
        simulated.pod.routes.retain(|route| route.destination.addr().is_ipv4());
    }
    simulated
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Attachments are added and deleted in every order, and the last DEL restores the initial state.
    #[test]
    fn the_last_del_restores_everything(
        simulated in any_pod(),
        desired in any_three(),
        toggles in proptest::collection::vec(0..3_usize, 1..10),
    ) {
        let mut simulated = with_ipv4_only_kernel(simulated);
        let before = simulated.state();
        let desired = desired.map(|desired| without_ipv6(&simulated, desired));
        let mut order: Vec<usize> = Vec::new();
        for which in toggles {
            let one = &desired[which];
            match order.iter().position(|other| *other == which) {
                None => { simulated.add(one); order.push(which); }
                Some(position) => { simulated.del(&one.interface); order.remove(position); }
            }
            for family in Family::ALL {
                let youngest = order.iter().rev().find(|which| desired[**which].source(family).is_some());
                if let Some(youngest) = youngest {
                    prop_assert_eq!(holder(&simulated, family), Some(desired[*youngest].interface.clone()));
                }
            }
        }
        for which in order {
            simulated.del(&desired[which].interface);
        }
        prop_assert_eq!(simulated.state(), before);
    }

    /// An ADD or DEL is killed between two steps, and a DEL follows.
    #[test]
    fn del_restores_the_pod_after_a_kill_at_any_step(
        simulated in any_pod(),
        desired in any_three(),
        there_before in 0..3_usize,
        killed in 0..60_usize,
        killed_second in 0..60_usize,
    ) {
        let mut simulated = with_ipv4_only_kernel(simulated);
        let desired = desired.map(|desired| without_ipv6(&simulated, desired));
        for other in desired.iter().take(there_before) {
            simulated.add(other);
        }
        let last = &desired[2];
        let before = simulated.state();
        let plan = simulated.record(last);
        simulated.run(&plan.steps[..killed.min(plan.steps.len())]);
        let steps = del::del(&simulated.pod, "net3", &plan.undo);
        simulated.run(&steps[..killed_second.min(steps.len())]);
        simulated.del("net3");
        prop_assert_eq!(simulated.state(), before.clone());
        simulated.del("net3");
        prop_assert_eq!(simulated.state(), before);
    }

    /// A failure at any step, with a rollback in reverse order.
    #[test]
    fn a_rollback_restores_the_previous_state(simulated in any_pod(), desired in any_three(), there_before in 0..3_usize) {
        let mut simulated = with_ipv4_only_kernel(simulated);
        let desired = desired.map(|desired| without_ipv6(&simulated, desired));
        for other in desired.iter().take(there_before) {
            simulated.add(other);
        }
        let before = simulated.state();
        let plan = add::add(&desired[2], &simulated.pod).unwrap();
        for failed in 0..=plan.steps.len() {
            let mut copy = simulated.clone();
            copy.run(&plan.steps[..failed]);
            for step in plan.steps[..failed].iter().rev() {
                copy.rollback(step).unwrap();
            }
            prop_assert_eq!(copy.state(), before.clone());
        }
    }

    /// A link that is up without its table would bypass the allow-list.
    #[test]
    fn stopped_after_any_step_of_add_or_del_the_link_is_never_up_without_its_table(
        simulated in any_pod(),
        desired in any_three(),
        there_before in 0..3_usize,
    ) {
        let mut simulated = with_ipv4_only_kernel(simulated);
        let desired = desired.map(|desired| without_ipv6(&simulated, desired));
        for other in desired.iter().take(there_before) {
            simulated.add(other);
        }
        let unfiltered = |simulated: &Simulated| {
            let up = simulated.pod.links.iter().any(|link| link.name == "net3" && link.up);
            let listed = desired[2].destinations.allowed.is_some();
            let frames = !listed || simulated.pod.frame_filters.contains("net3");
            up && !(simulated.pod.tables.contains("net3") && frames)
        };
        let plan = simulated.record(&desired[2]);
        for step in &plan.steps {
            simulated.run(std::slice::from_ref(step));
            prop_assert!(!unfiltered(&simulated), "ADD stopped after {step:?}");
        }
        for step in &del::del(&simulated.pod, "net3", &plan.undo) {
            simulated.run(std::slice::from_ref(step));
            prop_assert!(!unfiltered(&simulated), "DEL stopped after {step:?}");
        }
    }
}
