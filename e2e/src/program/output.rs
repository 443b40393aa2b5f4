//! The output of a child process, line by line.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use tokio::sync::Notify;

/// Number of lines in an error.
const TAIL: usize = 25;

/// The lines of a child, standard output and standard error in the order they came in.
#[derive(Debug)]
pub struct Output {
    name: String,
    echo: bool,
    written: Mutex<Written>,
    changed: Notify,
}

#[derive(Debug)]
struct Written {
    lines: Vec<String>,
    open_pipes: usize,
}

impl Output {
    /// Reads on threads, not on tokio: a control plane outlives the runtime of the test that started it, and a program
    /// whose pipe is not read blocks or fails.
    pub(super) fn of(name: &str, child: &mut Child) -> Result<Arc<Self>> {
        let output = Arc::new(Self {
            name: name.to_owned(),
            echo: std::env::var_os("E2E_VERBOSE").is_some_and(|value| value == "1"),
            written: Mutex::new(Written { lines: Vec::new(), open_pipes: 2 }),
            changed: Notify::new(),
        });
        output.clone().follow(child.stdout.take().context("standard output is piped")?)?;
        output.clone().follow(child.stderr.take().context("standard error is piped")?)?;
        Ok(output)
    }

    /// All lines so far.
    pub fn lines(&self) -> Vec<String> {
        self.written().lines.clone()
    }

    /// The lines so far for which `matches` holds.
    pub fn matching(&self, matches: impl Fn(&str) -> bool) -> Vec<String> {
        self.written().lines.iter().filter(|line| matches(line)).cloned().collect()
    }

    /// The last lines, for an error message.
    pub(crate) fn tail(&self) -> String {
        let written = self.written();
        let from = written.lines.len().saturating_sub(TAIL);
        let lines = written.lines.iter().skip(from).map(|line| format!("\n    | {line}"));
        [if written.lines.is_empty() { "; it wrote nothing" } else { "; its last lines:" }.to_owned()]
            .into_iter()
            .chain(lines)
            .collect()
    }

    /// The first line for which `matches` holds, as soon as there is one; `None` when the child has closed its output.
    pub(super) async fn find(&self, matches: impl Fn(&str) -> bool) -> Option<String> {
        let mut seen = 0;
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            {
                let written = self.written();
                if let Some(line) = written.lines.iter().skip(seen).find(|line| matches(line)) {
                    return Some(line.clone());
                }
                if written.open_pipes == 0 {
                    return None;
                }
                seen = written.lines.len();
            }
            changed.await;
        }
    }

    fn follow(self: Arc<Self>, pipe: impl Read + Send + 'static) -> Result<()> {
        let name = format!("output of {}", self.name);
        std::thread::Builder::new().name(name).spawn(move || {
            for line in BufReader::new(pipe).split(b'\n') {
                let Ok(line) = line else { break };
                let line = String::from_utf8_lossy(&line).into_owned();
                if self.echo {
                    // Not captured by the test harness, so that it is shown live.
                    let _ = writeln!(std::io::stderr(), "{}| {line}", self.name);
                }
                self.written().lines.push(line);
                self.changed.notify_waiters();
            }
            self.written().open_pipes -= 1;
            self.changed.notify_waiters();
        })?;
        Ok(())
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
