//! Two tables in Markdown: the goals, and every figure.

use std::fmt::Write as _;

use super::driver::{Chunk, Taken};

/// The rows that goals are about, or whose memory is measured.
pub(super) const OURS: &str = "**egress-router**, master and gateway named";
pub(super) const OURS_WHOLE: &str = "egress-router, with a list and two redirects";
pub(super) const OURS_V6: &str = "egress-router, IPv6";
pub(super) const OURS_FULL: &str = "egress-router, 250 attachments on the node";
pub(super) const OURS_CROWD: &str = "egress-router, 8 at once";
pub(super) const OURS_VERSION: &str = "egress-router, VERSION";
pub(super) const PEER: &str = "macvlan + static (Debian)";

/// The calls of one program with one configuration, ascending.
#[derive(Debug, Default)]
pub(super) struct Row {
    pub(super) title: &'static str,
    add: Vec<f64>,
    add_processor: Vec<f64>,
    del: Vec<f64>,
    del_processor: Vec<f64>,
    /// The most of any ADD, in bytes.
    pub(super) memory: Option<u64>,
}

impl Row {
    pub(super) fn of(title: &'static str, chunks: &[Chunk]) -> Self {
        let all = |calls: fn(&Chunk) -> &Vec<Taken>, what: fn(&Taken) -> f64| {
            let mut values: Vec<f64> = chunks.iter().flat_map(calls).map(what).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        Self {
            title,
            add: all(|chunk| &chunk.add, |taken| taken.wall),
            add_processor: all(|chunk| &chunk.add, |taken| taken.processor),
            del: all(|chunk| &chunk.del, |taken| taken.wall),
            del_processor: all(|chunk| &chunk.del, |taken| taken.processor),
            memory: None,
        }
    }
}

/// Both tables. `size` is that of egress-router's file.
pub(super) fn table(rows: &[Row], size: u64) -> String {
    let row = |title| rows.iter().find(|row| row.title == title);
    let add = |title| row(title).map_or(f64::NAN, |row| at(&row.add, 50));
    let del = row(OURS).map_or(f64::NAN, |row| at(&row.del, 50));
    let memory = row(OURS).and_then(|row| row.memory).map_or(f64::NAN, |bytes| bytes as f64 / 1e6);
    let (ours, size) = (add(OURS), size as f64 / 1e6);
    let faster = add(PEER) / ours;
    let at_most = |what: &str, goal: f64, measured: f64, unit: &str| {
        (what.to_owned(), format!("≤ {goal} {unit}"), format!("{} {unit}", cell(measured)), measured <= goal)
    };
    let goals = [
        at_most("ADD, median", 1.5, ours, "ms"),
        (
            "ADD, compared to macvlan + static".to_owned(),
            "≥ 5 times faster".to_owned(),
            format!("{faster:.1} times"),
            faster >= 5.0,
        ),
        at_most("Memory, most of any ADD", 3.0, memory, "MB"),
        at_most("Program file", 2.5, size, "MB"),
        at_most("DEL, median", 20.0, del, "ms"),
        at_most("ADD of IPv6, median", 2.0, add(OURS_V6), "ms"),
        at_most("ADD with 250 attachments on the node, median", 1.5, add(OURS_FULL), "ms"),
        at_most("ADD, 8 at once, median", 5.0, add(OURS_CROWD), "ms"),
        at_most("VERSION, median", 0.3, add(OURS_VERSION), "ms"),
    ];
    let mut text = "| Figure | Goal | Measured | |\n|---|---|---|---|\n".to_owned();
    for (what, goal, measured, met) in goals {
        let met = if met { "met" } else { "**missed**" };
        let _ = writeln!(text, "| {what} | {goal} | {measured} | {met} |");
    }
    text.push_str(
        "\n| ms | n | ADD median | p10 | p90 | processor | DEL median | p10 | p90 | processor | memory, MB |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in rows {
        let _ = write!(text, "| {} | {} |", row.title, row.add.len());
        for (wall, processor) in [(&row.add, &row.add_processor), (&row.del, &row.del_processor)] {
            for value in [at(wall, 50), at(wall, 10), at(wall, 90), at(processor, 50)] {
                let _ = write!(text, " {} |", cell(value));
            }
        }
        let _ =
            writeln!(text, " {} |", row.memory.map_or_else(String::new, |bytes| cell(bytes as f64 / 1e6)));
    }
    text
}

/// A percentile; not a number where nothing was measured.
fn at(ascending: &[f64], percent: usize) -> f64 {
    let last = ascending.len().saturating_sub(1);
    ascending.get((last * percent + 50) / 100).copied().unwrap_or(f64::NAN)
}

/// Empty where nothing was measured.
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
    fn percentile_is_a_measured_value() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!([10, 50, 90, 100].map(|percent| at(&values, percent)), [11.0, 51.0, 90.0, 100.0]);
        assert_eq!(at(&[7.0], 90), 7.0);
        assert!(at(&[], 50).is_nan());
        assert_eq!([cell(f64::NAN), cell(1.234), cell(12.34), cell(1234.5)], ["", "1.23", "12.3", "1234"]);
    }

    #[test]
    fn goal_is_met_missed_or_missed_without_a_measurement() {
        let call = |wall| Taken { wall, processor: 0.5, memory: 0 };
        let chunk = |add, del| Chunk { add: vec![call(add)], del: vec![call(del)], others: 0.0 };
        let rows = [Row::of(OURS, &[chunk(1.0, 30.0)]), Row::of(PEER, &[chunk(7.5, 20.0)])];
        let text = table(&rows, 2_000_000);
        assert!(
            text.contains("| ADD, compared to macvlan + static | ≥ 5 times faster | 7.5 times | met |"),
            "{text}"
        );
        assert!(text.contains("| DEL, median | ≤ 20 ms | 30.0 ms | **missed** |"), "{text}");
        assert!(text.contains("| ADD, 8 at once, median | ≤ 5 ms |  ms | **missed** |"), "{text}");
        assert!(text.ends_with("| macvlan + static (Debian) | 1 | 7.50 | 7.50 | 7.50 | 0.50 | 20.0 | 20.0 | 20.0 | 0.50 |  |\n"), "{text}");
    }
}
