//! The decision table of `POST /vip`.

use std::collections::{BTreeSet, HashMap};

use common::cache::ObjectKey;

use super::{Port, Progress, Snapshot, Tenant, Verdict, Write, carry, named, release};
use crate::api::stores::{Bind, Owner, VERSION};
use crate::api::{ParseError, TunId, Vip};
use crate::names::TUN_ID;

/// Decides a bind.
pub(super) fn bind(owner: &Owner, progress: &Progress, snapshot: &Snapshot) -> Verdict {
    let vip = snapshot.vip;
    let service = named(owner);
    let tenant = service.as_ref().and_then(|service| snapshot.services.get(service));
    if let Some(verdict) = undone(owner, progress, snapshot, tenant) {
        return verdict;
    }
    if !snapshot.has_namespace {
        let namespace = owner.namespace();
        return Verdict::new(404, format!("namespace {namespace} does not exist, or is being deleted"));
    }
    if let (Some(service), None) = (&service, tenant) {
        return Verdict::new(404, format!("Service {service} does not exist, or is being deleted"));
    }
    let Some(record) = snapshot.record() else { return first(owner, snapshot, tenant) };
    if record.unbinding {
        return Verdict::new(409, format!("VIP {vip} is being unbound from {}; try again", record.owner));
    }
    let is_same = record.owner == *owner;
    match (&record.owner, tenant) {
        (bound, _) if bound.namespace() != owner.namespace() => taken(vip, bound),
        (Owner::Namespace { .. }, Some(tenant)) => join(record, progress, snapshot, tenant),
        (Owner::Service { .. }, Some(tenant)) if is_same => join(record, progress, snapshot, tenant),
        (Owner::Namespace { .. }, None) if is_same => bound(progress, vip, owner),
        (bound, _) => taken(vip, bound),
    }
}

fn taken(vip: Vip, owner: &Owner) -> Verdict {
    Verdict::new(409, format!("VIP {vip} is bound to {owner}"))
}

fn bound(progress: &Progress, vip: Vip, owner: &Owner) -> Verdict {
    match progress.recorded {
        Some(_) => Verdict::new(201, format!("VIP {vip} is bound to {owner}")),
        None => Verdict::new(200, format!("VIP {vip} was bound to {owner} already")),
    }
}

/// The binding that this request wrote, or joined, is gone or is being removed: another client unbinds the VIP. The bind
/// undoes its write.
fn undone(
    owner: &Owner,
    progress: &Progress,
    snapshot: &Snapshot,
    tenant: Option<&Tenant>,
) -> Option<Verdict> {
    let may_have_joined = progress.joined || progress.may_have_joined;
    if progress.recorded.is_none() && !may_have_joined {
        return None;
    }
    let vip = snapshot.vip;
    let stands = snapshot.record().is_some_and(|record| {
        let admits = match named(owner) {
            Some(service) => record.owner.admits(&service),
            None => record.owner == *owner,
        };
        admits && !record.unbinding && progress.recorded.is_none_or(|number| number == record.tun_id)
    });
    let carries = tenant.filter(|tenant| tenant.vip == Some(vip));
    // A Service joins the binding of its namespace once: the write is not repeated where this bind has undone it, or an unbind of the
    // Service has. Both could repeat theirs for ever. The unbind of an exclusive binding is in its record.
    let is_exclusive = snapshot.record().is_some_and(|record| matches!(record.owner, Owner::Service { .. }));
    let may_write = is_exclusive || !progress.joined && !progress.released;
    if stands && (carries.is_some() || may_write) {
        return None;
    }
    if let Some(tenant) = tenant.filter(|_| stands)
        && let Some((other, port)) = Ports::of(snapshot).conflict(tenant)
    {
        return Some(same_port(vip, other, port));
    }
    let joined = carries.filter(|_| may_have_joined);
    let undo = joined.map(|tenant| release(vip, tenant)).unwrap_or_default();
    Some(Verdict::new(409, format!("VIP {vip} was unbound at the same time")).after(undo))
}

/// The first binding of a VIP is recorded.
fn first(owner: &Owner, snapshot: &Snapshot, tenant: Option<&Tenant>) -> Verdict {
    let vip = snapshot.vip;
    if !snapshot.is_served {
        return Verdict::new(422, format!("no gateway serves VIP {vip}: no entry of the store hosts has it"));
    }
    if let Some(verdict) = tenant.and_then(|tenant| has_other(snapshot, tenant)) {
        return verdict;
    }
    if let Some(other) =
        snapshot.binds.iter().find(|(_, bind)| named(owner).is_some() && bind.owner == *owner)
    {
        return Verdict::new(409, format!("{owner} is bound to VIP {}", other.0));
    }
    let tun_id = match number(snapshot, tenant) {
        Ok(tun_id) => tun_id,
        Err(verdict) => return verdict,
    };
    let record = Bind { v: VERSION, owner: owner.clone(), tun_id, unbinding: false };
    let writes = tenant.map(|tenant| carry(&record, snapshot, tenant)).unwrap_or_default();
    let verdict = match tenant {
        Some(tenant) => carried(201, &record, snapshot, tenant),
        None => Verdict::new(201, format!("VIP {vip} is bound to {owner}")),
    };
    verdict.after([Write::Record { vip, bind: record }]).after(writes)
}

