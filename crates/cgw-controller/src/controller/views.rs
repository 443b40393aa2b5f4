//! The responses of `GET /vip/{vip}` and `GET /vips`, from the caches.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::bindings::Bindings;
use super::service::Service;
use crate::api::Vip;
use crate::api::http::VipView;
use crate::api::service::Carried;
use crate::api::stores::Bind;

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
        Some(view_of(vip, record, &carriers))
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

/// A VIP with its record and the Services that have its annotations. Those of a Service that the binding does not admit have no effect, and
/// its tenant chooses the gateway that they name.
fn view_of(vip: Vip, record: Option<&Bind>, carriers: &[Arc<Service>]) -> VipView {
    let admits = |service: &&Arc<Service>| record.is_none_or(|record| record.owner.admits(&service.key()));
    let carriers = || carriers.iter().filter(admits);
    let carried = carriers().filter_map(|service| Carried::read(service.annotations()).ok().flatten());
    // The newest one: the others are being patched.
    let newest = carried.max_by_key(|carried| carried.epoch);
    let gateway = newest.and_then(|carried| carried.gateway);
    VipView {
        vip,
        owner: record.map(|record| record.owner.clone()),
        tun_id: record.map(|record| record.tun_id),
        services: carriers().map(|service| service.key().to_string()).collect(),
        node_ip: gateway.map(|gateway| gateway.node_ip),
        tun_mac: gateway.map(|gateway| gateway.tun_mac),
        epoch: newest.map(|carried| carried.epoch),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_that_the_binding_does_not_admit_is_not_shown() {
        let service = |namespace: &str, node_ip: &str, epoch: &str| -> Arc<Service> {
            let annotation = |name: &str| format!("cgw-controller.perimeter.dev/{name}");
            let service = json!({ "metadata": { "name": "web", "namespace": namespace, "annotations": {
                annotation("vip"): "192.168.50.201",
                annotation("tun-id"): "0x00000001",
                annotation("node-ip"): node_ip,
                annotation("tun-mac"): "02:63:c0:a8:32:15",
                annotation("epoch"): epoch,
            } } });
            Arc::new(serde_json::from_value(service).unwrap())
        };
        let carriers = [service("shop", "192.168.50.21", "5"), service("other", "192.168.50.29", "6")];
        let text = r#"{"v":1,"scope":"namespace","namespace":"shop","tunId":"0x00000001"}"#;
        let record: Bind = serde_json::from_str(text).unwrap();
        let vip = "192.168.50.201".parse().unwrap();
        let view = view_of(vip, Some(&record), &carriers);
        assert_eq!((view.services, view.epoch.map(|epoch| epoch.0)), (vec!["shop/web".to_owned()], Some(5)));
        assert_eq!(view.node_ip, "192.168.50.21".parse::<std::net::IpAddr>().ok());
        assert_eq!(view_of(vip, None, &carriers).services.len(), 2, "they are not bound");
    }
}
