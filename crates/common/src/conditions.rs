//! `status.conditions` as the API conventions want them: a list with one entry a type, whose transition time moves only
//! when the status does. The time is passed in, so that deciding a status needs no clock.

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

/// True, False or Unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Status {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It could not be found out. Any word that is not `True` or `False` is read as this one.
    #[default]
    #[serde(other)]
    Unknown,
}

/// `metav1.Condition`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// CamelCase: `Ready`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: Status,
    /// The `metadata.generation` that this was seen for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When `status` last changed, to the second as the API has it.
    pub last_transition_time: Timestamp,
    /// One CamelCase word of a closed set.
    pub reason: String,
    /// For a person.
    pub message: String,
}

/// A condition as a controller observed it, without its transition time. [`set`] adds the time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// CamelCase: `Ready`.
    pub kind: &'static str,
    /// Whether it holds.
    pub status: Status,
    /// The `metadata.generation` that was looked at.
    pub observed_generation: Option<i64>,
    /// One CamelCase word of a closed set.
    pub reason: &'static str,
    /// For a person.
    pub message: String,
}

/// Puts `seen` into the list: replaces the entry of its type, else appends. Returns whether anything but the time differs,
/// which is whether a status has to be written.
pub fn set(conditions: &mut Vec<Condition>, seen: Seen, now: Timestamp) -> bool {
    // Rounding down cannot fail for a time of this era; a time that cannot be rounded is still a time.
    let now = now
        .round(jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Trunc))
        .unwrap_or(now);
    let fresh = Condition {
        kind: seen.kind.to_owned(),
        status: seen.status,
        observed_generation: seen.observed_generation,
        last_transition_time: now,
        reason: seen.reason.to_owned(),
        message: seen.message,
    };
    match conditions.iter_mut().find(|condition| condition.kind == seen.kind) {
        None => {
            conditions.push(fresh);
            true
        }
        Some(old) => {
            let since = if old.status == fresh.status { old.last_transition_time } else { now };
            let fresh = Condition { last_transition_time: since, ..fresh };
            let changed = *old != fresh;
            *old = fresh;
            changed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(status: Status, message: &str) -> Seen {
        Seen {
            kind: "Ready",
            status,
            observed_generation: Some(3),
            reason: "Because",
            message: message.to_owned(),
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::new(second, 999_000_000).unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let mut list = Vec::new();
        assert!(set(&mut list, seen(Status::False, "a"), at(10)));
        assert!(!set(&mut list, seen(Status::False, "a"), at(20)), "nothing new");
        assert!(set(&mut list, seen(Status::False, "b"), at(30)), "the message is new");
        assert_eq!(list[0].last_transition_time, Timestamp::from_second(10).unwrap());
        assert!(set(&mut list, seen(Status::True, "b"), at(40)));
        assert_eq!(list[0].last_transition_time, Timestamp::from_second(40).unwrap());
        assert_eq!(list.len(), 1);
    }

    #[test]
    fn it_is_written_as_the_api_has_it() {
        let mut list = Vec::new();
        set(&mut list, seen(Status::Unknown, "m"), at(0));
        assert_eq!(
            serde_json::to_value(&list).unwrap(),
            serde_json::json!([{ "type": "Ready", "status": "Unknown", "observedGeneration": 3,
                "lastTransitionTime": "1970-01-01T00:00:00Z", "reason": "Because", "message": "m" }])
        );
    }

    #[test]
    fn any_other_word_is_read_as_unknown() {
        for (word, status) in [
            ("True", Status::True),
            ("False", Status::False),
            ("Unknown", Status::Unknown),
            ("odd", Status::Unknown),
        ] {
            assert_eq!(serde_json::from_value::<Status>(word.into()).unwrap(), status);
        }
    }
}
