//! The Services that use a load balancer: several can share one, including Services of other clusters.

use crate::names;
use crate::observe::snapshot::{Cloud, LoadBalancer, Meta, Service};
use crate::record::Recorded;

/// The tag of a Service. Without the cluster's name, the only tag that ends with namespace and name of the Service: two clusters may
/// have a Service of the same name behind one load balancer, and then None.
#[must_use]
pub fn tag_of(cluster: &str, service: &Meta, tags: &[String]) -> Option<String> {
    if cluster.is_empty() {
        let mut ours = tags.iter().filter(|tag| ends_as(tag, service));
        return ours.next().filter(|_| ours.next().is_none()).cloned();
    }
    let tag = names::service_tag(cluster, &service.namespace, &service.name);
    tags.contains(&tag).then_some(tag)
}

/// The other cluster that a load balancer belongs to by its name or tags; None where it is or was one of `cluster`.
#[must_use]
pub fn other_cluster<'a>(cluster: &str, record: &Recorded, seen: &'a LoadBalancer) -> Option<&'a str> {
    if cluster.is_empty() || record.tag.is_some() {
        return None;
    }
    let end = format!("_{}_{}", record.namespace, record.name);
    let of = |text: &'a str| text.strip_prefix(names::SERVICE_PREFIX)?.strip_suffix(&end);
    let mut others = std::iter::once(&seen.name).chain(&seen.tags).filter_map(|text| of(text));
    others.find(|other| *other != cluster)
}

fn ends_as(name: &str, service: &Meta) -> bool {
    name.starts_with(names::SERVICE_PREFIX)
        && name.ends_with(&format!("_{}_{}", service.namespace, service.name))
}

/// Whether one of these addresses of a Service or an Ingress is the load balancer's: its controller wrote it there, so it is served by
/// this load balancer.
#[must_use]
pub fn is_attached(addresses: &[String], seen: &LoadBalancer, cloud: &Cloud) -> bool {
    let own = seen.vip_address.iter();
    let floating =
        cloud.floating_ips.values().filter(|ip| seen.vip_port_id.is_some() && ip.port_id == seen.vip_port_id);
    own.chain(floating.map(|ip| &ip.floating_ip_address)).any(|address| addresses.contains(address))
}

/// The load balancer of a Service without its ID, as older cloud controller managers left it: by a name that no other can have, or by
/// name and address. None where two match.
#[must_use]
pub fn of(cluster: &str, service: &Service, cloud: &Cloud) -> Option<String> {
    let meta = &service.meta;
    let is_it = |seen: &LoadBalancer| {
        seen.name == names::legacy_load_balancer(&meta.uid)
            || (names::is_distinctive(cluster)
                && seen.name == names::service_tag(cluster, &meta.namespace, &meta.name))
            || (ends_as(&seen.name, meta) && is_attached(&service.addresses, seen, cloud))
    };
    cloud.only_load_balancer(is_it).map(|(id, _)| id.clone())
}

/// Whether it serves only these Services: it is deleted with the last of them.
#[must_use]
pub fn is_only_ours(cluster: &str, services: &[&Meta], seen: &LoadBalancer) -> bool {
    if services.is_empty() {
        return false;
    }
    let legacy = |service: &&&Meta| seen.name == names::legacy_load_balancer(&service.uid);
    if services.iter().any(|service| legacy(&service)) {
        return seen.tags.is_empty();
    }
    if !seen.name.starts_with(names::SERVICE_PREFIX) {
        return false;
    }
    if seen.tags.is_empty() {
        return services.iter().any(|service| match cluster {
            "" => ends_as(&seen.name, service),
            cluster => seen.name == names::service_tag(cluster, &service.namespace, &service.name),
        });
    }
    let ours: Vec<String> =
        services.iter().filter_map(|service| tag_of(cluster, service, &seen.tags)).collect();
    seen.tags.iter().all(|tag| ours.contains(tag))
}
