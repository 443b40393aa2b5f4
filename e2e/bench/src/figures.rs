//! What was measured of one thing, and how it is printed.

use std::time::Duration;

use anyhow::{Context, Result};

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Microseconds.
    Microseconds,
    /// 1,048,576 bytes.
    Mebibytes,
    /// Things.
    Count,
}

/// The values of several runs, in one unit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figures {
    unit: Unit,
    /// Ascending; at least one.
    values: Vec<f64>,
}

impl Figures {
    /// Values in that unit.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn new(unit: Unit, values: impl IntoIterator<Item = f64>) -> Result<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.first().context("nothing was measured")?;
        values.sort_by(f64::total_cmp);
        Ok(Self { unit, values })
    }

    /// Durations, shown in milliseconds.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn milliseconds(values: impl IntoIterator<Item = Duration>) -> Result<Self> {
        Self::new(Unit::Milliseconds, values.into_iter().map(|value| value.as_secs_f64() * 1e3))
    }

    /// Sizes in bytes, shown in MiB.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn bytes(values: impl IntoIterator<Item = u64>) -> Result<Self> {
        // Exact up to 8 PiB.
        Self::new(Unit::Mebibytes, values.into_iter().map(|value| value as f64 / f64::from(1 << 20)))
    }

    /// How many.
    pub(crate) fn runs(&self) -> usize {
        self.values.len()
    }

    /// The least, the middle (of an even number: the mean of the two in the middle) and the greatest value, with the unit.
    pub(crate) fn spread(&self) -> [String; 3] {
        let at = |index: usize| self.values.get(index).copied().unwrap_or_default();
        let last = self.runs().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        [at(0), median, at(last)].map(|value| self.unit.text(value))
    }
}

impl Unit {
    /// Three digits that mean something are enough: no machine repeats the fourth.
    fn text(self, value: f64) -> String {
        let digits = match (self, value) {
            (Unit::Count, _) => 0,
            (_, value) if value >= 100.0 => 0,
            (_, value) if value >= 10.0 => 1,
            _ => 2,
        };
        let name = match self {
            Unit::Milliseconds => " ms",
            Unit::Microseconds => " µs",
            Unit::Mebibytes => " MiB",
            Unit::Count => "",
        };
        format!("{value:.digits$}{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spread_is_least_middle_and_greatest() {
        let odd = Figures::new(Unit::Milliseconds, [30.0, 1.25, 200.4]).unwrap();
        assert_eq!(odd.spread(), ["1.25 ms", "30.0 ms", "200 ms"]);
        let even = Figures::new(Unit::Count, [4.0, 1.0, 2.0, 8.0]).unwrap();
        assert_eq!(even.spread(), ["1", "3", "8"]);
        let one = Figures::bytes([7 << 20]).unwrap();
        assert_eq!(
            (one.runs(), one.spread()),
            (1, ["7.00 MiB".into(), "7.00 MiB".into(), "7.00 MiB".into()])
        );
        assert!(Figures::milliseconds([]).is_err());
    }
}
