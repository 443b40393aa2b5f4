//! A NetworkInterface: the apinet NetworkInterface that its provider ID names, and the VirtualIP that it references.
//!
//! The MachinePool creates the apinet object and writes the provider ID. This program claims the object by metadata that names the
//! source object. It never takes a claim of another source object away.

use std::collections::{BTreeMap, BTreeSet};

use common::plan::Step;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::{Action, Draft, Plan, Reason, Status, copied_labels, is_managed, mark};
use crate::api::{IpFamily, apinet, source};
use crate::config::Config;
use crate::names::Kind;
use crate::origin::{Keys, Origin, Written};
use crate::plan::steps::{Act, Configuration, MetadataPatch, ObservedRef};
use crate::provider_id::InterfaceId;

const KIND: Kind = Kind::NetworkInterface;

/// A NetworkInterface and its neighbourhood.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The source object.
    pub source: source::NetworkInterface,
    /// The apinet object with the UID of the provider ID, and all that name the source object.
    pub interfaces: Vec<apinet::NetworkInterface>,
    /// The VirtualIP that the source object references, and all that the source object has claimed.
    pub virtual_ips: Vec<source::VirtualIp>,
    /// The apinet IPs with the addresses in the status of these.
    pub ips: Vec<apinet::Ip>,
    /// The allocated Prefixes that it controls (CIDR), by their names.
    pub prefixes: BTreeMap<String, String>,
}

/// The holder of a claim.
enum Claim {
    Free,
    Own,
    /// Another source object, as `namespace/name`, or the name alone.
    Other(String),
}

/// The next steps.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot, now: Timestamp) -> Plan {
    let Snapshot { source, .. } = snapshot;
    let mut draft = Draft::new(config, KIND, &source.metadata);
    let Some(origin) = Origin::of(&source.metadata).filter(|_| is_managed(config, &source.metadata)) else {
        return draft.plan;
    };
    if source.metadata.deletion_timestamp.is_some() {
        if draft.missing_finalizer().is_none() {
            release_all(&mut draft, snapshot, &origin);
            let finalizer = config.flavor.finalizer(KIND);
            draft.step(Act::RemoveFinalizer { finalizer, gone: None }, Reason::SourceDeleted);
        }
        return draft.plan;
    }
    draft.add_finalizer();
    let addresses = claim_virtual_ip(&mut draft, snapshot, &origin);
    let interface = interface(&mut draft, snapshot, &origin, &addresses);
    // After the interface that has the address of the VirtualIP: it is free for others then.
    release_virtual_ips(&mut draft, snapshot, &origin);
    let is_changing = |step: &Step<Action>| matches!(step.action.act, Act::Claim(..) | Act::Configure(..));
    // The response to the write of the interface decides the status.
    if config.interface_status
        && !draft.plan.steps.iter().any(is_changing)
        && let Some(status) = status(&source.status, interface, now)
    {
        draft.set_status(Status::NetworkInterface(status));
    }
    draft.plan
}

fn release_all(draft: &mut Draft<'_>, snapshot: &Snapshot, origin: &Origin) {
    let config = draft.config;
    for interface in &snapshot.interfaces {
        if let Claim::Own = claim_of(config, interface, origin) {
            draft.step(release(config, &interface.metadata), Reason::SourceDeleted);
        }
    }
    for virtual_ip in &snapshot.virtual_ips {
        if let Claim::Own = claim_of_virtual_ip(virtual_ip, origin) {
            draft.step(Act::ReleaseVirtualIp(reference(&virtual_ip.metadata)), Reason::SourceDeleted);
        }
    }
}

fn claim_of(config: &Config, interface: &apinet::NetworkInterface, origin: &Origin) -> Claim {
    match Keys::of(config.flavor, Kind::NetworkInterface).read(&interface.metadata) {
        None => Claim::Free,
        Some(one) if one.uid == origin.uid => Claim::Own,
        Some(other) => Claim::Other(format!("NetworkInterface {}/{}", other.namespace, other.name)),
    }
}

