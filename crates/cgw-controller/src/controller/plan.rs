//! The rules of bindings: a pure function of a request, of what it has written so far, and of the observed state.
//!
//! ```text
//!   bind      record (precondition: resourceVersion) ── annotations ── ingress ── check: does the record still admit the Service?
//!   unbind    record.unbinding ── ingress removed ── annotations removed ── record removed
//! ```
//!
//! Several replicas act at the same time, and each may stop between two writes. Every write has a precondition, and before each
//! write the state is observed and planned again. Two rules make this sound:
//!
//! * All records are annotations of one object, and each change of a record requires its resourceVersion: a VIP has one record, and
//!   a [`TunId`] one VIP.
//! * A bind writes the annotations and then reads the record; an unbind writes `unbinding` to the record and then reads the
//!   annotations. At least one of both sees the other: the bind then undoes its write.
//!
//! `bind` and `unbind` have the decision table of requests, `repair` finishes what a crash
//! left, `master` decides which gateway carries a VIP, and `lost` which keepers do not exist any more.

mod action;
mod bind;
mod ingress;
pub mod lost;
pub mod master;
pub mod repair;
#[cfg(test)]
mod tests;
mod unbind;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use common::cache::ObjectKey;

pub use self::action::{Cause, Write};
pub use self::ingress::{IpMode, Listed, Publication};
pub use self::master::Master;
use crate::api::service::Carried;
use crate::api::stores::{Bind, Owner};
use crate::api::{Epoch, ParseError, TunId, Vip};

/// Protocol and port of a Service, such as `TCP/80`. Two Services of one VIP must not have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port that clients use.
    pub port: u16,
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.protocol, self.port)
    }
}

/// A tenant's Service as it was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its namespace and name.
    pub name: ObjectKey,
    /// metadata.uid
    pub uid: String,
    /// metadata.resourceVersion, the precondition of each write.
    pub version: String,
    /// The VIP of its annotations, also where another annotation is invalid.
    pub vip: Option<Vip>,
    /// All annotations of a bound Service. None also where one is invalid.
    pub carried: Option<Carried>,
    /// The annotation `tun-id` of a Service that has no annotation `vip`: the number that its owner desires for its binding.
    pub desired_tun_id: Option<Result<TunId, ParseError>>,
    /// The annotation `epoch`, which stays after an unbind.
    pub epoch: Epoch,
    /// `spec.ports`.
    pub ports: BTreeSet<Port>,
    /// Where Kubernetes shows the VIP.
    pub publication: Publication,
    /// The addresses that are there now.
    pub listed: Vec<Listed>,
}

impl Tenant {
    /// Whether its status shows the VIP, which it does not carry: another client removed or changed the annotation `vip`.
    #[must_use]
    pub fn has_stale_ingress(&self, vip: Vip) -> bool {
        matches!(self.publication, Publication::Status(_))
            && self.vip != Some(vip)
            && self.publication.has(vip, &self.listed)
    }
}

/// The observed state of one VIP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The VIP.
    pub vip: Vip,
    /// Every record: the numbers in use, and the other VIPs of a Service.
    pub binds: Arc<BTreeMap<Vip, Bind>>,
    /// Whether an entry of the store `hosts` has the VIP.
    pub is_served: bool,
    /// Whether the namespace of the request, or of the record, exists and is not being deleted.
    pub has_namespace: bool,
    /// The Services of the request or of the record, and those that carry the VIP; for repairs also those whose status shows it. One that
    /// is being deleted is absent.
    pub services: BTreeMap<ObjectKey, Tenant>,
    /// The gateway that is MASTER. None: not known.
    pub master: Option<Master>,
    /// The keepers were polled twice, and none was MASTER. The annotations still name the last gateway.
    pub has_no_master: bool,
}

impl Snapshot {
    /// The record of the VIP.
    #[must_use]
    pub fn record(&self) -> Option<&Bind> {
        self.binds.get(&self.vip)
    }

    /// The Services that carry the VIP and that a binding admits.
    pub fn carriers(&self) -> impl Iterator<Item = &Tenant> {
        let admits = |tenant: &&Tenant| self.record().is_some_and(|bind| bind.owner.admits(&tenant.name));
        self.services.values().filter(|tenant| tenant.vip == Some(self.vip)).filter(admits)
    }

    /// Another VIP that the Service carries and that a binding admits. Annotations that no binding admits have no effect.
    fn other_vip(&self, tenant: &Tenant) -> Option<Vip> {
        let vip = tenant.vip.filter(|vip| *vip != self.vip)?;
        let bind = self.binds.get(&vip)?;
        bind.owner.admits(&tenant.name).then_some(vip)
    }
}

/// A request to change a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `POST /vip` with a namespace.
    Bind(Owner),
    /// `DELETE /vip/{vip}/...`
    Unbind(Owner),
}

/// The writes of one request so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// It recorded the binding with this number; of an unbind: it gave up, and removed `unbinding`.
    pub recorded: Option<TunId>,
    /// It wrote the annotations of a Service that did not carry the VIP.
    pub joined: bool,
    /// It wrote `unbinding` to the record with this number, or removed it.
    pub unbinding: Option<TunId>,
    /// It removed the annotations.
    pub released: bool,
    /// It added the VIP where Kubernetes shows it.
    pub published: bool,
    /// A conflict left open whether it wrote the annotations.
    pub may_have_joined: bool,
    /// A conflict left open whether it removed the annotations.
    pub may_have_released: bool,
}

