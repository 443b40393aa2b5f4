//! Every history of two replicas with a request each and a repair beside them: reads and writes interleave in each order, and each
//! replica may stop before each of them.

use std::collections::HashSet;

use super::super::repair::repair;
use super::*;

/// The API server: records with one version for all, and Services with a version each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct State {
    binds: BTreeMap<Vip, Bind>,
    version: u64,
    services: BTreeMap<ServiceName, Tenant>,
}

impl State {
    pub fn of(snapshot: &Snapshot) -> State {
        State { binds: BTreeMap::clone(&snapshot.binds), version: 1, services: snapshot.services.clone() }
    }

    pub fn observe(&self, of: &Snapshot) -> Snapshot {
        Snapshot { binds: Arc::new(self.binds.clone()), services: self.services.clone(), ..of.clone() }
    }

    /// Executes a write whose preconditions are met. False: a conflict.
    fn write(&mut self, write: &Write, observed: &Observed) -> bool {
        match write {
            Write::Record { .. } | Write::Erase { .. } => {
                if observed.version != self.version {
                    return false;
                }
                match write {
                    Write::Record { vip, bind } => self.binds.insert(*vip, bind.clone()),
                    _ => self.binds.remove(&write.vip()),
                };
                self.version += 1;
                let numbers: BTreeSet<_> = self.binds.values().map(|bind| bind.tun_id).collect();
                assert_eq!(numbers.len(), self.binds.len(), "a number is used twice: {:?}", self.binds);
            }
            _ => {
                let name = write.service().unwrap();
                let service = self.services.get_mut(name).unwrap();
                if observed.services[name].version != service.version {
                    return false;
                }
                let (ours, mode) = (write.vip().address(), Some("Proxy".to_owned()));
                match write {
                    Write::Carry { carried, .. } => {
                        assert!(carried.epoch >= service.epoch, "an epoch decreases: {write:?}");
                        service.vip = Some(carried.vip);
                        service.carried = Some(*carried);
                        service.epoch = carried.epoch;
                    }
                    Write::Release { .. } => (service.vip, service.carried) = (None, None),
                    Write::Publish { .. } => service.listed.push(Listed { ip: ours, ip_mode: mode }),
                    _ => service.listed.retain(|one| one.ip != ours),
                }
                let version: u64 = service.version.parse().unwrap();
                service.version = (version + 1).to_string();
            }
        }
        true
    }

    fn observed(&self) -> Observed {
        Observed { binds: self.binds.clone(), version: self.version, services: self.services.clone() }
    }

    /// Runs a request alone. Returns the reply and the writes.
    pub fn complete(&mut self, request: &Request, of: &Snapshot) -> (Reply, Vec<Write>) {
        let (mut progress, mut writes) = (Progress::default(), Vec::new());
        for _ in 0..20 {
            let verdict = plan(request, &progress, &self.observe(of));
            let Some(write) = verdict.writes.into_iter().next() else { return (verdict.reply, writes) };
            let observed = self.observed();
            assert!(self.write(&write, &observed));
            progress.add(&write);
            writes.push(write);
        }
        panic!("{request:?} does not end: {writes:?}");
    }

    /// Runs repairs of both VIPs until nothing remains.
    pub fn repair(&mut self, of: &Snapshot) {
        for address in [of.vip, vip(VIP), vip(OTHER)] {
            for round in 0.. {
                assert!(round < 20, "repairs do not end: {self:?}");
                let of = Snapshot { vip: address, ..self.observe(of) };
                let Some(write) = first(&of) else { break };
                let observed = self.observed();
                assert!(self.write(&write, &observed));
            }
        }
    }
}

fn first(snapshot: &Snapshot) -> Option<Write> {
    let repair = repair(snapshot);
    repair.delayed.into_iter().chain(repair.refresh).next()
}

/// What a replica has read.
#[derive(Clone, Debug)]
struct Observed {
    binds: BTreeMap<Vip, Bind>,
    version: u64,
    services: BTreeMap<ServiceName, Tenant>,
}

/// One replica with one request, or with a repair.
#[derive(Clone, Debug)]
struct Replica {
    vip: Vip,
    request: Option<Request>,
    progress: Progress,
    read: Reading,
}

#[derive(Clone, Debug)]
enum Reading {
    Nothing,
    /// The store is read first, the Services later.
    Store(BTreeMap<Vip, Bind>, u64),
    All(Box<Observed>),
    Ended(Option<u16>),
}

impl Replica {
    fn new(address: &str, request: Option<Request>) -> Replica {
        Replica { vip: vip(address), request, progress: Progress::default(), read: Reading::Nothing }
    }