fn claim_of_virtual_ip(virtual_ip: &source::VirtualIp, origin: &Origin) -> Claim {
    match &virtual_ip.spec.target_ref {
        None => Claim::Free,
        Some(target) if target.uid == origin.uid => Claim::Own,
        Some(target) => Claim::Other(target.name.clone()),
    }
}

/// Claims the referenced VirtualIP. Returns its address, if it has one.
fn claim_virtual_ip(draft: &mut Draft<'_>, snapshot: &Snapshot, origin: &Origin) -> Vec<String> {
    let Some(name) = snapshot.source.virtual_ip() else { return Vec::new() };
    let is_referenced = |one: &&source::VirtualIp| one.metadata.name.as_deref() == Some(name);
    let Some(virtual_ip) = snapshot.virtual_ips.iter().find(is_referenced) else { return Vec::new() };
    match claim_of_virtual_ip(virtual_ip, origin) {
        // Its IP is deleted next.
        Claim::Own | Claim::Free if virtual_ip.metadata.deletion_timestamp.is_some() => return Vec::new(),
        Claim::Own => {}
        Claim::Free => {
            draft.step(Act::ClaimVirtualIp(reference(&virtual_ip.metadata)), Reason::Referenced);
        }
        Claim::Other(other) => {
            draft.problem(Reason::VirtualIpTaken(name.to_owned(), other));
            return Vec::new();
        }
    }
    let Some(address) = &virtual_ip.status.ip else { return Vec::new() };
    if is_of_other(draft.config, snapshot, virtual_ip, address) {
        draft.problem(Reason::AddressTaken(name.to_owned(), address.clone()));
        return Vec::new();
    }
    vec![address.clone()]
}

/// Whether the address is that of another VirtualIP. Every account that may write a VirtualIP may write its status too, and an apinet
/// NetworkInterface gets each address that no other one has.
fn is_of_other(config: &Config, snapshot: &Snapshot, virtual_ip: &source::VirtualIp, address: &str) -> bool {
    let keys = Keys::of(config.flavor, Kind::VirtualIp);
    let ips = snapshot.ips.iter().filter(|ip| ip.spec.ip.as_deref() == Some(address));
    let mut origins = ips.filter_map(|ip| keys.read(&ip.metadata));
    origins.any(|origin| Some(&origin.uid) != virtual_ip.metadata.uid.as_ref())
}

/// Releases the VirtualIPs that the source object has claimed and does not reference any more, and those that are being deleted.
fn release_virtual_ips(draft: &mut Draft<'_>, snapshot: &Snapshot, origin: &Origin) {
    let referenced = snapshot.source.virtual_ip();
    for virtual_ip in &snapshot.virtual_ips {
        let because = if virtual_ip.metadata.name.as_deref() != referenced {
            Reason::NotReferenced
        } else if virtual_ip.metadata.deletion_timestamp.is_some() {
            Reason::VirtualIpDeleted
        } else {
            continue;
        };
        if let Claim::Own = claim_of_virtual_ip(virtual_ip, origin) {
            draft.step(Act::ReleaseVirtualIp(reference(&virtual_ip.metadata)), because);
        }
    }
}

