//! Every history of two NetworkInterfaces, two apinet NetworkInterfaces and one VirtualIP: changes by users and the MachinePool, the
//! writes of each plan one by one, and crashes between them. A write of a changed object is refused, as the API server does.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::collections::HashSet;

use super::*;
use crate::plan::fixtures::{config, deleting};

const ADDRESS: &str = "10.0.0.1";
/// Changes by users and the MachinePool in one history.
const CHANGES: u8 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Source {
    exists: bool,
    is_deleted: bool,
    /// The interface in the provider ID.
    names: Option<usize>,
    /// To the VirtualIP.
    has_reference: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Interface {
    holder: Option<usize>,
    has_address: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Object {
    Interface(usize),
    VirtualIp,
    Source,
}

/// A planned write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Write {
    object: Object,
    /// The state of an interface, or the holder of the VirtualIP in `holder`.
    becomes: Interface,
    is_outdated: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    changes: u8,
    sources: [Source; 2],
    interfaces: [Interface; 2],
    /// The holder of the VirtualIP.
    virtual_ip: Option<usize>,
    /// The writes of the current reconciliation of each source, the next one first.
    planned: [Vec<Write>; 2],
}

fn name(number: usize) -> String {
    format!("s{number}")
}

impl State {
    fn start() -> State {
        let source = Source { exists: true, is_deleted: false, names: None, has_reference: false };
        State {
            changes: 0,
            sources: [source; 2],
            interfaces: [Interface { holder: None, has_address: false }; 2],
            virtual_ip: None,
            planned: [Vec::new(), Vec::new()],
        }
    }

    fn snapshot(&self, number: usize) -> Snapshot {
        let Source { is_deleted, names, has_reference, .. } = self.sources[number];
        let metadata = ObjectMeta {
            name: Some(name(number)),
            namespace: Some("team".into()),
            uid: Some(name(number)),
            finalizers: Some(vec![config().flavor.finalizer(Kind::NetworkInterface)]),
            ..ObjectMeta::default()
        };
        let mut source = source::NetworkInterface { metadata, ..Default::default() };
        if is_deleted {
            deleting(&mut source.metadata);
        }
        source.spec.provider_id = names.map(|one| format!("apinet/i/node/{one}")).unwrap_or_default();
        let reference = source::VirtualIpSource {
            virtual_ip_ref: Some(crate::api::LocalRef { name: "vip".into() }),
            ephemeral: None,
        };
        source.spec.virtual_ip = has_reference.then_some(reference);
        let interfaces = (0..2).map(|one| self.interface(one)).collect();
        let mut virtual_ip = source::VirtualIp::default();
        virtual_ip.metadata.name = Some("vip".into());
        virtual_ip.spec.target_ref =
            self.virtual_ip.map(|holder| crate::api::LocalUidRef { name: name(holder), uid: name(holder) });
        virtual_ip.status.ip = Some(ADDRESS.into());
        Snapshot { source, interfaces, virtual_ips: vec![virtual_ip], ..Snapshot::default() }
    }

    fn interface(&self, number: usize) -> apinet::NetworkInterface {
        let Interface { holder, has_address } = self.interfaces[number];
        let mut interface = apinet::NetworkInterface::default();
        interface.metadata.uid = Some(number.to_string());
        interface.metadata.name = Some(number.to_string());
        if let Some(holder) = holder {
            let origin = Origin { uid: name(holder), namespace: "team".into(), name: name(holder) };
            let written = Keys::of(config().flavor, Kind::NetworkInterface).write(&origin, config().layout);
            interface.metadata.labels = Some(written.labels);
            interface.metadata.annotations = Some(written.annotations);
        }
        if has_address {
            interface.spec.public_ips = vec![apinet::NamedIp {
                name: ADDRESS.into(),
                ip_family: IpFamily::IPv4,
                ip: Some(ADDRESS.into()),
            }];
        }
        interface
    }

    /// The writes of a reconciliation of the state as it is now.
    fn plan(&self, number: usize) -> Vec<Write> {
        if !self.sources[number].exists {
            return Vec::new();
        }
        let config = Config { interface_status: false, ..config() };
        let plan = plan(&config, &self.snapshot(number), Timestamp::UNIX_EPOCH);
        let write = |act: &Act| {
            let of = |reference: &ObservedRef| Object::Interface(reference.uid.parse().unwrap());
            let (object, holder, has_address) = match act {
                Act::Claim(one, _, desired) | Act::Configure(one, _, desired) => {
                    (of(one), Some(number), !desired.public_ips.is_empty())
                }
                Act::Release(one, _) => (of(one), None, false),
                Act::ClaimVirtualIp(_) => (Object::VirtualIp, Some(number), false),
                Act::ReleaseVirtualIp(_) => (Object::VirtualIp, None, false),
                Act::RemoveFinalizer { .. } => (Object::Source, None, false),
                other => unreachable!("{other:?}"),
            };
            Write { object, becomes: Interface { holder, has_address }, is_outdated: false }
        };
        plan.steps.iter().map(|step| write(&step.action.act)).collect()
    }

    /// Executes the next write of a source; a refused one ends its reconciliation.
    fn execute(&mut self, number: usize) {
        let Write { object, becomes, is_outdated } = self.planned[number].remove(0);
        if is_outdated {
            self.planned[number].clear();
            return;
        }
        match object {
            Object::Interface(one) => {
                let holder = self.interfaces[one].holder;
                assert!(holder.is_none() || holder == Some(number), "a claim is taken away: {self:?}");
                self.interfaces[one] = becomes;
            }
            Object::VirtualIp => {
                assert!(self.virtual_ip.is_none() || self.virtual_ip == Some(number), "taken away: {self:?}");
                self.virtual_ip = becomes.holder;
            }
            Object::Source => self.sources[number].exists = false,
        }
        let others = self.planned.iter_mut().flatten().filter(|write| write.object == object);
        others.filter(|_| object != Object::Source).for_each(|write| write.is_outdated = true);
        for interface in self.interfaces.iter().filter(|one| one.has_address) {
            assert_eq!(self.virtual_ip, interface.holder, "an address in use is free for others: {self:?}");
        }
        let with_address = self.interfaces.iter().filter(|one| one.has_address).count();
        assert!(with_address < 2, "two interfaces have one address: {self:?}");
    }

    fn successors(&self) -> Vec<State> {
        let mut all = Vec::new();
        for number in 0..2 {
            let mut add = |change: &dyn Fn(&mut State)| {
                let mut next = self.clone();
                change(&mut next);
                all.push(next);
            };
            if self.planned[number].is_empty() {
                add(&|next| next.planned[number] = self.plan(number));
            } else {
                add(&|next| next.execute(number));
                // The process is stopped before the write.
                add(&|next| next.planned[number].clear());
            }
            let source = self.sources[number];
            if self.changes == CHANGES || !source.exists || source.is_deleted {
                continue;
            }
            let mut change = |change: &dyn Fn(&mut Source)| {
                add(&|next| {
                    next.changes += 1;
                    change(&mut next.sources[number]);
                });
            };
            for names in [None, Some(0), Some(1)] {
                change(&|source| source.names = names);
            }
            change(&|source| source.has_reference = !source.has_reference);
            change(&|source| source.is_deleted = true);
        }
        all
    }

    /// Lets both sources reconcile until nothing is to be done, without further changes.
    fn settle(mut self) -> State {
        for _ in 0..40 {
            for number in 0..2 {
                self.planned[number] = self.plan(number);
                while !self.planned[number].is_empty() {
                    self.execute(number);
                }
            }
            if (0..2).all(|number| self.plan(number).is_empty()) {
                return self;
            }
        }
        unreachable!("it never settles: {self:?}")
    }

    fn assert_settled(&self) {
        let live = |number: &usize| self.sources[*number].exists;
        assert!((0..2).all(|number| !live(&number) || !self.sources[number].is_deleted), "{self:?}");
        for (one, interface) in self.interfaces.iter().enumerate() {
            let naming: Vec<usize> =
                (0..2).filter(live).filter(|number| self.sources[*number].names == Some(one)).collect();
            assert_eq!(interface.holder.is_none(), naming.is_empty(), "{self:?}");
            assert!(interface.holder.is_none_or(|holder| naming.contains(&holder)), "{self:?}");
            let is_public = interface.holder.is_some() && interface.holder == self.virtual_ip;
            assert_eq!(interface.has_address, is_public, "{self:?}");
        }
        let referring: Vec<usize> =
            (0..2).filter(live).filter(|number| self.sources[*number].has_reference).collect();
        assert_eq!(self.virtual_ip.is_none(), referring.is_empty(), "{self:?}");
        assert!(self.virtual_ip.is_none_or(|holder| referring.contains(&holder)), "{self:?}");
    }
}

#[test]
fn every_history_is_safe_and_converges() {
    let mut seen = HashSet::from([State::start()]);
    let mut open = vec![State::start()];
    while let Some(state) = open.pop() {
        state.clone().settle().assert_settled();
        open.extend(state.successors().into_iter().filter(|next| seen.insert(next.clone())));
    }
    assert!(seen.len() > 10_000, "{} states are too few for this model", seen.len());
}
