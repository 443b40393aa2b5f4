//! A LoadBalancer: its counterpart, and the routing with its targets.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Act, Action, Desired, Plan, Reason, Status, add_finalizer, copied_labels, counterpart,
    is_applied_metadata, live, outdated, owned_by, regarding,
};
use crate::api::{IpFamily, LocalRef, apinet, source};
use crate::config::Config;
use crate::names::Kind;
use crate::origin::{Keys, Origin};
use crate::provider_id::InterfaceId;

/// A LoadBalancer and its neighbourhood.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The source object.
    pub source: source::LoadBalancer,
    /// The UID of its Network; None if there is no such Network.
    pub network: Option<String>,
    /// The allocated Prefixes that it controls (CIDR), by their names.
    pub prefixes: BTreeMap<String, String>,
    /// The source routing of the same name.
    pub routing: Option<source::LoadBalancerRouting>,
    /// The apinet LoadBalancer that has its UID as name.
    pub counterpart: Option<apinet::LoadBalancer>,
    /// The apinet routing of the same name.
    pub counterpart_routing: Option<apinet::LoadBalancerRouting>,
}

/// The next steps.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan::default();
    let Snapshot { source, counterpart: observed, .. } = snapshot;
    let regarding = regarding(config.flavor, Kind::LoadBalancer, &source.metadata);
    let metadata = observed.as_ref().map(|observed| &observed.metadata);
    let Some(origin) = live(config, Kind::LoadBalancer, &regarding, &source.metadata, metadata, &mut plan)
    else {
        return plan;
    };
    add_finalizer(config, Kind::LoadBalancer, &regarding, &source.metadata, &mut plan);
    let Some(network) = &snapshot.network else {
        plan.problem(regarding, Reason::NetworkNotFound(source.spec.network_ref.name.clone()));
        return plan;
    };
    let metadata = counterpart(config, Kind::LoadBalancer, &origin);
    let destinations = destinations(config, snapshot);
    let ips = match source.spec.kind.as_str() {
        "Public" => public_ips(&source.spec.ip_families),
        "Internal" => internal_ips(snapshot),
        other => {
            plan.problem(regarding, Reason::TypeUnknown(other.to_owned()));
            return plan;
        }
    };
    let (selector, template) = instances(config, &origin, observed.as_ref(), &destinations);
    let mut labels = copied_labels(config, &source.metadata);
    labels.extend(metadata.labels.clone().unwrap_or_default());
    let desired = apinet::LoadBalancer {
        metadata: ObjectMeta { labels: Some(labels), ..metadata.clone() },
        spec: apinet::LoadBalancerSpec {
            kind: source.spec.kind.clone(),
            network_ref: LocalRef { name: network.clone() },
            ips,
            ports: source.spec.ports.clone(),
            selector: Some(selector),
            template,
        },
    };
    if let Some(because) = outdated(observed.as_ref(), |observed| is_applied(config, &desired, observed)) {
        plan.step(Action::apply(&regarding, Desired::LoadBalancer(desired)), because);
    }
    let Some(observed) = observed else { return plan };
    let routing = apinet::LoadBalancerRouting {
        metadata: ObjectMeta {
            owner_references: owned_by(config.flavor, "LoadBalancer", &observed.metadata),
            ..metadata
        },
        destinations,
    };
    let is_applied = |one: &apinet::LoadBalancerRouting| {
        is_applied_metadata(config, &routing.metadata, &one.metadata)
            && routing.destinations == one.destinations
    };
    if let Some(because) = outdated(snapshot.counterpart_routing.as_ref(), is_applied) {
        plan.step(Action::apply(&regarding, Desired::LoadBalancerRouting(routing)), because);
    }
    let ips = observed.spec.ips.iter().filter_map(|one| one.ip.clone()).collect();
    let status = source::Ips { ips };
    if status != source.status {
        plan.step(Action::new(&regarding, Act::SetStatus(Status::Ips(status))), Reason::StatusOutdated);
    }
    plan
}

/// One address of each family, which the API server allocates.
fn public_ips(families: &[IpFamily]) -> Vec<apinet::LoadBalancerIp> {
    let one = |family: &IpFamily| apinet::LoadBalancerIp {
        name: family.lowercase().to_owned(),
        ip_family: *family,
        ip: None,
    };
    families.iter().map(one).collect()
}

