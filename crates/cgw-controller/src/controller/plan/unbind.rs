//! The decision table of `DELETE /vip`.

use super::{Progress, Snapshot, Tenant, Verdict, Write, named, release};
use crate::api::Vip;
use crate::api::stores::{Bind, Owner};

/// Decides an unbind.
pub(super) fn unbind(owner: &Owner, progress: &Progress, snapshot: &Snapshot) -> Verdict {
    let vip = snapshot.vip;
    let done = || Verdict::new(200, format!("VIP {vip} is unbound from {owner}"));
    let absent = || Verdict::new(404, format!("VIP {vip} is not bound to {owner}"));
    let record = snapshot.record();
    // The record that this request set to `unbinding` is gone: a repair, or another replica, has completed the unbind.
    if progress.unbinding.is_some_and(|number| record.is_none_or(|record| record.tun_id != number)) {
        return done();
    }
    let Some(record) = record else { return absent() };
    if record.owner.namespace() != owner.namespace() {
        return absent();
    }
    let tenant = named(owner).and_then(|service| snapshot.services.get(&service));
    let carries = tenant.filter(|tenant| tenant.vip == Some(vip));
    match (&record.owner, owner) {
        (Owner::Service { .. }, Owner::Service { .. }) if record.owner == *owner => {
            done().after(exclusive(vip, record, carries))
        }
        (Owner::Service { service, .. }, Owner::Namespace { namespace }) => {
            let path = format!("DELETE /vip/{vip}/{namespace}/{service}");
            Verdict::new(409, format!("VIP {vip} is bound to {} only; use {path}", record.owner))
        }
        (Owner::Service { .. }, Owner::Service { .. }) => absent(),
        (Owner::Namespace { .. }, Owner::Service { .. }) => match carries {
            // It was released once. A bind that came later is not undone.
            _ if progress.released => done(),
            Some(tenant) => done().after(release(vip, tenant)),
            None if progress.may_have_released => done(),
            None => Verdict::new(404, format!("{owner} does not carry VIP {vip}")),
        },
        (Owner::Namespace { .. }, Owner::Namespace { .. }) => namespace(record, progress, snapshot, done),
    }
}

/// The writes that remain of the unbind of a Service that has the VIP alone.
pub(super) fn exclusive(vip: Vip, record: &Bind, carries: Option<&Tenant>) -> Vec<Write> {
    let begin = begin(vip, record);
    let release = carries.map(|tenant| release(vip, tenant)).unwrap_or_default();
    let erase = Write::Erase { vip, bind: Bind { unbinding: true, ..record.clone() } };
    begin.into_iter().chain(release).chain([erase]).collect()
}

fn begin(vip: Vip, record: &Bind) -> Option<Write> {
    (!record.unbinding).then(|| Write::Record { vip, bind: Bind { unbinding: true, ..record.clone() } })
}

/// A namespace is unbound once none of its Services carries the VIP. A Service may join between the observation and the write, so
/// that the record says `unbinding` first, and the Services are read again.
fn namespace(record: &Bind, progress: &Progress, snapshot: &Snapshot, done: impl Fn() -> Verdict) -> Verdict {
    let vip = snapshot.vip;
    if progress.recorded.is_some() {
        return Verdict::new(
            409,
            format!("VIP {vip} is carried by a Service of {}; unbind it first", record.owner),
        );
    }
    let carriers: Vec<String> = snapshot.carriers().map(|tenant| tenant.name.to_string()).collect();
    if carriers.is_empty() {
        let erase = Write::Erase { vip, bind: Bind { unbinding: true, ..record.clone() } };
        return done().after(begin(vip, record)).after([erase]);
    }
    let services = carriers.join(", ");
    let message = format!("VIP {vip} is carried by Service {services}; unbind these first");
    Verdict::new(409, message).after(resume(vip, record))
}

/// The unbind of a namespace is given up.
pub(super) fn resume(vip: Vip, record: &Bind) -> Option<Write> {
    record.unbinding.then(|| Write::Record { vip, bind: Bind { unbinding: false, ..record.clone() } })
}
