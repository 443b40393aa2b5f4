//! What a run would do, from the same rules that do it.

use std::sync::Arc;

use common::api::deorbit::Phase;
use common::plan::Plan;
use jiff::Timestamp;

use super::{Action, Reason, action, deletion, found, inventory, plan};
use crate::observe::snapshot::Snapshot;
use crate::settings::Settings;

/// Every delete that a real run would begin with, with IDs, and everything that it would leave alone.
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
    recorded.run.records = inventory::merge(&snapshot.run.records, &found);
    recorded.run.status.phase = Phase::Delete;
    for (act, because) in deletion::steps(&recorded.run, &recorded.run.records, cluster, &found) {
        out.step(Action { run: Arc::clone(&about), act }, because);
    }
    for record in &recorded.run.records {
        if let Some(why) = &record.kept {
            let id = record.id.as_deref().unwrap_or("no ID yet");
            let why = format!("{} {id} of {}/{}: {why}", record.kind, record.namespace, record.name);
            out.finding((*about).clone(), Reason::Kept { why });
        }
    }
    out
}
