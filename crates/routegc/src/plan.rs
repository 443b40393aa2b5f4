//! A decision about routes in the grammar that all controllers speak. Pure: the decision itself is [`mod@common::routes::plan`]'s.

mod action;
mod reason;

use common::api::routegc::Mode;
use common::plan::{Plan, Regarding};
use common::routes::Decision;

pub use self::action::Action;
pub use self::reason::Reason;

/// What a pass does about a decision, and what a person should know.
///
/// In mode Audit there are no steps. In mode Enforce each removal is a step; they are carried out together.
#[must_use]
pub fn plan(mode: Mode, router: &str, regarding: &Regarding, decision: &Decision) -> Plan<Action> {
    let mut plan = Plan::default();
    for removal in &decision.removals {
        if mode == Mode::Enforce {
            let action = Action::RemoveRoute {
                route: removal.route.clone(),
                router: router.to_owned(),
                regarding: regarding.clone(),
            };
            plan.step(action, Reason::Dead(removal.because.clone()));
        }
    }
    if mode == Mode::Audit && !decision.removals.is_empty() {
        let routes = decision.removals.iter().map(|one| one.route.clone()).collect();
        plan.finding(regarding.clone(), Reason::WouldRemove(routes));
    }
    if let Some(excess) = &decision.excess {
        plan.finding(regarding.clone(), Reason::SafetyThreshold(excess.clone()));
    }
    for one in &decision.contested {
        plan.finding(regarding.clone(), Reason::Contested(one.clone()));
    }
    if !decision.unconnected.is_empty() {
        plan.finding(regarding.clone(), Reason::InvalidRoutes(decision.unconnected.clone()));
    }
    plan
}
