//! A decision about routes as a [`Plan`]. Pure. [`mod@common::routes::plan`] makes the decision.

mod action;
mod reason;

use common::api::routegc::Mode;
use common::plan::{Plan, Regarding, Step};
use common::routes::{Decision, Route};

pub use self::action::Action;
pub use self::reason::Reason;

/// The steps of a reconciliation, and the problems to report.
///
/// In mode Audit there are no steps. In mode Enforce each removal is a step; one request carries them all out.
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
            plan.step(action, Reason::Orphaned(removal.reason.clone()));
        }
    }
    if mode == Mode::Audit && !decision.removals.is_empty() {
        let routes = decision.removals.iter().map(|one| one.route.clone()).collect();
        plan.problem(regarding.clone(), Reason::WouldRemove(routes));
    }
    if let Some(excess) = &decision.excess {
        plan.problem(regarding.clone(), Reason::SafetyThreshold(excess.clone()));
    }
    for one in &decision.recreated {
        plan.problem(regarding.clone(), Reason::Recreated(one.clone()));
    }
    if !decision.unconnected.is_empty() {
        plan.problem(regarding.clone(), Reason::InvalidRoutes(decision.unconnected.clone()));
    }
    if let Some(covered) = &decision.covered {
        plan.problem(regarding.clone(), Reason::WideAddressPair(covered.clone()));
    }
    plan
}

/// Whether the safety threshold prevents removals. In mode Audit it prevents none, and an approval would remove none.
#[must_use]
pub fn is_blocked(mode: Mode, decision: &Decision) -> bool {
    mode == Mode::Enforce && decision.excess.is_some()
}

/// The removals whose result did not arrive, as steps that were carried out.
#[must_use]
pub fn carried_out(router: &str, regarding: &Regarding, decision: &Decision) -> Vec<Step<Action>> {
    let step = |route: &Route| Step {
        action: Action::RemoveRoute {
            route: route.clone(),
            router: router.to_owned(),
            regarding: regarding.clone(),
        },
        because: Reason::RemovedEarlier,
    };
    decision.carried_out.iter().map(step).collect()
}

/// Steps that one request carries out as one step, for one log line and one Event. None without steps.
#[must_use]
pub fn together(steps: &[Step<Action>]) -> Option<Step<Action>> {
    let first = steps.first()?;
    let route = |step: &Step<Action>| match &step.action {
        Action::RemoveRoute { route, .. } => Some(route.clone()),
        Action::RemoveRoutes { .. } => None,
    };
    let routes: Vec<Route> = steps.iter().filter_map(route).collect();
    match &first.action {
        Action::RemoveRoute { router, regarding, .. } if routes.len() > 1 => {
            let action =
                Action::RemoveRoutes { routes, router: router.clone(), regarding: regarding.clone() };
            Some(Step { action, because: first.because.clone() })
        }
        _ => Some(first.clone()),
    }
}

#[cfg(test)]
mod tests {
    use common::api::routegc::{Recreated, Safety};
    use common::plan::{Action as _, Reason as _};
    use common::routes::plan::threshold::Limit;
    use common::routes::plan::{Excess, History};
    use common::routes::{Policy, Snapshot};
    use jiff::Timestamp;

    use super::*;

    fn regarding() -> Regarding {
        Regarding {
            api_version: "routegc.perimeter.dev/v1alpha1",
            kind: "RouteGC",
            namespace: Some("ns".to_owned()),
            name: "prod".to_owned(),
            uid: None,
        }
    }

    /// A proxy responded 504 after Neutron had removed the first route.
    #[test]
    fn a_route_that_is_gone_after_a_lost_response_is_reported_as_removed() {
        let route = |number: u8| Route::new(format!("10.244.{number}.0/24"), format!("10.0.0.{number}"));
        let policy = Policy::new(["10.244.0.0/16"], None, &Safety::default()).unwrap();
        let snapshot = Snapshot { routes: vec![route(2)], ..Snapshot::default() };
        let history = History { removing: vec![route(1), route(2)], ..History::default() };
        let decision = common::routes::plan(&policy, &snapshot, &history, None, Timestamp::UNIX_EPOCH);
        let steps = carried_out("r-1", &regarding(), &decision);
        let [step] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(step.action.to_string(), "remove route 10.244.1.0/24 via 10.0.0.1 from router r-1");
        assert_eq!(step.because.code(), "RemovedEarlier");
        let next = common::routes::plan(&policy, &snapshot, &decision.history, None, Timestamp::UNIX_EPOCH);
        assert!(carried_out("r-1", &regarding(), &next).is_empty(), "it is recorded");
    }

    /// RoutegcBlocked reports that routes wait for an approval.
    #[test]
    fn the_threshold_blocks_removals_in_mode_enforce_only() {
        let (policy, snapshot) =
            (Policy::new(["10.244.0.0/16"], None, &Safety::default()).unwrap(), Snapshot::default());
        let mut decision =
            common::routes::plan(&policy, &snapshot, &History::default(), None, Timestamp::UNIX_EPOCH);
        assert!(!is_blocked(Mode::Enforce, &decision), "no route is orphaned");
        decision.excess =
            Some(Excess { routes: Vec::new(), of: 3, limit: Limit::Percent(50), hash: String::new() });
        assert!(is_blocked(Mode::Enforce, &decision) && !is_blocked(Mode::Audit, &decision));
    }

    #[test]
    fn an_event_names_all_routes_of_one_request() {
        let steps = ["10.244.1.0/24", "10.244.2.0/24"].map(|destination| Step {
            action: Action::RemoveRoute {
                route: Route::new(destination, "10.0.0.9"),
                router: "r-1".to_owned(),
                regarding: regarding(),
            },
            because: Reason::RemovedEarlier,
        });
        let action = |steps: &[Step<Action>]| together(steps).map(|step| step.action.to_string());
        let both = "remove 2 routes from router r-1: 10.244.1.0/24 via 10.0.0.9, 10.244.2.0/24 via 10.0.0.9";
        assert_eq!(action(&steps).as_deref(), Some(both));
        let one = "remove route 10.244.1.0/24 via 10.0.0.9 from router r-1";
        assert_eq!(action(&steps[..1]).as_deref(), Some(one));
        assert_eq!(action(&[]), None);
    }

    /// All Events are about one RouteGC, so the related object must differ.
    #[test]
    fn each_route_has_its_own_events() {
        let about = |number: u8| format!("10.244.{number}.0/24 via 10.0.0.{number}");
        let route = |number: u8| Route::new(format!("10.244.{number}.0/24"), format!("10.0.0.{number}"));
        let recreated = |number: u8| Recreated {
            destination: route(number).destination,
            nexthop: route(number).nexthop,
            removed_at: Timestamp::UNIX_EPOCH,
            back_since: Timestamp::UNIX_EPOCH,
            times: 1,
            node: None,
            server: None,
        };
        for number in [1, 2] {
            for reason in [
                Reason::Skipped(route(number), "it lives".to_owned()),
                Reason::RecreatedImmediately(route(number)),
                Reason::Recreated(recreated(number)),
            ] {
                assert_eq!(reason.related().map(|one| one.name), Some(about(number)), "{reason}");
            }
            let (router, regarding) = ("r".to_owned(), regarding());
            let one = Action::RemoveRoute {
                route: route(number),
                router: router.clone(),
                regarding: regarding.clone(),
            };
            let routes = vec![route(number), route(9)];
            let several = Action::RemoveRoutes { routes, router, regarding };
            for action in [one, several] {
                assert_eq!(action.related().map(|one| one.name), Some(about(number)), "{action}");
            }
        }
    }
}