impl Progress {
    /// Adds a write that succeeded.
    pub fn add(&mut self, write: &Write) {
        match write {
            Write::Record { bind, .. } if bind.unbinding => self.unbinding = Some(bind.tun_id),
            Write::Record { bind, .. } => self.recorded = Some(bind.tun_id),
            Write::Carry { is_new: true, .. } => self.joined = true,
            Write::Release { .. } => self.released = true,
            Write::Publish { .. } => self.published = true,
            Write::Erase { bind, .. } => self.unbinding = Some(bind.tun_id),
            _ => {}
        }
    }

    /// Adds a write that was refused because its precondition was not met. It may have been executed: where a response is lost, the
    /// client repeats the request, and its own first write is the conflict.
    pub fn add_conflict(&mut self, write: &Write) {
        match write {
            Write::Carry { is_new: true, .. } => self.may_have_joined = true,
            Write::Release { .. } => self.may_have_released = true,
            Write::Record { bind, .. } if bind.unbinding => self.add(write),
            Write::Erase { .. } => self.add(write),
            // A record that is not the observed one is read again.
            _ => {}
        }
    }
}

/// The response to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub code: u16,
    /// One sentence for a person.
    pub message: String,
}

/// The writes that remain, in order, and the response after that. Only the first write is executed; then the state is observed
/// and planned again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The writes.
    pub writes: Vec<Write>,
    /// The response if all of them succeed.
    pub reply: Reply,
}

impl Verdict {
    fn new(code: u16, message: impl Into<String>) -> Verdict {
        Verdict { writes: Vec::new(), reply: Reply { code, message: message.into() } }
    }

    fn after(mut self, writes: impl IntoIterator<Item = Write>) -> Verdict {
        self.writes.extend(writes);
        self
    }
}

/// Decides a request.
#[must_use]
pub fn plan(request: &Request, progress: &Progress, snapshot: &Snapshot) -> Verdict {
    match request {
        Request::Bind(owner) => bind::bind(owner, progress, snapshot),
        Request::Unbind(owner) => unbind::unbind(owner, progress, snapshot),
    }
}

/// The Service of an owner, if it names one.
#[must_use]
pub fn named(owner: &Owner) -> Option<ObjectKey> {
    match owner {
        Owner::Namespace { .. } => None,
        Owner::Service { namespace, service } => Some(ObjectKey::new(namespace, service)),
    }
}

/// The writes that remove the VIP from a Service: ingress first, because the annotation is what finds it after a crash.
fn release(vip: Vip, tenant: &Tenant) -> Vec<Write> {
    let (service, uid) = (tenant.name.clone(), tenant.uid.clone());
    let first = tenant.publication.has(vip, &tenant.listed).then(|| retract(vip, tenant));
    first.into_iter().chain([Write::Release { vip, service, uid }]).collect()
}

fn retract(vip: Vip, tenant: &Tenant) -> Write {
    Write::Retract { vip, service: tenant.name.clone(), uid: tenant.uid.clone() }
}

/// The writes after which the Service carries the VIP, with the gateway that is in force. None: it already does.
fn carry(bind: &Bind, snapshot: &Snapshot, tenant: &Tenant) -> Vec<Write> {
    let vip = snapshot.vip;
    let (service, uid) = (tenant.name.clone(), tenant.uid.clone());
    let desired = desired(bind, snapshot, tenant);
    let is_new = tenant.vip != Some(vip);
    let carry = (tenant.carried != Some(desired)).then(|| Write::Carry {
        service: service.clone(),
        uid: uid.clone(),
        carried: desired,
        is_new,
    });
    let is_shown = tenant.publication.shows(vip, &tenant.listed);
    let publish = (!is_shown).then_some(Write::Publish { vip, service, uid });
    carry.into_iter().chain(publish).collect()
}

/// The annotations of a Service that is bound.
fn desired(bind: &Bind, snapshot: &Snapshot, tenant: &Tenant) -> Carried {
    // The gateway of another VIP does not count.
    let current = tenant.carried.filter(|carried| carried.vip == snapshot.vip);
    let (gateway, epoch) =
        master::newer(current.and_then(|carried| carried.gateway), tenant.epoch, snapshot.master.as_ref());
    Carried { vip: snapshot.vip, tun_id: bind.tun_id, gateway, epoch }
}

/// The annotations of a Service that carries the VIP, if the gateway in force differs from theirs.
#[must_use]
pub fn refresh(snapshot: &Snapshot, tenant: &Tenant) -> Option<Write> {
    let writes = updates(snapshot, tenant);
    writes.into_iter().find(|write| matches!(write, Write::Carry { .. }))
}

/// The writes of a Service that carries the VIP.
fn updates(snapshot: &Snapshot, tenant: &Tenant) -> Vec<Write> {
    let admits = |bind: &&Bind| bind.owner.admits(&tenant.name);
    match snapshot.record().filter(admits) {
        Some(bind) if tenant.vip == Some(snapshot.vip) => carry(bind, snapshot, tenant),
        _ => Vec::new(),
    }
}
