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
    services: BTreeMap<ObjectKey, Tenant>,
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
                        service.desired_tun_id = None;
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

    /// Runs repairs of both VIPs until nothing remains: a write for one VIP may allow one for the other.
    pub fn repair(&mut self, of: &Snapshot) {
        for round in 0.. {
            assert!(round < 20, "repairs do not end: {self:?}");
            let snapshots = [VIP, OTHER].map(|address| Snapshot { vip: vip(address), ..self.observe(of) });
            let Some(write) = snapshots.iter().find_map(first) else { break };
            let observed = self.observed();
            assert!(self.write(&write, &observed));
        }
    }
}

fn first(snapshot: &Snapshot) -> Option<Write> {
    let repair = repair(snapshot);
    repair.delayed.into_iter().chain(repair.refresh).next()
}

/// The objects that a replica has read.
#[derive(Clone, Debug)]
struct Observed {
    binds: BTreeMap<Vip, Bind>,
    version: u64,
    services: BTreeMap<ObjectKey, Tenant>,
}

/// Writes of a repair beside a request: a repair and an unbind may repeat theirs, in an order that never occurs for long.
const REPAIRS: u8 = 4;

/// One replica with one request, or with a repair.
#[derive(Clone, Debug)]
struct Replica {
    repairs: u8,
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
    /// A repair reads the store once more: no record changed while the Services were read.
    Twice(Box<Observed>),
    All(Box<Observed>),
    Ended(Option<u16>),
}

impl Replica {
    fn new(address: &str, request: Option<Request>) -> Replica {
        Replica {
            repairs: 0,
            vip: vip(address),
            request,
            progress: Progress::default(),
            read: Reading::Nothing,
        }
    }

    fn is_ended(&self) -> bool {
        matches!(self.read, Reading::Ended(_))
    }

