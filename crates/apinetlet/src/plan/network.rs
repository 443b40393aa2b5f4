//! A Network: its counterpart, the provider ID with the allocated ID, and its peerings.

use std::collections::{BTreeMap, HashMap};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Act, Desired, Draft, Plan, Reason, Status, counterpart, is_applied_metadata, outdated};
use crate::api::{apinet, source};
use crate::config::Config;
use crate::names::{Flavor, Kind};
use crate::origin::Origin;
use crate::provider_id::NetworkId;

/// A Network and its neighbourhood.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The source object.
    pub source: source::Network,
    /// The apinet Network that has its UID as name.
    pub counterpart: Option<apinet::Network>,
    /// The networks that `incomingPeerings` refers to, by their UIDs.
    pub peers: BTreeMap<String, Peer>,
    /// The allocated Prefixes of the namespace (CIDR), by their names: those that `peerings` refers to.
    pub prefixes: BTreeMap<String, String>,
}

/// Another network.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The source object.
    pub source: source::Network,
    /// The ID of the apinet Network; empty until it is allocated.
    pub id: String,
}

/// The next steps.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot) -> Plan {
    let Snapshot { source, counterpart: observed, .. } = snapshot;
    let mut draft = Draft::new(config, Kind::Network, &source.metadata);
    let metadata = observed.as_ref().map(|observed| &observed.metadata);
    let Some(origin) = draft.live(metadata) else { return draft.plan };
    // The first time it is added with the provider ID, in one write: before, nothing can use the apinet Network, and without its source
    // object it is garbage.
    if !source.spec.provider_id.is_empty() {
        draft.add_finalizer();
    }
    // The Go program owns the ID, by the same field manager: an apply without it would remove it, which the API server refuses.
    let id = match observed {
        Some(observed) => observed.spec.id.clone(),
        None => id_before(config, &origin, &source.spec.provider_id),
    };
    let desired = apinet::Network {
        metadata: counterpart(config, Kind::Network, &origin),
        spec: apinet::NetworkSpec { id, peerings: peerings(config, snapshot) },
        ..apinet::Network::default()
    };
    let is_applied = |observed: &apinet::Network| {
        is_applied_metadata(config, &desired.metadata, &observed.metadata)
            && desired.spec.peerings == observed.spec.peerings
    };
    if let Some(because) = outdated(observed.as_ref(), is_applied) {
        draft.apply(Desired::Network(desired), because);
    }
    let Some(observed) = observed else { return draft.plan };
    // A provider ID without the ID would stay, because it is immutable.
    let uid = observed.metadata.uid.as_ref().filter(|_| !observed.spec.id.is_empty());
    let Some(uid) = uid else { return draft.plan };
    if source.spec.provider_id.is_empty() {
        let id = NetworkId {
            namespace: config.namespace.clone(),
            name: origin.uid,
            id: observed.spec.id.clone(),
            uid: uid.clone(),
        };
        let finalizer = draft.missing_finalizer();
        let act = Act::SetProviderId { id: id.display(config.flavor).to_string(), finalizer };
        draft.step(act, Reason::NetworkAllocated);
    }
    let peerings =
        if config.peering_status { peering_status(snapshot) } else { source.status.peerings.clone() };
    let status = source::NetworkStatus { state: "Available".to_owned(), peerings };
    if status != source.status {
        draft.set_status(Status::Network(status));
    }
    draft.plan
}

/// The ID of a counterpart that another program has deleted; empty if there was none. The provider ID is immutable, and the machines
/// have the ID from it: another one would split the network.
fn id_before(config: &Config, origin: &Origin, provider_id: &str) -> String {
    let id = NetworkId::parse(config.flavor, provider_id).ok();
    let own = id.filter(|id| id.namespace == config.namespace && id.name == origin.uid);
    own.map(|id| id.id).unwrap_or_default()
}

/// The peerings that both networks desire, if the other network has its ID.
fn peerings(config: &Config, snapshot: &Snapshot) -> Vec<apinet::Peering> {
    if config.flavor == Flavor::Onmetal {
        return Vec::new();
    }
    let Snapshot { source, peers, .. } = snapshot;
    // Of two peerings with one network the first. A network can have thousands.
    let mut own = HashMap::new();
    for peering in &source.spec.peerings {
        own.entry(source.peer(peering)).or_insert(peering);
    }
    let desired = source.spec.incoming_peerings.iter().filter_map(|incoming| {
        let Peer { source: other, id } = peers.get(&incoming.uid).filter(|peer| !peer.id.is_empty())?;
        // The user of one network can write all of its spec, so that its list does not prove that the other network names it.
        peering_with(other, &source.metadata)?;
        let ObjectMeta { namespace, name, .. } = &other.metadata;
        let peering = own.get(&(namespace.as_deref()?, name.as_deref()?))?;
        let prefixes: Vec<_> = peering.prefixes.iter().filter_map(|one| prefix(snapshot, one)).collect();
        // No prefixes would mean the whole network.
        if prefixes.is_empty() && !peering.prefixes.is_empty() {
            return None;
        }
        Some(apinet::Peering { name: peering.name.clone(), id: id.clone(), prefixes })
    });
    desired.collect()
}

/// The peering of a network that names another one.
fn peering_with<'a>(network: &'a source::Network, other: &ObjectMeta) -> Option<&'a source::Peering> {
    network.spec.peerings.iter().find(|peering| {
        let (namespace, name) = network.peer(peering);
        other.namespace.as_deref() == Some(namespace) && other.name.as_deref() == Some(name)
    })
}

fn prefix(snapshot: &Snapshot, one: &source::PeeringPrefix) -> Option<apinet::PeeringPrefix> {
    let allocated = snapshot.prefixes.get(&one.prefix_ref.name);
    let prefix = Some(one.prefix.as_ref().or(allocated)?.clone());
    Some(apinet::PeeringPrefix { name: one.name.clone(), prefix })
}

/// The status of each peering that a partition reports. Where partitions differ, the worst state counts.
fn peering_status(snapshot: &Snapshot) -> Vec<source::PeeringStatus> {
    let Some(observed) = &snapshot.counterpart else { return Vec::new() };
    let badness = |state: &str| match state {
        "Ready" => 0,
        "Error" => 2,
        _ => 1,
    };
    let mut worst_of = HashMap::<String, &str>::new();
    for one in observed.status.peerings.values().flatten() {
        let worst = worst_of.entry(one.id.to_string()).or_insert(one.state.as_str());
        if badness(&one.state) >= badness(worst) {
            *worst = one.state.as_str();
        }
    }
    let reported = observed.spec.peerings.iter().filter_map(|peering| {
        let worst = *worst_of.get(&peering.id)?;
        let prefixes = if worst == "Ready" { peering.prefixes.as_slice() } else { &[] };
        let prefixes = prefixes
            .iter()
            .map(|one| source::PeeringPrefixStatus { name: one.name.clone(), prefix: one.prefix.clone() });
        Some(source::PeeringStatus {
            name: peering.name.clone(),
            state: worst.to_owned(),
            prefixes: prefixes.collect(),
        })
    });
    reported.collect()
}

#[cfg(test)]
mod tests;
