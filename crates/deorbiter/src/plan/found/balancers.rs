//! Load balancers of Services and Ingresses, with their floating IPs and security groups.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use common::api::deorbit::Kind;

use super::{Finder, Found, record};
use crate::names;
use crate::observe::snapshot::{Cloud, FloatingIp, Meta};
use crate::plan::action::{Object, ObjectKind};
use crate::plan::sharing;
use crate::record::Recorded;

impl Finder<'_> {
    /// Services that have a load balancer.
    pub(super) fn services(&mut self) {
        let ours: Vec<_> = self
            .cluster
            .services
            .iter()
            .filter(|service| self.scope.has_class(service.class.as_deref()))
            .map(|service| (service, self.kept(ObjectKind::Service, None, service.meta.keep, false)))
            .collect();
        let cluster = self.run.spec.cluster_name.as_str();
        // Of the Services that share one load balancer: those that are deleted, and those that are kept.
        let mut going = BTreeMap::<&str, Vec<&Meta>>::new();
        for (service, _) in ours.iter().filter(|(_, kept)| kept.is_none()) {
            if let Some(id) = &service.load_balancer {
                going.entry(id).or_default().push(&service.meta);
            }
        }
        let gone: HashSet<&str> = going.values().flatten().map(|meta| meta.uid.as_str()).collect();
        let others = self.cluster.services.iter().filter(|one| !gone.contains(one.meta.uid.as_str()));
        let staying: HashSet<&str> = others.filter_map(|one| one.load_balancer.as_deref()).collect();
        for (service, kept) in &ours {
            let meta = &service.meta;
            let id = service.load_balancer.clone().or_else(|| sharing::of(cluster, service, self.cloud?));
            let seen = id.as_deref().and_then(|id| self.cloud?.load_balancers.get(id));
            let alone = [meta];
            let users = match service.load_balancer.as_deref() {
                Some(id) => going.get(id).map_or(&[][..], Vec::as_slice),
                None => &alone[..],
            };
            let mut load_balancer =
                record(Kind::LoadBalancer, id.clone(), ObjectKind::Service, meta, kept.clone());
            // One that was found by the cluster's name proves nothing.
            let legacy = seen.is_some_and(|seen| seen.name == names::legacy_load_balancer(&meta.uid));
            Arc::make_mut(&mut load_balancer).named = service.load_balancer.is_some() || legacy;
            if let (Some(seen), Some(cloud)) = (seen, self.cloud) {
                let load_balancer = Arc::make_mut(&mut load_balancer);
                load_balancer.tag = sharing::tag_of(cluster, meta, &seen.tags);
                // Clusters with the same name, or without one, cannot be distinguished by names alone.
                let known = names::is_distinctive(cluster)
                    || seen.name == names::legacy_load_balancer(&meta.uid)
                    || sharing::is_attached(&service.addresses, seen, cloud);
                let stays = id.as_deref().is_some_and(|id| staying.contains(id));
                load_balancer.shared = stays || !known || !sharing::is_only_ours(cluster, users, seen);
            }
            let (shared, port) = (load_balancer.shared, seen.and_then(|seen| seen.vip_port_id.as_deref()));
            let object = Object::new(ObjectKind::Service, meta);
            self.out.push(Found {
                record: load_balancer,
                delete: Some(object),
                deleting: meta.deleting,
                release: None,
            });
            let Some(cloud) = self.cloud else { continue };
            for (id, ip) in leading_to(cloud, port) {
                let says = service.keep_floating_ip && kept.is_none();
                let by = says.then(|| super::service(&meta.namespace, &meta.name));
                let kept = kept.clone().or_else(|| {
                    if let Some(by) = &by {
                        Some(format!("its Service {by} carries {}", names::KEEP_FLOATING_IP))
                    } else if !ip.description.starts_with(names::FLOATING_IP_DESCRIPTION) {
                        Some("the cloud controller manager did not make it".to_owned())
                    } else {
                        shared.then(|| "its load balancer also serves others".to_owned())
                    }
                });
                let mut floating_ip =
                    record(Kind::FloatingIP, Some(id.clone()), ObjectKind::Service, meta, kept);
                Arc::make_mut(&mut floating_ip).kept_by = by;
                self.along(floating_ip, meta);
            }
            let group = names::security_group(&meta.uid, &meta.namespace, &meta.name);
            for (id, _) in cloud.security_groups.iter().filter(|(_, seen)| seen.name == group) {
                let kept = kept.clone();
                let group = record(Kind::SecurityGroup, Some(id.clone()), ObjectKind::Service, meta, kept);
                self.along(group, meta);
            }
        }
    }

    fn along(&mut self, record: Arc<Recorded>, meta: &Meta) {
        self.out.push(Found { record, delete: None, deleting: meta.deleting, release: None });
    }

    /// Ingresses of Octavia's class.
    pub(super) fn ingresses(&mut self) {
        for ingress in &self.cluster.ingresses {
            if ingress.class.as_deref() != Some(names::INGRESS_CLASS) {
                continue;
            }
            let meta = &ingress.meta;
            let cluster = &self.run.spec.cluster_name;
            let name = names::ingress_load_balancer(cluster, &meta.namespace, &meta.name);
            let cloud = self.cloud.filter(|_| !cluster.is_empty());
            let seen = cloud.and_then(|cloud| cloud.only_load_balancer(|seen| seen.name == name));
            let kept = self.kept(ObjectKind::Ingress, None, meta.keep, false);
            let id = seen.map(|(id, _)| id.clone());
            let mut load_balancer = record(Kind::LoadBalancer, id, ObjectKind::Ingress, meta, kept.clone());
            if let (Some((_, seen)), Some(cloud)) = (seen, self.cloud) {
                // It was found by its name, which an Ingress of another cluster may have too.
                let attached = sharing::is_attached(&ingress.addresses, seen, cloud);
                Arc::make_mut(&mut load_balancer).shared = !attached || !seen.tags.is_empty();
            }
            Arc::make_mut(&mut load_balancer).named = false;
            self.out.push(Found {
                record: load_balancer,
                delete: Some(Object::new(ObjectKind::Ingress, meta)),
                deleting: meta.deleting,
                release: None,
            });
            let (Some((_, seen)), Some(cloud)) = (seen, self.cloud) else { continue };
            for (id, ip) in leading_to(cloud, seen.vip_port_id.as_deref()) {
                let kept = kept.clone().or_else(|| {
                    if ingress.keep_floating_ip {
                        return Some(format!("its Ingress carries {}", names::INGRESS_KEEP_FLOATING_IP));
                    }
                    if ingress.names_floating_ip {
                        return Some(format!("its Ingress names it ({})", names::INGRESS_FLOATING_IP));
                    }
                    let made = ip.description.starts_with(names::INGRESS_FLOATING_IP_DESCRIPTION);
                    (!made).then(|| "octavia-ingress-controller did not make it".to_owned())
                });
                let id = Some(id.clone());
                self.along(record(Kind::FloatingIP, id, ObjectKind::Ingress, meta, kept), meta);
            }
            let mut groups = cloud.security_groups.iter().filter(|(_, seen)| seen.name == name);
            if let (Some((id, _)), None) = (groups.next(), groups.next()) {
                let id = Some(id.clone());
                self.along(record(Kind::SecurityGroup, id, ObjectKind::Ingress, meta, kept.clone()), meta);
            }
        }
    }
}

/// Floating IPs of a port.
fn leading_to<'a>(
    cloud: &'a Cloud,
    port: Option<&str>,
) -> impl Iterator<Item = (&'a String, &'a FloatingIp)> {
    cloud.floating_ips.iter().filter(move |(_, ip)| port.is_some() && ip.port_id.as_deref() == port)
}
