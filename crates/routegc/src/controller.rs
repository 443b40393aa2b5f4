//! When passes are made, and how many at a time: each policy at its own interval, at once when it changes, soon when a Node goes,
//! later when it failed; none waits for another.

mod schedule;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::api::routegc::{NodesFrom, RouteGC};
use common::cache::Cache;
use common::plan::Problem;
use common::routes::Policy;
use common::runtime::Runtime;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::{Api, ResourceExt as _};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::schedule::{Mark, Schedule};
use crate::config::Config;
use crate::home::Home;
use crate::login::Logins;
use crate::metrics::{Metrics, Whose};
use crate::nodes::departures::Departures;
use crate::pass::{Refusals, Report, Walker};
use crate::plan::Reason;

/// Passes at a time: a few clouds that hang leave room for the others, and the memory for a thousand ports each is small.
const AT_A_TIME: usize = 16;

/// The loop turns at least so often, for the heartbeat, however long passes last; the longest that a leader may be silent is ten
/// minutes.
const HEARTBEAT: Duration = Duration::from_secs(120);

/// After a change, so that several become one pass.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Fills the cache, waits for the lead, and makes passes until the end is asked for; `once`: one pass for each policy.
///
/// # Errors
/// `once`: what made a pass fail. A lost lease is no error of this function: the runtime ends the process.
pub async fn run(runtime: Runtime, config: Config, once: bool) -> anyhow::Result<()> {
    let walker = walker(&runtime, config)?;
    let changed = Arc::new(Notify::new());
    let objects = matches!(walker.config, Config::Objects);
    let store = if objects {
        let api = Api::<RouteGC>::namespaced(runtime.client.clone(), &runtime.namespace);
        let store = runtime.cache(api).trim(trim).start();
        let notify = Arc::clone(&changed);
        store.subscribe(move |_| notify.notify_one());
        Some(store)
    } else {
        // Nothing is cached: ready from the start.
        runtime.readiness.check("flags").ready();
        None
    };
    let work = async {
        if let Some(store) = &store {
            tokio::select! {
                biased;
                () = runtime.shutdown.cancelled() => {}
                () = store.synced() => {}
            }
        }
        if !runtime.leading().await {
            return if once { Err(anyhow::anyhow!("asked to end before a pass was made")) } else { Ok(()) };
        }
        let departures = Departures::new(runtime.clone(), Arc::clone(&changed));
        turn(&walker, store.as_ref(), &changed, departures, once).await
    };
    work.await
}

/// Makes what passes are made with.
///
/// # Errors
/// A metric's name that is registered already.
pub fn walker(runtime: &Runtime, config: Config) -> anyhow::Result<Walker> {
    let metrics = Metrics::new(runtime.metrics.clone())?;
    let openstack = common::cloud::openstack::Metrics::register(runtime.metrics.registry())?;
    let logins = Logins::new(runtime.program.user_agent(), openstack);
    Ok(Walker { runtime: runtime.clone(), metrics, logins, config, refusals: Refusals::default() })
}

/// What the schedule does not look at is not kept, and its change wakes nobody.
fn trim(object: &mut RouteGC) {
    object.status = None;
    object.metadata.managed_fields = None;
}

async fn turn(
    walker: &Walker,
    store: Option<&Cache<RouteGC>>,
    changed: &Notify,
    mut departures: Departures,
    once: bool,
) -> anyhow::Result<()> {
    let mut schedule = Schedule::default();
    let mut running = FuturesUnordered::new();
    let mut problems = BTreeMap::<Home, Vec<Problem<Reason>>>::new();
    let mut routers = BTreeMap::<Home, Whose>::new();
    let mut failure = None;
    loop {
        // At each turn: where something changes all the time, the sleep below never ends.
        walker.runtime.status.heartbeat(walker.runtime.program.name);
        let (wanted, conflicts) = policies(store);
        walker.metrics.policies(wanted.len());
        schedule.wanted(wanted, Instant::now());
        if !once {
            departures.listen(nodes_of(walker, store));
            departures.take().iter().for_each(|home| schedule.wake(home, Instant::now()));
        }
        retire(walker, &schedule, &mut problems, &mut routers);
        while running.len() < AT_A_TIME {
            let Some(home) = schedule.next(Instant::now()) else { break };
            let conflict = conflicts.get(&home).cloned();
            running.push(async move { walker.pass(&home, conflict).await });
        }
        if once && running.is_empty() {
            return failure.map_or(Ok(()), |error: crate::error::Error| Err(error.into()));
        }
        let due = schedule.due().unwrap_or_else(|| Instant::now() + HEARTBEAT);
        let due = if running.len() < AT_A_TIME { due } else { Instant::now() + HEARTBEAT };
        tokio::select! {
            biased;
            () = walker.runtime.shutdown.cancelled() => break,
            Some(report) = running.next(), if !running.is_empty() => {
                let error = finished(walker, &mut schedule, &mut problems, &mut routers, report, once).await;
                // Those that have not had their pass have it first.
                failure = failure.or(error.filter(|_| once));
            }
            () = async { changed.notified().await; tokio::time::sleep(DEBOUNCE).await } => {}
            () = tokio::time::sleep_until(due.min(Instant::now() + HEARTBEAT)) => {}
        }
    }
    // What runs is finished, and no more is begun.
    while running.next().await.is_some() {}
    Ok(())
}