/// The number of a new binding: the one that the Service's owner desires, or else the lowest one that is free.
fn number(snapshot: &Snapshot, tenant: Option<&Tenant>) -> Result<TunId, Verdict> {
    let Some((tenant, tun_id)) = tenant.and_then(|tenant| Some((tenant, desired_number(tenant)?))) else {
        let full = || Verdict::new(507, "every number of a binding is in use");
        return lowest_free(snapshot.binds.values()).ok_or_else(full);
    };
    let tun_id = tun_id?;
    match snapshot.binds.iter().find(|(_, bind)| bind.tun_id == tun_id) {
        Some((vip, _)) => Err(other_number(tenant, tun_id, &format!("it is the number of VIP {vip}"))),
        None => Ok(tun_id),
    }
}

/// The number that the owner of a Service desires.
fn desired_number(tenant: &Tenant) -> Option<Result<TunId, Verdict>> {
    let invalid = |error: &ParseError| {
        Verdict::new(422, format!("the annotation {TUN_ID} of Service {} is invalid: {error}", tenant.name))
    };
    Some(tenant.desired_tun_id.as_ref()?.as_ref().copied().map_err(invalid))
}

fn other_number(tenant: &Tenant, tun_id: TunId, why: &str) -> Verdict {
    let name = &tenant.name;
    let message =
        format!("Service {name} has the annotation {TUN_ID} {tun_id}, but {why}; remove the annotation");
    Verdict::new(409, message)
}

/// The smallest number that no record has: the same for each replica that observes the same records.
fn lowest_free<'a>(binds: impl Iterator<Item = &'a Bind>) -> Option<TunId> {
    let used: BTreeSet<u32> = binds.map(|bind| bind.tun_id.number()).collect();
    let free = used.iter().zip(1..).find(|(used, number)| **used != *number).map(|(_, number)| number);
    TunId::new(free.unwrap_or_else(|| u32::try_from(used.len()).unwrap_or(u32::MAX).saturating_add(1))).ok()
}

/// A Service that carries another VIP.
fn has_other(snapshot: &Snapshot, tenant: &Tenant) -> Option<Verdict> {
    let other = snapshot.other_vip(tenant)?;
    Some(Verdict::new(409, format!("Service {} carries VIP {other}; unbind it first", tenant.name)))
}

fn same_port(vip: Vip, other: &ObjectKey, port: &Port) -> Verdict {
    Verdict::new(409, format!("Service {other} has port {port} on VIP {vip} already"))
}

/// A Service carries the VIP of a binding that admits it.
fn join(record: &Bind, progress: &Progress, snapshot: &Snapshot, tenant: &Tenant) -> Verdict {
    let vip = snapshot.vip;
    if let Some(verdict) = has_other(snapshot, tenant) {
        // The record that this request wrote must not stay.
        let erase = progress.recorded.map(|_| Write::Erase { vip, bind: record.clone() });
        return verdict.after(erase);
    }
    if let Some(tun_id) = desired_number(tenant).filter(|_| progress.recorded.is_none()) {
        match tun_id {
            Ok(tun_id) if tun_id == record.tun_id => {}
            Ok(tun_id) => {
                return other_number(tenant, tun_id, &format!("VIP {vip} has the number {}", record.tun_id));
            }
            Err(verdict) => return verdict,
        }
    }
    let has_joined = progress.joined || progress.may_have_joined;
    if let Some((other, port)) = Ports::of(snapshot).conflict(tenant) {
        // A Service that carried the VIP before keeps it: another request bound it, and its ports may have changed since.
        let undo = if has_joined && tenant.vip == Some(vip) { release(vip, tenant) } else { Vec::new() };
        return same_port(vip, other, port).after(undo);
    }
    let code = if progress.recorded.is_some() { 201 } else { 200 };
    // Once: an unbind of the Service removes it again before it removes the annotations.
    let mut writes = carry(record, snapshot, tenant);
    writes.retain(|write| !(progress.published && matches!(write, Write::Publish { .. })));
    carried(code, record, snapshot, tenant).after(writes)
}

/// The response where the Service carries the VIP.
fn carried(code: u16, record: &Bind, snapshot: &Snapshot, tenant: &Tenant) -> Verdict {
    let (vip, service) = (snapshot.vip, &tenant.name);
    // The master is known, or was known when the annotations were written; the last ones stay.
    match (snapshot.master, super::desired(record, snapshot, tenant).gateway) {
        (Some(_), Some(gateway)) => Verdict::new(
            code,
            format!("Service {service} carries VIP {vip}; its gateway is {}", gateway.node_ip),
        ),
        (_, Some(gateway)) => Verdict::new(
            503,
            format!(
                "Service {service} carries VIP {vip}, but no gateway is MASTER at present; its last gateway {} stays. Repeat the \
                 request, or wait for the next master",
                gateway.node_ip
            ),
        ),
        (_, None) => Verdict::new(
            503,
            format!(
                "Service {service} carries VIP {vip}, but no gateway is MASTER at present: its pods cannot leave the cluster. \
                 Repeat the request, or wait for the next master"
            ),
        ),
    }
}

/// The Services of a VIP by their ports, in the order of their names.
pub(super) struct Ports<'a>(HashMap<&'a Port, Vec<&'a ObjectKey>>);

impl<'a> Ports<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Ports<'a> {
        let mut ports = HashMap::<_, Vec<_>>::new();
        for tenant in snapshot.carriers() {
            tenant.ports.iter().for_each(|port| ports.entry(port).or_default().push(&tenant.name));
        }
        Ports(ports)
    }

    /// The first other Service with one of the ports, and that port.
    pub(super) fn conflict(&self, tenant: &'a Tenant) -> Option<(&'a ObjectKey, &'a Port)> {
        let of_port = |port: &'a Port| {
            let other = self.0.get(port)?.iter().find(|name| **name != &tenant.name)?;
            Some((*other, port))
        };
        tenant.ports.iter().filter_map(of_port).min()
    }
}
