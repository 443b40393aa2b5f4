//! Output: plain text of at most [`WIDTH`] columns, with colours on a terminal.

use std::cell::Cell;
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval};

/// Fits into a terminal beside another window.
const WIDTH: usize = 100;
/// The column at which the text of an event begins: after its time and its source.
const EVENT: usize = 24;
/// Prose and commands are indented below the title of a chapter.
const INDENT: usize = 2;
/// Output of programs is indented below its command.
const OUTPUT: usize = 4;

const TITLE: &str = "1;36";
const COMMAND: &str = "1";
const DIM: &str = "2";
const SUCCESS: &str = "1;32";
const FAILURE: &str = "1;31";
const CONTROLLER: &str = "32";
const ENVIRONMENT: &str = "33";

/// Standard output.
pub(crate) struct Screen {
    colours: bool,
    terminal: bool,
    /// The last line was empty.
    gap: Cell<bool>,
}

impl Screen {
    /// No colours for a pipe, a file, a dumb terminal, or with `NO_COLOR`.
    pub(crate) fn new() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = std::io::stdout().is_terminal();
        Self { colours: terminal && !dumb && !no_color, terminal, gap: Cell::new(false) }
    }

    /// Whether a person reads along.
    pub(crate) fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The first line of a chapter.
    pub(crate) fn title(&self, title: &str) {
        let head = format!("── {title} ");
        let rest = "─".repeat(WIDTH.saturating_sub(head.chars().count()));
        self.gap();
        self.line(&self.paint(TITLE, &format!("{head}{rest}")));
    }

    /// Some sentences.
    pub(crate) fn say(&self, text: &str) {
        self.wrapped("", text, INDENT);
    }

    /// A command as a user would type it.
    pub(crate) fn command(&self, text: &str) {
        self.line(&format!("{:INDENT$}{}", "", self.paint(COMMAND, &format!("$ {text}"))));
    }

    /// Prints the output of a program. Long lines are wrapped.
    pub(crate) fn output(&self, text: &str) {
        for line in text.lines() {
            let own = line.chars().take_while(|c| c.is_whitespace()).count() + OUTPUT;
            if line.is_empty() {
                self.gap();
            } else if line.chars().count() + OUTPUT <= WIDTH {
                self.line(&format!("{:OUTPUT$}{line}", ""));
            } else {
                self.wrapped(&" ".repeat(own), line.trim_start(), own + 3);
            }
        }
    }

    /// Something that happened, with the time since its cause.
    pub(crate) fn event(&self, after: Duration, source: &str, text: &str) {
        let colour = if source.starts_with("natgw") { CONTROLLER } else { ENVIRONMENT };
        let time = self.paint(DIM, &format!("{:>8} ms", after.as_millis()));
        self.wrapped(&format!("{time}  {}  ", self.paint(colour, &format!("{source:<9}"))), text, EVENT);
    }

    /// Why the event above it happened.
    pub(crate) fn because(&self, why: &str) {
        for line in wrap(why, WIDTH - EVENT - INDENT) {
            self.line(&format!("{:1$}{2}", "", EVENT + INDENT, self.paint(DIM, &line)));
        }
    }

    /// A name and its value.
    pub(crate) fn fact(&self, name: &str, value: &str) {
        let head = format!("{:OUTPUT$}{}  ", "", self.paint(DIM, name));
        self.wrapped(&head, value, OUTPUT + name.chars().count() + 2);
    }

    /// Columns as wide as their widest cell.
    pub(crate) fn table<const N: usize>(&self, head: [&str; N], rows: &[[String; N]]) {
        let widths: [usize; N] = std::array::from_fn(|column| {
            let cells = rows.iter().flat_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain(head.get(column).map(|cell| cell.chars().count())).max().unwrap_or_default()
        });
        let line = |cells: [&str; N]| {
            let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}   "));
            format!("{:OUTPUT$}{}", "", padded.collect::<String>().trim_end())
        };
        self.line(&self.paint(DIM, &line(head)));
        for row in rows {
            self.line(&line(row.each_ref().map(String::as_str)));
        }
    }

    /// A step that succeeded, with its figure at the right.
    pub(crate) fn success(&self, text: &str, figure: &str) {
        let used = INDENT + text.chars().count() + figure.chars().count() + 4;
        let dots = self.paint(DIM, &".".repeat(WIDTH.saturating_sub(used + INDENT)));
        self.line(&format!("{:INDENT$}{} {text} {dots} {figure}", "", self.paint(SUCCESS, "✓")));
    }

    /// Prints the error that ended the demo.
    pub(crate) fn error(&self, text: &str) {
        self.gap();
        self.wrapped(&format!("{:INDENT$}{} ", "", self.paint(FAILURE, "✗")), text, 2 * INDENT);
    }

    /// A line as it is.
    pub(crate) fn line(&self, text: &str) {
        self.gap.set(text.is_empty());
        // The reader may have closed the pipe.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    /// An empty line, unless the last one is.
    pub(crate) fn gap(&self) {
        if !self.gap.get() {
            self.line("");
        }
    }

    /// Text without an end of line.
    pub(crate) fn part(&self, text: &str) {
        let mut out = std::io::stdout();
        let _ = write!(out, "{text}").and_then(|()| out.flush());
    }

    /// Waits for slow work: a dot for each second, then how long it took.
    pub(crate) async fn progress<T>(&self, what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let began = Instant::now();
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Skip);
        second.reset();
        self.part(&format!("{:OUTPUT$}{what} ", ""));
        let mut work = std::pin::pin!(work);
        let done = loop {
            tokio::select! {
                done = &mut work => break done,
                _ = second.tick() => self.part("."),
            }
        };
        let end = if done.is_ok() { "" } else { " failed" };
        self.line(&self.paint(DIM, &format!(" {:.1} s{end}", began.elapsed().as_secs_f64())));
        done.with_context(|| what.to_owned())
    }

    /// Waits for Enter, or the end of standard input.
    pub(crate) async fn pause(&self) {
        self.gap();
        self.part("  Enter: next chapter ");
        let (pressed, wait) = oneshot::channel();
        // A thread outside of the runtime: nothing but Enter can end it.
        std::thread::spawn(move || {
            let _ = std::io::stdin().lock().read_line(&mut String::new());
            let _ = pressed.send(());
        });
        let _ = wait.await;
    }

    /// `text` after `head`; further lines are indented.
    fn wrapped(&self, head: &str, text: &str, indent: usize) {
        let blank = " ".repeat(indent);
        for (index, line) in wrap(text, WIDTH - indent).iter().enumerate() {
            let head = if index == 0 && !head.is_empty() { head } else { &blank };
            self.line(&format!("{head}{line}"));
        }
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Breaks at spaces. A word that is longer than the line stays whole.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_broken_at_spaces_and_no_word_is_lost() {
        assert_eq!(wrap("a bb ccc dddd", 6), ["a bb", "ccc", "dddd"]);
        assert_eq!(wrap("unbreakable x", 4), ["unbreakable", "x"]);
        assert_eq!(wrap("", 4), [""]);
    }
}