    fn is_stopped(&self) -> bool {
        self.request.is_some() && matches!(self.read, Reading::Ended(None))
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
                let observed = Box::new(Observed { binds, version, services });
                if self.request.is_some() { Reading::All(observed) } else { Reading::Twice(observed) }
            }
            Reading::Twice(observed) => {
                let is_same = observed.binds.get(&self.vip) == state.binds.get(&self.vip);
                if is_same { Reading::All(observed) } else { Reading::Nothing }
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
                    None => (first(&snapshot).filter(|_| self.repairs < REPAIRS), None),
                };
                match write {
                    None => Reading::Ended(code),
                    Some(write) => {
                        self.repairs += u8::from(self.request.is_none());
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

/// The parts that differ between states of one exploration.
fn key(state: &State, replicas: &[Replica], stops: u8) -> Vec<u64> {
    let mut key = vec![u64::from(stops)];
    let records = |binds: &BTreeMap<Vip, Bind>, version: u64, key: &mut Vec<u64>| {
        key.extend([version, binds.len() as u64]);
        for (vip, bind) in binds {
            let owner = match &bind.owner {
                Owner::Namespace { .. } => 0,
                Owner::Service { service, .. } => 1 + service.len() as u64,
            };
            let number = u64::from(bind.tun_id.number()) * 2 + u64::from(bind.unbinding);
            key.extend([u64::from(*vip == super::vip(VIP)), owner, number]);
        }
    };
    let services = |services: &BTreeMap<ObjectKey, Tenant>, key: &mut Vec<u64>| {
        for tenant in services.values() {
            let carried = tenant
                .carried
                .map_or((0, 0), |carried| (u64::from(carried.tun_id.number()), carried.epoch.0));
            let vip = tenant.vip.map_or(0, |vip| 1 + u64::from(vip == super::vip(VIP)));
            let version = tenant.version.parse().unwrap();
            key.extend([vip, carried.0, carried.1, tenant.epoch.0, version, tenant.listed.len() as u64]);
        }
    };
    records(&state.binds, state.version, &mut key);
    services(&state.services, &mut key);
    for Replica { progress, read, repairs, .. } in replicas {
        let number = |number: Option<TunId>| number.map_or(0, |number| u64::from(number.number()));
        let flags =
            [progress.joined, progress.released, progress.may_have_joined, progress.may_have_released];
        let flags = flags.iter().fold(u64::from(*repairs), |bits, flag| bits * 2 + u64::from(*flag));
        key.extend([number(progress.recorded), number(progress.unbinding), flags]);
        match read {
            Reading::Nothing => key.push(0),
            Reading::Store(binds, version) => {
                key.push(1);
                records(binds, *version, &mut key);
            }
            Reading::All(observed) | Reading::Twice(observed) => {
                key.push(if matches!(read, Reading::All(_)) { 2 } else { 4 });
                records(&observed.binds, observed.version, &mut key);
                services(&observed.services, &mut key);
            }
            Reading::Ended(code) => key.extend([3, code.map_or(0, u64::from)]),
        }
    }
    key
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
        if !seen.insert(key(&state, &replicas, stops)) {
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
fn check_rules(state: &State, replicas: &[Replica]) {
    for (vip, bind) in &state.binds {
        assert!(!bind.unbinding, "{state:?}");
        if let Owner::Service { namespace, service } = &bind.owner {
            let tenant = &state.services[&ObjectKey::new(namespace, service)];
            assert!(tenant.vip.is_some(), "{vip} is recorded and not carried: {state:?}");
        }
    }
    // A bind that stopped before its check may leave two Services with one port, which is reported as a problem.
    let is_stopped = replicas.iter().any(Replica::is_stopped);
    let mut ports = BTreeSet::new();
    for tenant in state.services.values() {
        let Some(vip) = tenant.vip else {
            assert!(tenant.listed.is_empty(), "{state:?}");
            continue;
        };
        let bind = &state.binds[&vip];
        assert!(bind.owner.admits(&tenant.name), "{state:?}");
        assert_eq!(tenant.carried.unwrap().tun_id, bind.tun_id);
        let is_unique = tenant.ports.iter().all(|port| ports.insert((vip, port.clone())));
        assert!(is_unique || is_stopped, "same port: {state:?}");
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
        snapshot.services.retain(|name, _| ["a", "same"].contains(&name.name()));
        // One of the two shows the VIP in its status.
        for tenant in snapshot.services.values_mut().filter(|tenant| tenant.name.name() == "a") {
            tenant.publication = Publication::Status(IpMode::Proxy);
            let shown = |vip: Vip| Listed { ip: vip.address(), ip_mode: Some("Proxy".to_owned()) };
            tenant.listed = tenant.vip.map(shown).into_iter().collect();
        }
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
        for (number, one) in requests().into_iter().enumerate() {
            // The order of the two replicas makes no difference.
            for two in requests().into_iter().skip(number) {
                let replicas =
                    vec![Replica::new(VIP, Some(one.clone())), Replica::new(VIP, Some(two.clone()))];
                states += explore(start.clone(), replicas, 2, &|state, replicas, _| {
                    check_rules(state, replicas);
                    check_replies(&start, state, replicas);
                });
            }
        }
    }
    assert!(states > 10_000, "{states} states");
}

/// A reply of success holds afterwards, unless the other request contradicts it.
fn check_replies(start: &State, state: &State, replicas: &[Replica]) {
    let is_unbind = |replica: &Replica| matches!(replica.request, Some(Request::Unbind(_)));
    let bound = |owner: &Owner| match owner {
        Owner::Namespace { .. } => state.binds.get(&vip(VIP)).is_some_and(|bind| bind.owner == *owner),
        Owner::Service { namespace, service } => {
            state.services[&ObjectKey::new(namespace, service)].vip == Some(vip(VIP))
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
    if !replicas.iter().any(|replica| replica.succeeded() || replica.is_stopped()) {
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
                check_rules(state, replicas);
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
        explore(start.clone(), replicas, 1, &|state, replicas, _| check_rules(state, replicas));
    }
}
