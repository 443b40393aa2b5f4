//! A VirtualIP: an IP of the apinet cluster, and its address.

use super::{Desired, Draft, Plan, Reason, Status, counterpart, is_applied_metadata, outdated};
use crate::api::{apinet, source};
use crate::config::Config;
use crate::names::Kind;

/// A VirtualIP and its counterpart.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The source object.
    pub source: source::VirtualIp,
    /// The apinet IP that has its UID as name.
    pub counterpart: Option<apinet::Ip>,
    /// The apinet NetworkInterfaces of the source object that has claimed it, if this program manages that one.
    pub interfaces: Vec<apinet::NetworkInterface>,
    /// Without a counterpart: the apinet IPs with the address in its status.
    pub ips: Vec<apinet::Ip>,
    /// The same of VirtualIPs, with itself.
    pub virtual_ips: Vec<source::VirtualIp>,
}

/// The next steps.
#[must_use]
pub fn plan(config: &Config, snapshot: &Snapshot) -> Plan {
    let Snapshot { source, counterpart: observed, interfaces, .. } = snapshot;
    let mut draft = Draft::new(config, Kind::VirtualIp, &source.metadata);
    let address = observed.as_ref().and_then(|observed| observed.spec.ip.as_ref());
    let mut public_ips = interfaces.iter().flat_map(|one| &one.spec.public_ips);
    // Another object could get the address, and two would have it. The interface releases the VirtualIP, which is the next event.
    if source.metadata.deletion_timestamp.is_some()
        && address.is_some()
        && public_ips.any(|public| public.ip.as_ref() == address)
    {
        return draft.plan;
    }
    let metadata = observed.as_ref().map(|observed| &observed.metadata);
    let Some(origin) = draft.live(metadata) else { return draft.plan };
    draft.add_finalizer();
    let Some(family) = source.spec.ip_family else {
        draft.problem(Reason::FamilyMissing);
        return draft.plan;
    };
    // Another program has deleted the IP, and users have the address. An IP that exists keeps its address, which is immutable.
    let before = source.status.ip.as_ref().filter(|_| observed.is_none());
    if let Some(address) = before.filter(|_| is_of_other(snapshot)) {
        let name = source.metadata.name.clone().unwrap_or_default();
        draft.problem(Reason::AddressTaken(name, address.clone()));
        return draft.plan;
    }
    let desired = apinet::Ip {
        metadata: counterpart(config, Kind::VirtualIp, &origin),
        spec: apinet::IpSpec { kind: "Public".to_owned(), ip_family: Some(family), ip: before.cloned() },
    };
    let is_applied = |observed: &apinet::Ip| {
        is_applied_metadata(config, &desired.metadata, &observed.metadata)
            && desired.spec.kind == observed.spec.kind
            && desired.spec.ip_family == observed.spec.ip_family
    };
    if let Some(because) = outdated(observed.as_ref(), is_applied) {
        draft.apply(Desired::Ip(desired), because);
    }
    let Some(observed) = observed else { return draft.plan };
    let status = source::VirtualIpStatus { ip: observed.spec.ip.clone() };
    // An address that was reported stays until there is another one.
    if status.ip.is_some() && status != source.status {
        draft.set_status(Status::VirtualIp(status));
    }
    draft.plan
}