async fn finished(
    walker: &Walker,
    schedule: &mut Schedule,
    problems: &mut BTreeMap<Home, Vec<Problem<Reason>>>,
    routers: &mut BTreeMap<Home, Whose>,
    report: Report,
    once: bool,
) -> Option<crate::error::Error> {
    if let Some(whose) = &report.whose {
        // A RouteGC that was deleted and made anew may have another router.
        let before = routers.insert(report.home.clone(), whose.clone());
        before.iter().filter(|before| *before != whose).for_each(|before| walker.metrics.forget(before));
    }
    problems.insert(report.home.clone(), report.problems);
    // All at once: what the last pass of any policy found is still so.
    let all: Vec<_> = problems.values().flatten().cloned().collect();
    walker.runtime.events.found(&all);
    let wait = schedule::wait(report.error.as_ref(), report.interval, schedule.failures(&report.home));
    schedule.finished(&report.home, report.error.is_some(), (!once).then_some(wait), Instant::now());
    report.error
}

/// Policies that are not there any more are forgotten.
fn retire(
    walker: &Walker,
    schedule: &Schedule,
    problems: &mut BTreeMap<Home, Vec<Problem<Reason>>>,
    routers: &mut BTreeMap<Home, Whose>,
) {
    let gone: Vec<Home> = routers.keys().filter(|home| !schedule.knows(home)).cloned().collect();
    if gone.is_empty() {
        return;
    }
    gone.iter().filter_map(|home| routers.remove(home)).for_each(|whose| walker.metrics.forget(&whose));
    problems.retain(|home, _| schedule.knows(home));
    walker.logins.keep(|home| schedule.knows(home));
    walker.refusals.keep(|home| schedule.knows(home));
}

/// The policies that are wanted, each with a mark that changes when a pass should be made at once, and those that contradict
/// each other.
fn policies(store: Option<&Cache<RouteGC>>) -> (BTreeMap<Home, Mark>, BTreeMap<Home, String>) {
    let Some(store) = store else {
        return (BTreeMap::from([(Home::Flags, Mark::default())]), BTreeMap::new());
    };
    let objects: Vec<Arc<RouteGC>> =
        store.list().into_iter().filter(|object| object.metadata.deletion_timestamp.is_none()).collect();
    let conflicts = conflicts(&objects);
    let mark = |object: &RouteGC| Mark {
        uid: object.uid().unwrap_or_default(),
        generation: object.metadata.generation,
        allow: object.annotations().get(common::api::routegc::ALLOW_ANNOTATION).cloned(),
        conflict: conflicts.get(&Home::Object(object.name_any())).cloned(),
    };
    let wanted = objects.iter().map(|object| (Home::Object(object.name_any()), mark(object))).collect();
    (wanted, conflicts)
}

/// Where the Nodes of the policies are that know them.
fn nodes_of(walker: &Walker, store: Option<&Cache<RouteGC>>) -> BTreeMap<Home, NodesFrom> {
    let Some(store) = store else {
        let from = walker.flags().and_then(|spec| spec.nodes_from.clone());
        return from.map(|from| (Home::Flags, from)).into_iter().collect();
    };
    let live = store.list().into_iter().filter(|object| object.metadata.deletion_timestamp.is_none());
    live.filter_map(|object| Some((Home::Object(object.name_any()), object.spec.nodes_from.clone()?)))
        .collect()
}

/// The same for a `--dry-run`, which keeps no cache.
///
/// # Errors
/// When the RouteGCs cannot be listed.
pub async fn conflicts_of(runtime: &Runtime, homes: &[Home]) -> anyhow::Result<BTreeMap<Home, String>> {
    if homes.iter().all(|home| *home == Home::Flags) {
        return Ok(BTreeMap::new());
    }
    let api = Api::<RouteGC>::namespaced(runtime.client.clone(), &runtime.namespace);
    let list = api.list(&kube::api::ListParams::default()).await?;
    let live = list.items.into_iter().filter(|object| object.metadata.deletion_timestamp.is_none());
    Ok(conflicts(&live.map(Arc::new).collect::<Vec<_>>()))
}

/// Policies of one router that overlap: each is told of the others, and none of them acts.
fn conflicts(objects: &[Arc<RouteGC>]) -> BTreeMap<Home, String> {
    let read: Vec<(String, String, Policy)> = objects
        .iter()
        .filter_map(|object| {
            let router = object.spec.router_id.to_ascii_lowercase();
            Some((object.name_any(), router, Policy::of(&object.spec).ok()?))
        })
        .collect();
    let mut conflicts = BTreeMap::new();
    for (name, router, policy) in &read {
        let others = read.iter().filter(|(other, same, _)| other != name && same == router);
        let mut overlaps: Vec<String> = others
            .filter_map(|(other, _, theirs)| {
                Some(format!("RouteGC {other} judges {} too", policy.overlap(theirs)?))
            })
            .collect();
        overlaps.sort_unstable();
        if !overlaps.is_empty() {
            let message = format!(
                "{}: two policies must not judge the same routes of one router, so neither acts; give them other podCIDRs or delete one",
                overlaps.join(", ")
            );
            conflicts.insert(Home::Object(name.clone()), message);
        }
    }
    conflicts
}
