//! From whatever an earlier version or another layout has left, the steps lead to a state without steps. The API server is simulated:
//! it allocates addresses, keeps those of the same name, and refuses changes of immutable fields.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::steps::Act;
use super::*;
use crate::api::{IpFamily, apinet, source};
use crate::origin::Layout;

/// More than any plan needs: the counterpart, what it owns, the status.
const ROUNDS: usize = 5;

fn config(layout: Layout) -> Config {
    Config { layout, ..Config::new(Flavor::Ironcore, "apinet") }
}

/// Executes plans until there are no steps.
fn converge<S: std::fmt::Debug>(state: &mut S, plan: impl Fn(&S) -> Plan, execute: impl Fn(&mut S, Act)) {
    for _ in 0..ROUNDS {
        let steps = plan(state).steps;
        if steps.is_empty() {
            return;
        }
        steps.into_iter().for_each(|step| execute(state, step.action.act));
    }
    unreachable!("it does not converge: {state:#?}");
}

fn load_balancer(state: &mut load_balancer::Snapshot, act: Act) {
    match act {
        Act::AddFinalizer(name) => state.source.metadata.finalizers = Some(vec![name]),
        Act::SetStatus(Status::Ips(status)) => state.source.status = status,
        Act::Apply(desired) => match *desired {
            Desired::LoadBalancer(mut object) => {
                let before = state.counterpart.take();
                if let Some(before) = &before {
                    assert_eq!(before.spec.selector, object.spec.selector, "immutable");
                }
                let labels = &object.spec.template.metadata.labels;
                assert_eq!(object.spec.selector.as_ref().map(|one| &one.match_labels), Some(labels));
                for (number, ip) in object.spec.ips.iter_mut().enumerate() {
                    let kept =
                        before.iter().flat_map(|before| &before.spec.ips).find(|one| one.name == ip.name);
                    let new = || format!("203.0.113.{number}");
                    ip.ip.get_or_insert_with(|| kept.and_then(|one| one.ip.clone()).unwrap_or_else(new));
                }
                object.metadata.uid = Some("a1".into());
                state.counterpart = Some(object);
            }
            Desired::LoadBalancerRouting(object) => state.counterpart_routing = Some(object.into()),
            other => unreachable!("{other:?}"),
        },
        other => unreachable!("{other:?}"),
    }
}

fn nat_gateway(state: &mut nat_gateway::Snapshot, act: Act) {
    match act {
        Act::AddFinalizer(name) => state.source.metadata.finalizers = Some(vec![name]),
        Act::SetStatus(Status::Ips(status)) => state.source.status = status,
        Act::Apply(desired) => match *desired {
            Desired::NatGateway(mut object) => {
                object.metadata.uid = Some("a1".into());
                object.spec.ips = state.counterpart.take().map(|one| one.spec.ips).unwrap_or_default();
                state.counterpart = Some(object);
            }
            Desired::NatGatewayAutoscaler(object) => {
                let ip = apinet::NatGatewayIp { name: "x".into(), ip: Some("203.0.113.9".into()) };
                state.counterpart.as_mut().unwrap().spec.ips = vec![ip];
                state.autoscaler = Some(object);
            }
            other => unreachable!("{other:?}"),
        },
        other => unreachable!("{other:?}"),
    }
}

fn metadata() -> ObjectMeta {
    ObjectMeta {
        name: Some("one".into()),
        namespace: Some("team".into()),
        uid: Some("u1".into()),
        ..ObjectMeta::default()
    }
}

fn layouts() -> impl Strategy<Value = Layout> {
    prop_oneof![Just(Layout::Labels), Just(Layout::Annotated)]
}

fn load_balancers() -> impl Strategy<Value = (source::LoadBalancerSpec, source::LoadBalancerRouting)> {
    let families = prop_oneof![
        Just(vec![IpFamily::IPv4]),
        Just(vec![IpFamily::IPv6]),
        Just(vec![IpFamily::IPv4, IpFamily::IPv6])
    ];
    let targets = proptest::collection::vec((0_u8..4, any::<bool>()), 0..4);
    (families, proptest::collection::vec(1_i32..9, 0..3), targets).prop_map(
        |(ip_families, ports, targets)| {
            let ports =
                ports.into_iter().map(|port| crate::api::Port { protocol: None, port, end_port: None });
            let destination = |(number, named): (u8, bool)| {
                let id = if named { format!("apinet/i{number}/node-{number}/u{number}") } else { "?".into() };
                json!({ "ip": format!("10.0.0.{number}"), "targetRef": { "providerID": id } })
            };
            let destinations: Vec<_> = targets.into_iter().map(destination).collect();
            let routing = json!({ "metadata": {}, "destinations": destinations });
            let spec = source::LoadBalancerSpec {
                kind: "Public".into(),
                ip_families,
                ports: ports.collect(),
                ..Default::default()
            };
            (spec, serde_json::from_value(routing).unwrap())
        },
    )
}

proptest! {
    #[test]
    fn load_balancers_converge(
        versions in proptest::collection::vec((load_balancers(), layouts(), any::<bool>()), 1..4),
    ) {
        let mut state = load_balancer::Snapshot { network: Some("n1".into()), ..Default::default() };
        state.source.metadata = metadata();
        for ((spec, routing), layout, node_affinity) in versions {
            (state.source.spec, state.routing) = (spec, Some(routing.into()));
            let config = Config { node_affinity, ..config(layout) };
            converge(&mut state, |state| load_balancer::plan(&config, state), load_balancer);
            let addresses = state.counterpart.as_ref().unwrap().spec.ips.len();
            prop_assert_eq!(state.source.status.ips.len(), addresses);
            prop_assert_eq!(addresses, state.source.spec.ip_families.len());
        }
    }

    #[test]
    fn nat_gateways_converge(
        versions in proptest::collection::vec((proptest::option::of(1_i32..4096), layouts(), 1_i32..3), 1..4),
    ) {
        let mut state = nat_gateway::Snapshot { network: Some("n1".into()), ..Default::default() };
        state.source.metadata = metadata();
        state.source.spec.ip_family = Some(IpFamily::IPv4);
        for (ports, layout, min_public_ips) in versions {
            state.source.spec.ports_per_network_interface = ports;
            let config = Config { min_public_ips, ..config(layout) };
            converge(&mut state, |state| nat_gateway::plan(&config, state), nat_gateway);
            prop_assert_eq!(&state.source.status.ips, &["203.0.113.9"]);
            prop_assert_eq!(state.autoscaler.as_ref().unwrap().spec.min_public_ips, Some(min_public_ips));
        }
    }
}
