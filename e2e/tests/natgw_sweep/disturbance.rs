//! What is put in the way of a story: a death at a write, or one fault at one call.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};
use e2e::fault_proxy::{Answer, Fate, Fault, FaultProxy, Matcher, Recorded, RuleId, When};
use e2e::hetzner::ActionFailure;
use http::{Method, StatusCode};
use tokio::task::JoinSet;

use crate::natgw_sweep::sweep_env::{Killer, SweepEnv, TIMEOUT};

/// Late by this much: longer than a reconciliation, shorter than any deadline.
const LATE: Duration = Duration::from_millis(700);
/// For so long nothing is heard of a watch.
const HELD: Duration = Duration::from_millis(1_500);
/// Events of a watch at whose place a fault is tried: first, second, third.
const PLACES: u64 = 3;

/// Between natgw and whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    Kubernetes,
    Cloud,
}

/// A kind of call: `patch nodes`, or `POST /networks/*/actions/add_route`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kind {
    pub side: Side,
    /// RBAC verb or HTTP method.
    verb: String,
    /// Resource or path.
    what: String,
}

/// One call of the undisturbed run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    pub kind: Kind,
    /// How many of its kind come before it.
    nth: u64,
    /// Events that a watch brought.
    events: u64,
}

/// What happens to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Refused,
    LateRequest,
    LateAnswer,
    CutAnswer,
    Rejected(u16),
    /// The server has acted.
    Replaced(u16),
    /// Accepted, not answered.
    Swallowed,
    /// The cloud's action fails; `true`: although it was done.
    FailedAction(bool),
    /// At this event of a watch.
    Watch(Fate, u64),
}

/// What is put in the way.
#[derive(Clone, Debug)]
pub enum Disturbance {
    Nothing,
    Kill { n: u64, when: When },
    Fault(Target, Harm),
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Disturbance::Nothing => f.write_str("undisturbed"),
            Disturbance::Kill { n, when } => write!(f, "killed at write {n}, {when:?}"),
            Disturbance::Fault(Target { kind, nth, .. }, harm) => {
                write!(f, "{harm:?} at {} {} number {}", kind.verb, kind.what, nth + 1)
            }
        }
    }
}

impl Kind {
    fn of(side: Side, call: &Recorded) -> Kind {
        match call.kube() {
            Some(request) if side == Side::Kubernetes => {
                Kind { side, what: request.full_resource(), verb: request.verb }
            }
            _ => {
                let whole = |part: &str| part.chars().all(|each| each.is_ascii_digit()) && !part.is_empty();
                let parts: Vec<&str> =
                    call.path.split('/').map(|part| if whole(part) { "*" } else { part }).collect();
                Kind { side, verb: call.method.to_string(), what: parts.join("/") }
            }
        }
    }

    fn is_watch(&self) -> bool {
        self.verb == "watch"
    }

    fn is_write(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch" | "GET")
    }

    fn matcher(&self) -> Result<Matcher> {
        Ok(match self.side {
            Side::Kubernetes => Matcher::any().verb(&self.verb).resource(&self.what),
            Side::Cloud => {
                let any = Matcher::any().method(Method::from_bytes(self.verb.as_bytes())?);
                let what = self.what.clone();
                // Not a pattern: `/networks/*` must not mean the actions below it.
                any.when(move |call| {
                    let (desired, given) = (what.split('/'), call.path.split('/'));
                    desired.clone().count() == given.clone().count()
                        && desired.zip(given).all(|(desired, given)| desired == "*" || desired == given)
                })
            }
        })
    }
}

/// The calls of an undisturbed run: each write, and the first of each other kind.
pub fn targets(sweep_env: &SweepEnv, from: (usize, usize), injection: &Injection) -> Vec<Target> {
    let mut targets = BTreeSet::new();
    let sides = [
        (Side::Kubernetes, sweep_env.env.api_proxy.requests().split_off(from.0)),
        (Side::Cloud, sweep_env.env.cloud_proxy.requests().split_off(from.1)),
    ];
    for (side, calls) in sides {
        let mut seen = BTreeMap::<Kind, u64>::new();
        for call in &calls {
            let kind = Kind::of(side, call);
            let nth = seen.entry(kind.clone()).or_default();
            // Leases and Events come by the clock: each kind of them once.
            if (*nth == 0 || call.write.is_some()) && !kind.is_watch() {
                targets.insert(Target { kind, nth: *nth, events: 0 });
            }
            *nth += 1;
        }
    }
    // Watches go on all the time, whenever they were begun.
    if let Injection::Counting(watches) = injection {
        for (what, events) in watches {
            let kind = Kind { side: Side::Kubernetes, verb: "watch".into(), what: (*what).into() };
            targets.insert(Target { kind, nth: 0, events: events.load(Ordering::Relaxed) });
        }
    }
    targets.into_iter().collect()
}

