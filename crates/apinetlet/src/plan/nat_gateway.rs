//! A NATGateway: its counterpart, and the autoscaler that gives it public addresses.

use super::{Desired, Draft, Plan, Reason, Status, counterpart, is_applied_metadata, outdated, owned_by};
use crate::api::{LocalRef, apinet, source};
use crate::config::Config;
use crate::names::Kind;
use crate::origin::Origin;

/// A NATGateway and its neighbourhood.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The source object.
    pub source: source::NatGateway,
    /// The UID of its Network; None if there is no such Network.
    pub network: Option<String>,
    /// The apinet NATGateway that has its UID as name.
    pub counterpart: Option<apinet::NatGateway>,
    /// The autoscaler of the same name.
    pub autoscaler: Option<apinet::NatGatewayAutoscaler>,
}

/// The next steps.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot) -> Plan {
    let Snapshot { source, counterpart: observed, .. } = snapshot;
    let mut draft = Draft::new(config, Kind::NatGateway, &source.metadata);
    let metadata = observed.as_ref().map(|observed| &observed.metadata);
    let Some(origin) = draft.live(metadata) else { return draft.plan };
    draft.add_finalizer();
    let Some(network) = &snapshot.network else {
        draft.problem(Reason::NetworkNotFound(source.spec.network_ref.name.clone()));
        return draft.plan;
    };
    let Some(family) = source.spec.ip_family else {
        draft.problem(Reason::FamilyMissing);
        return draft.plan;
    };
    let desired = apinet::NatGateway {
        metadata: counterpart(config, Kind::NatGateway, &origin),
        spec: apinet::NatGatewaySpec {
            ip_family: Some(family),
            network_ref: LocalRef { name: network.clone() },
            ips: Vec::new(),
            ports_per_network_interface: source
                .spec
                .ports_per_network_interface
                .unwrap_or(source::NatGatewaySpec::DEFAULT_PORTS),
        },
        ..apinet::NatGateway::default()
    };
    let is_applied = |observed: &apinet::NatGateway| {
        // The autoscaler owns the addresses.
        let without_addresses = apinet::NatGatewaySpec { ips: Vec::new(), ..observed.spec.clone() };
        is_applied_metadata(config, &desired.metadata, &observed.metadata)
            && desired.spec == without_addresses
    };
    // First, because an apply that the API server refuses ends the steps.
    if let Some(observed) = observed {
        autoscaler_and_status(&mut draft, snapshot, origin, observed);
    }
    if let Some(because) = outdated(observed.as_ref(), is_applied) {
        draft.apply(Desired::NatGateway(desired), because);
    }
    draft.plan
}

