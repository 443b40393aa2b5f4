//! The writes that remain where no request is in progress: after a crash between two writes, after a change by another client, and
//! after a flip of the gateway that a Service missed.

use common::plan::Problem;

use super::bind::Ports;
use super::{Cause, Snapshot, Tenant, Write, action, carry, named, release, retract, unbind, updates};
use crate::api::stores::{Bind, Owner};

/// The repairs of one VIP.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repair {
    /// Writes that finish or undo a request. A request that is in progress looks the same, so they wait. Only the first one is
    /// executed; then the state is observed and planned again.
    pub delayed: Vec<Write>,
    /// The gateway of Services that carry the VIP. They are independent of each other.
    pub refresh: Vec<Write>,
    /// Problems that a person should know.
    pub problems: Vec<Problem<Cause>>,
}

/// Decides the repairs. The snapshot has every Service that carries the VIP or shows it, in all namespaces, and the Service of the record.
#[must_use]
pub fn repair(snapshot: &Snapshot) -> Repair {
    let vip = snapshot.vip;
    let mut repair = Repair::default();
    // No binding admits them: their annotations have no effect.
    let record = snapshot.record();
    let is_admitted = |tenant: &Tenant| record.is_some_and(|bind| bind.owner.admits(&tenant.name));
    let carrying = || snapshot.services.values().filter(|tenant| tenant.vip == Some(vip));
    for tenant in carrying().filter(|tenant| !is_admitted(tenant)) {
        repair.delayed.extend(release(vip, tenant));
    }
    repair.delayed.extend(stale_ingress(snapshot));
    let Some(record) = record else { return repair };
    match (&record.owner, record.unbinding) {
        (Owner::Service { .. }, true) => {
            repair.delayed.extend(unbind::exclusive(vip, record, snapshot.carriers().next()));
        }
        (Owner::Namespace { .. }, true) if snapshot.carriers().next().is_none() => {
            repair.delayed.push(Write::Erase { vip, bind: record.clone() });
        }
        (Owner::Namespace { .. }, true) => repair.delayed.extend(unbind::resume(vip, record)),
        (Owner::Service { .. }, false) => exclusive(record, snapshot, &mut repair),
        (Owner::Namespace { .. }, false) if snapshot.has_namespace => {}
        (Owner::Namespace { namespace }, false) => repair.problems.push(Problem {
            regarding: action::regarding(&record.owner),
            because: Cause::NamespaceMissing(vip, namespace.clone()),
        }),
    }
    if !record.unbinding {
        // An unbind removes the ingress first.
        let (refresh, ingress) = snapshot
            .carriers()
            .flat_map(|tenant| updates(snapshot, tenant))
            .partition::<Vec<_>, _>(|write| matches!(write, Write::Carry { .. }));
        repair.refresh = refresh;
        repair.delayed.extend(ingress);
        let ports = Ports::of(snapshot);
        repair.problems.extend(snapshot.carriers().flat_map(|tenant| problems(snapshot, &ports, tenant)));
    }
    repair
}

/// The VIP of an unbound Service stays in its status when another client removes the annotations, and kube-proxy would send packets to the
/// VIP to this Service for ever, also when the VIP is another tenant's.
fn stale_ingress(snapshot: &Snapshot) -> impl Iterator<Item = Write> {
    let (vip, record) = (snapshot.vip, snapshot.record());
    // Otherwise it is an address of another program.
    let is_ours = snapshot.is_served || record.is_some();
    // The Service that has the VIP alone gets its annotations again.
    let is_restored = move |tenant: &Tenant| {
        let owner = record.filter(|bind| !bind.unbinding).and_then(|bind| named(&bind.owner));
        owner.as_ref() == Some(&tenant.name) && snapshot.other_vip(tenant).is_none()
    };
    let tenants = snapshot.services.values().filter(move |tenant| is_ours && tenant.has_stale_ingress(vip));
    tenants.filter(move |tenant| !is_restored(tenant)).map(move |tenant| retract(vip, tenant))
}

/// A Service that has the VIP alone has its annotations.
fn exclusive(record: &Bind, snapshot: &Snapshot, repair: &mut Repair) {
    let vip = snapshot.vip;
    let Some(service) = named(&record.owner) else { return };
    let mut problem = |because| {
        repair.problems.push(Problem { regarding: action::regarding(&record.owner), because });
    };
    match snapshot.services.get(&service) {
        None => problem(Cause::ServiceMissing(vip, service)),
        Some(tenant) if tenant.vip == Some(vip) => {}
        Some(tenant) => match snapshot.other_vip(tenant) {
            Some(other) => problem(Cause::OtherVip(vip, other)),
            None => repair.delayed.extend(carry(record, snapshot, tenant)),
        },
    }
}

/// A conflict of ports is not repaired. A bind that stopped before it checked the ports leaves the same state as a tenant that changed
/// `spec.ports` of a bound Service, and unbinding that one would let its pods leave with another address. The agents give the port to the
/// older Service, both keep the VIP as their source address, and a repetition of the bind is refused.
///
/// A tenant can cause a conflict at any time, so it must not hide that the VIP has no gateway.
fn problems<'a>(snapshot: &'a Snapshot, ports: &Ports<'a>, tenant: &'a Tenant) -> Vec<Problem<Cause>> {
    let vip = snapshot.vip;
    let conflict = ports.conflict(tenant);
    let conflict = conflict.map(|(other, port)| Cause::PortConflict(vip, other.clone(), port.clone()));
    let has_gateway = tenant.carried.is_some_and(|carried| carried.gateway.is_some());
    let has_no_master = snapshot.has_no_master || snapshot.master.is_none() && !has_gateway;
    let no_master = has_no_master.then_some(Cause::NoMaster(vip));
    let causes = conflict.into_iter().chain(no_master);
    causes.map(|because| Problem { regarding: action::service(&tenant.name, None), because }).collect()
}