impl Target {
    /// Every fault that this call can meet. `fresh`: the watches begin within the disturbed time.
    pub fn harms(&self, fresh: bool) -> Vec<Harm> {
        let everywhere = [Harm::Refused, Harm::LateAnswer, Harm::CutAnswer];
        let mut harms = Vec::new();
        if self.kind.is_watch() {
            for fate in [Fate::Hold, Fate::End, Fate::Expire] {
                harms.extend((0..self.events.min(PLACES)).map(|place| Harm::Watch(fate, place)));
            }
            if fresh {
                harms.extend(everywhere);
                harms.extend([410, 429, 500, 503].map(Harm::Rejected));
            }
            return harms;
        }
        harms.extend(everywhere);
        harms.extend([429, 500, 503].map(Harm::Rejected));
        if self.kind.is_write() {
            harms.push(Harm::LateRequest);
            harms.push(Harm::Rejected(409));
            harms.extend([500, 503].map(Harm::Replaced));
            harms.push(Harm::Swallowed);
            if self.kind.side == Side::Cloud {
                harms.extend([Harm::Rejected(423), Harm::Rejected(502), Harm::Replaced(502)]);
                // The stand-in fails the next action of a command.
                if self.nth == 0 {
                    harms.extend([Harm::FailedAction(false), Harm::FailedAction(true)]);
                }
            }
        }
        harms
    }
}

/// A disturbance that is in force.
pub enum Injection {
    /// Disturbs nothing, and counts the events of the watches.
    Counting([(&'static str, Arc<AtomicU64>); 2]),
    Killer(Killer),
    Rule(FaultProxy, RuleId),
    /// A watch that is held for a while; the rule is gone by then.
    Held {
        count: Arc<AtomicU64>,
        _release: JoinSet<()>,
    },
    Action,
}

impl Injection {
    /// Puts it in the way.
    pub fn set(sweep_env: &SweepEnv, disturbance: &Disturbance, again: bool) -> Result<Injection> {
        let (target, harm) = match disturbance {
            Disturbance::Nothing => return Ok(Injection::counting(&sweep_env.env.api_proxy)),
            Disturbance::Kill { n, when } => {
                return Ok(Injection::Killer(sweep_env.kill_at(*n, *when, again)?));
            }
            Disturbance::Fault(target, harm) => (target, *harm),
        };
        let env = &sweep_env.env;
        if let Harm::FailedAction(acts) = harm {
            let Some(command) = target.kind.what.rsplit('/').next() else { bail!("{target:?}") };
            let failure = ActionFailure::of(command);
            env.hetzner.fail_action(if acts { failure.acting() } else { failure });
            return Ok(Injection::Action);
        }
        let proxy = match target.kind.side {
            Side::Kubernetes => &env.api_proxy,
            Side::Cloud => &env.cloud_proxy,
        };
        let place = if let Harm::Watch(_, place) = harm { place } else { target.nth };
        let rule = proxy.rule(target.kind.matcher()?.after(place).times(1), harm.fault()?);
        if let Harm::Watch(Fate::Hold, _) = harm {
            let (proxy, held, mut release) = (proxy.clone(), Arc::new(AtomicU64::new(0)), JoinSet::new());
            let count = held.clone();
            release.spawn(async move {
                if proxy.wait_applied(rule, 1, TIMEOUT).await.is_ok() {
                    count.store(1, Ordering::Relaxed);
                    // The fault itself takes time.
                    tokio::time::sleep(HELD).await;
                    proxy.remove(rule);
                }
            });
            return Ok(Injection::Held { count: held, _release: release });
        }
        Ok(Injection::Rule(proxy.clone(), rule))
    }

    fn counting(proxy: &FaultProxy) -> Injection {
        Injection::Counting(["nodes", "jobs"].map(|what| {
            let count = Arc::new(AtomicU64::new(0));
            let seen = count.clone();
            let fault = Fault::drop_events(move |_| {
                seen.fetch_add(1, Ordering::Relaxed);
                false
            });
            proxy.rule(Matcher::watches().resource(what), fault);
            (what, count)
        }))
    }

    /// How often it went off.
    pub fn hits(&self, sweep_env: &SweepEnv) -> u64 {
        match self {
            Injection::Counting(_) => 0,
            Injection::Killer(killer) => u64::try_from(killer.kills().len()).unwrap_or(u64::MAX),
            Injection::Rule(proxy, rule) => proxy.applied(*rule),
            Injection::Held { count, .. } => count.load(Ordering::Relaxed),
            Injection::Action => u64::from(sweep_env.env.hetzner.injections_left() == 0),
        }
    }
}

impl Harm {
    fn fault(self) -> Result<Fault> {
        let answer = |status: u16| {
            anyhow::Ok(match status {
                429 => Answer::too_many_requests(1),
                other => Answer::status(StatusCode::from_u16(other)?),
            })
        };
        Ok(match self {
            Harm::Refused => Fault::Refuse,
            Harm::LateRequest => Fault::DelayRequest(LATE),
            Harm::LateAnswer => Fault::DelayResponse(LATE),
            Harm::CutAnswer => Fault::CutResponse { after_bytes: 20 },
            Harm::Rejected(status) => Fault::Reject(answer(status)?),
            Harm::Replaced(status) => Fault::Replace(answer(status)?),
            Harm::Swallowed => Fault::Swallow,
            Harm::Watch(fate, _) => Fault::Event(fate, e2e::fault_proxy::EventFilter::all()),
            Harm::FailedAction(_) => bail!("the stand-in's to do"),
        })
    }
}
