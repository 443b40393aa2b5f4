//! The status of a policy: conditions for its user, and what the next reconciliation needs. Pure.

use common::api::routegc::{Mode, RouteGCStatus};
use common::conditions::{self, Seen, Status};
use common::plan::Reason as _;
use common::routes::Decision;
use common::routes::plan::{History, RouteClass};
use common::routes::route::{first_of, list, so_many};
use jiff::Timestamp;

use crate::error::Error;
use crate::plan::Reason;

/// The history that the plan needs, from a status.
#[must_use]
pub fn history(status: &RouteGCStatus) -> History {
    History {
        candidates: status.candidates.clone(),
        removing: status.removing.clone(),
        removed: status.last_removed.clone(),
        recreated: status.recreated.clone(),
        limit: status.quota.as_ref().and_then(|quota| quota.limit),
    }
}

/// The status while routes are being removed: what the next reconciliation needs if this one does not finish. The conditions stay as they
/// were, because nothing has changed yet.
#[must_use]
pub fn intended(before: &RouteGCStatus, memory: &History) -> RouteGCStatus {
    RouteGCStatus {
        candidates: memory.candidates.clone(),
        removing: memory.removing.clone(),
        recreated: memory.recreated.clone(),
        last_removed: memory.removed.clone(),
        ..before.clone()
    }
}

/// The status after a reconciliation that could decide; `failed` is why the removals failed, if they did.
#[must_use]
pub fn decided(
    before: &RouteGCStatus,
    generation: Option<i64>,
    mode: Mode,
    decision: &Decision,
    failed: Option<&Error>,
    now: Timestamp,
) -> RouteGCStatus {
    let mut status = RouteGCStatus {
        observed_generation: generation,
        conditions: before.conditions.clone(),
        router_id: before.router_id.clone(),
        counts: Some(decision.counts.clone()),
        quota: Some(decision.quota.clone()),
        candidates: decision.history.candidates.clone(),
        removal_hash: decision.excess.as_ref().map(|excess| excess.hash.clone()),
        removing: decision.history.removing.clone(),
        recreated: decision.history.recreated.clone(),
        last_removed: decision.history.removed.clone(),
        last_change: before.last_change,
    };
    let (ready, reason, message) = match failed {
        Some(error) => (Status::False, error.code(), error.to_string()),
        None => verdict(mode, decision),
    };
    set(&mut status, "Ready", ready, reason, message, now);
    let excess = decision.excess.clone().map(Reason::SafetyThreshold);
    problem(&mut status, "SafetyThreshold", excess.as_ref(), "WithinLimits", now);
    let recreated = decision.recreated.first().cloned().map(Reason::Recreated);
    problem(&mut status, "Recreated", recreated.as_ref(), "NotRecreated", now);
    let invalid =
        (!decision.unconnected.is_empty()).then(|| Reason::InvalidRoutes(decision.unconnected.clone()));
    let refused = failed.filter(|error| error.code() == "RouterHasInvalidRoutes");
    let refused = refused.map(|error| Reason::Failed(error.code(), error.to_string()));
    let invalid = invalid.or(refused);
    problem(&mut status, "RouterHasInvalidRoutes", invalid.as_ref(), "NoneFound", now);
    let covered = decision.covered.clone().map(Reason::WideAddressPair);
    problem(&mut status, "WideAddressPair", covered.as_ref(), "NoneFound", now);
    dated(before, status, now)
}

/// The status after a reconciliation that could not decide: counts and confirmations stay as they were.
#[must_use]
pub fn undecided(
    before: &RouteGCStatus,
    generation: Option<i64>,
    error: &Error,
    now: Timestamp,
) -> RouteGCStatus {
    let mut status = RouteGCStatus { observed_generation: generation, ..before.clone() };
    set(&mut status, "Ready", Status::False, error.code(), error.to_string(), now);
    dated(before, status, now)
}