/// The addresses of the source object, without those that wait for a Prefix.
fn internal_ips(snapshot: &Snapshot) -> Vec<apinet::LoadBalancerIp> {
    let source = &snapshot.source;
    let name = source.metadata.name.as_deref().unwrap_or_default();
    let known = source.spec.ips.iter().enumerate().filter_map(|(index, one)| {
        let allocated = || {
            let prefix =
                snapshot.prefixes.get(&format!("{name}-{index}")).filter(|_| one.ephemeral.is_some())?;
            Some(prefix.split_once('/').map_or(prefix.as_str(), |(address, _)| address).to_owned())
        };
        let ip = one.value.clone().or_else(allocated)?;
        let ip_family = IpFamily::of(&ip);
        Some(apinet::LoadBalancerIp { name: format!("ip-{index}"), ip_family, ip: Some(ip) })
    });
    known.collect()
}

/// The targets, each with the apinet interface that its provider ID names, if it names one.
fn destinations(config: &Config, snapshot: &Snapshot) -> Vec<apinet::Destination> {
    let given = snapshot.routing.iter().flat_map(|routing| &routing.destinations);
    given
        .map(|one| {
            let id = one.target_ref.as_ref().map(|target| target.provider_id.as_str());
            let id = id.and_then(|id| InterfaceId::parse(config.flavor, id).ok());
            let target_ref = id.map(|id| apinet::DestinationTarget {
                uid: id.uid,
                name: id.name,
                node_ref: LocalRef { name: id.node },
            });
            apinet::Destination { ip: one.ip.clone(), target_ref }
        })
        .collect()
}

/// Selector and template of the instances: at most one in each zone.
///
/// The selector is immutable. An observed one stays, because an older program may have selected by other labels.
fn instances(
    config: &Config,
    origin: &Origin,
    observed: Option<&apinet::LoadBalancer>,
    destinations: &[apinet::Destination],
) -> (apinet::MatchLabels, apinet::InstanceTemplate) {
    let written = Keys::of(config.flavor, Kind::LoadBalancer).write(origin, config.layout);
    let own = || apinet::MatchLabels { match_labels: written.labels.clone() };
    let selector = observed.and_then(|observed| observed.spec.selector.clone()).unwrap_or_else(own);
    let nodes: BTreeSet<&str> =
        destinations.iter().filter_map(|one| Some(one.target_ref.as_ref()?.node_ref.name.as_str())).collect();
    let terms = nodes.into_iter().map(|node| apinet::NodeSelectorTerm {
        match_fields: vec![apinet::Requirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: vec![node.to_owned()],
        }],
    });
    let required = apinet::NodeSelector { node_selector_terms: terms.collect() };
    let is_affine = config.node_affinity && !required.node_selector_terms.is_empty();
    let node_affinity = is_affine.then_some(apinet::Required { required });
    let term = apinet::AntiAffinityTerm {
        label_selector: Some(selector.clone()),
        topology_key: config.flavor.names().zone.to_owned(),
    };
    let affinity = apinet::Affinity {
        node_affinity,
        instance_anti_affinity: Some(apinet::Required { required: vec![term] }),
    };
    let template = apinet::InstanceTemplate {
        metadata: apinet::TemplateMetadata {
            labels: selector.match_labels.clone(),
            annotations: written.annotations.clone(),
        },
        spec: apinet::InstanceSpec { affinity: Some(affinity) },
    };
    (selector, template)
}

/// Whether the observed object has all desired values. An address that the API server has allocated is no difference.
fn is_applied(config: &Config, desired: &apinet::LoadBalancer, observed: &apinet::LoadBalancer) -> bool {
    let (desired_ips, observed_ips) = (&desired.spec.ips, &observed.spec.ips);
    let has_ips = desired_ips.len() == observed_ips.len()
        && desired_ips.iter().all(|desired| {
            observed_ips.iter().any(|observed| {
                desired.name == observed.name
                    && desired.ip_family == observed.ip_family
                    && (desired.ip.is_none() || desired.ip == observed.ip)
            })
        });
    let rest = apinet::LoadBalancerSpec { ips: observed_ips.clone(), ..desired.spec.clone() };
    is_applied_metadata(config, &desired.metadata, &observed.metadata) && has_ips && rest == observed.spec
}

#[cfg(test)]
mod tests;
