//! Resources that no object of the cluster names any more, found by the cluster's name. Opt-in, and never by a prefix:
//! clusters `prod` and `prod_7` of one project must not be confused.

use std::collections::HashSet;
use std::sync::Arc;

use common::api::deorbit::{Kind, OrphanPolicy, RetainedVolumes};

use crate::names;
use crate::observe::snapshot::{Cloud, FloatingIp, LoadBalancer, Run};
use crate::record::{Book, Recorded};

/// Resources of this cluster that are not recorded yet. Without an inventory it is unknown which volumes are retained: then volumes
/// and snapshots are kept.
#[must_use]
pub fn found(run: &Run, book: &Book, records: &[Arc<Recorded>], cloud: &Cloud) -> Vec<Arc<Recorded>> {
    let cluster = run.spec.cluster_name.as_str();
    let is_asked = run.spec.discover_by_cluster_name && names::is_distinctive(cluster);
    if !is_asked || !cloud.whole || !book.proof.any() {
        return Vec::new();
    }
    let known: HashSet<(Kind, &str)> =
        records.iter().filter_map(|record| Some((record.kind, record.id.as_deref()?))).collect();
    let mut out = Vec::new();
    let mut add = |kind: Kind, id: &str, name: &str, kept: Option<String>| {
        if !known.contains(&(kind, id)) {
            out.push(by_name(kind, id, name, kept));
        }
    };
    let kept = |keep: bool| keep.then(|| format!("it carries {}", names::JANITOR_KEEP));
    if book.taken {
        let ours = |name: &Option<String>| name.as_deref() == Some(cluster);
        for (kind, all) in [(Kind::Volume, &cloud.volumes), (Kind::Snapshot, &cloud.snapshots)] {
            for (id, seen) in all.iter().filter(|(_, seen)| ours(&seen.cluster)) {
                add(kind, id, &seen.name, kept(seen.keep));
            }
        }
    }
    // A Service without the ID of its load balancer may still exist, and may be kept.
    let named: HashSet<(&str, &str)> = records
        .iter()
        .filter(|record| record.kind == Kind::LoadBalancer && record.object.is_some())
        .map(|record| (record.namespace.as_str(), record.name.as_str()))
        .collect();
    for (id, seen) in cloud.load_balancers.iter().filter(|(_, seen)| is_ours(cluster, seen)) {
        let is_named = service_of(cluster, seen).is_some_and(|service| named.contains(&service));
        if is_named || known.contains(&(Kind::LoadBalancer, id.as_str())) {
            continue;
        }
        add(Kind::LoadBalancer, id, &seen.name, None);
        // Without its load balancer it looks like one that was kept on purpose.
        for (id, ip) in &cloud.floating_ips {
            if ip.port_id.is_some() && ip.port_id == seen.vip_port_id && is_made_for(ip, seen) {
                add(Kind::FloatingIP, id, &ip.floating_ip_address, None);
            }
        }
    }
    let from = format!(" from cluster {cluster}");
    for (id, seen) in &cloud.floating_ips {
        // One that is associated with a port is in use, also if the cluster created it.
        if seen.description.starts_with(names::FLOATING_IP_DESCRIPTION)
            && seen.description.ends_with(&from)
            && seen.port_id.is_none()
        {
            let kept = "a floating IP without a load balancer may have been kept on purpose".to_owned();
            add(Kind::FloatingIP, id, &seen.floating_ip_address, Some(kept));
        }
    }
    let group = format!(" Service LoadBalancer in cluster {cluster}");
    for (id, seen) in &cloud.security_groups {
        if seen.name.starts_with("lb-sg-")
            && seen.description.starts_with("Security Group for ")
            && seen.description.ends_with(&group)
        {
            add(Kind::SecurityGroup, id, &seen.name, None);
        }
    }
    out
}

/// Why a resource that no object names is reported and not deleted, where it is. Once its PersistentVolume or
/// VolumeSnapshotContent is gone, a lost volume or snapshot looks like one that the policy Retain kept on purpose.
#[must_use]
pub fn reported(run: &Run, record: &Recorded) -> Option<&'static str> {
    let found = record.object.is_none();
    let retained = run.spec.retained_volumes == RetainedVolumes::Keep
        && matches!(record.kind, Kind::Volume | Kind::Snapshot);
    match run.spec.orphan_policy {
        _ if !found => None,
        OrphanPolicy::Report => Some("no object names it, and spec.orphanPolicy is Report"),
        OrphanPolicy::Delete if retained => Some(
            "no object names it, and the policy Retain may have kept it: delete it, or set spec.retainedVolumes to Delete",
        ),
        OrphanPolicy::Delete => None,
    }
}

/// By its description, its name and all of its tags.
#[must_use]
pub fn is_ours(cluster: &str, seen: &LoadBalancer) -> bool {
    service_of(cluster, seen).is_some_and(|(namespace, name)| {
        let name = names::service_tag(cluster, namespace, name);
        name == seen.name && seen.tags.iter().all(|tag| *tag == name)
    })
}

/// Whether the cloud controller manager created it for the Service of a load balancer of this cluster, by both descriptions.
fn is_made_for(ip: &FloatingIp, seen: &LoadBalancer) -> bool {
    ip.description.strip_prefix("Floating IP for ") == Some(seen.description.as_str())
}

/// Namespace and name of the Service that it was created for, by its description.
fn service_of<'a>(cluster: &str, seen: &'a LoadBalancer) -> Option<(&'a str, &'a str)> {
    let of = seen.description.strip_prefix("Kubernetes external service ")?;
    of.strip_suffix(&format!(" from cluster {cluster}"))?.split_once('/')
}

fn by_name(kind: Kind, id: &str, name: &str, kept: Option<String>) -> Arc<Recorded> {
    Arc::new(Recorded {
        kind,
        id: Some(id.to_owned()),
        object: None,
        namespace: String::new(),
        name: name.to_owned(),
        uid: String::new(),
        tag: None,
        shared: false,
        named: false,
        seen: true,
        kept,
        kept_by: None,
    })
}
