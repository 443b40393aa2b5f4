//! The output of `--dry-run` and `/statusz`: every route with its state, and the actions of a reconciliation.

use std::fmt::Write as _;

use common::api::routegc::Mode;
use common::plan::Plan;
use common::routes::Decision;
use common::routes::plan::{ClassifiedRoute, RouteClass};
use common::routes::route::so_many;
use serde_json::{Value, json};

use crate::plan::Action;

/// For a person.
#[must_use]
pub fn text(name: &str, router: &str, mode: Mode, decision: &Decision, plan: &Plan<Action>) -> String {
    let mut text = String::new();
    let counts = &decision.counts;
    let limit = decision.quota.limit.map_or_else(String::new, |limit| format!(" of {limit}"));
    // Writing to a String cannot fail.
    let routes = so_many(decision.quota.routes as usize);
    let _ = writeln!(text, "{name}: router {router}, {routes}{limit}, mode {mode:?}");
    let _ = writeln!(
        text,
        "{} valid, {} orphan, {} foreign, {} unknown, {} invalid",
        counts.valid, counts.orphan, counts.foreign, counts.unknown, counts.invalid
    );
    let of = |pick: fn(&ClassifiedRoute) -> &str| {
        decision.classified.iter().map(|one| pick(one).len()).max().unwrap_or(0)
    };
    let destination = of(|one| &one.route.destination).max(11);
    let nexthop = of(|one| &one.route.nexthop).max(8);
    if !decision.classified.is_empty() {
        let _ =
            writeln!(text, "\n{:destination$}  {:nexthop$}  {:7}  WHY", "DESTINATION", "NEXT HOP", "WHAT");
    }
    for one in &decision.classified {
        let (word, why) = words(one);
        let route = &one.route;
        let line = format!("{:destination$}  {:nexthop$}  {word:7}  {why}", route.destination, route.nexthop);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = write!(text, "\nnext\n{plan}");
    text
}

/// The same as one JSON object.
#[must_use]
pub fn json(name: &str, router: &str, mode: Mode, decision: &Decision, plan: &Plan<Action>) -> Value {
    let route = |one: &ClassifiedRoute| {
        let (word, why) = words(one);
        json!({
            "destination": one.route.destination, "nexthop": one.route.nexthop,
            "verdict": word, "why": why, "duplicate": one.duplicate,
        })
    };
    json!({
        "policy": name,
        "router": router,
        "mode": mode,
        "counts": decision.counts,
        "quota": decision.quota,
        "routes": decision.classified.iter().map(route).collect::<Vec<_>>(),
        "candidates": decision.history.candidates,
        "recreated": decision.recreated,
        "removalHash": decision.excess.as_ref().map(|excess| &excess.hash),
        "plan": plan.to_json(),
    })
}

fn words(one: &ClassifiedRoute) -> (&'static str, String) {
    let word = match &one.class {
        RouteClass::Foreign => "foreign",
        RouteClass::Valid(_) => "valid",
        RouteClass::Unknown(_) | RouteClass::Covered(_) => "unknown",
        RouteClass::Invalid(_) => "invalid",
        RouteClass::Orphan(_) => "orphan",
    };
    let mut why = one.class.why();
    if one.duplicate {
        why.push_str(if why.is_empty() {
            "one of several to this destination"
        } else {
            "; one of several to this destination"
        });
    }
    (word, why)
}