    fn is_ended(&self) -> bool {
        matches!(self.read, Reading::Ended(_))
    }

    fn succeeded(&self) -> bool {
        matches!(self.read, Reading::Ended(Some(200 | 201)))
    }

    /// One step: a read, or a write and its result.
    fn step(&mut self, state: &mut State) {
        self.read = match std::mem::replace(&mut self.read, Reading::Nothing) {
            Reading::Nothing => Reading::Store(state.binds.clone(), state.version),
            Reading::Store(binds, version) => {
                let services = state.services.clone();
                Reading::All(Box::new(Observed { binds, version, services }))
            }
            Reading::All(observed) => {
                let snapshot = Snapshot {
                    vip: self.vip,
                    binds: Arc::new(observed.binds.clone()),
                    services: observed.services.clone(),
                    ..free()
                };
                let (write, code) = match &self.request {
                    Some(request) => {
                        let verdict = plan(request, &self.progress, &snapshot);
                        (verdict.writes.into_iter().next(), Some(verdict.reply.code))
                    }
                    None => (first(&snapshot), None),
                };
                match write {
                    None => Reading::Ended(code),
                    Some(write) => {
                        if state.write(&write, &observed) {
                            self.progress.add(&write);
                        } else {
                            self.progress.add_conflict(&write);
                        }
                        Reading::Nothing
                    }
                }
            }
            ended @ Reading::Ended(_) => ended,
        };
    }
}

/// Every history from one state.
fn explore(
    state: State,
    replicas: Vec<Replica>,
    stops: u8,
    check: &dyn Fn(&State, &[Replica], bool),
) -> usize {
    let (mut seen, mut stack) = (HashSet::new(), vec![(state, replicas, stops)]);
    while let Some((state, replicas, stops)) = stack.pop() {
        if !seen.insert(format!("{state:?}{replicas:?}{stops}")) {
            continue;
        }
        if replicas.iter().all(Replica::is_ended) {
            let mut repaired = state.clone();
            repaired.repair(&free());
            check(&repaired, &replicas, repaired != state);
            continue;
        }
        for (index, replica) in replicas.iter().enumerate().filter(|(_, replica)| !replica.is_ended()) {
            let (mut next, mut moved) = (state.clone(), replicas.clone());
            moved[index].step(&mut next);
            stack.push((next, moved, stops));
            if stops > 0 && !matches!(replica.read, Reading::Nothing) {
                let mut stopped = replicas.clone();
                stopped[index].read = Reading::Ended(None);
                stack.push((state.clone(), stopped, stops - 1));
            }
        }
    }
    seen.len()
}

/// The rules that hold when no request is in progress and the repairs are done.
fn check_rules(state: &State) {
    for (vip, bind) in &state.binds {
        assert!(!bind.unbinding, "{state:?}");
        if let Owner::Service { namespace, service } = &bind.owner {
            let tenant = &state.services[&ServiceName::new(namespace, service)];
            assert!(tenant.vip.is_some(), "{vip} is recorded and not carried: {state:?}");
        }
    }
    let mut ports = BTreeSet::new();
    for tenant in state.services.values() {
        let Some(vip) = tenant.vip else {
            assert!(tenant.listed.is_empty(), "{state:?}");
            continue;
        };
        let bind = &state.binds[&vip];
        assert!(bind.owner.admits(&tenant.name.namespace, &tenant.name.name), "{state:?}");
        assert_eq!(tenant.carried.unwrap().tun_id, bind.tun_id);
        assert!(tenant.ports.iter().all(|port| ports.insert((vip, port.clone()))), "same port: {state:?}");
        assert!(tenant.publication.shows(vip, &tenant.listed), "{state:?}");
    }
}

fn starts() -> Vec<State> {
    let starts = [
        free(),
        with(free(), namespace("x"), &[]),
        with(free(), namespace("x"), &["a"]),
        with(free(), service("x", "a"), &["a"]),
    ];
    let only = |mut snapshot: Snapshot| {
        snapshot.services.retain(|name, _| ["a", "same"].contains(&name.name.as_str()));
        State::of(&snapshot)
    };
    starts.into_iter().map(only).collect()
}

fn requests() -> Vec<Request> {
    let owners = [namespace("x"), service("x", "a"), service("x", "same")];
    owners.iter().flat_map(|owner| [Request::Bind(owner.clone()), Request::Unbind(owner.clone())]).collect()
}

