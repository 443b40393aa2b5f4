//! How the demo looks: plain text of at most [`WIDTH`] columns, with colours on a terminal that wants them.

use std::cell::Cell;
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

/// No line is longer.
pub(crate) const WIDTH: usize = 100;
/// Where the text of an event begins: behind its time and its origin.
const EVENT: usize = 24;
/// Prose is set in a little from commands and chapters.
const PROSE: usize = 2;

/// Standard output.
pub(crate) struct Screen {
    colours: bool,
    terminal: bool,
    /// Whether the last line was empty: one is enough.
    gap: Cell<bool>,
}

/// What a piece of text is; decides its colour.
#[derive(Clone, Copy)]
enum Style {
    Chapter,
    Command,
    Dim,
    Good,
    Bad,
    Natgw,
    Other,
}

impl Screen {
    /// `NO_COLOR`, a dumb terminal, a pipe or a file get none.
    pub(crate) fn new() -> Self {
        let set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = std::io::stdout().is_terminal();
        Screen { colours: terminal && !dumb && !set("NO_COLOR"), terminal, gap: Cell::new(false) }
    }

    /// Whether a person sees it as it comes.
    pub(crate) fn is_live(&self) -> bool {
        self.terminal
    }

    /// The first line of a chapter, over the whole width.
    pub(crate) fn title(&self, title: &str) {
        let head = format!("── {title} ");
        let rest = "─".repeat(WIDTH.saturating_sub(head.chars().count()));
        self.gap();
        self.line(&self.paint(Style::Chapter, &format!("{head}{rest}")));
    }

    /// Some sentences.
    pub(crate) fn say(&self, text: &str) {
        for line in wrap(text, WIDTH - PROSE) {
            self.line(&format!("{:PROSE$}{line}", ""));
        }
    }

    /// A command as a user would type it.
    pub(crate) fn command(&self, text: &str) {
        self.line(&format!("{:PROSE$}{}", "", self.paint(Style::Command, &format!("$ {text}"))));
    }

    /// What a program printed; long lines are broken and set in.
    pub(crate) fn output(&self, text: &str) {
        for line in text.lines() {
            if line.is_empty() {
                self.gap();
                continue;
            }
            let indent = line.chars().take_while(|c| c.is_whitespace()).count();
            if line.chars().count() + 2 * PROSE <= WIDTH {
                self.line(&format!("{:1$}{line}", "", 2 * PROSE));
                continue;
            }
            let hang = indent + 2 * PROSE + 3;
            for (number, part) in wrap(line.trim_start(), WIDTH - hang).iter().enumerate() {
                let indent = if number == 0 { indent + 2 * PROSE } else { hang };
                self.line(&format!("{:indent$}{part}", ""));
            }
        }
    }

    /// Something that happened so long after its cause.
    pub(crate) fn event(&self, after: Duration, who: &str, text: &str) {
        let style = if who.starts_with("natgw") { Style::Natgw } else { Style::Other };
        let mut lines = wrap(text, WIDTH - EVENT).into_iter();
        let first = lines.next().unwrap_or_default();
        let time = self.paint(Style::Dim, &format!("{:>8} ms", after.as_millis()));
        self.line(&format!("{time}  {}  {first}", self.paint(style, &format!("{who:<9}"))));
        for line in lines {
            self.line(&format!("{:EVENT$}{line}", ""));
        }
    }

    /// Why the event above it happened.
    pub(crate) fn because(&self, why: &str) {
        for line in wrap(why, WIDTH - EVENT - PROSE) {
            self.line(&format!("{:1$}{2}", "", EVENT + PROSE, self.paint(Style::Dim, &line)));
        }
    }

    /// How things are: a word and what there is to say of it.
    pub(crate) fn fact(&self, what: &str, text: &str) {
        self.line(&format!("{:1$}{2}  {text}", "", 2 * PROSE, self.paint(Style::Dim, what)));
    }

    /// Columns as wide as they need to be.
    pub(crate) fn table<const N: usize>(&self, head: [&str; N], rows: &[[String; N]]) {
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain(head.get(column).map(|cell| cell.chars().count())).max().unwrap_or_default()
        };
        let render = |cells: Vec<&str>| {
            let padded = cells.iter().enumerate().map(|(column, cell)| {
                let wide = width(column);
                format!("{cell:wide$}   ")
            });
            format!("{:1$}{2}", "", 2 * PROSE, padded.collect::<String>().trim_end())
        };
        self.line(&self.paint(Style::Dim, &render(head.to_vec())));
        for row in rows {
            self.line(&render(row.iter().map(String::as_str).collect()));
        }
    }

    /// Something that was to be seen, and was; with its figure at the right.
    pub(crate) fn seen(&self, text: &str, figure: &str) {
        let room = WIDTH - 2 * PROSE - 2;
        let dots = room.saturating_sub(text.chars().count() + figure.chars().count() + 2);
        self.line(&format!(
            "{:PROSE$}{} {text} {} {figure}",
            "",
            self.paint(Style::Good, "✓"),
            self.paint(Style::Dim, &".".repeat(dots))
        ));
    }

    /// What went wrong.
    pub(crate) fn wrong(&self, text: &str) {
        self.gap();
        for (number, line) in wrap(text, WIDTH - 2 * PROSE).iter().enumerate() {
            let mark = if number == 0 { self.paint(Style::Bad, "✗") } else { " ".into() };
            self.line(&format!("{:PROSE$}{mark} {line}", ""));
        }
    }

    /// Anything, as it is.
    pub(crate) fn line(&self, text: &str) {
        self.gap.set(text.is_empty());
        // Whoever closed the pipe wants no more of it.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// Does something slow: a dot for each second, then how long it took.
    pub(crate) async fn progress<T>(&self, what: impl Display, work: impl Future<Output = T>) -> T {
        let begun = std::time::Instant::now();
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        second.reset();
        self.part(&format!("{:1$}{what} ", "", 2 * PROSE));
        let mut work = std::pin::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = second.tick() => self.part("."),
            }
        };
        self.line(&self.paint(Style::Dim, &format!(" {:.1} s", begun.elapsed().as_secs_f64())));
        done
    }

    /// An empty line, if there is none already.
    pub(crate) fn gap(&self) {
        if !self.gap.get() {
            self.line("");
        }
    }

    /// Text without an end of line, seen at once.
    pub(crate) fn part(&self, text: &str) {
        let mut out = std::io::stdout();
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if !self.colours {
            return text.to_owned();
        }
        let code = match style {
            Style::Chapter => "1;36",
            Style::Command => "1",
            Style::Dim => "2",
            Style::Good => "1;32",
            Style::Bad => "1;31",
            Style::Natgw => "32",
            Style::Other => "33",
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

/// Breaks at spaces; a word that is longer than the line stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(std::mem::take(&mut line));
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_nothing_is_lost() {
        assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("unbreakable x", 4), ["unbreakable", "x"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
