//! A LoadBalancer: its counterpart, and the routing with its targets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{
    Desired, Draft, Plan, Reason, Status, copied_labels, counterpart, is_applied_metadata, outdated, owned_by,
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
    /// The source routing of the same name. It can have thousands of targets, so it is not copied for each plan.
    pub routing: Option<Arc<source::LoadBalancerRouting>>,
    /// The apinet LoadBalancer that has its UID as name.
    pub counterpart: Option<apinet::LoadBalancer>,
    /// The apinet routing of the same name.
    pub counterpart_routing: Option<Arc<apinet::LoadBalancerRouting>>,
}

impl Snapshot {
    /// The targets, each with the apinet interface that its provider ID names, if it names one.
    fn targets(&self, config: &Config) -> impl Iterator<Item = Target<'_>> {
        let flavor = config.flavor;
        self.routing.iter().flat_map(|routing| &routing.destinations).map(move |one| {
            let id = one.target_ref.as_ref().map(|target| target.provider_id.as_str());
            Target { ip: &one.ip, interface: id.and_then(|id| InterfaceId::parse(flavor, id).ok()) }
        })
    }
}

/// A target of the source object.
struct Target<'a> {
    ip: &'a str,
    interface: Option<InterfaceId<&'a str>>,
}

impl Target<'_> {
    fn destination(&self) -> apinet::Destination {
        let target_ref = self.interface.map(|id| apinet::DestinationTarget {
            uid: id.uid.to_owned(),
            name: id.name.to_owned(),
            node_ref: LocalRef { name: id.node.to_owned() },
        });
        apinet::Destination { ip: self.ip.to_owned(), target_ref }
    }

    fn is(&self, observed: &apinet::Destination) -> bool {
        let target = observed.target_ref.as_ref();
        let target = target.map(|one| (one.uid.as_str(), one.name.as_str(), one.node_ref.name.as_str()));
        self.ip == observed.ip && self.interface.map(|id| (id.uid, id.name, id.node)) == target
    }
}

/// The next steps.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot) -> Plan {
    let Snapshot { source, counterpart: observed, .. } = snapshot;
    let mut draft = Draft::new(config, Kind::LoadBalancer, &source.metadata);
    let metadata = observed.as_ref().map(|observed| &observed.metadata);
    let Some(origin) = draft.live(metadata) else { return draft.plan };
    draft.add_finalizer();
    let Some(network) = &snapshot.network else {
        draft.problem(Reason::NetworkNotFound(source.spec.network_ref.name.clone()));
        return draft.plan;
    };
    let metadata = counterpart(config, Kind::LoadBalancer, &origin);
    let ips = match source.spec.kind.as_str() {
        "Public" => public_ips(&source.spec.ip_families),
        "Internal" => internal_ips(snapshot),
        other => {
            draft.problem(Reason::TypeUnknown(other.to_owned()));
            return draft.plan;
        }
    };
    let (selector, template) = instances(config, &origin, snapshot);
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
    // First, because targets change all the time, and an apply that the API server refuses ends the steps.
    if let Some(observed) = observed {
        routing_and_status(&mut draft, snapshot, metadata, observed);
    }
    if let Some(because) = outdated(observed.as_ref(), |observed| is_applied(config, &desired, observed)) {
        draft.apply(Desired::LoadBalancer(desired), because);
    }
    draft.plan
}

/// The routing and the status that belong to the observed counterpart. `metadata`: that of both apinet objects.
fn routing_and_status(
    draft: &mut Draft<'_>,
    snapshot: &Snapshot,
    metadata: ObjectMeta,
    observed: &apinet::LoadBalancer,
) {
    let config = draft.config;
    let owner_references = owned_by(config.flavor, "LoadBalancer", &observed.metadata);
    let metadata = ObjectMeta { owner_references, ..metadata };
    let is_applied = |one: &apinet::LoadBalancerRouting| {
        let mut observed = one.destinations.iter();
        is_applied_metadata(config, &metadata, &one.metadata)
            && snapshot.targets(config).all(|one| observed.next().is_some_and(|observed| one.is(observed)))
            && observed.next().is_none()
    };
    if let Some(because) = outdated(snapshot.counterpart_routing.as_deref(), is_applied) {
        let destinations = snapshot.targets(config).map(|one| one.destination()).collect();
        let routing = apinet::LoadBalancerRouting { metadata, destinations };
        draft.apply(Desired::LoadBalancerRouting(routing), because);
    }
    let ips = observed.spec.ips.iter().filter_map(|one| one.ip.clone()).collect();
    let status = source::Ips { ips };
    if status != snapshot.source.status {
        draft.set_status(Status::Ips(status));
    }
}

/// One address of each family, which the API server allocates.
fn public_ips(families: &[IpFamily]) -> Vec<apinet::NamedIp> {
    let one = |family: &IpFamily| apinet::NamedIp {
        name: family.lowercase().to_owned(),
        ip_family: *family,
        ip: None,
    };
    families.iter().map(one).collect()
}

/// The addresses of the source object, without those that wait for a Prefix.
fn internal_ips(snapshot: &Snapshot) -> Vec<apinet::NamedIp> {
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
        Some(apinet::NamedIp { name: format!("ip-{index}"), ip_family, ip: Some(ip) })
    });
    known.collect()
}

/// Selector and template of the instances: at most one in each zone.
///
/// The selector is immutable. An observed one stays, because an older program may have selected by other labels.
fn instances(
    config: &Config,
    origin: &Origin,
    snapshot: &Snapshot,
) -> (apinet::MatchLabels, apinet::InstanceTemplate) {
    let written = Keys::of(config.flavor, Kind::LoadBalancer).write(origin, config.layout);
    let own = || apinet::MatchLabels { match_labels: written.labels.clone() };
    let observed = snapshot.counterpart.as_ref();
    let selector = observed.and_then(|observed| observed.spec.selector.clone()).unwrap_or_else(own);
    let targets = config.node_affinity.then(|| snapshot.targets(config));
    let nodes: BTreeSet<&str> =
        targets.into_iter().flatten().filter_map(|one| Some(one.interface?.node)).collect();
    let terms = nodes.into_iter().map(|node| NodeSelectorTerm {
        match_fields: Some(vec![NodeSelectorRequirement {
            key: "metadata.name".to_owned(),
            operator: "In".to_owned(),
            values: Some(vec![node.to_owned()]),
        }]),
        match_expressions: None,
    });
    let required = NodeSelector { node_selector_terms: terms.collect() };
    let is_affine = !required.node_selector_terms.is_empty();
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