#[test]
fn two_replicas_and_a_crash_leave_no_half_binding() {
    let mut states = 0;
    for start in starts() {
        for one in requests() {
            for two in requests() {
                let replicas =
                    vec![Replica::new(VIP, Some(one.clone())), Replica::new(VIP, Some(two.clone()))];
                states += explore(start.clone(), replicas, 1, &|state, replicas, _| {
                    check_rules(state);
                    check_replies(&start, state, replicas);
                });
            }
        }
    }
    assert!(states > 10_000, "{states}");
}

/// A reply of success holds afterwards, unless the other request contradicts it.
fn check_replies(start: &State, state: &State, replicas: &[Replica]) {
    let is_unbind = |replica: &Replica| matches!(replica.request, Some(Request::Unbind(_)));
    let is_stopped = |replica: &Replica| matches!(replica.read, Reading::Ended(None));
    let bound = |owner: &Owner| match owner {
        Owner::Namespace { .. } => state.binds.get(&vip(VIP)).is_some_and(|bind| bind.owner == *owner),
        Owner::Service { namespace, service } => {
            state.services[&ServiceName::new(namespace, service)].vip == Some(vip(VIP))
        }
    };
    for (index, replica) in replicas.iter().enumerate().filter(|(_, replica)| replica.succeeded()) {
        let others = || replicas.iter().enumerate().filter(|(other, _)| *other != index).map(|(_, one)| one);
        match replica.request.as_ref().unwrap() {
            Request::Bind(owner) if !others().any(is_unbind) => {
                assert!(bound(owner), "{start:?} {state:?} {replicas:?}");
            }
            Request::Unbind(owner) if others().all(is_unbind) => {
                assert!(!bound(owner), "{start:?} {state:?} {replicas:?}");
            }
            _ => {}
        }
    }
    // Without a success and without a stop nothing has changed.
    if !replicas.iter().any(|replica| replica.succeeded() || is_stopped(replica)) {
        let carried = |state: &State| -> Vec<Option<Vip>> {
            state.services.values().map(|tenant| tenant.vip).collect()
        };
        assert_eq!((&state.binds, carried(state)), (&start.binds, carried(start)), "{replicas:?}");
    }
}

#[test]
fn a_repair_at_any_moment_of_a_request_changes_no_result() {
    for start in starts() {
        for request in requests() {
            let alone = {
                let mut state = start.clone();
                let (reply, _) = state.complete(&request, &free());
                state.repair(&free());
                (reply.code, state)
            };
            let replicas = vec![Replica::new(VIP, Some(request.clone())), Replica::new(VIP, None)];
            explore(start.clone(), replicas, 0, &|state, replicas, _| {
                check_rules(state);
                let Reading::Ended(Some(code)) = replicas[0].read else { panic!("not ended") };
                assert_eq!(code, alone.0, "{request:?} {start:?}");
                assert_eq!(state.binds, alone.1.binds, "{request:?} {start:?}");
            });
        }
    }
}

#[test]
fn a_retry_after_a_crash_completes_the_request() {
    for start in starts() {
        for request in requests() {
            let mut undisturbed = start.clone();
            let (reply, writes) = undisturbed.complete(&request, &free());
            for stop in 0..writes.len() {
                let (mut state, mut progress) = (start.clone(), Progress::default());
                for _ in 0..=stop {
                    let verdict = plan(&request, &progress, &state.observe(&free()));
                    let write = verdict.writes.first().unwrap().clone();
                    let observed = state.observed();
                    assert!(state.write(&write, &observed));
                    progress.add(&write);
                }
                let (retried, _) = state.complete(&request, &free());
                // A bind that was recorded is 200, and an unbind that was completed is 404.
                let is_same =
                    |code| code == reply.code || matches!((reply.code, code), (201, 200) | (200, 404));
                assert!(is_same(retried.code), "{request:?} {retried:?}");
                let carried = |state: &State| -> Vec<Option<Vip>> {
                    state.services.values().map(|tenant| tenant.vip).collect()
                };
                assert_eq!((&state.binds, carried(&state)), (&undisturbed.binds, carried(&undisturbed)));
            }
        }
    }
}

#[test]
fn of_two_vips_for_one_service_one_is_bound() {
    let start = starts().swap_remove(0);
    for (one, two) in [
        (service("x", "a"), service("x", "a")),
        (namespace("x"), service("x", "a")),
        (service("x", "same"), service("x", "a")),
    ] {
        let replicas =
            vec![Replica::new(VIP, Some(Request::Bind(one))), Replica::new(OTHER, Some(Request::Bind(two)))];
        explore(start.clone(), replicas, 1, &|state, _, _| check_rules(state));
    }
}
