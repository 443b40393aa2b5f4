//! A duration in whole seconds, as users write it in YAML: `5m`, `1h30m`, `90s`.
//!
//! `kube::core::Duration` reads the same texts, but also negative ones and fractions, and it writes a day as `86400s`: the defaults
//! in a CRD and the output of `kubectl get -o yaml` shall read `24h`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Hours, minutes and seconds in this order, each at most once. Nine digits a unit cannot overflow 64 bits.
const PATTERN: &str = r"^([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?$";

/// A duration in whole seconds. Every text that its schema admits can be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Period(Duration);

impl Period {
    /// A number of seconds.
    #[must_use]
    pub const fn seconds(seconds: u64) -> Period {
        Period(Duration::from_secs(seconds))
    }

    /// A number of minutes.
    #[must_use]
    pub const fn minutes(minutes: u64) -> Period {
        Period::seconds(minutes * 60)
    }

    /// A number of hours.
    #[must_use]
    pub const fn hours(hours: u64) -> Period {
        Period::minutes(hours * 60)
    }

    /// As a duration of the standard library.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }
}

/// The shortest text: 90 seconds are `1m30s`.
impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        if seconds == 0 {
            return f.write_str("0s");
        }
        for (amount, unit) in [(seconds / 3600, 'h'), (seconds / 60 % 60, 'm'), (seconds % 60, 's')] {
            if amount > 0 {
                write!(f, "{amount}{unit}")?;
            }
        }
        Ok(())
    }
}

/// A text that is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no duration; write 90s, 5m or 1h30m")]
pub struct Invalid(String);

impl FromStr for Period {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid(text.to_owned());
        let mut rest = text;
        let mut seconds = 0_u64;
        for (unit, scale) in [('h', 3600), ('m', 60), ('s', 1)] {
            let Some((number, after)) = rest.split_once(unit) else { continue };
            let digits = (1..=9).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
            let number: u64 = number.parse().ok().filter(|_| digits).ok_or_else(refuse)?;
            seconds += number * scale;
            rest = after;
        }
        if text.is_empty() || !rest.is_empty() {
            return Err(refuse());
        }
        Ok(Period::seconds(seconds))
    }
}

impl Serialize for Period {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Period {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Period {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Period".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "type": "string", "pattern": PATTERN, "minLength": 2, "maxLength": 32 })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn usual_spellings_are_parsed() {
        for (text, seconds) in
            [("90s", 90), ("5m", 300), ("1h30m", 5400), ("0s", 0), ("5m0s", 300), ("24h", 86_400)]
        {
            assert_eq!(text.parse(), Ok(Period::seconds(seconds)), "{text}");
        }
        for text in ["", "5", "m", "5m5h", "5m5m", "-5m", "1.5h", "5 m", "1000000000s", "٣s"] {
            assert!(text.parse::<Period>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn every_text_that_the_schema_admits_is_parsed(text in "([0-9]{1,9}h)?([0-9]{1,9}m)?([0-9]{1,9}s)?") {
            prop_assert_eq!(text.parse::<Period>().is_ok(), text.len() >= 2);
        }

        #[test]
        fn a_formatted_period_parses_to_the_same_value(seconds in 0_u64..10_000_000) {
            let period = Period::seconds(seconds);
            prop_assert_eq!(period.to_string().parse(), Ok(period));
        }
    }
}