/// The autoscaler and the status that belong to the observed counterpart.
fn autoscaler_and_status(
    draft: &mut Draft<'_>,
    snapshot: &Snapshot,
    origin: Origin,
    observed: &apinet::NatGateway,
) {
    let config = draft.config;
    let mut metadata = counterpart(config, Kind::NatGateway, &origin);
    metadata.owner_references = owned_by(config.flavor, "NATGateway", &observed.metadata);
    let autoscaler = apinet::NatGatewayAutoscaler {
        metadata,
        spec: apinet::NatGatewayAutoscalerSpec {
            nat_gateway_ref: LocalRef { name: origin.uid },
            min_public_ips: Some(config.min_public_ips),
            max_public_ips: Some(config.max_public_ips),
        },
    };
    let is_applied = |one: &apinet::NatGatewayAutoscaler| {
        is_applied_metadata(config, &autoscaler.metadata, &one.metadata) && autoscaler.spec == one.spec
    };
    if let Some(because) = outdated(snapshot.autoscaler.as_ref(), is_applied) {
        draft.apply(Desired::NatGatewayAutoscaler(autoscaler), because);
    }
    let ips: Vec<_> = observed.spec.ips.iter().filter_map(|one| one.ip.clone()).collect();
    // The API server refuses the write of the autoscaler if there is no free address, and nothing in the gateway shows the refusal.
    let has_fewer = |limit: i32| usize::try_from(limit).is_ok_and(|limit| ips.len() < limit);
    let has_waiting = observed.status.used < observed.status.requested;
    let is_short = has_fewer(config.min_public_ips) || has_waiting && has_fewer(config.max_public_ips);
    if is_short && snapshot.autoscaler.is_some() {
        draft.problem(Reason::AddressMissing(ips.len()));
    }
    let status = source::Ips { ips };
    if status != snapshot.source.status {
        draft.set_status(Status::Ips(status));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use serde_json::{Value, json};

    use super::*;
    use crate::plan::fixtures::{acts, config, problems, texts};
    use crate::plan::steps::Act;

    fn snapshot() -> Snapshot {
        let source = json!({
            "metadata": { "name": "nat", "namespace": "team", "uid": "u1", "finalizers": ["apinet.ironcore.dev/natgateway"] },
            "spec": { "type": "Public", "ipFamily": "IPv4", "networkRef": { "name": "net" } },
        });
        let source = serde_json::from_value(source).unwrap();
        Snapshot { source, network: Some("n1".into()), ..Snapshot::default() }
    }

    fn applied(plan: &Plan, number: usize) -> Value {
        serde_json::to_value(&plan.steps[number].action.act).unwrap()["apply"].clone()
    }

    #[test]
    fn gateway_then_autoscaler_then_nothing() {
        let mut snapshot = snapshot();
        let first = plan(&config(), &snapshot);
        assert_eq!(acts(&first), ["Apply"], "the autoscaler has the UID of the gateway");
        let spec =
            json!({ "ipFamily": "IPv4", "networkRef": { "name": "n1" }, "portsPerNetworkInterface": 2048 });
        assert_eq!(applied(&first, 0)["spec"], spec);

        let mut gateway: apinet::NatGateway = serde_json::from_value(applied(&first, 0)).unwrap();
        gateway.metadata.uid = Some("a1".into());
        snapshot.counterpart = Some(gateway);
        let second = plan(&config(), &snapshot);
        assert_eq!(acts(&second), ["Apply"]);
        let autoscaler = applied(&second, 0);
        assert_eq!(
            autoscaler["spec"],
            json!({ "natGatewayRef": { "name": "u1" }, "minPublicIPs": 1, "maxPublicIPs": 10 })
        );
        let owner = json!([{
            "apiVersion": "core.apinet.ironcore.dev/v1alpha1", "kind": "NATGateway", "name": "u1", "uid": "a1",
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(autoscaler["metadata"]["ownerReferences"], owner);

        snapshot.autoscaler = Some(serde_json::from_value(autoscaler).unwrap());
        assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
    }

    #[test]
    fn the_autoscaler_is_applied_before_a_change_of_the_gateway() {
        let mut snapshot = snapshot();
        let gateway = applied(&plan(&config(), &snapshot), 0);
        snapshot.counterpart = Some(serde_json::from_value(gateway).unwrap());
        snapshot.source.spec.ports_per_network_interface = Some(64);
        let texts = texts(&plan(&config(), &snapshot));
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(
            texts[0].contains("NATGatewayAutoscaler u1") && texts[1].contains("NATGateway u1"),
            "{texts:?}"
        );
    }

    #[test]
    fn addresses_of_the_autoscaler_are_reported_and_not_applied() {
        let mut snapshot = snapshot();
        let mut gateway: apinet::NatGateway =
            serde_json::from_value(applied(&plan(&config(), &snapshot), 0)).unwrap();
        gateway.spec.ips = vec![
            apinet::NatGatewayIp { name: "a".into(), ip: Some("10.0.0.1".into()) },
            apinet::NatGatewayIp { name: "b".into(), ip: None },
        ];
        snapshot.counterpart = Some(gateway);
        let plan = plan(&config(), &snapshot);
        assert_eq!(acts(&plan), ["Apply", "UpdateStatus"], "the autoscaler and the status");
        let Act::SetStatus(Status::Ips(status)) = &plan.steps[1].action.act else { unreachable!("{plan:?}") };
        assert_eq!(status.ips, ["10.0.0.1"]);
    }

    #[test]
    fn an_address_that_the_autoscaler_does_not_add_is_a_problem() {
        let mut snapshot = snapshot();
        let mut gateway: apinet::NatGateway =
            serde_json::from_value(applied(&plan(&config(), &snapshot), 0)).unwrap();
        gateway.metadata.uid = Some("a1".into());
        snapshot.counterpart = Some(gateway.clone());
        assert_eq!(problems(&plan(&config(), &snapshot)), [""; 0], "there is no autoscaler yet");
        snapshot.autoscaler = Some(serde_json::from_value(applied(&plan(&config(), &snapshot), 0)).unwrap());
        // Addresses, interfaces with ports and those that need some, with a limit of ten.
        for (has, used, requested, problem) in [
            (0, 0, 0, Some("AddressMissing")),
            (1, 0, 0, None),
            (1, 3, 3, None),
            (1, 3, 4, Some("AddressMissing")),
            (10, 3, 4, None),
        ] {
            let ip = |number| apinet::NatGatewayIp { name: format!("{number}"), ip: Some("10.0.0.1".into()) };
            gateway.spec.ips = (0..has).map(ip).collect();
            // As the API server serves it.
            gateway.status =
                serde_json::from_value(json!({ "usedNATIPs": used, "requestedNATIPs": requested })).unwrap();
            snapshot.counterpart = Some(gateway.clone());
            let problem: Vec<_> = problem.into_iter().collect();
            assert_eq!(problems(&plan(&config(), &snapshot)), problem, "{has} {used} {requested}");
        }
    }

    #[test]
    fn a_missing_network_is_a_problem_that_keeps_the_finalizer() {
        let mut snapshot = Snapshot { network: None, ..snapshot() };
        snapshot.source.metadata.finalizers = None;
        let plan = plan(&config(), &snapshot);
        assert_eq!((acts(&plan), problems(&plan)), (vec!["AddFinalizer"], vec!["NetworkNotFound"]));
    }
}