/// The reason of Ready and its sentence, where nothing failed.
fn verdict(mode: Mode, decision: &Decision) -> (Status, &'static str, String) {
    let counts = &decision.counts;
    if let Some(excess) = &decision.excess {
        let reason = Reason::SafetyThreshold(excess.clone());
        return (Status::False, reason.code(), reason.to_string());
    }
    let open = counts.orphan.saturating_sub(counts.recreated);
    if open == 0 && counts.recreated > 0 {
        let message = match counts.recreated {
            1 => "1 orphaned route was recreated and is not removed again for a day".to_owned(),
            many => format!("{many} orphaned routes were recreated and are not removed again for a day"),
        };
        return (Status::True, "Recreated", message);
    }
    if let (0, Some(covered)) = (open, &decision.covered) {
        let reason = Reason::WideAddressPair(covered.clone());
        return (Status::True, reason.code(), reason.to_string());
    }
    if open == 0 && counts.unknown > 0 {
        return (Status::True, "UnknownNextHops", unknown(decision));
    }
    if open == 0 {
        return (Status::True, "NoOrphans", "no route of the pod networks is orphaned".to_owned());
    }
    // In mode Enforce they are removed by then.
    if decision.removals.is_empty() || mode == Mode::Enforce {
        let message = match open {
            1 => "1 route is orphaned and is being confirmed".to_owned(),
            many => format!("{many} routes are orphaned and are being confirmed"),
        };
        return (Status::True, "Confirming", message);
    }
    let routes = list(decision.removals.iter().map(|one| &one.route));
    (Status::True, "OrphansFound", format!("mode Enforce would remove {routes}"))
}

/// The message about routes with unknown next hops, each with the cause.
fn unknown(decision: &Decision) -> String {
    let unknown = decision.classified.iter().filter_map(|one| match &one.class {
        RouteClass::Unknown(why) => Some(format!("{} ({why})", one.route)),
        _ => None,
    });
    let so_many = so_many(decision.counts.unknown as usize);
    format!(
        "no other route is orphaned, but whether the next hops of {so_many} exist cannot be observed: {}",
        first_of(unknown)
    )
}

fn problem(
    status: &mut RouteGCStatus,
    kind: &'static str,
    why: Option<&Reason>,
    fine: &'static str,
    now: Timestamp,
) {
    match why {
        Some(why) => set(status, kind, Status::True, why.code(), why.to_string(), now),
        None => set(status, kind, Status::False, fine, String::new(), now),
    }
}

fn set(
    status: &mut RouteGCStatus,
    kind: &'static str,
    value: Status,
    reason: &'static str,
    message: String,
    now: Timestamp,
) {
    // The same error has another request ID each time; that alone is no reason to write.
    let known = status.conditions.iter().find(|one| one.kind == kind && one.reason == reason);
    let message = match known {
        Some(known) if without_ids(&known.message) == without_ids(&message) => known.message.clone(),
        _ => message,
    };
    let observed_generation = status.observed_generation;
    let seen = Seen { kind, status: value, observed_generation, reason, message };
    conditions::set(&mut status.conditions, seen, now);
}

/// A message without the cloud's request IDs, which differ each time.
#[must_use]
pub fn without_ids(message: &str) -> String {
    message.split_whitespace().filter(|word| !is_request_id(word)).collect::<Vec<_>>().join(" ")
}

/// In brackets, as our client writes them, or `req-` and a UUID, as oslo.middleware makes them: a name may begin alike.
fn is_request_id(word: &str) -> bool {
    let word = word.trim_end_matches([';', ',', ':', '.']);
    let uuid = |id: &str| id.len() == 36 && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let bare = word.trim_matches(|one: char| !one.is_ascii_alphanumeric());
    (word.starts_with("(req-") && word.ends_with(')')) || bare.strip_prefix("req-").is_some_and(uuid)
}

/// The time changes only together with something else.
fn dated(before: &RouteGCStatus, mut status: RouteGCStatus, now: Timestamp) -> RouteGCStatus {
    if status != *before {
        status.last_change = Some(now);
    }
    status
}

#[cfg(test)]
mod tests {
    use common::api::routegc::{Quota, RouteGCStatus};

    use super::{history, without_ids};

    /// Otherwise a quota that cannot be read once would be a status write in a steady state.
    #[test]
    fn the_last_limit_is_part_of_the_history() {
        let quota = Some(Quota { routes: 3, limit: Some(30) });
        assert_eq!(history(&RouteGCStatus { quota, ..RouteGCStatus::default() }).limit, Some(30));
        assert_eq!(history(&RouteGCStatus::default()).limit, None);
    }

    #[test]
    fn request_ids_are_left_out_and_names_that_begin_alike_are_not() {
        let id = "req-0d4c6f1e-8a53-4b0b-9a2f-0123456789ab";
        for (message, left) in [
            (format!("500: no ({id}); later"), "500: no later"),
            (format!("see {id}, please"), "see please"),
            ("503: away (req-7)".to_owned(), "503: away"),
            ("no Secret routegc/freq-a".to_owned(), "no Secret routegc/freq-a"),
            ("overlaps with req-1 and a/req-2".to_owned(), "overlaps with req-1 and a/req-2"),
        ] {
            assert_eq!(without_ids(&message), left);
        }
    }
}
