//! The preview of a run: the actions that it would take, by the same rules.

use std::collections::HashSet;

use common::api::deorbit::Kind;
use common::plan::Plan;
use jiff::Timestamp;

use super::found::Found;
use super::{Act, Action, Planner, Reason, credential, deletion, discovery, plan, routes};
use crate::observe::snapshot::{DoubtfulRoute, Snapshot};
use crate::record::{NodeRoute, Recorded};
use crate::settings::Settings;

/// Every delete that a real run would begin with, with IDs; what else would be deleted; and everything that it would keep. The discovery by
/// name and the routes are included where the Snapshot has the lists of these phases.
#[must_use]
pub fn preview(settings: &Settings, snapshot: &Snapshot, now: Timestamp) -> Plan<Action> {
    let run = &snapshot.run;
    let Ok(cluster) = &snapshot.cluster else { return plan(settings, snapshot, now).plan };
    let cloud = match &snapshot.cloud {
        Some(Err(_)) => return plan(settings, snapshot, now).plan,
        Some(Ok(cloud)) => Some(cloud),
        None => None,
    };
    let mut planner = Planner::new(settings, snapshot, now);
    let found = planner.record();
    planner.book.taken = true;
    for (act, because) in deletion::steps(run, &planner.records, cluster, &found) {
        planner.step(act, because);
    }
    let kept = |why: String| Reason::Kept { why };
    let asked = run.spec.resources.routes.as_ref();
    match (asked, cloud.and_then(|cloud| cloud.routes.as_ref())) {
        (Some(asked), Some(Ok(routes))) => {
            routes::add(&mut planner.book.routes, &routes.all, cluster);
            if run.spec.cluster_survives {
                for route in planner.book.routes.iter().map(NodeRoute::route).collect::<Vec<_>>() {
                    let why = "the cluster survives and needs the routes to its Nodes";
                    planner.find(kept(format!("route {route}: {why}")));
                }
            }
            let nodes = routes::unneeded(run, planner.book.proof.any(), &mut planner.book.routes);
            if let Some(act) = routes::removal(asked, routes, nodes) {
                planner.step(act, Reason::Requested);
            }
            for DoubtfulRoute { route, why } in &routes.doubtful {
                planner.find(kept(format!("route {route}: its next hop may still exist: {why}")));
            }
            if let Some(why) = &routes.unread {
                planner.find(routes::unknown(asked, why));
            }
        }
        (Some(asked), Some(Err(why))) => planner.find(routes::unknown(asked, why)),
        _ => {}
    }
    if let Some(cloud) = cloud {
        let swept = discovery::found(run, &planner.book, &planner.records, cloud);
        planner.records.extend(swept);
    }
    let (asked, going) = (with(&found, is_asked), with(&found, |one| one.deleting.is_some()));
    for record in std::mem::take(&mut planner.records) {
        let object = (record.kind, record.uid.as_str());
        let how = match (&record.kept, record.kind) {
            (Some(why), _) => {
                planner.find(kept(format!("{}: {why}", named(&record))));
                continue;
            }
            _ if record.object.is_none() => match discovery::reported(run, &record) {
                None => "no object names it: it is deleted in OpenStack",
                Some(why) => &format!("it is listed as debris: {why}"),
            },
            (None, Kind::FloatingIP | Kind::SecurityGroup) => "it is deleted with its load balancer",
            _ if asked.contains(&object) => continue,
            _ if going.contains(&object) => "it is being deleted already",
            _ => "its controller deletes it by its reclaim or deletion policy",
        };
        planner.find(Reason::DeletedWithOwner { what: format!("{}: {how}", named(&record)) });
    }
    if run.deletes_credential() {
        match (credential::still_needed(run), cloud.and_then(|cloud| cloud.credential.clone())) {
            (Some(why), _) => planner.find(kept(format!("application credential: {why}"))),
            (None, Some(one)) => {
                let act = Act::DeleteApplicationCredential { id: one.id, user: one.user };
                planner.step(act, Reason::NothingLeft);
            }
            (None, None) => {
                let what = "application credential: the one of the Secret's login is deleted last; this login does not show whether that is possible";
                planner.find(Reason::DeletedWithOwner { what: what.to_owned() });
            }
        }
    }
    planner.plan
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
    match (record.object, record.namespace.as_str()) {
        (None, _) => format!("{} {id} ({})", record.kind, record.name),
        (Some(object), "") => format!("{} {id} of {object} {}", record.kind, record.name),
        (Some(object), namespace) => format!("{} {id} of {object} {namespace}/{}", record.kind, record.name),
    }
}
