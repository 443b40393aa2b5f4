//! Rules of the notifications, and a model of a network that loses, repeats and delays them.

use std::collections::HashSet;

use super::*;

fn vip(last: u8) -> Vip {
    Vip::new(IpAddr::from([192, 168, 50, last])).unwrap()
}

fn mac(last: u8) -> TunMac {
    TunMac::new([2, 0x63, 0, 0, 0, last]).unwrap()
}

fn node() -> Observed {
    Observed {
        vips: BTreeSet::from([vip(201), vip(202)]),
        configured: vec!["192.168.50.201-192.168.50.202".parse().unwrap()],
        node_ip: IpAddr::from([192, 168, 50, 21]),
        tun_mac: Some(mac(1)),
    }
}

fn vrrp(state: VrrpState, since: u64) -> Vrrp {
    Vrrp { state, since }
}

fn master(since: u64) -> Vrrp {
    vrrp(VrrpState::Master, since)
}

/// The time in a notification of this state.
fn master_since(vrrp: Vrrp) -> Option<u64> {
    (vrrp.state == VrrpState::Master).then_some(vrrp.since)
}

const ZERO: Duration = Duration::ZERO;

/// The attempt that is sent now.
fn sent(notifier: &mut Notifier, now: Duration, vrrp: Vrrp, node: &Observed) -> Attempt {
    match notifier.next(now, vrrp, node) {
        Next::Send(attempt, notification) => {
            assert_eq!(notification.since, master_since(vrrp));
            attempt
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_a_master_with_tunnel_and_vips_notifies() {
    let mut notifier = Notifier::default();
    for (vrrp, node) in [
        (vrrp(VrrpState::Init, 1), node()),
        (vrrp(VrrpState::Backup, 1), node()),
        (vrrp(VrrpState::Fault, 1), node()),
        (master(1), Observed { tun_mac: None, ..node() }),
        (master(1), Observed { vips: BTreeSet::new(), ..node() }),
    ] {
        assert_eq!(notifier.next(ZERO, vrrp, &node), Next::Idle, "{vrrp:?} {node:?}");
    }
    sent(&mut notifier, ZERO, master(1), &node());
}

#[test]
fn each_change_of_a_master_is_notified_once() {
    let mut notifier = Notifier::default();
    let changes = [
        (master(1), node()),
        (master(1), Observed { tun_mac: Some(mac(2)), ..node() }),
        (master(1), Observed { vips: BTreeSet::from([vip(201)]), ..node() }),
        (master(1), Observed { node_ip: IpAddr::from([192, 168, 50, 29]), ..node() }),
        (master(1), node()),
        (master(2), node()),
    ];
    for (vrrp, node) in changes {
        let attempt = sent(&mut notifier, ZERO, vrrp, &node);
        assert_eq!(notifier.next(ZERO, vrrp, &node), Next::InFlight);
        assert_eq!(notifier.done(ZERO, attempt, true), Some(0));
        assert_eq!(notifier.next(ZERO, vrrp, &node), Next::Idle);
    }
}

#[test]
fn a_failure_is_retried_with_backoff_and_a_newer_state_at_once() {
    let mut notifier = Notifier::default();
    let mut now = ZERO;
    for failures in 1..=10 {
        let attempt = sent(&mut notifier, now, master(1), &node());
        assert_eq!(notifier.done(now, attempt, false), Some(failures));
        let Next::WaitUntil(retry) = notifier.next(now, master(1), &node()) else { panic!() };
        assert!(retry > now && retry - now <= BACKOFF.max);
        now = retry;
    }
    let attempt = sent(&mut notifier, now, master(1), &node());
    notifier.done(now, attempt, false);
    sent(&mut notifier, now, master(2), &node());
}

#[test]
fn a_state_that_came_back_during_a_request_is_sent_too() {
    let mut notifier = Notifier::default();
    let attempt = sent(&mut notifier, ZERO, master(1), &node());
    notifier.done(ZERO, attempt, true);
    let changed = Observed { tun_mac: Some(mac(2)), ..node() };
    let aborted = sent(&mut notifier, ZERO, master(1), &changed);
    // The aborted request may have reached the controller.
    sent(&mut notifier, ZERO, master(1), &node());
    assert_eq!(notifier.done(ZERO, aborted, true), None, "a late response confirms nothing");
    assert_eq!(notifier.next(ZERO, master(1), &node()), Next::InFlight);
}

#[test]
fn a_new_promotion_is_notified_although_nothing_else_changed() {
    let mut notifier = Notifier::default();
    let attempt = sent(&mut notifier, ZERO, master(1), &node());
    notifier.done(ZERO, attempt, true);
    assert_eq!(notifier.next(ZERO, vrrp(VrrpState::Init, 2), &node()), Next::Idle);
    sent(&mut notifier, ZERO, master(1), &node());
}

#[test]
fn a_keeper_that_is_not_master_any_more_has_the_controller_poll_all_vips_once() {
    for state in [VrrpState::Backup, VrrpState::Fault] {
        let mut notifier = Notifier::default();
        assert_eq!(notifier.next(ZERO, vrrp(state, 1), &node()), Next::Idle, "it was not MASTER");
        let attempt = sent(&mut notifier, ZERO, master(1), &node());
        notifier.done(ZERO, attempt, true);
        // keepalived does not run in between, and had begun to remove the VIPs.
        assert_eq!(notifier.next(ZERO, vrrp(VrrpState::Init, 2), &node()), Next::Idle);
        let (other, without) = (vrrp(state, 2), Observed { vips: BTreeSet::new(), ..node() });
        let Next::Send(attempt, notification) = notifier.next(ZERO, other, &without) else { panic!() };
        assert_eq!((notification.vips.len(), notification.since), (2, None));
        assert_eq!(notifier.done(ZERO, attempt, false), Some(1));
        let Next::WaitUntil(retry) = notifier.next(ZERO, other, &without) else { panic!() };
        let attempt = sent(&mut notifier, retry, other, &without);
        assert_eq!(notifier.done(retry, attempt, true), Some(0));
        assert_eq!(notifier.next(retry, other, &without), Next::Idle);
        sent(&mut notifier, retry, master(3), &node());
    }
}

/// A keeper, a network and a controller. The controller reads the status servers when it is notified. Another gateway is MASTER all the
/// time, for longer than this one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Model {
    notifier: Notifier,
    state: usize,
    network: Vec<Sent>,
    /// The state that the controller has written; the one of a BACKUP: the other gateway.
    stored: usize,
    /// Ends the waits: the model's clock.
    now: Duration,
}

/// A request in the network.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Sent {
    attempt: Attempt,
    is_master: bool,
    is_processed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    /// The node's state changes to one of [`states`].
    Change(usize),
    /// The controller processes a request; it stays in the network, so it can be processed twice.
    Process(usize),
    /// A request is lost, or its response is: the sender sees a failure.
    Fail(usize),
    /// The response arrives.
    Respond(usize),
}

fn states() -> [(Vrrp, Observed); 4] {
    [
        (vrrp(VrrpState::Backup, 1), node()),
        (master(2), node()),
        (master(2), Observed { tun_mac: Some(mac(2)), ..node() }),
        (master(3), node()),
    ]
}

impl Model {
    fn new() -> Model {
        Model { notifier: Notifier::default(), state: 0, network: Vec::new(), stored: 0, now: ZERO }
    }

    /// The keeper acts until it waits.
    fn settle(&mut self) {
        let (vrrp, node) = &states()[self.state];
        loop {
            match self.notifier.next(self.now, *vrrp, node) {
                Next::Send(attempt, notification) => {
                    assert_eq!(notification.since, master_since(*vrrp), "an old state is sent");
                    let is_master = notification.since.is_some();
                    self.network.push(Sent { attempt, is_master, is_processed: false });
                }
                Next::WaitUntil(time) => {
                    assert!(time > self.now);
                    self.now = time;
                }
                Next::Idle | Next::InFlight => return,
            }
        }
    }

    fn apply(&mut self, op: Op) -> bool {
        match op {
            Op::Change(state) if state != self.state => self.state = state,
            Op::Process(index) => {
                let is_master = states()[self.state].0.state == VrrpState::Master;
                let Some(request) = self.network.get_mut(index) else { return false };
                request.is_processed = true;
                // A request of a MASTER that is late has no effect.
                if is_master || !request.is_master {
                    self.stored = self.state;
                }
            }
            Op::Fail(index) if index < self.network.len() => {
                let attempt = self.network[index].attempt;
                self.notifier.done(self.now, attempt, false);
            }
            Op::Respond(index) if self.network.get(index).is_some_and(|request| request.is_processed) => {
                let request = self.network.remove(index);
                self.notifier.done(self.now, request.attempt, true);
            }
            _ => return false,
        }
        self.settle();
        true
    }

    /// The network works from now on.
    fn quiesce(&mut self) {
        for _ in 0..8 {
            self.settle();
            while !self.network.is_empty() {
                self.apply(Op::Process(0));
                self.apply(Op::Respond(0));
            }
        }
    }

    fn check(&self) {
        let mut end = self.clone();
        end.quiesce();
        let (vrrp, node) = &states()[end.state];
        assert_eq!(end.stored, end.state, "the controller has an old state");
        assert_eq!(end.notifier.next(end.now, *vrrp, node), Next::Idle, "a request without a change");
    }
}

#[test]
fn the_controller_ends_with_the_current_state_after_every_history() {
    let ops: Vec<Op> = (0..states().len())
        .map(Op::Change)
        .chain((0..3).flat_map(|index| [Op::Process(index), Op::Fail(index), Op::Respond(index)]))
        .collect();
    let mut seen = HashSet::new();
    let mut frontier = vec![Model::new()];
    for _depth in 0..10 {
        let mut next = Vec::new();
        for model in frontier {
            for op in &ops {
                let mut model = model.clone();
                if model.apply(*op) && model.network.len() <= 3 && seen.insert(model.clone()) {
                    model.check();
                    next.push(model);
                }
            }
        }
        frontier = next;
    }
    // A change of the model must not make it trivial.
    assert!(seen.len() > 4_000, "{} states are too few", seen.len());
}
