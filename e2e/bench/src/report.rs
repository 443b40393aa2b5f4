//! A run of the bench, and the table that it prints as Markdown.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;

use crate::Part;
use crate::machine;

/// A run of the bench for one controller.
pub(crate) struct Bench {
    /// The program that is measured.
    pub(crate) program: PathBuf,
    only: Vec<Part>,
    began: Instant,
    load: String,
    circumstances: Vec<String>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// A row without a meaning.
#[must_use = "`means` adds the row"]
pub(crate) struct NewRow<'a> {
    rows: &'a mut Vec<Row>,
    row: Row,
}

/// A figure.
struct Row {
    what: String,
    goal: &'static str,
    figures: Figures,
    meaning: String,
}

/// The values of several runs, in one unit.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    unit: &'static str,
    /// Ascending.
    values: Vec<f64>,
}

pub(crate) fn milliseconds(values: impl IntoIterator<Item = Duration>) -> Figures {
    Figures::new(" ms", values.into_iter().map(|value| value.as_secs_f64() * 1e3))
}

pub(crate) fn microseconds(values: impl IntoIterator<Item = f64>) -> Figures {
    Figures::new(" µs", values)
}

/// Sizes in bytes, shown in MiB.
pub(crate) fn mebibytes(values: impl IntoIterator<Item = u64>) -> Figures {
    // Exact up to 8 PiB.
    Figures::new(" MiB", values.into_iter().map(|value| value as f64 / f64::from(1 << 20)))
}

pub(crate) fn count(values: impl IntoIterator<Item = f64>) -> Figures {
    Figures::new("", values)
}

/// The count of a window, extrapolated to an hour.
pub(crate) fn an_hour(number: f64, window: Duration) -> Figures {
    count([number * 3600.0 / window.as_secs_f64()])
}

impl Bench {
    /// Without `only`, all parts are measured.
    pub(crate) fn begin(program: PathBuf, only: Vec<Part>) -> Result<Self> {
        let (circumstances, rows, notes) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { program, only, began: Instant::now(), load: machine::load()?, circumstances, rows, notes })
    }

    /// Whether a part is measured.
    pub(crate) fn selects(&self, part: Part) -> bool {
        self.only.is_empty() || self.only.contains(&part)
    }

    /// Reports what is measured now.
    pub(crate) fn progress(&self, what: &str) {
        eprintln!("bench: {:3} s: {what}", self.began.elapsed().as_secs());
    }

    /// A row, which [`NewRow::means`] adds. `goal` is empty where none is set.
    pub(crate) fn row(
        &mut self,
        what: impl Into<String>,
        goal: &'static str,
        figures: Figures,
    ) -> NewRow<'_> {
        let row = Row { what: what.into(), goal, figures, meaning: String::new() };
        NewRow { rows: &mut self.rows, row }
    }

    /// Adds a line below the table.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Adds what the program was measured on.
    pub(crate) fn end(&mut self, environment: &str) -> Result<()> {
        self.progress("done");
        for Row { what, figures, .. } in &self.rows {
            ensure!(!figures.values.is_empty(), "nothing was measured for the row {what:?}");
        }
        self.circumstances = vec![
            format!("{} on {}", Timestamp::now().strftime("%F"), machine::hardware()?),
            format!("{}; bench: {}; {environment}", machine::version(&self.program)?, machine::BUILD),
            format!(
                "Load average (1, 5, 15 minutes) at the start {}, at the end {}; {} s in all",
                self.load,
                machine::load()?,
                self.began.elapsed().as_secs()
            ),
        ];
        Ok(())
    }
}

impl NewRow<'_> {
    /// Says what exactly was measured.
    pub(crate) fn means(mut self, meaning: impl Into<String>) {
        self.row.meaning = meaning.into();
        self.rows.push(self.row);
    }
}

impl Figures {
    fn new(unit: &'static str, values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Self { unit, values }
    }

    /// The least, the median (of an even number: the mean of the two in the middle) and the greatest value, with the unit.
    fn spread(&self) -> [String; 3] {
        let at = |index: usize| self.values.get(index).copied().unwrap_or_default();
        let last = self.values.len().saturating_sub(1);
        let median = f64::midpoint(at(last / 2), at(last.div_ceil(2)));
        [at(0), median, at(last)].map(|value| {
            // No machine repeats the fourth digit.
            let digits = match value {
                _ if self.unit.is_empty() => 0,
                value if value >= 100.0 => 0,
                value if value >= 10.0 => 1,
                _ => 2,
            };
            format!("{value:.digits$}{}", self.unit)
        })
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.circumstances {
            writeln!(f, "* {line}")?;
        }
        writeln!(f, "\n| Figure | Runs | Min | Median | Max | Goal | What was measured |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---|---|")?;
        for Row { what, goal, figures, meaning } in &self.rows {
            let ([min, median, max], runs) = (figures.spread(), figures.values.len());
            writeln!(f, "| {what} | {runs} | {min} | {median} | {max} | {goal} | {meaning} |")?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "* {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_minimum_median_and_maximum() {
        let odd = milliseconds([30.0, 1.25, 200.4].map(|ms| Duration::from_secs_f64(ms / 1e3)));
        assert_eq!(odd.spread(), ["1.25 ms", "30.0 ms", "200 ms"]);
        assert_eq!(count([4.0, 1.0, 2.0, 8.0]).spread(), ["1", "3", "8"]);
        assert_eq!(mebibytes([7 << 20]).spread(), ["7.00 MiB"; 3]);
    }

    #[test]
    fn report_is_a_markdown_table_and_a_row_without_values_is_an_error() {
        let mut bench = Bench::begin("/bin/sh".into(), vec![Part::Start]).unwrap();
        assert!(bench.selects(Part::Start) && !bench.selects(Part::Steady));
        bench.row("a", "≤ 2", count([1.0])).means("all of it");
        bench.note("below");
        let text = bench.to_string();
        assert!(text.contains("\n| a | 1 | 1 | 1 | 1 | ≤ 2 | all of it |\n\n* below\n"), "{text}");
        bench.row("b", "", count([])).means("none of it");
        assert!(bench.end("").unwrap_err().to_string().contains("\"b\""));
    }
}
