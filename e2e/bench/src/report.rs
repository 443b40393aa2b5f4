//! The table, as Markdown.

use std::fmt;

use crate::figures::Figures;

/// All that a run has found out.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// What it ran on, one fact a line.
    pub(crate) circumstances: Vec<String>,
    /// The figures.
    pub(crate) rows: Vec<Row>,
    /// What cannot be said in a cell.
    pub(crate) notes: Vec<String>,
}

/// One figure.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name.
    pub(crate) what: String,
    /// What it should be; empty where nothing was promised.
    pub(crate) goal: &'static str,
    /// What it is.
    pub(crate) figures: Figures,
    /// What exactly was measured, in a sentence.
    pub(crate) meaning: String,
}

impl Report {
    /// Adds a figure.
    pub(crate) fn row(
        &mut self,
        what: impl Into<String>,
        goal: &'static str,
        figures: Figures,
        meaning: impl Into<String>,
    ) {
        self.rows.push(Row { what: what.into(), goal, figures, meaning: meaning.into() });
    }

    /// Adds a note.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.circumstances {
            writeln!(f, "* {line}")?;
        }
        writeln!(f, "\n| Figure | Runs | Min | Median | Max | Goal | What was measured |")?;
        writeln!(f, "|---|---:|---:|---:|---:|---|---|")?;
        for Row { what, goal, figures, meaning } in &self.rows {
            let [min, median, max] = figures.spread();
            let runs = figures.runs();
            writeln!(f, "| {what} | {runs} | {min} | {median} | {max} | {goal} | {meaning} |")?;
        }
        if !self.notes.is_empty() {
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "* {note}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Unit;

    #[test]
    fn it_is_a_markdown_table() {
        let mut report = Report { circumstances: vec!["here".into()], ..Report::default() };
        report.row("a", "≤ 2", Figures::new(Unit::Count, [1.0]).unwrap(), "all of it");
        report.note("mind the gap");
        let text = report.to_string();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.first(), Some(&"* here"));
        assert!(lines.contains(&"| a | 1 | 1 | 1 | 1 | ≤ 2 | all of it |"), "{text}");
        assert_eq!(lines.last(), Some(&"* mind the gap"));
    }
}
