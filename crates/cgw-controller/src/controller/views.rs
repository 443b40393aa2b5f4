//! The responses of `GET /vip/{vip}` and `GET /vips`, from the caches.

use std::collections::BTreeSet;

use super::bindings::Bindings;
use crate::api::Vip;
use crate::api::http::VipView;
use crate::api::service::Carried;
use crate::api::stores::Owner;

impl Bindings {
    /// One VIP. None: it is not bound, no Service carries it, and no keeper serves it.
    #[must_use]
    pub fn view(&self, vip: Vip) -> Option<VipView> {
        let records = self.stores.records();
        let record = records.binds.get(&vip);
        let carriers = self.services.carriers(vip);
        let is_served = || self.stores.hosts().hosts.iter().any(|host| host.serves(vip));
        if record.is_none() && carriers.is_empty() && !is_served() {
            return None;
        }
        let (scope, namespace, service) = match record.map(|record| &record.owner) {
            None => (None, None, None),
            Some(Owner::Namespace { namespace }) => (Some("namespace"), Some(namespace), None),
            Some(Owner::Service { namespace, service }) => (Some("service"), Some(namespace), Some(service)),
        };
        let carried =
            carriers.iter().filter_map(|service| Carried::read(service.annotations()).ok().flatten());
        // The newest one: the others are being patched.
        let newest = carried.max_by_key(|carried| carried.epoch);
        let gateway = newest.and_then(|carried| carried.gateway);
        Some(VipView {
            vip,
            scope: scope.map(str::to_owned),
            namespace: namespace.cloned(),
            service: service.cloned(),
            tun_id: record.map(|record| record.tun_id),
            services: carriers.iter().map(|service| service.key().to_string()).collect(),
            node_ip: gateway.map(|gateway| gateway.node_ip),
            tun_mac: gateway.map(|gateway| gateway.tun_mac),
            epoch: newest.map(|carried| carried.epoch),
        })
    }

    /// Every VIP that is bound or carried by a Service, in ascending order.
    #[must_use]
    pub fn views(&self) -> Vec<VipView> {
        let mut vips: BTreeSet<Vip> = self.stores.records().binds.keys().copied().collect();
        vips.extend(
            self.services
                .cache
                .objects()
                .filter_map(|service| Carried::vip_of(service.annotations()).ok().flatten()),
        );
        vips.into_iter().filter_map(|vip| self.view(vip)).collect()
    }
}
