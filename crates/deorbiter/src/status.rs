//! The entry of one Deorbit on `/statusz`: its phase, what is left, and the next steps.

use std::fmt::Write as _;
use std::sync::Arc;

use common::api::deorbit::Kind;

use crate::observe::snapshot::Run;
use crate::plan::Decision;
use crate::record::Recorded;

/// Steps and problems that are shown; the rest is counted.
const SHOWN: usize = 20;

/// The text of the entry.
#[must_use]
pub fn render(run: &Run, decision: &Decision) -> String {
    let mut text = String::new();
    let status = &decision.status;
    // Writing to a String cannot fail.
    let _ = writeln!(text, "phase      {}", status.phase);
    let _ = writeln!(text, "remaining  {}", decision.tally.total);
    for kind in Kind::ALL {
        let is_desired = |record: &&Arc<Recorded>| record.kind == kind && record.kept.is_none();
        let count = decision.records.iter().filter(is_desired).count();
        if count > 0 {
            let _ = writeln!(text, "recorded   {count} of kind {kind}");
        }
    }
    if run.deleting.is_some() {
        let _ = writeln!(text, "being deleted");
    }
    for debris in status.debris.iter().take(SHOWN) {
        let id = debris.id.as_deref().unwrap_or(&debris.name);
        let _ = writeln!(text, "debris     {} {id}: {}", debris.kind, debris.reason);
    }
    for step in decision.plan.steps.iter().take(SHOWN) {
        let _ = writeln!(text, "next       {step}");
    }
    if decision.plan.steps.len() > SHOWN {
        let _ = writeln!(text, "next       and {} more", decision.plan.steps.len() - SHOWN);
    }
    for problem in decision.plan.problems.iter().take(SHOWN) {
        let _ = writeln!(text, "!          {problem}");
    }
    text
}
