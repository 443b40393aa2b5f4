//! The preview of a run: the actions that it would take, by the same rules.

use std::collections::HashSet;
use std::sync::Arc;

use common::api::deorbit::{Kind, Phase};
use common::plan::{Plan, Regarding};
use jiff::Timestamp;

use super::found::Found;
use super::{Act, Action, Reason, action, deletion, discovery, found, inventory, plan, routes};
use crate::observe::snapshot::{DoubtfulRoute, Snapshot};
use crate::record::{NodeRoute, Recorded};
use crate::settings::Settings;

/// Every delete that a real run would begin with, with IDs; what else would be deleted; and everything that it would keep. The discovery by
/// name and the routes are included where the Snapshot has the lists of these phases.
#[must_use]
pub fn preview(settings: &Settings, snapshot: &Snapshot, now: Timestamp) -> Plan<Action> {
    let mut recorded = snapshot.clone();
    let about = Arc::new(action::regarding(&snapshot.run));
    let mut out = Plan::default();
    let Ok(cluster) = &snapshot.cluster else { return plan(settings, snapshot, now).plan };
    let cloud = match &snapshot.cloud {
        Some(Err(_)) => return plan(settings, snapshot, now).plan,
        Some(Ok(cloud)) => Some(cloud),
        None => None,
    };
    let found = found::found(settings, &snapshot.run, cluster, cloud);
    recorded.run.records = inventory::merge(&snapshot.run.records, &found, true);
    if let Some(cloud) = cloud {
        inventory::name_late(&mut recorded.run.records, &snapshot.run.spec.cluster_name, cloud);
        inventory::record_seen(&mut recorded.run.records, cloud);
        inventory::prove(&mut recorded.run.book.proof, &recorded.run.records, cloud);
    }
    recorded.run.status.phase = Phase::Deleting;
    recorded.run.book.taken = true;
    for (act, because) in deletion::steps(&recorded.run, &recorded.run.records, cluster, &found) {
        out.step(Action { run: Arc::clone(&about), act }, because);
    }
    let asked = snapshot.run.spec.resources.routes.as_ref();
    match (asked, cloud.and_then(|cloud| cloud.routes.as_ref())) {
        (Some(asked), Some(Ok(routes))) => {
            routes::add(&mut recorded.run.book.routes, &routes.all, cluster);
            let nodes: Vec<_> = recorded.run.book.routes.iter().map(NodeRoute::route).collect();
            let stale: Vec<_> = routes.stale.iter().filter(|route| !nodes.contains(route)).cloned().collect();
            if !(nodes.is_empty() && stale.is_empty()) {
                let act = Act::RemoveRoutes { asked: asked.clone(), recorded: nodes, stale };
                out.step(Action { run: Arc::clone(&about), act }, Reason::Requested);
            }
            for DoubtfulRoute { route, why } in &routes.doubtful {
                let why = format!("route {route}: its next hop may still exist: {why}");
                out.problem((*about).clone(), Reason::Kept { why });
            }
            unknown_routes(&mut out, &about, &asked.router_id, routes.unread.as_ref());
        }
        (Some(asked), Some(Err(why))) => unknown_routes(&mut out, &about, &asked.router_id, Some(why)),
        _ => {}
    }
    let run = &recorded.run;
    let swept = cloud.map(|cloud| discovery::found(run, &run.book, &run.records, cloud)).unwrap_or_default();
    let unproven =
        cloud.and_then(|cloud| inventory::unproven(&run.book.proof, &run.records, Some(cluster), cloud));
    if let Some(unread) = unproven {
        out.problem((*about).clone(), Reason::LoginNotProven { why: unread.to_string() });
    }
    let (asked, going) = (with(&found, is_asked), with(&found, |one| one.deleting.is_some()));
    for record in recorded.run.records.iter().chain(swept.iter().map(|one| &one.record)) {
        let object = (record.kind, record.uid.as_str());
        let how = match (&record.kept, record.kind) {
            (Some(why), _) => {
                let why = format!("{}: {why}", named(record));
                out.problem((*about).clone(), Reason::Kept { why });
                continue;
            }
            _ if record.object.is_none() => match discovery::reported(&snapshot.run, record) {
                None => "no object names it: it is deleted in OpenStack",
                Some(why) => &format!("it is listed as debris: {why}"),
            },
            (None, Kind::FloatingIP | Kind::SecurityGroup) => "it is deleted with its load balancer",
            _ if asked.contains(&object) => continue,
            _ if going.contains(&object) => "it is being deleted already",
            _ => "its controller deletes it by its reclaim or deletion policy",
        };
        let what = format!("{}: {how}", named(record));
        out.problem((*about).clone(), Reason::DeletedWithOwner { what });
    }
    out
}

fn unknown_routes(out: &mut Plan<Action>, about: &Arc<Regarding>, router: &str, why: Option<&String>) {
    if let Some(why) = why {
        let because = Reason::RoutesUnknown { router: router.to_owned(), why: why.clone() };
        out.problem((**about).clone(), because);
    }
}

/// Whether a step deletes it.
fn is_asked(one: &Found) -> bool {
    one.release.is_some() || (one.delete.is_some() && one.deleting.is_none())
}

/// The resources in OpenStack for which `is` is true, each with its object.
fn with(found: &[Found], like: impl Fn(&Found) -> bool) -> HashSet<(Kind, &str)> {
    let those = found.iter().filter(|&one| like(one));
    those.map(|one| (one.record.kind, one.record.uid.as_str())).collect()
}

/// A resource in OpenStack with its object, or with its own name.
fn named(record: &Recorded) -> String {
    let id = record.id.as_deref().unwrap_or("no ID yet");
    match (&record.object, record.namespace.as_str()) {
        (None, _) => format!("{} {id} ({})", record.kind, record.name),
        (Some(object), "") => format!("{} {id} of {object} {}", record.kind, record.name),
        (Some(object), namespace) => format!("{} {id} of {object} {namespace}/{}", record.kind, record.name),
    }
}