/// Claims, configures and releases apinet objects. Returns the claimed one, as it is now.
fn interface<'a>(
    draft: &mut Draft<'_>,
    snapshot: &'a Snapshot,
    origin: &Origin,
    addresses: &[String],
) -> Option<&'a apinet::NetworkInterface> {
    let config = draft.config;
    let provider_id = &snapshot.source.spec.provider_id;
    let uid = match InterfaceId::parse(config.flavor, provider_id) {
        Ok(id) => Some(id.uid),
        Err(_) if provider_id.is_empty() => None,
        Err(error) => {
            draft.problem(Reason::ProviderIdInvalid(error.to_string()));
            None
        }
    };
    let is_named = |metadata: &ObjectMeta| uid.is_some() && metadata.uid.as_deref() == uid;
    // First of all, because two interfaces cannot have one public address.
    for interface in snapshot.interfaces.iter().filter(|one| !is_named(&one.metadata)) {
        if let Claim::Own = claim_of(config, interface, origin) {
            draft.step(release(config, &interface.metadata), Reason::NotReferenced);
        }
    }
    let interface = snapshot.interfaces.iter().find(|one| is_named(&one.metadata))?;
    let metadata = &interface.metadata;
    let desired = configuration(snapshot, interface, addresses);
    match claim_of(config, interface, origin) {
        Claim::Own => {
            let changes = metadata_patch(config, &snapshot.source.metadata, origin, metadata);
            if desired != current(interface) || !changes.is_empty() {
                let act = Act::Configure(reference(metadata), changes, desired);
                draft.step(act, Reason::ConfigurationOutdated);
            }
            Some(interface)
        }
        Claim::Free if metadata.deletion_timestamp.is_some() => None,
        Claim::Free => {
            let changes = metadata_patch(config, &snapshot.source.metadata, origin, metadata);
            draft.step(Act::Claim(reference(metadata), changes, desired), Reason::Referenced);
            Some(interface)
        }
        Claim::Other(other) => {
            let name = metadata.name.clone().unwrap_or_default();
            draft.problem(Reason::InterfaceTaken(name, other));
            None
        }
    }
}

/// The labels and annotations with which the object names the source object, and the labels that it gets from it. A label that
/// another program has set to another value stays. The Go program has copied labels without a record of them: theirs are replaced.
fn metadata_patch(
    config: &Config,
    source: &ObjectMeta,
    origin: &Origin,
    observed: &ObjectMeta,
) -> MetadataPatch {
    let keys = Keys::of(config.flavor, KIND);
    let Written { mut labels, mut annotations } = keys.write(origin, config.layout);
    labels.extend(mark(config));
    let copied_before = copied(config, observed);
    let value = |key: &String| observed.labels.as_ref().and_then(|labels| labels.get(key));
    let mut copied = copied_labels(config, source);
    if !is_of_go_program(config, origin, observed) {
        copied.retain(|key, new| copied_before.contains(key) || value(key).is_none_or(|value| value == new));
    }
    if !copied.is_empty() {
        let keys: Vec<&str> = copied.keys().map(String::as_str).collect();
        annotations.insert(config.flavor.copied_labels_annotation(), keys.join(","));
    }
    labels.extend(copied);
    let ours = [keys.name, config.flavor.copied_labels_annotation()];
    MetadataPatch {
        labels: changes(labels, observed.labels.as_ref(), copied_before.iter().chain(ours.first())),
        annotations: changes(annotations, observed.annotations.as_ref(), ours.iter()),
    }
}

/// Whether the Go program has claimed the object for the source object, and this program has not written it yet.
fn is_of_go_program(config: &Config, origin: &Origin, observed: &ObjectMeta) -> bool {
    let named = Keys::of(config.flavor, KIND).read(observed);
    let has_label = |key: &String| observed.labels.as_ref().is_some_and(|labels| labels.contains_key(key));
    named.is_some_and(|named| named.uid == origin.uid)
        && mark(config).is_some_and(|(key, _)| !has_label(&key))
        && copied(config, observed).is_empty()
}

/// The keys of the labels that the object has from its source object.
fn copied(config: &Config, observed: &ObjectMeta) -> BTreeSet<String> {
    let annotations = observed.annotations.as_ref();
    let text = annotations.and_then(|all| all.get(&config.flavor.copied_labels_annotation()));
    text.into_iter().flat_map(|text| text.split(',')).map(str::to_owned).collect()
}

/// The differences to the observed map. Those of `ours` that are not desired are removed.
fn changes<'a>(
    desired: BTreeMap<String, String>,
    observed: Option<&BTreeMap<String, String>>,
    ours: impl Iterator<Item = &'a String>,
) -> BTreeMap<String, Option<String>> {
    let none = BTreeMap::new();
    let observed = observed.unwrap_or(&none);
    let removed = ours.filter(|key| observed.contains_key(*key) && !desired.contains_key(*key));
    let removed: Vec<_> = removed.map(|key| (key.clone(), None)).collect();
    let written = desired.into_iter().filter(|(key, value)| observed.get(key) != Some(value));
    written.map(|(key, value)| (key, Some(value))).chain(removed).collect()
}

