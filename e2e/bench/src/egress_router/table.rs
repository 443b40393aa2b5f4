//! Two tables in Markdown: every figure, and the goals.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anyhow::{Context, Result};

use super::driver::{Chunk, Taken};

/// What was measured of whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Column {
    Ours,
    OursInferred,
    OursWhole,
    OursIpv6,
    Peer,
    PeerIpv6,
    Bare,
    OursCrowd,
    PeerCrowd,
    OursVersion,
    PeerVersion,
}

impl Column {
    fn title(self) -> &'static str {
        match self {
            Self::Ours => "**egress-router**, master and gateway named",
            Self::OursInferred => "egress-router, master and gateway inferred",
            Self::OursWhole => "egress-router, with a list and two redirects",
            Self::OursIpv6 => "egress-router, IPv6",
            Self::Peer => "macvlan + static (Debian)",
            Self::PeerIpv6 => "macvlan + static, IPv6",
            Self::Bare => "the kernel alone: a macvlan made and deleted by `ip`",
            Self::OursCrowd => "egress-router, 8 at once",
            Self::PeerCrowd => "macvlan + static, 8 at once",
            Self::OursVersion => "egress-router, VERSION",
            Self::PeerVersion => "macvlan, VERSION",
        }
    }
}

/// All that was measured.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) circumstances: Vec<String>,
    rows: BTreeMap<Column, Row>,
    sizes: Vec<(String, u64)>,
}

/// Ascending.
#[derive(Debug, Default)]
struct Row {
    add: Vec<f64>,
    add_processor: Vec<f64>,
    del: Vec<f64>,
    del_processor: Vec<f64>,
    memory: Vec<f64>,
}

impl Table {
    /// With the sizes of the programs.
    ///
    /// # Errors
    /// One is not there.
    pub(crate) fn new(ours: &Path, peers: &[(&str, &Path)]) -> Result<Self> {
        let programs = [("egress-router", ours)].into_iter().chain(peers.iter().copied());
        let size = |(name, path): (&str, &Path)| {
            let size = std::fs::metadata(path).with_context(|| path.display().to_string())?.len();
            Ok((name.to_owned(), size))
        };
        Ok(Self {
            circumstances: Vec::new(),
            rows: BTreeMap::new(),
            sizes: programs.map(size).collect::<Result<_>>()?,
        })
    }

    pub(crate) fn calls(&mut self, column: Column, chunks: &[Chunk]) {
        let row = self.rows.entry(column).or_default();
        let all = |of: fn(&Chunk) -> &Vec<Taken>, what: fn(&Taken) -> f64| {
            let mut values: Vec<f64> = chunks.iter().flat_map(of).map(what).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        row.add = all(|chunk| &chunk.add, |taken| taken.wall);
        row.add_processor = all(|chunk| &chunk.add, |taken| taken.processor);
        row.del = all(|chunk| &chunk.del, |taken| taken.wall);
        row.del_processor = all(|chunk| &chunk.del, |taken| taken.processor);
    }

    pub(crate) fn memory(&mut self, column: Column, chunk: &Chunk) {
        // Exact up to 8 PiB.
        let mut values: Vec<f64> = chunk.add.iter().map(|taken| taken.memory as f64).collect();
        values.sort_by(f64::total_cmp);
        self.rows.entry(column).or_default().memory = values;
    }

    fn median(&self, column: Column, of: fn(&Row) -> &Vec<f64>) -> f64 {
        self.rows.get(&column).map_or(f64::NAN, |row| at(of(row), 50))
    }

    fn goals(&self) -> Vec<(&'static str, &'static str, String, bool)> {
        let megabyte = 1e6;
        let (add, peer) =
            (self.median(Column::Ours, |row| &row.add), self.median(Column::Peer, |row| &row.add));
        let memory = self.rows.get(&Column::Ours).map_or(f64::NAN, |row| at(&row.memory, 100)) / megabyte;
        let size = self.sizes.first().map_or(f64::NAN, |(_, size)| *size as f64) / megabyte;
        let del = self.median(Column::Ours, |row| &row.del);
        let ipv6 = self.median(Column::OursIpv6, |row| &row.add);
        let crowd = self.median(Column::OursCrowd, |row| &row.add);
        let version = self.median(Column::OursVersion, |row| &row.add);
        vec![
            ("ADD, median", "≤ 1.5 ms", format!("{add:.2} ms"), add <= 1.5),
            (
                "ADD against macvlan + static",
                "≥ 5 times faster",
                format!("{:.1} times", peer / add),
                peer / add >= 5.0,
            ),
            ("Memory, most of any ADD", "≤ 3 MB", format!("{memory:.2} MB"), memory <= 3.0),
            ("Program file", "≤ 2.5 MB", format!("{size:.2} MB"), size <= 2.5),
            ("DEL, median", "≤ 20 ms", format!("{del:.1} ms"), del <= 20.0),
            ("ADD of IPv6, median", "≤ 2 ms", format!("{ipv6:.2} ms"), ipv6 <= 2.0),
            ("ADD, 8 at once, median", "≤ 5 ms", format!("{crowd:.2} ms"), crowd <= 5.0),
            ("VERSION, median", "≤ 0.3 ms", format!("{version:.2} ms"), version <= 0.3),
        ]
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.circumstances {
            writeln!(f, "* {line}")?;
        }
        let sizes: Vec<_> = self.sizes.iter().map(|(name, size)| format!("{name} {size}")).collect();
        writeln!(f, "* Program files, bytes: {}", sizes.join(", "))?;
        writeln!(f, "\n| Goal | Wanted | Measured | |\n|---|---|---|---|")?;
        for (what, wanted, measured, met) in self.goals() {
            writeln!(f, "| {what} | {wanted} | {measured} | {} |", if met { "met" } else { "**missed**" })?;
        }
        writeln!(
            f,
            "\n| ms | n | ADD median | p10 | p90 | processor | DEL median | p10 | p90 | processor | memory, MB |"
        )?;
        writeln!(f, "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")?;
        for (column, row) in &self.rows {
            write!(f, "| {} | {} |", column.title(), row.add.len())?;
            for (values, percent) in [
                (&row.add, 50),
                (&row.add, 10),
                (&row.add, 90),
                (&row.add_processor, 50),
                (&row.del, 50),
                (&row.del, 10),
                (&row.del, 90),
                (&row.del_processor, 50),
            ] {
                write!(f, " {} |", cell(at(values, percent)))?;
            }
            writeln!(f, " {} |", cell(at(&row.memory, 100) / 1e6))?;
        }
        Ok(())
    }
}

/// The value below which that percentage lies; not a number where there is none.
fn at(ascending: &[f64], percent: usize) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((last * percent + 50) / 100).copied().unwrap_or(f64::NAN)
}

/// Empty where nothing was measured; zero is what was not looked at.
fn cell(value: f64) -> String {
    match value {
        value if value.is_nan() || value == 0.0 => String::new(),
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(
            (at(&values, 10), at(&values, 50), at(&values, 90), at(&values, 100)),
            (11.0, 51.0, 90.0, 100.0)
        );
        assert_eq!(at(&[7.0], 90), 7.0);
        assert!(at(&[], 50).is_nan());
        assert_eq!([cell(f64::NAN), cell(1.234), cell(12.34), cell(1234.5)], ["", "1.23", "12.3", "1234"]);
    }
}
