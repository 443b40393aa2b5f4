//! One run of the bench: its clock, the load that it began under, and what it was on.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use jiff::Timestamp;

use crate::figures::Figures;
use crate::machine;
use crate::process::binary;
use crate::report::Report;

/// Begun.
pub(crate) struct Run {
    clock: Instant,
    load: String,
}

impl Run {
    /// Begins with the program's size. `named` is the program, or [`binary`] finds it by `name`.
    ///
    /// # Errors
    /// The program is not there, or /proc does not tell the load.
    pub(crate) fn begin(named: Option<&Path>, name: &str, report: &mut Report) -> Result<(Self, PathBuf)> {
        let run = Self { clock: Instant::now(), load: machine::load()? };
        let program = binary(named, name)?;
        let bytes = std::fs::metadata(&program)?.len();
        report.row(
            "Program file",
            "",
            Figures::bytes([bytes])?,
            "Size of the stripped binary; a static one holds all that it needs",
        );
        Ok((run, program))
    }

    /// Tells whoever waits what is being done.
    pub(crate) fn say(&self, what: &str) {
        eprintln!("bench: {:3} s: {what}", self.clock.elapsed().as_secs());
    }

    /// Ends: the report says what the program was measured on. `env` is what stood around it.
    ///
    /// # Errors
    /// /proc does not tell, or the program does not say its version.
    pub(crate) fn end(&self, program: &Path, env: &str, report: &mut Report) -> Result<()> {
        self.say("done");
        report.circumstances = vec![
            format!("{} on {}", Timestamp::now().strftime("%F"), machine::hardware()?),
            format!(
                "{}; bench: {} build; {env}",
                machine::version(program)?,
                if cfg!(debug_assertions) { "DEBUG" } else { "release" },
            ),
            format!(
                "Load average (1, 5, 15 minutes) at the start {}, at the end {}; {} s in all",
                self.load,
                machine::load()?,
                self.clock.elapsed().as_secs()
            ),
        ];
        Ok(())
    }
}