/// Removes all that a claim has written.
pub fn release(config: &Config, observed: &ObjectMeta) -> Act {
    let keys = Keys::of(config.flavor, KIND);
    let label = config.flavor.source_cluster_label();
    let copied = copied(config, observed);
    let ours = [&keys.uid, &keys.namespace, &keys.name, &label].into_iter().chain(&copied);
    let annotations = [&keys.name, &config.flavor.copied_labels_annotation()];
    let changes = MetadataPatch {
        labels: changes(BTreeMap::new(), observed.labels.as_ref(), ours),
        annotations: changes(BTreeMap::new(), observed.annotations.as_ref(), annotations.into_iter()),
    };
    Act::Release(reference(observed), changes)
}

fn current(interface: &apinet::NetworkInterface) -> Configuration {
    let apinet::NetworkInterfaceSpec { public_ips, prefixes, nat_gateways, .. } = interface.spec.clone();
    Configuration { public_ips, prefixes, nat_gateways }
}

fn configuration(
    snapshot: &Snapshot,
    interface: &apinet::NetworkInterface,
    addresses: &[String],
) -> Configuration {
    let public_ip =
        |ip: &String| apinet::NamedIp { name: ip.clone(), ip_family: IpFamily::of(ip), ip: Some(ip.clone()) };
    let public_ips: Vec<_> = addresses.iter().map(public_ip).collect();
    let has_public = |family: IpFamily| public_ips.iter().any(|public| public.ip_family == family);
    let nat_gateways = &interface.spec.nat_gateways;
    let nat_gateways =
        nat_gateways.iter().filter(|gateway| !has_public(gateway.ip_family)).cloned().collect();
    let name = snapshot.source.metadata.name.as_deref().unwrap_or_default();
    let prefixes = snapshot.source.spec.prefixes.iter().enumerate().filter_map(|(index, one)| {
        let allocated =
            || snapshot.prefixes.get(&format!("{name}-pf-{index}")).filter(|_| one.ephemeral.is_some());
        one.value.as_ref().or_else(allocated).cloned()
    });
    Configuration { prefixes: prefixes.collect(), nat_gateways, public_ips }
}

/// The status to write; None if it is already there. `lastStateTransitionTime` changes with the state only.
fn status(
    observed: &source::NetworkInterfaceStatus,
    interface: Option<&apinet::NetworkInterface>,
    now: Timestamp,
) -> Option<source::NetworkInterfaceStatus> {
    let mut status = source::NetworkInterfaceStatus { state: "Pending".to_owned(), ..Default::default() };
    if let Some(interface) = interface {
        let state = match interface.status.state.as_str() {
            "Ready" => "Available",
            "Error" => "Error",
            _ => "Pending",
        };
        let public = &interface.status.public_ips;
        let is_v4 = |ip: &&String| IpFamily::of(ip) == IpFamily::IPv4;
        status.state = state.to_owned();
        status.ips.clone_from(&interface.spec.ips);
        status.prefixes.clone_from(&interface.spec.prefixes);
        status.virtual_ip = public.iter().find(is_v4).or_else(|| public.first()).cloned();
    }
    // Without a state, the API server's default counts: the first Pending is no transition.
    let before = if observed.state.is_empty() { "Pending" } else { &observed.state };
    status.last_state_transition_time =
        if status.state == before { observed.last_state_transition_time.clone() } else { Some(Time(now)) };
    let is_same = source::NetworkInterfaceStatus { state: before.to_owned(), ..observed.clone() } == status;
    (!is_same).then_some(status)
}

fn reference(metadata: &ObjectMeta) -> ObservedRef {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    ObservedRef {
        name: text(&metadata.name),
        uid: text(&metadata.uid),
        resource_version: text(&metadata.resource_version),
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
