//! Rules of the notifications, and a model of a network that loses, repeats and delays them.

use std::collections::HashSet;

use super::*;

fn vip(last: u8) -> Vip {
    Vip::new(IpAddr::from([192, 168, 50, last])).unwrap()
}

fn mac(last: u8) -> TunMac {
    TunMac::new([2, 0x63, 0, 0, 0, last]).unwrap()
}

fn view(state: VrrpState, since: u64) -> View {
    View {
        state,
        since,
        vips: BTreeSet::from([vip(201), vip(202)]),
        configured: vec!["192.168.50.201-192.168.50.202".parse().unwrap()],
        node_ip: IpAddr::from([192, 168, 50, 21]),
        tun_mac: Some(mac(1)),
    }
}

fn master(since: u64) -> View {
    view(VrrpState::Master, since)
}

const ZERO: Duration = Duration::ZERO;

/// The attempt that is sent now.
fn sent(notifier: &mut Notifier, now: Duration, view: &View) -> Attempt {
    match notifier.next(now, view) {
        Next::Send(attempt, notification) => {
            assert_eq!(notification.since, view.notification().and(Some(view.since)));
            attempt
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_a_master_with_tunnel_and_vips_notifies() {
    let mut notifier = Notifier::default();
    for view in [
        view(VrrpState::Init, 1),
        view(VrrpState::Backup, 1),
        view(VrrpState::Fault, 1),
        View { tun_mac: None, ..master(1) },
        View { vips: BTreeSet::new(), ..master(1) },
    ] {
        assert_eq!(notifier.next(ZERO, &view), Next::Idle, "{view:?}");
    }
    sent(&mut notifier, ZERO, &master(1));
}

#[test]
fn each_change_of_a_master_is_notified_once() {
    let mut notifier = Notifier::default();
    let changes = [
        master(1),
        View { tun_mac: Some(mac(2)), ..master(1) },
        View { vips: BTreeSet::from([vip(201)]), ..master(1) },
        View { node_ip: IpAddr::from([192, 168, 50, 29]), ..master(1) },
        master(1),
        master(2),
    ];
    for view in changes {
        let attempt = sent(&mut notifier, ZERO, &view);
        assert_eq!(notifier.next(ZERO, &view), Next::InFlight);
        assert_eq!(notifier.done(ZERO, attempt, true), Some(0));
        assert_eq!(notifier.next(ZERO, &view), Next::Idle);
    }
}

#[test]
fn a_failure_is_retried_with_backoff_and_a_newer_state_at_once() {
    let mut notifier = Notifier::default();
    let mut now = ZERO;
    for failures in 1..=10 {
        let attempt = sent(&mut notifier, now, &master(1));
        assert_eq!(notifier.done(now, attempt, false), Some(failures));
        let Next::WaitUntil(retry) = notifier.next(now, &master(1)) else { panic!() };
        assert!(retry > now && retry - now <= BACKOFF.max);
        now = retry;
    }
    let attempt = sent(&mut notifier, now, &master(1));
    notifier.done(now, attempt, false);
    sent(&mut notifier, now, &master(2));
}

#[test]
fn a_state_that_came_back_during_a_request_is_sent_too() {
    let mut notifier = Notifier::default();
    let attempt = sent(&mut notifier, ZERO, &master(1));
    notifier.done(ZERO, attempt, true);
    let changed = View { tun_mac: Some(mac(2)), ..master(1) };
    let aborted = sent(&mut notifier, ZERO, &changed);
    // The aborted request may have reached the controller.
    sent(&mut notifier, ZERO, &master(1));
    assert_eq!(notifier.done(ZERO, aborted, true), None, "a late response confirms nothing");
    assert_eq!(notifier.next(ZERO, &master(1)), Next::InFlight);
}

#[test]
fn a_new_promotion_is_notified_although_nothing_else_changed() {
    let mut notifier = Notifier::default();
    let attempt = sent(&mut notifier, ZERO, &master(1));
    notifier.done(ZERO, attempt, true);
    assert_eq!(notifier.next(ZERO, &view(VrrpState::Init, 2)), Next::Idle);
    sent(&mut notifier, ZERO, &master(1));
}

#[test]
fn a_keeper_that_is_not_master_any_more_has_the_controller_poll_all_vips_once() {
    for state in [VrrpState::Backup, VrrpState::Fault] {
        let mut notifier = Notifier::default();
        assert_eq!(notifier.next(ZERO, &view(state, 1)), Next::Idle, "it was not MASTER");
        let attempt = sent(&mut notifier, ZERO, &master(1));
        notifier.done(ZERO, attempt, true);
        // keepalived does not run in between, and had begun to remove the VIPs.
        assert_eq!(notifier.next(ZERO, &view(VrrpState::Init, 2)), Next::Idle);
        let other = View { vips: BTreeSet::new(), ..view(state, 2) };
        let Next::Send(attempt, notification) = notifier.next(ZERO, &other) else { panic!() };
        assert_eq!((notification.vips.len(), notification.since), (2, None));
        assert_eq!(notifier.done(ZERO, attempt, false), Some(1));
        let Next::WaitUntil(retry) = notifier.next(ZERO, &other) else { panic!() };
        let attempt = sent(&mut notifier, retry, &other);
        assert_eq!(notifier.done(retry, attempt, true), Some(0));
        assert_eq!(notifier.next(retry, &other), Next::Idle);
        sent(&mut notifier, retry, &master(3));
    }
}

/// A keeper, a network and a controller. The controller reads the status servers when it is notified. Another gateway is MASTER all the
/// time, for longer than this one.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Model {
    notifier: Notifier,
    view: usize,
    network: Vec<Sent>,
    /// The view that the controller has written; the one of a BACKUP: the other gateway.
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
    /// The node's state changes to one of the views.
    Change(usize),
    /// The controller processes a request; it stays in the network, so it can be processed twice.
    Process(usize),
    /// A request is lost, or its response is: the sender sees a failure.
    Fail(usize),
    /// The response arrives.
    Respond(usize),
}

fn views() -> [View; 4] {
    [view(VrrpState::Backup, 1), master(2), View { tun_mac: Some(mac(2)), ..master(2) }, master(3)]
}

impl Model {
    fn new() -> Model {
        Model { notifier: Notifier::default(), view: 0, network: Vec::new(), stored: 0, now: ZERO }
    }

    /// The keeper acts until it waits.
    fn settle(&mut self) {
        let view = &views()[self.view];
        loop {
            match self.notifier.next(self.now, view) {
                Next::Send(attempt, notification) => {
                    let expected = view.notification().and(Some(view.since));
                    assert_eq!(notification.since, expected, "an old state is sent");
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
            Op::Change(view) if view != self.view => self.view = view,
            Op::Process(index) => {
                let is_master = views()[self.view].state == VrrpState::Master;
                let Some(request) = self.network.get_mut(index) else { return false };
                request.is_processed = true;
                // A request of a MASTER that is late has no effect.
                if is_master || !request.is_master {
                    self.stored = self.view;
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
        let view = &views()[end.view];
        assert_eq!(end.stored, end.view, "the controller has an old state");
        assert_eq!(end.notifier.next(end.now, view), Next::Idle, "a request without a change");
    }
}

#[test]
fn the_controller_ends_with_the_current_state_after_every_history() {
    let ops: Vec<Op> = (0..views().len())
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