/// Whether another object has the address in the status. Every account that may write a VirtualIP may write its status too, so that the
/// address is not requested if two VirtualIPs have it.
fn is_of_other(snapshot: &Snapshot) -> bool {
    let Snapshot { source, ips, virtual_ips, .. } = snapshot;
    !ips.is_empty() || virtual_ips.iter().any(|one| one.metadata.uid != source.metadata.uid)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use serde_json::json;

    use super::*;
    use crate::api::IpFamily;
    use crate::plan::fixtures::{acts, config, deleting, problems};

    fn snapshot(address: Option<&str>) -> Snapshot {
        let source: source::VirtualIp = serde_json::from_value(json!({
            "metadata": { "name": "vip", "namespace": "team", "uid": "u1", "finalizers": ["apinet.ironcore.dev/virtualip"] },
            "spec": { "type": "Public", "ipFamily": "IPv6" },
            "status": {},
        }))
        .unwrap();
        let origin = crate::origin::Origin::of(&source.metadata).unwrap();
        let counterpart = apinet::Ip {
            metadata: counterpart(&config(), Kind::VirtualIp, &origin),
            spec: apinet::IpSpec {
                kind: "Public".into(),
                ip_family: Some(IpFamily::IPv6),
                ip: address.map(str::to_owned),
            },
        };
        Snapshot { source, counterpart: Some(counterpart), ..Snapshot::default() }
    }

    #[test]
    fn a_public_ip_of_the_family_is_applied_without_an_address() {
        let missing = Snapshot { counterpart: None, ..snapshot(None) };
        let steps = plan(&config(), &missing).steps;
        assert_eq!(acts(&plan(&config(), &missing)), ["Apply"]);
        let applied = serde_json::to_value(&steps[0].action.act).unwrap();
        assert_eq!(applied["apply"]["spec"], json!({ "type": "Public", "ipFamily": "IPv6" }));
    }

    #[test]
    fn an_ip_that_was_deleted_is_applied_with_its_address() {
        let mut lost = Snapshot { counterpart: None, ..snapshot(None) };
        lost.source.status.ip = Some("2001:db8::1".into());
        lost.virtual_ips = vec![lost.source.clone()];
        let steps = plan(&config(), &lost).steps;
        let applied = serde_json::to_value(&steps[0].action.act).unwrap();
        assert_eq!(applied["apply"]["spec"]["ip"], json!("2001:db8::1"));
        lost.counterpart = snapshot(Some("2001:db8::1")).counterpart;
        assert_eq!(acts(&plan(&config(), &lost)), [""; 0], "the API server has it now");
        lost.counterpart.as_mut().unwrap().metadata.labels = None;
        let steps = plan(&config(), &lost).steps;
        let applied = serde_json::to_value(&steps[0].action.act).unwrap();
        assert_eq!(applied["apply"]["spec"].get("ip"), None, "the address of an IP is its own");
    }

    #[test]
    fn an_address_that_another_object_has_is_not_requested() {
        let lost = || {
            let mut lost = Snapshot { counterpart: None, ..snapshot(None) };
            lost.source.status.ip = Some("2001:db8::1".into());
            lost.virtual_ips = vec![lost.source.clone()];
            lost
        };
        let of_ip =
            Snapshot { ips: snapshot(Some("2001:db8::1")).counterpart.into_iter().collect(), ..lost() };
        let mut of_virtual_ip = lost();
        of_virtual_ip.virtual_ips.push(source::VirtualIp::default());
        for snapshot in [of_ip, of_virtual_ip] {
            let plan = plan(&config(), &snapshot);
            assert_eq!((acts(&plan), problems(&plan)), (vec![], vec!["AddressTaken"]));
        }
    }

    #[test]
    fn the_address_is_reported_once_it_is_allocated() {
        assert_eq!(acts(&plan(&config(), &snapshot(None))), [""; 0]);
        let mut snapshot = snapshot(Some("2001:db8::1"));
        let steps = plan(&config(), &snapshot).steps;
        let crate::plan::steps::Act::SetStatus(Status::VirtualIp(status)) = &steps[0].action.act else {
            unreachable!("{steps:?}")
        };
        assert_eq!(status.ip.as_deref(), Some("2001:db8::1"));
        snapshot.source.status = status.clone();
        assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0], "nothing is written in steady state");
        // The IP was deleted and made again; its new address is not allocated yet.
        snapshot.counterpart.as_mut().unwrap().spec.ip = None;
        assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
    }

    #[test]
    fn a_deleted_virtual_ip_goes_after_its_ip() {
        let mut snapshot = snapshot(Some("2001:db8::1"));
        deleting(&mut snapshot.source.metadata);
        assert_eq!(acts(&plan(&config(), &snapshot)), ["Delete"]);
        snapshot.counterpart = None;
        assert_eq!(acts(&plan(&config(), &snapshot)), ["RemoveFinalizer"]);
    }

    #[test]
    fn a_deleted_virtual_ip_keeps_its_ip_while_an_interface_has_the_address() {
        let interface = |address: &str| -> apinet::NetworkInterface {
            let public_ips = json!([{ "name": "a", "ipFamily": "IPv6", "ip": address }]);
            serde_json::from_value(json!({ "metadata": {}, "spec": { "publicIPs": public_ips } })).unwrap()
        };
        let mut snapshot = snapshot(Some("2001:db8::1"));
        snapshot.interfaces = vec![interface("2001:db8::2"), interface("2001:db8::1")];
        assert_eq!(acts(&plan(&config(), &snapshot)), ["UpdateStatus"], "it is not being deleted");
        deleting(&mut snapshot.source.metadata);
        assert_eq!(acts(&plan(&config(), &snapshot)), [""; 0]);
        snapshot.interfaces.pop();
        assert_eq!(acts(&plan(&config(), &snapshot)), ["Delete"]);
    }

    #[test]
    fn a_missing_family_is_a_problem_and_writes_nothing() {
        let mut snapshot = Snapshot { counterpart: None, ..snapshot(None) };
        snapshot.source.spec.ip_family = None;
        let plan = plan(&config(), &snapshot);
        assert_eq!((acts(&plan), problems(&plan)), (vec![], vec!["FamilyMissing"]));
    }
}
